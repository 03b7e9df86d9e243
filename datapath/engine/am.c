// SPDX-License-Identifier: BSD-2-Clause
/* Handles the active messages (P4; GAM) of one frame: requests run a handler, replies end an
 * operation, gets become bulk messages. */
#include "engine/engine.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

static void on_reply(struct careful *c, struct link_peer *peer, const struct careful_am *am,
		     const void *payload, uint32_t bytes)
{
	struct operation *op = operation_find(c, be32toh(am->token), peer, peer->epoch);
	struct careful_result result = { 0 };

	if (!op || op->placing) {
		link_count(&c->link, CAREFUL_C_DROP_MESSAGE);
		return;
	}
	result.status = -(int)(be32toh(am->status) & 0xfff);
	if (op->kind != CAREFUL_AM_REQUEST)
		bulk_answered(c, op, -result.status);
	if (op->live.began_ns && live_answered(c, op, result.status))
		return;
	/* The data of a get is a message of its own: a reply only reports an error. */
	if (op->kind == CAREFUL_AM_GET && !result.status)
		result.status = -EPROTO;
	result.payload = op->kind == CAREFUL_AM_REQUEST ? payload : NULL;
	result.bytes = op->kind == CAREFUL_AM_REQUEST ? bytes : result.status ? 0 : op->bytes;
	result.digest = op->digest;
	am_args(am, result.args);
	operation_end_now(c, op, &result); /* not later: the payload's buffer is released next */
}

static void on_request(struct careful *c, struct link_peer *peer, const struct careful_am *am,
		       const void *payload, uint32_t bytes)
{
	uint32_t index = be16toh(am->handler);
	struct handler *handler = &c->handlers[index < CAREFUL_HANDLERS ? index : CAREFUL_HANDLERS];
	struct careful_message message = {
		.instance = c,
		.peer = peer->slot,
		.handler = (uint16_t)index,
		.token = be32toh(am->token),
		.payload = payload,
		.bytes = bytes,
		.keepable = c->handled_frame || c->handled_held,
	};

	c->handled_kept = NULL;
	if (!handler->fn) {
		operation_answer(c, peer, am->token, ENOSYS);
		return;
	}
	am_args(am, message.args);
	c->handled_alone = am->flags & CAREFUL_AM_ALONE;
	handler->fn(&message, handler->user);
	c->handled_alone = 0;
}

/* Starts to send the data that a get asks for. Returns false if no outgoing message is free. */
static bool on_get(struct careful *c, struct link_peer *peer, const struct careful_am *am)
{
	uint32_t bytes = be32toh(am->bytes);
	struct region *region;
	struct message_out *out;
	struct careful_span span;
	int status = region_check(c, peer, am, bytes, CAREFUL_REGION_READ, &region, &span);

	if (status) {
		operation_answer(c, peer, am->token, status);
		return true;
	}
	out = message_out_get(&c->messages, peer);
	if (!out)
		return false;
	region->uses++;
	region->read_bytes += bytes;
	out->region = region->key;
	out->source = span;
	out->bytes = bytes;
	out->digest_wanted = am->flags & CAREFUL_AM_WANT_DIGEST;
	out->am = (struct careful_am){ .kind = CAREFUL_AM_GET_DATA, .token = am->token };
	message_out_start(&c->messages, out);
	live_begin(c, out, NULL);
	return true;
}

void am_handle(struct careful *c, struct link_peer *peer, const struct careful_am *am,
	       const void *payload, uint32_t bytes)
{
	switch (am->kind) {
	case CAREFUL_AM_REQUEST:
		on_request(c, peer, am, payload, bytes);
		break;
	case CAREFUL_AM_GET:
		on_get(c, peer, am);
		break;
	default:
		link_count(&c->link, CAREFUL_C_DROP_MESSAGE);
	}
}

/* Reports whether every message of a frame is of a kind that may share it, and lies within it. */
static bool are_packed(const struct link_rxframe *frame)
{
	uint32_t left = frame->body_bytes;
	const uint8_t *at = frame->body;
	struct careful_am am;

	for (uint32_t n = 1; n <= CAREFUL_PACKED_MAX; n++) {
		uint32_t next;

		memcpy(&am, at, sizeof(am));
		if (am.kind != CAREFUL_AM_REQUEST && am.kind != CAREFUL_AM_REPLY &&
		    am.kind != CAREFUL_AM_GET)
			return false;
		next = be32toh(am.next);
		if (!next)
			return true;
		if (next < sizeof(am) || next > left - sizeof(am))
			return false;
		at += next;
		left -= next;
	}
	return false;
}

/* Reports whether a message must wait for room for its answer. After a request that waits, later
 * requests of the peer wait, too. Requests may overtake a waiting get: the get needs credits, and
 * the peer returns none while its requests wait. */
bool am_must_wait(struct careful *c, const struct link_peer *peer, const struct careful_am *am)
{
	struct engine_waiting *waiting = &c->waiting[peer->slot];
	bool request = am->kind == CAREFUL_AM_REQUEST;

	if (!(request && waiting->pass == c->deferred_pass) && deferred_room(c, peer, am))
		return false;
	if (request)
		waiting->pass = c->deferred_pass;
	return true;
}

