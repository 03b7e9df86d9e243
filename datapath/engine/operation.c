// SPDX-License-Identifier: BSD-2-Clause
/* The table of operations that wait for an answer. Their tokens are not used again soon. */
#include "engine/engine.h"

#include <endian.h>
#include <errno.h>

int operation_over_status(const struct link_peer *peer)
{
	return peer->state == CAREFUL_PEER_FAILED && link_error(peer) ? -link_error(peer) :
									-ECONNRESET;
}

struct operation *operation_new(struct careful *c, struct link_peer *peer, uint8_t kind,
				careful_done_fn *done, void *user)
{
	struct operation *op;
	uint32_t index;

	if (!c->operations_free_count)
		return NULL;
	index = c->operations_free[--c->operations_free_count];
	op = &c->operations[index];
	op->generation++;
	op->token = op->generation * c->limits.operations + index;
	if (!op->token) /* in a frame, token 0 means that no answer is needed */
		op->token = ++op->generation * c->limits.operations + index;
	op->peer = peer;
	op->epoch = peer->epoch;
	op->kind = kind;
	op->placing = op->to_file = op->stopped = false;
	op->digest = 0;
	op->live.began_ns = 0;
	op->done = done;
	op->user = user;
	link_await(peer);
	return op;
}

struct operation *operation_find(struct careful *c, uint32_t token, const struct link_peer *peer,
				 uint64_t epoch)
{
	struct operation *op = &c->operations[token & (c->limits.operations - 1)];

	if (!token || op->token != token || op->peer != peer || op->epoch != epoch)
		return NULL;
	return op;
}

static void free_operation(struct careful *c, const struct operation *op)
{
	c->operations_free[c->operations_free_count++] = (uint32_t)(op - c->operations);
}

/* Counts the bytes of a get to a file in its peer's asked_bytes. */
void operation_count_asked(struct careful *c, struct operation *op)
{
	op->to_file = !op->local.base;
	if (op->to_file)
		c->messages.peers[op->peer->slot].asked_bytes += op->bytes;
}

/* Undoes operation_count_asked() and frees the token. */
static void release_token(struct careful *c, struct operation *op)
{
	op->token = 0;
	if (op->to_file)
		c->messages.peers[op->peer->slot].asked_bytes -= op->bytes;
	link_awaited(op->peer);
}

void operation_drop(struct careful *c, struct operation *op)
{
	release_token(c, op);
	free_operation(c, op);
}

/* Ends an operation. operations_report() calls the application later: the caller of this function
 * may walk a list that the application changes. */
void operation_end(struct careful *c, struct operation *op, const struct careful_result *result)
{
	release_token(c, op);
	op->result = *result;
	op->next = NULL;
	*c->ended_tail = op;
	c->ended_tail = &op->next;
}

/* Reports ended operations to the application. The next call reports those that end meanwhile. */
void operations_report(struct careful *c)
{
	struct operation *op = c->ended, *next;

	c->ended = NULL;
	c->ended_tail = &c->ended;
	for (; op; op = next) {
		const struct careful_result result = op->result;
		careful_done_fn *done = op->done;
		void *user = op->user;

		next = op->next;
		free_operation(c, op); /* before the callback, which may begin an operation */
		c->callbacks++;
		if (done)
			done(&result, user);
	}
}

/* Ends an operation and reports it now, after the operations that ended earlier. */
void operation_end_now(struct careful *c, struct operation *op, const struct careful_result *result)
{
	careful_done_fn *done = op->done;
	void *user = op->user;

	if (c->ended) {
		operation_end(c, op, result);
		operations_report(c);
		return;
	}
	operation_drop(c, op);
	c->callbacks++;
	if (done)
		done(result, user);
}

void operation_answer(struct careful *c, struct link_peer *peer, __be32 token, int status)
{
	struct careful_am am = {
		.kind = CAREFUL_AM_REPLY,
		.token = token,
		.status = htobe32((uint32_t)status),
	};

	/* Without an answer the peer would wait for ever. */
	if (token && message_small(&c->messages, peer, &am, NULL, 0))
		link_break(peer);
}

/* Ends operations whose small message was too large for the session, or was given up. */
void operations_end_failed(struct careful *c)
{
	struct link_peer *peer;
	struct operation *op;
	struct careful_am am;
	uint64_t epoch;
	int error;

	while ((error = message_small_failed(&c->messages, &am, &peer, &epoch))) {
		const struct careful_result result = { .status = -error };

		op = operation_find(c, be32toh(am.token), peer, epoch);
		if (am.kind == CAREFUL_AM_REPLY && epoch == peer->epoch) {
			operation_answer(c, peer, am.token, error);
		} else if (op && am.kind != CAREFUL_AM_REPLY) {
			if (op->kind == CAREFUL_AM_GET)
				message_got(&c->messages, peer);
			operation_end(c, op, &result);
		}
	}
}

uint32_t engine_waiting(const struct careful *c, uint32_t peer)
{
	return peer < c->link.peers_max ? c->messages.peers[peer].parked : 0;
}

void engine_forget(struct careful *c, engine_match_fn *match, const void *of)
{
	const struct careful_result result = { .status = -ECANCELED };

	for (uint32_t i = 0; i < c->limits.operations; i++) {
		struct operation *op = &c->operations[i];

		if (op->token && op->kind == CAREFUL_AM_REQUEST && match(op->user, of))
			operation_end(c, op, &result);
	}
	ping_forget(c, match, of);
}

uint32_t engine_stop_gets(struct careful *c, engine_match_fn *match, const void *of)
{
	uint32_t writing = 0;

	for (uint32_t i = 0; i < c->limits.operations; i++) {
		struct operation *op = &c->operations[i];

		if (op->token && op->kind == CAREFUL_AM_GET && match(op->user, of))
			op->stopped = true;
	}
	for (uint32_t i = 0; i < c->messages.ins_count; i++) {
		struct message_in *in = &c->messages.ins[i];
		const struct operation *op;

		if (!in->active || in->finished || !in->answers)
			continue;
		op = operation_find(c, be32toh(in->am.token), in->peer, in->epoch);
		if (op && op->stopped)
			writing += message_in_stop(in, ECANCELED);
	}
	return writing;
}

/* Ends the operations of the peer's earlier epochs. */
void operations_reset(struct careful *c, struct link_peer *peer, int status)
{
	const struct careful_result result = { .status = status };

	if (!peer->operations)
		return;
	for (uint32_t i = 0; i < c->limits.operations; i++) {
		struct operation *op = &c->operations[i];

		if (op->token && op->peer == peer && op->epoch != peer->epoch && !op->placing)
			operation_end(c, op, &result);
	}
}
