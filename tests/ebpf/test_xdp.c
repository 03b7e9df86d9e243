// SPDX-License-Identifier: BSD-2-Clause
/*
 * Both variants of the XDP program on frames of every kind: verdicts and counters, and that nothing
 * else is admitted. test_xdp_session.c tests sessions.
 */
#include <careful/frame.h>

#include "xdp.h"

/* Well-formed frames, one of each kind; tests of damage start from these. */
static const struct shape good[] = {
	{ .frag_bytes = 100 },
	{ .frag_bytes = 0 },
	{ .frag_bytes = 64, .flags = CAREFUL_F_FIRST },
	{ .frag_bytes = 64, .flags = CAREFUL_F_FIRST | CAREFUL_F_LAST | CAREFUL_F_DIGEST },
	{ .frag_bytes = 64, .flags = CAREFUL_F_DIGEST },
	{ .type = CAREFUL_UPDATE },
	{ .frag_bytes = 4, .flags = CAREFUL_F_ABORT },
	{ .vlans = 1, .frag_bytes = 100 },
	{ .vlans = 2, .frag_bytes = 100 },
	{ .option_words = 10, .frag_bytes = 100 },
	{ .frag_off = 0x4000, .frag_bytes = 100 }, /* don't fragment */
	{ .ipv6 = true, .frag_bytes = 100 },
	{ .ipv6 = true, .vlans = 2, .frag_bytes = 100 },
	{ .ipv6 = true, .exts = 1, .ext = { 0xff }, .frag_bytes = 10 },
	{ .ipv6 = true, .exts = 4, .ext = { 0xff, 60, 43, 60 }, .ext_units = 3 },
	{ .ipv6 = true, .exts = 6, .ext = { 0xff, 60, 43, 60, 60, 60 }, .ext_units = 1 },
	{ .ipv6 = true, .exts = 1, .ext = { 44 }, .frag_bytes = 10 }, /* RFC 6946 */
	{ .frag_bytes = 1, .padding = 20 }, /* Ethernet's padding */
	{ .frag_bytes = 3000 },
};

#define GOOD (sizeof(good) / sizeof(good[0]))

/* `up` waits for the verifier, which refuses above a million instructions. If states do not merge,
 * each path through the headers is followed to the end: once 565,000. */
static void test_verified__few_instructions(void)
{
	CHECK(verified_insns() > 0);
	CHECK(verified_insns() < 50000);
}

static void test_good__admitted(void)
{
	static struct frame frame;
	struct careful_datagram found;

	for (size_t i = 0; i < GOOD; i++) {
		frame_build(&frame, &good[i]);
		CHECK(careful_frame_find(frame.data, frame.data + frame.bytes, frame.bytes,
					 &found));
		CHECK_EQ(found.at - frame.data, frame.hdr_at);
		CHECK_EQ(judge(&good[i]), CAREFUL_XDP_ADMITTED);
		CHECK(entry_of(FRAME_NODE).filled > 0);
	}
}

static void test_large__admitted_with_frags(void)
{
	if (!xdp.frags)
		return;
	CHECK_EQ(JUDGE(.frag_bytes = 8900), CAREFUL_XDP_ADMITTED);
	CHECK_EQ(JUDGE(.ipv6 = true, .frag_bytes = 15000), CAREFUL_XDP_ADMITTED);
	CHECK_EQ(JUDGE(.frag_bytes = 8900, .frag_bytes_delta = 1), CAREFUL_XDP_DROP_SHORT);
}

static void test_truncated__never_admitted(void)
{
	static struct frame frame;

	for (size_t i = 0; i < GOOD; i++) {
		frame_build(&frame, &good[i]);
		set_peer(FRAME_NODE, frame_cookie, 0);
		/* XDP gets no frame without a whole Ethernet header. */
		for (uint32_t n = 14; n < frame.bytes - good[i].padding; n++) {
			uint32_t what = judge_bytes(frame.data, n);

			CHECK(what == CAREFUL_XDP_PASS_OTHER || what == CAREFUL_XDP_DROP_SHORT);
			if (n >= frame.hdr_at)
				CHECK_EQ(what, CAREFUL_XDP_DROP_SHORT);
		}
		CHECK_EQ(seq_last(FRAME_NODE), 0);
	}
}

