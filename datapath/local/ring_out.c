// SPDX-License-Identifier: BSD-2-Clause
/* The ring from an attached program to carefuld (ipc.h): requests, replies, stores, gets. */
#include "local/attach.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void free_built(struct attached *a, uint32_t at)
{
	if (a->asks_built[at])
		a->built_state[a->asks_built[at] - 1] = ATTACHED_FREE;
	a->asks_built[at] = 0;
}

/* Frees the payloads of entries that carefuld has taken. */
static void reclaim_built(struct attached *a)
{
	const uint32_t left = a->asks_put - read_number(&a->area->asks_taken);

	for (uint32_t n = left + 1; n <= CAREFUL_RING_ASKS; n++)
		free_built(a, (a->asks_put - n) % CAREFUL_RING_ASKS);
}

/* Puts an entry into the ring. -EAGAIN: the ring is full. */
static int put_entry(struct careful *c, const struct careful_ring_entry *entry, const void *payload)
{
	struct attached *a = c->attached;
	const uint32_t at = a->asks_put % CAREFUL_RING_ASKS;

	if (a->socket_fd < 0)
		return -ENOTCONN;
	if (a->asks_put - read_number(&a->area->asks_taken) >= CAREFUL_RING_ASKS) {
		a->refused = true;
		return -EAGAIN;
	}
	free_built(a, at);
	a->asks[at] = *entry;
	if (payload)
		memcpy(a->asks_payload + (size_t)at * CAREFUL_RING_PAYLOAD_BYTES, payload,
		       entry->bytes);
	write_number(&a->area->asks_put, ++a->asks_put);
	/* Either carefuld sees the entry before it sleeps, or we see that carefuld sleeps. */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (read_number(&a->area->asks_asleep)) {
		write_number(&a->area->asks_asleep, 0);
		attached_bell(a, 0);
	}
	return 0;
}

bool attached_may_begin(struct careful *c, uint32_t requests)
{
	const struct attached *a = c->attached;
	const uint32_t used = a->asks_put - read_number(&a->area->asks_taken);

	return requests <= CAREFUL_RING_ASKS - used && requests <= a->free_count;
}

bool attached_handed_over(const struct careful *c)
{
	const struct attached *a = c->attached;

	return a->socket_fd < 0 ||
	       (!a->owed_count && read_number(&a->area->asks_taken) == a->asks_put);
}

static struct attached_op *take_op(struct attached *a, careful_done_fn *done, void *user,
				   uint32_t peer)
{
	struct attached_op *op;

	if (!a->free_count)
		return NULL;
	op = &a->ops[a->free[--a->free_count]];
	*op = (struct attached_op){ .done = done, .user = user, .peer = peer };
	op->id = ++a->generation * CAREFUL_RING_OPERATIONS + (uint64_t)(op - a->ops);
	return op;
}

void attached_free_op(struct attached *a, struct attached_op *op)
{
	if (op->pages)
		memset(a->pages_used + op->memory_off / ATTACH_PAGE_BYTES, 0, op->pages);
	op->id = 0;
	a->free[a->free_count++] = (uint8_t)(op - a->ops);
}

static void copy_args(struct careful_ring_entry *entry, const uint32_t *args)
{
	if (args)
		memcpy(entry->args, args, sizeof(entry->args));
}

/* Puts a request into the ring; sets the entry's kind, id and args. */
static int begin_request(struct careful *c, struct careful_ring_entry *entry, const uint32_t *args,
			 const void *payload, careful_done_fn *done, void *user)
{
	struct attached_op *op = NULL;
	int rc;

	if (entry->bytes > CAREFUL_RING_PAYLOAD_BYTES)
		return -EMSGSIZE;
	entry->kind = CAREFUL_RING_REQUEST;
	if (done) {
		op = take_op(c->attached, done, user, entry->peer);
		if (!op)
			return -EAGAIN;
		entry->id = op->id;
	}
	copy_args(entry, args);
	rc = put_entry(c, entry, payload);
	if (rc && op)
		attached_free_op(c->attached, op);
	return rc;
}

int attached_request(struct careful *c, uint32_t peer, uint16_t handler, const uint32_t *args,
		     const void *payload, uint32_t bytes, careful_done_fn *done, void *user)
{
	struct careful_ring_entry entry = { .peer = peer, .handler = handler, .bytes = bytes };

	return begin_request(c, &entry, args, payload, done, user);
}

