// SPDX-License-Identifier: BSD-2-Clause
/*
 * Windows of sessions that are idle. When all are taken and a host asks for one, the peer that
 * was silent for longest is asked for its own; it ends the session if nothing is under way at
 * its end either, so no frame is lost. It stays a peer there, without a window: its next message
 * asks for one. Calls handshake.c, sync.c, epoch.c, peer.c.
 */
#include "link/link.h"

#include <endian.h>

enum {
	IDLE_MS = 1000, /* without a frame */
	ANSWER_MS = 100, /* until another peer is asked */
	AGAIN_MS = 2000, /* until the same one is */
};

static bool past(const struct link *link, uint64_t since_ns, uint64_t ms)
{
	return link->now_ns - since_ns >= ms * 1000000;
}

/* Whether nothing is under way here, and nothing was for a while. */
static bool idle(const struct link_peer *peer)
{
	const struct session *session = peer->session;

	return peer->phase == LINK_OPEN && !peer->operations && !peer->kept && !peer->kept_old &&
	       !peer->claims && !peer->flow.built && !flow_busy(&peer->flow) &&
	       session->moved == peer->tx_frames + peer->rx_frames &&
	       past(peer->link, session->moved_ns, IDLE_MS);
}

/* Looks for a window that can be given up; false: there is none, nor was one asked for just now. */
bool link_yield_ask(struct link *link)
{
	struct link_peer *best = NULL;

	for (uint32_t i = 0; i < link->peers_max; i++) {
		struct link_peer *peer = &link->peers[i];
		const struct session *session = peer->session;

		if (session->yield_ns && !past(link, session->yield_ns, ANSWER_MS))
			return true;
		if (idle(peer) && (!session->yield_ns || past(link, session->yield_ns, AGAIN_MS)) &&
		    (!best || session->moved_ns < best->session->moved_ns))
			best = peer;
	}
	if (!best)
		return false;
	best->session->yield_ns = link->now_ns;
	link_sync_yield(best);
	return true;
}

/* The peer asks for its window; false: something is under way. */
bool link_yield(struct link_peer *peer, const struct careful_ctrl *sync)
{
	struct careful_ctrl bye = { .cookie = htobe64(peer->cookie_out) };

	if (!idle(peer) || !flow_agrees(&peer->flow, sync))
		return false;
	link_ctrl_send(peer->link, &peer->session->address, &bye, CAREFUL_BYE);
	epoch_end(peer);
	peer->cookie_out = 0;
	peer->session->dormant = true;
	return true;
}

/* A message waits for a peer that gave up its window. */
void link_wake(struct link_peer *peer)
{
	if (!peer->session->dormant)
		return;
	peer->session->dormant = false;
	link_state(peer, CAREFUL_PEER_RENEWING);
	handshake_ask(peer);
}

void link_yield_tick(struct link_peer *peer)
{
	struct session *session = peer->session;

	if (session->moved == peer->tx_frames + peer->rx_frames)
		return;
	session->moved = peer->tx_frames + peer->rx_frames;
	session->moved_ns = peer->link->now_ns;
}
