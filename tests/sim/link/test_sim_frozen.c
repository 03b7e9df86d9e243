// SPDX-License-Identifier: BSD-2-Clause
/*
 * A disk that hangs, in virtual time. Gets to it and stores on it wait; other traffic between the
 * same nodes is almost as fast as alone.
 */
#include "sim.h"

#include <errno.h>

enum {
	WINDOW = 32,
	STUCK = 6, /* messages for the disk, three windows' worth */
	OTHERS = 12,
	BYTES = OP_BYTES_MAX,
	COPIES = 16,
};

static const double beginning_ms = 5, thaw_ms = 1500;
static bool unread; /* the first operation failed with EIO */

static void begin(uint64_t seed, uint32_t copies)
{
	sim_scene(seed);
	scene->options.peers = 1;
	scene->options.rx_buffers = WINDOW;
	scene->options.tx_buffers = 4 * WINDOW;
	scene->limits.messages.copies = copies;
	scene->thaw_ns = SIM_START + (uint64_t)(thaw_ms * 1e6);
	sim_op(OP_REQUEST, 0, 16, 0); /* the session is open */
}

/* Node 0's disk hangs during its gets from node 1, or node 1's stores. */
static void hang(uint32_t kind)
{
	for (uint32_t i = 0; i < STUCK; i++) {
		struct op *op = sim_op(kind, kind == OP_STORE, BYTES, beginning_ms - 0.5);

		op->to_file = true;
		scene->frozen_files |= 1ull << (op->index + (kind == OP_GET ? OPS_MAX : 0));
	}
}

/* Runs other traffic in both directions and returns its duration. */
static uint64_t others_ns(void)
{
	uint32_t first = scene->ops_count;
	uint64_t last_ns = 0;

	for (uint32_t i = 0; i < OTHERS; i++)
		sim_op(i % 4 == 3 ? OP_REQUEST :
		       i & 1	  ? OP_STORE :
				    OP_GET,
		       i / 2 & 1, i % 4 == 3 ? 100 : BYTES, beginning_ms);
	EXPECT_WELL(sim_play_strictly());
	for (uint32_t i = first; i < scene->ops_count; i++)
		if (scene->ops[i].done_ns > last_ns)
			last_ns = scene->ops[i].done_ns;
	return last_ns - SIM_START - (uint64_t)(beginning_ms * 1e6);
}

static void disk_hangs(uint32_t kind)
{
	for (uint64_t seed = 0; seed < 20; seed++) {
		uint64_t alone_ns, beside_ns;

		begin(seed, COPIES);
		alone_ns = others_ns();
		begin(seed, COPIES);
		hang(kind);
		beside_ns = others_ns();
		CHECK(beside_ns * 4 <= alone_ns * 5);
		for (uint32_t i = 1; i <= STUCK; i++)
			CHECK(scene->ops[i].done_ns >= scene->thaw_ns);
		CHECK(cluster->counters[CAREFUL_C_COPIED_OUT] > 0);
	}
}

static void test_get__to_a_hanging_disk_delays_no_other(void)
{
	disk_hangs(OP_GET);
}

static void test_store__on_a_hanging_disk_delays_no_other(void)
{
	disk_hangs(OP_STORE);
}

/* With too little room for copies, the sender waits until the disk works again. */
static void test_copies__with_little_room_all_operations_succeed(void)
{
	for (uint64_t seed = 0; seed < 20; seed++) {
		begin(seed, (uint32_t)seed % 4);
		hang(OP_GET);
		others_ns();
		begin(seed, (uint32_t)seed % 4);
		hang(OP_STORE);
		others_ns();
	}
}

/* Node 0's disk hangs as soon as it has read the store to node 1. */
static void freeze(struct node *node)
{
	const struct op *op = &scene->ops[0];

	unread |= op->last_status == -EIO;
	if (node->port || !node->c || node->files.frozen || !node->c->messages.retained)
		return;
	node->files.frozen = 1ull << (OPS_MAX + op->index);
	node->files.thaw_ns = scene->thaw_ns;
}

/* A lost fragment waits for the disk until late_ms. Fragments for another node are sent again
 * meanwhile, and no message from a healthy disk fails. */
static void lost_while_hanging(uint64_t seed, double late_ms)
{
	const struct op *same; /* to the same node */

	sim_scene(seed);
	scene->nodes = 3;
	scene->shape.segments_max = 2; /* such fragments are read again from their source */
	scene->shape.frame_bytes *= 2;
	scene->plan_bytes = scene->shape.frame_bytes;
	scene->thaw_ns = SIM_START + (uint64_t)(late_ms * 1e6);
	scene->on_round = freeze;
	scene->excused = late_ms > 1000;
	unread = false;
	sim_op(OP_STORE, 0, BYTES, 0)->from_file = true;
	for (uint32_t i = 0; i < OTHERS; i++) {
		struct op *op = sim_op(OP_STORE, 0, BYTES, beginning_ms + i);

		op->to = 2;
		op->from_file = i % 2;
	}
	sim_op(OP_STORE, 0, BYTES, 1)->from_file = true;
	same = &scene->ops[scene->ops_count - 1];
	sim_fault(SIM_LOSS, 0, SIM_ANY, 0, 100)->one_in = 4;
	EXPECT_WELL(sim_play());
	CHECK_EQ(cluster->counters[CAREFUL_C_EPOCHS_BROKEN], 0);
	CHECK_EQ(same->last_status, 0);
	for (uint32_t i = 1; i <= OTHERS; i++)
		CHECK(scene->ops[i].done_ns < SIM_START + 200 * SIM_MS);
}

static void test_repair__from_a_hanging_disk_delays_no_other(void)
{
	uint32_t waited = 0;

	for (uint64_t seed = 0; seed < 20; seed++) {
		lost_while_hanging(seed, 700);
		CHECK(!unread);
		waited += scene->ops[0].done_ns >= scene->thaw_ns;
	}
	CHECK(waited > 5); /* else no lost fragment was read again */
}

/* The disk hangs for longer than a receiver waits for a frame: the message fails, and the session
 * continues. */
static void test_repair__from_a_disk_that_hangs_for_long_ends_its_message(void)
{
	uint32_t failed = 0;

	for (uint64_t seed = 0; seed < 20; seed++) {
		lost_while_hanging(seed, 5000);
		failed += unread;
	}
	CHECK(failed > 5);
}

int main(void)
{
	sim_init();
	RUN(test_get__to_a_hanging_disk_delays_no_other);
	RUN(test_store__on_a_hanging_disk_delays_no_other);
	RUN(test_copies__with_little_room_all_operations_succeed);
	RUN(test_repair__from_a_hanging_disk_delays_no_other);
	RUN(test_repair__from_a_disk_that_hangs_for_long_ends_its_message);
	cluster_destroy(cluster);
	return 0;
}
