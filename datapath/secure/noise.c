// SPDX-License-Identifier: BSD-2-Clause
/* Functions follow section 5 of the framework, for this pattern alone. */
#include "secure/noise.h"

#include <errno.h>
#include <sodium.h>
#include <string.h>

static const char protocol_name[] = "Noise_KKpsk0_25519_ChaChaPoly_SHA256";

_Static_assert(sizeof(protocol_name) - 1 > NOISE_KEY_BYTES, "a longer name is hashed");
_Static_assert(crypto_scalarmult_curve25519_BYTES == NOISE_KEY_BYTES, "a key's size");
_Static_assert(crypto_auth_hmacsha256_BYTES == NOISE_KEY_BYTES, "a hash's size");
_Static_assert(crypto_aead_chacha20poly1305_ietf_ABYTES == NOISE_TAG_BYTES, "a tag's size");

static void hmac(const uint8_t *key, const void *data, size_t bytes, uint8_t *out)
{
	crypto_auth_hmacsha256_state state;

	crypto_auth_hmacsha256_init(&state, key, NOISE_KEY_BYTES);
	crypto_auth_hmacsha256_update(&state, data, bytes);
	crypto_auth_hmacsha256_final(&state, out);
	sodium_memzero(&state, sizeof(state));
}

/* Computes HKDF(chaining key, data) with `count` outputs; the first replaces the chaining key. */
static void hkdf(uint8_t *ck, const uint8_t *data, size_t bytes, uint8_t outputs[][NOISE_KEY_BYTES],
		 int count)
{
	uint8_t temp[NOISE_KEY_BYTES], in[NOISE_KEY_BYTES + 1];
	size_t in_bytes = 0;

	hmac(ck, data, bytes, temp);
	for (int i = 0; i < count; i++) {
		uint8_t *out = i ? outputs[i - 1] : ck;

		in[in_bytes] = (uint8_t)(i + 1);
		hmac(temp, in, in_bytes + 1, out);
		memcpy(in, out, NOISE_KEY_BYTES);
		in_bytes = NOISE_KEY_BYTES;
	}
	sodium_memzero(temp, sizeof(temp));
	sodium_memzero(in, sizeof(in));
}

static void mix_hash(struct noise *noise, const void *data, size_t bytes)
{
	crypto_hash_sha256_state state;

	crypto_hash_sha256_init(&state);
	crypto_hash_sha256_update(&state, noise->h, sizeof(noise->h));
	crypto_hash_sha256_update(&state, data, bytes);
	crypto_hash_sha256_final(&state, noise->h);
}

static void mix_key(struct noise *noise, const uint8_t *data)
{
	hkdf(noise->ck, data, NOISE_KEY_BYTES, &noise->k, 2);
	noise->n = 0;
}

static void mix_key_and_hash(struct noise *noise, const uint8_t *psk)
{
	uint8_t out[2][NOISE_KEY_BYTES];

	hkdf(noise->ck, psk, NOISE_KEY_BYTES, out, 3);
	mix_hash(noise, out[0], sizeof(out[0]));
	memcpy(noise->k, out[1], sizeof(noise->k));
	noise->n = 0;
	sodium_memzero(out, sizeof(out));
}

static int mix_dh(struct noise *noise, const uint8_t *private, const uint8_t *public)
{
	uint8_t shared[NOISE_KEY_BYTES];

	if (crypto_scalarmult_curve25519(shared, private, public))
		return -EBADMSG;
	mix_key(noise, shared);
	sodium_memzero(shared, sizeof(shared));
	return 0;
}

/* Processes the token e; a pattern with psk mixes the key in as well (section 9.2). */
static void mix_ephemeral(struct noise *noise, const uint8_t *public)
{
	mix_hash(noise, public, NOISE_KEY_BYTES);
	mix_key(noise, public);
}

int noise_pair_init(struct noise_pair *pair, const uint8_t ours_private[NOISE_KEY_BYTES],
		    const uint8_t theirs[NOISE_KEY_BYTES], const uint8_t psk[NOISE_KEY_BYTES])
{
	memcpy(pair->ours_private, ours_private, sizeof(pair->ours_private));
	memcpy(pair->theirs, theirs, sizeof(pair->theirs));
	memcpy(pair->psk, psk, sizeof(pair->psk));
	if (crypto_scalarmult_curve25519_base(pair->ours, ours_private) ||
	    crypto_scalarmult_curve25519(pair->shared, ours_private, theirs))
		return -EINVAL;
	return 0;
}

