// SPDX-License-Identifier: BSD-2-Clause
/* See keyed.h. The cheapest check comes first: the address, the token (handshake_answer.c), the mac,
 * and only then a multiplication. */
#include "link/link_private.h"
#include "link/peer/peers.h"

#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <sodium.h>
#include <string.h>

/* Begins the Noise state, which covers the attempt (nonce) and the epoch (token). */
static void begin(struct noise *noise, const struct noise_pair *pair, bool initiator,
		  const struct careful_keyed *message, __be64 token)
{
	struct {
		uint8_t name[7], version;
		__be64 nonce, token;
	} prologue = {
		{ 'c', 'a', 'r', 'e', 'f', 'u', 'l' }, CAREFUL_WIRE_VERSION, message->nonce, token
	};

	noise_begin(noise, pair, initiator, &prologue, sizeof(prologue));
}

static uint64_t cookie_of(const struct noise *noise)
{
	uint8_t out[NOISE_KEY_BYTES];
	uint64_t cookie;

	noise_export(noise, "careful cookie", out);
	memcpy(&cookie, out, sizeof(cookie));
	return cookie ? cookie : 1; /* 0 means none */
}

static void mac_of(const uint8_t *key, const struct careful_keyed *message, uint8_t *mac)
{
	struct careful_keyed in = *message;
	uint8_t out[crypto_auth_hmacsha256_BYTES];

	in.check = 0;
	memset(in.mac, 0, sizeof(in.mac));
	crypto_auth_hmacsha256(out, (const uint8_t *)&in, sizeof(in), key);
	memcpy(mac, out, CAREFUL_TAG_BYTES);
}

static bool mac_valid(const uint8_t *key, const struct careful_keyed *message)
{
	uint8_t mac[CAREFUL_TAG_BYTES];

	mac_of(key, message, mac);
	return !sodium_memcmp(mac, message->mac, sizeof(mac));
}

/* Reads a message into ctrl. Returns false if it is forged. */
static bool open_sealed(struct noise *noise, const struct careful_keyed *message,
			struct careful_ctrl *ctrl)
{
	*ctrl = (struct careful_ctrl){ .version = message->version,
				       .type = message->type,
				       .nonce = message->nonce,
				       .token = message->token };
	if (noise_read(noise, message->ephemeral))
		return false;
	ctrl->cookie = htobe64(cookie_of(noise));
	return !noise_open(noise, message->sealed, sizeof(message->sealed), &ctrl->incarnation);
}

/* Derives the keys of this epoch's messages: one for each end. */
static void begin_messages(struct keyed *keyed, const struct noise *noise)
{
	noise_export(noise, "careful messages of HELLO",
		     noise->initiator ? keyed->say_key : keyed->hear_key);
	noise_export(noise, "careful messages of WELCOME",
		     noise->initiator ? keyed->hear_key : keyed->say_key);
	keyed->said = 0;
	keyed->heard = (struct aead_seen){ 0 };
	keyed->proves = true;
}

/* sender: the sender's public key if both ends share the mac key, else NULL. */
static void proof_of(const uint8_t *key, const uint8_t *sender,
		     const struct careful_proved *message, uint8_t *mac)
{
	uint8_t out[crypto_auth_hmacsha256_BYTES];
	crypto_auth_hmacsha256_state state;

	crypto_auth_hmacsha256_init(&state, key, NOISE_KEY_BYTES);
	crypto_auth_hmacsha256_update(&state, (const uint8_t *)message,
				      offsetof(struct careful_proved, mac));
	if (sender)
		crypto_auth_hmacsha256_update(&state, sender, NOISE_KEY_BYTES);
	crypto_auth_hmacsha256_final(&state, out);
	memcpy(mac, out, CAREFUL_TAG_BYTES);
}