static void test_damaged_header__never_admitted(void)
{
	static struct frame frame;

	for (size_t i = 0; i < GOOD; i += 5) {
		frame_build(&frame, &good[i]);
		set_peer(FRAME_NODE, frame_cookie, 0);
		for (uint32_t bit = 0; bit < 8 * sizeof(struct careful_hdr); bit++) {
			uint8_t *byte = &frame.data[frame.hdr_at + bit / 8];
			uint32_t what;

			*byte ^= (uint8_t)(1 << bit % 8);
			what = judge_bytes(frame.data, frame.bytes);
			*byte ^= (uint8_t)(1 << bit % 8);
			if (bit == 8 * offsetof(struct careful_hdr, version) + 7) /* sealed */
				CHECK(what == CAREFUL_XDP_DROP_CHECK ||
				      what == CAREFUL_XDP_DROP_SHORT);
			else if (bit / 8 == offsetof(struct careful_hdr, version))
				CHECK_EQ(what, CAREFUL_XDP_DROP_VERSION);
			else if (bit == 8 * offsetof(struct careful_hdr, type) + 7)
				CHECK_EQ(what, CAREFUL_XDP_PASS_CONTROL);
			else
				CHECK_EQ(what, CAREFUL_XDP_DROP_CHECK);
		}
	}
}

static void test_random__never_admitted(void)
{
	static struct frame frame;
	uint64_t state = 1;

	for (uint32_t i = 0; i < 20000; i++) {
		frame_build(&frame, &good[i % GOOD]);
		set_peer(FRAME_NODE, frame_cookie, 0);
		/* Changes up to seven random bytes, then cuts the frame. */
		for (uint32_t k = 0; k < 1 + i % 7; k++) {
			state = state * 6364136223846793005ULL + 1442695040888963407ULL;
			frame.data[(state >> 33) % frame.bytes] ^= (uint8_t)(state >> 25);
		}
		state = state * 6364136223846793005ULL + 1442695040888963407ULL;
		frame.bytes = 14 + (uint32_t)(state >> 33) % (frame.bytes - 13);
		if (judge_bytes(frame.data, frame.bytes) == CAREFUL_XDP_ADMITTED) {
			/* The damage is in addresses, padding or payload, which are not checked. */
			struct careful_hdr hdr;
			static struct frame again;

			frame_build(&again, &good[i % GOOD]);
			memcpy(&hdr, again.data + again.hdr_at, sizeof(hdr));
			CHECK(memmem(frame.data, frame.bytes, &hdr, sizeof(hdr)));
		}
	}
}

static void test_other__passes(void)
{
	static const uint8_t nothing[64] = { 0 };

	CHECK_EQ(judge_bytes(nothing, 14), CAREFUL_XDP_PASS_OTHER);
	CHECK_EQ(judge_bytes(nothing, 64), CAREFUL_XDP_PASS_OTHER);
	CHECK_EQ(JUDGE(.port = 53, .frag_bytes = 9), CAREFUL_XDP_PASS_OTHER);
	CHECK_EQ(JUDGE(.protocol = 6, .frag_bytes = 9), CAREFUL_XDP_PASS_OTHER);
	CHECK_EQ(JUDGE(.protocol = 6, .ipv6 = true), CAREFUL_XDP_PASS_OTHER);
	CHECK_EQ(JUDGE(.ethertype = 0x0806), CAREFUL_XDP_PASS_OTHER);
	CHECK_EQ(JUDGE(.vlans = 3, .frag_bytes = 9), CAREFUL_XDP_PASS_OTHER);
	CHECK_EQ(JUDGE(.ip_version = 6, .frag_bytes = 9), CAREFUL_XDP_PASS_OTHER);
	CHECK_EQ(JUDGE(.ipv6 = true, .ip_version = 4), CAREFUL_XDP_PASS_OTHER);
	CHECK_EQ(JUDGE(.ihl = 4, .frag_bytes = 9), CAREFUL_XDP_PASS_OTHER);
	CHECK_EQ(JUDGE(.ip_bytes_delta = -60), CAREFUL_XDP_PASS_OTHER);
	/* One extension header too many, and one with too large a length. */
	CHECK_EQ(JUDGE(.ipv6 = true, .exts = 7, .ext = { 0xff, 60, 60, 60, 60, 60, 60 }),
		 CAREFUL_XDP_PASS_OTHER);
	CHECK_EQ(JUDGE(.ipv6 = true, .exts = 1, .ext = { 60 }, .ip_bytes_delta = -60),
		 CAREFUL_XDP_PASS_OTHER);
}

