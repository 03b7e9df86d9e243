// SPDX-License-Identifier: BSD-2-Clause
/* Handles silence. A lost last frame leaves no gap. So if credits or replies are outstanding and
 * nothing has arrived for sync_ms, the ends compare their counts by SYNC. Only answers that disagree
 * prove a loss. No answer is a stall, which ends the session after stall_ms. */
#include "link/link_private.h"
#include "link/repair/repair.h"
#include "link/peer/peers.h"
#include "link/session/session.h"

#include <endian.h>

enum {
	/* Control messages may overtake queued frames, so a difference counts only if this many
	 * answers show it, this long after each other. */
	DISAGREE_TIMES = 2,
	DISAGREE_RETRY_MS = 20,
	SUSPECT_ROUNDS = 4, /* silence before a lost tail is suspected, in round trips */
	ROUND_FIRST_NS = 4 * 1000 * 1000, /* limit of the first measured round trip */
	REFUSED_TIMES = 3, /* refused SYNCs in a row that end a session */
	REFUSED_RETRY_MS = 45, /* just less than the time between two HELLOs */
};

/* Lengthens the silence before the next question, up to most_ms. */
static void wait_longer(struct link_peer *peer, uint32_t most_ms)
{
	struct link_sync *sync = &peer->session->sync;

	if (sync->wait_ms < most_ms)
		sync->wait_ms = 2 * sync->wait_ms < most_ms ? 2 * sync->wait_ms : most_ms;
}

static void ask(struct link_peer *peer)
{
	link_sync_ask(peer, CAREFUL_SYNC_COUNTS);
}

/* Asks which of our frames have arrived, unless a question is unanswered. Credits prove it late if
 * the peer may grant many. */
void link_ask_arrived(struct link_peer *peer)
{
	if (peer->phase == LINK_OPEN && !peer->session->sync.asked)
		ask(peer);
}

/* Ends the session of a peer that reports impossible counts. */
static void bad_counts(struct link_peer *peer)
{
	link_count(peer->link, CAREFUL_C_BAD_CREDITS);
	link_break(peer);
}

/* Handles SYNC. Reports whether the message was expected. */
bool link_on_sync(struct link_peer *peer, const struct careful_ctrl *ctrl)
{
	if (be32toh(ctrl->counts.question) == CAREFUL_SYNC_HEARD) {
		control_watch_answer(peer, ctrl);
		if (peer->link->repairs && !reorder_said(peer, be32toh(ctrl->counts.seq_sent)))
			bad_counts(peer);
		return true;
	}
	/* The peer will ask again, or this is a copy of a question that is not answered yet. */
	if (peer->phase != LINK_OPEN ||
	    (peer->session->question.nonce &&
	     be64toh(peer->session->question.nonce) >> 32 == be64toh(ctrl->nonce) >> 32))
		return true;
	peer->session->question = (struct link_sync_question){
		.nonce = ctrl->nonce,
		.seq_sent = be32toh(ctrl->counts.seq_sent),
	};
	peer->link->draining = true;
	if (!link_log_came(peer, be32toh(ctrl->counts.seq_rcvd)))
		bad_counts(peer);
	return true;
}

/* Begins the drain for a question of an earlier tick: frames that left before it are now in the RX
 * ring. */
void link_sync_question_tick(struct link_peer *peer)
{
	struct link_sync_question *question = &peer->session->question;
	struct link *link = peer->link;

	if (!question->nonce)
		return;
	link->draining = true;
	if (link_drain_begun(&question->drain) || !question->ticks++)
		return;
	question->drain = link_drain_begin(link);
}

/* Answers the question if the RX ring has drained. Reports whether the question still waits. */
bool link_sync_answer(struct link_peer *peer)
{
	struct link_sync_question *question = &peer->session->question;
	struct careful_ctrl ack = { .nonce = question->nonce };
	struct link *link = peer->link;

	if (!question->nonce || peer->phase != LINK_OPEN) {
		question->nonce = 0;
		return false;
	}
	if (!link_drain_begun(&question->drain) || !link_drain_over(link, &question->drain))
		return true;
	question->nonce = 0;
	if (!reorder_sent(peer, question->seq_sent)) {
		bad_counts(peer);
		return false;
	}
	flow_describe(&peer->flow, &ack.counts);
	ack.counts.in_device = htobe32(link->kick_again);
	flow_announced(&peer->flow);
	link_say(peer, &ack, CAREFUL_SYNC_ACK);
	return false;
}

/* Reports whether an answer that differs proves no loss: frames may wait in a full TX ring, or have
 * arrived after the answer left. */
static bool is_undecided(const struct link_peer *peer, const struct careful_counts *ack)
{
	/* The traditional protocol requests missing frames itself. */
	return peer->link->traditional || peer->link->kick_again || ack->in_device || peer->heard;
}