static bool proof_valid(const uint8_t *key, const uint8_t *sender,
			const struct careful_proved *message)
{
	uint8_t mac[CAREFUL_TAG_BYTES];

	proof_of(key, sender, message, mac);
	return !sodium_memcmp(mac, message->mac, sizeof(mac));
}

static bool say(struct link *link, const union address *to, const uint8_t *key,
		const uint8_t *sender, uint64_t count, struct careful_ctrl *ctrl, uint8_t type)
{
	struct careful_proved message = { .count = htobe64(count) };

	ctrl->version = CAREFUL_WIRE_VERSION;
	ctrl->type = type;
	ctrl->bytes = htobe16(sizeof(message));
	ctrl->incarnation = htobe64(link->incarnation);
	ctrl->check = 0;
	ctrl->check = htobe32(careful_ctrl_check(ctrl));
	message.ctrl = *ctrl;
	proof_of(key, sender, &message, message.mac);
	return link->port->ops->ctrl_send(link->port, to, &message, sizeof(message)) == 0;
}

/* Sends a message proved by the epoch's key. */
static bool say_in_epoch(struct link_peer *peer, struct careful_ctrl *ctrl, uint8_t type)
{
	struct keyed *keyed = &peer->session->keyed;

	return keyed->proves && say(peer->link, &peer->session->address, keyed->say_key, NULL,
				    ++keyed->said, ctrl, type);
}

void keyed_say_static(struct link *link, const union address *to,
		      const struct keys_trusted *trusted, struct careful_ctrl *ctrl, uint8_t type)
{
	say(link, to, trusted->mac_key, trusted->pair.ours, 0, ctrl, type);
}

void keyed_say_gone(struct link *link, const union address *to, struct careful_ctrl *ctrl)
{
	const struct keys_trusted *trusted = NULL;

	while ((trusted = keys_find(&link->keys, to, trusted)))
		keyed_say_static(link, to, trusted, ctrl, CAREFUL_GONE);
}

/* Returns the key that proves a message without an epoch (count 0), or NULL. */
static const struct keys_trusted *key_of_proved(const struct link *link, const union address *from,
						const struct careful_proved *message)
{
	const struct keys_trusted *trusted = NULL;

	while (!message->count && (trusted = keys_find(&link->keys, from, trusted)))
		if (proof_valid(trusted->mac_key, trusted->pair.theirs, message))
			return trusted;
	return NULL;
}

bool keyed_proves(struct link *link, const union address *from, struct link_peer *peer,
		  const struct careful_proved *message)
{
	struct keyed *keyed = peer ? &peer->session->keyed : NULL;
	uint64_t count = be64toh(message->count);
	uint8_t type = message->ctrl.type;

	if (type == CAREFUL_CHALLENGE || type == CAREFUL_GONE || type == CAREFUL_REFUSE)
		return key_of_proved(link, from, message);
	if (!keyed || !keyed->proves || !aead_is_new(&keyed->heard, count) ||
	    !proof_valid(keyed->hear_key, NULL, message))
		return false;
	aead_mark_seen(&keyed->heard, count);
	return true;
}

static const struct keys_trusted *key_of_keyed(const struct link *link, const union address *from,
					       const struct careful_keyed *message)
{
	const struct keys_trusted *trusted = NULL;

	while ((trusted = keys_find(&link->keys, from, trusted)))
		if (mac_valid(trusted->mac_key, message))
			return trusted;
	return NULL;
}

const struct keys_trusted *keyed_asker(const struct link *link, const union address *from,
				       const struct careful_keyed *keyed,
				       const struct careful_proved *proved)
{
	return keyed  ? key_of_keyed(link, from, keyed) :
	       proved ? key_of_proved(link, from, proved) :
			NULL;
}

