// SPDX-License-Identifier: BSD-2-Clause
/* Dispatches control messages and clock ticks. */
#include "link/link_private.h"
#include "link/repair/repair.h"
#include "link/session/queue_choice.h"
#include "link/peer/peers.h"
#include "link/session/session.h"

#include <endian.h>

enum {
	CONTROL_BATCH = 32, /* control messages handled at a time */
	CONTROL_CROWDED = 16, /* the same, while the socket is crowded */
};

static bool on_bye(struct link_peer *peer, const struct careful_ctrl *ctrl)
{
	if (!peer->cookie_in || be64toh(ctrl->cookie) != peer->cookie_in)
		return false;
	/* BYE overtakes frames: earlier ones may still be in the RX ring. */
	if (!link_drain_begun(&peer->session->bye))
		peer->session->bye = link_drain_begin(peer->link);
	return true;
}

static bool on_missing(struct link_peer *peer, const struct careful_ctrl *ctrl)
{
	if (!peer->repair.log || !link_has_epoch(peer) || be64toh(ctrl->cookie) != peer->cookie_in)
		return false;
	if (!link_log_on_missing(peer, ctrl)) {
		link_count(peer->link, CAREFUL_C_BAD_CREDITS);
		link_break(peer);
	}
	return true;
}

/* Reports whether a SYNC is about an epoch that has just ended here. Our HELLO begins the next. */
static bool is_renewed(const struct link_peer *peer, const struct careful_ctrl *sync)
{
	return peer->phase != LINK_IDLE && !link_has_epoch(peer) &&
	       be64toh(sync->cookie) == peer->session->cookie_was;
}

/* Answers a SYNC of a session that does not exist here. The answer repeats the session's cookie, so
 * a forged SYNC cannot end another session. */
static void send_gone(struct link *link, const union address *to, const struct careful_ctrl *sync)
{
	struct careful_ctrl gone = { .nonce = sync->nonce, .cookie = sync->cookie };

	if (!rate_limit_answer(link, to))
		return;
	if (link->keyed)
		keyed_say_gone(link, to, &gone);
	else
		link_ctrl_send(link, to, &gone, CAREFUL_GONE);
}

/* Reports whether a message of this type is ignored without a proof. */
static bool needs_proof(const struct link *link, uint8_t type)
{
	return link->keyed &&
	       (type == CAREFUL_CHALLENGE || type == CAREFUL_SYNC || type == CAREFUL_SYNC_ACK ||
		type == CAREFUL_MISSING || type == CAREFUL_GONE || type == CAREFUL_BYE ||
		(type >= CAREFUL_TRAIN_ASK && type <= CAREFUL_TRAIN_OVER));
}

/* Calls the handler of a message. keyed, proved: the whole message, by its kind; else NULL. */
static void dispatch(struct link *link, const union address *from, const struct careful_ctrl *ctrl,
		     const struct careful_keyed *keyed, const struct careful_proved *proved)
{
	struct link_peer *peer = link_peer_from(link, from, ctrl);
	bool proves = !link->keyed, expected = false;

	if (ctrl->type == CAREFUL_HELLO) {
		if (peer && link_drain_begun(&peer->session->bye)) /* the peer is back already */
			link_bye(peer);
		handshake_on_hello(link, from, ctrl, keyed, proved);
		return;
	}
	if (ctrl->type == CAREFUL_SYNC &&
	    (!peer || !peer->cookie_in || be64toh(ctrl->cookie) != peer->cookie_in)) {
		if (peer && is_renewed(peer, ctrl))
			return;
		link_count(link, CAREFUL_C_CTRL_UNKNOWN);
		if (!link->keyed || proved) /* with a proof, GONE is long: so must be the message */
			send_gone(link, from, ctrl);
		return;
	}
	if (!peer && (ctrl->type == CAREFUL_CHALLENGE || ctrl->type == CAREFUL_REFUSE))
		handshake_elsewhere(link, from, ctrl);
	if (link->keyed && proved)
		proves = keyed_proves(link, from, peer, proved);
	if (needs_proof(link, ctrl->type) && !proves) {
		link_count(link, CAREFUL_C_CTRL_FORGED);
		return;
	}
	switch (peer ? ctrl->type : 0) {
	case CAREFUL_CHALLENGE:
		expected = handshake_on_challenge(peer, ctrl);
		break;
	case CAREFUL_WELCOME:
		expected = handshake_on_welcome(peer, from, ctrl, keyed);
		break;
	case CAREFUL_REFUSE:
		expected = handshake_on_refuse(peer, ctrl, proves);
		break;
	case CAREFUL_SYNC:
		seal_heard(peer);
		expected = (be32toh(ctrl->counts.question) == CAREFUL_SYNC_YIELD &&
			    window_yield(peer, ctrl)) ||
			   link_on_sync(peer, ctrl);
		break;
	case CAREFUL_SYNC_ACK:
		expected = link_on_sync_ack(peer, ctrl);
		break;
	case CAREFUL_MISSING:
		expected = on_missing(peer, ctrl);
		break;
	case CAREFUL_GONE:
		expected = link_on_gone(peer, ctrl);
		break;
	case CAREFUL_BYE:
		expected = on_bye(peer, ctrl);
		break;
	case CAREFUL_TRAIN_ASK:
		expected = link_on_train_ask(peer, ctrl);
		break;
	case CAREFUL_TRAIN_SENT:
		expected = link_on_train_sent(peer, ctrl);
		break;
	case CAREFUL_TRAIN_OVER:
		expected = link_on_train_over(peer, ctrl);
		break;
	default:
		break;
	}
	if (!expected)
		link_count(link, CAREFUL_C_CTRL_UNKNOWN);
}