/* Takes the credits of an answer. Returns false if they are impossible. */
static bool take_credits(struct link_peer *peer, const struct careful_counts *ack)
{
	if (peer->link->traditional)
		return peer->link->traditional->ops->acked(peer, be32toh(ack->seq_rcvd));
	return flow_credit(&peer->flow, ack);
}

/* Measures the round trip of a question. A time above the limit contains a pause of the process, and
 * counts as the limit. */
static void time_round(struct link_peer *peer, uint32_t asked_us)
{
	struct link_missing *missing = &peer->session->missing;
	uint64_t round_ns = 1000ull * ((uint32_t)(peer->link->now_ns / 1000) - asked_us);
	uint64_t most_ns = 2 * missing->round_ns + ROUND_FIRST_NS;

	round_ns = round_ns < most_ns ? round_ns : most_ns;
	missing->round_ns = round_ns > 2 * missing->round_ns ?
				    round_ns :
				    (7 * missing->round_ns + round_ns) / 8;
}

/* Handles an answer that differs, with repairs: the end that misses frames requests them. */
static void take_for_repair(struct link_peer *peer, const struct careful_counts *ack)
{
	struct session *session = peer->session;

	if (!reorder_said(peer, be32toh(ack->seq_sent)) || !take_credits(peer, ack)) {
		bad_counts(peer);
		return;
	}
	session->sync.disagreed = 0;
	session->sync.blocked_ns = 0;
}

/* Reports whether the nonce belongs to a question of this epoch. */
static bool is_question(const struct link_sync *sync, uint64_t nonce)
{
	return sync->token && nonce >> 32 == sync->token &&
	       (int32_t)((uint32_t)sync->last_us - (uint32_t)nonce) >= 0;
}

bool link_on_sync_ack(struct link_peer *peer, const struct careful_ctrl *ctrl)
{
	struct session *session = peer->session;
	struct link_sync *sync = &session->sync;
	const struct careful_counts *counts = &ctrl->counts;
	uint32_t sent = be32toh(counts->seq_sent);
	uint32_t rcvd = be32toh(counts->seq_rcvd);
	uint32_t asked_us = (uint32_t)be64toh(ctrl->nonce);
	struct link *link = peer->link;

	if (!link_has_epoch(peer) || be64toh(ctrl->cookie) != peer->cookie_in)
		return false;
	if (control_watch_on_answer(peer, ctrl)) {
		seal_heard(peer);
		return true;
	}
	if (peer->phase != LINK_OPEN || !is_question(sync, be64toh(ctrl->nonce)))
		return false;
	control_watch_heard(peer);
	time_round(peer, asked_us);
	if (!link_log_came(peer, rcvd)) {
		bad_counts(peer);
		return true;
	}
	if (!sync->asked || (int32_t)(asked_us - (uint32_t)sync->first_us) < 0)
		return true; /* an answer to an earlier question */
	sync->asked = false;
	session->doubted = false;
	session->heard_ns = link->now_ns;
	sync->refused_rounds = 0;
	sync->refused = false;
	link_state(peer, CAREFUL_PEER_UP);
	if (flow_agrees(&peer->flow, counts)) {
		sync->disagreed = 0;
		sync->blocked_ns = 0;
		wait_longer(peer, link->sync_ms); /* the peer has no reason to send */
		if (!take_credits(peer, counts))
			bad_counts(peer);
		return true;
	}
	if (link->repairs) {
		take_for_repair(peer, counts);
		return true;
	}
	if (is_undecided(peer, counts)) {
		sync->disagreed = 0;
		if (!sync->blocked_ns)
			sync->blocked_ns = link->now_ns;
		if (link->now_ns - sync->blocked_ns >= link->stall_ms * 1000000ull)
			link_close(peer, ETIMEDOUT);
		return true;
	}
	sync->blocked_ns = 0;
	if (sync->disagreed && (sent != sync->seq_sent || rcvd != sync->seq_rcvd))
		sync->disagreed = 0;
	/* Two answers in a short time may both have left before delayed frames arrived. */
	if (sync->disagreed && link->now_ns - sync->disagreed_ns < DISAGREE_RETRY_MS * 1000000ull)
		return true;
	sync->disagreed_ns = link->now_ns;
	sync->seq_sent = sent;
	sync->seq_rcvd = rcvd;
	if (++sync->disagreed < DISAGREE_TIMES)
		return true;
	if (flow_can_miss(&peer->flow, flow_missing(&peer->flow, counts)))
		link_lost(peer, flow_missing(&peer->flow, counts));
	else
		bad_counts(peer);
	return true;
}

bool link_on_gone(struct link_peer *peer, const struct careful_ctrl *ctrl)
{
	uint64_t nonce = be64toh(ctrl->nonce);

	if (!nonce || be64toh(ctrl->cookie) != peer->cookie_out ||
	    (!is_question(&peer->session->sync, nonce) &&
	     nonce != peer->session->control_watch.nonce))
		return false;
	if (link_drain_begun(&peer->session->bye))
		return true; /* the session ends with the drain */
	peer->cookie_out = 0; /* the peer does not know this cookie */
	link_break(peer);
	return true;
}

