// SPDX-License-Identifier: BSD-2-Clause
/* Operations that wait for an answer: a table whose tokens are never reused soon. */
#include "service/engine.h"

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
	if (!op->token) /* 0 means that no answer is wanted */
		op->token = ++op->generation * c->limits.operations + index;
	op->peer = peer;
	op->epoch = peer->epoch;
	op->kind = kind;
	op->placing = false;
	op->digest = 0;
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

/* Frees the entry without telling anyone. */
void operation_drop(struct careful *c, struct operation *op)
{
	op->token = 0;
	link_awaited(op->peer);
	c->operations_free[c->operations_free_count++] = (uint32_t)(op - c->operations);
}

void operation_end(struct careful *c, struct operation *op, const struct careful_result *result)
{
	careful_done_fn *done = op->done;
	void *user = op->user;

	operation_drop(c, op);
	c->told++;
	if (done)
		done(result, user);
}

/* Everything asked of a peer in an epoch that is over ends with status. */
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
