/* SPDX-License-Identifier: BSD-2-Clause */
/* One direction of a sealed session: cipher, key and replay window. The primitives are libsodium's;
 * link/peer/seal.c decides which bytes are sealed. */
#pragma once

#include <sodium/crypto_aead_aes256gcm.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	AEAD_KEY_BYTES = 32,
	AEAD_TAG_BYTES = 16,
	AEAD_SEEN_WORDS = 32, /* replay window, in words of 64 numbers */
};

struct aead {
	uint32_t cipher; /* enum careful_cipher; 0: no key is set */
	union {
		uint8_t key[AEAD_KEY_BYTES];
		crypto_aead_aes256gcm_state aes;
	};
};

/* Replay window of RFC 6479. */
struct aead_seen {
	uint64_t last; /* the highest number seen; 0: none */
	uint64_t bits[AEAD_SEEN_WORDS];
};

/* Returns the ciphers that this CPU can run, a set of enum careful_cipher. */
uint32_t aead_ciphers(void);
/* Returns the preferred cipher of a set. */
uint32_t aead_choose(uint32_t ciphers);

void aead_begin(struct aead *aead, uint32_t cipher, const uint8_t key[AEAD_KEY_BYTES]);
void aead_end(struct aead *aead);

/* Encrypts `text` in place; the tag covers `text` and the associated data `aad`. `number` becomes
 * the nonce. */
void aead_seal(const struct aead *aead, uint64_t number, const uint8_t *aad, size_t aad_bytes,
	       uint8_t *text, size_t bytes, uint8_t tag[AEAD_TAG_BYTES]);
/* Decrypts `text` in place. false: the tag is wrong, and `text` holds garbage. */
bool aead_open(const struct aead *aead, uint64_t number, const uint8_t *aad, size_t aad_bytes,
	       uint8_t *text, size_t bytes, const uint8_t tag[AEAD_TAG_BYTES]);

/* Reports whether a number is neither seen nor older than the window. */
bool aead_is_new(const struct aead_seen *seen, uint64_t number);
void aead_mark_seen(struct aead_seen *seen, uint64_t number);