static uint64_t answer_proof(const uint8_t *key, __be32 frag_off,
			     const struct careful_ping_answer *answer)
{
	struct {
		struct careful_ping_answer answer;
		__be32 frag_off;
	} in = { *answer, frag_off };
	uint8_t out[crypto_auth_hmacsha256_BYTES];
	uint64_t proof;

	in.answer.check = 0;
	in.answer.cookie = 0;
	crypto_auth_hmacsha256(out, (const uint8_t *)&in, sizeof(in.answer) + sizeof(in.frag_off),
			       key);
	memcpy(&proof, out, sizeof(proof));
	return proof;
}

void keyed_prove_answer(const struct link_peer *peer, __be32 frag_off,
			struct careful_ping_answer *answer)
{
	answer->cookie = answer_proof(peer->session->keyed.say_key, frag_off, answer);
}

bool keyed_answer_proves(const struct link_peer *peer, __be32 frag_off,
			 const struct careful_ping_answer *answer)
{
	const struct keyed *keyed = &peer->session->keyed;
	uint64_t proof = answer_proof(keyed->hear_key, frag_off, answer);

	return keyed->proves && !sodium_memcmp(&proof, &answer->cookie, sizeof(proof));
}

void keyed_over(struct link_peer *peer)
{
	struct keyed *keyed = &peer->session->keyed;

	keyed->proves = false;
	sodium_memzero(keyed->say_key, sizeof(keyed->say_key));
	sodium_memzero(keyed->hear_key, sizeof(keyed->hear_key));
}

bool keyed_hear(struct link *link, const union address *from, const struct careful_keyed *hello,
		struct keyed_heard *heard)
{
	heard->trusted = key_of_keyed(link, from, hello);
	if (!heard->trusted)
		return false;
	begin(&heard->noise, &heard->trusted->pair, false, hello, hello->token);
	if (open_sealed(&heard->noise, hello, &heard->ctrl))
		return true;
	keyed_drop(heard);
	return false;
}

void keyed_drop(struct keyed_heard *heard)
{
	sodium_memzero(heard, sizeof(*heard));
}

void keyed_adopt(struct link_peer *peer, struct keyed_heard *heard)
{
	struct keyed *keyed = &peer->session->keyed;

	keyed->noise = heard->noise;
	noise_forget(&heard->noise);
	memcpy(keyed->mac_key, heard->trusted->mac_key, sizeof(keyed->mac_key));
	memcpy(keyed->theirs, heard->trusted->pair.theirs, sizeof(keyed->theirs));
	keyed->tries = 0;
}

static const struct keys_trusted *choose(const struct link_peer *peer)
{
	const struct keys *keys = &peer->link->keys;
	const union address *address = &peer->session->address;
	const struct keys_trusted *trusted = keys_find(keys, address, NULL);

	for (uint32_t i = 0; trusted && i < peer->session->keyed.turn; i++)
		trusted = keys_find(keys, address, trusted);
	return trusted ? trusted : keys_find(keys, address, NULL);
}

void keyed_ask(struct link_peer *peer, struct careful_ctrl *ctrl)
{
	const struct keys_trusted *trusted = choose(peer);

	assert(trusted); /* handshake_ask() and link_keys_changed() checked it */
	keyed_say_static(peer->link, &peer->session->address, trusted, ctrl, CAREFUL_HELLO);
}

uint64_t keyed_begin(struct link_peer *peer, uint8_t type)
{
	struct session *session = peer->session;
	struct port *port = peer->link->port;
	struct keyed *keyed = &session->keyed;
	bool hello = type == CAREFUL_HELLO;
	uint8_t private[NOISE_KEY_BYTES];
	int rc;

	keyed->message = (struct careful_keyed){
		.version = CAREFUL_WIRE_VERSION,
		.type = type,
		.bytes = htobe16(sizeof(keyed->message)),
		.nonce = htobe64(hello ? session->handshake.nonce : session->handshake.nonce_in),
		.token = htobe64(hello ? session->handshake.token : 0),
	};
	if (hello) {
		const struct keys_trusted *trusted = choose(peer);

		assert(trusted); /* handshake_ask() checked it */
		memcpy(keyed->mac_key, trusted->mac_key, sizeof(keyed->mac_key));
		memcpy(keyed->theirs, trusted->pair.theirs, sizeof(keyed->theirs));
		begin(&keyed->noise, &trusted->pair, true, &keyed->message, keyed->message.token);
	}
	port->ops->random(port, private, sizeof(private));
	rc = noise_write(&keyed->noise, private, keyed->message.ephemeral);
	assert(!rc); /* the other end's keys are valid: they were multiplied before */
	sodium_memzero(private, sizeof(private));
	return cookie_of(&keyed->noise);
}

