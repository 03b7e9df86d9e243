// SPDX-License-Identifier: BSD-2-Clause
/*
 * The burst that a path takes, in virtual time. If a queue on the path is shorter than a window,
 * frames are lost unless the path was measured; random losses shrink no window.
 */
#include "sim.h"

enum {
	BUFFERS = 128,
	PEERS = 2,
	WINDOW = BUFFERS / PEERS,
};

static struct careful_peer_info found[2]; /* the nodes' views of each other at the end */
static uint64_t found_ns; /* time when the first session opened */

static void look(struct node *node)
{
	struct careful_peer_info info;

	if (careful_peer_info(node->c, 0, &info) || info.state != CAREFUL_PEER_UP)
		return;
	found[node->port] = info;
	if (!found_ns)
		found_ns = sim_now_ns(node->cluster->world);
}

static void begin(uint64_t seed, uint32_t queue_frames, bool measured)
{
	sim_scene(seed);
	scene->options.peers = PEERS;
	scene->options.rx_buffers = scene->options.copyout_buffers = BUFFERS;
	scene->options.tx_buffers = 2 * BUFFERS;
	scene->options.measure_burst = measured;
	scene->config.queue_frames = queue_frames;
	scene->config.queue_ns = 20000; /* many times a frame's sending time */
	scene->config.seed = seed;
	scene->on_round = look;
	memset(found, 0, sizeof(found));
	found_ns = 0;
	for (uint32_t i = 0; i < 12; i++)
		sim_op(OP_STORE, i & 1, 12000, 0.5 * i);
}

static void expect(uint32_t port, uint32_t verdict, uint32_t frames, uint32_t window)
{
	CHECK_EQ(found[port].burst, verdict);
	CHECK_EQ(found[port].burst_frames, frames);
	CHECK_EQ(found[port].window, window);
	CHECK_EQ(found[!port].credits_window, window);
}

/* Queues of all lengths are found, and nothing is lost. Without repairs the windows are shares of
 * them. */
static void short_queues(enum careful_repair repair)
{
	static const uint32_t queues[] = { 8, 12, 20, 33, 64, 100 };

	for (uint32_t i = 0; i < sizeof(queues) / sizeof(queues[0]); i++) {
		begin(i, queues[i], true);
		scene->options.repair = repair;
		EXPECT_WELL(sim_play_strictly());
		CHECK_EQ(cluster->counters[CAREFUL_C_LOST_FRAMES], 0);
		CHECK_EQ(cluster->counters[CAREFUL_C_EPOCHS_BROKEN], 0);
		for (uint32_t port = 0; port < 2; port++) {
			CHECK_EQ(found[port].burst, CAREFUL_BURST_SHORT);
			/* Some frames leave the queue while the train arrives. */
			CHECK(found[port].burst_frames >= queues[i]);
			CHECK(found[port].burst_frames <= queues[i] + queues[i] / 8 + 1);
			uint32_t share = found[port].burst_frames;

			share = repair == CAREFUL_REPAIR_OFF ? share / PEERS : share;
			share = share < WINDOW ? share : WINDOW;
			expect(port, CAREFUL_BURST_SHORT, found[port].burst_frames,
			       share < 4 ? 4 : share);
		}
	}
}

static void test_short_queue__nothing_is_lost(void)
{
	short_queues(CAREFUL_REPAIR_ON);
	short_queues(CAREFUL_REPAIR_OFF);
}

/* A node with few send buffers sends its trains in batches, between which the queue empties. After
 * the first loss few frames are lost, like on a lossy path, but the train breaks at the right
 * place. */
static void test_short_queue__of_trains_in_batches(void)
{
	begin(1, 25, true);
	scene->options.tx_buffers = 32;
	EXPECT_WELL(sim_play_strictly());
	CHECK_EQ(cluster->counters[CAREFUL_C_LOST_FRAMES], 0);
	for (uint32_t port = 0; port < 2; port++)
		expect(port, CAREFUL_BURST_SHORT, 26, 26); /* one frame leaves meanwhile */
}

/* While a large frame leaves its sender, a frame leaves the queue; tiny frames arrive faster. So
 * after a loss the path is also measured with tiny frames. */
