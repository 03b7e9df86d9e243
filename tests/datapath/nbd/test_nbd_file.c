/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The NBD plugin's file, on a carefuld of the test's own that is network and host, too: what comes
 * of a handle, and of the file that has its name.
 */
#include "nbd/file.h"

#include <careful/block.h>
#include <careful/ipc.h>
#include <endian.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

enum {
	PEER = 7,
	HANDLES = 64,
	INODES = 3,
	FILE_BYTES = 1 << 20,
	HELD_MS = 200,
	READERS = 3,
	PATIENCE_S = 30,
};

/* A handle's key is where it stands; 0 is none. */
struct handle {
	uint64_t inode;
	bool is_open, is_committed;
	int status; /* of its COMMIT, which is answered so again */
};

/* Between two calls of file.h's this is the test's, during one the thread's.
 * @inode:      of the file that has the name
 * @is_device:  it has one handle at a time
 * @opening:    what an OPEN is answered with
 * @committing: the same of the next COMMIT that ends a handle
 * @resets:     so many of the next questions are lost
 * @away:       it is down, and up again when so many have asked for a session
 * @full:       there is no room for so many of the next requests
 * @stored:     how often each file was written
 * @is_dirty:   what was written is not on the disk
 * @overlaps:   a read is answered when the next one is there, or none comes
 */
static struct {
	struct sockaddr_un address;
	int listener;
	pthread_t thread;
	struct handle handles[HANDLES];
	uint32_t handles_count;
	uint64_t inode;
	bool is_device;
	int opening, committing;
	unsigned int resets, away, full, stored[INODES];
	bool is_dirty;
	bool overlaps, is_held;
	struct careful_ipc held;
} host;

time_t __wrap_time(time_t *at);

time_t __wrap_time(time_t *at)
{
	static time_t day;

	day += 3600;
	if (at)
		*at = day;
	return day;
}

static struct handle *find(uint32_t key)
{
	return key < HANDLES && host.handles[key].is_open ? &host.handles[key] : NULL;
}

static unsigned int open_handles(void)
{
	unsigned int count = 0;

	for (uint32_t key = 1; key < HANDLES; key++)
		count += host.handles[key].is_open;
	return count;
}

static int open_file(struct careful_ipc *packet, struct careful_block_attr *attr)
{
	if (host.opening)
		return host.opening;
	if (host.is_device && open_handles())
		return -EBUSY;
	CHECK(++host.handles_count < HANDLES);
	packet->args[0] = host.handles_count;
	host.handles[host.handles_count] = (struct handle){ .inode = host.inode, .is_open = true };
	*attr = (struct careful_block_attr){
		.mode = htobe32(S_IFREG | 0600),
		.bytes = htobe64(FILE_BYTES),
		.inode = htobe64(host.inode),
	};
	packet->payload_bytes = sizeof(*attr);
	return 0;
}

static int end_handle(uint32_t key, bool is_commit)
{
	struct handle *handle = find(key);

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

static int request(struct careful_ipc *packet, void *payload)
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
	case CAREFUL_BLOCK_EXTENTS: /* there is none: a hole */
		if (!find(packet->args[0]))
			return -EBADF;
		memcpy(packet->args, (uint32_t[4]){ 0, 0, FILE_BYTES }, sizeof(packet->args));
		return 0;
	default:
		return -ENOSYS;
	}
}

/* A session with the host; one that was down has lost its handles. */
static int connect_peer(struct careful_ipc *packet)
{
	packet->peer = PEER;
	if (!host.away)
		return 0;
	for (uint32_t key = 1; key < HANDLES; key++)
		host.handles[key].is_open = false;
	return --host.away ? -ETIMEDOUT : 0;
}