/* An IPv4 header claims an impossibly short length. Then half of an address is in the place of the
 * port, and must not be taken for it. */
static void test_short_ipv4_header__passes(void)
{
	static struct frame frame;

	frame_build(&frame, &(struct shape){ .ihl = 4, .frag_bytes = 9 });
	frame.data[32] = CAREFUL_PORT_DEFAULT >> 8;
	frame.data[33] = CAREFUL_PORT_DEFAULT & 0xff;
	CHECK_EQ(judge_bytes(frame.data, frame.bytes), CAREFUL_XDP_PASS_OTHER);
}

static void test_control__passes_in_any_version(void)
{
	for (uint32_t version = 1; version < 256; version += 2)
		for (uint32_t type = CAREFUL_CTRL_BIT; type < 256; type += 5)
			CHECK_EQ(JUDGE(.version = (uint8_t)version, .type = (uint8_t)type,
				       .bad_check = true),
				 CAREFUL_XDP_PASS_CONTROL);
	CHECK_EQ(JUDGE(.type = CAREFUL_HELLO, .ipv6 = true), CAREFUL_XDP_PASS_CONTROL);
	CHECK_EQ(JUDGE(.type = CAREFUL_HELLO, .vlans = 1), CAREFUL_XDP_PASS_CONTROL);
}

static void test_fragments(void)
{
	/* The first piece is known by its port … */
	CHECK_EQ(JUDGE(.frag_off = 0x2000, .frag_bytes = 9), CAREFUL_XDP_DROP_FRAGMENT);
	CHECK_EQ(JUDGE(.frag_off = 0x2000, .ip_bytes_delta = -8, .frag_bytes = 9),
		 CAREFUL_XDP_DROP_FRAGMENT);
	CHECK_EQ(JUDGE(.ipv6 = true, .exts = 1, .ext = { 44 }, .frag_off = 1),
		 CAREFUL_XDP_DROP_FRAGMENT);
	CHECK_EQ(JUDGE(.ipv6 = true, .exts = 2, .ext = { 44, 60 }, .frag_off = 1),
		 CAREFUL_XDP_DROP_FRAGMENT);
	/* … the others have no port. */
	CHECK_EQ(JUDGE(.frag_off = 0x2001, .frag_bytes = 9), CAREFUL_XDP_PASS_OTHER);
	CHECK_EQ(JUDGE(.frag_off = 0x1fff, .frag_bytes = 9), CAREFUL_XDP_PASS_OTHER);
	CHECK_EQ(JUDGE(.ipv6 = true, .exts = 1, .ext = { 44 }, .frag_off = 8),
		 CAREFUL_XDP_PASS_OTHER);
}