static void test_short_queue__of_small_fragments(void)
{
	begin(1, 52, true);
	scene->options.repair = CAREFUL_REPAIR_OFF;
	scene->options.peers = 1;
	scene->options.rx_buffers = 64;
	scene->config.wire_G_ps_per_byte = 5000;
	scene->plan_bytes = 128;
	for (uint32_t i = 0; i < 12; i++)
		sim_op(OP_STORE, i & 1, 12000, 20 + 20 * i);
	EXPECT_WELL(sim_play());
	CHECK(cluster->counters[CAREFUL_C_LOST_FRAMES] > 0);
	for (uint32_t port = 0; port < 2; port++) {
		CHECK_EQ(found[port].burst, CAREFUL_BURST_SHORT);
		CHECK(found[port].burst_frames >= 52);
		CHECK(found[port].burst_frames <= 54);
		CHECK_EQ(found[port].window, found[port].burst_frames);
	}
}

/* The same path loses frames if it is not measured. */
static void test_short_queue__loses_frames_unmeasured(void)
{
	begin(1, 20, false);
	scene->options.repair = CAREFUL_REPAIR_OFF;
	EXPECT_WELL(sim_play());
	CHECK(cluster->counters[CAREFUL_C_LOST_FRAMES] > 0);
	expect(0, CAREFUL_BURST_UNKNOWN, 0, WINDOW);
}

static void test_long_queue__keeps_the_window(void)
{
	begin(3, BUFFERS, true);
	EXPECT_WELL(sim_play_strictly());
	CHECK_EQ(cluster->counters[CAREFUL_C_LOST_FRAMES], 0);
	for (uint32_t port = 0; port < 2; port++)
		expect(port, CAREFUL_BURST_WHOLE, BUFFERS, WINDOW);
	CHECK_EQ(cluster->epochs, 2); /* one at each end: nothing began again */
}

/* Random losses, few or many, are not taken for a queue. */
static void test_random_loss__keeps_the_window(void)
{
	static const uint32_t rates[] = { 10, 30, 100, 1000 };

	for (uint64_t seed = 1; seed <= 25; seed++) {
		for (size_t i = 0; i < sizeof(rates) / sizeof(rates[0]); i++) {
			begin(seed, 0, true);
			sim_fault(SIM_LOSS, SIM_ANY, SIM_ANY, 0, 60000)->one_in = rates[i];
			EXPECT_WELL(sim_play());
			for (uint32_t port = 0; port < 2; port++) {
				CHECK(found[port].burst != CAREFUL_BURST_SHORT);
				CHECK_EQ(found[port].window, WINDOW);
			}
		}
	}
}

/* A queue is found even if the path also loses at random. */
static void test_random_loss__and_a_short_queue(void)
{
	for (uint64_t seed = 1; seed <= 10; seed++) {
		begin(seed, 24, true);
		sim_fault(SIM_LOSS, SIM_ANY, SIM_ANY, 0, 60000)->one_in = 100;
		EXPECT_WELL(sim_play());
		for (uint32_t port = 0; port < 2; port++) {
			CHECK_EQ(found[port].burst, CAREFUL_BURST_SHORT);
			CHECK(found[port].burst_frames <= 24 + 4);
			CHECK_EQ(found[port].window, found[port].burst_frames);
		}
	}
}

/* Data continues even if all messages of the measurement are lost. */
static void test_lost_messages__data_continues(void)
{
	for (uint64_t seed = 1; seed <= 20; seed++) {
		begin(seed, seed % 2 ? 16 : 0, true);
		sim_fault(SIM_LOSS, SIM_ANY, SIM_ANY, 0, 3000)->one_in = 3;
		scene->faults[0].what = SIM_CONTROL | SIM_PINGS;
		EXPECT_WELL(sim_play());
	}
}

/* The first data waits for two trains, not for a fixed time. */
static void test_long_queue__costs_little_time(void)
{
	begin(5, 0, true);
	EXPECT_WELL(sim_play_strictly());
	CHECK(found_ns - SIM_START < 20 * SIM_MS);
}

int main(void)
{
	sim_init();
	RUN(test_short_queue__nothing_is_lost);
	RUN(test_short_queue__of_trains_in_batches);
	RUN(test_short_queue__of_small_fragments);
	RUN(test_short_queue__loses_frames_unmeasured);
	RUN(test_long_queue__keeps_the_window);
	RUN(test_random_loss__keeps_the_window);
	RUN(test_random_loss__and_a_short_queue);
	RUN(test_lost_messages__data_continues);
	RUN(test_long_queue__costs_little_time);
	cluster_destroy(cluster);
	return 0;
}
