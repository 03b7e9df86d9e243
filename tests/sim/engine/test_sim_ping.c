// SPDX-License-Identifier: BSD-2-Clause
/* Pings next to other work in virtual time: both ends agree on credits after every round. */
#include "sim.h"

static void begin(uint64_t seed)
{
	sim_scene(seed);
	scene->pings = true;
	scene->config.ipv6 = seed % 2;
	for (uint32_t i = 0; i < 12; i++)
		sim_op(i % OP_KINDS, i & 1, 1 + 700 * i, 2.0 * i);
}

static void expect_all_stages(void)
{
	for (uint32_t stage = CAREFUL_STAGE_NET_RX; stage <= CAREFUL_STAGE_STORE; stage++)
		CHECK(cluster->pings[stage] >= 3);
}

static void test_sim_ping__beside_work(void)
{
	for (uint64_t seed = 1; seed <= 20; seed++) {
		begin(seed);
		scene->files_delay_ns = seed % 3 * 20000;
		EXPECT_WELL(sim_play_strictly());
		expect_all_stages();
	}
}

/* A probe outside the session that is lost, late, repeated or damaged costs the session nothing. */
static void test_sim_ping__mishaps_outside_the_session(void)
{
	static const uint32_t kinds[] = { SIM_LOSS, SIM_DUPLICATE, SIM_REORDER, SIM_CORRUPT,
					  SIM_TRUNCATE };

	for (uint64_t seed = 1; seed <= 10; seed++) {
		begin(seed);
		for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
			struct sim_fault *fault = sim_fault(kinds[i], SIM_ANY, SIM_ANY, 0, 12);

			fault->what = SIM_PINGS;
			fault->one_in = 4;
			fault->amount = 300000;
		}
		EXPECT_WELL(sim_play_strictly());
		expect_all_stages();
	}
}

static void test_sim_ping__replays_and_copies_are_not_answered(void)
{
	for (uint64_t seed = 1; seed <= 20; seed++) {
		begin(seed);
		sim_fault(SIM_DUPLICATE, 0, 1, 0, 30)->amount = 100000;
		sim_fault(SIM_REPLAY, 0, 1, 1, 30)->amount = 100000;
		EXPECT_WELL(sim_play_strictly());
		expect_all_stages();
	}
}

/* The work and the probes end with any losses. */
static void test_sim_ping__losses(void)
{
	for (uint64_t seed = 1; seed <= 20; seed++) {
		begin(seed);
		sim_fault(SIM_LOSS, 0, 1, 0, 20)->one_in = 20;
		EXPECT_WELL(sim_play());
		CHECK(cluster->pings[CAREFUL_STAGE_NET_RX]);
	}
}

int main(void)
{
	sim_init();
	RUN(test_sim_ping__beside_work);
	RUN(test_sim_ping__mishaps_outside_the_session);
	RUN(test_sim_ping__replays_and_copies_are_not_answered);
	RUN(test_sim_ping__losses);
	cluster_destroy(cluster);
	return 0;
}
