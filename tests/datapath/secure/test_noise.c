// SPDX-License-Identifier: BSD-2-Clause
/*
 * The handshake against a public vector (Noise_KKpsk0_25519_ChaChaPoly_SHA256 of cacophony, in
 * github.com/mcginty/snow, tests/vectors/cacophony.txt), and invalid messages.
 */
#include <errno.h>
#include <sodium.h>
#include <string.h>

#include "check.h"
#include "secure/noise.h"

#define PROLOGUE "4a6f686e2047616c74"
#define PSK "54686973206973206d7920417573747269616e20706572737065637469766521"
#define INITIATOR "e61ef9919cde45dd5f82166404bd08e38bceb5dfdfded0a34c8df7ed542214d1"
#define INITIATOR_PUBLIC "6bc3822a2aa7f4e6981d6538692b3cdf3e6df9eea6ed269eb41d93c22757b75a"
#define INITIATOR_EPHEMERAL "893e28b9dc6ca8d611ab664754b8ceb7bac5117349a4439a6b0569da977c464a"
#define RESPONDER "4a3acbfdb163dec651dfa3194dece676d437029c62a408b4c5ea9114246e4893"
#define RESPONDER_PUBLIC "31e0303fd6418d2f8c0e78b91f22e8caed0fbe48656dcf4767e4834f701b8f62"
#define RESPONDER_EPHEMERAL "bbdb4cdbd309f1a1f2e1456967fe288cadd6f712d65dc7b7793d5e63da6b375b"
#define HANDSHAKE_HASH "32afcdbb63cf90f25409090bc11f7546c534dfb03f37c1626a0cf758881e746f"

static const struct {
	const char *payload, *message;
} messages[2] = {
	{ "4c756477696720766f6e204d69736573",
	  "ca35def5ae56cec33dc2036731ab14896bc4c75dbb07a61f879f8e3afa4c794423f19812300a6051f02195"
	  "db0722909fc920796814cfc886ab3a8083c66a5961" },
	{ "4d757272617920526f746862617264",
	  "95ebc60d2b1fa672c1f46a8aa265ef51bfe38e7ccb39ec5be34069f14480884320acfe866b4ede922f007d"
	  "89dbf507216d6aa8646c7fba098da374b1784d4b" },
};

enum { MESSAGE_MAX = 128 };

static size_t unhex(const char *text, uint8_t *out)
{
	size_t bytes;

	CHECK(!sodium_hex2bin(out, MESSAGE_MAX, text, strlen(text), NULL, &bytes, NULL));
	return bytes;
}

static struct noise_pair pair_of(const char *ours, const char *theirs)
{
	uint8_t private[MESSAGE_MAX], public[MESSAGE_MAX], psk[MESSAGE_MAX];
	struct noise_pair pair;

	CHECK_EQ(unhex(ours, private), NOISE_KEY_BYTES);
	CHECK_EQ(unhex(theirs, public), NOISE_KEY_BYTES);
	CHECK_EQ(unhex(PSK, psk), NOISE_KEY_BYTES);
	CHECK_EQ(noise_pair_init(&pair, private, public, psk), 0);
	return pair;
}

/* Starts both ends with the vector's prologue. */
static void begin(struct noise ends[2])
{
	const struct noise_pair initiator = pair_of(INITIATOR, RESPONDER_PUBLIC);
	const struct noise_pair responder = pair_of(RESPONDER, INITIATOR_PUBLIC);
	uint8_t prologue[MESSAGE_MAX];
	size_t bytes = unhex(PROLOGUE, prologue);

	noise_begin(&ends[0], &initiator, true, prologue, bytes);
	noise_begin(&ends[1], &responder, false, prologue, bytes);
}

/* Makes message i of the vector at this end. Returns its size. */
static size_t say(struct noise *end, int i, uint8_t *message)
{
	uint8_t private[MESSAGE_MAX], payload[MESSAGE_MAX];
	size_t bytes = unhex(messages[i].payload, payload);

	unhex(i ? RESPONDER_EPHEMERAL : INITIATOR_EPHEMERAL, private);
	CHECK_EQ(noise_write(end, private, message), 0);
	noise_seal(end, payload, bytes, message + NOISE_KEY_BYTES);
	return NOISE_KEY_BYTES + bytes + NOISE_TAG_BYTES;
}

/* Reports whether the end accepts the message. */
static bool hear(struct noise *end, const uint8_t *message, size_t bytes, uint8_t *payload)
{
	return !noise_read(end, message) &&
	       !noise_open(end, message + NOISE_KEY_BYTES, bytes - NOISE_KEY_BYTES, payload);
}

