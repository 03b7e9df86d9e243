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
 * at A before B's CHALLENGE, not at B before A's second HELLO. */
#include "link/link_private.h"
#include "link/repair/repair.h"
#include "link/session/queue_choice.h"
#include "link/peer/peers.h"
#include "link/session/session.h"

#include <endian.h>
#include <errno.h>
#include <sodium/crypto_shorthash.h>
#include <string.h>

enum {
	RETRY_MS = 50, /* most between two HELLOs */
	RETRY_MS_MIN = 5, /* between the first two HELLOs; doubled each time */
	/* HELLOs in a row that got only unproved REFUSEs, until these are believed (half a second),
	 * or another key is tried. Attempts, not time: a stopped process makes none. */
	REFUSALS = 13,
	REFUSALS_OTHER = 5,
	/* Limits of the peer's bytes of a frame in a buffer. With larger buffers, frames would cost
	 * nothing. */
	BUFFER_BYTES_MIN = 256,
	BUFFER_BYTES_MAX = 1 << 16,
};

/* Returns a token that proves that its sender received our message at this address. It covers the
 * attempt, our epoch and the number of earlier epochs, so it opens at most one epoch. */
static uint64_t challenge_token(struct link *link, const union address *address, uint64_t nonce,
				const struct link_peer *peer)
{
	struct {
		uint64_t nonce, epoch;
		uint8_t host[16];
		uint16_t port;
		uint8_t pad[2];
		uint32_t epochs;
	} in = {
		.nonce = nonce,
		.epoch = peer ? peer->epoch : 0,
		.epochs = peer ? peer->session->epochs : rate_limit_sessions_ended(link, address),
	};
	uint64_t token;

	if (address->sa.sa_family == AF_INET) {
		memcpy(in.host, &address->in.sin_addr, 4);
		in.port = address->in.sin_port;
	} else {
		memcpy(in.host, &address->in6.sin6_addr, 16);
		in.port = address->in6.sin6_port;
	}
	_Static_assert(crypto_shorthash_BYTES == sizeof(token), "token size");
	_Static_assert(crypto_shorthash_KEYBYTES == sizeof(link->secret), "secret size");
	crypto_shorthash((uint8_t *)&token, (const uint8_t *)&in, sizeof(in), link->secret);
	return token | 1;
}

/* Returns the protocol flags of HELLO and WELCOME. */
static uint32_t protocol_flags(const struct link *link)
{
	return link_protocol(link) | (link->repairs ? CAREFUL_SAYS_REPAIRS : 0);
}

/* Writes our receive side into HELLO or WELCOME. */
static void describe(const struct link_peer *peer, struct careful_ctrl *ctrl)
{
	const struct link *link = peer->link;

	ctrl->cookie = htobe64(peer->cookie_in);
	ctrl->slot = htobe16(peer->slot);
	ctrl->queue = htobe16(link->queue->index);
	ctrl->window = htobe32(peer->flow.rx.size);
	ctrl->returned = htobe32(link->reserve.count);
	ctrl->hold_ms = htobe32(link_train_hold_ms(peer));
	ctrl->buffer_bytes = htobe32(link->queue->buffer_bytes);
	ctrl->frame_bytes = htobe32(peer->session->taken_bytes);
	ctrl->lost = htobe32((uint32_t)(peer->session->lost_here - peer->session->lost_before));
	ctrl->status = htobe32(protocol_flags(link));
	memcpy(ctrl->name, link->name, sizeof(ctrl->name));
	ctrl->minor = CAREFUL_WIRE_MINOR;
}

/* Notes whether the peer is a new process. */
static void note_incarnation(struct link_peer *peer, const struct careful_ctrl *ctrl)
{
	struct session *session = peer->session;
	if (session->incarnation == be64toh(ctrl->incarnation))
		return;
	session->incarnation = be64toh(ctrl->incarnation);
	session->lives++;
	session->lost_said = 0;
	session->lost_before = session->lost_here;
	peer->link->changed = true;
}

/* Takes the peer's count of lost frames. */
static void take_lost(struct link_peer *peer, const struct careful_ctrl *ctrl)
{
	struct session *session = peer->session;
	uint32_t lost = be32toh(ctrl->lost);

	session->lost_there += lost < session->lost_said ? lost : lost - session->lost_said;
	session->lost_said = lost;
}

