/* SPDX-License-Identifier: BSD-2-Clause */
/* The handle that an open file has at its host. Owns the session, and what ends and renews
 * either. */
#include "nbd/handle.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

enum {
	CONNECT_MS = 5000,
	RESETS_MAX = 20, /* of one request */
	FAILURES_MAX = 12, /* in a row, before the host is asked for a new session */
	REOPENS_MAX = 4, /* for one call */
	FULL_S = 30, /* how long a request waits for room at the host */
	AWAY_S = 30, /* how long a host may be away that was there */
	BUSY_S = 2, /* how long a device's handle of an ended session may take to be closed */
	PAUSE_NS = 20000000,
};

static time_t now_s(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec;
}

/* A request to the host's block service; its answer's words and payload. 0, or -errno. Where the
 * host has no room it is asked again. */
static int request_once(struct handle *handle, uint32_t handler, uint32_t args[4],
			const void *payload, uint32_t size, void *answer, size_t answer_size)
{
	struct timespec pause = { .tv_nsec = PAUSE_NS };
	time_t until = now_s() + FULL_S;
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
		rc = client_ask(handle->client, &packet, payload, -1, answer, answer_size);
		if (rc != -EAGAIN || now_s() >= until)
			break;
		nanosleep(&pause, NULL);
	}
	memcpy(args, packet.args, sizeof(packet.args));
	return rc;
}

/* The same, again where it was lost, too. */
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

/* A session with the host. */
static int connect_peer(struct handle *handle)
{
	struct careful_ipc packet = {
		.op = CAREFUL_IPC_CONNECT,
		.bytes = CONNECT_MS,
		.payload_bytes = sizeof(handle->address),
	};
	int rc = client_ask(handle->client, &packet, &handle->address, -1, NULL, 0);

	if (!rc)
		handle->peer = packet.peer;
	return rc;
}

/* Another handle of the path. With the lock, or alone. */
static int open_path(struct handle *handle, uint32_t *region, struct careful_block_attr *attr)
{
	size_t path = strlen(handle->path);
	struct {
		struct careful_block_open open;
		char path[4096];
	} payload = { .open.path_bytes = htobe32((uint32_t)path) };
	uint32_t args[4] = { 0 };
	int rc;

	if (path > sizeof(payload.path))
		return -ENAMETOOLONG;
	memcpy(payload.path, handle->path, path);
	if (handle->is_writable) {
		payload.open.flags = htobe32(CAREFUL_BLOCK_INPLACE);
		payload.open.bytes = htobe64(INT64_MAX); /* it may grow as it likes */
	}
	if (getrandom(&args[2], 8, 0) != 8)
		return -EIO;
	rc = request(handle, CAREFUL_BLOCK_OPEN, args, &payload,
		     (uint32_t)(sizeof(payload.open) + path), attr, sizeof(*attr));
	if (!rc)
		*region = args[0];
	return rc;
}

static void close_region(struct handle *handle, uint32_t region)
{
	uint32_t args[4] = { region };

	request(handle, CAREFUL_BLOCK_CLOSE, args, NULL, 0, NULL, 0);
}

/* Reports whether the session with the host is gone, not the handle alone. */
static bool is_away(int rc)
{
	return rc == -ENOTCONN || rc == -ETIMEDOUT || rc == -ECONNREFUSED || rc == -ECONNABORTED ||
	       rc == -EHOSTUNREACH || rc == -ENETUNREACH;
}

/* A session with a host that was there: it may take a while to come back. */
static int reconnect(struct handle *handle)
{
	struct timespec pause = { .tv_nsec = PAUSE_NS };
	time_t until = now_s() + AWAY_S;
	int rc;

	while (((rc = connect_peer(handle)) == -ECONNRESET || is_away(rc)) && now_s() < until)
		nanosleep(&pause, NULL);
	return rc;
}

bool handle_is_damaged(int rc)
{
	return rc == -ECONNRESET || rc == -EBADMSG;
}

/* Reports whether the handle has ended, or the session with it. */
static bool is_lost(int rc)
{
	return rc == -ENOENT || rc == -EBADF || is_away(rc);
}

