/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Fakes a carefuld, the network and the host for the NBD plugin's file: a thread answers on the
 * socket as the test wants. There is one file; begin() opens it.
 */
#ifndef CAREFUL_TESTS_NBD_HOST_H
#define CAREFUL_TESTS_NBD_HOST_H

#include <careful/block.h>
#include <careful/ipc.h>
#include <endian.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "check.h"
#include "nbd/file.h"

enum {
	PEER = 7,
	HANDLES = 64,
	INODES = 3,
	FILE_BYTES = 1 << 20,
	HELD_MS = 200,
};

/* A handle's key is its index; 0: none. */
struct host_handle {
	uint64_t inode;
	bool is_open, is_committed;
	int status; /* status of its COMMIT, also of a repeated one */
};

/* The test owns this between two calls of file.h, the thread during a call.
 * @inode:      of the named file
 * @is_device:  the file has one handle at a time
 * @opening:    status of an OPEN
 * @committing: status of the next COMMIT that ends a handle
 * @resets:     number of the next requests that are lost
 * @away:       the host is down until this many CONNECTs
 * @full:       number of the next requests that find no room
 * @stored:     how often each file was written
 * @is_dirty:   unsynced writes exist
 * @overlaps:   a read is answered when the next read comes, or after HELD_MS
 */
static struct {
	struct sockaddr_un address;
	int listener;
	pthread_t thread;
	struct host_handle handles[HANDLES];
	uint32_t handles_count;
	uint64_t inode;
	bool is_device;
	int opening, committing;
	unsigned int resets, away, full, stored[INODES];
	bool is_dirty;
	bool overlaps, is_held;
	struct careful_ipc held;
} host;

static inline struct host_handle *find(uint32_t key)
{
	return key < HANDLES && host.handles[key].is_open ? &host.handles[key] : NULL;
}

static inline unsigned int open_handles(void)
{
	unsigned int count = 0;

	for (uint32_t key = 1; key < HANDLES; key++)
		count += host.handles[key].is_open;
	return count;
}

static inline int open_file(struct careful_ipc *packet, struct careful_block_attr *attr)
{
	if (host.opening)
		return host.opening;
	if (host.is_device && open_handles())
		return -EBUSY;
	CHECK(++host.handles_count < HANDLES);
	packet->args[0] = host.handles_count;
	host.handles[host.handles_count] =
		(struct host_handle){ .inode = host.inode, .is_open = true };
	*attr = (struct careful_block_attr){
		.mode = htobe32(S_IFREG | 0600),
		.bytes = htobe64(FILE_BYTES),
		.inode = htobe64(host.inode),
	};
	packet->payload_bytes = sizeof(*attr);
	return 0;
}

static inline int end_handle(uint32_t key, bool is_commit)
{
	struct host_handle *handle = find(key);

	if (!handle)
		return is_commit && key < HANDLES && host.handles[key].is_committed ?
			       host.handles[key].status :
			       -EBADF;
	handle->is_open = false;
	if (!is_commit)
		return 0;
	handle->is_committed = true;
	handle->status = host.committing;
	host.committing = 0;
	host.is_dirty = false;
	return handle->status;
}

static inline int request(struct careful_ipc *packet, void *payload)
{
	if (host.full && host.full--)
		return -EAGAIN;
	switch (packet->handler) {
	case CAREFUL_BLOCK_OPEN:
		return open_file(packet, payload);
	case CAREFUL_BLOCK_COMMIT:
		return end_handle(packet->args[0], true);
	case CAREFUL_BLOCK_CLOSE:
		return end_handle(packet->args[0], false);
	case CAREFUL_BLOCK_ZERO:
		return find(packet->args[0]) ? 0 : -EBADF;
	case CAREFUL_BLOCK_EXTENTS: /* no extent: a hole */
		if (!find(packet->args[0]))
			return -EBADF;
		memcpy(packet->args, (uint32_t[4]){ 0, 0, FILE_BYTES }, sizeof(packet->args));
		return 0;
	default:
		return -ENOSYS;
	}
}

/* Answers CONNECT; a host that was down has lost its handles. */
static inline int connect_peer(struct careful_ipc *packet)
{
	packet->peer = PEER;
	if (!host.away)
		return 0;
	for (uint32_t key = 1; key < HANDLES; key++)
		host.handles[key].is_open = false;
	return --host.away ? -ETIMEDOUT : 0;
}

