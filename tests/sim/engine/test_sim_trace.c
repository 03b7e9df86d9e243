// SPDX-License-Identifier: BSD-2-Clause
/* Trace probes at the stages' boundaries cost nothing without listeners. */
#include "device/trace.h"
#include "sim.h"

static void listeners_set(uint16_t listeners)
{
	for (int stage = 0; stage < CAREFUL_STAGES; stage++)
		trace_listeners[stage] = listeners;
}

static void test_begin__the_clock_is_read_for_listeners_alone(void)
{
	uint64_t before = clock_now_ns(), began;

	CHECK_EQ(trace_begin(CAREFUL_STAGE_NET_TX), 0);
	trace_listeners[CAREFUL_STAGE_NET_TX] = 1;
	began = trace_begin(CAREFUL_STAGE_NET_TX);
	CHECK(began >= before && began <= clock_now_ns());
	CHECK_EQ(trace_begin(CAREFUL_STAGE_HOST_TX), 0);
	CHECK_EQ(trace_begin(CAREFUL_STAGE_STORE), 0);
	trace_listeners[CAREFUL_STAGE_NET_TX] = 0;
}

/* Every kind of operation, with slow files and too few buffers, so that some spans never end. */
static void test_end__listeners_do_not_change_traffic(void)
{
	for (uint64_t seed = 0; seed < 20; seed++) {
		sim_scene(seed);
		scene->shape.segments_max = 8;
		scene->shape.frame_bytes = 4 * scene->shape.buffer_bytes;
		scene->options.tx_buffers = 8;
		scene->options.peers = 1;
		scene->options.rx_buffers = 16;
		scene->files_delay_ns = seed % 2 * 50000;
		for (uint32_t i = 0; i < 20; i++) {
			struct op *op = sim_op(i % OP_KINDS, i & 1, 1 + i * 599, 0);

			op->from_file = i % 3;
			op->at_ns += sim_hash(seed, 1, i) % SIM_MS;
		}
		EXPECT_WELL(sim_play_strictly());
	}
}

int main(void)
{
	sim_init();
	RUN(test_begin__the_clock_is_read_for_listeners_alone);
	listeners_set(1);
	RUN(test_end__listeners_do_not_change_traffic);
	listeners_set(0);
	cluster_destroy(cluster);
	return 0;
}
