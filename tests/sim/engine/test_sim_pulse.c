// SPDX-License-Identifier: BSD-2-Clause
/*
 * One rule for four stages (P3 section 3, P5): an idle stage takes all waiting bytes as soon as
 * they reach its minpulse or are the message's tail. It takes them in one copy batch, read, kick or
 * write. The wire is so slow that frames arrive one by one.
 */
#include "sim.h"

enum {
	FRAME = 750,
	FRAMES = 16,
	BYTES = FRAMES * FRAME,
	NEVER = 1 << 30,
};

static uint32_t minpulse[CAREFUL_SINKS];
static struct op *op;

/* Counts how often each stage ran. */
static struct {
	uint64_t kicks; /* netTx, at the sender */
	uint32_t reads; /* hostTx, of a file */
	uint32_t copies; /* hostRx, rounds that placed bytes */
	uint32_t writes; /* store */
	uint32_t placed; /* placed bytes of the target */
} took;

static void on_round(struct node *node)
{
	static const uint8_t poison[8] = { POISON, POISON, POISON, POISON,
					   POISON, POISON, POISON, POISON };
	uint32_t placed = took.placed;

	if (node->port == op->from) {
		took.kicks = node->c->link.counters[CAREFUL_C_PULSES];
		took.reads = node->files.reads;
		return;
	}
	while (placed < BYTES && memcmp(op->target + placed, poison, sizeof(poison)) != 0)
		placed += FRAME;
	took.copies += placed > took.placed;
	took.placed = placed;
	took.writes = node->files.writes;
}

static void begin(void)
{
	sim_scene(1);
	scene->options.peers = 1;
	scene->options.rx_buffers = scene->options.tx_buffers = 128;
	scene->config.wire_g_ns = 5000;
	scene->config.wire_G_ps_per_byte = 8000;
	scene->plan_bytes = FRAME;
	scene->minpulse_bytes = minpulse;
	scene->on_round = on_round;
	memset(minpulse, 0, sizeof(minpulse));
	memset(&took, 0, sizeof(took));
	op = sim_op(OP_STORE, 0, BYTES, 0);
}

static void play(void)
{
	EXPECT_WELL(sim_play_strictly());
}

/* By default one kick sends the message, and each arriving frame is copied by itself. */
static void test_pulse__is_zero_by_default(void)
{
	begin();
	scene->minpulse_bytes = NULL;
	play();
	CHECK_EQ(took.kicks, 1);
	CHECK_EQ(took.copies, FRAMES);
}

/* Returns the number of pulses for BYTES with this minpulse; the last may be smaller. */
static uint32_t pulses(uint32_t bytes)
{
	uint32_t frames = bytes ? (bytes + FRAME - 1) / FRAME : 1;

	return frames < FRAMES ? (FRAMES + frames - 1) / frames : 1;
}

static const uint32_t sizes[] = { 0, FRAME, FRAME + 1, 3000, 5000, BYTES, NEVER };

enum { SIZES = sizeof(sizes) / sizeof(sizes[0]) };

/* netTx takes a whole copy batch at once. */
static void test_host_tx__copies(void)
{
	for (uint32_t i = 0; i < SIZES; i++) {
		begin();
		minpulse[CAREFUL_SINK_HOST_TX] = sizes[i];
		play();
		CHECK_EQ(took.kicks, pulses(sizes[i]));
		CHECK_EQ(took.reads, 0);
	}
}

static void test_host_tx__reads(void)
{
	for (uint32_t delay_us = 0; delay_us <= 50; delay_us += 50) {
		for (uint32_t i = 0; i < SIZES; i++) {
			begin();
			op->from_file = true;
			scene->files_delay_ns = delay_us * 1000;
			minpulse[CAREFUL_SINK_HOST_TX] = sizes[i];
			play();
			CHECK_EQ(took.reads, pulses(sizes[i]));
			CHECK_EQ(took.kicks, pulses(sizes[i]));
		}
	}
}

/* A read has at least netTx's minpulse. */
static void test_host_tx__reads_at_least_the_pulse_of_net_tx(void)
{
	for (uint32_t i = 0; i < SIZES; i++) {
		begin();
		op->from_file = true;
		minpulse[CAREFUL_SINK_NET_TX] = sizes[i];
		play();
		CHECK_EQ(took.reads, pulses(sizes[i]));
	}
}

