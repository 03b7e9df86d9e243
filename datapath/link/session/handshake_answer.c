// SPDX-License-Identifier: BSD-2-Clause
/* Answers HELLOs (handshake.c): challenges and refuses strangers, and welcomes peers. */
#include "link/link_private.h"
#include "link/peer/peers.h"
#include "link/session/queue_choice.h"
#include "link/session/session.h"

#include <endian.h>
#include <errno.h>
#include <sodium/crypto_shorthash.h>
#include <string.h>

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

/* Reports whether a HELLO's token is the cookie of the epoch that we share with its sender, or,
 * while we are asking as well, of the last epoch. */
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
		.refuse.peers = htobe32(link->peers_max),
		.refuse.why = htobe32(why),
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
	handshake_describe(peer, &ctrl);
	link_ctrl_send(peer->link, &peer->session->address, &ctrl, CAREFUL_WELCOME);
}

/* Answers a valid HELLO once the old epoch has drained. */
void handshake_try_welcome(struct link_peer *peer)
{
	if (!epoch_drained(peer))
		return;
	handshake_begin(peer, CAREFUL_WELCOME);
	seal_wait(peer);
	epoch_opened(peer);
	welcome(peer);
}

/* Returns a slot for a host that asks for a session, or NULL. peer: its old slot, or NULL. Sets
 * *later if another peer was asked for its window: the host may find it free when it asks again. */
static struct link_peer *admit(struct link *link, struct link_peer *peer, const union address *from,
			       const uint8_t *key, bool *later)
{
	struct link_host host = { .address = *from, .key = key };

	*later = false;
	if (link->port->ops->resolve(link->port, from, &host.way))
		host.way.bytes = 0;
	if (!link_peer_welcome(link, &host) && !window_evict_silent(link, &host, false)) {
		*later = window_yield_ask(link, &host);
		return NULL;
	}
	if (!peer)
		peer = link_peer_get(link, from);
	if (peer)
		return peer;
	if (!window_evict_silent(link, &host, true)) {
		*later = window_yield_ask(link, NULL);
		if (*later || !window_evict(link, &host))
			return NULL;
	}
	return link_peer_get(link, from);
}

/* Handles a HELLO whose sender proved its address. peer: its session, or NULL. heard: its proof, if
 * there are keys. */
static void take_hello(struct link *link, struct link_peer *peer, const union address *from,
		       const struct careful_ctrl *hello, struct keyed_heard *heard)
{
	const struct keys_trusted *trusted = heard ? heard->trusted : NULL;
	bool later = false;

	if (be32toh(hello->terms.protocol) != handshake_flags(link)) {
		bool repair = (be32toh(hello->terms.protocol) ^ handshake_flags(link)) ==
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
		peer = admit(link, peer, from, trusted ? trusted->pair.theirs : NULL, &later);
	if (!peer) {
		if (!later)
			refuse_with(link, from, hello, CAREFUL_REFUSED_PEERS, trusted);
		return;
	}
	epoch_end(peer);
	if (handshake_adopt(peer, from, hello)) {
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
	handshake_try_welcome(peer);
}

/* Makes the asker prove its address. */
static void challenge(struct link *link, const union address *to, const struct careful_ctrl *hello,
		      uint64_t token, const struct keys_trusted *trusted)
{
	struct careful_ctrl ctrl = { .nonce = hello->nonce, .token = htobe64(token) };

	link_count(link, CAREFUL_C_CTRL_CHALLENGED);
	ctrl.opening.challenges = htobe32(++link->challenges);
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
		return; /* handshake_try_welcome() will answer */
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
