// SPDX-License-Identifier: BSD-2-Clause
/*
 * Programs that flood carefuld and are killed, without other work. Without faults all their
 * questions end soon; with faults they end. A deliberate bug in the bounds is found.
 */
#include <string.h>

#include "sim.h"

/* tests/targets.cmake sets SEEDS_SHARE. */
enum { SEEDS = 4 / SEEDS_SHARE, FAULTY_SEEDS = 16 / SEEDS_SHARE };

static const char *play(uint64_t seed, uint32_t faults)
{
	sim_scene(seed);
	clients_make(scene);
	scene->clients |= faults;
	return sim_play();
}

/* Both flooding programs are killed once; the third program is not refused for ever. */
static void test_clients__flood_and_are_killed(void)
{
	uint64_t done[CLIENTS_COUNTS] = { 0 };

	for (uint64_t seed = 0; seed < SEEDS; seed++) {
		EXPECT_WELL(play(seed, 0));
		for (uint32_t i = 0; i < CLIENTS_COUNTS; i++)
			done[i] += cluster->clients_done[i];
	}
	CHECK_EQ(done[CLIENTS_KILLED], 2 * SEEDS);
	CHECK_EQ(done[CLIENTS_BESIDE], 12 * SEEDS);
	CHECK(done[CLIENTS_TASKS] >= (uint64_t)2 * 480 * SEEDS);
	CHECK(done[CLIENTS_ENDS] > done[CLIENTS_TASKS] / 2);
	CHECK(done[CLIENTS_REFUSED] > (uint64_t)100 * SEEDS);
}

static void test_clients__flood_while_frames_are_lost_and_processes_end(void)
{
	static const uint32_t kinds[] = { SIM_LOSS, SIM_DUPLICATE, FAULT_KILL, FAULT_CLOSE };

	for (uint64_t seed = 0; seed < FAULTY_SEEDS; seed++) {
		const uint32_t kind = kinds[seed % 4];

		sim_scene(seed);
		clients_make(scene);
		sim_fault(kind, 0, (uint32_t)(seed / 4 % 2), 1, 30)->one_in = 20;
		if (kind < SIM_FAULT_KINDS)
			scene->faults[0].from = scene->faults[0].to = SIM_ANY;
		EXPECT_WELL(sim_play());
		CHECK(scene->faults[0].hits);
	}
}

/* The answers to OPENs were lost. OPENs of others (574) or of the same program (6928) waited for
 * the handles that the lost answers named. */
static void test_clients__an_open_is_asked_again(void)
{
	static const uint64_t seeds[] = { 574, 6928 };

	for (uint32_t i = 0; i < 2; i++) {
		scenario_make(scene, seeds[i], true, false, false);
		clients_make(scene);
		EXPECT_WELL(sim_play());
	}
}

/* OPENs take all operations of their program, so no CLOSE is read. */
static void test_fault__opens_without_a_bound_are_found(void)
{
	const char *why = play(0, CLIENTS_UNBOUNDED);

	CHECK(why && strstr(why, "tasks are done"));
}

static void test_fault__handles_left_open_are_found(void)
{
	const char *why = play(0, CLIENTS_LEFT_OPEN);

	CHECK(why && strstr(why, "tasks are done"));
}

int main(void)
{
	sim_init();
	RUN(test_clients__flood_and_are_killed);
	RUN(test_clients__flood_while_frames_are_lost_and_processes_end);
	RUN(test_clients__an_open_is_asked_again);
	RUN(test_fault__opens_without_a_bound_are_found);
	RUN(test_fault__handles_left_open_are_found);
	cluster_destroy(cluster);
	return 0;
}