/* A read fills all frames that the peer's window allows, not only one operation's segments. */
static void test_host_tx__reads_all_that_there_is_room_for(void)
{
	begin();
	scene->plan_bytes = 50;
	scene->options.rx_buffers = scene->options.tx_buffers = 512;
	op->from_file = true;
	minpulse[CAREFUL_SINK_HOST_TX] = NEVER;
	play();
	CHECK_EQ(took.reads, 1);
}

/* If the room is smaller than the pulse, the stage takes the room. */
static void test_host_tx__takes_as_much_as_there_is_room(void)
{
	begin();
	scene->options.rx_buffers = 8;
	scene->options.tx_buffers = 8;
	op->from_file = true;
	minpulse[CAREFUL_SINK_HOST_TX] = NEVER;
	play();
	CHECK(took.reads > 2);
	CHECK(took.reads < FRAMES);
}

/* Headers count: a frame has 90 bytes of them, and the message 48. */
static void test_net_tx__kicks(void)
{
	static const uint32_t net_tx[] = { 0, 840, 841, 2520, 2521, 3000, NEVER };
	static const uint32_t kicks[] = { 16, 16, 9, 6, 5, 4, 1 };

	for (uint32_t i = 0; i < sizeof(net_tx) / sizeof(net_tx[0]); i++) {
		begin();
		minpulse[CAREFUL_SINK_NET_TX] = net_tx[i];
		play();
		CHECK_EQ(took.kicks, kicks[i]);
	}
}

/* A device whose frames are complete when the wire has served them. */
static void begin_busy(void)
{
	begin();
	scene->config.zerocopy = true;
}

/* Returns the frames that the wire served for the message, 5 us and 8 ns a byte each. */
static uint64_t frames(void)
{
	return cluster->counters[CAREFUL_C_TX_FRAMES] - cluster->counters[CAREFUL_C_TX_UPDATES] -
	       1; /* the answer */
}

/* While netTx is busy, what is read waits, and leaves in one frame (P3's eager pulses). The wire
 * needs 6 us for a fragment: longer than a fast read, and shorter than a slow one. */
static void test_net_tx__takes_all_when_it_was_busy(void)
{
	static const uint32_t read_us[] = { 2, 32 };
	uint64_t sent[2];

	for (uint32_t i = 0; i < 2; i++) {
		begin_busy();
		scene->plan_bytes = FRAME / 10;
		op->from_file = true;
		scene->files_delay_ns = read_us[i] * 1000;
		minpulse[CAREFUL_SINK_HOST_TX] = 1;
		minpulse[CAREFUL_SINK_NET_TX] = 1;
		play();
		sent[i] = frames();
		CHECK_EQ(took.reads, 10 * FRAMES);
		CHECK_EQ(took.kicks, sent[i]);
	}
	CHECK(sent[0] < 3 * FRAMES);
	CHECK_EQ(sent[1], 10 * FRAMES);
}

/* Fragments that are read one by one gather until they reach minpulse. */
static void test_net_tx__waits_for_its_pulse(void)
{
	begin();
	op->from_file = true;
	minpulse[CAREFUL_SINK_HOST_TX] = 1;
	scene->plan_bytes = FRAME / 10;
	minpulse[CAREFUL_SINK_NET_TX] = FRAME / 2;
	play();
	CHECK_EQ(took.reads, 10 * FRAMES);
	CHECK_EQ(took.kicks, 2 * FRAMES);
	CHECK_EQ(frames(), 2 * FRAMES);
}

/* An exact pulse takes no further bytes. */
static void test_net_tx__takes_exactly_its_pulse(void)
{
	begin_busy();
	op->from_file = true;
	scene->plan_bytes = FRAME;
	minpulse[CAREFUL_SINK_HOST_TX] = 1;
	minpulse[CAREFUL_SINK_NET_TX] = 1 | CAREFUL_MINPULSE_EXACT;
	play();
	CHECK_EQ(frames(), FRAMES);
	CHECK_EQ(took.kicks, FRAMES);
}

/* Messages in memory: the first kick goes as planned, and the rest waits for it. */
static void test_net_tx__the_rest_of_a_message_waits(void)
{
	begin_busy();
	minpulse[CAREFUL_SINK_NET_TX] = 1;
	play();
	CHECK_EQ(frames(), FRAMES);
	CHECK_EQ(took.kicks, 2);
}

