// SPDX-License-Identifier: BSD-2-Clause
/* The ring from carefuld to an attached program (ipc.h). A poll takes the entries and runs the
 * program's functions. */
#include "local/attach.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

enum {
	ROUND = 64, /* most entries in a poll */
	LOOKS = 1 << 16, /* a program that never sleeps checks the socket once in so many polls */
	IDLE_MS = 1000,
	EVENTS_MS = 20, /* longest wait of a group's node, which may have to repeat messages */
};

/* Copies the payload, because its place in the ring is reused. */
struct careful_kept *attached_keep(const struct careful_message *message)
{
	struct link_held *held;
	uint8_t *body;

	held = calloc(1, sizeof(*held) + sizeof(struct careful_am) + message->bytes);
	if (!held)
		return NULL;
	body = (uint8_t *)(held + 1);
	if (message->bytes)
		memcpy(body + sizeof(struct careful_am), message->payload, message->bytes);
	held->body = body;
	return &held->messages[0];
}

void attached_release(struct careful *c, struct careful_kept *kept)
{
	(void)c;
	free(link_held_of(kept));
}

/* Calls a ping's callback with the result, or with the status of a ping that has none. */
static void call_pinged(careful_ping_fn *done, void *user, int status, const void *payload,
			uint32_t bytes)
{
	struct careful_ping_result result = { .status = status };

	if (payload && bytes == sizeof(result))
		memcpy(&result, payload, sizeof(result));
	done(&result, user);
}

static void call_done(const struct attached_op *op, const struct careful_result *result)
{
	if (op->pinged)
		call_pinged(op->pinged, op->user, result->status, result->payload, result->bytes);
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
	struct attached_op copy;

	if (!e->id || op->id != e->id)
		return;
	memcpy(result.args, e->args, sizeof(result.args));
	if (op->into && !op->abandoned && !e->status)
		memcpy(op->into, a->memory + op->memory_off, e->bytes);
	copy = *op;
	attached_free_op(a, op); /* first, because the callback may begin an operation */
	attached_file_remove(c, copy.file);
	if (copy.abandoned)
		result = (struct careful_result){ .status = -ECONNRESET };
	call_done(&copy, &result);
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

static void handle_entry(struct careful *c, const struct careful_ring_entry *e,
			 const uint8_t *payload)
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

/* Ends the operations with closed peers, or all if carefuld has ended. */
static void end_closed(struct careful *c)
{
	const struct careful_result result = { .status = -ECONNRESET };
	struct attached *a = c->attached;

	a->closed = false;
	for (uint32_t i = 0; i < CAREFUL_RING_OPERATIONS; i++) {
		struct attached_op *op = &a->ops[i], copy = *op;

		if (!op->id || (a->socket_fd >= 0 && (!op->abandoned || op->lands)))
			continue;
		op->done = NULL;
		op->pinged = NULL;
		if (a->socket_fd < 0)
			attached_free_op(a, op);
		call_done(&copy, &result);
	}
}

static bool has_room_again(const struct attached *a)
{
	return a->refused && a->asks_put - read_number(&a->area->asks_taken) < CAREFUL_RING_ASKS;
}

/* Like has_room_again(), but true only once for each refusal; ends a wait. */
static bool take_room(struct careful *c)
{
	const bool room = has_room_again(c->attached);

	c->attached->refused &= !room;
	c->callbacks += room;
	return room;
}

static void disarm(struct careful *c)
{
	struct attached *a = c->attached;

	a->armed = false;
	write_number(&a->area->notes_asleep, 0);
	attached_look(c);
}

uint64_t attached_now_ns(const struct careful *c)
{
	(void)c;
	return clock_now_ns();
}

int attached_poll(struct careful *c)
{
	struct attached *a = c->attached;
	const uint32_t put = read_number(&a->area->notes_put);
	int n = 0;

	if (c->polling)
		return -EDEADLK;
	c->polling = true;
	if (a->armed)
		disarm(c);
	if (++a->looks % LOOKS == 0)
		attached_look(c);
	attached_answer_owed(c);
	for (; n < ROUND && a->notes_taken != put; n++) {
		const uint32_t at = a->notes_taken % CAREFUL_RING_NOTES;

		handle_entry(c, &a->told[at],
			     a->told_payload + (size_t)at * CAREFUL_RING_PAYLOAD_BYTES);
		write_number(&a->area->notes_taken, ++a->notes_taken);
	}
	if (a->closed)
		end_closed(c);
	if (c->events) {
		link_set_now(&c->link, attached_now_ns(c));
		c->event_hooks->round(c);
	}
	take_room(c);
	c->polling = false;
	return n || a->socket_fd >= 0 ? n : -ENOTCONN;
}

static bool has_work(const struct attached *a)
{
	return read_number(&a->area->notes_put) != a->notes_taken || a->closed || has_room_again(a);
}

/* Asks carefuld to wake us from now on. Returns false if there is work already. */
static bool arm(struct attached *a)
{
	a->armed = true;
	write_number(&a->area->notes_asleep, 1);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	return !has_work(a);
}

int attached_wait_fds(struct careful *c, int *fds, uint32_t n, int *timeout_ms)
{
	struct attached *a = c->attached;
	const bool idle = arm(a) && a->socket_fd >= 0, room = take_room(c);
	uint32_t count = 0;

	if (a->socket_fd >= 0 && n)
		fds[count++] = a->socket_fd;
	*timeout_ms = idle && !room ? (c->events ? EVENTS_MS : IDLE_MS) : 0;
	return (int)count;
}