static void test_lengths__must_agree(void)
{
	CHECK_EQ(JUDGE(.frag_bytes = 9, .udp_bytes_delta = 1), CAREFUL_XDP_DROP_SHORT);
	CHECK_EQ(JUDGE(.frag_bytes = 9, .udp_bytes_delta = -1), CAREFUL_XDP_DROP_SHORT);
	CHECK_EQ(JUDGE(.frag_bytes = 9, .udp_bytes_delta = -20), CAREFUL_XDP_DROP_SHORT);
	CHECK_EQ(JUDGE(.frag_bytes = 9, .udp_bytes_delta = -65), CAREFUL_XDP_DROP_SHORT);
	CHECK_EQ(JUDGE(.frag_bytes = 9, .ip_bytes_delta = -1), CAREFUL_XDP_DROP_SHORT);
	CHECK_EQ(JUDGE(.frag_bytes = 9, .frag_bytes_delta = 1), CAREFUL_XDP_DROP_SHORT);
	CHECK_EQ(JUDGE(.frag_bytes = 9, .frag_bytes_delta = -1), CAREFUL_XDP_DROP_SHORT);
	CHECK_EQ(JUDGE(.frag_bytes = 9, .frag_bytes_delta = 65535), CAREFUL_XDP_DROP_SHORT);
	CHECK_EQ(JUDGE(.type = CAREFUL_UPDATE, .frag_bytes = 9), CAREFUL_XDP_DROP_SHORT);
	CHECK_EQ(JUDGE(.type = CAREFUL_UPDATE, .frag_bytes = 9, .frag_bytes_delta = -9),
		 CAREFUL_XDP_DROP_SHORT);
	CHECK_EQ(JUDGE(.type = CAREFUL_UPDATE, .frag_bytes_delta = 9), CAREFUL_XDP_DROP_SHORT);
	/* careful_am and the digest need their flags. */
	CHECK_EQ(JUDGE(.frag_bytes = 48, .flags = CAREFUL_F_FIRST, .frag_bytes_delta = 48),
		 CAREFUL_XDP_DROP_SHORT);
	CHECK_EQ(JUDGE(.frag_bytes = 48, .frag_bytes_delta = -48), CAREFUL_XDP_DROP_SHORT);
}

static void test_redirect__no_socket(void)
{
	xdp_socket(false);
	CHECK_EQ(JUDGE(.frag_bytes = 9), CAREFUL_XDP_DROP_REDIRECT);
	xdp_socket(true);
}

/* Loaded for queue 1; test frames arrive on queue 0. */
static void test_queue__not_ours_passes(void)
{
	CHECK_EQ(JUDGE(.frag_bytes = 9), CAREFUL_XDP_PASS_QUEUE);
	CHECK_EQ(seq_last(FRAME_NODE), 0);
	CHECK_EQ(JUDGE(.type = CAREFUL_HELLO), CAREFUL_XDP_PASS_CONTROL);
	CHECK_EQ(JUDGE(.port = 53), CAREFUL_XDP_PASS_OTHER);
}

static void test_counters__each_other_one_reached(void)
{
	expect_seen(CAREFUL_XDP_PASS_OTHER, CAREFUL_XDP_PASS_QUEUE);
	expect_seen(CAREFUL_XDP_ADMITTED, CAREFUL_XDP_DROP_VERSION);
	expect_seen(CAREFUL_XDP_DROP_REDIRECT, CAREFUL_XDP_COUNTERS - 1);
}

static void run_all(const char *name)
{
	RUN(test_verified__few_instructions);
	RUN(test_good__admitted);
	RUN(test_large__admitted_with_frags);
	RUN(test_truncated__never_admitted);
	RUN(test_damaged_header__never_admitted);
	RUN(test_random__never_admitted);
	RUN(test_other__passes);
	RUN(test_short_ipv4_header__passes);
	RUN(test_control__passes_in_any_version);
	RUN(test_fragments);
	RUN(test_lengths__must_agree);
	RUN(test_redirect__no_socket);
	bpf_object__close(xdp.object);
	CHECK_EQ(xdp_load(name, 1), 0);
	RUN(test_queue__not_ours_passes);
	RUN(test_counters__each_other_one_reached);
}

int main(void)
{
	xdp_each(run_all);
	return 0;
}
