// SPDX-License-Identifier: BSD-2-Clause
/*
 * Sealing by either cipher equals libsodium's with the wire format's nonce, changed messages are
 * not opened, and no number counts twice.
 */
#include <endian.h>
#include <sodium.h>
#include <string.h>

#include <careful/wire.h>

#include "check.h"
#include "secure/aead.h"

static const uint8_t key[AEAD_KEY_BYTES] = "a key that is 32 bytes long ...";
static const uint8_t beside[] = "the header";

/* Compares with libsodium, by the nonce of wire.h. */
static void test_seal__agrees_with_the_wire_format(void)
{
	uint8_t text[] = "what is sealed", want[sizeof(text)], tag[AEAD_TAG_BYTES], same[16];
	uint8_t nonce[12] = { 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8 };
	struct aead aead = { 0 };

	aead_begin(&aead, CAREFUL_CIPHER_CHACHA20_POLY1305, key);
	crypto_aead_chacha20poly1305_ietf_encrypt_detached(
		want, same, NULL, text, sizeof(text), beside, sizeof(beside), NULL, nonce, key);
	aead_seal(&aead, 0x0102030405060708, beside, sizeof(beside), text, sizeof(text), tag);
	CHECK(!memcmp(text, want, sizeof(want)));
	CHECK(!memcmp(tag, same, sizeof(same)));
	aead_end(&aead);
	CHECK(sodium_is_zero((const uint8_t *)&aead, sizeof(aead)));
}

static void check_cipher(uint32_t cipher)
{
	uint8_t text[] = "what is sealed", tag[AEAD_TAG_BYTES];
	struct aead aead = { 0 };

	aead_begin(&aead, cipher, key);
	for (size_t bytes = 0; bytes <= sizeof(text); bytes += sizeof(text)) {
		uint8_t copy[sizeof(text)];

		aead_seal(&aead, 7, beside, sizeof(beside), text, bytes, tag);
		CHECK(!bytes || strcmp((char *)text, "what is sealed") != 0);
		for (uint32_t bit = 0; bit < 8 * sizeof(tag); bit++) {
			memcpy(copy, text, sizeof(copy));
			tag[bit / 8] ^= (uint8_t)(1 << bit % 8);
			CHECK(!aead_open(&aead, 7, beside, sizeof(beside), copy, bytes, tag));
			tag[bit / 8] ^= (uint8_t)(1 << bit % 8);
		}
		for (size_t i = 0; i < bytes; i++) {
			memcpy(copy, text, sizeof(copy));
			copy[i] ^= 1;
			CHECK(!aead_open(&aead, 7, beside, sizeof(beside), copy, bytes, tag));
		}
		memcpy(copy, text, sizeof(copy));
		CHECK(!aead_open(&aead, 8, beside, sizeof(beside), copy, bytes, tag));
		memcpy(copy, text, sizeof(copy));
		CHECK(!aead_open(&aead, 7, beside, sizeof(beside) - 1, copy, bytes, tag));
		CHECK(aead_open(&aead, 7, beside, sizeof(beside), text, bytes, tag));
		CHECK(!strcmp((char *)text, "what is sealed"));
	}
	aead_end(&aead);
	CHECK(!aead_open(&aead, 7, beside, sizeof(beside), text, 0, tag)); /* no key is set */
}

static void test_open__refuses_changed_messages(void)
{
	uint32_t ciphers = aead_ciphers();

	CHECK(ciphers & CAREFUL_CIPHER_CHACHA20_POLY1305);
	check_cipher(CAREFUL_CIPHER_CHACHA20_POLY1305);
	CHECK_EQ(aead_choose(CAREFUL_CIPHER_CHACHA20_POLY1305), CAREFUL_CIPHER_CHACHA20_POLY1305);
	CHECK_EQ(aead_choose(3), CAREFUL_CIPHER_AES256_GCM);
	CHECK_EQ(aead_choose(0), 0);
	if (ciphers & CAREFUL_CIPHER_AES256_GCM)
		check_cipher(CAREFUL_CIPHER_AES256_GCM);
}

/* Compares with a list of all seen numbers, which jump forwards and back. */
static void test_seen__each_number_once(void)
{
	enum { NUMBERS = 20000, BACK = 64 * AEAD_SEEN_WORDS - 64 };

	static bool was[NUMBERS];
	struct aead_seen seen = { 0 };
	uint64_t random = 1, last = 0;

	CHECK(!aead_is_new(&seen, 0));
	for (uint32_t i = 0; i < 40000; i++) {
		uint64_t number;

		random = random * 6364136223846793005u + 1442695040888963407u;
		number = last + 1 + (random >> 33) % 40;
		if ((random >> 40) % 4)
			number -= (random >> 45) % (number < 3000 ? number : 3000);
		if (!number || number >= NUMBERS)
			continue;
		if (number > last || (last - number < BACK && !was[number])) {
			CHECK(aead_is_new(&seen, number));
			aead_mark_seen(&seen, number);
			was[number] = true;
			last = number > last ? number : last;
		} else {
			CHECK(!aead_is_new(&seen, number));
		}
	}
	CHECK(last > NUMBERS / 2);
	aead_mark_seen(&seen, 1ull << 62); /* a jump over the whole list */
	CHECK(!aead_is_new(&seen, last));
	CHECK(aead_is_new(&seen, (1ull << 62) - 1));
}

int main(void)
{
	CHECK(sodium_init() >= 0);
	RUN(test_seal__agrees_with_the_wire_format);
	RUN(test_open__refuses_changed_messages);
	RUN(test_seen__each_number_once);
	return 0;
}
