// SPDX-License-Identifier: BSD-2-Clause
/*
 * The XDP program on whole frames: valid headers, admission by cookie and sequence number, and
 * notes of pings.
 */
#include <time.h>

#include "frame_rule.h"
#include "xdp.h"

static void test_header__each_reason(void)
{
	CHECK_EQ(JUDGE(.version = CAREFUL_WIRE_VERSION + 1), CAREFUL_XDP_DROP_VERSION);
	CHECK_EQ(JUDGE(.version = 255, .bad_check = true), CAREFUL_XDP_DROP_VERSION);
	CHECK_EQ(JUDGE(.bad_check = true), CAREFUL_XDP_DROP_CHECK);
	for (uint32_t type = CAREFUL_ACK + 1; type < CAREFUL_CTRL_BIT; type++)
		CHECK_EQ(JUDGE(.type = (uint8_t)type), CAREFUL_XDP_DROP_TYPE);
	CHECK_EQ(JUDGE(.node = PEERS), CAREFUL_XDP_DROP_NODE);
	CHECK_EQ(JUDGE(.node = CAREFUL_PEERS_MAX), CAREFUL_XDP_DROP_NODE);
	CHECK_EQ(JUDGE(.node = 65535), CAREFUL_XDP_DROP_NODE);
	CHECK_EQ(JUDGE(.cookie = frame_cookie + 1), CAREFUL_XDP_DROP_COOKIE);
	CHECK_EQ(JUDGE(.node = PEERS - 1), CAREFUL_XDP_DROP_COOKIE);
}

/* The engine uses the same rule (tests/datapath/include/test_frame.c). */
static void test_header__every_type_flag_limit_and_length(void)
{
	static struct frame frame;
	LIBBPF_OPTS(bpf_test_run_opts, run, .data_in = frame.data, .repeat = 1);
	struct rule_case at;
	uint32_t step = 0;

	while (rule_next(&at, &step, CAREFUL_ACK + 1)) {
		enum rule rule = rule_of(at.type, at.flags, at.limit, at.frag_bytes, at.body_bytes);
		uint32_t want = rule == RULE_IN	  ? XDP_REDIRECT :
				rule == RULE_PING ? XDP_PASS :
						    XDP_DROP;

		rule_frame(&at, &frame);
		set_peer(FRAME_NODE, frame_cookie, 0);
		run.data_size_in = frame.bytes;
		run.data_size_out = 0;
		CHECK_EQ(bpf_prog_test_run_opts(xdp.program, &run), 0);
		if (run.retval != want)
			fprintf(stderr, "type %u, flags 0x%02x, limit %u, %u bytes, %u follow\n",
				at.type, at.flags, at.limit, at.frag_bytes, at.body_bytes);
		CHECK_EQ(run.retval, want);
		CHECK_EQ(entry_of(FRAME_NODE).filled > 0, rule == RULE_IN);
	}
}

/* A closed slot's cookie is 0, which must not open it. */
static void test_cookie__zero_opens_nothing(void)
{
	static struct frame frame;
	struct careful_hdr hdr;

	frame_build(&frame, &(struct shape){ .frag_bytes = 9 });
	memcpy(&hdr, frame.data + frame.hdr_at, sizeof(hdr));
	hdr.cookie = 0;
	hdr.check = 0;
	hdr.check = htobe32(careful_hdr_check(&hdr));
	memcpy(frame.data + frame.hdr_at, &hdr, sizeof(hdr));
	set_peer(FRAME_NODE, 0, 0);
	CHECK_EQ(judge_bytes(frame.data, frame.bytes), CAREFUL_XDP_DROP_COOKIE);
}