static void test_noise__a_public_vector(void)
{
	uint8_t message[MESSAGE_MAX], right[MESSAGE_MAX], payload[MESSAGE_MAX];
	uint8_t secrets[2][NOISE_KEY_BYTES], keys[2][2][NOISE_KEY_BYTES];
	struct noise ends[2];

	begin(ends);
	for (int i = 0; i < 2; i++) {
		size_t bytes = say(&ends[i], i, message);

		CHECK_EQ(bytes, unhex(messages[i].message, right));
		CHECK(!memcmp(message, right, bytes));
		CHECK(hear(&ends[!i], message, bytes, payload));
		unhex(messages[i].payload, right);
		CHECK(!memcmp(payload, right, bytes - NOISE_KEY_BYTES - NOISE_TAG_BYTES));
		for (int end = 0; end < 2; end++)
			noise_export(&ends[end], "a label", secrets[end]);
		CHECK(!memcmp(secrets[0], secrets[1], NOISE_KEY_BYTES));
	}
	unhex(HANDSHAKE_HASH, right);
	for (int end = 0; end < 2; end++)
		CHECK(!memcmp(ends[end].h, right, NOISE_KEY_BYTES));
	noise_split(&ends[0], keys[0]);
	noise_split(&ends[1], keys[1]);
	CHECK(!memcmp(keys[0], keys[1], sizeof(keys[0])));
	CHECK(memcmp(keys[0][0], keys[0][1], NOISE_KEY_BYTES) != 0);
	noise_export(&ends[0], "another label", secrets[0]);
	CHECK(memcmp(secrets[0], secrets[1], NOISE_KEY_BYTES) != 0);
}

/* Changes every bit of both messages, and shortens them to every length. */
static void test_noise__a_changed_message_is_refused(void)
{
	uint8_t message[MESSAGE_MAX], changed[MESSAGE_MAX], payload[MESSAGE_MAX];
	struct noise ends[2], before;
	size_t bytes;

	begin(ends);
	for (int i = 0; i < 2; i++) {
		bytes = say(&ends[i], i, message);
		before = ends[!i];
		for (size_t bit = 0; bit < bytes * 8; bit++) {
			/* X25519 ignores a key's top bit; the hash of the handshake covers it. */
			memcpy(changed, message, bytes);
			changed[bit / 8] ^= (uint8_t)(1 << bit % 8);
			ends[!i] = before;
			CHECK(!hear(&ends[!i], changed, bytes, payload));
		}
		for (size_t n = NOISE_KEY_BYTES; n < bytes; n++) {
			ends[!i] = before;
			CHECK(!hear(&ends[!i], message, n, payload));
		}
		ends[!i] = before;
		CHECK(hear(&ends[!i], message, bytes, payload));
	}
}

/* Another static key, psk or prologue, and the initiator's own message reflected. */
static void test_noise__strangers_are_refused(void)
{
	struct noise_pair pair = pair_of(RESPONDER, INITIATOR_PUBLIC);
	uint8_t message[MESSAGE_MAX], payload[MESSAGE_MAX], prologue[MESSAGE_MAX];
	struct noise ends[2], end;
	size_t bytes, said;

	begin(ends);
	bytes = unhex(PROLOGUE, prologue);
	said = say(&ends[0], 0, message);
	end = ends[0];
	CHECK(!hear(&end, message, said, payload));
	end = ends[1];
	CHECK(hear(&end, message, said, payload));
	prologue[0] ^= 1;
	noise_begin(&end, &pair, false, prologue, bytes);
	CHECK(!hear(&end, message, said, payload));
	prologue[0] ^= 1;
	pair.psk[31] ^= 1;
	noise_begin(&end, &pair, false, prologue, bytes);
	CHECK(!hear(&end, message, said, payload));
	pair = pair_of(RESPONDER, RESPONDER_PUBLIC);
	noise_begin(&end, &pair, false, prologue, bytes);
	CHECK(!hear(&end, message, said, payload));
	pair = pair_of(INITIATOR_EPHEMERAL, INITIATOR_PUBLIC);
	noise_begin(&end, &pair, false, prologue, bytes);
	CHECK(!hear(&end, message, said, payload));
}

/* Points whose multiples are 0 are invalid keys. */
static void test_noise__invalid_keys(void)
{
	static const uint8_t none[2][NOISE_KEY_BYTES] = { { 0 }, { 1 } };
	uint8_t private[MESSAGE_MAX], psk[NOISE_KEY_BYTES] = { 0 };
	struct noise_pair pair;
	struct noise ends[2];

	unhex(INITIATOR, private);
	for (int i = 0; i < 2; i++) {
		CHECK_EQ(noise_pair_init(&pair, private, none[i], psk), -EINVAL);
		begin(ends);
		CHECK_EQ(noise_read(&ends[1], none[i]), -EBADMSG);
	}
}

int main(void)
{
	CHECK(sodium_init() >= 0);
	test_noise__a_public_vector();
	test_noise__a_changed_message_is_refused();
	test_noise__strangers_are_refused();
	test_noise__invalid_keys();
	return 0;
}
