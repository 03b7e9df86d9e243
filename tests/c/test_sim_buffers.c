// SPDX-License-Identifier: BSD-2-Clause
/* Send buffers when there are hardly any: nobody waits for those that another holds. */
#include "sim.h"

/* Frames of four buffers, from files that take their time, and small messages. */
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

int main(void)
{
	sim_init();
	RUN(test_pump__small_messages_and_built_frames_do_not_block_each_other);
	cluster_destroy(cluster);
	return 0;
}