static void check_seq(uint32_t last, uint32_t seq, uint32_t want)
{
	static struct frame frame;

	frame_build(&frame, &(struct shape){ .frag_bytes = 9, .seq = 1 });
	/* Built by hand, because 0 in a shape means 1. */
	struct careful_hdr hdr;

	memcpy(&hdr, frame.data + frame.hdr_at, sizeof(hdr));
	hdr.seq = htobe32(seq);
	hdr.check = htobe32(careful_hdr_check(&hdr));
	memcpy(frame.data + frame.hdr_at, &hdr, sizeof(hdr));
	set_peer(FRAME_NODE, frame_cookie, last);
	CHECK_EQ(judge_bytes(frame.data, frame.bytes), want);
	CHECK_EQ(entry_of(FRAME_NODE).filled, want == CAREFUL_XDP_ADMITTED);
	/* A repeated frame: the engine drops it and returns its charge. */
	CHECK_EQ(judge_bytes(frame.data, frame.bytes), want);
}

static void test_seq__window_and_wrap_around(void)
{
	static const uint32_t lasts[] = { 0,	      1,	  100,	      0x7ffffffd,
					  0x7fffffff, 0x80000000, 0xfffffff0, 0xfffffff7,
					  0xfffffff8, 0xfffffffe, 0xffffffff };

	for (size_t i = 0; i < sizeof(lasts) / sizeof(lasts[0]); i++) {
		uint32_t last = lasts[i];

		for (uint32_t ahead = 1; ahead <= WINDOW; ahead++)
			check_seq(last, last + ahead, CAREFUL_XDP_ADMITTED);
		check_seq(last, last + WINDOW + 1, CAREFUL_XDP_DROP_SEQ);
		check_seq(last, last, CAREFUL_XDP_DROP_SEQ);
		check_seq(last, last - 1, CAREFUL_XDP_DROP_SEQ);
		check_seq(last, last - WINDOW, CAREFUL_XDP_DROP_SEQ);
		check_seq(last, last + 0x80000000U, CAREFUL_XDP_DROP_SEQ);
	}
}

static uint32_t judge_seq(uint32_t seq)
{
	static struct frame frame;

	frame_build(&frame, &(struct shape){ .frag_bytes = 9, .seq = seq });
	return judge_bytes(frame.data, frame.bytes);
}

/* XDP reads the engine's progress if a number is beyond the known window. */
static void test_seq__follows_the_engine(void)
{
	struct careful_peer_entry entry;
	const uint32_t slot = FRAME_NODE;

	set_peer(slot, frame_cookie, 0);
	entry = entry_of(slot);
	entry.seq_taken = 3;
	CHECK(!bpf_map_update_elem(xdp.peers, &slot, &entry, BPF_ANY));
	CHECK_EQ(judge_seq(WINDOW), CAREFUL_XDP_ADMITTED);
	CHECK_EQ(seq_last(slot), 0);
	CHECK_EQ(judge_seq(WINDOW + 3), CAREFUL_XDP_ADMITTED);
	CHECK_EQ(seq_last(slot), 3);
	CHECK_EQ(judge_seq(3), CAREFUL_XDP_DROP_SEQ);
	CHECK_EQ(judge_seq(WINDOW + 4), CAREFUL_XDP_DROP_SEQ);
}

/* Judges the next frame in sequence, with this much padding behind the datagram. */
static uint32_t judge_next(uint32_t frag_bytes, uint32_t padding)
{
	static struct frame frame;
	const struct shape shape = {
		.frag_bytes = frag_bytes,
		.padding = padding,
		.seq = seq_last(FRAME_NODE) + 1,
	};

	frame_build(&frame, &shape);
	return judge_bytes(frame.data, frame.bytes);
}

static void grant(uint32_t may_fill)
{
	struct careful_peer_entry entry = entry_of(FRAME_NODE);
	const uint32_t slot = FRAME_NODE;

	entry.may_fill = may_fill;
	CHECK(!bpf_map_update_elem(xdp.peers, &slot, &entry, BPF_ANY));
}

