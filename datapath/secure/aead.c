// SPDX-License-Identifier: BSD-2-Clause
#include "secure/aead.h"

#include <assert.h>
#include <endian.h>
#include <sodium.h>
#include <string.h>

#include <careful/wire.h>

enum { NONCE_BYTES = 12, SEEN = 64 * AEAD_SEEN_WORDS };

_Static_assert(crypto_aead_aes256gcm_KEYBYTES == AEAD_KEY_BYTES, "a key's size");
_Static_assert(crypto_aead_chacha20poly1305_ietf_KEYBYTES == AEAD_KEY_BYTES, "a key's size");
_Static_assert(crypto_aead_aes256gcm_ABYTES == AEAD_TAG_BYTES, "a tag's size");
_Static_assert(crypto_aead_chacha20poly1305_ietf_ABYTES == AEAD_TAG_BYTES, "a tag's size");
_Static_assert(crypto_aead_aes256gcm_NPUBBYTES == NONCE_BYTES, "a nonce's size");
_Static_assert(crypto_aead_chacha20poly1305_ietf_NPUBBYTES == NONCE_BYTES, "a nonce's size");

uint32_t aead_ciphers(void)
{
	if (sodium_init() < 0)
		return 0;
	return CAREFUL_CIPHER_CHACHA20_POLY1305 |
	       (crypto_aead_aes256gcm_is_available() ? CAREFUL_CIPHER_AES256_GCM : 0);
}

uint32_t aead_choose(uint32_t ciphers)
{
	return ciphers & CAREFUL_CIPHER_AES256_GCM ? CAREFUL_CIPHER_AES256_GCM :
						     ciphers & CAREFUL_CIPHER_CHACHA20_POLY1305;
}

void aead_begin(struct aead *aead, uint32_t cipher, const uint8_t key[AEAD_KEY_BYTES])
{
	aead_end(aead);
	aead->cipher = cipher;
	if (cipher == CAREFUL_CIPHER_AES256_GCM)
		crypto_aead_aes256gcm_beforenm(&aead->aes, key);
	else
		memcpy(aead->key, key, sizeof(aead->key));
}

void aead_end(struct aead *aead)
{
	sodium_memzero(aead, sizeof(*aead));
}

/* The nonce: four zero bytes, then the number, big-endian. */
static void write_nonce(uint64_t number, uint8_t nonce[NONCE_BYTES])
{
	uint64_t wire = htobe64(number);

	memset(nonce, 0, NONCE_BYTES - sizeof(wire));
	memcpy(nonce + NONCE_BYTES - sizeof(wire), &wire, sizeof(wire));
}

void aead_seal(const struct aead *aead, uint64_t number, const uint8_t *aad, size_t aad_bytes,
	       uint8_t *text, size_t bytes, uint8_t tag[AEAD_TAG_BYTES])
{
	uint8_t nonce[NONCE_BYTES];

	assert(aead->cipher && number);
	write_nonce(number, nonce);
	if (aead->cipher == CAREFUL_CIPHER_AES256_GCM)
		crypto_aead_aes256gcm_encrypt_detached_afternm(text, tag, NULL, text, bytes, aad,
							       aad_bytes, NULL, nonce, &aead->aes);
	else
		crypto_aead_chacha20poly1305_ietf_encrypt_detached(
			text, tag, NULL, text, bytes, aad, aad_bytes, NULL, nonce, aead->key);
}

bool aead_open(const struct aead *aead, uint64_t number, const uint8_t *aad, size_t aad_bytes,
	       uint8_t *text, size_t bytes, const uint8_t tag[AEAD_TAG_BYTES])
{
	uint8_t nonce[NONCE_BYTES];

	write_nonce(number, nonce);
	if (aead->cipher == CAREFUL_CIPHER_AES256_GCM)
		return !crypto_aead_aes256gcm_decrypt_detached_afternm(
			text, NULL, text, bytes, tag, aad, aad_bytes, nonce, &aead->aes);
	return aead->cipher &&
	       !crypto_aead_chacha20poly1305_ietf_decrypt_detached(
		       text, NULL, text, bytes, tag, aad, aad_bytes, nonce, aead->key);
}

bool aead_is_new(const struct aead_seen *seen, uint64_t number)
{
	if (number > seen->last)
		return true;
	/* The newest word is only partly used, so the window is SEEN - 64 numbers. */
	if (!number || seen->last - number >= SEEN - 64)
		return false;
	return !(seen->bits[number / 64 % AEAD_SEEN_WORDS] >> number % 64 & 1);
}

void aead_mark_seen(struct aead_seen *seen, uint64_t number)
{
	uint64_t word = seen->last / 64;

	/* Clears the words that now stand for newer numbers. */
	for (uint32_t i = 0; word < number / 64 && i < AEAD_SEEN_WORDS; i++)
		seen->bits[++word % AEAD_SEEN_WORDS] = 0;
	seen->bits[number / 64 % AEAD_SEEN_WORDS] |= 1ull << number % 64;
	if (number > seen->last)
		seen->last = number;
}