static inline int answer(struct careful_ipc *packet, void *payload)
{
	const struct host_handle *handle = find(packet->region);

	if (packet->op == CAREFUL_IPC_FILE_ADD)
		return 0;
	if (host.resets && host.resets--)
		return -ECONNRESET;
	if (packet->op == CAREFUL_IPC_CONNECT)
		return connect_peer(packet);
	if (host.away)
		return -ENOTCONN;
	switch (packet->op) {
	case CAREFUL_IPC_REQUEST:
		return request(packet, payload);
	case CAREFUL_IPC_STORE:
		if (handle) {
			host.stored[handle->inode]++;
			host.is_dirty = true;
		}
		return handle ? 0 : -ENOENT;
	case CAREFUL_IPC_GET:
		return handle ? 0 : -ENOENT;
	default:
		return -ENOSYS;
	}
}

static inline bool reply(int fd, struct careful_ipc *packet, void *payload)
{
	struct iovec iov[2] = {
		{ .iov_base = packet, .iov_len = sizeof(*packet) },
		{ .iov_base = payload, .iov_len = packet->payload_bytes },
	};
	struct msghdr message = { .msg_iov = iov, .msg_iovlen = 2 };

	return sendmsg(fd, &message, MSG_NOSIGNAL) > 0;
}

/* Answers a waiting read, if any. */
static inline void reply_held(int fd)
{
	if (host.is_held)
		reply(fd, &host.held, NULL);
	host.is_held = false;
}

/* Serves one request. Returns false if the connection has ended. */
static inline bool serve_one(int fd)
{
	struct pollfd next = { .fd = fd, .events = POLLIN };
	char control[CMSG_SPACE(sizeof(int))];
	struct careful_block_attr payload;
	struct careful_ipc packet;
	char asked[4096];
	struct iovec iov[2] = {
		{ .iov_base = &packet, .iov_len = sizeof(packet) },
		{ .iov_base = asked, .iov_len = sizeof(asked) },
	};
	struct msghdr message = {
		.msg_iov = iov,
		.msg_iovlen = 2,
		.msg_control = control,
		.msg_controllen = sizeof(control),
	};
	struct cmsghdr *passed;

	if (host.is_held && !poll(&next, 1, HELD_MS))
		reply_held(fd);
	if (recvmsg(fd, &message, 0) <= 0)
		return false;
	passed = CMSG_FIRSTHDR(&message);
	if (passed)
		close(*(int *)CMSG_DATA(passed));
	packet.payload_bytes = 0;
	packet.status = answer(&packet, &payload);
	if (!host.overlaps || packet.op != CAREFUL_IPC_GET)
		return reply(fd, &packet, &payload);
	reply_held(fd);
	host.held = packet;
	host.is_held = true;
	return true;
}

static inline void *serve(void *arg)
{
	int fd = accept(host.listener, NULL, NULL);

	(void)arg;
	CHECK(fd >= 0);
	while (serve_one(fd))
		;
	close(fd);
	return NULL;
}

/* Opens the file. */
static inline struct file *begin(void)
{
	struct sockaddr_storage there = { .ss_family = AF_INET };
	char folder[] = "/tmp/careful-nbd-XXXXXX";
	struct file *file;

	memset(&host, 0, sizeof(host));
	host.inode = 1;
	CHECK(mkdtemp(folder));
	host.address.sun_family = AF_UNIX;
	snprintf(host.address.sun_path, sizeof(host.address.sun_path), "%s/sock", folder);
	host.listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	CHECK(!bind(host.listener, (struct sockaddr *)&host.address, sizeof(host.address)));
	CHECK(!listen(host.listener, 1));
	CHECK(!pthread_create(&host.thread, NULL, serve, NULL));
	CHECK(!file_open(host.address.sun_path, &there, "image", true, &file));
	CHECK_EQ(open_handles(), 1);
	return file;
}

static inline void end(struct file *file)
{
	char *name = strrchr(host.address.sun_path, '/');

	file_close(file);
	CHECK(!pthread_join(host.thread, NULL));
	CHECK_EQ(open_handles(), 0);
	close(host.listener);
	unlink(host.address.sun_path);
	*name = '\0';
	rmdir(host.address.sun_path);
}

#endif /* CAREFUL_TESTS_NBD_HOST_H */