/* Lends a payload that carefuld reads in place. */
int attached_alloc(struct careful *c, void **payload)
{
	struct attached *a = c->attached;
	const uint8_t *state = memchr(a->built_state, ATTACHED_FREE, CAREFUL_RING_BUILT);

	if (a->socket_fd < 0)
		return -ENOTCONN;
	if (!state) {
		reclaim_built(a);
		state = memchr(a->built_state, ATTACHED_FREE, CAREFUL_RING_BUILT);
	}
	if (!state)
		return -EAGAIN;
	a->built_state[state - a->built_state] = ATTACHED_OWN;
	*payload = a->built + (size_t)(state - a->built_state) * CAREFUL_RING_PAYLOAD_BYTES;
	return CAREFUL_RING_PAYLOAD_BYTES;
}

/* Returns the index of a payload from attached_alloc(), or -EINVAL if the application does not have
 * it. */
static int built_index(const struct attached *a, const void *payload)
{
	const uint64_t off = (uint64_t)((uintptr_t)payload - (uintptr_t)a->built);
	const uint64_t at = off / CAREFUL_RING_PAYLOAD_BYTES;

	if (at >= CAREFUL_RING_BUILT || off % CAREFUL_RING_PAYLOAD_BYTES ||
	    a->built_state[at] != ATTACHED_OWN)
		return -EINVAL;
	return (int)at;
}

int attached_free(struct careful *c, void *payload)
{
	int built = built_index(c->attached, payload);

	if (built < 0)
		return built;
	c->attached->built_state[built] = ATTACHED_FREE;
	return 0;
}

int attached_send(struct careful *c, uint32_t peer, uint16_t handler, const uint32_t *args,
		  void *payload, uint32_t bytes, careful_done_fn *done, void *user)
{
	struct attached *a = c->attached;
	const int built = built_index(a, payload);
	struct careful_ring_entry entry = {
		.peer = peer,
		.handler = handler,
		.bytes = bytes,
		.flags = CAREFUL_RING_OF_BUILT,
		.memory_off = (uint64_t)built,
	};
	int rc = built < 0 ? built : begin_request(c, &entry, args, NULL, done, user);

	if (rc)
		return rc;
	a->built_state[built] = ATTACHED_SENT;
	a->asks_built[(a->asks_put - 1) % CAREFUL_RING_ASKS] = (uint8_t)(built + 1);
	return 0;
}

/* Lets carefuld reach bytes by /proc/self/mem, because no copy fits. If this fails, returns rc. */
static int use_own_file(struct careful *c, struct attached_op *op, const void *base, int rc)
{
	int file = attached_own_file(c);

	if (file < 0)
		return rc;
	op->file = (uint32_t)file + 1;
	op->memory_off = (uintptr_t)base;
	return 0;
}

/* Chooses where carefuld finds the bytes of a get or store: in the shared memory (in place, or a
 * copy), or in a file. */
static int locate(struct careful *c, struct attached_op *op, const struct careful_span *local,
		  uint32_t bytes, bool get)
{
	struct attached *a = c->attached;
	const uint64_t off = (uint64_t)((uintptr_t)local->base - (uintptr_t)a->memory);
	int rc;

	if (!bytes)
		return 0;
	if (!local->base) {
		op->memory_off = local->offset;
		rc = attached_file_add(c, local->fd, &op->file);
		op->file = rc ? 0 : op->file + 1;
		return rc;
	}
	op->memory_off = off;
	if (off <= a->memory_bytes && bytes <= a->memory_bytes - off)
		return 0;
	rc = attached_pages(a, bytes, &op->memory_off);
	if (rc)
		return use_own_file(c, op, local->base, rc);
	op->pages = (bytes + ATTACH_PAGE_BYTES - 1) / ATTACH_PAGE_BYTES;
	if (get)
		op->into = local->base;
	else
		memcpy(a->memory + op->memory_off, local->base, bytes);
	return 0;
}

