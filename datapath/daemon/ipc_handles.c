/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The handles that clients of the local socket opened at peers' block services. What a client that
 * has gone left open is closed there. A peer knows this host and none of its users, so the share of
 * each user is kept here. Calls ipc_op.c, ipc_user.c.
 */
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <careful/block.h>

#include "daemon/clock.h"
#include "daemon/ipc_private.h"
#include "service/block.h"

/* What a peer gives this host, and how many of these only root may take. Listings and scratch
 * memory are handles, too. */
static const struct {
	uint32_t most, roots;
} pools[IPC_OPENS] = {
	[IPC_OPENS_FILE] = { BLOCK_HANDLES, BLOCK_HANDLES / 16 },
	[IPC_OPENS_LISTING] = { BLOCK_LISTINGS, 2 },
	[IPC_OPENS_SCRATCH] = { BLOCK_SCRATCHES, 1 },
};

/* Returns what the client has at that peer under a key, or under an attempt's name; or NULL. */
static struct ipc_handle *find_handle(struct ipc_client *client, uint32_t peer, uint32_t key,
				      uint64_t attempt)
{
	for (uint32_t i = 0; i < client->handles_count; i++) {
		struct ipc_handle *handle = &client->handles[i];

		if (handle->peer == peer && handle->key == key && handle->attempt == attempt)
			return handle;
	}
	return NULL;
}

static void forget_handle(struct ipc_client *client, struct ipc_handle *handle)
{
	if (handle)
		*handle = client->handles[--client->handles_count];
}

static void remember_handle(struct ipc_client *client, const struct ipc_handle *handle)
{
	if (find_handle(client, handle->peer, handle->key, handle->attempt))
		return;
	if (!client->handles)
		client->handles = malloc(IPC_HANDLES * sizeof(*client->handles));
	/* Beyond the bound, handles stay open at the peer until the session ends. */
	if (client->handles && client->handles_count < IPC_HANDLES)
		client->handles[client->handles_count++] = *handle;
}

void ipc_handle_asked(struct ipc_op *op)
{
	const struct ipc_handle attempt = { .peer = op->peer,
					    .attempt = op->attempt,
					    .kind = op->opens };

	if (op->opens && op->attempt)
		remember_handle(op->client, &attempt);
}

/* The request has its answer, or was not asked. A lost answer may have named something: the
 * attempt's name still does. */
static void track_opened(struct ipc_op *op, int status, uint32_t key)
{
	const struct ipc_handle opened = { .peer = op->peer, .key = key, .kind = op->opens };

	op->opens = IPC_OPENS_NOTHING;
	if (op->attempt && (status == -ECONNRESET || status == -ECANCELED))
		return;
	if (op->attempt)
		forget_handle(op->client, find_handle(op->client, op->peer, 0, op->attempt));
	if (!status)
		remember_handle(op->client, &opened);
}

/* Nobody else asks again for a client that has gone. */
static void track_closed(struct ipc_op *op, int status)
{
	const bool is_lost = status == -ECONNRESET || status == -EAGAIN || status == -ECANCELED;
	const struct ipc_handle handle = {
		.peer = op->peer,
		.key = op->handle,
		.attempt = op->handle ? 0 : op->attempt,
	};

	if (!is_lost) {
		forget_handle(op->client,
			      find_handle(op->client, op->peer, handle.key, handle.attempt));
	} else if (op->client->fd < 0) {
		remember_handle(op->client, &handle);
		op->client->close_ns = clock_in_ms(IPC_CLOSE_MS);
	}
}

void ipc_track_handles(struct ipc_op *op, int status, uint32_t key)
{
	if (op->opens)
		track_opened(op, status, key);
	else if (op->handler == CAREFUL_BLOCK_COMMIT || op->handler == CAREFUL_BLOCK_CLOSE)
		track_closed(op, status);
}

void ipc_handles_over(struct ipc *ipc, uint32_t index)
{
	for (struct ipc_client *client = ipc->clients; client; client = client->next) {
		for (uint32_t i = client->handles_count; i-- > 0;) {
			if (ipc_peer_index(ipc, client->handles[i].peer) == (int)index)
				forget_handle(client, &client->handles[i]);
		}
	}
}

/* Closes at the peers what a client that has gone left open there; false if that has
 * to be continued. */