/* Handles ICMP that says that nobody listens at the peer. The peer may be restarting, so we ask it.
 * If several questions in a row meet only ICMP, the session ends. */
bool link_on_refused(struct link_peer *peer)
{
	peer->session->sync.refused = true;
	if (peer->phase == LINK_OPEN && !peer->session->sync.asked)
		ask(peer);
	return true;
}

/* Counts refused questions. Reports whether they end the session. */
static bool refused_tick(struct link_peer *peer)
{
	struct session *session = peer->session;
	struct link_sync *sync = &session->sync;
	uint64_t waited_ms = (peer->link->now_ns - session->asked_ns) / 1000000;

	if (!sync->refused || waited_ms < REFUSED_RETRY_MS)
		return false;
	sync->refused = false;
	if (sync->refused_ns == session->asked_ns)
		return false; /* a question counts once, however often it is refused */
	sync->refused_ns = session->asked_ns;
	if (++sync->refused_rounds >= REFUSED_TIMES) {
		link_close(peer, ECONNREFUSED);
		return true;
	}
	if (peer->phase == LINK_OPEN)
		ask(peer);
	return false;
}

/* Reports whether the peer owes us something: credits, use of its grant, a reply, a sign of life,
 * missing frames, or news of our last frame. */
bool link_awaits(const struct link_peer *peer)
{
	const struct session *session = peer->session;
	return flow_awaits(&peer->flow) || session->granted || peer->operations ||
	       !link_resolved(peer, peer->flow.seq_out) || reorder_missing(peer) ||
	       session->doubted || session->sync.refused || session->sync.refused_rounds;
}

/* Returns the silence after which a lost tail is suspected. A wrong suspicion costs one control
 * message and perhaps a second copy of a frame. */
static uint32_t suspect_ms(const struct link_peer *peer)
{
	const struct session *session = peer->session;
	uint64_t ms = (SUSPECT_ROUNDS * session->missing.round_ns + 999999) / 1000000;

	ms = ms ? ms : 1;
	return ms < peer->link->sync_ms ? (uint32_t)ms : peer->link->sync_ms;
}

/* Returns the longest time between two unanswered questions. */
static uint32_t unanswered_ms(const struct link_peer *peer)
{
	uint32_t ms = suspect_ms(peer), silent_ms = missing_silent_wait_us(peer) / 1000;

	return ms > silent_ms ? ms : silent_ms;
}

static void sync_tick(struct link_peer *peer)
{
	struct session *session = peer->session;
	struct link *link = peer->link;
	uint64_t wait_ms = session->sync.disagreed ? DISAGREE_RETRY_MS : session->sync.wait_ms;
	bool awaited = session->sync.awaited;
	uint64_t silent_ms;

	session->sync.awaited = link_awaits(peer);
	if (!session->sync.awaited) {
		session->sync.asked = false;
		session->sync.blocked_ns = 0;
	}
	/* While nothing was awaited, silence did not count. */
	if (!session->sync.awaited || !awaited) {
		session->heard_ns = link->now_ns;
		return;
	}
	silent_ms = (link->now_ns - session->heard_ns) / 1000000;
	if (silent_ms >= link->stall_ms && session->sync.asked) {
		link_close(peer, ETIMEDOUT);
		return;
	}
	/* After a question that was refused, refused_tick() asks. */
	if (silent_ms < wait_ms || (link->now_ns - session->asked_ns) / 1000000 < wait_ms ||
	    session->sync.refused)
		return;
	if (session->sync.asked && peer->state == CAREFUL_PEER_UP &&
	    silent_ms >= 2ull * link->sync_ms) {
		link_count(link, CAREFUL_C_STALLS);
		link_state(peer, CAREFUL_PEER_STALLED);
	}
	if (session->sync.asked) {
		link_recheck_address(peer, session->heard_ns);
		if (link->repairs)
			wait_longer(peer, unanswered_ms(peer));
	}
	ask(peer);
}

/* Handles a sign of life since the last tick. */
static void note_heard(struct link_peer *peer)
{
	struct session *session = peer->session;

	peer->heard = false;
	session->doubted = false;
	session->heard_ns = peer->link->now_ns;
	session->sync.blocked_ns = 0;
	session->sync.refused_rounds = 0;
	session->sync.refused = false;
	session->sync.disagreed = 0;
	session->sync.asked = false;
	if (peer->link->repairs)
		session->sync.wait_ms = suspect_ms(peer);
	link_state(peer, peer->phase == LINK_OPEN ? CAREFUL_PEER_UP : peer->state);
}

/* Asks a silent peer. Reports whether the session has ended. */
bool link_sync_tick(struct link_peer *peer)
{
	if (peer->heard)
		note_heard(peer);
	link_sync_question_tick(peer);
	if (refused_tick(peer))
		return true;
	if (peer->phase == LINK_OPEN) {
		control_watch_tick(peer);
		sync_tick(peer);
	}
	return false;
}
