// SPDX-License-Identifier: BSD-2-Clause
/*
 * What silence means. A lost last frame leaves no gap, so when credits or replies
 * have been outstanding for sync_ms without an arrival, each end tells the other
 * what it sent and received. Only answers that disagree are a loss; no answer is a
 * stall, and after stall_ms the end of the session.
 */
#include "link/link.h"

#include <endian.h>

enum {
	/* Control may overtake frames that are still in a queue: a difference counts
	 * when it is the same in this many answers, so long after each other. */
	DISAGREE_TIMES = 2,
	DISAGREE_RETRY_MS = 20,
	SYNC_QUICK_MS = 10, /* silence before a question, after a loss */
	REFUSED_TIMES = 3,
	REFUSED_RETRY_MS = 45, /* just under the time between two HELLOs */
};

static void describe(const struct link_peer *peer, struct careful_ctrl *ctrl)
{
	ctrl->cookie = htobe64(peer->cookie_out);
	flow_describe(&peer->flow, ctrl);
}

void link_sync(struct link_peer *peer)
{
	struct link *link = peer->link;
	struct careful_ctrl ctrl = { 0 };

	if (!peer->sync_nonce)
		link->port->ops->random(link->port, &peer->sync_nonce, sizeof(peer->sync_nonce));
	peer->sync_nonce |= 1;
	ctrl.nonce = htobe64(peer->sync_nonce);
	describe(peer, &ctrl);
	peer->asked_ns = link->now_ns;
	link_count(link, CAREFUL_C_SYNCS);
	link_ctrl_send(link, &peer->address, &ctrl, CAREFUL_SYNC);
}

/* As on_challenge() and its like: whether the message meant anything. */
bool link_on_sync(struct link_peer *peer, const struct careful_ctrl *ctrl)
{
	if (peer->phase == LINK_OPEN && peer->question.nonce != ctrl->nonce)
		peer->question = (struct link_question){ .nonce = ctrl->nonce };
	return true; /* else it will be asked again */
}

/* After control messages were read: those that came before have their frames in the ring. */
void link_question_tick(struct link_peer *peer)
{
	struct link_question *question = &peer->question;
	struct link *link = peer->link;

	if (!question->nonce)
		return;
	link->draining = true;
	if (question->drains || !question->ticks++)
		return;
	question->drains = link->rx_drains + 1;
	question->taken = link->rx_taken + (uint64_t)link->window * link->peers_max;
}

/* After frames were taken from the ring: answers. Whether there is still something to answer. */
bool link_question_answer(struct link_peer *peer)
{
	struct link_question *question = &peer->question;
	struct careful_ctrl ack = { .nonce = question->nonce };
	struct link *link = peer->link;

	if (!question->nonce || peer->phase != LINK_OPEN) {
		question->nonce = 0;
		return false;
	}
	if (!question->drains ||
	    (link->rx_drains < question->drains && link->rx_taken < question->taken))
		return true;
	question->nonce = 0;
	describe(peer, &ack);
	ack.status = htobe32(link->kick_again);
	flow_told(&peer->flow);
	link_ctrl_send(link, &peer->address, &ack, CAREFUL_SYNC_ACK);
	return false;
}

/* Whether the answer says nothing of loss: frames that count as sent may not even have
 * left, where TX rings are full; or frames came since, and it is older than they are. */
static bool undecided(const struct link_peer *peer, const struct careful_ctrl *ctrl)
{
	return peer->link->kick_again || ctrl->status || peer->heard;
}

bool link_on_sync_ack(struct link_peer *peer, const struct careful_ctrl *ctrl)
{
	uint32_t sent = be32toh(ctrl->seq_sent);
	uint32_t rcvd = be32toh(ctrl->seq_rcvd);
	struct link *link = peer->link;

	if (peer->phase != LINK_OPEN || !peer->sync_nonce ||
	    be64toh(ctrl->nonce) != peer->sync_nonce || be64toh(ctrl->cookie) != peer->cookie_in)
		return false;
	peer->sync_nonce = 0;
	peer->doubted = false;
	peer->heard_ns = link->now_ns;
	peer->refused_rounds = 0;
	peer->refused = false;
	link_state(peer, CAREFUL_PEER_UP);
	if (flow_agrees(&peer->flow, ctrl)) {
		peer->sync_disagreed = 0;
		peer->blocked_ns = 0;
		/* Silent for a reason of its own: back to asking seldom. */
		peer->sync_ms = 2 * peer->sync_ms < link->sync_ms ? 2 * peer->sync_ms :
								    link->sync_ms;
		if (flow_credit(&peer->flow, ctrl)) {
			link_count(link, CAREFUL_C_BAD_CREDITS);
			link_break(peer);
		}
		return true;
	}
	if (undecided(peer, ctrl)) {
		peer->sync_disagreed = 0;
		if (!peer->blocked_ns)
			peer->blocked_ns = link->now_ns;
		if (link->now_ns - peer->blocked_ns >= link->stall_ms * 1000000ull)
			link_close(peer, ETIMEDOUT);
		return true;
	}
	peer->blocked_ns = 0;
	if (peer->sync_disagreed && (sent != peer->sync_seq_sent || rcvd != peer->sync_seq_rcvd))
		peer->sync_disagreed = 0;
	/* The first may have been long on its way, and ICMP makes us ask at once. */
	if (peer->sync_disagreed &&
	    link->now_ns - peer->disagreed_ns < DISAGREE_RETRY_MS * 1000000ull)
		return true;
	peer->disagreed_ns = link->now_ns;
	peer->sync_seq_sent = sent;
	peer->sync_seq_rcvd = rcvd;
	if (++peer->sync_disagreed < DISAGREE_TIMES)
		return true;
	link_lost(peer, flow_missing(&peer->flow, ctrl));
	return true;
}

