// SPDX-License-Identifier: BSD-2-Clause
/*
 * Active messages (P4; GAM): what a received message does. Requests run a handler,
 * replies end an operation, gets become bulk messages, stores and their data go to
 * their place. What cannot be served or answered yet is deferred.c's. Calls operation.c,
 * event_in.c, region.c, live.c, deferred.c, message's in.c, out.c and small.c, link's rx.c and
 * hold.c.
 */
#include "service/engine.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

static void reply_status(struct careful *c, struct link_peer *peer, __be32 token, int status)
{
	struct careful_am am = {
		.kind = CAREFUL_AM_REPLY,
		.token = token,
		.status = htobe32((uint32_t)status),
	};

	/* Who waits for it must not wait for ever. */
	if (token && message_small(&c->messages, peer, &am, NULL, 0))
		link_break(peer);
}

/* What fits no frame of the session that it waited for ends: who asks, and who is answered, hears
 * of it. */
static void unfit(struct careful *c)
{
	const struct careful_result result = { .status = -EMSGSIZE };
	struct link_peer *peer;
	struct operation *op;
	struct careful_am am;
	uint64_t epoch;

	while (message_small_unfit(&c->messages, &am, &peer, &epoch)) {
		op = operation_find(c, be32toh(am.token), peer, epoch);
		if (op && am.kind == CAREFUL_AM_REQUEST)
			operation_end(c, op, &result);
		else if (am.kind == CAREFUL_AM_REPLY && epoch == peer->epoch)
			reply_status(c, peer, am.token, EMSGSIZE);
	}
}

static void args_from(const struct careful_am *am, uint32_t *args)
{
#pragma GCC unroll 4
	for (int i = 0; i < CAREFUL_AM_ARGS; i++)
		args[i] = be32toh(am->args[i]);
}

static void on_reply(struct careful *c, struct link_peer *peer, const struct careful_am *am,
		     const void *payload, uint32_t bytes)
{
	struct operation *op = operation_find(c, be32toh(am->token), peer, peer->epoch);
	struct careful_result result = { 0 };

	if (!op || op->placing) {
		link_count(&c->link, CAREFUL_C_DROP_MESSAGE);
		return;
	}
	if (op->kind == CAREFUL_AM_GET)
		message_got(&c->messages, peer);
	result.status = -(int)(be32toh(am->status) & 0xfff);
	if (op->live.began_ns && live_answered(c, op, result.status))
		return;
	/* The data of a get is a message of its own: such an answer says only why not. */
	if (op->kind == CAREFUL_AM_GET && !result.status)
		result.status = -EPROTO;
	result.payload = op->kind == CAREFUL_AM_REQUEST ? payload : NULL;
	result.bytes = op->kind == CAREFUL_AM_REQUEST ? bytes : result.status ? 0 : op->bytes;
	result.digest = op->digest;
	args_from(am, result.args);
	operation_end_now(c, op, &result); /* while the payload is there */
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
		reply_status(c, peer, am->token, ENOSYS);
		return;
	}
	args_from(am, message.args);
	c->handled_alone = am->flags & CAREFUL_AM_ALONE;
	handler->fn(&message, handler->user);
	c->handled_alone = 0;
}

