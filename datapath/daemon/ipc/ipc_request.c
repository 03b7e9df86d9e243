/* SPDX-License-Identifier: BSD-2-Clause */
/* REQUEST: clients' requests to peers. A request that opens a handle can wait until its user may
 * have another handle. Also closes the handles that gone clients left at peers. */
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <careful/block.h>
#include <careful/wire.h>

#include "base/clock.h"
#include "daemon/ipc/ipc_private.h"

/* Reports whether a request's answer is at most a file's attributes. Such a request reserves little
 * room while it waits, so there is room for requests that end handles. */
static bool is_answer_short(uint32_t handler)
{
	switch (handler) {
	case CAREFUL_BLOCK_OPEN:
	case CAREFUL_BLOCK_LIST:
	case CAREFUL_BLOCK_BATCH:
	case CAREFUL_BLOCK_COMMIT:
	case CAREFUL_BLOCK_CLOSE:
		return true;
	default:
		return false;
	}
}

uint32_t ipc_request_answer_max(const struct ipc *ipc, const struct careful_ipc *head)
{
	int index = ipc_peer_index(ipc, head->peer), bytes;

	if (is_answer_short(head->handler))
		return sizeof(struct careful_block_attr);
	/* The peer's frames are about as large as ours. */
	bytes = index < 0 ? 0 : careful_payload_bytes(ipc->instance, (uint32_t)index);
	return bytes < 0 ? 0 : (uint32_t)bytes;
}

static void request_done(const struct careful_result *result, void *user)
{
	struct ipc_op *op = user;
	struct careful_ipc head = { .bytes = result->bytes };
	uint32_t bytes = result->bytes;

	ipc_count(op->client, op->op, op->began_ns, result->status);
	ipc_track_handles(op, result->status, result->args[0]);
	memcpy(head.args, result->args, sizeof(head.args));
	if (bytes > CAREFUL_IPC_PAYLOAD_BYTES)
		bytes = CAREFUL_IPC_PAYLOAD_BYTES;
	if (is_answer_short(op->handler) && bytes > op->reserve)
		bytes = op->reserve;
	ipc_answer(op, result->status, &head, result->payload, result->payload ? bytes : 0);
}

/* Sends a request. Returns 0 if it is under way, or -errno if request_done() will not be called. */
static int send_request(struct ipc_client *client, struct ipc_op *op, const struct ipc_question *q)
{
	struct careful *instance = client->ipc->instance;
	int index = ipc_peer_index(client->ipc, q->head.peer), rc;

	if (index < 0)
		return index;
	if (q->head.handler >= CAREFUL_HANDLERS)
		return -EINVAL;
	/* TRIAL_LOCK is for carefulds only: a client must not hold the trial lock for the host. */
	if (q->head.handler == CAREFUL_TRIAL_LOCK)
		return -EPERM;
	op->peer = q->head.peer;
	op->handler = q->head.handler;
	op->handle = q->head.args[0];
	op->attempt = (uint64_t)q->head.args[2] << 32 | q->head.args[3];
	op->began_ns = clock_now_ns();
	ipc_handle_asked(op);
	rc = careful_request(instance, (uint32_t)index, (uint16_t)q->head.handler, q->head.args,
			     q->payload, q->head.payload_bytes, request_done, op);
	/* COMMIT and CLOSE free a handle for others, so they do not count as the client's turn. */
	client->served |= !rc && q->head.handler != CAREFUL_BLOCK_COMMIT &&
			  q->head.handler != CAREFUL_BLOCK_CLOSE;
	return rc;
}

/* Returns the kind of handle that a request opens, and whether the request may wait. */
static enum ipc_opens opened_kind(const struct ipc_question *q, bool *may_wait)
{
	struct careful_block_open open = { 0 };
	uint32_t flags;

	if (q->head.payload_bytes >= sizeof(open))
		memcpy(&open, q->payload, sizeof(open));
	flags = be32toh(open.flags);
	*may_wait = q->head.handler == CAREFUL_BLOCK_BATCH || flags & CAREFUL_BLOCK_WAIT;
	switch (q->head.handler) {
	case CAREFUL_BLOCK_OPEN:
		return flags & CAREFUL_BLOCK_SCRATCH ? IPC_OPENS_SCRATCH : IPC_OPENS_FILE;
	case CAREFUL_BLOCK_LIST:
	case CAREFUL_BLOCK_BATCH:
		return IPC_OPENS_LISTING;
	default:
		return IPC_OPENS_NOTHING;
	}
}

/* Sends a request that opens a handle. Returns -EMFILE if its user may have no more handles. */
static int send_opening(struct ipc_client *client, struct ipc_op *op, const struct ipc_question *q,
			enum ipc_opens kind)
{
	int rc;

