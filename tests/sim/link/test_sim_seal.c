// SPDX-License-Identifier: BSD-2-Clause
/*
 * Sealed sessions on the virtual network, with faults and with an attacker who reads the wire and
 * forges frames.
 */
#include <errno.h>

#include "sim.h"

enum { BOTH = 3, SEEDS = 10 };

static const char *const modes[] = { "auth", "encrypt" };

/* Both nodes seal large and small frames, in one buffer and in several. */
static void scene_sealed(uint64_t seed, uint32_t protocol)
{
	sim_scene(seed);
	scene->keyed = BOTH;
	scene->seal = modes[seed % 2];
	scene->options.protocol = protocol;
	sim_op(OP_STORE, 0, 12000, 0)->from_file = true;
	sim_op(OP_GET, 1, 5000, 0);
	sim_op(OP_REQUEST, 0, 100, 0);
	sim_op(OP_REQUEST, 1, 100, 1);
}

static void test_seal__nothing_goes_wrong(void)
{
	for (uint64_t seed = 0; seed < 2 * SEEDS; seed++) {
		scene_sealed(seed, seed / 2 % 2);
		EXPECT_WELL(sim_play_strictly());
		CHECK_EQ(cluster->epochs, 2);
		CHECK_EQ(cluster->counters[CAREFUL_C_DROP_SEAL], 0);
		CHECK_EQ(cluster->counters[CAREFUL_C_DROP_CRC], 0);
	}
}

/* A repair keeps its number and is sealed with a new count. */
static void test_seal__a_loss_is_repaired(void)
{
	uint64_t again = 0;

	for (uint64_t seed = 0; seed < SEEDS; seed++) {
		scene_sealed(seed, CAREFUL_PROTOCOL_CAREFUL);
		sim_op(OP_STORE, 0, 12000, 21);
		sim_fault(SIM_LOSS, 0, 1, 20, 40)->one_in = 8;
		EXPECT_WELL(sim_play_strictly());
		again += cluster->counters[CAREFUL_C_SENT_AGAIN];
		CHECK_EQ(cluster->epochs, 2);
		CHECK_EQ(cluster->counters[CAREFUL_C_DROP_SEAL], 0);
	}
	CHECK(again > 0);
}

/* A repeated frame is sealed again with a new count. */
static void test_seal__traditional_sends_again(void)
{
	uint64_t again = 0;

	for (uint64_t seed = 0; seed < SEEDS; seed++) {
		scene_sealed(seed, CAREFUL_PROTOCOL_TRADITIONAL);
		sim_op(OP_STORE, 0, 12000, 5);
		for (uint32_t kind = SIM_LOSS; kind <= SIM_CORRUPT; kind++) {
			struct sim_fault *fault = sim_fault(kind, SIM_ANY, SIM_ANY, 0, 60);

			fault->what = SIM_FRAMES;
			fault->one_in = 6;
			fault->amount = kind == SIM_CORRUPT ? 8 : SIM_MS;
		}
		EXPECT_WELL(sim_play_strictly());
		CHECK_EQ(cluster->epochs, 2);
		again += cluster->counters[CAREFUL_C_SENT_AGAIN];
	}
	CHECK(again > 0);
}

/* WELCOME is lost, repeated or late: no frame goes to an end without session keys. */
static void test_seal__control_messages_lost_late_or_twice(void)
{
	for (uint64_t seed = 0; seed < 2 * SEEDS; seed++) {
		scene_sealed(seed, seed / 2 % 2);
		for (uint32_t kind = SIM_LOSS; kind <= SIM_REORDER; kind++) {
			struct sim_fault *fault = sim_fault(kind, SIM_ANY, SIM_ANY, 0, 200);

			fault->what = SIM_CONTROL;
			fault->one_in = 3;
			fault->amount = 2 * SIM_MS;
		}
		EXPECT_WELL(sim_play());
		CHECK_EQ(cluster->counters[CAREFUL_C_DROP_SEAL], 0);
	}
}