static void test_host_rx__copies(void)
{
	for (uint32_t i = 0; i < SIZES; i++) {
		begin();
		minpulse[CAREFUL_SINK_HOST_RX] = sizes[i];
		play();
		CHECK_EQ(took.copies, pulses(sizes[i]));
		CHECK_EQ(took.writes, 0);
	}
}

/* At most half the window is held. */
static void test_host_rx__takes_as_much_as_there_is_room(void)
{
	begin();
	scene->options.rx_buffers = 8;
	minpulse[CAREFUL_SINK_HOST_RX] = NEVER;
	play();
	CHECK_EQ(took.copies, FRAMES / 4);
}

static void test_store__writes(void)
{
	for (uint32_t i = 0; i < SIZES; i++) {
		begin();
		op->to_file = true;
		minpulse[CAREFUL_SINK_STORE] = sizes[i];
		play();
		CHECK_EQ(took.writes, pulses(sizes[i]));
	}
}

/* Bytes that arrive during a write of 100 us become one write after it. */
static void test_store__takes_all_when_it_was_busy(void)
{
	begin();
	op->to_file = true;
	scene->files_delay_ns = 100000;
	play();
	CHECK_EQ(took.writes, 3);
}

/* An exact pulse leaves the rest for the next write. */
static void test_store__writes_exactly_its_pulse(void)
{
	static const uint32_t plans[] = { FRAME, 400 };

	for (uint32_t i = 0; i < 2; i++) {
		begin();
		op->to_file = true;
		scene->plan_bytes = plans[i];
		scene->files_delay_ns = 100000;
		minpulse[CAREFUL_SINK_STORE] = 1 | CAREFUL_MINPULSE_EXACT;
		play();
		CHECK_EQ(took.writes, BYTES / plans[i]);
	}
}

/* Tiny fragments are written together: neither a write's segments nor the window bound their
 * number. */
static void test_store__writes_many_small_fragments_at_once(void)
{
	begin();
	op->to_file = true;
	scene->plan_bytes = 50;
	scene->limits.messages.copies = 8;
	minpulse[CAREFUL_SINK_STORE] = NEVER;
	play();
	CHECK_EQ(took.writes, 1);
}

/* Each sink has its own minpulse. */
static void test_sinks__have_separate_pulses(void)
{
	for (uint32_t from_file = 0; from_file < 2; from_file++) {
		for (uint32_t to_file = 0; to_file < 2; to_file++) {
			begin();
			op->from_file = from_file;
			op->to_file = to_file;
			minpulse[CAREFUL_SINK_NET_TX] = 1700;
			minpulse[CAREFUL_SINK_HOST_TX] = 4 * FRAME;
			minpulse[CAREFUL_SINK_HOST_RX] = 3 * FRAME;
			minpulse[CAREFUL_SINK_STORE] = 8 * FRAME;
			play();
			CHECK_EQ(took.kicks, 4);
			CHECK_EQ(took.reads, from_file ? 4 : 0);
			CHECK_EQ(took.copies, to_file ? 2 : 6);
			CHECK_EQ(took.writes, to_file ? 2 : 0);
		}
	}
}

int main(void)
{
	sim_init();
	RUN(test_pulse__is_zero_by_default);
	RUN(test_host_tx__copies);
	RUN(test_host_tx__reads);
	RUN(test_host_tx__reads_at_least_the_pulse_of_net_tx);
	RUN(test_host_tx__reads_all_that_there_is_room_for);
	RUN(test_host_tx__takes_as_much_as_there_is_room);
	RUN(test_net_tx__kicks);
	RUN(test_net_tx__takes_all_when_it_was_busy);
	RUN(test_net_tx__waits_for_its_pulse);
	RUN(test_net_tx__takes_exactly_its_pulse);
	RUN(test_net_tx__the_rest_of_a_message_waits);
	RUN(test_host_rx__copies);
	RUN(test_host_rx__takes_as_much_as_there_is_room);
	RUN(test_store__writes);
	RUN(test_store__takes_all_when_it_was_busy);
	RUN(test_store__writes_exactly_its_pulse);
	RUN(test_store__writes_many_small_fragments_at_once);
	RUN(test_sinks__have_separate_pulses);
	cluster_destroy(cluster);
	return 0;
}
