// SPDX-License-Identifier: BSD-2-Clause
/*
 * One plan for every load (P5 figure 3): on an idle path a message is cut as planned, and backlog
 * is sent in the largest frames. The wire is the bottleneck here, with 5 us per frame and 8 ns per
 * byte.
 */
#include "sim.h"

enum {
	WINDOW = 32,
	WIDE = 128, /* holds any message */
	FRAME = 750, /* payload that a frame can hold */
	BYTES = 16 * FRAME,
	BURST = 8,
};

static const double beginning_ms = 3; /* the session is open */

static void begin(uint32_t plan_bytes, uint32_t window)
{
	sim_scene(1);
	scene->options.peers = 1;
	scene->options.rx_buffers = window;
	scene->options.tx_buffers = 4 * WIDE;
	scene->config.wire_g_ns = 5000;
	scene->config.wire_G_ps_per_byte = 8000;
	scene->plan_bytes = plan_bytes;
}

static void begin_open(uint32_t plan_bytes, uint32_t window)
{
	begin(plan_bytes, window);
	sim_op(OP_REQUEST, 0, 16, 0);
}

/* Starts stores at a fixed interval. */
static void stores(uint32_t n, uint32_t bytes, double gap_us)
{
	for (uint32_t i = 0; i < n; i++)
		sim_op(OP_STORE, 0, bytes, beginning_ms + i * gap_us / 1000);
}

/* Returns the time from the first store's start to the last answer. */
static uint64_t play(void)
{
	uint64_t last_ns = 0;

	EXPECT_WELL(sim_play_strictly());
	for (uint32_t i = 0; i < scene->ops_count; i++)
		if (scene->ops[i].done_ns > last_ns)
			last_ns = scene->ops[i].done_ns;
	return last_ns - SIM_START - (uint64_t)(beginning_ms * 1e6);
}

/* Counts the frames with the stores' payload: not updates, requests or answers. */
static uint64_t fragments(void)
{
	uint64_t n = cluster->counters[CAREFUL_C_TX_FRAMES] -
		     cluster->counters[CAREFUL_C_TX_UPDATES] - scene->ops_count;

	for (uint32_t i = 0; i < scene->ops_count; i++)
		n -= scene->ops[i].kind == OP_REQUEST;
	return n;
}

static uint64_t grown(void)
{
	return cluster->counters[CAREFUL_C_TX_GROWN];
}

static uint64_t full_burst_ns(void)
{
	begin_open(FRAME, WINDOW);
	stores(BURST, BYTES, 0);
	return play();
}

/* The plan cuts only the first window's frames, which leave at once. */
static void test_burst__is_as_fast_as_full_frames(void)
{
	uint64_t full_ns = full_burst_ns();

	for (uint32_t plan = 100; plan < FRAME; plan += 50) {
		begin_open(plan, WINDOW);
		stores(BURST, BYTES, 0);
		CHECK(play() <= full_ns + full_ns / 10);
		CHECK(fragments() - grown() < WINDOW);
		CHECK(fragments() <= BURST * BYTES / FRAME + WINDOW);
	}
}

/* The window would hold all of them: they wait for each other. */
static void test_burst__waits_behind_its_first(void)
{
	begin_open(400, WIDE);
	stores(3, BYTES, 0);
	play();
	CHECK_EQ(fragments(), BYTES / 400 + 2 * BYTES / FRAME);
	CHECK_EQ(grown(), 2 * BYTES / FRAME);
}

/* Each store begins shortly before the path has sent the earlier ones. */
static void test_stream__is_as_fast_as_full_frames(void)
{
	uint64_t full_ns;

	begin_open(FRAME, WINDOW);
	stores(OPS_MAX - 1, BYTES, 185);
	full_ns = play();
	for (uint32_t plan = 100; plan < FRAME; plan += 50) {
		begin_open(plan, WINDOW);
		stores(OPS_MAX - 1, BYTES, 185);
		CHECK(play() <= full_ns + full_ns / 10);
	}
}

