// SPDX-License-Identifier: BSD-2-Clause
/* Sessions on the virtual network between nodes with and without keys. */
#include <errno.h>

#include "sim.h"

enum { BOTH = 3, SEEDS = 10 };

/* Both nodes have keys and ask each other. */
static void scene_keyed(uint64_t seed)
{
	sim_scene(seed);
	scene->keyed = BOTH;
	sim_op(OP_STORE, 0, 12000, 0)->from_file = true;
	sim_op(OP_GET, 1, 5000, 0);
	sim_op(OP_REQUEST, 0, 100, 0);
	sim_op(OP_REQUEST, 1, 100, 1);
}

static void test_keys__both_ask_at_once(void)
{
	for (uint64_t seed = 0; seed < SEEDS; seed++) {
		scene_keyed(seed);
		EXPECT_WELL(sim_play_strictly());
		CHECK_EQ(cluster->epochs, 2); /* one at each end */
		CHECK_EQ(cluster->counters[CAREFUL_C_CTRL_KEY], 0);
	}
}

/* With keys too, a new epoch needs no CHALLENGE. */
static void test_keys__a_loss_renews_the_session(void)
{
	for (uint64_t seed = 0; seed < SEEDS; seed++) {
		scene_keyed(seed);
		scene->options.repair = CAREFUL_REPAIR_OFF;
		sim_op(OP_STORE, 0, 12000, 21);
		sim_fault(SIM_LOSS, 0, 1, 20, 40)->one_in = 8;
		EXPECT_WELL(sim_play());
		CHECK_EQ(cluster->counters[CAREFUL_C_CTRL_KEY], 0);
	}
	CHECK(cluster->counters[CAREFUL_C_EPOCHS_BROKEN] > 0);
}

/* Control messages are lost, repeated and delayed. */
static void test_keys__control_messages_lost_late_or_twice(void)
{
	for (uint64_t seed = 0; seed < SEEDS; seed++) {
		scene_keyed(seed);
		for (uint32_t kind = SIM_LOSS; kind <= SIM_REORDER; kind++) {
			struct sim_fault *fault = sim_fault(kind, SIM_ANY, SIM_ANY, 0, 200);

			fault->what = SIM_CONTROL;
			fault->one_in = 3;
			fault->amount = 2 * SIM_MS;
		}
		EXPECT_WELL(sim_play());
		CHECK_EQ(cluster->counters[CAREFUL_C_CTRL_KEY], 0);
	}
}

/* Recorded messages are replayed in their sender's name: no session suffers. */
static void test_keys__replays_change_nothing(void)
{
	for (uint64_t seed = 0; seed < SEEDS; seed++) {
		scene_keyed(seed);
		sim_op(OP_STORE, 0, 12000, 60);
		sim_fault(SIM_REPLAY, 0, 1, 1, 100)->amount = 100000;
		sim_fault(SIM_REPLAY, 1, 0, 1, 100)->amount = 100000;
		EXPECT_WELL(sim_play());
		CHECK_EQ(cluster->epochs, 2);
	}
}

/* A reader of the wire knows cookies and nonces, and makes new messages from recorded ones. */
static void test_keys__forged_messages_change_nothing(void)
{
	uint64_t forged = 0;

	for (uint64_t seed = 0; seed < 4 * SEEDS; seed++) {
		scene_keyed(seed);
		scene->options.sync_ms = 5;
		for (uint32_t i = 0; i < 4; i++)
			sim_op(OP_REQUEST, i % 2, 100, 20 * i)->reply_ns = 30 * SIM_MS;
		for (uint32_t to = 0; to < 2; to++) {
			struct sim_fault *fault = sim_fault(SIM_REPLAY, !to, to, 1, 150);

			fault->forges = true;
			fault->what = SIM_CONTROL;
			fault->amount = 200000;
		}
		EXPECT_WELL(sim_play_strictly());
		CHECK_EQ(cluster->epochs, 2);
		CHECK_EQ(cluster->counters[CAREFUL_C_LOST_FRAMES], 0);
		forged += cluster->counters[CAREFUL_C_CTRL_FORGED];
	}
	CHECK(forged > 0);
}