static int answer(struct careful_ipc *packet, void *payload)
{
	const struct handle *handle = find(packet->region);

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

static bool reply(int fd, struct careful_ipc *packet, void *payload)
{
	struct iovec iov[2] = {
		{ .iov_base = packet, .iov_len = sizeof(*packet) },
		{ .iov_base = payload, .iov_len = packet->payload_bytes },
	};
	struct msghdr message = { .msg_iov = iov, .msg_iovlen = 2 };

	return sendmsg(fd, &message, MSG_NOSIGNAL) > 0;
}

/* Answers the read that waits, if one does. */
static void reply_held(int fd)
{
	if (host.is_held)
		reply(fd, &host.held, NULL);
	host.is_held = false;
}

/* A question; false: the connection has ended. */
static bool serve_one(int fd)
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

static void *serve(void *arg)
{
	int fd = accept(host.listener, NULL, NULL);

	(void)arg;
	CHECK(fd >= 0);
	while (serve_one(fd))
		;
	close(fd);
	return NULL;
}

static struct file *begin(void)
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

static void end(struct file *file)
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

static int write_word(struct file *file)
{
	return file_write(file, "word", 4, 0);
}

static int read_word(struct file *file)
{
	char word[4];

	return file_read(file, word, sizeof(word), 0);
}

static int find_hole(void *arg, uint64_t offset, uint64_t nbytes, bool is_data)
{
	CHECK_EQ(offset, 0);
	CHECK_EQ(nbytes, FILE_BYTES);
	CHECK(!is_data);
	++*(int *)arg;
	return 0;
}

static int find_extents(struct file *file)
{
	int count = 0, rc = file_extents(file, FILE_BYTES, 0, find_hole, &count);

	CHECK_EQ(count, !rc);
	return rc;
}

static int zero_word(struct file *file)
{
	return file_zero(file, 4, 0, true);
}

/* Another file got the name: a flush, or what else ends the handle, finds that. */
static void never_writes_into_another_file(bool is_flush)
{
	struct file *file = begin();

	CHECK_EQ(write_word(file), 0);
	host.inode = 2;
	CHECK_EQ(write_word(file), 0); /* into the first, which has a handle yet */
	if (!is_flush)
		host.handles[host.handles_count].is_open = false;
	CHECK_EQ(is_flush ? file_sync(file) : write_word(file), -ESTALE);
	CHECK_EQ(write_word(file), -ESTALE);
	CHECK_EQ(read_word(file), -ESTALE);
	CHECK_EQ(file_sync(file), -ESTALE);
	CHECK_EQ(zero_word(file), -ESTALE);
	CHECK_EQ(find_extents(file), -ESTALE);
	CHECK_EQ(open_handles(), 0);
	host.inode = 1; /* an inode's number is given again */
	CHECK_EQ(write_word(file), -ESTALE);
	CHECK_EQ(host.stored[1], 2);
	CHECK_EQ(host.stored[2], 0);
	end(file);
}

static void test_file__is_not_another_one_after_a_flush(void)
{
	never_writes_into_another_file(true);
}

static void test_file__is_not_another_one_where_its_handle_was_lost(void)
{
	never_writes_into_another_file(false);
}

/* One flush was told of a failure, in COMMIT or in the OPEN behind it; another connection writes,
 * and there is another flush. */
static void syncs_after_a_failure(int committing, int opening)
{
	struct file *file = begin();

	CHECK_EQ(write_word(file), 0);
	host.committing = committing;
	host.opening = opening;
	CHECK_EQ(file_sync(file), committing ? committing : opening);
	CHECK(!host.is_dirty);
	host.opening = 0;
	host.is_dirty = true;
	CHECK_EQ(file_sync(file), 0);
	CHECK(!host.is_dirty);
	CHECK_EQ(write_word(file), 0);
	CHECK_EQ(open_handles(), 1);
	end(file);
}

static void test_file__is_synced_after_a_sync_that_failed(void)
{
	syncs_after_a_failure(-EIO, 0);
	syncs_after_a_failure(-EIO, -EMFILE);
}

static void test_file__is_synced_after_a_flush_that_found_no_room(void)
{
	syncs_after_a_failure(0, -EMFILE);
}

/* It is asked again, and then opened anew: 13 resets in move(), 21 in COMMIT. */
static void has_one_handle_after_resets(unsigned int resets, int (*call)(struct file *file))
{
	struct file *file = begin();

	host.is_device = true;
	CHECK_EQ(write_word(file), 0);
	host.resets = resets;
	CHECK_EQ(call(file), 0);
	CHECK_EQ(host.resets, 0);
	CHECK_EQ(host.handles_count, 2 + (call == file_sync));
	CHECK_EQ(open_handles(), 1);
	end(file);
}

static void test_file__has_one_handle_after_resets(void)
{
	has_one_handle_after_resets(13, write_word);
	has_one_handle_after_resets(21, file_sync);
}

static void test_file__waits_for_a_host_that_is_down(void)
{
	int (*const calls[])(struct file * file) = { read_word, write_word, zero_word, find_extents,
						     file_sync };
	struct file *file = begin();

	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		host.away = 3;
		CHECK_EQ(calls[i](file), 0);
		CHECK_EQ(host.away, 0);
		CHECK_EQ(open_handles(), 1);
	}
	end(file);
}

/* The host has no room for a while, and the clock of the day is set by an hour whenever it is asked. */
static void test_file__waits_whatever_the_clock_is_set_to(void)
{
	struct file *file = begin();

	host.full = 3;
	CHECK_EQ(file_sync(file), 0);
	CHECK_EQ(host.full, 0);
	end(file);
}

static atomic_bool is_synced;
static atomic_uint reads;

/* Reads until the flush has ended; it has to within a long time. */
static void *read_on(void *arg)
{
	struct timespec now;
	time_t until;

	clock_gettime(CLOCK_MONOTONIC, &now);
	until = now.tv_sec + PATIENCE_S;
	do {
		clock_gettime(CLOCK_MONOTONIC, &now);
		CHECK(now.tv_sec < until);
		CHECK_EQ(read_word(arg), 0);
		reads++;
	} while (!is_synced);
	return NULL;
}

/* There is always one under way. */
static void test_file__is_synced_while_reads_go_on(void)
{
	pthread_t readers[READERS];
	struct file *file = begin();

	host.overlaps = true;
	is_synced = false;
	for (int i = 0; i < READERS; i++)
		CHECK(!pthread_create(&readers[i], NULL, read_on, file));
	while (reads < READERS)
		usleep(1000);
	CHECK_EQ(file_sync(file), 0);
	is_synced = true;
	for (int i = 0; i < READERS; i++)
		CHECK(!pthread_join(readers[i], NULL));
	end(file);
}

int main(void)
{
	RUN(test_file__is_not_another_one_after_a_flush);
	RUN(test_file__is_not_another_one_where_its_handle_was_lost);
	RUN(test_file__is_synced_after_a_sync_that_failed);
	RUN(test_file__is_synced_after_a_flush_that_found_no_room);
	RUN(test_file__has_one_handle_after_resets);
	RUN(test_file__waits_for_a_host_that_is_down);
	RUN(test_file__waits_whatever_the_clock_is_set_to);
	RUN(test_file__is_synced_while_reads_go_on);
	return 0;
}