/* When the second store begins, the first has left this end and is mostly on the path. */
static void test_stream__waits_for_frames_under_way(void)
{
	begin_open(500, WINDOW);
	stores(2, BYTES, 50);
	play();
	CHECK_EQ(fragments(), BYTES / 500 + BYTES / FRAME);
}

/* The device sends nothing for a while, and holds the first store when the second begins. */
static void test_stream__waits_for_the_device(void)
{
	begin_open(500, WIDE);
	stores(2, BYTES, 200);
	sim_fault(SIM_TX_FULL, 0, 0, beginning_ms - 0.1, beginning_ms + 0.3);
	play();
	CHECK_EQ(fragments(), BYTES / 500 + BYTES / FRAME);
}

/* Send buffers for a few frames; the peer has room for all. */
static void test_message__waits_for_send_buffers(void)
{
	begin_open(100, WIDE);
	scene->options.tx_buffers = 32;
	stores(1, BYTES, 0);
	play();
	CHECK(fragments() - grown() < 32);
	CHECK(fragments() < 32 + BYTES / FRAME);
}

static void test_idle__goes_as_planned(void)
{
	static const uint32_t plans[] = { 400, 500, 600, FRAME };

	for (uint32_t i = 0; i < sizeof(plans) / sizeof(plans[0]); i++) {
		begin_open(plans[i], WINDOW);
		stores(BURST, BYTES, 1000);
		play();
		CHECK_EQ(fragments(), BURST * BYTES / plans[i]);
		CHECK_EQ(grown(), 0);
	}
}

/* Also if the window holds only a part of each message. */
static void test_idle__takes_no_longer_than_planned(void)
{
	for (uint32_t plan = 100; plan <= FRAME; plan += 50) {
		uint64_t planned_ns[2], narrow_ns;

		for (uint32_t k = 0; k < 2; k++) {
			begin_open(plan, WIDE);
			stores(1 + k, BYTES, 2000);
			planned_ns[k] = play();
			CHECK_EQ(grown(), 0);
		}
		/* The second takes no longer than the first, since no backlog is left. */
		CHECK(planned_ns[1] - 2000000 <= planned_ns[0] * 102 / 100);
		begin_open(plan, WINDOW);
		stores(1, BYTES, 0);
		narrow_ns = play();
		CHECK(narrow_ns <= planned_ns[0] * 102 / 100);
	}
}

/* After a burst the path is idle again. */
static void test_idle__is_idle_after_a_burst(void)
{
	uint64_t before;

	begin_open(400, WINDOW);
	stores(BURST, BYTES, 0);
	play();
	before = fragments();
	begin_open(400, WINDOW);
	stores(BURST, BYTES, 0);
	sim_op(OP_STORE, 0, BYTES, beginning_ms + 10);
	play();
	CHECK_EQ(fragments() - before, BYTES / 400);
}

/* A session's first message is no backlog, though it waited for the session. */
static void test_idle__the_first_message_of_a_session(void)
{
	begin(400, WINDOW);
	sim_op(OP_STORE, 0, BYTES, 0);
	EXPECT_WELL(sim_play_strictly());
	CHECK_EQ(fragments(), BYTES / 400);
	CHECK_EQ(grown(), 0);
}

int main(void)
{
	sim_init();
	RUN(test_burst__is_as_fast_as_full_frames);
	RUN(test_burst__waits_behind_its_first);
	RUN(test_stream__is_as_fast_as_full_frames);
	RUN(test_stream__waits_for_frames_under_way);
	RUN(test_stream__waits_for_the_device);
	RUN(test_message__waits_for_send_buffers);
	RUN(test_idle__goes_as_planned);
	RUN(test_idle__takes_no_longer_than_planned);
	RUN(test_idle__is_idle_after_a_burst);
	RUN(test_idle__the_first_message_of_a_session);
	cluster_destroy(cluster);
	return 0;
}