void keyed_seal(struct link_peer *peer, const struct careful_ctrl *ctrl)
{
	struct keyed *keyed = &peer->session->keyed;
	struct careful_keyed *message = &keyed->message;
	struct careful_ctrl whole = *ctrl;

	whole.incarnation = htobe64(peer->link->incarnation);
	noise_seal(&keyed->noise, &whole.incarnation, CAREFUL_SEALED_BYTES, message->sealed);
	mac_of(keyed->mac_key, message, message->mac);
	message->check = htobe32(careful_message_check(message, sizeof(*message)));
	if (message->type == CAREFUL_WELCOME) {
		seal_keys(peer, &keyed->noise);
		begin_messages(keyed, &keyed->noise);
		noise_forget(&keyed->noise);
	}
}

void keyed_send(struct link_peer *peer)
{
	const struct careful_keyed *message = &peer->session->keyed.message;
	struct port *port = peer->link->port;

	port->ops->ctrl_send(port, &peer->session->address, message, sizeof(*message));
}

bool keyed_welcomed(struct link_peer *peer, const struct careful_keyed *welcome,
		    struct careful_ctrl *ctrl)
{
	struct keyed *keyed = &peer->session->keyed;
	struct noise noise;
	bool good;

	if (!mac_valid(keyed->mac_key, welcome))
		return false;
	noise = keyed->noise; /* a forged message must not change keyed->noise */
	good = open_sealed(&noise, welcome, ctrl);
	if (good) {
		keyed->tries = 0;
		seal_choose(peer, ctrl);
		seal_keys(peer, &noise);
		begin_messages(keyed, &noise);
		noise_forget(&keyed->noise);
	}
	noise_forget(&noise);
	return good;
}

bool keyed_next_key(struct link_peer *peer)
{
	struct keyed *keyed = &peer->session->keyed;
	const struct keys_trusted *trusted = NULL;
	uint32_t count = 0;

	while ((trusted = keys_find(&peer->link->keys, &peer->session->address, trusted)))
		count++;
	if (keyed->tries + 1 >= count)
		return false;
	keyed->tries++;
	keyed->turn = (keyed->turn + 1) % count;
	return true;
}

bool keyed_trusted_still(const struct link_peer *peer, bool *other)
{
	const uint8_t *theirs = peer->session->keyed.theirs;
	const struct keys_trusted *trusted = NULL;

	*other = false;
	while ((trusted = keys_find(&peer->link->keys, &peer->session->address, trusted))) {
		*other = true;
		if (peer->phase == LINK_ASKING || /* the key is not chosen yet */
		    !sodium_memcmp(trusted->pair.theirs, theirs, NOISE_KEY_BYTES))
			return true;
	}
	return false;
}

void keyed_forget(struct keyed *keyed)
{
	sodium_memzero(keyed, sizeof(*keyed));
}

/* Sends a message of the session, which its cookie names; with keys the message is proved. */
bool link_say(struct link_peer *peer, struct careful_ctrl *ctrl, uint8_t type)
{
	ctrl->cookie = htobe64(peer->cookie_out);
	if (peer->link->keyed)
		return say_in_epoch(peer, ctrl, type);
	return link_ctrl_send(peer->link, &peer->session->address, ctrl, type);
}
