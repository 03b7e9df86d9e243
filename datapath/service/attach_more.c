// SPDX-License-Identifier: BSD-2-Clause
/*
 * What an attached program has beside messages and moves: regions, messages that it builds or
 * keeps, and pings. Calls attach.c, attach_ring.c.
 *
 * Memory that is not shared is a file to carefuld, which we open, for it may not: /proc/self/mem.
 * What lies at an address has that offset in it, and the kernel copies between it and frames. With
 * the program the memory ends, and carefuld reads nothing more from it.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <careful/wire.h>

#include "service/attach.h"

/* Into a file on a disk that hangs something may be written for ever. */
enum { QUIET_MS = 3000 };

static int open_own(void)
{
	int fd = open("/proc/self/mem", O_RDWR | O_CLOEXEC);

	/* Without /proc, or where a program may not look into itself. */
	return fd < 0 ? -EOPNOTSUPP : fd;
}

/* Our memory, as moves name it: carefuld's number of it, or -errno. */
int attached_own_file(struct careful *c)
{
	struct attached *a = c->attached;
	uint32_t file;
	int fd, rc;

	if (!a->own_file) {
		fd = open_own();
		if (fd < 0)
			return fd;
		rc = attached_file_add(c, fd, &file);
		close(fd);
		if (rc)
			return rc;
		a->own_file = file + 1;
	}
	return (int)a->own_file - 1;
}

/* carefuld writes nothing more into memory that is the application's: that may be another's soon.
 * A child of fork() asks nothing, for its memory is another. */
void attached_quiet(struct careful *c)
{
	const struct timespec pause = { .tv_nsec = 1000000 };
	const struct attached *a = c->attached;
	bool is_written = a->own_file || a->lent;

	for (uint32_t i = 0; i < CAREFUL_AREA_REGIONS; i++)
		is_written |= a->regions[i].key;
	if (!is_written || c->owner != getpid())
		return;
	for (uint32_t i = 0; i < QUIET_MS; i++) {
		struct careful_ipc head = { .op = CAREFUL_IPC_QUIET };

		if (attached_ask(c, &head, NULL, 0, NULL, 0) != -EBUSY)
			return;
		nanosleep(&pause, NULL);
	}
}

static struct attached_region *find_region(struct attached *a, uint32_t key)
{
	for (uint32_t i = 0; i < CAREFUL_AREA_REGIONS; i++)
		if (a->regions[i].key == key)
			return &a->regions[i];
	return NULL;
}

int attached_region_add(struct careful *c, const struct careful_region *region, uint32_t *key)
{
	struct attached *a = c->attached;
	const uint64_t off = (uint64_t)((uintptr_t)region->span.base - (uintptr_t)a->memory);
	struct attached_region *own = NULL;
	struct careful_ipc head = {
		.op = CAREFUL_IPC_REGION_ADD,
		.bytes = region->bytes,
		.flags = region->access,
		.peer = region->peer,
	};
	int rc, fd = -1;

	if (!region->span.base) {
		fd = region->span.fd;
		head.file_off = region->span.offset;
		if (fd < 0)
			return -EINVAL;
	} else if (off <= a->memory_bytes && region->bytes <= a->memory_bytes - off) {
		head.region_off = off;
	} else {
		own = find_region(a, 0);
		if (!own)
			return -ENOSPC;
		fd = open_own();
		if (fd < 0)
			return fd;
		head.file_off = (uintptr_t)region->span.base;
	}
	rc = attached_pass(c, &head, NULL, 0, NULL, 0, fd);
	if (own)
		close(fd);
	if (rc)
		return rc;
	*key = head.region;
	if (own)
		*own = (struct attached_region){ .key = *key, .base = region->span.base };
	return 0;
}

int attached_region_remove(struct careful *c, uint32_t key)
{
	struct careful_ipc head = { .op = CAREFUL_IPC_REGION_REMOVE, .region = key };
	struct attached_region *own = key ? find_region(c->attached, key) : NULL;
	int rc = attached_ask(c, &head, NULL, 0, NULL, 0);

	if (!rc && own)
		own->key = 0;
	return rc;
}

/* What was stored into a region of memory that is not shared; NULL: it is of a file. */
const uint8_t *attached_stored(const struct attached *a, uint32_t key, uint64_t off)
{
	for (uint32_t i = 0; key && i < CAREFUL_AREA_REGIONS; i++)
		if (a->regions[i].key == key)
			return a->regions[i].base + off;
	return NULL;
}

/* A payload that carefuld reads where it is built. */
int attached_alloc(struct careful *c, void **payload)
{
	struct attached *a = c->attached;
	const uint8_t *found = memchr(a->built_state, ATTACHED_FREE, CAREFUL_RING_BUILT);

	if (a->socket_fd < 0)
		return -ENOTCONN;
	if (!found) {
		attached_take_back(a);
		found = memchr(a->built_state, ATTACHED_FREE, CAREFUL_RING_BUILT);
	}
	if (!found)
		return -EAGAIN;
	a->built_state[found - a->built_state] = ATTACHED_OWN;
	*payload = a->built + (size_t)(found - a->built_state) * CAREFUL_RING_PAYLOAD_BYTES;
	return CAREFUL_RING_PAYLOAD_BYTES;
}

/* Which one attached_alloc() gave; -EINVAL: it is not the application's. */
int attached_built(const struct attached *a, const void *payload)
{
	const uint64_t off = (uint64_t)((uintptr_t)payload - (uintptr_t)a->built);
	const uint64_t at = off / CAREFUL_RING_PAYLOAD_BYTES;

	if (at >= CAREFUL_RING_BUILT || off % CAREFUL_RING_PAYLOAD_BYTES ||
	    a->built_state[at] != ATTACHED_OWN)
		return -EINVAL;
	return (int)at;
}

int attached_free(struct careful *c, const void *payload)
{
	int built = attached_built(c->attached, payload);

	if (built < 0)
		return built;
	c->attached->built_state[built] = ATTACHED_FREE;
	return 0;
}

/* A copy: the ring's place is the next message's, and its credit went back when carefuld told. */
struct careful_kept *attached_keep(const struct careful_message *message)
{
	struct link_held *held;
	uint8_t *body;

	if (!message->keepable)
		return NULL;
	held = calloc(1, sizeof(*held) + sizeof(struct careful_am) + message->bytes);
	if (!held)
		return NULL;
	body = (uint8_t *)(held + 1);
	if (message->bytes)
		memcpy(body + sizeof(struct careful_am), message->payload, message->bytes);
	held->body = body;
	return &held->messages[0];
}

void attached_release(struct careful_kept *kept)
{
	free(link_held_of(kept));
}

/* What an own queue refuses at once with -EAGAIN, done hears here. */
int attached_ping(struct careful *c, uint32_t peer, const struct careful_ping_ask *ask,
		  careful_ping_fn *done, void *user)
{
	const struct careful_ring_entry entry = {
		.kind = CAREFUL_RING_PING,
		.peer = peer,
		.args = { ask->stage, ask->ttl, ask->timeout_ms, ask->bytes },
	};

	return attached_probe(c, &entry, done, user);
}

/* What carefuld says of a ping; of one that did not begin, or whose answer is none, the status. */
void attached_ping_ended(careful_ping_fn *done, void *user, int status, const void *payload,
			 uint32_t bytes)
{
	struct careful_ping_result result = { .status = status };

	if (payload && bytes == sizeof(result))
		memcpy(&result, payload, sizeof(result));
	done(&result, user);
}