/* The same file again, where the session or the handle has ended with `ended`, or seems to. Without
 * one the next call tries again. With the lock. */
static int open_again(struct handle *handle, int ended)
{
	struct timespec pause = { .tv_nsec = PAUSE_NS };
	const uint32_t old = handle->region;
	struct careful_block_attr attr;
	uint32_t region;
	time_t until;
	int rc;

	handle->region = 0;
	if (handle->is_replaced)
		return -ESTALE;
	rc = is_away(ended) || handle_is_damaged(ended) ? reconnect(handle) : 0;
	if (rc)
		return rc;
	if (old) /* it may live: a device has no other beside it */
		close_region(handle, old);
	until = now_s() + BUSY_S;
	while ((rc = open_path(handle, &region, &attr)) == -EBUSY && now_s() < until)
		nanosleep(&pause, NULL);
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

int handle_mend(struct handle *handle, struct handle_tries *tries, uint32_t region, int rc)
{
	if (handle_is_damaged(rc) && tries->failures++ < FAILURES_MAX)
		return 0;
	if ((!is_lost(rc) && !handle_is_damaged(rc)) || tries->reopens++ >= REOPENS_MAX)
		return rc;
	pthread_rwlock_wrlock(&handle->lock);
	/* Unless another call was quicker. */
	rc = handle->region == region ? open_again(handle, rc) : 0;
	pthread_rwlock_unlock(&handle->lock);
	return rc;
}

int handle_commit(struct handle *handle)
{
	struct careful_block_open payload = { .flags = htobe32(CAREFUL_BLOCK_REPLACE) };
	struct careful_block_attr attr;
	uint32_t args[4];
	int rc = 0, opened, tries;
	bool again;

	/* The handle ends with its COMMIT: nobody else may find that, however often we sync. Nor may
	 * it be committed again: the host would answer as it did, without a sync. */
	pthread_rwlock_wrlock(&handle->lock);
	for (tries = 0; tries < REOPENS_MAX; tries++) {
		memcpy(args, (uint32_t[4]){ handle->region, CAREFUL_BLOCK_REPLACE }, sizeof(args));
		rc = request(handle, CAREFUL_BLOCK_COMMIT, args, &payload, sizeof(payload), &attr,
			     sizeof(attr));
		/* Where the handle was lost: another one's COMMIT syncs the same file. */
		again = is_lost(rc) || handle_is_damaged(rc);
		if (!rc)
			handle->region = 0;
		opened = open_again(handle, rc);
		if (opened && (!rc || again))
			rc = opened;
		if (opened || !again)
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
		again = 1; /* a ZERO that still runs ends before another begins */
		if (!rc)
			return 0;
		rc = handle_mend(handle, &tries, region, rc);
	} while (!rc);
	return rc;
}

/* The first handle. Where a device is in use, another nbdkit may be about to end, as after --run: a
 * few more tries. Many could come between a flush of one that goes on and its next handle. */
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

int handle_open(struct handle *handle, bool wanted, struct careful_block_attr *attr)
{
	int rc = connect_peer(handle);

	if (rc)
		return rc;
	handle->is_writable = wanted;
	rc = open_first(handle, attr);
	if (wanted && (rc == -EROFS || rc == -EACCES || rc == -EPERM)) {
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
	/* Reads and writes that overlap hold up no flush: who comes later waits for it. */
	pthread_rwlockattr_init(&attr);
	pthread_rwlockattr_setkind_np(&attr, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
	pthread_rwlock_init(&handle->lock, &attr);
	pthread_rwlockattr_destroy(&attr);
	handle->path = strdup(path);
	if (!handle->path)
		return -ENOMEM;
	rc = client_connect(sock, &handle->client);
	/* No file of the host's is missing. */
	return rc == -ENOENT || rc == -ECONNREFUSED ? -ENOTCONN : rc;
}

void handle_deinit(struct handle *handle)
{
	if (handle->region)
		close_region(handle, handle->region);
	if (handle->client)
		client_close(handle->client);
	pthread_rwlock_destroy(&handle->lock);
	free(handle->path);
}
