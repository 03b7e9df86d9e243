/* SPDX-License-Identifier: BSD-2-Clause */
/* Proves the identity of each end in a handshake (struct careful_keyed in wire.h) and derives the
 * cookies of frames. handshake.c decides when messages are sent. */
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

/* The keyed part of a session. */
struct keyed {
	struct noise noise; /* state of the handshake under way */
	uint8_t mac_key[NOISE_KEY_BYTES]; /* shared by both ends */
	struct careful_keyed message; /* our HELLO or WELCOME */
	uint32_t turn; /* index of the trusted key that we ask for */
	uint32_t tries; /* keys that were refused since a session was asked for */
	uint8_t theirs[NOISE_KEY_BYTES]; /* the key that the peer proved last, or must prove next */
	bool proves; /* this epoch's message keys exist */
	uint8_t say_key[NOISE_KEY_BYTES]; /* for our messages */
	uint8_t hear_key[NOISE_KEY_BYTES]; /* for the peer's messages */
	uint64_t said; /* our messages so far */
	struct aead_seen heard; /* the peer's messages, by their count */
};

/* A HELLO whose sender has a key that is trusted at its address. */
struct keyed_heard {
	struct noise noise;
	const struct keys_trusted *trusted;
	struct careful_ctrl ctrl; /* its content, with the cookie for our frames */
};

/* Checks a HELLO without changing any state. Returns false if it proves no key. */
bool keyed_hear(struct link *link, const union address *from, const struct careful_keyed *hello,
		struct keyed_heard *heard);
/* Wipes a proof that is not used. */
void keyed_drop(struct keyed_heard *heard);
/* Assigns the proof to the peer that gets the WELCOME. */
void keyed_adopt(struct link_peer *peer, struct keyed_heard *heard);

/* Begins our HELLO or WELCOME; returns the cookie of the peer's frames. */
uint64_t keyed_begin(struct link_peer *peer, uint8_t type);
/* Completes the message with our receive side. */
void keyed_seal(struct link_peer *peer, const struct careful_ctrl *ctrl);
void keyed_send(struct link_peer *peer);

/* Opens a WELCOME. Returns false if it is not the peer's answer. */
bool keyed_welcomed(struct link_peer *peer, const struct careful_keyed *welcome,
		    struct careful_ctrl *ctrl);
/* Chooses another key, since the peer refused ours. Returns false if none is left. */
bool keyed_next_key(struct link_peer *peer);

/* Reports whether the peer's key is still trusted after a change of the keys; *other: some key at
 * its address is. */
bool keyed_trusted_still(const struct link_peer *peer, bool *other);

/* Sends a message proved by the hosts' shared key. */
void keyed_say_static(struct link *link, const union address *to,
		      const struct keys_trusted *trusted, struct careful_ctrl *ctrl, uint8_t type);
/* Sends the first HELLO. */
void keyed_ask(struct link_peer *peer, struct careful_ctrl *ctrl);
/* Sends GONE once for each key that is trusted there: the peer's is not known. */
void keyed_say_gone(struct link *link, const union address *to, struct careful_ctrl *ctrl);
/* Reports whether a message is proved: by the peer's epoch, in which it must be new, or outside of
 * an epoch (peer may be NULL) by a key that is trusted there. */
bool keyed_proves(struct link *link, const union address *from, struct link_peer *peer,
		  const struct careful_proved *message);
/* Returns the key that proves a HELLO, or NULL. The HELLO has one of the two forms; the other is
 * NULL. */
const struct keys_trusted *keyed_asker(const struct link *link, const union address *from,
				       const struct careful_keyed *keyed,
				       const struct careful_proved *proved);
/* Writes, or checks, the proof of an answer to a ping with this frag_off. */
void keyed_prove_answer(const struct link_peer *peer, __be32 frag_off,
			struct careful_ping_answer *answer);
bool keyed_answer_proves(const struct link_peer *peer, __be32 frag_off,
			 const struct careful_ping_answer *answer);
/* Wipes the epoch's message keys. */
void keyed_over(struct link_peer *peer);

void keyed_forget(struct keyed *keyed);
