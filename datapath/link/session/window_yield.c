// SPDX-License-Identifier: BSD-2-Clause
/* Takes windows back from idle sessions. If all windows are taken and a newcomer or a program here
 * needs one, we ask the peer that was silent for longest. It ends the session if nothing is under
 * way at its end either, so no frame is lost. Its program keeps the peer: the next message asks for
 * a window again. */
#include "link/link_private.h"
#include "link/peer/peers.h"
#include "link/session/session.h"

#include <endian.h>
#include <errno.h>

enum {
	IDLE_MS = 1000, /* without a frame, until a session counts as idle */
	ANSWER_MS = 100, /* until another peer is asked */
	AGAIN_MS = 2000, /* until the same peer is asked again */
	AWAIT_MS = 1500, /* until a session ends for our waiting programs */
};

static bool has_passed(const struct link *link, uint64_t since_ns, uint64_t ms)
{
	return link->now_ns - since_ns >= ms * 1000000;
}

/* Reports whether nothing is under way here. */
static bool at_rest(const struct link_peer *peer)
{
	return peer->phase == LINK_OPEN && !peer->operations && !peer->kept && !peer->kept_old &&
	       !peer->session->claims && !peer->flow.built && !flow_busy(&peer->flow);
}

/* Reports whether nothing has been under way for IDLE_MS. */
static bool idle(const struct link_peer *peer)
{
	const struct session *session = peer->session;

	return at_rest(peer) && session->moved == peer->tx_frames + peer->rx_frames &&
	       has_passed(peer->link, session->moved_ns, IDLE_MS);
}

/* Reports whether the peer has not been asked recently. */
static bool may_ask(const struct link_peer *peer)
{
	uint64_t asked_ns = peer->session->yield_ns;

	return !asked_ns || has_passed(peer->link, asked_ns, AGAIN_MS);
}

/* Asks an idle peer for its window, unless a peer was asked just now. host: only a peer of this host;
 * NULL: any. Returns false if none is idle. */
bool window_yield_ask(struct link *link, const struct link_host *host)
{
	struct link_peer *best = NULL;

	for (uint32_t i = 0; i < link->peers_max; i++) {
		struct link_peer *peer = &link->peers[i];
		const struct session *session = peer->session;

		if (host && !link_peer_belongs(peer, host))
			continue;
		if (session->yield_ns && !has_passed(link, session->yield_ns, ANSWER_MS))
			return true;
		if (idle(peer) && may_ask(peer) &&
		    (!best || session->moved_ns < best->session->moved_ns))
			best = peer;
	}
	if (!best)
		return false;
	best->session->yield_ns = link->now_ns;
	link_sync_ask(best, CAREFUL_SYNC_YIELD);
	return true;
}

/* Reports whether the session's slot would become free at once. */
static bool frees_slot(const struct link_peer *peer)
{
	return !peer->operations && !peer->kept && !peer->kept_old;
}

/* Reports whether our programs do not use the session, either. */
static bool may_end(const struct link_peer *peer)
{
	return !peer->session->want && frees_slot(peer);
}

/* Counts the slots of the peer's host. */
static uint32_t slots_of_host(struct link *link, const struct link_peer *peer)
{
	const struct link_host host = link_host_of(peer);

	return 1 + link_peer_taken(link, &host);
}

/* Ends a session of the host that holds the most slots, at least `least`; among equals, of the host
 * that was silent for longest. Our programs must not use the session, and its slot must become free
 * at once. own: our programs want the newcomer, whose host counts as if it held the slot. Returns
 * whether a session has ended. */
static bool evict(struct link *link, const struct link_host *newcomer, uint32_t least, bool own)
{
	struct link_peer *best = NULL;

	for (uint32_t i = 0; i < link->peers_max; i++) {
		struct link_peer *peer = &link->peers[i];
		uint32_t held;

		if (!may_end(peer))
			continue;
		held = slots_of_host(link, peer) + (own && link_peer_belongs(peer, newcomer));
		if (held > least || (held == least && (!best || peer->session->moved_ns <
									best->session->moved_ns))) {
			best = peer;
			least = held;
		}
	}
	if (!best)
		return false;
	link_close(best, 0);
	return true;
}

/* Makes room for a newcomer if no window is idle. Afterwards its host holds no more slots than the
 * loser, so two hosts never take slots from each other in turns. */
bool window_evict(struct link *link, const struct link_host *newcomer)
{
	return evict(link, newcomer, link_peer_taken(link, newcomer) + 2, false);
}

/* Reports whether questions to the peer get no answer: its host may have lost the address. */
static bool is_silent(const struct link_peer *peer)
{
	return peer->state == CAREFUL_PEER_STALLED ||
	       (peer->state == CAREFUL_PEER_RENEWING &&
		has_passed(peer->link, peer->session->since_ns, 2ull * peer->link->sync_ms));
}

/* Ends a session that gets no answers and has nothing under way. It may be one of the newcomer's
 * host, whose address it may have been. With any_host it may be one of another host, if it has no
 * epoch and our programs do not use it. Returns whether a session has ended. */
bool window_evict_silent(struct link *link, const struct link_host *newcomer, bool any_host)
{
	for (uint32_t i = 0; i < link->peers_max; i++) {
		struct link_peer *peer = &link->peers[i];

		if (!is_silent(peer) || !frees_slot(peer))
			continue;
		if (link_peer_belongs(peer, newcomer) ||
		    (any_host && may_end(peer) && peer->state == CAREFUL_PEER_RENEWING)) {
			link_close(peer, ETIMEDOUT);
			return true;
		}
	}
	return false;
}

/* Notes that our programs ask for a slot. Reports whether they have waited long: a peer that sends
 * a frame now and then never gives its window up. */
static bool awaited_long(struct link *link)
{
	if (has_passed(link, link->awaited_ns, IDLE_MS))
		link->awaiting_ns = link->now_ns;
	link->awaited_ns = link->now_ns;
	return has_passed(link, link->awaiting_ns, AWAIT_MS);
}

/* Makes room for a peer that our programs want. A host with several slots loses one at once. Else an
 * idle peer is asked for its window; as the last resort, a session that a peer began ends. Returns
 * false if no slot can become free. */
bool window_yield_await(struct link *link, const union address *to)
{
	struct link_host host = { .address = *to };

	if (link->port->ops->resolve(link->port, to, &host.way))
		host.way.bytes = 0;
	if (evict(link, &host, awaited_long(link) ? 1 : 2, true))
		return true;
	if (window_yield_ask(link, NULL))
		return true;
	for (uint32_t i = 0; i < link->peers_max; i++)
		if (at_rest(&link->peers[i]))
			return true;
	return evict(link, &host, 1, true);
}

/* Ends the session for a peer that needs its window. Returns false if something is under way. */
bool window_yield(struct link_peer *peer, const struct careful_ctrl *sync)
{
	struct careful_ctrl bye = { 0 };

	if (!idle(peer) || !flow_agrees(&peer->flow, &sync->counts))
		return false;
	link_say(peer, &bye, CAREFUL_BYE);
	epoch_end(peer);
	peer->cookie_out = 0;
	rate_limit_session_ended(peer->link, &peer->session->address);
	peer->session->dormant = true;
	return true;
}

void window_yield_tick(struct link_peer *peer)
{
	struct session *session = peer->session;

	if (session->moved == peer->tx_frames + peer->rx_frames)
		return;
	session->moved = peer->tx_frames + peer->rx_frames;
	session->moved_ns = peer->link->now_ns;
}