/* Adopts the peer's receive side, which decides how we may send. -EPROTO if it is unusable. */
static int adopt(struct link_peer *peer, const union address *from, const struct careful_ctrl *ctrl)
{
	struct session *session = peer->session;
	uint32_t window = be32toh(ctrl->window);
	uint32_t reserve = be32toh(ctrl->returned);
	uint32_t buffer_bytes = be32toh(ctrl->buffer_bytes);
	uint32_t frame_bytes = be32toh(ctrl->frame_bytes);
	uint64_t limit;

	/* The peer may now use another of our addresses. */
	memcpy(session->address.ours, from->ours, sizeof(from->ours));
	if (window < WINDOW_MIN || window > 1u << 20 || !ctrl->cookie)
		return -EPROTO;
	if (buffer_bytes < BUFFER_BYTES_MIN || buffer_bytes > BUFFER_BYTES_MAX)
		return -EPROTO;
	limit = (uint64_t)window_cost_max(window) * buffer_bytes;
	if (frame_bytes > queue_frame_bytes(peer->link->queue))
		frame_bytes = queue_frame_bytes(peer->link->queue);
	if (frame_bytes > limit)
		frame_bytes = (uint32_t)limit;
	if (frame_bytes < DEVICE_FRAME_BYTES_MIN)
		return -EPROTO;
	reserve = reserve < RESERVE_MAX ? reserve : RESERVE_MAX;
	if (link_log_open(peer, window, reserve))
		return -EPROTO;
	peer->cookie_out = be64toh(ctrl->cookie);
	peer->slot_out = be16toh(ctrl->slot);
	peer->queue_out = be16toh(ctrl->queue);
	peer->buffer_bytes = buffer_bytes;
	peer->frame_bytes = session->frame_bytes = frame_bytes;
	memcpy(session->name, ctrl->name, sizeof(ctrl->name)); /* its last byte stays 0 */
	session->minor = ctrl->minor > CAREFUL_WIRE_MINOR ? CAREFUL_WIRE_MINOR : ctrl->minor;
	note_incarnation(peer, ctrl);
	take_lost(peer, ctrl);
	session->train.hold_ms = be32toh(ctrl->hold_ms);
	flow_grant(&peer->flow, window, reserve);
	return 0;
}

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
	ctrl.window = htobe32(session->handshake.among);
	if (peer->link->keyed) {
		keyed_ask(peer, &ctrl);
		return;
	}
	if (peer->phase == LINK_ASKED) {
		ctrl.token = htobe64(session->handshake.token);
		describe(peer, &ctrl);
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

/* Reports whether a HELLO's token is the cookie of the epoch that we share with its sender, or of
 * the last epoch while we are asking, too. */
static bool shares_epoch(const struct link_peer *peer, const struct careful_ctrl *hello)
{
	uint64_t token = be64toh(hello->token);

	if (!peer || !token)
		return false;
	if (link_has_epoch(peer))
		return token == peer->cookie_in;
	return (peer->phase == LINK_ASKING || peer->phase == LINK_ASKED) &&
	       token == peer->session->cookie_was;
}

/* trusted: the key that the asker proved, or NULL */
static void refuse_with(struct link *link, const union address *to,
			const struct careful_ctrl *hello, enum careful_refusal why,
			const struct keys_trusted *trusted)
{
	struct careful_ctrl ctrl = {
		.nonce = hello->nonce,
		.window = htobe32(link->peers_max),
		.status = htobe32(why),
	};

	link_count(link, CAREFUL_C_CTRL_REFUSED);
	if (trusted)
		keyed_say_static(link, to, trusted, &ctrl, CAREFUL_REFUSE);
	else
		link_ctrl_send(link, to, &ctrl, CAREFUL_REFUSE);
}

void handshake_refuse(struct link *link, const union address *to, const struct careful_ctrl *hello,
		      enum careful_refusal why)
{
	refuse_with(link, to, hello, why, NULL);
}

/* Refuses a host without a trusted key. The answer does not depend on our sessions. */
static void refuse_key(struct link *link, const union address *to, const struct careful_ctrl *hello)
{
	link_count(link, CAREFUL_C_CTRL_KEY);
	handshake_refuse(link, to, hello, CAREFUL_REFUSED_KEY);
}

static void welcome(struct link_peer *peer)
{
	struct careful_ctrl ctrl = { .nonce = htobe64(peer->session->handshake.nonce_in) };

	if (peer->link->keyed) {
		if (peer->session->keyed.message.type == CAREFUL_WELCOME) /* no HELLO since */
			keyed_send(peer);
		return;
	}
	describe(peer, &ctrl);
	link_ctrl_send(peer->link, &peer->session->address, &ctrl, CAREFUL_WELCOME);
}

/* Opens our window. With keys the cookie follows from the message that grants the window, so the
 * message is made now and repeated unchanged. */
static void begin(struct link_peer *peer, uint8_t type)
{
	struct careful_ctrl ctrl = { 0 };

	if (!peer->link->keyed) {
		epoch_begin(peer, link_random(peer->link));
		return;
	}
	epoch_begin(peer, keyed_begin(peer, type));
	describe(peer, &ctrl);
	seal_describe(peer, type, &ctrl);
	keyed_seal(peer, &ctrl);
}

/* Answers a valid HELLO once the old epoch has drained. */
static void try_welcome(struct link_peer *peer)
{
	if (!epoch_drained(peer))
		return;
	begin(peer, CAREFUL_WELCOME);
	seal_wait(peer);
	epoch_opened(peer);
	welcome(peer);
}

/* Returns a slot for a host that asks for a session, or NULL. peer: its old slot, or NULL */
static struct link_peer *admit(struct link *link, struct link_peer *peer, const union address *from,
			       const uint8_t *key)
{
	struct link_host host = { .address = *from, .key = key };

	if (link->port->ops->resolve(link->port, from, &host.way))
		host.way.bytes = 0;
	if (!link_peer_welcome(link, &host))
		return NULL;
	if (!peer)
		peer = link_peer_get(link, from);
	if (!peer && !window_yield_ask(link) && window_evict(link, &host))
		peer = link_peer_get(link, from);
	return peer;
}

/* Handles a HELLO whose sender proved its address. peer: its session, or NULL. heard: its proof, if
 * there are keys. */
static void take_hello(struct link *link, struct link_peer *peer, const union address *from,
		       const struct careful_ctrl *hello, struct keyed_heard *heard)
{
	const struct keys_trusted *trusted = heard ? heard->trusted : NULL;

	if (be32toh(hello->status) != protocol_flags(link)) {
		bool repair = (be32toh(hello->status) ^ protocol_flags(link)) ==
			      CAREFUL_SAYS_REPAIRS;

		link_count(link, CAREFUL_C_CTRL_PROTOCOL);
		refuse_with(link, from, hello,
			    repair ? CAREFUL_REFUSED_REPAIR : CAREFUL_REFUSED_PROTOCOL, trusted);
		if (peer) /* it would refuse our HELLO, too */
			link_close(peer, repair ? EILSEQ : EPROTOTYPE);
		return;
	}
	if (!seal_agrees(link, from, hello)) {
		refuse_with(link, from, hello, CAREFUL_REFUSED_SEAL, trusted);
		if (peer)
			link_close(peer, ENOPROTOOPT);
		return;
	}
	/* A free slot may belong to another host by now. */
	if (!peer || link_peer_free(peer))
		peer = admit(link, peer, from, trusted ? trusted->pair.theirs : NULL);
	if (!peer) { /* the host will ask again, and may then find a free window */
		if (!window_yield_ask(link))
			refuse_with(link, from, hello, CAREFUL_REFUSED_PEERS, trusted);
		return;
	}
	epoch_end(peer);
	if (adopt(peer, from, hello)) {
		refuse_with(link, from, hello, CAREFUL_REFUSED_FRAME, trusted);
		/* Neither end would ask again. */
		link_close(peer, peer->state == CAREFUL_PEER_NONE ? 0 : EMSGSIZE);
		return;
	}
	handshake_forget(&peer->session->handshake);
	peer->session->handshake.nonce_in = be64toh(hello->nonce);
	seal_choose(peer, hello);
	if (heard)
		keyed_adopt(peer, heard);
	peer->phase = LINK_DRAINING;
	link->draining = true;
	if (peer->state == CAREFUL_PEER_UP || peer->state == CAREFUL_PEER_STALLED)
		link_state(peer, CAREFUL_PEER_RENEWING);
	else if (peer->state != CAREFUL_PEER_RENEWING)
		link_state(peer, CAREFUL_PEER_CONNECTING);
	try_welcome(peer);
}

/* Makes the asker prove its address. */
static void challenge(struct link *link, const union address *to, const struct careful_ctrl *hello,
		      uint64_t token, const struct keys_trusted *trusted)
{
	struct careful_ctrl ctrl = { .nonce = hello->nonce, .token = htobe64(token) };

	link_count(link, CAREFUL_C_CTRL_CHALLENGED);
	ctrl.seq_sent = htobe32(++link->challenges);
	queue_choice_answer(link, to, hello, &ctrl);
	if (trusted)
		keyed_say_static(link, to, trusted, &ctrl, CAREFUL_CHALLENGE);
	else
		link_ctrl_send(link, to, &ctrl, CAREFUL_CHALLENGE);
}

void handshake_on_hello(struct link *link, const union address *from,
			const struct careful_ctrl *hello, const struct careful_keyed *keyed,
			const struct careful_proved *proved)
{
	struct link_peer *peer = link_peer_from(link, from, hello);
	uint64_t nonce = be64toh(hello->nonce);
	uint64_t token = challenge_token(link, from, nonce, peer);
	const struct keys_trusted *asker;
	struct keyed_heard heard;

	if (!nonce) { /* 0 means that no HELLO was sent */
		link_count(link, CAREFUL_C_CTRL_MALFORMED);
		return;
	}
	if (link->keyed && !keys_find(&link->keys, from, NULL)) {
		if (rate_limit_answer(link, from))
			refuse_key(link, from, hello);
		return;
	}
	if (peer && link_has_epoch(peer) && peer->session->handshake.nonce_in == nonce) {
		/* Our WELCOME was lost, or the HELLO without a token is late. */
		if (hello->token && rate_limit_handshake(link, from))
			welcome(peer);
		return;
	}
	if (peer && peer->phase == LINK_DRAINING && peer->session->handshake.nonce_in == nonce)
		return; /* try_welcome() will answer */
	if (be64toh(hello->token) != token && !shares_epoch(peer, hello)) {
		if (!rate_limit_answer(link, from))
			return;
		asker = link->keyed ? keyed_asker(link, from, keyed, proved) : NULL;
		if (link->keyed ? !asker : keyed || proved)
			refuse_key(link, from, hello);
		else
			challenge(link, from, hello, token, asker);
		return;
	}
	if (!rate_limit_handshake(link, from))
		return;
	/* If both ends ask at once, only the larger nonce is answered. */
	if (peer && (peer->phase == LINK_ASKING || peer->phase == LINK_ASKED) &&
	    peer->session->handshake.nonce > nonce)
		return;
	if (link->keyed != !!keyed || (keyed && !keyed_hear(link, from, keyed, &heard))) {
		refuse_key(link, from, hello);
		return;
	}
	take_hello(link, peer, from, keyed ? &heard.ctrl : hello, keyed ? &heard : NULL);
	if (keyed)
		keyed_drop(&heard);
}

/* Sends the HELLO that grants our window, once the old epoch has drained. */
static void try_hello(struct link_peer *peer)
{
	if (!epoch_drained(peer))
		return;
	begin(peer, CAREFUL_HELLO);
	peer->phase = LINK_ASKED;
	send_hello(peer);
}

/* Reports whether a newer CHALLENGE of the same process arrived first. */
static bool is_overtaken(const struct session *session, const struct careful_ctrl *ctrl)
{
	uint32_t last = session->handshake.challenge;

	return last && session->incarnation == be64toh(ctrl->incarnation) &&
	       (int32_t)(be32toh(ctrl->seq_sent) - last) < 0;
}

bool handshake_on_challenge(struct link_peer *peer, const struct careful_ctrl *ctrl)
{
	struct session *session = peer->session;

	if ((peer->phase != LINK_ASKING && peer->phase != LINK_ASKED) ||
	    !handshake_answers(&session->handshake, ctrl))
		return false;
	if (is_overtaken(session, ctrl))
		return true;
	session->handshake.challenge = be32toh(ctrl->seq_sent);
	session->sync.refused = false;
	session->sync.refused_rounds = 0;
	session->handshake.refusals = 0;
	if (session->handshake.token == be64toh(ctrl->token))
		return true; /* the answer to a HELLO that we repeated */
	/* The token has changed, so the peer has ended an epoch since, perhaps with the window that
	 * we opened. */
	if (peer->phase == LINK_ASKED) {
		epoch_end(peer);
		handshake_ask(peer);
		return true;
	}
	if (queue_choice_redirects(peer, ctrl))
		return true;
	/* before the peer's frames, which may overtake its WELCOME */
	note_incarnation(peer, ctrl);
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
	if (be32toh(ctrl->status) != protocol_flags(peer->link) ||
	    !seal_agrees(peer->link, &peer->session->address, ctrl) || adopt(peer, from, ctrl)) {
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
	uint32_t why = be32toh(ctrl->status);

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
		try_welcome(peer);
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
	link_unheard(peer, session->since_ns);
	handshake->retry_ms *= 2;
	if (handshake->retry_ms > RETRY_MS)
		handshake->retry_ms = RETRY_MS;
	send_hello(peer);
}
