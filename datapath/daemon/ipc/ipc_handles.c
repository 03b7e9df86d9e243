/* SPDX-License-Identifier: BSD-2-Clause */
/* Accounts for the handles that clients opened at peers' block services. A peer limits the handles
 * of this host. It does not know the host's users, so carefuld limits the handles of each user. */
#include <errno.h>
#include <stdlib.h>

#include <careful/block.h>

#include "base/clock.h"
#include "daemon/ipc/ipc_private.h"
#include "files/block.h"

/* Handles that a peer grants this host, and those among them reserved for root. Listings and
 * scratch memory are handles, too. */
static const struct {
	uint32_t most, reserved;
} pools[IPC_OPENS] = {
	[IPC_OPENS_FILE] = { BLOCK_HANDLES, BLOCK_HANDLES / 16 },
	[IPC_OPENS_LISTING] = { BLOCK_LISTINGS, 2 },
	[IPC_OPENS_SCRATCH] = { BLOCK_SCRATCHES, 1 },
};

/* Returns the client's handle with a key, or with an attempt's name; NULL: none. */
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
	/* Without room, the handle stays open at the peer until the session ends. */
	if (client->handles && client->handles_count < IPC_HANDLES)
		client->handles[client->handles_count++] = *handle;
}

void ipc_op_opens(struct ipc_op *op, enum ipc_opens kind)
{
	op->client->opens_used +=
		(kind != IPC_OPENS_NOTHING) - (op->opens_kind != IPC_OPENS_NOTHING);
	op->opens_kind = kind;
}

void ipc_handle_asked(struct ipc_op *op)
{
	const struct ipc_handle attempt = { .peer = op->peer,
					    .attempt = op->attempt,
					    .kind = op->opens_kind };

	op->again = op->attempt && find_handle(op->client, op->peer, 0, op->attempt);
	if (op->opens_kind && op->attempt)
		remember_handle(op->client, &attempt);
}

const struct ipc_handle *ipc_handle_asked_again(struct ipc_client *client,
						const struct careful_ipc *head)
{
	const uint64_t attempt = (uint64_t)head->args[2] << 32 | head->args[3];

	return attempt ? find_handle(client, head->peer, 0, attempt) : NULL;
}

/* Called when a request was answered, or could not be sent. If the answer was lost, keeps the
 * attempt's name, because the peer may have opened a handle. After -EAGAIN, an earlier request of
 * the same attempt still has no answer. */
static void track_opened(struct ipc_op *op, int status, uint32_t key)
{
	const struct ipc_handle opened = { .peer = op->peer, .key = key, .kind = op->opens_kind };

	ipc_op_opens(op, IPC_OPENS_NOTHING);
	if (op->attempt &&
	    (status == -ECONNRESET || status == -ECANCELED || (op->again && status == -EAGAIN)))
		return;
	if (op->attempt)
		forget_handle(op->client, find_handle(op->client, op->peer, 0, op->attempt));
	if (!status)
		remember_handle(op->client, &opened);
}

/* Remembers the handle of a gone client's lost CLOSE, so that carefuld repeats the CLOSE. */
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
	if (op->opens_kind)
		track_opened(op, status, key);
	else if (op->handler == CAREFUL_BLOCK_COMMIT || op->handler == CAREFUL_BLOCK_CLOSE)
		track_closed(op, status);
}

/* Reports whether a request of the handle's attempt is under way: it may arrive in the next session
 * with the peer. */
static bool is_asked(const struct ipc_client *client, const struct ipc_handle *handle)
{
	uint32_t left = handle->key ? 0 : client->opens_used;

	for (const struct ipc_op *op = client->ops; left; op++) {
		left -= op->opens_kind != IPC_OPENS_NOTHING;
		if (op->opens_kind && op->peer == handle->peer && op->attempt == handle->attempt)
			return true;
	}
	return false;
}

void ipc_handles_over(struct ipc *ipc, uint32_t index)
{
	for (struct ipc_client *client = ipc->clients; client; client = client->next) {
		for (uint32_t i = client->handles_count; i-- > 0;) {
			struct ipc_handle *handle = &client->handles[i];

			if (ipc_peer_index(ipc, handle->peer) == (int)index &&
			    !is_asked(client, handle))
				forget_handle(client, handle);
		}
	}
}

/* Counts a client's handles of a kind at a peer: open, asked for, and those of lost answers. */
static uint32_t count_handles(const struct ipc_client *client, uint32_t peer, enum ipc_opens kind)
{
	uint32_t n = 0, left = client->opens_used;

	for (uint32_t i = 0; i < client->handles_count; i++)
		n += client->handles[i].peer == peer &&
		     (kind == IPC_OPENS_FILE || client->handles[i].kind == kind);
	for (const struct ipc_op *op = client->ops; left; op++) {
		left -= op->opens_kind != IPC_OPENS_NOTHING;
		n += op->opens_kind && !op->attempt && op->peer == peer &&
		     (kind == IPC_OPENS_FILE || op->opens_kind == kind);
	}
	return n;
}

static bool may_open(const struct ipc_client *client, uint32_t peer, enum ipc_opens kind)
{
	uint32_t own = 0, all = 0;

	for (const struct ipc_client *one = client->ipc->clients; one; one = one->next) {
		uint32_t n = count_handles(one, peer, kind);

		all += n;
		own += one->uid == client->uid ? n : 0;
	}
	return ipc_user_may_take(client->uid, own,
				 all < pools[kind].most ? pools[kind].most - all : 0,
				 pools[kind].reserved);
}

bool ipc_handles_may_open(const struct ipc_client *client, uint32_t peer, enum ipc_opens kind)
{
	/* Root has no limit here, only the peer's. */
	return !client->uid ||
	       (may_open(client, peer, IPC_OPENS_FILE) && may_open(client, peer, kind));
}

int ipc_handles_room(const struct ipc_client *client, uint32_t peer)
{
	const uint32_t most = client->uid ? IPC_HANDLES_USER : IPC_HANDLES_ROOT;
	uint32_t waiting = 0, left = client->opens_used;

	if (count_handles(client, peer, IPC_OPENS_FILE) >= most ||
	    client->handles_count == IPC_HANDLES)
		return -EMFILE;
	for (const struct ipc_opening *one = client->opening; one; one = one->next)
		waiting++;
	for (uint32_t i = 0; i < client->handles_count; i++)
		waiting += !client->handles[i].key;
	for (const struct ipc_op *op = client->ops; left; op++) {
		left -= op->opens_kind != IPC_OPENS_NOTHING;
		waiting += op->opens_kind && !op->attempt;
	}
	return waiting < IPC_OPENING ? 0 : -EAGAIN;
}
