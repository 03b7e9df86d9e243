// SPDX-License-Identifier: BSD-2-Clause
/* Decides when a session begins, is renewed and is given up. */
#include "link/link_private.h"
#include "link/peer/peers.h"
#include "link/session/session.h"

#include <errno.h>
#include <string.h>

enum {
	CONNECT_MS = 5000, /* without an answer, until the peer counts as unreachable */
	RESOLVE_NS = 50 * 1000 * 1000, /* between two lookups of a link address */
	LOST_SYNC_MS = 10, /* silence before a SYNC, after a loss */
};

void link_connect(struct link_peer *peer)
{
	struct session *session = peer->session;
	session->want = true;
	if (peer->state != CAREFUL_PEER_NONE && peer->state != CAREFUL_PEER_FAILED)
		return;
	session->last_errno = 0;
	session->since_ns = peer->link->now_ns;
	link_state(peer, CAREFUL_PEER_CONNECTING);
	if (peer->phase == LINK_IDLE) {
		memset(session->address.ours, 0, sizeof(session->address.ours));
		handshake_ask(peer);
	}
}

/* Asks again for a peer that gave up its window. */
void link_wake(struct link_peer *peer)
{
	if (!peer->session->dormant)
		return;
	peer->session->dormant = false;
	link_state(peer, CAREFUL_PEER_RENEWING);
	handshake_ask(peer);
}

/* Begins a new epoch after a fault: a loss, impossible credits, or a peer that restarted. */
void link_break(struct link_peer *peer)
{
	if (link_has_epoch(peer) || peer->phase == LINK_ASKED)
		link_count(peer->link, CAREFUL_C_EPOCHS_BROKEN);
	link_renew(peer);
}

/* Begins a new epoch. Frames under way in the old one may be lost. */
void link_renew(struct link_peer *peer)
{
	/* In LINK_ASKED the peer may already have answered and sent frames. */
	bool open = link_has_epoch(peer);

	if (!open && peer->phase != LINK_ASKED)
		return;
	if (peer->phase == LINK_OPEN)
		link_state(peer, CAREFUL_PEER_RENEWING);
	epoch_end(peer);
	if (open && peer->cookie_out)
		handshake_ask_again(peer);
	else
		handshake_ask(peer);
}

/* Begins a new epoch after a loss. More losses are likely, so SYNCs follow a shorter silence. */
void link_lost(struct link_peer *peer, uint32_t frames)
{
	struct session *session = peer->session;
	peer->link->counters[CAREFUL_C_LOST_FRAMES] += frames;
	session->lost_here += frames;
	if (session->sync.wait_ms > LOST_SYNC_MS)
		session->sync.wait_ms = LOST_SYNC_MS;
	link_train_lost(peer);
	link_break(peer);
}

/* Looks up the link address, and ends a session that finds none. Counts attempts, not time, since a
 * stopped process makes none. */
static void resolve_tick(struct link_peer *peer)
{
	struct session *session = peer->session;
	struct link *link = peer->link;
	int rc = link->port->ops->resolve(link->port, &session->address, &peer->llhdr);

	if (!rc) {
		link_path_fit(peer);
		session->no_way = 0;
		return;
	}
	peer->llhdr.bytes = 0;
	if (session->no_way && link->now_ns - session->no_way_ns < RESOLVE_NS)
		return;
	session->no_way_ns = link->now_ns;
	if (++session->no_way > CONNECT_MS * 1000000ULL / RESOLVE_NS)
		link_close(peer, rc == -EAGAIN ? EHOSTUNREACH : ENETUNREACH);
}

/* Repeats unanswered HELLOs and questions, and gives up after a while. */
void session_tick(struct link_peer *peer)
{
	struct session *session = peer->session;
	struct link *link = peer->link;
	uint64_t limit_ms;

	if (link_drain_begun(&session->bye) && link_drain_over(link, &session->bye))
		link_bye(peer);
	window_yield_tick(peer);
	limit_ms = peer->state == CAREFUL_PEER_RENEWING ? link->stall_ms : CONNECT_MS;

	if (handshake_waits(peer))
		link->draining = true;
	handshake_tick(peer);
	switch (seal_tick(peer)) {
	case SEAL_DUE_END:
		link_close(peer, ETIMEDOUT);
		break;
	case SEAL_DUE_QUESTION:
		control_watch_ask(peer);
		break;
	case SEAL_DUE_NONE:
		break;
	}
	if (!link_has_epoch(peer) && peer->phase != LINK_IDLE &&
	    link->now_ns - session->since_ns >= limit_ms * 1000000)
		link_close(peer, session->handshake.elsewhere.sa.sa_family ? EADDRNOTAVAIL :
				 session->last_errno			   ? session->last_errno :
									     ETIMEDOUT);
	if (link_has_epoch(peer) && !peer->llhdr.bytes)
		resolve_tick(peer);
}

static bool is_live(const struct link_peer *peer)
{
	return peer->state != CAREFUL_PEER_NONE && peer->state != CAREFUL_PEER_FAILED;
}

/* Follows a change of our own address: the session continues from the new address, in a new epoch,
 * since the peer still sends to the old one. If another session with the peer exists, it ends. */
static void follow_source(struct link_peer *peer)
{
	struct link *link = peer->link;
	struct session *session = peer->session;
	union address now = session->address;

	link->port->ops->source(link->port, &now);
	if (!memcmp(now.ours, session->address.ours, sizeof(now.ours)))
		return;
	for (uint32_t i = 0; i < link->peers_max; i++) {
		const struct link_peer *other = &link->peers[i];

		if (other != peer && is_live(other) && link_peer_at(other, &now)) {
			link_close(peer, ECONNRESET);
			return;
		}
	}
	session->address = now;
	link_renew(peer);
}

/* Looks up the kernel's route to the peer again. */
void link_way_changed(struct link_peer *peer)
{
	bool moved;
	int rc = link_path_again(peer, &moved);

	if (moved) {
		follow_source(peer);
	} else if (rc == -EMSGSIZE) {
		link_break(peer);
	} else if (rc) {
		link_renew(peer); /* frames stop until there is a route */
		peer->session->last_errno = -rc;
	}
}

/* Measures the peer's burst again, in a new epoch. Nothing may be under way. */
void link_measure(struct link_peer *peer)
{
	link_train_want(peer);
	link_renew(peer);
}

/* Ends sessions with keys that are no longer trusted, after the key files changed. */
void link_keys_changed(struct link *link)
{
	for (uint32_t i = 0; i < link->peers_max; i++) {
		struct link_peer *peer = &link->peers[i];
		bool other;

		if (peer->state == CAREFUL_PEER_NONE || peer->state == CAREFUL_PEER_FAILED ||
		    keyed_trusted_still(peer, &other))
			continue;
		/* The host may have another trusted key, which a new epoch proves. */
		if (other && (link_has_epoch(peer) || peer->phase == LINK_ASKED))
			link_renew(peer);
		else if (!peer->session->dormant)
			link_close(peer, EKEYREVOKED);
	}
}

void link_resume(struct link *link, const struct link_peer *alone)
{
	link->alone = alone;
	link->resting = false;
	link->draining = true; /* so that waiting handshakes continue */
}

bool link_rest(struct link *link)
{
	const bool began = link->resting;

	link->resting = true;
	for (uint32_t i = 0; !began && i < link->peers_max; i++)
		link_renew(&link->peers[i]);
	for (uint32_t i = 0; i < link->peers_max; i++)
		if (!epoch_quiet(&link->peers[i]))
			return false;
	return true;
}
