// SPDX-License-Identifier: BSD-2-Clause
/* Few buffers and small tables: operations do not deadlock. */
#include "sim.h"

/* Frames of four buffers, from slow files, and small messages. */
static void scarce(uint64_t seed)
{
	sim_scene(seed);
	scene->shape.segments_max = 8;
	scene->shape.frame_bytes = 4 * scene->shape.buffer_bytes;
	scene->options.tx_buffers = 8;
	scene->options.peers = 1;
	scene->options.rx_buffers = 16;
	scene->files_delay_ns = 50000;
}

static void test_pump__small_messages_and_built_frames_do_not_block_each_other(void)
{
	for (uint64_t seed = 0; seed < 40; seed++) {
		scarce(seed);
		for (uint32_t i = 0; i < 20; i++) {
			struct op *op = sim_op(i % OP_KINDS, i & 1, 1 + i * 599, 0);

			op->from_file = true;
			op->at_ns += sim_hash(seed, 1, i) % SIM_MS;
			op->reply_ns = i % 4 * 100000;
		}
		EXPECT_WELL(sim_play_strictly());
	}
}

/* Both ends ask for more than they can answer and also send. There is room for few bulk messages
 * and answers, and windows are minimal. */
static void test_ask__both_ends_more_than_either_can_answer(void)
{
	for (uint64_t seed = 0; seed < 40; seed++) {
		sim_scene(seed);
		scene->options.peers = 1;
		scene->options.rx_buffers = scene->options.copyout_buffers = 4;
		scene->limits.messages.outs = 2;
		scene->limits.messages.parked = 4 + (uint32_t)seed % 8;
		for (uint32_t i = 0; i < OPS_MAX; i++)
			sim_op(i / 2 % OP_KINDS, i & 1, 3000, 0)->at_ns +=
				sim_hash(seed, 1, i) % SIM_MS;
		EXPECT_WELL(sim_play_strictly());
	}
}

/* The same with gets only: their data needs the credits that the requests would use. */
static void test_get__both_ends_more_than_fit(void)
{
	for (uint64_t seed = 0; seed < 40; seed++) {
		sim_scene(seed);
		scene->options.peers = 1;
		scene->options.rx_buffers = scene->options.copyout_buffers = 4;
		scene->limits.messages.outs = 1;
		for (uint32_t i = 0; i < OPS_MAX; i++)
			sim_op(OP_GET, i & 1, 3000, 0);
		EXPECT_WELL(sim_play_strictly());
	}
}

/* With fewer copies than a window, and stores in all the room, a deadlock is possible. It ends with
 * the session, and the operations fail. */
static void test_get__a_deadlock_ends_with_the_session(void)
{
	uint32_t stalls = 0;

	for (uint64_t seed = 0; seed < 40; seed++) {
		sim_scene(seed);
		scene->options.peers = 1;
		scene->options.rx_buffers = 4;
		scene->options.copyout_buffers = 1;
		scene->options.unpacked = 1;
		scene->limits.messages.outs = 1;
		for (uint32_t i = 0; i < OPS_MAX; i++)
			sim_op(i & 2 ? OP_GET : OP_STORE, i & 1, 3000, 0)->at_ns +=
				sim_hash(seed, 1, i) % SIM_MS;
		sim_fault(SIM_LOSS, 0, 1, 0, 1)->what = 0; /* operations may fail */
		EXPECT_WELL(sim_play());
		stalls += cluster->counters[CAREFUL_C_STALLS] != 0;
	}
	CHECK(stalls > 0);
}

/* Requests that wait for room when their session ends do not delay the next session, which the
 * stores in the room need. */
static void test_ask__waiting_requests_end_with_their_session(void)
{
	uint32_t broken = 0;

	for (uint64_t seed = 0; seed < 40; seed++) {
		sim_scene(seed);
		scene->limits.messages.outs = 2;
		scene->poll_ns = SIM_MS; /* free room is used before the next round */
		for (uint32_t i = 0; i < OPS_MAX; i++)
			sim_op(i & 1 ? OP_GET : OP_STORE, i & 1, 12000, 0);
		sim_fault(SIM_LOSS, 0, 1, 3 + (double)seed, 500)->what = SIM_DATA;
		scene->faults[0].until_ns = scene->faults[0].at_ns + SIM_MS;
		EXPECT_WELL(sim_play());
		broken += scene->faults[0].hits > 0;
		for (uint32_t i = 0; i < OPS_MAX; i++)
			CHECK(scene->ops[i].done_ns < SIM_START + 2000 * SIM_MS);
	}
	CHECK(broken > 5);
}

/* Answers to stores, with room for one. */
static void test_store__each_is_answered(void)
{
	for (uint64_t seed = 0; seed < 40; seed++) {
		sim_scene(seed);
		scene->options.peers = 1;
		scene->options.rx_buffers = scene->options.copyout_buffers = 32;
		scene->limits.messages.parked = 1;
		for (uint32_t i = 0; i < OPS_MAX; i++)
			sim_op(OP_STORE, i & 1, i & 1 ? 20000 % OP_BYTES_MAX : 10, 0);
		EXPECT_WELL(sim_play_strictly());
	}
}

int main(void)
{
	sim_init();
	RUN(test_pump__small_messages_and_built_frames_do_not_block_each_other);
	RUN(test_ask__both_ends_more_than_either_can_answer);
	RUN(test_get__both_ends_more_than_fit);
	RUN(test_get__a_deadlock_ends_with_the_session);
	RUN(test_ask__waiting_requests_end_with_their_session);
	RUN(test_store__each_is_answered);
	cluster_destroy(cluster);
	return 0;
}
