/* SPDX-License-Identifier: BSD-2-Clause */
/* Noise_KKpsk0_25519_ChaChaPoly_SHA256 (the Noise protocol framework, revision 34): a handshake of
 * two messages between hosts that know each other's public key. The primitives are libsodium's;
 * link/peer/keyed.c decides what the messages carry and when they are sent. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	NOISE_KEY_BYTES = 32, /* any key or hash */
	NOISE_TAG_BYTES = 16, /* bytes that sealing adds to a payload */
};

/* The keys that two hosts have before the handshake. */
struct noise_pair {
	uint8_t ours_private[NOISE_KEY_BYTES];
	uint8_t ours[NOISE_KEY_BYTES];
	uint8_t theirs[NOISE_KEY_BYTES];
	uint8_t shared[NOISE_KEY_BYTES]; /* Diffie-Hellman of the two static keys */
	uint8_t psk[NOISE_KEY_BYTES]; /* the cluster's key; zeros if there is none */
};

/* A handshake under way; names are the framework's, section 5.
 *
 * @k, @n: key and nonce of the next payload */
struct noise {
	struct noise_pair pair;
	uint8_t ck[NOISE_KEY_BYTES]; /* the chaining key */
	uint8_t h[NOISE_KEY_BYTES]; /* hash of the transcript */
	uint8_t k[NOISE_KEY_BYTES];
	uint8_t e[NOISE_KEY_BYTES]; /* our ephemeral private key */
	uint8_t re[NOISE_KEY_BYTES]; /* the other end's ephemeral public key */
	uint64_t n;
	bool initiator;
};

/* -EINVAL: `theirs` is no public key. */
int noise_pair_init(struct noise_pair *pair, const uint8_t ours_private[NOISE_KEY_BYTES],
		    const uint8_t theirs[NOISE_KEY_BYTES], const uint8_t psk[NOISE_KEY_BYTES]);

/* Starts a handshake. If the prologues of the two ends differ, every message is refused. */
void noise_begin(struct noise *noise, const struct noise_pair *pair, bool initiator,
		 const void *prologue, size_t bytes);

/* A message is a public key, then a payload. The initiator writes the first message and reads the
 * second. `private` must be random and fresh; *public is computed from it. -EBADMSG: the other
 * end's public key is invalid. */
int noise_write(struct noise *noise, const uint8_t private[NOISE_KEY_BYTES],
		uint8_t public[NOISE_KEY_BYTES]);
int noise_read(struct noise *noise, const uint8_t public[NOISE_KEY_BYTES]);
/* `out` needs bytes + NOISE_TAG_BYTES. */
void noise_seal(struct noise *noise, const void *payload, size_t bytes, uint8_t *out);
/* `bytes` includes the tag. -EBADMSG: wrong key, or the payload was changed. */
int noise_open(struct noise *noise, const uint8_t *sealed, size_t bytes, void *payload);

/* Derives a secret that both ends share after the last message, one for each label. */
void noise_export(const struct noise *noise, const char *label, uint8_t out[NOISE_KEY_BYTES]);

/* Derives the keys of the two directions after the last message; the first is the initiator's. */
void noise_split(const struct noise *noise, uint8_t keys[2][NOISE_KEY_BYTES]);

/* Erases all secrets. */
void noise_forget(struct noise *noise);