/* Each frame takes at least one buffer. Only returned buffers are taken, whatever the number. */
static void test_credits__end_a_burst(void)
{
	set_peer(FRAME_NODE, frame_cookie, 0);
	for (uint32_t i = 0; i < CREDITS; i++)
		CHECK_EQ(judge_next(9, 0), CAREFUL_XDP_ADMITTED);
	for (uint32_t i = 0; i < 512; i++)
		CHECK_EQ(judge_next(9, 0), CAREFUL_XDP_DROP_CREDIT);
	CHECK_EQ(entry_of(FRAME_NODE).filled, CREDITS);
	grant(CREDITS + 2);
	CHECK_EQ(judge_next(9, 0), CAREFUL_XDP_ADMITTED);
	CHECK_EQ(judge_next(9, 0), CAREFUL_XDP_ADMITTED);
	CHECK_EQ(judge_next(9, 0), CAREFUL_XDP_DROP_CREDIT);
	/* The counters pass 2^32. */
	struct careful_peer_entry entry = entry_of(FRAME_NODE);
	const uint32_t slot = FRAME_NODE;

	entry.filled = entry.limit = 0xffffffff;
	entry.may_fill = 0;
	CHECK(!bpf_map_update_elem(xdp.peers, &slot, &entry, BPF_ANY));
	CHECK_EQ(judge_next(9, 0), CAREFUL_XDP_ADMITTED);
	CHECK_EQ(judge_next(9, 0), CAREFUL_XDP_DROP_CREDIT);
}

/* The size of a frame counts, and not the size in its headers. */
static void test_credits__padding_is_charged(void)
{
	set_peer(FRAME_NODE, frame_cookie, 0);
	CHECK_EQ(judge_next(9, BUFFER_BYTES), CAREFUL_XDP_ADMITTED);
	CHECK_EQ(entry_of(FRAME_NODE).filled, 2);
	set_peer(FRAME_NODE, frame_cookie, 0);
	grant(1);
	CHECK_EQ(judge_next(9, BUFFER_BYTES), CAREFUL_XDP_DROP_CREDIT);
	CHECK_EQ(judge_next(9, 0), CAREFUL_XDP_ADMITTED);
}

static void check_any(uint32_t last, uint32_t seq, uint32_t want, uint32_t then)
{
	const uint32_t slot = FRAME_NODE;
	const struct careful_peer_entry entry = {
		.cookie = frame_cookie,
		.seq_last = last,
		.window = CAREFUL_WINDOW_ANY,
	};
	static struct frame frame;
	struct careful_hdr hdr;

	frame_build(&frame, &(struct shape){ .frag_bytes = 9, .seq = 1 });
	memcpy(&hdr, frame.data + frame.hdr_at, sizeof(hdr));
	hdr.seq = htobe32(seq);
	hdr.check = htobe32(careful_hdr_check(&hdr));
	memcpy(frame.data + frame.hdr_at, &hdr, sizeof(hdr));
	CHECK(!bpf_map_update_elem(xdp.peers, &slot, &entry, BPF_ANY));
	CHECK_EQ(judge_bytes(frame.data, frame.bytes), want);
	CHECK_EQ(seq_last(FRAME_NODE), then);
}

/* With the traditional protocol a late or repeated frame is admitted, and the last number stays. */
static void test_seq__traditional_admits_near_numbers(void)
{
	static const uint32_t lasts[] = { 0, 1, 0x7fffffff, 0x80000000, 0xffffffff };

	for (size_t i = 0; i < sizeof(lasts) / sizeof(lasts[0]); i++) {
		uint32_t last = lasts[i], span = CAREFUL_SEQ_SPAN;

		check_any(last, last + 1, CAREFUL_XDP_ADMITTED, last + 1);
		check_any(last, last + span, CAREFUL_XDP_ADMITTED, last + span);
		check_any(last, last + span + 1, CAREFUL_XDP_DROP_SEQ, last);
		check_any(last, last, CAREFUL_XDP_ADMITTED, last);
		check_any(last, last - 1, CAREFUL_XDP_ADMITTED, last);
		check_any(last, last - span, CAREFUL_XDP_ADMITTED, last);
		check_any(last, last - span - 1, CAREFUL_XDP_DROP_SEQ, last);
	}
}

