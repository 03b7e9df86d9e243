/* SPDX-License-Identifier: BSD-2-Clause */
/* Which hosts have a session. The pieces of a host without one expire. */
#include <endian.h>
#include <netinet/in.h>
#include <string.h>

#include "base/clock.h"
#include "engine/sharing.h"
#include "lend/private.h"

/* Returns the identity of a peer: its key, or its address if it has no key. */
static struct careful_memory_host identity(struct lend_server *server, uint32_t peer)
{
	struct careful_memory_host host = { .by = htobe32(CAREFUL_MEMORY_KEY) };
	struct careful_peer_info info;
	struct sockaddr_in in4;
	struct sockaddr_in6 in6;

	if (engine_peer_key(server->instance, peer, host.id))
		return host;
	host.by = htobe32(CAREFUL_MEMORY_ADDRESS);
	if (careful_peer_info(server->instance, peer, &info))
		return host;
	if (info.address.ss_family == AF_INET6) {
		memcpy(&in6, &info.address, sizeof(in6));
		memcpy(host.id, &in6.sin6_addr, sizeof(in6.sin6_addr));
	} else {
		memcpy(&in4, &info.address, sizeof(in4));
		memset(host.id + 10, 0xff, 2);
		memcpy(host.id + 12, &in4.sin_addr, sizeof(in4.sin_addr));
	}
	return host;
}

static bool is_present(const struct lend_server *server, const struct careful_memory_host *host)
{
	for (uint32_t i = 0; i < server->peers_count; i++)
		if (server->peers[i].present && lend_same(&server->peers[i].host, host))
			return true;
	return false;
}

/* Starts or stops the time until a host's pieces expire. */
static void set_gone(struct lend_server *server, const struct careful_memory_host *host)
{
	const uint64_t gone_ns = is_present(server, host) ? 0 : clock_now_ns();
	const uint64_t due_ns = gone_ns + server->options.keep_ms * UINT64_C(1000000);

	for (struct lend_piece *p = server->pieces; p; p = p->next)
		if (lend_same(&p->owner, host))
			p->gone_ns = gone_ns;
	if (gone_ns && (!server->due_ns || due_ns < server->due_ns))
		server->due_ns = due_ns;
}

static void leave(struct lend_server *server, uint32_t peer)
{
	struct lend_peer *p = &server->peers[peer];

	if (!p->present)
		return;
	p->present = false;
	for (struct lend_piece *piece = server->pieces; piece; piece = piece->next)
		lend_piece_close(piece, peer);
	set_gone(server, &p->host);
}

void lend_meet(struct lend_server *server, uint32_t peer)
{
	struct lend_peer *p = &server->peers[peer];
	const struct careful_memory_host host = identity(server, peer);

	if (p->present && lend_same(&p->host, &host))
		return;
	leave(server, peer);
	p->host = host;
	p->present = true;
	set_gone(server, &host);
}

void lend_watch(struct lend_server *server, uint32_t peer, uint32_t state)
{
	if (!server)
		return;
	if (state == CAREFUL_PEER_FAILED || state == CAREFUL_PEER_NONE)
		leave(server, peer);
	else if (state == CAREFUL_PEER_UP)
		lend_meet(server, peer);
}
