/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Proves to each end of a handshake who the other is (wire.h, struct careful_keyed), and derives
 * the cookies of their frames. When what is said is handshake.c's.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <careful/wire.h>

#include "device/device.h"
#include "secure/aead.h"
#include "secure/keys.h"
#include "secure/noise.h"

struct link;
struct link_peer;

/*
 * A peer's.
 *
 * @noise:   of the handshake under way, from our first message on or the peer's
 * @mac_key: between us two
 * @message: our HELLO or WELCOME
 * @turn:    which of the keys that are trusted at the address is asked for
 * @tries:   keys that were refused since a session was asked for
 * @theirs:  the key that the peer proved last, or is to prove next
 * @proves:  the keys of this epoch's messages are here: @say_key of ours, @hear_key of the peer's;
 * @said:    ours so far, @heard: the peer's, by their count
 */
struct keyed {
	struct noise noise;
	uint8_t mac_key[NOISE_KEY_BYTES];
	struct careful_keyed message;
	uint32_t turn;
	uint32_t tries;
	uint8_t theirs[NOISE_KEY_BYTES];
	bool proves;
	uint8_t say_key[NOISE_KEY_BYTES];
	uint8_t hear_key[NOISE_KEY_BYTES];
	uint64_t said;
	struct aead_seen heard;
};

/* A HELLO whose sender has a key that is trusted at its address. */
struct keyed_heard {
	struct noise noise;
	const struct keys_trusted *trusted;
	struct careful_ctrl ctrl; /* what it says; with the cookie that our frames have */
};

/* false: no key was proved. Changes nothing. */
bool keyed_hear(struct link *link, const union address *from, const struct careful_keyed *hello,
		struct keyed_heard *heard);
/* Nothing comes of what was heard: it is wiped. */
void keyed_drop(struct keyed_heard *heard);
/* Assigns the proof to this peer, which is answered next. */
void keyed_adopt(struct link_peer *peer, struct keyed_heard *heard);

/* Begins a HELLO, or the WELCOME; returns the cookie of the peer's frames. */
uint64_t keyed_begin(struct link_peer *peer, uint8_t type);
/* Ends it with what we say of our receive side. */
void keyed_seal(struct link_peer *peer, const struct careful_ctrl *ctrl);
void keyed_send(struct link_peer *peer);

/* false: not the peer's answer. */
bool keyed_welcomed(struct link_peer *peer, const struct careful_keyed *welcome,
		    struct careful_ctrl *ctrl);
/* The peer has not the key that was asked for: whether another one at its address is left to try. */
bool keyed_other(struct link_peer *peer);

/* Other keys are trusted now: ends the epochs that stand on one that is not, and the
 * session where none is at that address. */
bool keyed_trusted_still(const struct link_peer *peer, bool *other);

/* A message of the epoch; of none there is, where the key is of both hosts. */
bool keyed_say(struct link_peer *peer, struct careful_ctrl *ctrl, uint8_t type);
void keyed_say_static(struct link *link, const union address *to,
		      const struct keys_trusted *trusted, struct careful_ctrl *ctrl, uint8_t type);
/* The HELLO that asks first. */
void keyed_ask(struct link_peer *peer, struct careful_ctrl *ctrl);
/* GONE with each key that is trusted there: we do not know which one the other end asks for. */
void keyed_say_gone(struct link *link, const union address *to, struct careful_ctrl *ctrl);
/* Reports whether a message is of the peer's epoch (peer may be NULL), and new; or, of those that are of
 * none, of a host that has a key which is trusted there. */
bool keyed_proves(struct link *link, const union address *from, struct link_peer *peer,
		  const struct careful_proved *message);
/* Returns the key that proves a HELLO, in whichever form it came (the other one is NULL); NULL:
 * none. */
const struct keys_trusted *keyed_asker(const struct link *link, const union address *from,
				       const struct careful_keyed *keyed,
				       const struct careful_proved *proved);
/* An answer's proof: our own, to the peer's ping that had that frag_off; and whether the peer's to
 * ours is right. */
void keyed_prove_answer(const struct link_peer *peer, __be32 frag_off,
			struct careful_ping_answer *answer);
bool keyed_answer_proves(const struct link_peer *peer, __be32 frag_off,
			 const struct careful_ping_answer *answer);
/* The epoch is over, and what its messages were proved by. */
void keyed_over(struct link_peer *peer);

void keyed_forget(struct keyed *keyed);
