/* SPDX-License-Identifier: BSD-2-Clause */
/* Proofs of messages between hosts with keys (wire.h), for tests that know the keys. */
#ifndef SUPPORT_PROOF_H
#define SUPPORT_PROOF_H

#include <sodium.h>
#include <stdbool.h>
#include <string.h>

#include <careful/wire.h>

/* Reports whether a message belongs to no epoch, and is proved by both static keys. */
static inline bool proof_static(uint8_t type)
{
	return type == CAREFUL_HELLO || type == CAREFUL_CHALLENGE || type == CAREFUL_GONE ||
	       type == CAREFUL_REFUSE;
}

/* sender: the sender's public key if both ends share the mac key, else NULL. */
static inline void proof_mac(const uint8_t *key, const void *message, size_t bytes,
			     const uint8_t *sender, uint8_t *to)
{
	uint8_t out[crypto_auth_hmacsha256_BYTES];
	crypto_auth_hmacsha256_state state;

	crypto_auth_hmacsha256_init(&state, key, CAREFUL_KEY_BYTES);
	crypto_auth_hmacsha256_update(&state, message, bytes);
	if (sender)
		crypto_auth_hmacsha256_update(&state, sender, CAREFUL_KEY_BYTES);
	crypto_auth_hmacsha256_final(&state, out);
	memcpy(to, out, CAREFUL_TAG_BYTES);
}

#endif /* SUPPORT_PROOF_H */
