// SPDX-License-Identifier: BSD-2-Clause
/* The handshake.
 *
 *   A: HELLO                      no state at B yet
 *   B: CHALLENGE token            a hash of A's address and nonce: no state either
 *   A: HELLO token, A's window    A admits B's frames before it sends this
 *   B: WELCOME B's window         B admits A's frames before it sends this
 *
 * After a loss the first two are left out: the token is then the cookie of the epoch that ended,
 * which nobody else knows and which opens one new epoch. A stranger who cannot read messages to A
 * cannot make B believe that A restarted.
 *
 * If there are keys, all four messages prove them (keyed.c). No state changes before a proof: not
 * at A before B's CHALLENGE, not at B before A's second HELLO.
 *
 * This file is A; handshake_answer.c is B. */
#include "link/link_private.h"
#include "link/repair/repair.h"
#include "link/session/queue_choice.h"
#include "link/peer/peers.h"
#include "link/session/session.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

enum {
	RETRY_MS = 50, /* most between two HELLOs */
	RETRY_MS_MIN = 5, /* between the first two HELLOs; doubled each time */
	/* HELLOs in a row that got only unproved REFUSEs, until these are believed (half a second),
	 * or another key is tried. Attempts, not time: a stopped process makes none. */
	REFUSALS = 13,
	REFUSALS_OTHER = 5,
};

static void send_hello(struct link_peer *peer)
{
	struct session *session = peer->session;
	struct careful_ctrl ctrl = { .nonce = htobe64(session->handshake.nonce) };

	session->asked_ns = peer->link->now_ns;
	session->handshake.refused_last = false;
	if (peer->phase == LINK_ASKED && peer->link->keyed) {
		keyed_send(peer);
		return;
	}
	ctrl.opening.queues = htobe32(session->handshake.among);
	if (peer->link->keyed) {
		keyed_ask(peer, &ctrl);
		return;
	}
	if (peer->phase == LINK_ASKED) {
		ctrl.token = htobe64(session->handshake.token);
		handshake_describe(peer, &ctrl);
	}
	link_ctrl_send(peer->link, &session->address, &ctrl, CAREFUL_HELLO);
}

/* Begins a new attempt. Answers to the last one no longer count. */
static void begin_asking(struct link_peer *peer, uint64_t token)
{
	struct handshake *handshake = &peer->session->handshake;

	peer->phase = LINK_ASKING;
	handshake->nonce = link_random(peer->link);
	handshake->token = token;
	handshake->challenge = 0;
	handshake->refusals = 0;
	handshake->retry_ms = RETRY_MS_MIN;
	handshake->elsewhere.sa.sa_family = AF_UNSPEC;
}

static void ask(struct link_peer *peer)
{
	struct port *port = peer->link->port;

	/* Answers come to the address that we ask from; the address pair names this session. */
	if (port->ops->source)
		port->ops->source(port, &peer->session->address);
	begin_asking(peer, 0);
	if (peer->link->keyed && !keys_find(&peer->link->keys, &peer->session->address, NULL))
		link_close(peer, ENOKEY);
	else
		send_hello(peer);
}

void handshake_ask(struct link_peer *peer)
{
	peer->session->keyed.tries = 0;
	ask(peer);
}

/* Asks a peer that may still know the cookie of our last epoch. */
void handshake_ask_again(struct link_peer *peer)
{
	begin_asking(peer, peer->cookie_out);
	peer->session->asked_ns = peer->link->now_ns;
	peer->link->draining = true;
}

/* Sends the HELLO that grants our window, once the old epoch has drained. */
static void try_hello(struct link_peer *peer)
{
	if (!epoch_drained(peer))
		return;
	handshake_begin(peer, CAREFUL_HELLO);
	peer->phase = LINK_ASKED;
	send_hello(peer);
}

/* Reports whether a newer CHALLENGE of the same process arrived first. */
static bool is_overtaken(const struct session *session, const struct careful_ctrl *ctrl)
{
	uint32_t last = session->handshake.challenge;

	return last && session->incarnation == be64toh(ctrl->incarnation) &&
	       (int32_t)(be32toh(ctrl->opening.challenges) - last) < 0;
}

bool handshake_on_challenge(struct link_peer *peer, const struct careful_ctrl *ctrl)
{
	struct session *session = peer->session;

	if ((peer->phase != LINK_ASKING && peer->phase != LINK_ASKED) ||
	    !handshake_answers(&session->handshake, ctrl))
		return false;
	if (is_overtaken(session, ctrl))
		return true;
	session->handshake.challenge = be32toh(ctrl->opening.challenges);
	session->sync.refused = false;
	session->sync.refused_rounds = 0;
	session->handshake.refusals = 0;
	if (session->handshake.token == be64toh(ctrl->token))
		return true; /* the answer to a HELLO that we repeated */
	/* The token has changed, so the peer has ended an epoch since, perhaps the one whose window
	 * we opened. */
	if (peer->phase == LINK_ASKED) {
		epoch_end(peer);
		handshake_ask(peer);
		return true;
	}
	if (queue_choice_redirects(peer, ctrl))
		return true;
	/* before the peer's frames, which may overtake its WELCOME */
	handshake_note_incarnation(peer, ctrl);
	session->handshake.token = be64toh(ctrl->token);
	session->handshake.retry_ms = RETRY_MS_MIN;
	peer->link->draining = true;
	try_hello(peer);
	return true;
}