/* Handles a message of another version: answers a HELLO with our version, and believes a REFUSE
 * that names the peer's. */
static void other_version(struct link *link, const union address *from,
			  const struct careful_ctrl *ctrl)
{
	struct link_peer *peer = link_peer_from(link, from, ctrl);

	link_count(link, CAREFUL_C_CTRL_VERSION);
	if (ctrl->type == CAREFUL_HELLO && rate_limit_answer(link, from))
		handshake_refuse(link, from, ctrl, CAREFUL_REFUSED_VERSION);
	else if (ctrl->type == CAREFUL_REFUSE && peer)
		handshake_on_refuse(peer, ctrl, !link->keyed);
}

static void on_keyed(struct link *link, const union address *from,
		     const struct careful_keyed *keyed)
{
	struct careful_ctrl head = { .type = keyed->type,
				     .nonce = keyed->nonce,
				     .token = keyed->token };

	if (be32toh(keyed->check) != careful_message_check(keyed, sizeof(*keyed)))
		link_count(link, CAREFUL_C_CTRL_MALFORMED);
	else
		dispatch(link, from, &head, keyed, NULL);
}

static void on_control(struct link *link, const union address *from,
		       const union link_message *message, size_t got)
{
	const struct careful_ctrl *ctrl = &message->ctrl;
	bool keyed = got == sizeof(message->keyed) &&
		     (ctrl->type == CAREFUL_HELLO || ctrl->type == CAREFUL_WELCOME);
	bool proved = got == sizeof(message->proved) && ctrl->type != CAREFUL_WELCOME;

	/* A HELLO of another version may be longer; the answer never exceeds the HELLO. */
	if (got < sizeof(*ctrl) || !(ctrl->type & CAREFUL_CTRL_BIT))
		link_count(link, CAREFUL_C_CTRL_MALFORMED);
	else if (ctrl->version != CAREFUL_WIRE_VERSION)
		other_version(link, from, ctrl);
	else if (!keyed && !proved && got != sizeof(*ctrl))
		link_count(link, CAREFUL_C_CTRL_MALFORMED);
	else if (keyed)
		on_keyed(link, from, &message->keyed);
	else if (be32toh(ctrl->check) != careful_ctrl_check(ctrl))
		link_count(link, CAREFUL_C_CTRL_MALFORMED);
	else
		dispatch(link, from, ctrl, NULL, proved ? &message->proved : NULL);
}

static void on_message(struct link *link, const union address *from,
		       const union link_message *message, size_t got, const struct arrival *arrival)
{
	bool expected;

	if (message->hdr.type == CAREFUL_PING && got >= sizeof(message->hdr)) {
		expected = link_on_ping(link, &message->hdr);
	} else if (message->answer.type == CAREFUL_PING_ANSWER && got == sizeof(message->answer)) {
		expected = link_on_ping_answer(link, from, &message->answer, arrival);
	} else {
		on_control(link, from, message, got);
		return;
	}
	if (!expected)
		link_count(link, CAREFUL_C_CTRL_UNKNOWN);
}

/* Reports whether ICMP quotes a message that we sent to the peer. The quote must have the cookie of
 * this epoch, or the nonce of our unanswered HELLO, which only hosts on the path know. */
bool link_quotes(const struct link_peer *peer, const union link_message *quoted)
{
	uint64_t cookie = be64toh(quoted->hdr.cookie);

	if (quoted->ctrl.type == CAREFUL_HELLO)
		return handshake_answers(&peer->session->handshake, &quoted->ctrl);
	if (quoted->ctrl.type & CAREFUL_CTRL_BIT)
		cookie = be64toh(quoted->ctrl.cookie);
	return cookie && cookie == peer->cookie_out;
}

/* Handles an ICMP error about a message to `at`: nobody listens there, or it was too large. */
static void on_icmp(struct link *link, const union address *at, const union link_message *quoted,
		    bool (*handle)(struct link_peer *))
{
	bool expected = false;

	for (uint32_t i = 0; i < link->peers_max && !expected; i++)
		expected = link_peer_at(&link->peers[i], at) &&
			   link_quotes(&link->peers[i], quoted) && handle(&link->peers[i]);
	if (!expected)
		link_count(link, CAREFUL_C_CTRL_UNKNOWN);
}