	if (!ipc_handle_asked_again(client, &q->head) &&
	    !ipc_handles_may_open(client, q->head.peer, kind))
		return -EMFILE;
	ipc_op_opens(op, kind);
	rc = send_request(client, op, q);
	if (rc)
		ipc_track_handles(op, op->again ? -EAGAIN : rc, 0);
	return rc;
}

/* Reports whether an earlier request, which has priority, waits for such a handle. */
static bool is_handle_awaited(const struct ipc *ipc, uint32_t peer, enum ipc_opens kind)
{
	for (const struct ipc_client *client = ipc->clients; client; client = client->next)
		for (const struct ipc_opening *one = client->opening; one; one = one->next) {
			bool unused;

			if (one->question.head.peer == peer &&
			    opened_kind(&one->question, &unused) == kind)
				return true;
		}
	return false;
}

int ipc_request(struct ipc_client *client, struct ipc_op *op, struct ipc_question *q)
{
	struct ipc_opening *opening, **at = &client->opening;
	bool may_wait;
	enum ipc_opens kind = opened_kind(q, &may_wait);
	const struct ipc_handle *again = ipc_handle_asked_again(client, &q->head);
	int rc = 0;

	if (kind && again)
		rc = again->kind == kind ? 0 : -EINVAL;
	else if (kind)
		rc = ipc_handles_room(client, q->head.peer);
	if (rc) { /* answered here: to return -EAGAIN would delay the client's next questions */
		ipc_answer(op, rc, NULL, NULL, 0);
		return 0;
	}
	if (kind && may_wait && !again && client->uid &&
	    is_handle_awaited(client->ipc, q->head.peer, kind))
		rc = -EMFILE;
	else
		rc = kind ? send_opening(client, op, q, kind) : send_request(client, op, q);
	if (rc != -EMFILE || !may_wait)
		return rc;
	opening = malloc(sizeof(*opening) + q->head.payload_bytes);
	if (!opening)
		return -ENOMEM;
	*opening = (struct ipc_opening){ .op = op, .question = *q };
	opening->question.payload = opening + 1;
	memcpy(opening + 1, q->payload, q->head.payload_bytes);
	while (*at)
		at = &(*at)->next;
	*at = opening;
	client->ipc->poll_reasons++;
	return 0;
}

static void remove_opening(struct ipc_client *client, struct ipc_opening **at)
{
	struct ipc_opening *opening = *at;

	*at = opening->next;
	client->ipc->poll_reasons--;
	free(opening);
}

void ipc_requests_retry(struct ipc_client *client)
{
	struct ipc_opening **at = &client->opening, *opening;
	bool unused;

	while ((opening = *at)) {
		struct ipc_question *q = &opening->question;
		struct ipc_op *op = opening->op;
		int rc = ipc_held(client->ipc, q) ?
				 -EAGAIN :
				 send_opening(client, op, q, opened_kind(q, &unused));

		if (rc == -EMFILE || rc == -EAGAIN) {
			at = &opening->next;
			continue;
		}
		remove_opening(client, at);
		if (rc)
			ipc_answer(op, rc, NULL, NULL, 0);
	}
}

void ipc_requests_drop(struct ipc_client *client)
{
	while (client->opening) {
		ipc_op_free(client->opening->op);
		remove_opening(client, &client->opening);
	}
}

/* Closes one handle of a client that has gone. Returns -EAGAIN to be called again. */
static int close_left(struct ipc_client *client, const struct ipc_handle *handle)
{
	const struct ipc_question q = {
		.head = {
			.op = CAREFUL_IPC_REQUEST,
			.peer = handle->peer,
			.handler = CAREFUL_BLOCK_CLOSE,
			.args = {
				handle->key,
				0,
				(uint32_t)(handle->attempt >> 32),
				(uint32_t)handle->attempt,
			},
		},
		.fd = -1,
		.payload = "",
	};
	struct ipc_op *op = NULL;
	int rc;

	if (!ipc_held(client->ipc, &q))
		op = ipc_op_take(client, &q.head, ipc_request_answer_max(client->ipc, &q.head));
	if (!op)
		return -EAGAIN;
	rc = send_request(client, op, &q);
	if (rc) /* nobody waits for an answer */
		ipc_op_free(op);
	return rc;
}

bool ipc_requests_close_left(struct ipc_client *client)
{
	if (client->handles_count && clock_now_ns() < client->close_ns)
		return false;
	while (client->handles_count) {
		/* If the CLOSE is lost, perhaps within the call, track_closed() adds it again. */
		const struct ipc_handle handle = client->handles[--client->handles_count];

		if (close_left(client, &handle) == -EAGAIN) {
			client->handles_count++;
			return false;
		}
	}
	return true;
}
