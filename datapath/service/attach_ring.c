// SPDX-License-Identifier: BSD-2-Clause
/*
 * The program's end of the rings that it shares with carefuld (ipc.h): what is asked goes in,
 * what is told comes out and runs the application's functions. carefuld's end is
 * daemon/ipc_ring.c. Calls attach.c.
 */
#include "service/attach.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

enum {
	ROUND = 64, /* of what is told that a poll takes */
	LOOKS = 1 << 16, /* polls between two looks at the socket, where nobody waits */
};

/* The entry at this place was taken: what it named is free. */
static void free_built(struct attached *a, uint32_t at)
{
	if (a->asks_built[at])
		a->built_state[a->asks_built[at] - 1] = ATTACHED_FREE;
	a->asks_built[at] = 0;
}

/* Frees what carefuld has taken. */
void attached_take_back(struct attached *a)
{
	const uint32_t left = a->asks_put - read_number(&a->area->asks_taken);

	for (uint32_t n = left + 1; n <= CAREFUL_RING_ASKS; n++)
		free_built(a, (a->asks_put - n) % CAREFUL_RING_ASKS);
}

/* -EAGAIN: carefuld has not taken what is there. */
static int put(struct careful *c, const struct careful_ring_entry *entry, const void *payload)
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
	/* Either carefuld sees this before it sleeps, or we see that it sleeps. */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (read_number(&a->area->asks_asleep)) {
		write_number(&a->area->asks_asleep, 0);
		attached_ring(a, 0);
	}
	return 0;
}

/* How many requests can begin now. */
uint32_t attached_room(const struct attached *a)
{
	const uint32_t left = CAREFUL_RING_ASKS - (a->asks_put - read_number(&a->area->asks_taken));

	return left < a->free_count ? left : a->free_count;
}

/* Reports whether carefuld has all that was asked. */
bool attached_taken(const struct attached *a)
{
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

static void free_op(struct attached *a, struct attached_op *op)
{
	if (op->pages)
		memset(a->pages_used + op->memory_off / ATTACH_PAGE_BYTES, 0, op->pages);
	op->id = 0;
	a->free[a->free_count++] = (uint8_t)(op - a->ops);
}

/* Some of the memory. -EMSGSIZE: there is never so much; -EAGAIN: not now. */
int attached_pages(struct attached *a, uint64_t bytes, uint64_t *memory_off)
{
	const uint64_t want = (bytes + ATTACH_PAGE_BYTES - 1) / ATTACH_PAGE_BYTES;
	uint32_t run = 0;

	if (bytes > a->memory_bytes)
		return -EMSGSIZE;
	for (uint32_t i = 0; i < a->pages_count; i++) {
		run = a->pages_used[i] ? 0 : run + 1;
		if (run < want)
			continue;
		i -= run - 1;
		memset(a->pages_used + i, 1, run);
		*memory_off = (uint64_t)i * ATTACH_PAGE_BYTES;
		return 0;
	}
	return -EAGAIN;
}

static void args_to(struct careful_ring_entry *entry, const uint32_t *args)
{
	if (args)
		memcpy(entry->args, args, sizeof(entry->args));
}

/* entry: all but its kind, id and args. */
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
	args_to(entry, args);
	rc = put(c, entry, payload);
	if (rc && op)
		free_op(c->attached, op);
	return rc;
}

int attached_request(struct careful *c, uint32_t peer, uint16_t handler, const uint32_t *args,
		     const void *payload, uint32_t bytes, careful_done_fn *done, void *user)
{
	struct careful_ring_entry entry = { .peer = peer, .handler = handler, .bytes = bytes };

	return begin_request(c, &entry, args, payload, done, user);
}

/* built: of the payloads that the application built, one of its own. */
int attached_send(struct careful *c, uint32_t peer, uint16_t handler, const uint32_t *args,
		  uint32_t built, uint32_t bytes, careful_done_fn *done, void *user)
{
	struct attached *a = c->attached;
	struct careful_ring_entry entry = {
		.peer = peer,
		.handler = handler,
		.bytes = bytes,
		.flags = CAREFUL_RING_OF_BUILT,
		.memory_off = built,
	};
	int rc = begin_request(c, &entry, args, NULL, done, user);

	if (rc)
		return rc;
	a->built_state[built] = ATTACHED_SENT;
	a->asks_built[(a->asks_put - 1) % CAREFUL_RING_ASKS] = (uint8_t)(built + 1);
	return 0;
}

