/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The handles that clients of the local socket opened at peers' block services: what one that has
 * gone left open is closed there. Calls ipc_op.c.
 */
#include <errno.h>
#include <stdlib.h>

#include <careful/block.h>

#include "daemon/clock.h"
#include "daemon/ipc_private.h"

static void remember_handle(struct ipc_client *client, const struct ipc_handle *handle)
{
	if (!client->handles)
		client->handles = malloc(IPC_HANDLES * sizeof(*client->handles));
	/* Beyond the bound they stay open at the peer until the session ends. */
	if (client->handles && client->handles_count < IPC_HANDLES)
		client->handles[client->handles_count++] = *handle;
}

static void forget_handle(struct ipc_client *client, const struct ipc_handle *known)
{
	for (uint32_t i = 0; i < client->handles_count; i++) {
		struct ipc_handle *handle = &client->handles[i];

		if (handle->peer == known->peer && handle->key == known->key &&
		    handle->attempt == known->attempt) {
			*handle = client->handles[--client->handles_count];
			return;
		}
	}
}

/* An answer that did not come may have named something: the attempt's name still does. */
static void track_opened(struct ipc_op *op, const struct careful_result *result)
{
	const struct ipc_handle attempt = { .peer = op->peer, .attempt = op->attempt };
	const struct ipc_handle opened = { .peer = op->peer, .key = result->args[0] };

	if (op->attempt)
		forget_handle(op->client, &attempt);
	if (!result->status)
		remember_handle(op->client, &opened);
	else if (op->attempt && result->status == -ECONNRESET)
		remember_handle(op->client, &attempt);
}

/* Nobody else asks again for a client that has gone. */
static void track_closed(struct ipc_op *op, const struct careful_result *result)
{
	const bool is_lost = result->status == -ECONNRESET || result->status == -EAGAIN;
	const struct ipc_handle handle = {
		.peer = op->peer,
		.key = op->handle,
		.attempt = op->handle ? 0 : op->attempt,
	};

	if (is_lost && op->client->fd >= 0)
		return;
	forget_handle(op->client, &handle);
	if (is_lost) {
		remember_handle(op->client, &handle);
		op->client->close_ns = clock_in_ms(IPC_CLOSE_MS);
	}
}

/* Keeps account of what the block service opened for this client. */
void ipc_track_handles(struct ipc_op *op, const struct careful_result *result)
{
	switch (op->handler) {
	case CAREFUL_BLOCK_OPEN:
	case CAREFUL_BLOCK_LIST:
	case CAREFUL_BLOCK_BATCH:
		track_opened(op, result);
		break;
	case CAREFUL_BLOCK_COMMIT:
	case CAREFUL_BLOCK_CLOSE:
		track_closed(op, result);
		break;
	default:
		break;
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