static int move(struct careful *c, const struct careful_ring_entry *asked,
		const struct careful_span *local, careful_done_fn *done, void *user)
{
	struct attached *a = c->attached;
	struct attached_op *op = take_op(a, done, user, asked->peer);
	struct careful_ring_entry entry = *asked;
	int rc;

	if (!op)
		return -EAGAIN;
	rc = locate(c, op, local, asked->bytes, asked->kind == CAREFUL_RING_GET);
	op->lands = asked->kind == CAREFUL_RING_GET && !op->into;
	entry.id = op->id;
	entry.memory_off = op->memory_off;
	if (op->file) {
		entry.flags |= CAREFUL_RING_OF_FILE;
		entry.status = (int32_t)op->file - 1;
	}
	if (!rc)
		rc = put_entry(c, &entry, NULL);
	if (rc) {
		const uint32_t file = op->file;

		attached_free_op(a, op);
		attached_file_remove(c, file);
	}
	return rc;
}

int attached_store(struct careful *c, uint32_t peer, uint32_t region, uint64_t region_off,
		   const struct careful_span *local, uint32_t bytes, uint16_t handler,
		   const uint32_t *args, uint32_t flags, careful_done_fn *done, void *user)
{
	struct careful_ring_entry entry = {
		.kind = CAREFUL_RING_STORE,
		.peer = peer,
		.handler = handler,
		.region = region,
		.region_off = region_off,
		.bytes = bytes,
		.flags = flags,
	};

	copy_args(&entry, args);
	return move(c, &entry, local, done, user);
}

int attached_get(struct careful *c, uint32_t peer, uint32_t region, uint64_t region_off,
		 const struct careful_span *local, uint32_t bytes, uint32_t flags,
		 careful_done_fn *done, void *user)
{
	const struct careful_ring_entry entry = {
		.kind = CAREFUL_RING_GET,
		.peer = peer,
		.region = region,
		.region_off = region_off,
		.bytes = bytes,
		.flags = flags,
	};

	return move(c, &entry, local, done, user);
}

/* If carefuld cannot begin the ping (-EAGAIN), done gets that status. */
int attached_ping(struct careful *c, uint32_t peer, const struct careful_ping_ask *ask,
		  careful_ping_fn *done, void *user)
{
	struct attached_op *op = take_op(c->attached, NULL, user, peer);
	struct careful_ring_entry entry = {
		.kind = CAREFUL_RING_PING,
		.peer = peer,
		.args = { ask->stage, ask->ttl, ask->timeout_ms, ask->bytes },
	};
	int rc;

	if (!op)
		return -EAGAIN;
	op->pinged = done;
	entry.id = op->id;
	rc = put_entry(c, &entry, NULL);
	if (rc)
		attached_free_op(c->attached, op);
	return rc;
}

/* Sends a reply without payload later: the caller may be unable to repeat it. */
static int defer_reply(struct attached *a, const struct careful_ring_entry *entry)
{
	if (a->owed_count == CAREFUL_RING_ANSWERS)
		return -EAGAIN;
	a->owed[(a->owed_at + a->owed_count++) % CAREFUL_RING_ANSWERS] = (struct attached_answer){
		.token = (uint32_t)entry->id,
		.status = entry->status,
	};
	return 0;
}

void attached_answer_owed(struct careful *c)
{
	struct attached *a = c->attached;

	while (a->owed_count) {
		const struct careful_ring_entry entry = {
			.kind = CAREFUL_RING_REPLY,
			.id = a->owed[a->owed_at].token,
			.status = a->owed[a->owed_at].status,
		};

		if (put_entry(c, &entry, NULL) == -EAGAIN)
			return;
		a->owed_at = (a->owed_at + 1) % CAREFUL_RING_ANSWERS;
		a->owed_count--;
	}
}

int attached_reply(struct careful *c, const struct careful_reply_to *to, int status,
		   const uint32_t *args, const void *payload, uint32_t bytes)
{
	struct careful_ring_entry entry = {
		.kind = CAREFUL_RING_REPLY,
		.id = to->token,
		.status = status < 0 ? -status : status,
		.bytes = bytes,
	};
	int rc;

	if (bytes > CAREFUL_RING_PAYLOAD_BYTES)
		return -EMSGSIZE;
	copy_args(&entry, args);
	rc = put_entry(c, &entry, payload);
	return rc == -EAGAIN && !bytes && !args ? defer_reply(c->attached, &entry) : rc;
}