/* The network lost frames. Where it did so once it may again: silence means less now. */
void link_lost(struct link_peer *peer, uint32_t frames)
{
	peer->link->counters[CAREFUL_C_LOST_FRAMES] += frames;
	peer->lost_frames += frames;
	if (peer->sync_ms > SYNC_QUICK_MS)
		peer->sync_ms = SYNC_QUICK_MS;
	link_break(peer);
}

bool link_on_gone(struct link_peer *peer, const struct careful_ctrl *ctrl)
{
	if (!peer->sync_nonce || be64toh(ctrl->nonce) != peer->sync_nonce)
		return false;
	peer->cookie_out = 0; /* it does not know that any more */
	link_break(peer);
	return true;
}

/* Whether ICMP quotes something that was meant for the peer: the cookie of this epoch, or
 * the nonce of the HELLO without an answer. Only who is on the way knows either; Linux
 * quotes 548 bytes of the datagram over IPv4, 1184 over IPv6. */
static bool quotes_us(const struct link_peer *peer, const union link_message *quoted)
{
	uint64_t cookie = be64toh(quoted->hdr.cookie);

	if (quoted->ctrl.type == CAREFUL_HELLO)
		return peer->nonce && be64toh(quoted->ctrl.nonce) == peer->nonce;
	if (quoted->ctrl.type & CAREFUL_CTRL_BIT)
		cookie = be64toh(quoted->ctrl.cookie);
	return cookie && cookie == peer->cookie_out;
}

/* ICMP says that nobody listens at the peer. Anyone can say so, and nothing comes of it
 * unless it quotes us. Then the peer is asked: it may begin anew, and answers in time, or
 * several questions in a row meet that and nothing else. */
bool link_on_refused(struct link_peer *peer, const union link_message *quoted)
{
	if (!quotes_us(peer, quoted))
		return false;
	peer->refused = true;
	if (peer->phase == LINK_OPEN && !peer->sync_nonce)
		link_sync(peer);
	return true;
}

/* After each question: was it refused, and is that enough? */
static bool refused_tick(struct link_peer *peer)
{
	uint64_t waited_ms = (peer->link->now_ns - peer->asked_ns) / 1000000;

	if (!peer->refused || waited_ms < REFUSED_RETRY_MS)
		return false;
	peer->refused = false;
	if (peer->refused_ns == peer->asked_ns)
		return false; /* one question counts once, however often it is refused */
	peer->refused_ns = peer->asked_ns;
	if (++peer->refused_rounds >= REFUSED_TIMES) {
		link_close(peer, ECONNREFUSED);
		return true;
	}
	if (peer->phase == LINK_OPEN)
		link_sync(peer);
	return false;
}

/* Whether something is awaited of the peer: credits for more than may stay owed
 * for ever, a reply, or a sign of life. */
static bool awaited(const struct link_peer *peer)
{
	return flow_awaits(&peer->flow) || peer->operations || peer->doubted || peer->refused ||
	       peer->refused_rounds;
}

static void sync_tick(struct link_peer *peer)
{
	struct link *link = peer->link;
	uint64_t wait_ms = peer->sync_disagreed ? DISAGREE_RETRY_MS : peer->sync_ms;
	uint64_t silent_ms = (link->now_ns - peer->heard_ns) / 1000000;

	if (!awaited(peer)) {
		peer->heard_ns = link->now_ns;
		peer->sync_nonce = 0;
		return;
	}
	if (silent_ms >= link->stall_ms && peer->sync_nonce) {
		link_close(peer, ETIMEDOUT);
		return;
	}
	if (silent_ms < wait_ms || (link->now_ns - peer->asked_ns) / 1000000 < wait_ms)
		return;
	if (peer->sync_nonce && peer->state == CAREFUL_PEER_UP &&
	    silent_ms >= 2ull * link->sync_ms) {
		link_count(link, CAREFUL_C_STALLS);
		link_state(peer, CAREFUL_PEER_STALLED);
	}
	if (peer->sync_nonce)
		link_unheard(peer, peer->heard_ns);
	link_sync(peer);
}

/* For how long nothing here needs the clock or a poll, at most most_ms. */
uint32_t link_timeout_ms(const struct link *link, uint32_t most_ms)
{
	if (link->kick_again || link->draining)
		return 1;
	for (uint32_t i = 0; i < link->peers_max; i++) {
		const struct link_peer *peer = &link->peers[i];
		uint32_t ms = most_ms;

		if (peer->phase == LINK_ASKING || peer->phase == LINK_ASKED)
			ms = peer->retry_ms;
		else if (peer->phase == LINK_OPEN && awaited(peer))
			ms = peer->sync_ms;
		if (ms < most_ms)
			most_ms = ms;
	}
	return most_ms;
}

/* Once a millisecond or so: everything that depends on time. */
void link_tick(struct link *link)
{
	link_stamps_tick(link);
	for (uint32_t i = 0; i < link->peers_max; i++) {
		struct link_peer *peer = &link->peers[i];

		if (peer->state == CAREFUL_PEER_NONE && peer->phase == LINK_IDLE)
			continue;
		link_ping_tick(peer);
		if (peer->heard) {
			peer->heard = false;
			peer->blocked_ns = 0;
			peer->doubted = false;
			peer->heard_ns = link->now_ns;
			peer->refused_rounds = 0;
			peer->refused = false;
			peer->sync_disagreed = 0;
			peer->sync_nonce = 0;
			link_state(peer, peer->phase == LINK_OPEN ? CAREFUL_PEER_UP : peer->state);
		}
		link_question_tick(peer);
		if (refused_tick(peer))
			continue;
		if (peer->phase == LINK_OPEN)
			sync_tick(peer);
		link_session_tick(peer);
	}
}
