// SPDX-License-Identifier: BSD-2-Clause
/*
 * A firewall drops control messages while frames pass: traffic continues, and both ends report it
 * until control messages pass again.
 */
#include "sim.h"

enum {
	ASKS = OPS_MAX,
	ASK_MS = 50,
	WATCH_SYNC_MS = 20,
	DROP_MS = 100, /* of ASKS * ASK_MS = 1200: from here */
	PASS_MS = 1050, /* to here */
	/* Questions are 10 * sync_ms apart; the third that is missed is known at the fourth. */
	SAID_MS = DROP_MS + 10 * WATCH_SYNC_MS * 4 + 2 * ASK_MS,
};

static uint64_t said_ns[2]; /* time of each node's first report */
static bool says[2]; /* whether it reports now */

static void look(struct node *node)
{
	struct careful_peer_info info;

	if (!node->c || careful_peer_info(node->c, 0, &info))
		return;
	says[node->port] = info.flags & CAREFUL_PEER_IS_UNHEARD;
	if (says[node->port] && !said_ns[node->port])
		said_ns[node->port] = sim_now_ns(node->cluster->world) - SIM_START;
}

static void begin(uint64_t seed)
{
	sim_scene(seed);
	scene->options.sync_ms = WATCH_SYNC_MS;
	scene->on_round = look;
	memset(said_ns, 0, sizeof(said_ns));
	for (uint32_t i = 0; i < ASKS; i++)
		sim_op(OP_REQUEST, i & 1, 100, ASK_MS * i);
}

static void test_watch__dropped_control_messages_are_noticed(void)
{
	for (uint64_t seed = 0; seed < 10; seed++) {
		begin(seed);
		sim_fault(SIM_LOSS, (uint32_t)(seed & 1), (uint32_t) !(seed & 1), DROP_MS, PASS_MS)
			->what = SIM_CONTROL;
		EXPECT_WELL(sim_play_strictly());
		CHECK(scene->faults[0].hits > 0);
		CHECK_EQ(cluster->counters[CAREFUL_C_LOST_FRAMES], 0);
		CHECK_EQ(cluster->epochs, 2); /* one at each end: traffic continues */
		for (uint32_t port = 0; port < 2; port++) {
			CHECK(said_ns[port] >= DROP_MS * SIM_MS);
			CHECK(said_ns[port] <= SAID_MS * SIM_MS);
			CHECK(!says[port]); /* they pass again */
		}
	}
}

/* No report if the peer is heard, is idle, or its process is stopped. */
static void test_watch__silent_while_control_messages_pass(void)
{
	for (uint64_t seed = 0; seed < 10; seed++) {
		begin(seed);
		if (seed & 1)
			sim_fault(FAULT_STALL, 0, (uint32_t)(seed >> 1 & 1), DROP_MS, PASS_MS);
		EXPECT_WELL(sim_play());
		CHECK_EQ(said_ns[0] + said_ns[1], 0);
	}
}

int main(void)
{
	sim_init();
	RUN(test_watch__dropped_control_messages_are_noticed);
	RUN(test_watch__silent_while_control_messages_pass);
	cluster_destroy(cluster);
	return 0;
}
