/* SPDX-License-Identifier: BSD-2-Clause */
#include "nbd/handle.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "base/clock.h"

enum {
	CONNECT_MS = 5000,
	RESETS_MAX = 20, /* per request */
	FAILURES_MAX = 12, /* in a row, before a new session is requested */
	REOPENS_MAX = 4, /* per call */
	FULL_S = 30, /* longest wait for room at the host */
	AWAY_S = 30, /* longest wait for a lost session */
	BUSY_S = 2, /* longest wait until the host closes a device's old handle */
	PAUSE_NS = 20000000,
};

static void pause_briefly(void)
{
	nanosleep(&(struct timespec){ .tv_nsec = PAUSE_NS }, NULL);
}

/* Sends one request to the host's block service; repeats it while the host has no room. args: the
 * request's words, then the answer's. 0, or -errno. */
static int request_once(struct handle *handle, uint32_t handler, uint32_t args[4],
			const void *payload, uint32_t size, void *answer, size_t answer_size)
{
	const uint64_t until_ns = clock_in_ms(FULL_S * 1000);
	struct careful_ipc packet;
	int rc;

	for (;;) {
		packet = (struct careful_ipc){
			.op = CAREFUL_IPC_REQUEST,
			.peer = handle->peer,
			.handler = handler,
			.payload_bytes = size,
		};
		memcpy(packet.args, args, sizeof(packet.args));
		rc = connection_ask(handle->connection, &packet, payload, NULL, answer,
				    answer_size);
		if (rc != -EAGAIN || clock_now_ns() >= until_ns)
			break;
		pause_briefly();
	}
	memcpy(args, packet.args, sizeof(packet.args));
	return rc;
}

/* Like request_once(), but repeats lost requests. */
static int request(struct handle *handle, uint32_t handler, uint32_t args[4], const void *payload,
		   uint32_t size, void *answer, size_t answer_size)
{
	uint32_t asked[4];
	int rc, resets = 0;

	memcpy(asked, args, sizeof(asked));
	do {
		memcpy(args, asked, sizeof(asked));
		rc = request_once(handle, handler, args, payload, size, answer, answer_size);
	} while (rc == -ECONNRESET && resets++ < RESETS_MAX);
	return rc;
}

static int connect_peer(struct handle *handle)
{
	struct careful_ipc packet = {
		.op = CAREFUL_IPC_CONNECT,
		.bytes = CONNECT_MS,
		.payload_bytes = sizeof(handle->address),
	};
	int rc = connection_ask(handle->connection, &packet, &handle->address, NULL, NULL, 0);

	if (!rc)
		handle->peer = packet.peer;
	return rc;
}

/* Opens a new handle of the path. The caller has the write lock, or runs before threads start. */
static int open_path(struct handle *handle, uint32_t *region, struct careful_block_attr *attr)
{
	size_t path_bytes = strlen(handle->path);
	struct {
		struct careful_block_open open;
		char path[4096];
	} payload = { .open.path_bytes = htobe32((uint32_t)path_bytes) };
	uint32_t args[4] = { 0 };
	int rc;

	if (path_bytes > sizeof(payload.path))
		return -ENAMETOOLONG;
	memcpy(payload.path, handle->path, path_bytes);
	if (handle->is_writable) {
		payload.open.flags = htobe32(CAREFUL_BLOCK_INPLACE);
		payload.open.bytes = htobe64(INT64_MAX); /* no limit on growth */
	}
	if (getrandom(&args[2], 8, 0) != 8) /* the attempt's name (block.h) */
		return -EIO;
	rc = request(handle, CAREFUL_BLOCK_OPEN, args, &payload,
		     (uint32_t)(sizeof(payload.open) + path_bytes), attr, sizeof(*attr));
	if (!rc)
		*region = args[0];
	return rc;
}

static void close_region(struct handle *handle, uint32_t region)
{
	uint32_t args[4] = { region };

	request(handle, CAREFUL_BLOCK_CLOSE, args, NULL, 0, NULL, 0);
}

/* Reports whether the session with the host is gone, not just the handle. */
static bool session_is_gone(int rc)
{
	return rc == -ENOTCONN || rc == -ETIMEDOUT || rc == -ECONNREFUSED || rc == -ECONNABORTED ||
	       rc == -EHOSTUNREACH || rc == -ENETUNREACH;
}

static int reconnect(struct handle *handle)
{
	const uint64_t until_ns = clock_in_ms(AWAY_S * 1000);
	int rc;

	while (((rc = connect_peer(handle)) == -ECONNRESET || session_is_gone(rc)) &&
	       clock_now_ns() < until_ns)
		pause_briefly();
	return rc;
}

bool handle_lost_data(int rc)
{
	return rc == -ECONNRESET || rc == -EBADMSG;
}

static bool handle_is_gone(int rc)
{
	return rc == -ENOENT || rc == -EBADF || session_is_gone(rc);
}

/* Opens the file again after an error; if that fails, the next call does. Needs the write lock. */
static int reopen(struct handle *handle, int error)
{
	const uint32_t old = handle->region;
	struct careful_block_attr attr;
	uint32_t region;
	uint64_t until_ns;
	int rc;

	handle->region = 0;
	if (handle->is_replaced)
		return -ESTALE;
	rc = session_is_gone(error) || handle_lost_data(error) ? reconnect(handle) : 0;
	if (rc)
		return rc;
	if (old) /* the old handle may still be open, and a device allows only one */
		close_region(handle, old);
	until_ns = clock_in_ms(BUSY_S * 1000);
	while ((rc = open_path(handle, &region, &attr)) == -EBUSY && clock_now_ns() < until_ns)
		pause_briefly();
	if (rc)
		return rc;
	if (be64toh(attr.inode) != handle->inode || be64toh(attr.device) != handle->device) {
		close_region(handle, region);
		handle->is_replaced = true;
		return -ESTALE;
	}
	handle->region = region;
	return 0;
}

