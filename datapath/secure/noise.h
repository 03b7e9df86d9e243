/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Noise_KKpsk0_25519_ChaChaPoly_SHA256 (the Noise protocol framework, revision 34): a handshake of
 * two messages between hosts that know each other's public key. The primitives are libsodium's;
 * what the messages carry, and when they are sent, is link/keyed.c's.
 */
#ifndef SECURE_NOISE_H
#define SECURE_NOISE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	NOISE_KEY_BYTES = 32, /* of any key, and of a hash */
	NOISE_TAG_BYTES = 16, /* by which a sealed payload is longer */
};

/*
 * What two hosts know before they speak.
 *
 * @shared: of the two static keys: what only these two hosts can know
 * @psk:    of all hosts of a cluster; 0 where there is none
 */
struct noise_pair {
	uint8_t ours_private[NOISE_KEY_BYTES];
	uint8_t ours[NOISE_KEY_BYTES];
	uint8_t theirs[NOISE_KEY_BYTES];
	uint8_t shared[NOISE_KEY_BYTES];
	uint8_t psk[NOISE_KEY_BYTES];
};

/*
 * A handshake under way; names as in the framework, section 5.
 *
 * @ck: the chaining key; @h: of all that was said; @k, @n: of the next payload
 * @e:  our ephemeral private key; @re: the other end's public one
 */
struct noise {
	struct noise_pair pair;
	uint8_t ck[NOISE_KEY_BYTES];
	uint8_t h[NOISE_KEY_BYTES];
	uint8_t k[NOISE_KEY_BYTES];
	uint8_t e[NOISE_KEY_BYTES];
	uint8_t re[NOISE_KEY_BYTES];
	uint64_t n;
	bool initiator;
};

/* -EINVAL: theirs is no public key. */
int noise_pair_init(struct noise_pair *pair, const uint8_t ours_private[NOISE_KEY_BYTES],
		    const uint8_t theirs[NOISE_KEY_BYTES], const uint8_t psk[NOISE_KEY_BYTES]);

/* Both ends begin with the same prologue, or no message is believed. */
void noise_begin(struct noise *noise, const struct noise_pair *pair, bool initiator,
		 const void *prologue, size_t bytes);

/*
 * A message is a public key and then a payload. The initiator writes the first and reads the
 * second. *public is our new one, made of `private`, which must be random and never used again.
 * -EBADMSG: the other end's is none.
 */
int noise_write(struct noise *noise, const uint8_t private[NOISE_KEY_BYTES],
		uint8_t public[NOISE_KEY_BYTES]);
int noise_read(struct noise *noise, const uint8_t public[NOISE_KEY_BYTES]);
/* out: bytes + NOISE_TAG_BYTES. */
void noise_seal(struct noise *noise, const void *payload, size_t bytes, uint8_t *out);
/* bytes: with the tag. -EBADMSG: not from who has the key, or changed. */
int noise_open(struct noise *noise, const uint8_t *sealed, size_t bytes, void *payload);

/* A secret that both ends have from the last message on: another one for each label. */
void noise_export(const struct noise *noise, const char *label, uint8_t out[NOISE_KEY_BYTES]);

/* The keys of the two directions, from the last message on: the first is of who begins. */
void noise_split(const struct noise *noise, uint8_t keys[2][NOISE_KEY_BYTES]);

/* Nothing of it is left in memory. */
void noise_forget(struct noise *noise);

#endif /* SECURE_NOISE_H */
