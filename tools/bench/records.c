// SPDX-License-Identifier: BSD-2-Clause
/*
 * Times the protection of one frame, there and back, and that of as many bytes in one packet of
 * WireGuard and one record of TLS 1.3: the AEAD, its nonce, and the check that the number is new.
 * Nothing else of the three is run: no headers, no queues, no copies.
 *
 *   records BYTES [ROUNDS]   prints JSON: ns a frame of each, the median of rounds
 *
 * careful: frames as link/seal.c seals them, libsodium's. wireguard: ChaCha20-Poly1305 of the
 * packet, padded to 16 bytes, nothing beside it, a window of numbers seen (the white paper, section
 * 5.4.6). tls: RFC 8446 section 5.2: the record's header beside it, one byte of type behind it, the
 * nonce the number with an IV. Those two by OpenSSL, whose assembler is the kernel's as well.
 */
#include <endian.h>
#include <openssl/evp.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <careful/wire.h>

#include "clock.h"
#include "secure/aead.h"

enum {
	BYTES_MAX = 1 << 14, /* of a TLS record */
	ROOM = BYTES_MAX + 256,
	ROUNDS = 31,
	ROUNDS_MAX = 1000,
	BATCH_BYTES = 1 << 22, /* of a round: so many frames that a clock's cost is nothing */
	BATCH_MAX = 20000,
	IV_BYTES = 12,
};

struct work {
	const char *name;
	uint32_t cipher; /* careful's */
	bool encrypt;
	const EVP_CIPHER *(*evp)(void); /* else: OpenSSL's */
	bool tls;
	struct aead aead;
	struct aead_seen seen;
	EVP_CIPHER_CTX *out, *in;
	uint64_t number;
	double ns[ROUNDS_MAX];
};

static struct work works[] = {
	{ .name = "careful auth, AES-256-GCM", .cipher = CAREFUL_CIPHER_AES256_GCM },
	{ .name = "careful encrypt, AES-256-GCM",
	  .cipher = CAREFUL_CIPHER_AES256_GCM,
	  .encrypt = true },
	{ .name = "careful auth, ChaCha20-Poly1305", .cipher = CAREFUL_CIPHER_CHACHA20_POLY1305 },
	{ .name = "careful encrypt, ChaCha20-Poly1305",
	  .cipher = CAREFUL_CIPHER_CHACHA20_POLY1305,
	  .encrypt = true },
	{ .name = "wireguard, ChaCha20-Poly1305", .evp = EVP_chacha20_poly1305 },
	{ .name = "tls 1.3, AES-256-GCM", .evp = EVP_aes_256_gcm, .tls = true },
	{ .name = "tls 1.3, ChaCha20-Poly1305", .evp = EVP_chacha20_poly1305, .tls = true },
};

enum { WORKS = sizeof(works) / sizeof(works[0]) };

static uint8_t buffer[ROOM] __attribute__((aligned(64)));
static const uint8_t key[AEAD_KEY_BYTES] = { 1, 2, 3 };

static void must(bool good)
{
	if (!good) {
		fprintf(stderr, "records: the other end does not have what was sent\n");
		exit(1);
	}
}

/* Header and payload at the buffer's beginning. */
static void careful_frame(struct work *w, uint32_t bytes)
{
	size_t beside = sizeof(struct careful_hdr) + (w->encrypt ? 0 : bytes);
	size_t text = w->encrypt ? bytes : 0;
	uint8_t tag[AEAD_TAG_BYTES];

	aead_seal(&w->aead, ++w->number, buffer, beside, buffer + beside, text, tag);
	must(aead_new(&w->seen, w->number) &&
	     aead_open(&w->aead, w->number, buffer, beside, buffer + beside, text, tag));
	aead_saw(&w->seen, w->number);
}

static void nonce_of(const struct work *w, uint8_t nonce[IV_BYTES])
{
	static const uint8_t iv[IV_BYTES] = { 9, 8, 7, 6, 5, 4, 3, 2, 1, 0, 1, 2 };
	uint64_t number = w->tls ? htobe64(w->number) : htole64(w->number);

	memset(nonce, 0, IV_BYTES);
	memcpy(nonce + 4, &number, sizeof(number));
	for (int i = 0; w->tls && i < IV_BYTES; i++)
		nonce[i] ^= iv[i];
}

