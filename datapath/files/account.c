/* SPDX-License-Identifier: BSD-2-Clause */
/* Accounts of the memory that hosts use here. All sessions of a host share an account, because a
 * limit for each session would not limit the host. A handle keeps its account. */
#include <stdlib.h>

#include "engine/sharing.h"
#include "files/private.h"

/* Drops a reference to an account. Returns NULL, for the caller's pointer. */
static struct block_account *account_put(struct block_account *account)
{
	if (account && !--account->users)
		free(account);
	return NULL;
}

static struct block_account *account_get(struct block_account *account)
{
	account->users++;
	return account;
}

static bool is_current(const struct block_peer *peer)
{
	return peer->account && peer->account_life == peer->life;
}

/* Reports whether handles of the slot's former peer have not ended yet. */
static bool has_former_handles(const struct block_peer *peer)
{
	const struct block_handle *h = peer->handles;

	while (h && h->life == peer->life)
		h = h->next;
	return h;
}

/* Returns the account of a slot's host; the former peer's, while handles of that peer remain. */
struct block_account *block_account(struct block_server *server, uint32_t index)
{
	struct block_peer *peer = &server->peers[index];

	if (is_current(peer) || (peer->account && has_former_handles(peer)))
		return peer->account;
	peer->account = account_put(peer->account);
	for (uint32_t i = 0; i < server->peers_count && !peer->account; i++)
		if (is_current(&server->peers[i]) && engine_same_host(server->instance, i, index))
			peer->account = account_get(server->peers[i].account);
	if (!peer->account) {
		peer->account = calloc(1, sizeof(*peer->account));
		if (peer->account)
			peer->account->users = 1;
	}
	peer->account_life = peer->life;
	return peer->account;
}

void block_account_add(struct block_account *account, struct block_handle *handle)
{
	handle->account = account_get(account);
	account->scratches_count += handle->scratch;
	account->answers_bytes += handle->held;
}

void block_account_remove(struct block_handle *handle)
{
	handle->account->scratches_count -= handle->scratch;
	handle->account->answers_bytes -= handle->held;
	handle->account = account_put(handle->account);
}

void block_accounts_deinit(struct block_server *server)
{
	for (uint32_t i = 0; server->peers && i < server->peers_count; i++)
		server->peers[i].account = account_put(server->peers[i].account);
}