/* Recorded frames are replayed. */
static void test_seal__replays_change_nothing(void)
{
	for (uint64_t seed = 0; seed < 2 * SEEDS; seed++) {
		scene_sealed(seed, seed / 2 % 2);
		sim_op(OP_STORE, 0, 12000, 60);
		sim_fault(SIM_REPLAY, 0, 1, 1, 100)->amount = 100000;
		sim_fault(SIM_REPLAY, 1, 0, 1, 100)->amount = 100000;
		EXPECT_WELL(sim_play());
		CHECK_EQ(cluster->epochs, 2);
	}
}

/* A reader of the wire knows cookie, numbers and credits, and forges the next frames before the
 * true ones. They have no effect, no true frame is lost, and no session ends. */
static void test_seal__a_forger_changes_nothing(void)
{
	uint64_t forged = 0;

	for (uint64_t seed = 0; seed < 4 * SEEDS; seed++) {
		scene_sealed(seed, seed / 2 % 2);
		sim_op(OP_STORE, 0, 12000, 30);
		sim_op(OP_STORE, 1, 12000, 30);
		for (uint32_t to = 0; to < 2; to++) {
			struct sim_fault *fault = sim_fault(SIM_REPLAY, !to, to, 1, 100);

			fault->forges = true;
			fault->what = SIM_FRAMES;
			fault->amount = 10000;
		}
		EXPECT_WELL(sim_play_strictly());
		CHECK_EQ(cluster->epochs, 2);
		CHECK_EQ(cluster->counters[CAREFUL_C_BAD_CREDITS], 0);
		CHECK_EQ(cluster->counters[CAREFUL_C_LOST_FRAMES], 0);
		forged += cluster->counters[CAREFUL_C_DROP_SEAL];
	}
	CHECK(forged > 0);
}

/* Forged frames arrive before a whole window: there is room for both. */
static void test_seal__forged_frames_take_no_room_from_true_ones(void)
{
	uint64_t forged = 0;

	for (uint64_t seed = 0; seed < SEEDS; seed++) {
		scene_sealed(seed, CAREFUL_PROTOCOL_CAREFUL);
		scene->poll_ns = SIM_MS; /* time without a look into the RX ring */
		scene->options.rx_buffers = 32 * scene->options.peers;
		for (uint32_t i = 0; i < 16; i++)
			sim_op(OP_STORE, i % 2, 12000, 10); /* more than a window, at once */
		for (uint32_t to = 0; to < 2; to++) {
			struct sim_fault *fault = sim_fault(SIM_REPLAY, !to, to, 5, 200);

			fault->forges = true;
			fault->what = SIM_FRAMES;
			fault->amount = 300000; /* three or four of them meanwhile */
		}
		EXPECT_WELL(sim_play_strictly());
		CHECK_EQ(cluster->epochs, 2);
		CHECK_EQ(cluster->counters[CAREFUL_C_LOST_FRAMES], 0);
		forged += cluster->counters[CAREFUL_C_DROP_SEAL];
	}
	CHECK(forged > 0);
}

/* Ends with different seal settings refuse each other. */
static void test_seal__ends_with_different_settings_refuse(void)
{
	for (uint64_t seed = 0; seed < SEEDS; seed++) {
		const char *why;

		sim_scene(seed);
		scene->keyed = BOTH;
		scene->seal = "encrypt";
		scene->seal_except = 1U << seed % 2;
		sim_op(OP_REQUEST, 0, 100, 0);
		why = sim_play();
		CHECK(why && strstr(why, "ENOPROTOOPT"));
		CHECK_EQ(cluster->counters[CAREFUL_C_RX_FRAMES], 0);
	}
}

int main(void)
{
	sim_init();
	RUN(test_seal__nothing_goes_wrong);
	RUN(test_seal__a_loss_is_repaired);
	RUN(test_seal__traditional_sends_again);
	RUN(test_seal__control_messages_lost_late_or_twice);
	RUN(test_seal__replays_change_nothing);
	RUN(test_seal__a_forger_changes_nothing);
	RUN(test_seal__forged_frames_take_no_room_from_true_ones);
	RUN(test_seal__ends_with_different_settings_refuse);
	cluster_destroy(cluster);
	return 0;
}