void noise_begin(struct noise *noise, const struct noise_pair *pair, bool initiator,
		 const void *prologue, size_t bytes)
{
	*noise = (struct noise){ .pair = *pair, .initiator = initiator };
	crypto_hash_sha256(noise->h, (const uint8_t *)protocol_name, sizeof(protocol_name) - 1);
	memcpy(noise->ck, noise->h, sizeof(noise->ck));
	mix_hash(noise, prologue, bytes);
	mix_hash(noise, initiator ? pair->ours : pair->theirs, NOISE_KEY_BYTES);
	mix_hash(noise, initiator ? pair->theirs : pair->ours, NOISE_KEY_BYTES);
}

int noise_write(struct noise *noise, const uint8_t private[NOISE_KEY_BYTES],
		uint8_t public[NOISE_KEY_BYTES])
{
	const struct noise_pair *pair = &noise->pair;
	int rc = 0;

	memcpy(noise->e, private, sizeof(noise->e));
	crypto_scalarmult_curve25519_base(public, private);
	if (noise->initiator) { /* -> psk, e, es, ss */
		mix_key_and_hash(noise, pair->psk);
		mix_ephemeral(noise, public);
		rc = mix_dh(noise, noise->e, pair->theirs);
		mix_key(noise, pair->shared);
	} else { /* <- e, ee, se */
		mix_ephemeral(noise, public);
		rc = mix_dh(noise, noise->e, noise->re);
		if (!rc)
			rc = mix_dh(noise, noise->e, pair->theirs);
	}
	return rc;
}

int noise_read(struct noise *noise, const uint8_t public[NOISE_KEY_BYTES])
{
	const struct noise_pair *pair = &noise->pair;
	int rc;

	memcpy(noise->re, public, sizeof(noise->re));
	if (noise->initiator) { /* <- e, ee, se */
		mix_ephemeral(noise, public);
		rc = mix_dh(noise, noise->e, public);
		if (!rc)
			rc = mix_dh(noise, pair->ours_private, public);
	} else { /* -> psk, e, es, ss */
		mix_key_and_hash(noise, pair->psk);
		mix_ephemeral(noise, public);
		rc = mix_dh(noise, pair->ours_private, public);
		mix_key(noise, pair->shared);
	}
	return rc;
}

/* The nonce: four zero bytes, then n, little-endian (section 12.3). */
static void payload_nonce(struct noise *noise,
			  uint8_t out[crypto_aead_chacha20poly1305_ietf_NPUBBYTES])
{
	memset(out, 0, crypto_aead_chacha20poly1305_ietf_NPUBBYTES);
	for (int i = 0; i < 8; i++)
		out[4 + i] = (uint8_t)(noise->n >> 8 * i);
	noise->n++;
}

void noise_seal(struct noise *noise, const void *payload, size_t bytes, uint8_t *out)
{
	uint8_t nonce[crypto_aead_chacha20poly1305_ietf_NPUBBYTES];

	payload_nonce(noise, nonce);
	crypto_aead_chacha20poly1305_ietf_encrypt(out, NULL, payload, bytes, noise->h,
						  sizeof(noise->h), NULL, nonce, noise->k);
	mix_hash(noise, out, bytes + NOISE_TAG_BYTES);
}

int noise_open(struct noise *noise, const uint8_t *sealed, size_t bytes, void *payload)
{
	uint8_t nonce[crypto_aead_chacha20poly1305_ietf_NPUBBYTES];

	payload_nonce(noise, nonce);
	if (crypto_aead_chacha20poly1305_ietf_decrypt(payload, NULL, NULL, sealed, bytes, noise->h,
						      sizeof(noise->h), nonce, noise->k))
		return -EBADMSG;
	mix_hash(noise, sealed, bytes);
	return 0;
}

/* HKDF's first step on the label. A label is never as long as a key, so no label equals a key. */
void noise_export(const struct noise *noise, const char *label, uint8_t out[NOISE_KEY_BYTES])
{
	hmac(noise->ck, label, strlen(label), out);
}

/* HKDF with empty input (section 5.2, Split()). */
void noise_split(const struct noise *noise, uint8_t keys[2][NOISE_KEY_BYTES])
{
	memcpy(keys[0], noise->ck, NOISE_KEY_BYTES);
	hkdf(keys[0], NULL, 0, &keys[1], 2);
}

void noise_forget(struct noise *noise)
{
	sodium_memzero(noise, sizeof(*noise));
}
