// SPDX-License-Identifier: BSD-2-Clause
/*
 * The XDP program on frames of a sealed session. It cannot check who made them, so it keeps no
 * number, and admits frames that can be next after the engine's last valid one.
 */
#include "xdp.h"

enum { END = sizeof(struct careful_seal_end), TAKEN = 100 };

static void set_sealed(uint32_t window)
{
	const struct careful_peer_entry entry = {
		.cookie = frame_cookie,
		.sealed_window = window,
		.seq_taken = TAKEN,
		.buffer_bytes = BUFFER_BYTES,
		.may_fill = CREDITS,
	};
	const uint32_t slot = FRAME_NODE;

	CHECK(!bpf_map_update_elem(xdp.peers, &slot, &entry, BPF_ANY));
}

/* Judges a sealed frame of the session: `body` bytes and the tag. */
static uint32_t judge_sealed(struct shape shape)
{
	static struct frame frame;

	shape.version = CAREFUL_WIRE_SEALED;
	shape.frag_bytes += END;
	shape.frag_bytes_delta -= END;
	frame_build(&frame, &shape);
	return judge_bytes(frame.data, frame.bytes);
}

/* Judges an unsealed frame in the same session. */
static uint32_t judge_plain(struct shape shape)
{
	static struct frame frame;

	frame_build(&frame, &shape);
	return judge_bytes(frame.data, frame.bytes);
}

#define PLAIN(...) judge_plain((struct shape){ __VA_ARGS__ })
#define SEALED(...) judge_sealed((struct shape){ __VA_ARGS__ })

/* A genuine frame is admitted after a forged one with its number. */
static void test_sealed__a_forged_number_stays_free(void)
{
	set_sealed(WINDOW);
	for (uint32_t i = 0; i < 3; i++) {
		CHECK_EQ(SEALED(.seq = TAKEN + 1, .frag_bytes = 9), CAREFUL_XDP_ADMITTED);
		CHECK_EQ(SEALED(.seq = TAKEN + WINDOW, .frag_bytes = 9), CAREFUL_XDP_ADMITTED);
	}
	CHECK_EQ(SEALED(.seq = TAKEN, .frag_bytes = 9), CAREFUL_XDP_DROP_SEQ);
	CHECK_EQ(SEALED(.seq = TAKEN + WINDOW + 1, .frag_bytes = 9), CAREFUL_XDP_DROP_SEQ);
	CHECK_EQ(seq_last(FRAME_NODE), 0);
	CHECK_EQ(entry_of(FRAME_NODE).seq_taken, TAKEN);
	CHECK_EQ(entry_of(FRAME_NODE).filled, 6);
}

static void test_sealed__buffers_are_charged(void)
{
	set_sealed(WINDOW);
	for (uint32_t i = 0; i < CREDITS; i++)
		CHECK_EQ(SEALED(.seq = TAKEN + 1), CAREFUL_XDP_ADMITTED);
	CHECK_EQ(SEALED(.seq = TAKEN + 1), CAREFUL_XDP_DROP_CREDIT);
}

static void test_sealed__numbers_come_in_any_order(void)
{
	set_sealed(CAREFUL_WINDOW_ANY);
	CHECK_EQ(SEALED(.seq = TAKEN - 9), CAREFUL_XDP_ADMITTED);
	CHECK_EQ(SEALED(.seq = TAKEN + CAREFUL_SEQ_SPAN), CAREFUL_XDP_ADMITTED);
	CHECK_EQ(SEALED(.seq = TAKEN + CAREFUL_SEQ_SPAN + 1), CAREFUL_XDP_DROP_SEQ);
	CHECK_EQ(seq_last(FRAME_NODE), 0);
}

/* An unsealed frame has no number here, and a sealed one has none in a session that does not
 * seal. */
static void test_sealed__and_plain_do_not_mix(void)
{
	set_sealed(WINDOW);
	for (uint32_t seq = TAKEN - 2; seq < TAKEN + 3; seq++)
		CHECK_EQ(PLAIN(.seq = seq), CAREFUL_XDP_DROP_SEQ);
	CHECK_EQ(PLAIN(.seq = 1), CAREFUL_XDP_DROP_SEQ);
	CHECK_EQ(entry_of(FRAME_NODE).filled, 0);
	set_peer(FRAME_NODE, frame_cookie, TAKEN);
	CHECK_EQ(SEALED(.seq = TAKEN + 1), CAREFUL_XDP_DROP_COOKIE);
	CHECK_EQ(seq_last(FRAME_NODE), TAKEN);
}

/* Frames that end here or go to a group are never sealed; a frame without its end is not a
 * frame. */
static void test_sealed__malformed(void)
{
	set_sealed(WINDOW);
	CHECK_EQ(SEALED(.seq = TAKEN + 1, .cookie = 7), CAREFUL_XDP_DROP_COOKIE);
	CHECK_EQ(SEALED(.seq = TAKEN + 1, .bad_check = 1), CAREFUL_XDP_DROP_CHECK);
	CHECK_EQ(SEALED(.type = CAREFUL_TRAIN, .msg_id = 1), CAREFUL_XDP_DROP_TYPE);
	CHECK_EQ(SEALED(.type = CAREFUL_PING, .stage_limit = CAREFUL_STAGE_NET_RX, .msg_id = 1),
		 CAREFUL_XDP_DROP_TYPE);
	CHECK_EQ(SEALED(.seq = TAKEN + 1, .flags = CAREFUL_F_BCAST_EVENT), CAREFUL_XDP_DROP_TYPE);
	CHECK_EQ(PLAIN(.version = CAREFUL_WIRE_SEALED, .seq = TAKEN + 1), CAREFUL_XDP_DROP_SHORT);
	CHECK_EQ(PLAIN(.version = CAREFUL_WIRE_SEALED, .seq = TAKEN + 1, .frag_bytes = END - 1),
		 CAREFUL_XDP_DROP_SHORT);
	CHECK_EQ(entry_of(FRAME_NODE).filled, 0);
}

/* A forged ping's number does not prevent the timing of a true one. */
static void test_sealed__pings_are_timed_after_forged_ones(void)
{
	set_sealed(WINDOW);
	CHECK_EQ(SEALED(.seq = TAKEN + 1, .type = CAREFUL_PING, .msg_id = 0x7fffffff,
			.stage_limit = CAREFUL_STAGE_HOST_RX),
		 CAREFUL_XDP_ADMITTED);
	CHECK_EQ(entry_of(FRAME_NODE).probe_last, 0x7fffffff);
	CHECK_EQ(SEALED(.seq = TAKEN + 1, .type = CAREFUL_PING, .msg_id = 1,
			.stage_limit = CAREFUL_STAGE_HOST_RX),
		 CAREFUL_XDP_ADMITTED);
	CHECK_EQ(entry_of(FRAME_NODE).probe_last, 1);
	CHECK_EQ(PLAIN(.type = CAREFUL_PING, .stage_limit = CAREFUL_STAGE_NET_RX, .msg_id = 1),
		 CAREFUL_XDP_PASS_PING);
}

static void test_all(const char *name)
{
	(void)name;
	RUN(test_sealed__a_forged_number_stays_free);
	RUN(test_sealed__buffers_are_charged);
	RUN(test_sealed__numbers_come_in_any_order);
	RUN(test_sealed__and_plain_do_not_mix);
	RUN(test_sealed__malformed);
	RUN(test_sealed__pings_are_timed_after_forged_ones);
}

int main(void)
{
	xdp_each(test_all);
	return 0;
}