/* Also during a handshake: forgeries cost no key exchange and make no peer. */
static void test_keys__a_forger_of_handshakes_changes_nothing(void)
{
	uint64_t forged = 0;

	for (uint64_t seed = 0; seed < 4 * SEEDS; seed++) {
		scene_keyed(seed);
		for (uint32_t to = 0; to < 2; to++) {
			struct sim_fault *fault = sim_fault(SIM_REPLAY, !to, to, 0, 20);

			fault->forges = true;
			fault->what = SIM_CONTROL;
			fault->amount = 3000;
		}
		EXPECT_WELL(sim_play_strictly());
		CHECK_EQ(cluster->epochs, 2);
		CHECK_EQ(cluster->met, 2);
		forged += cluster->counters[CAREFUL_C_CTRL_FORGED];
	}
	CHECK(forged > 0);
}

/* Forged answers to pings are dropped. */
static void test_keys__forged_answers_to_pings_are_none(void)
{
	uint64_t forged = 0;

	for (uint64_t seed = 0; seed < SEEDS; seed++) {
		scene_keyed(seed);
		scene->pings = true;
		for (uint32_t i = 0; i < 8; i++)
			sim_op(i % OP_KINDS, i & 1, 1 + 700 * i, 2.0 * i);
		for (uint32_t to = 0; to < 2; to++) {
			struct sim_fault *fault = sim_fault(SIM_REPLAY, !to, to, 0, 40);

			fault->forges = true;
			fault->what = SIM_CONTROL;
			fault->amount = 100000;
		}
		EXPECT_WELL(sim_play_strictly());
		CHECK(cluster->pings[CAREFUL_STAGE_HOST_RX] >= 3);
		forged += cluster->counters[CAREFUL_C_CTRL_FORGED];
	}
	CHECK(forged > 0);
}

/* No operation succeeds, and each gets an error. */
static void expect_refused(int error)
{
	const char *why = sim_play();

	CHECK(why && strstr(why, error == EKEYREJECTED ? "EKEYREJECTED" : "ENOKEY"));
	CHECK_EQ(cluster->epochs, 0);
	CHECK(cluster->counters[CAREFUL_C_CTRL_KEY] > 0);
	CHECK_EQ(cluster->counters[CAREFUL_C_RX_FRAMES], 0);
}

static void test_keys__a_peer_without_gets_nothing(void)
{
	for (uint64_t seed = 0; seed < SEEDS; seed++) {
		sim_scene(seed);
		scene->keyed = 1U << seed % 2;
		sim_op(OP_REQUEST, 0, 100, 0);
		expect_refused(EKEYREJECTED);
	}
}

static void test_keys__a_peer_with_another_gets_nothing(void)
{
	for (uint64_t seed = 0; seed < SEEDS; seed++) {
		sim_scene(seed);
		scene->keyed = BOTH;
		scene->wrong_keys = 1U << seed % 2;
		sim_op(OP_GET, 0, 5000, 0);
		expect_refused(EKEYREJECTED);
	}
}

/* While a key is replaced, a host has two: if one is refused, the next is tried. */
static void test_keys__an_old_key_comes_first(void)
{
	for (uint64_t seed = 0; seed < SEEDS; seed++) {
		sim_scene(seed);
		scene->keyed = BOTH;
		scene->old_keys = true;
		sim_op(OP_GET, seed % 2, 5000, 0); // NOLINT: whole steps
		EXPECT_WELL(sim_play());
		CHECK(cluster->counters[CAREFUL_C_CTRL_KEY] > 0);
	}
}

int main(void)
{
	sim_init();
	RUN(test_keys__both_ask_at_once);
	RUN(test_keys__a_loss_renews_the_session);
	RUN(test_keys__control_messages_lost_late_or_twice);
	RUN(test_keys__replays_change_nothing);
	RUN(test_keys__forged_messages_change_nothing);
	RUN(test_keys__a_forger_of_handshakes_changes_nothing);
	RUN(test_keys__forged_answers_to_pings_are_none);
	RUN(test_keys__a_peer_without_gets_nothing);
	RUN(test_keys__a_peer_with_another_gets_nothing);
	RUN(test_keys__an_old_key_comes_first);
	cluster_destroy(cluster);
	return 0;
}