/* Reads a bounded number of control messages, so that a flood does not delay frames. A crowded
 * socket does not wake a program that waits for frames. */
void link_control(struct link *link)
{
	struct port *port = link->port;
	int messages_max = link->crowded ? CONTROL_CROWDED : CONTROL_BATCH;

	link->crowded = false;
	for (int i = 0; i < messages_max; i++) {
		union link_message message = { 0 };
		struct arrival arrival = { 0 };
		union address from = { 0 };
		ssize_t got =
			port->ops->ctrl_recv(port, &from, &message, sizeof(message), &arrival);

		if (got == -ECONNREFUSED) {
			on_icmp(link, &from, &message, link_on_refused);
			continue;
		}
		if (got == -EMSGSIZE) {
			on_icmp(link, &from, &message, link_path_told);
			continue;
		}
		if (got == -EHOSTUNREACH) {
			link_on_ping_icmp(link, &from, &message, &arrival);
			continue;
		}
		if (got < 0)
			return;
		on_message(link, &from, &message, (size_t)got, &arrival);
	}
	link->crowded = true;
}

/* Reads control messages between two ticks. */
void link_attend(struct link *link)
{
	link_control(link);
	for (uint32_t i = 0; i < link->peers_max; i++) {
		if (link->draining)
			link_sync_question_tick(&link->peers[i]);
		missing_ask(&link->peers[i]);
	}
}

/* Continues what waited for the RX ring to drain. */
void link_drained(struct link *link)
{
	link->draining = false;
	for (uint32_t i = 0; i < link->peers_max; i++) {
		struct link_peer *peer = &link->peers[i];

		link->draining |= link_sync_answer(peer);
		missing_drained(peer);
		missing_ask(peer);
		if (!handshake_waits(peer))
			continue;
		if (peer->kept_old)
			link_copy_out_old(peer);
		handshake_drained(peer);
		if (handshake_waits(peer) && !peer->kept_old)
			link->draining = true;
	}
}

/* Returns the time until link needs a tick or a poll, at most most_ms. */
uint32_t link_timeout_ms(const struct link *link, uint32_t most_ms)
{
	if (link->kick_again || link->draining || link->crowded || link->following || link->again ||
	    link->tx_held)
		return 1;
	for (uint32_t i = 0; i < link->peers_max; i++) {
		const struct link_peer *peer = &link->peers[i];
		uint32_t ms = most_ms;

		if (peer->phase == LINK_ASKING || peer->phase == LINK_ASKED)
			ms = peer->session->handshake.retry_ms;
		else if (peer->phase == LINK_HELD || peer->session->path.probing ||
			 (link->repairs && reorder_missing(peer)))
			ms = 1;
		else if (peer->phase == LINK_OPEN && link_awaits(peer))
			ms = peer->session->sync.wait_ms;
		if (ms < most_ms)
			most_ms = ms;
		if (link->traditional && peer->phase == LINK_OPEN)
			most_ms = link->traditional->ops->timeout_ms(peer, most_ms);
	}
	return most_ms;
}

/* Holds data back until the path is probed, and then until trains are over. */
static void held_tick(struct link_peer *peer)
{
	switch (link_path_tick(peer)) {
	case LINK_PATH_PROBES:
		peer->session->train.begun_ns = peer->link->now_ns; /* trains begin later */
		return;
	case LINK_PATH_RENEWS:
		link_renew(peer);
		return;
	case LINK_PATH_KNOWN:
		break;
	}
	if (!link_train_opens(peer))
		train_out_tick(peer);
}

/* Does all that depends on time, about once a millisecond. */
void link_tick(struct link *link)
{
	link_stamps_tick(link);
	queue_choice_tick(link);
	link->attentive = false;
	link->mending -= link->mending > 0;
	for (uint32_t i = 0; i < link->peers_max; i++) {
		struct link_peer *peer = &link->peers[i];

		if (reservation_tick(peer))
			link_break(peer);
		else if (!peer->cookie_in && peer->session->granted && epoch_quiet(peer))
			reservation_return(peer);
		if (peer->state == CAREFUL_PEER_NONE && peer->phase == LINK_IDLE)
			continue;
		link_ping_tick(peer);
		if (missing_tick(peer)) {
			link_lost(peer, reorder_missing(peer));
			continue;
		}
		if (link->traditional && link->traditional->ops->tick(peer))
			continue;
		if (link_sync_tick(peer))
			continue;
		session_tick(peer);
		if (peer->phase == LINK_HELD)
			held_tick(peer);
		else if (peer->phase == LINK_OPEN && peer->session->path.probing)
			link_path_tick(peer);
		if (!peer->session->path.probing && link_train_tick(peer))
			link_renew(peer);
		link->attentive |= link->repairs && peer->phase == LINK_OPEN;
	}
}