/* A NET_RX probe is stamped and passed, outside the session's sequence. */
static void test_ping__net_rx_is_never_redirected(void)
{
	static struct frame frame;
	struct careful_peer_entry entry;
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	CHECK_EQ(JUDGE(.type = CAREFUL_PING, .stage_limit = CAREFUL_STAGE_NET_RX, .msg_id = 7,
		       .seq = 1, .frag_bytes = 1400),
		 CAREFUL_XDP_PASS_PING);
	entry = entry_of(FRAME_NODE);
	CHECK_EQ(entry.seq_last, 0);
	CHECK_EQ(entry.probe_last, 7);
	CHECK(entry.probe_ns >= (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec);
	/* Replays and older pings get no answer. */
	for (uint32_t probe = 7; probe > 4; probe--) {
		frame_build(&frame, &(struct shape){ .type = CAREFUL_PING,
						     .stage_limit = CAREFUL_STAGE_NET_RX,
						     .msg_id = probe });
		CHECK_EQ(judge_bytes(frame.data, frame.bytes), CAREFUL_XDP_DROP_PING);
		CHECK_EQ(entry_of(FRAME_NODE).probe_ns, entry.probe_ns);
	}
}

static void test_ping__later_stages_are_in_sequence(void)
{
	static struct frame frame;

	for (uint32_t limit = CAREFUL_STAGE_HOST_RX; limit <= CAREFUL_STAGE_STORE; limit++) {
		struct shape shape = { .type = CAREFUL_PING,
				       .stage_limit = (uint8_t)limit,
				       .msg_id = 1,
				       .frag_bytes = 600 };

		CHECK_EQ(judge(&shape), CAREFUL_XDP_ADMITTED);
		CHECK_EQ(entry_of(FRAME_NODE).filled, 1);
		CHECK_EQ(entry_of(FRAME_NODE).probe_last, 1);
		frame_build(&frame, &shape);
		CHECK_EQ(judge_bytes(frame.data, frame.bytes), CAREFUL_XDP_DROP_PING);
		shape.msg_id = 2; /* a new ping; the engine checks its number */
		frame_build(&frame, &shape);
		CHECK_EQ(judge_bytes(frame.data, frame.bytes), CAREFUL_XDP_ADMITTED);
		CHECK_EQ(entry_of(FRAME_NODE).probe_last, 2);
	}
}

static void test_ping__a_stranger_gets_nothing(void)
{
	for (uint32_t limit = 0; limit <= CAREFUL_STAGE_STORE; limit++) {
		struct shape shape = { .type = CAREFUL_PING,
				       .stage_limit = (uint8_t)limit,
				       .msg_id = 1,
				       .frag_bytes = 9 };
		uint32_t right = limit < CAREFUL_STAGE_NET_RX ? CAREFUL_XDP_DROP_PING :
								CAREFUL_XDP_DROP_COOKIE;

		shape.cookie = frame_cookie ^ 1;
		CHECK_EQ(judge(&shape), right);
		CHECK_EQ(entry_of(FRAME_NODE).probe_last, 0);
		shape.bad_check = true;
		CHECK_EQ(judge(&shape), CAREFUL_XDP_DROP_CHECK);
	}
	CHECK_EQ(JUDGE(.type = CAREFUL_PING, .stage_limit = CAREFUL_STAGES, .msg_id = 1),
		 CAREFUL_XDP_DROP_PING);
	CHECK_EQ(JUDGE(.type = CAREFUL_PING, .stage_limit = CAREFUL_STAGE_NET_RX, .node = PEERS,
		       .msg_id = 1),
		 CAREFUL_XDP_DROP_NODE);
	CHECK_EQ(JUDGE(.type = CAREFUL_PING, .stage_limit = CAREFUL_STAGE_NET_RX, .msg_id = 1,
		       .frag_bytes_delta = 1),
		 CAREFUL_XDP_DROP_SHORT);
}

/* Sets a slot whose engine asked for a train. */
static void set_train(uint32_t number)
{
	const struct careful_peer_entry entry = {
		.cookie = frame_cookie,
		.window = WINDOW,
		.train = number,
	};
	const uint32_t slot = FRAME_NODE;

	CHECK(!bpf_map_update_elem(xdp.peers, &slot, &entry, BPF_ANY));
}

static uint32_t judge_train(uint32_t number, uint32_t index, uint64_t cookie)
{
	static struct frame frame;
	struct careful_hdr hdr;

	frame_build(&frame, &(struct shape){ .type = CAREFUL_TRAIN,
					     .cookie = cookie,
					     .msg_id = number,
					     .frag_bytes = 1400 });
	memcpy(&hdr, frame.data + frame.hdr_at, sizeof(hdr));
	hdr.frag_off = htobe32(index);
	hdr.check = 0;
	hdr.check = htobe32(careful_hdr_check(&hdr));
	memcpy(frame.data + frame.hdr_at, &hdr, sizeof(hdr));
	return judge_bytes(frame.data, frame.bytes);
}

static void expect_train(uint32_t frames, uint32_t whole)
{
	struct careful_peer_entry entry = entry_of(FRAME_NODE);

	CHECK_EQ(entry.train_frames, frames);
	CHECK_EQ(entry.train_whole, whole);
	CHECK(entry.train_first_ns <= entry.train_last_ns);
	CHECK_EQ(!entry.train_first_ns, !frames);
	CHECK_EQ(entry.seq_last, 0);
	CHECK_EQ(entry.probe_last, 0);
}

/* Train frames are counted and dropped; frames behind a missing one do not count as whole. */
static void test_train__is_counted_and_dropped(void)
{
	set_train(9);
	for (uint32_t i = 0; i < 5; i++)
		CHECK_EQ(judge_train(9, i, frame_cookie), CAREFUL_XDP_DROP_TRAIN);
	expect_train(5, 5);
	for (uint32_t i = 7; i < 10; i++)
		CHECK_EQ(judge_train(9, i, frame_cookie), CAREFUL_XDP_DROP_TRAIN);
	expect_train(8, 5);
	CHECK_EQ(judge_train(9, 4, frame_cookie), CAREFUL_XDP_DROP_TRAIN); /* a duplicate */
	expect_train(9, 5);
	CHECK_EQ(judge_train(9, 0xffffffff, frame_cookie), CAREFUL_XDP_DROP_TRAIN);
	expect_train(10, 5);
}

/* An unrequested train does not count; a stranger's frame is dropped earlier. */
static void test_train__not_asked_for(void)
{
	set_train(9);
	CHECK_EQ(judge_train(8, 0, frame_cookie), CAREFUL_XDP_DROP_TRAIN);
	CHECK_EQ(judge_train(0, 0, frame_cookie), CAREFUL_XDP_DROP_TRAIN);
	CHECK_EQ(judge_train(9, 0, frame_cookie ^ 1), CAREFUL_XDP_DROP_COOKIE);
	expect_train(0, 0);
	set_train(0);
	CHECK_EQ(judge_train(0, 0, frame_cookie), CAREFUL_XDP_DROP_TRAIN);
	expect_train(0, 0);
}

static void test_counters__each_of_a_session_reached(void)
{
	expect_seen(CAREFUL_XDP_PASS_PING, CAREFUL_XDP_ADMITTED);
	expect_seen(CAREFUL_XDP_DROP_VERSION, CAREFUL_XDP_DROP_TRAIN);
}

static void run_all(const char *name)
{
	(void)name;
	RUN(test_header__each_reason);
	RUN(test_header__every_type_flag_limit_and_length);
	RUN(test_cookie__zero_opens_nothing);
	RUN(test_seq__window_and_wrap_around);
	RUN(test_seq__follows_the_engine);
	RUN(test_credits__end_a_burst);
	RUN(test_credits__padding_is_charged);
	RUN(test_seq__traditional_admits_near_numbers);
	RUN(test_ping__net_rx_is_never_redirected);
	RUN(test_ping__later_stages_are_in_sequence);
	RUN(test_ping__a_stranger_gets_nothing);
	RUN(test_train__is_counted_and_dropped);
	RUN(test_train__not_asked_for);
	RUN(test_counters__each_of_a_session_reached);
}

int main(void)
{
	xdp_each(run_all);
	return 0;
}
