// SPDX-License-Identifier: BSD-2-Clause
/* Bulk messages: finds the destination of their data, and ends messages that are complete. */
#include "engine/engine.h"

#include <endian.h>
#include <errno.h>

/* Finds the destination of a new bulk message. Returns 0 or a positive errno. */
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

void bulk_take(struct careful *c, struct link_rxframe *frame)
{
	struct message_in *in;

	if (frame->hdr.flags & CAREFUL_F_FIRST) {
		in = message_in_open(&c->messages, frame);
		if (in) {
			in->error = find_sink(c, in);
			live_arrives(c, in);
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

		am_args(&in->am, message.args);
		c->callbacks++;
		c->store_refused = 0;
		c->store_handlers[index].fn(&message, c->store_handlers[index].user);
		error = c->store_refused;
	}
	/* The handler may have ended the session. */
	if (in->epoch == in->peer->epoch)
		operation_answer(c, in->peer, in->am.token, error);
}

void engine_refuse_store(struct careful *c, int error)
{
	c->store_refused = error;
}

/* Ends an incoming bulk message whose data is complete, or which failed. */
void bulk_finished(struct careful *c, struct message_in *in)
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
	/* A get that the peer answers twice, or that we never asked for, ends no operation. */
	op = in->answers ? operation_find(c, be32toh(in->am.token), in->peer, in->epoch) : NULL;
	if (in->epoch != in->peer->epoch)
		result.status = -ECONNRESET;
	if (op && op->placing && in->epoch == in->peer->epoch)
		message_got(&c->messages, in->peer);
	message_in_close(in);
	if (op)
		operation_end(c, op, &result);
}

void bulk_answered(struct careful *c, const struct operation *op, int error)
{
	if (op->kind == CAREFUL_AM_GET)
		message_got(&c->messages, op->peer);
	else
		message_answered(&c->messages, op->peer, op->token, error);
}

static void release_source(struct careful *c, struct message_out *out)
{
	struct region *region = region_find(c, out->region);

	if (region)
		region->uses--;
	message_out_put(&c->messages, out);
}

static void on_sent(struct careful *c, struct message_out *out)
{
	struct operation *op;

	if (out->question)
		live_sent(c, out);
	op = out->token ? operation_find(c, out->token, out->peer, out->epoch) : NULL;
	if (op && out->done && !out->am.token) {
		operation_drop(c, op); /* nobody waits for an answer */
	} else if (op && out->done) {
		op->digest = out->digest;
		/* The source is no longer read, so the answer or a reset may end the operation. */
		op->placing = false;
	} else if (op) {
		struct careful_result result = {
			.status = out->error ? -out->error : operation_over_status(out->peer),
		};

		operation_end(c, op, &result);
	}
	if (!message_retain(&c->messages, out))
		release_source(c, out);
}

void bulk_sent(struct careful *c)
{
	struct message_out *out;

	c->messages.has_ended = false;
	while ((out = message_out_ended(&c->messages)))
		on_sent(c, out);
	while ((out = message_out_resolved(&c->messages)))
		release_source(c, out);
	operations_end_failed(c);
}