/* There is no room for a copy: the bytes stay where they are, and carefuld gets at them there, if
 * that can be. rc: why there is none. */
static int place_own(struct careful *c, struct attached_op *op, const void *base, int rc)
{
	int file = attached_own_file(c);

	if (file < 0)
		return rc;
	op->file = (uint32_t)file + 1;
	op->memory_off = (uintptr_t)base;
	return 0;
}

/* Where the bytes of a get or store lie: in the shared memory, their own place or a copy's; or in
 * a file. */
static int place(struct careful *c, struct attached_op *op, const struct careful_span *local,
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
		return place_own(c, op, local->base, rc);
	op->pages = (bytes + ATTACH_PAGE_BYTES - 1) / ATTACH_PAGE_BYTES;
	if (get)
		op->into = local->base;
	else
		memcpy(a->memory + op->memory_off, local->base, bytes);
	return 0;
}

/* A file of one operation; our memory stays. */
static void lose_file(struct careful *c, uint32_t file)
{
	if (file && file != c->attached->own_file)
		attached_file_remove(c, file - 1);
}

/* A get or a store, as asked says. */
int attached_move(struct careful *c, const struct careful_ring_entry *asked,
		  const struct careful_span *local, careful_done_fn *done, void *user)
{
	struct attached *a = c->attached;
	struct attached_op *op = take_op(a, done, user, asked->peer);
	struct careful_ring_entry entry = *asked;
	int rc;

	if (!op)
		return -EAGAIN;
	rc = place(c, op, local, asked->bytes, asked->kind == CAREFUL_RING_GET);
	op->lands = asked->kind == CAREFUL_RING_GET && !op->into;
	entry.id = op->id;
	entry.memory_off = op->memory_off;
	if (op->file) {
		entry.flags |= CAREFUL_RING_OF_FILE;
		entry.status = (int32_t)op->file - 1;
	}
	if (!rc)
		rc = put(c, &entry, NULL);
	if (rc) {
		const uint32_t file = op->file;

		free_op(a, op);
		lose_file(c, file);
	}
	return rc;
}

/* A ping, as asked says. */
int attached_probe(struct careful *c, const struct careful_ring_entry *asked, careful_ping_fn *done,
		   void *user)
{
	struct attached_op *op = take_op(c->attached, NULL, user, asked->peer);
	struct careful_ring_entry entry = *asked;
	int rc;

	if (!op)
		return -EAGAIN;
	op->pinged = done;
	entry.id = op->id;
	rc = put(c, &entry, NULL);
	if (rc)
		free_op(c->attached, op);
	return rc;
}

/* Who answers without a payload may have no means to do so again: it is done here. */
static int owe(struct attached *a, const struct careful_ring_entry *entry)
{
	if (a->owed_count == CAREFUL_RING_ANSWERS)
		return -EAGAIN;
	a->owed[(a->owed_at + a->owed_count++) % CAREFUL_RING_ANSWERS] = (struct attached_answer){
		.token = (uint32_t)entry->id,
		.status = entry->status,
	};
	return 0;
}