/* Starts the data of a get; false: no message is free now. */
static bool on_get(struct careful *c, struct link_peer *peer, const struct careful_am *am)
{
	uint32_t bytes = be32toh(am->bytes);
	struct region *region;
	struct message_out *out;
	struct careful_span span;
	int status = region_check(c, peer, am, bytes, CAREFUL_REGION_READ, &region, &span);

	if (status) {
		reply_status(c, peer, am->token, status);
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

/* Does what a request or a get asks for. */
void am_do(struct careful *c, struct link_peer *peer, const struct careful_am *am,
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

/* Reports whether the messages of a frame follow each other to its end, and are of kinds that share one. */
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

/* Does what a request or a get in a frame asks for. */
static inline void take_question(struct careful *c, struct link_rxframe *frame,
				 const struct careful_am *am, struct careful_kept which,
				 uint32_t bytes)
{
	c->handled_frame = frame;
	c->handled = which;
	am_do(c, frame->peer, am, frame->body + which.at + sizeof(*am), bytes);
	c->handled_frame = NULL;
}

/* The end of a frame whose questions were served, but for what its handlers kept, and for those
 * that wait. */
static inline void end_frame(struct careful *c, struct link_rxframe *frame, uint16_t waits)
{
	struct link_held *held = c->handled_held;

	if (!held && !waits) {
		link_release(&c->link, frame);
		return;
	}
	c->handled_held = NULL;
	if (!waits) {
		link_let_go(&c->link, held);
		return;
	}
	if (!held)
		held = link_hold(&c->link, frame, true);
	held->waits = waits;
	deferred_put(c, held);
}

static void take_one(struct careful *c, struct link_rxframe *frame, const struct careful_am *am)
{
	uint32_t bytes = frame->body_bytes - (uint32_t)sizeof(*am);
	bool waits;

	if (am->kind == CAREFUL_AM_REPLY) {
		on_reply(c, frame->peer, am, frame->body + sizeof(*am), bytes);
		link_release(&c->link, frame);
		return;
	}
	/* Every request comes by here, and nearly always none waits. */
	waits = (c->deferred_count || !deferred_room(c, frame->peer, am)) &&
		deferred_waits(c, frame->peer, am);
	if (!waits)
		take_question(c, frame, am, (struct careful_kept){ 0 }, bytes);
	end_frame(c, frame, waits);
}

/* The same of several messages. Answers among them wait for nothing. */
static __attribute__((noinline)) void take_each(struct careful *c, struct link_rxframe *frame)
{
	struct careful_kept each = { 0 };
	uint16_t waits = 0;
	struct careful_am am;

	do {
		uint32_t bytes = am_at(frame->body, frame->body_bytes, each, &am);
		uint32_t payload = bytes - (uint32_t)sizeof(am);

		if (am.kind == CAREFUL_AM_REPLY) {
			on_reply(c, frame->peer, &am, frame->body + each.at + sizeof(am), payload);
		} else if (deferred_waits(c, frame->peer, &am)) {
			waits |= (uint16_t)(1u << each.nth);
		} else {
			take_question(c, frame, &am, each, payload);
		}
		am_step(&each, bytes);
	} while (am.next && !link_stale(frame));
	end_frame(c, frame, waits);
}

static void on_small(struct careful *c, struct link_rxframe *frame)
{
	struct careful_am am;

	if (frame->segments != 1 || frame->body_bytes != frame->body_total ||
	    (!frame->checked &&
	     be32toh(frame->hdr.payload_crc) != link_crc32c(frame->body, frame->body_bytes))) {
		/* The header was right and the payload is not: a broken promise. */
		link_count(&c->link, CAREFUL_C_DROP_CRC);
		link_release(&c->link, frame);
		link_break(frame->peer);
		return;
	}
	memcpy(&am, frame->body, sizeof(am));
	link_placed(frame); /* what is done with it is the handler's time */
	if (am.kind == CAREFUL_AM_EVENT) {
		event_arrived(c, frame, &am);
	} else if (!am.next) {
		take_one(c, frame, &am);
	} else if (are_packed(frame)) {
		take_each(c, frame);
	} else {
		link_count(&c->link, CAREFUL_C_DROP_MESSAGE);
		link_release(&c->link, frame);
		link_break(frame->peer);
	}
}

/* Where the data of a new bulk message goes; 0 or a positive errno. */
static int find_sink(struct careful *c, struct message_in *in)
{
	struct region *region;
	struct operation *op;
	int status;

	if (in->am.kind == CAREFUL_AM_STORE) {
		status = region_check(c, in->peer, &in->am, in->bytes, CAREFUL_REGION_WRITE,
				      &region, &in->sink);
		if (status)
			return status;
		region->uses++;
		region->written_bytes += in->bytes;
		in->region = region->key;
		return 0;
	}
	op = operation_find(c, be32toh(in->am.token), in->peer, in->epoch);
	if (in->am.kind != CAREFUL_AM_GET_DATA || !op || op->kind != CAREFUL_AM_GET ||
	    op->placing || in->bytes != op->bytes)
		return EPROTO;
	op->placing = true;
	in->answers = true;
	in->sink = op->local;
	return op->stopped ? ECANCELED : 0;
}

static void on_bulk(struct careful *c, struct link_rxframe *frame)
{
	struct message_in *in;

	if (frame->hdr.flags & CAREFUL_F_FIRST) {
		in = message_in_open(&c->messages, frame);
		if (in) {
			in->error = find_sink(c, in);
			live_comes(c, in);
		}
	} else {
		in = message_in_find(&c->messages, frame);
	}
	if (in) {
		message_in_add(in, frame);
		return;
	}
	link_count(&c->link, CAREFUL_C_DROP_MESSAGE);
	link_release(&c->link, frame);
	link_break(frame->peer);
}

/* Puts what came where it belongs, and does what is asked, or answered, in one frame. The frame's
 * epoch may have ended since it came. */
void am_take(struct careful *c, struct link_rxframe *frame)
{
	const uint8_t small = CAREFUL_F_FIRST | CAREFUL_F_LAST;

	if (link_stale(frame)) {
		link_release(&c->link, frame);
	} else if (frame->hdr.flags & CAREFUL_F_BULK) {
		on_bulk(c, frame);
	} else if ((frame->hdr.flags & small) == small && frame->hdr.type == CAREFUL_DATA) {
		on_small(c, frame);
	} else {
		link_count(&c->link, CAREFUL_C_DROP_MESSAGE);
		link_release(&c->link, frame);
	}
	link_placed(frame);
}

static void store_finished(struct careful *c, struct message_in *in)
{
	uint32_t index = be16toh(in->am.handler);
	struct region *region = region_find(c, in->region);
	int error = in->error;

	if (region)
		region->uses--;
	if (in->epoch != in->peer->epoch)
		return;
	if (!error && index < CAREFUL_HANDLERS && !c->store_handlers[index].fn)
		error = ENOSYS;
	if (!error && index < CAREFUL_HANDLERS) {
		struct careful_message message = {
			.instance = c,
			.peer = in->peer->slot,
			.handler = (uint16_t)index,
			.bytes = in->bytes,
			.region = in->region,
			.region_off = be64toh(in->am.region_off),
			.payload = in->sink.base,
		};

		args_from(&in->am, message.args);
		c->told++;
		c->store_refused = 0;
		c->store_handlers[index].fn(&message, c->store_handlers[index].user);
		error = c->store_refused;
	}
	/* The handler may have ended the session: then nobody waits for an answer. */
	if (in->epoch == in->peer->epoch)
		reply_status(c, in->peer, in->am.token, error);
}

void engine_refuse_store(struct careful *c, int error)
{
	c->store_refused = error;
}

/* All data of a bulk message is in its place, or it failed. */
void am_finished(struct careful *c, struct message_in *in)
{
	struct operation *op;
	struct careful_result result = {
		.status = -in->error,
		.bytes = in->received,
		.digest = in->digest,
	};

	live_stored(c, in);
	if (in->am.kind == CAREFUL_AM_STORE) {
		store_finished(c, in);
		message_in_close(in);
		return;
	}
	/* Data that nobody asked for, or for the second time, ends nothing. */
	op = in->answers ? operation_find(c, be32toh(in->am.token), in->peer, in->epoch) : NULL;
	if (in->epoch != in->peer->epoch)
		result.status = -ECONNRESET;
	if (op && op->placing && in->epoch == in->peer->epoch)
		message_got(&c->messages, in->peer);
	message_in_close(in);
	if (op)
		operation_end(c, op, &result);
}

static void sent(struct careful *c, struct message_out *out)
{
	struct operation *op;
	struct region *region = region_find(c, out->region);

	if (region)
		region->uses--;
	if (out->question)
		live_sent(c, out);
	op = out->token ? operation_find(c, out->token, out->peer, out->epoch) : NULL;
	if (op && out->done && !out->am.token) {
		operation_drop(c, op); /* nobody waits for an answer */
	} else if (op && out->done) {
		op->digest = out->digest;
		/* From here on the answer ends it, and a reset may too. */
		op->placing = false;
	} else if (op) {
		struct careful_result result = {
			.status = out->error ? -out->error : operation_over_status(out->peer),
		};

		operation_end(c, op, &result);
	}
	message_out_put(&c->messages, out);
}

/* Messages have left, or will not. */
void am_sent(struct careful *c)
{
	struct message_out *out;

	while ((out = message_out_left(&c->messages)))
		sent(c, out);
	unfit(c);
}
