/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One direction of a sealed session: the AEAD that both ends have, its key, and which of the
 * numbers that its nonces come from were seen. The primitives are libsodium's; what is sealed is
 * link/seal.c's.
 */
#ifndef SECURE_AEAD_H
#define SECURE_AEAD_H

#include <sodium/crypto_aead_aes256gcm.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	AEAD_KEY_BYTES = 32,
	AEAD_TAG_BYTES = 16,
	AEAD_SEEN_WORDS =
		32, /* numbers so far behind the last one, times 64, are still told apart */
};

/* @cipher: enum careful_cipher; 0: there is no key */
struct aead {
	uint32_t cipher;
	union {
		uint8_t key[AEAD_KEY_BYTES];
		crypto_aead_aes256gcm_state aes;
	};
};

/*
 * As RFC 6479 has it.
 *
 * @last: the highest number seen; 0: none
 */
struct aead_seen {
	uint64_t last;
	uint64_t bits[AEAD_SEEN_WORDS];
};

/* Those that this CPU has, enum careful_cipher. */
uint32_t aead_ciphers(void);
/* Of several the one to take. */
uint32_t aead_choose(uint32_t ciphers);

void aead_begin(struct aead *aead, uint32_t cipher, const uint8_t key[AEAD_KEY_BYTES]);
void aead_end(struct aead *aead);

/* `text` becomes what is sent, in its place; the tag is of it and of `beside`. */
void aead_seal(const struct aead *aead, uint64_t number, const uint8_t *beside, size_t beside_bytes,
	       uint8_t *text, size_t bytes, uint8_t tag[AEAD_TAG_BYTES]);
/* false: the tag is wrong, and text means nothing. */
bool aead_open(const struct aead *aead, uint64_t number, const uint8_t *beside, size_t beside_bytes,
	       uint8_t *text, size_t bytes, const uint8_t tag[AEAD_TAG_BYTES]);

/* Reports whether a number was not seen, and is not so old that it may have been; then that it is. */
bool aead_new(const struct aead_seen *seen, uint64_t number);
void aead_saw(struct aead_seen *seen, uint64_t number);

#endif /* SECURE_AEAD_H */