static inline void handle_question(struct careful *c, struct link_rxframe *frame,
				   const struct careful_am *am, struct careful_kept place,
				   uint32_t bytes)
{
	c->handled_frame = frame;
	c->handled = place;
	am_handle(c, frame->peer, am, frame->body + place.at + sizeof(*am), bytes);
	c->handled_frame = NULL;
}

/* Releases the frame's buffer, unless a handler kept it or messages wait in it (a bit each in
 * `waits`). Returns the held buffer if messages wait in it, or NULL. */
static inline struct link_held *end_frame(struct careful *c, struct link_rxframe *frame,
					  uint16_t waits)
{
	struct link_held *held = c->handled_held;

	if (!held && !waits) {
		link_release(&c->link, frame);
		return NULL;
	}
	c->handled_held = NULL;
	if (!waits) {
		link_unhold(&c->link, held);
		return NULL;
	}
	if (!held)
		held = link_hold(&c->link, frame, true);
	held->waits = waits;
	return held;
}

static struct link_held *handle_one(struct careful *c, struct link_rxframe *frame,
				    const struct careful_am *am)
{
	uint32_t bytes = frame->body_bytes - (uint32_t)sizeof(*am);
	bool waits;

	if (am->kind == CAREFUL_AM_REPLY) {
		on_reply(c, frame->peer, am, frame->body + sizeof(*am), bytes);
		link_release(&c->link, frame);
		return NULL;
	}
	/* Hot path: requests rarely wait. */
	waits = (c->deferred_count || !deferred_room(c, frame->peer, am)) &&
		am_must_wait(c, frame->peer, am);
	if (!waits)
		handle_question(c, frame, am, (struct careful_kept){ 0 }, bytes);
	return end_frame(c, frame, waits);
}

/* Handles the messages of a frame that carries several. Replies never wait. */
static __attribute__((noinline)) struct link_held *handle_each(struct careful *c,
							       struct link_rxframe *frame)
{
	struct careful_kept place = { 0 };
	uint16_t waits = 0;
	struct careful_am am;

	do {
		uint32_t bytes = am_at(frame->body, frame->body_bytes, place, &am);
		uint32_t payload = bytes - (uint32_t)sizeof(am);

		if (am.kind == CAREFUL_AM_REPLY) {
			on_reply(c, frame->peer, &am, frame->body + place.at + sizeof(am), payload);
		} else if (am_must_wait(c, frame->peer, &am)) {
			waits |= (uint16_t)(1u << place.nth);
		} else {
			handle_question(c, frame, &am, place, payload);
		}
		am_step(&place, bytes);
	} while (am.next && !link_stale(frame));
	return end_frame(c, frame, waits);
}

static void on_event(struct careful *c, struct link_rxframe *frame, const struct careful_am *am)
{
	if (c->event_hooks) {
		c->event_hooks->arrived(c, frame, am);
		return;
	}
	if (be16toh(am->handler) == CAREFUL_EVENT_FRAGMENT)
		link_count(&c->link, CAREFUL_C_DROP_MESSAGE);
	link_release(&c->link, frame);
}

static struct link_held *on_small(struct careful *c, struct link_rxframe *frame)
{
	struct careful_am am;

	if (frame->segments != 1 || frame->body_bytes != frame->body_total ||
	    (!frame->checked &&
	     be32toh(frame->hdr.payload_crc) != link_crc32c(frame->body, frame->body_bytes))) {
		link_count(&c->link, CAREFUL_C_DROP_CRC);
		link_release(&c->link, frame);
		link_break(frame->peer);
		return NULL;
	}
	memcpy(&am, frame->body, sizeof(am));
	link_placed(frame); /* for the trace: the handler's time begins here */
	if (am.kind == CAREFUL_AM_EVENT) {
		on_event(c, frame, &am);
	} else if (!am.next) {
		return handle_one(c, frame, &am);
	} else if (are_packed(frame)) {
		return handle_each(c, frame);
	} else {
		link_count(&c->link, CAREFUL_C_DROP_MESSAGE);
		link_release(&c->link, frame);
		link_break(frame->peer);
	}
	return NULL;
}

/* Handles a frame's messages, or places its bulk data. Returns a held buffer if messages wait. */
struct link_held *am_take(struct careful *c, struct link_rxframe *frame)
{
	const uint8_t small = CAREFUL_F_FIRST | CAREFUL_F_LAST;
	struct link_held *held = NULL;

	if (link_stale(frame)) {
		link_release(&c->link, frame);
	} else if (frame->hdr.flags & CAREFUL_F_BULK) {
		bulk_take(c, frame);
	} else if ((frame->hdr.flags & small) == small && frame->hdr.type == CAREFUL_DATA) {
		held = on_small(c, frame);
	} else {
		link_count(&c->link, CAREFUL_C_DROP_MESSAGE);
		link_release(&c->link, frame);
	}
	link_placed(frame);
	return held;
}