bool ipc_close_handles(struct ipc_client *client)
{
	if (client->handles_count && clock_now_ns() < client->close_ns)
		return false;
	while (client->handles_count) {
		struct ipc_handle *handle = &client->handles[client->handles_count - 1];
		struct ipc_question q = {
			.head = {
				.version = CAREFUL_IPC_VERSION,
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

		/* ipc_ask() may forget the handle itself, if the answer comes at once. */
		client->handles_count--;
		if (ipc_ask(client, &q) == -EAGAIN) {
			client->handles_count++;
			return false;
		}
	}
	return true;
}

/* Returns what a request opens, and whether it may wait. */
static enum ipc_opens opens(const struct ipc_question *q, bool *may_wait)
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

/* Counts a client's handles of a kind at a peer, and those that it asks for. */
static uint32_t count_handles(const struct ipc_client *client, uint32_t peer, enum ipc_opens kind)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < client->handles_count; i++)
		n += client->handles[i].peer == peer && client->handles[i].key &&
		     (kind == IPC_OPENS_FILE || client->handles[i].kind == kind);
	for (uint32_t i = 0; client->ops_used && i < CAREFUL_IPC_INFLIGHT; i++)
		n += client->ops[i].opens && client->ops[i].peer == peer &&
		     (kind == IPC_OPENS_FILE || client->ops[i].opens == kind);
	return n;
}

/* Reports whether a client's user may have another handle of a pool. */
static bool may_open(const struct ipc_client *client, uint32_t peer, enum ipc_opens kind)
{
	uint32_t held = 0, all = 0;

	for (const struct ipc_client *one = client->ipc->clients; one; one = one->next) {
		uint32_t n = count_handles(one, peer, kind);

		all += n;
		held += one->uid == client->uid ? n : 0;
	}
	return ipc_user_may_take(client->uid, held,
				 all < pools[kind].most ? pools[kind].most - all : 0,
				 pools[kind].roots);
}

/* Returns 0 if the client may ask for another handle; -EMFILE: it has all that one program may
 * have at that peer; -EAGAIN: too many of its requests wait for one. An OPEN can wait until its own
 * client closes something, so both leave room for that. */
static int own_room(const struct ipc_client *client, uint32_t peer)
{
	const uint32_t most = client->uid ? IPC_HANDLES_USER : IPC_HANDLES_ROOT;
	uint32_t waiting = 0;

	if (count_handles(client, peer, IPC_OPENS_FILE) >= most)
		return -EMFILE;
	for (const struct ipc_opening *one = client->opening; one; one = one->next)
		waiting++;
	for (uint32_t i = 0; i < CAREFUL_IPC_INFLIGHT; i++)
		waiting += client->ops[i].opens != IPC_OPENS_NOTHING;
	return waiting < IPC_OPENING ? 0 : -EAGAIN;
}

/* Sends a request that opens something. -EMFILE: its user has as many as may be. */
static int try(struct ipc_client *client, struct ipc_op *op, const struct ipc_question *q,
	       enum ipc_opens kind)
{
	int rc;

	/* The peer bounds root. */
	if (client->uid && !(may_open(client, q->head.peer, IPC_OPENS_FILE) &&
			     may_open(client, q->head.peer, kind)))
		return -EMFILE;
	op->opens = kind;
	rc = ipc_request(client, op, q);
	if (rc)
		ipc_track_handles(op, rc, 0);
	return rc;
}

int ipc_handles_ask(struct ipc_client *client, struct ipc_op *op, const struct ipc_question *q)
{
	struct ipc_opening *opening, **at = &client->opening;
	bool may_wait;
	enum ipc_opens kind = opens(q, &may_wait);
	int rc = kind ? own_room(client, q->head.peer) : 0;

	if (rc) { /* answered here: -EAGAIN would keep back what the client asks next */
		ipc_answer(op, rc, NULL, NULL, 0);
		return 0;
	}
	rc = kind ? try(client, op, q, kind) : ipc_request(client, op, q);
	if (rc != -EMFILE || !may_wait || client->fd < 0)
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
	client->ipc->busy++;
	return 0;
}

static void take_opening(struct ipc_client *client, struct ipc_opening **at)
{
	struct ipc_opening *opening = *at;

	*at = opening->next;
	client->ipc->busy--;
	free(opening);
}

void ipc_handles_retry(struct ipc_client *client)
{
	struct ipc_opening **at = &client->opening, *opening;
	bool unused;

	while ((opening = *at)) {
		struct ipc_question *q = &opening->question;
		struct ipc_op *op = opening->op;
		int rc = ipc_held(client->ipc, q) ? -EAGAIN : try(client, op, q, opens(q, &unused));

		if (rc == -EMFILE || rc == -EAGAIN) {
			at = &opening->next;
			continue;
		}
		take_opening(client, at);
		if (rc)
			ipc_answer(op, rc, NULL, NULL, 0);
	}
}

void ipc_handles_drop(struct ipc_client *client)
{
	while (client->opening) {
		ipc_op_free(client->opening->op);
		take_opening(client, &client->opening);
	}
}