int handle_recover(struct handle *handle, struct handle_tries *tries, uint32_t region, int rc)
{
	if (handle_lost_data(rc) && tries->failures++ < FAILURES_MAX)
		return 0;
	if ((!handle_is_gone(rc) && !handle_lost_data(rc)) || tries->reopens++ >= REOPENS_MAX)
		return rc;
	pthread_rwlock_wrlock(&handle->lock);
	/* Another call may have reopened the file. */
	rc = handle->region == region ? reopen(handle, rc) : 0;
	pthread_rwlock_unlock(&handle->lock);
	return rc;
}

int handle_commit(struct handle *handle)
{
	struct careful_block_open payload = { .flags = htobe32(CAREFUL_BLOCK_REPLACE) };
	struct careful_block_attr attr;
	uint32_t args[4];
	int rc = 0, reopen_rc, tries;
	bool again;

	/* COMMIT ends the handle, so no other call may use it meanwhile. The host answers a
	 * repeated COMMIT of one handle from memory, without a sync. */
	pthread_rwlock_wrlock(&handle->lock);
	for (tries = 0; tries < REOPENS_MAX; tries++) {
		memcpy(args, (uint32_t[4]){ handle->region, CAREFUL_BLOCK_REPLACE }, sizeof(args));
		rc = request(handle, CAREFUL_BLOCK_COMMIT, args, &payload, sizeof(payload), &attr,
			     sizeof(attr));
		/* After a lost handle, COMMIT of a new handle syncs the same file. */
		again = handle_is_gone(rc) || handle_lost_data(rc);
		if (!rc)
			handle->region = 0;
		reopen_rc = reopen(handle, rc);
		if (reopen_rc && (!rc || again))
			rc = reopen_rc;
		if (reopen_rc || !again)
			break;
	}
	pthread_rwlock_unlock(&handle->lock);
	return rc;
}

int handle_ask_range(struct handle *handle, uint32_t handler, uint32_t flags, uint64_t nbytes,
		     uint64_t offset, uint32_t args[4], void *answer, size_t answer_size)
{
	const struct careful_block_range range = {
		.offset = htobe64(offset),
		.bytes = htobe64(nbytes),
	};
	struct handle_tries tries = { 0 };
	uint32_t region, again = 0;
	int rc;

	do {
		pthread_rwlock_rdlock(&handle->lock);
		region = handle->region;
		memcpy(args, (uint32_t[4]){ region, flags, again }, 4 * sizeof(*args));
		rc = request_once(handle, handler, args, &range, sizeof(range), answer,
				  answer_size);
		pthread_rwlock_unlock(&handle->lock);
		again = 1; /* the host ends an earlier ZERO before this one */
		if (!rc)
			return 0;
		rc = handle_recover(handle, &tries, region, rc);
	} while (!rc);
	return rc;
}

/* Opens the first handle. Tries a busy device a few times, because another nbdkit may be about to
 * end. More tries could hit the gap between another nbdkit's flush and its next handle. */
static int open_first(struct handle *handle, struct careful_block_attr *attr)
{
	struct timespec pause = { .tv_nsec = 50000000 };
	int rc = open_path(handle, &handle->region, attr);

	for (; rc == -EBUSY && pause.tv_nsec < 1000000000; pause.tv_nsec *= 2) {
		nanosleep(&pause, NULL);
		rc = open_path(handle, &handle->region, attr);
	}
	return rc;
}

int handle_open(struct handle *handle, bool writable, struct careful_block_attr *attr)
{
	int rc = connect_peer(handle);

	if (rc)
		return rc;
	handle->is_writable = writable;
	rc = open_first(handle, attr);
	if (writable && (rc == -EROFS || rc == -EACCES || rc == -EPERM)) {
		handle->is_writable = false;
		rc = open_path(handle, &handle->region, attr);
	}
	if (rc)
		return rc;
	handle->inode = be64toh(attr->inode);
	handle->device = be64toh(attr->device);
	return 0;
}

int handle_init(struct handle *handle, const char *sock, const struct sockaddr_storage *address,
		const char *path)
{
	pthread_rwlockattr_t attr;
	int rc;

	*handle = (struct handle){ .address = *address };
	/* A flush must not starve: a waiting writer goes before later readers. */
	pthread_rwlockattr_init(&attr);
	pthread_rwlockattr_setkind_np(&attr, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
	pthread_rwlock_init(&handle->lock, &attr);
	pthread_rwlockattr_destroy(&attr);
	handle->path = strdup(path);
	if (!handle->path)
		return -ENOMEM;
	rc = connection_open(sock, -1, &handle->connection);
	/* Here these errors mean that carefuld is missing, not the file. */
	return rc == -ENOENT || rc == -ECONNREFUSED ? -ENOTCONN : rc;
}

void handle_deinit(struct handle *handle)
{
	if (handle->region)
		close_region(handle, handle->region);
	if (handle->connection)
		connection_close(handle->connection);
	pthread_rwlock_destroy(&handle->lock);
	free(handle->path);
}