static void answer_owed(struct careful *c)
{
	struct attached *a = c->attached;

	while (a->owed_count) {
		const struct careful_ring_entry entry = {
			.kind = CAREFUL_RING_REPLY,
			.id = a->owed[a->owed_at].token,
			.status = a->owed[a->owed_at].status,
		};

		if (put(c, &entry, NULL) == -EAGAIN)
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

	if (!to->token)
		return 0;
	if (bytes > CAREFUL_RING_PAYLOAD_BYTES)
		return -EMSGSIZE;
	args_to(&entry, args);
	rc = put(c, &entry, payload);
	return rc == -EAGAIN && !bytes && !args ? owe(c->attached, &entry) : rc;
}

static void tell_done(const struct attached_op *op, const struct careful_result *result)
{
	if (op->pinged)
		attached_ping_ended(op->pinged, op->user, result->status, result->payload,
				    result->bytes);
	else if (op->done)
		op->done(result, op->user);
}

static void on_end(struct careful *c, const struct careful_ring_entry *e, const uint8_t *payload)
{
	struct attached *a = c->attached;
	struct attached_op *op = &a->ops[e->id % CAREFUL_RING_OPERATIONS];
	struct careful_result result = {
		.status = e->status,
		.bytes = e->bytes,
		.digest = e->digest,
		.payload = e->flags ? payload : NULL,
	};
	struct attached_op was;

	if (!e->id || op->id != e->id)
		return;
	memcpy(result.args, e->args, sizeof(result.args));
	if (op->into && !op->left && !e->status)
		memcpy(op->into, a->memory + op->memory_off, e->bytes);
	was = *op;
	free_op(a, op); /* free for what the application asks now */
	lose_file(c, was.file);
	if (was.left)
		result = (struct careful_result){ .status = -ECONNRESET };
	tell_done(&was, &result);
}

static void on_message(struct careful *c, const struct careful_ring_entry *e,
		       const uint8_t *payload)
{
	const bool store = e->kind == CAREFUL_RING_STORED;
	const uint32_t index = e->handler % CAREFUL_HANDLERS;
	const struct handler *handler = store ? &c->store_handlers[index] : &c->handlers[index];
	const uint8_t *stored = e->flags & CAREFUL_RING_OF_FILE ?
					attached_stored(c->attached, e->region, e->region_off) :
					c->attached->memory + e->memory_off;
	struct careful_message message = {
		.instance = c,
		.peer = e->peer,
		.handler = (uint16_t)index,
		.token = (uint32_t)e->id,
		.payload = store ? stored : payload,
		.keepable = !store,
		.bytes = e->bytes,
		.region = e->region,
		.region_off = e->region_off,
	};

	memcpy(message.args, e->args, sizeof(message.args));
	if (handler->fn)
		handler->fn(&message, handler->user);
	else if (!store)
		careful_reply(&message, ENOSYS, NULL, NULL, 0);
}

static void on_told(struct careful *c, const struct careful_ring_entry *e, const uint8_t *payload)
{
	switch (e->kind) {
	case CAREFUL_RING_DONE:
		on_end(c, e, payload);
		break;
	case CAREFUL_RING_ASKED:
	case CAREFUL_RING_STORED:
		on_message(c, e, payload);
		break;
	case CAREFUL_RING_PEER:
		if (c->watch)
			c->watch(c, e->peer, (uint32_t)e->status, c->watch_user);
		break;
	default:
		break;
	}
}

/* What was under way to a peer that is closed, or all of it, when carefuld has ended. */
static void end_closed(struct careful *c)
{
	const struct careful_result result = { .status = -ECONNRESET };
	struct attached *a = c->attached;

	a->closed = false;
	for (uint32_t i = 0; i < CAREFUL_RING_OPERATIONS; i++) {
		struct attached_op *op = &a->ops[i], was = *op;

		if (!op->id || (a->socket_fd >= 0 && (!op->left || op->lands)))
			continue;
		op->done = NULL; /* once */
		op->pinged = NULL;
		if (a->socket_fd < 0)
			free_op(a, op);
		tell_done(&was, &result);
	}
}

/* Takes the bells that rang, and sees whether the connection still is one. */
static void look(struct careful *c)
{
	struct attached *a = c->attached;
	char byte;
	ssize_t n;

	if (a->socket_fd < 0)
		return;
	do {
		n = recv(a->socket_fd, &byte, 1, MSG_DONTWAIT);
	} while (n > 0 || (n < 0 && errno == EINTR));
	if (n == 0 || errno != EAGAIN)
		attached_lost(c);
}

static void disarm(struct careful *c)
{
	struct attached *a = c->attached;

	a->armed = false;
	write_number(&a->area->told_asleep, 0);
	look(c);
}

int attached_poll(struct careful *c)
{
	struct attached *a = c->attached;
	const uint32_t put = read_number(&a->area->told_put);
	int n = 0;

	if (c->polling)
		return -EDEADLK;
	c->polling = true;
	if (a->armed)
		disarm(c);
	if (++a->looks % LOOKS == 0)
		look(c);
	answer_owed(c);
	for (; n < ROUND && a->told_taken != put; n++) {
		const uint32_t at = a->told_taken % CAREFUL_RING_TOLD;

		on_told(c, &a->told[at], a->told_payload + (size_t)at * CAREFUL_RING_PAYLOAD_BYTES);
		write_number(&a->area->told_taken, ++a->told_taken);
	}
	if (a->closed)
		end_closed(c);
	if (c->events)
		event_round(c);
	c->polling = false;
	return n || a->socket_fd >= 0 ? n : -ENOTCONN;
}