static void evp_record(struct work *w, uint32_t bytes)
{
	/* A record has a byte of its own; a packet is padded. */
	int text = w->tls ? (int)bytes + 1 : (int)(bytes + 15) & ~15, n, beside = w->tls ? 5 : 0;
	uint8_t header[5] = { 23, 3, 3, (uint8_t)(text >> 8), (uint8_t)text };
	uint8_t nonce[IV_BYTES], tag[AEAD_TAG_BYTES];

	w->number++;
	nonce_of(w, nonce);
	must(EVP_EncryptInit_ex(w->out, NULL, NULL, NULL, nonce) &&
	     (!beside || EVP_EncryptUpdate(w->out, NULL, &n, header, beside)) &&
	     EVP_EncryptUpdate(w->out, buffer, &n, buffer, text) &&
	     EVP_EncryptFinal_ex(w->out, buffer + n, &n) &&
	     EVP_CIPHER_CTX_ctrl(w->out, EVP_CTRL_AEAD_GET_TAG, sizeof(tag), tag));
	must((w->tls || aead_new(&w->seen, w->number)) &&
	     EVP_DecryptInit_ex(w->in, NULL, NULL, NULL, nonce) &&
	     (!beside || EVP_DecryptUpdate(w->in, NULL, &n, header, beside)) &&
	     EVP_DecryptUpdate(w->in, buffer, &n, buffer, text) &&
	     EVP_CIPHER_CTX_ctrl(w->in, EVP_CTRL_AEAD_SET_TAG, sizeof(tag), tag) &&
	     EVP_DecryptFinal_ex(w->in, buffer + n, &n) > 0);
	if (!w->tls)
		aead_saw(&w->seen, w->number);
}

static bool has(const struct work *w)
{
	return w->evp || aead_ciphers() & w->cipher;
}

static void begin(struct work *w)
{
	if (!w->evp) {
		aead_begin(&w->aead, w->cipher, key);
		return;
	}
	w->out = EVP_CIPHER_CTX_new();
	w->in = EVP_CIPHER_CTX_new();
	must(w->out && w->in && EVP_EncryptInit_ex(w->out, w->evp(), NULL, key, NULL) &&
	     EVP_DecryptInit_ex(w->in, w->evp(), NULL, key, NULL));
}

static void once(struct work *w, uint32_t bytes)
{
	if (w->evp)
		evp_record(w, bytes);
	else
		careful_frame(w, bytes);
}

static int by_size(const void *a, const void *b)
{
	double left = *(const double *)a, right = *(const double *)b;

	return (left > right) - (left < right);
}

int main(int argc, char **argv)
{
	uint32_t bytes = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 0;
	uint32_t rounds = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : ROUNDS;
	uint32_t batch = bytes ? BATCH_BYTES / bytes : 0;

	if (!bytes || bytes > BYTES_MAX || !rounds || rounds > ROUNDS_MAX || argc > 3) {
		fprintf(stderr, "usage: records BYTES [ROUNDS]: up to %d bytes\n", BYTES_MAX);
		return 2;
	}
	must(sodium_init() >= 0);
	batch = batch < BATCH_MAX ? batch : BATCH_MAX;
	for (uint32_t i = 0; i < WORKS; i++)
		if (has(&works[i]))
			begin(&works[i]);
	/* In turn: what else the machine does meets all. The first round warms up. */
	for (uint32_t round = 0; round <= rounds; round++) {
		for (uint32_t i = 0; i < WORKS; i++) {
			uint64_t began_ns = clock_ns();

			if (!has(&works[i]))
				continue;
			for (uint32_t n = 0; n < batch; n++)
				once(&works[i], bytes);
			works[i].ns[round ? round - 1 : 0] =
				(double)(clock_ns() - began_ns) / batch;
		}
	}
	printf("{\"schema\": 1, \"bytes\": %u, \"rounds\": %u, \"ns\": {", bytes, rounds);
	for (uint32_t i = 0, shown = 0; i < WORKS; i++) {
		if (!has(&works[i]))
			continue;
		qsort(works[i].ns, rounds, sizeof(double), by_size);
		printf("%s\"%s\": %.1f", shown++ ? ", " : "", works[i].name,
		       works[i].ns[rounds / 2]);
	}
	printf("}}\n");
	for (uint32_t i = 0; i < WORKS; i++) {
		EVP_CIPHER_CTX_free(works[i].out);
		EVP_CIPHER_CTX_free(works[i].in);
	}
	return 0;
}