bool handshake_on_welcome(struct link_peer *peer, const union address *from,
			  const struct careful_ctrl *ctrl, const struct careful_keyed *keyed)
{
	struct careful_ctrl opened;

	if (peer->phase != LINK_ASKED || !handshake_answers(&peer->session->handshake, ctrl) ||
	    peer->link->keyed != !!keyed)
		return false;
	if (keyed) {
		if (!keyed_welcomed(peer, keyed, &opened))
			return false;
		ctrl = &opened;
	}
	if (be32toh(ctrl->terms.protocol) != handshake_flags(peer->link) ||
	    !seal_agrees(peer->link, &peer->session->address, ctrl) ||
	    handshake_adopt(peer, from, ctrl)) {
		link_close(peer, EPROTO);
		return true;
	}
	handshake_forget(&peer->session->handshake);
	epoch_opened(peer);
	if (peer->trailer)
		control_watch_ask(peer); /* shows that we have the keys (seal.h) */
	return true;
}

static int error_of(uint32_t why)
{
	return why == CAREFUL_REFUSED_VERSION  ? EPROTONOSUPPORT :
	       why == CAREFUL_REFUSED_PEERS    ? EUSERS :
	       why == CAREFUL_REFUSED_KEY      ? EKEYREJECTED :
	       why == CAREFUL_REFUSED_PROTOCOL ? EPROTOTYPE :
	       why == CAREFUL_REFUSED_REPAIR   ? EILSEQ :
	       why == CAREFUL_REFUSED_SEAL     ? ENOPROTOOPT :
	       why == CAREFUL_REFUSED_FRAME    ? EMSGSIZE :
						 EPROTO;
}

bool handshake_on_refuse(struct link_peer *peer, const struct careful_ctrl *ctrl, bool proved)
{
	struct handshake *handshake = &peer->session->handshake;
	uint32_t why = be32toh(ctrl->refuse.why);

	if (!handshake_answers(&peer->session->handshake, ctrl))
		return false;
	/* The peer has our version: the HELLO that it refused was damaged. */
	if (why == CAREFUL_REFUSED_VERSION && ctrl->version == CAREFUL_WIRE_VERSION)
		return true;
	if (proved) {
		link_close(peer, error_of(why));
		return true;
	}
	if (!handshake->refused_last) { /* anybody can send an unproved REFUSE */
		handshake->refused_last = true;
		handshake->refusals++;
	}
	handshake->refused = error_of(why);
	return true;
}

/* Notes that our HELLO was answered from another address. Anyone who saw the HELLO can send such an
 * answer, so it is only reported at the end. */
void handshake_elsewhere(struct link *link, const union address *from,
			 const struct careful_ctrl *ctrl)
{
	for (uint32_t i = 0; i < link->peers_max; i++) {
		struct handshake *handshake = &link->peers[i].session->handshake;

		if (handshake_answers(handshake, ctrl))
			handshake->elsewhere = *from;
	}
}

/* Reports whether a handshake waits for the old epoch's buffers. */
bool handshake_waits(const struct link_peer *peer)
{
	return peer->phase == LINK_DRAINING ||
	       (peer->phase == LINK_ASKING && peer->session->handshake.token);
}

void handshake_drained(struct link_peer *peer)
{
	if (peer->phase == LINK_DRAINING)
		handshake_try_welcome(peer);
	else
		try_hello(peer);
}

/* Acts on unproved REFUSEs: tries another key or ends the session. Believes them only after several,
 * one of them for the latest HELLO. Returns false if it does nothing. */
static bool handle_refusals(struct link_peer *peer)
{
	const struct handshake *handshake = &peer->session->handshake;

	if (!handshake->refused_last)
		return false;
	if (handshake->refused == EKEYREJECTED && handshake->refusals >= REFUSALS_OTHER &&
	    keyed_next_key(peer)) {
		epoch_end(peer);
		ask(peer);
		return true;
	}
	if (handshake->refusals < REFUSALS)
		return false;
	link_close(peer, handshake->refused);
	return true;
}

/* Repeats a HELLO that got no answer. */
void handshake_tick(struct link_peer *peer)
{
	struct session *session = peer->session;
	struct handshake *handshake = &session->handshake;

	if ((peer->phase != LINK_ASKING && peer->phase != LINK_ASKED) || handshake_waits(peer) ||
	    peer->link->now_ns - session->asked_ns < handshake->retry_ms * 1000000ull)
		return;
	if (handle_refusals(peer))
		return;
	link_recheck_address(peer, session->since_ns);
	handshake->retry_ms *= 2;
	if (handshake->retry_ms > RETRY_MS)
		handshake->retry_ms = RETRY_MS;
	send_hello(peer);
}
