// SPDX-License-Identifier: BSD-2-Clause
/*
 * The traditional protocol (P2 section 5.2) on the virtual network: lost, late, repeated and
 * damaged frames are repaired without the messages' notice, and at the end no frame is kept.
 */
#include <errno.h>

#include "sim.h"

enum {
	FRAMES_MAX = 200,
	/* A time-out and its wake-up. */
	FOUND_MS = 3 + 20,
};

static void traditional(uint64_t seed)
{
	sim_scene(seed);
	scene->options.protocol = CAREFUL_PROTOCOL_TRADITIONAL;
}

/* Two bursts with silence between. */
static void transfer(void)
{
	sim_transfer(7, 100);
	scene->options.protocol = CAREFUL_PROTOCOL_TRADITIONAL;
}

static void expect_first_attempts(void)
{
	for (uint32_t i = 0; i < scene->ops_count; i++)
		CHECK_EQ(scene->ops[i].attempt, 1);
	CHECK_EQ(cluster->counters[CAREFUL_C_EPOCHS_BROKEN], 0);
	CHECK_EQ(cluster->counters[CAREFUL_C_LOST_FRAMES], 0);
}

/* Without faults no frame is repeated, and few are acknowledgements. */
static void test_traditional__nothing_is_sent_again_without_loss(void)
{
	transfer();
	EXPECT_WELL(sim_play_strictly());
	expect_first_attempts();
	CHECK_EQ(cluster->counters[CAREFUL_C_SENT_AGAIN], 0);
	CHECK_EQ(cluster->counters[CAREFUL_C_DROP_TWICE], 0);
	CHECK_EQ(cluster->counters[CAREFUL_C_DROP_SHARE], 0);
	CHECK(cluster->counters[CAREFUL_C_ACKS_SENT] > 0); /* buffers run short */
	printf("  %llu acknowledgements of %llu frames\n",
	       (unsigned long long)cluster->counters[CAREFUL_C_ACKS_SENT],
	       (unsigned long long)cluster->counters[CAREFUL_C_TX_FRAMES]);
	CHECK(cluster->counters[CAREFUL_C_ACKS_SENT] * 4 < cluster->counters[CAREFUL_C_TX_FRAMES]);
}

/* A request and its reply acknowledge each other, without further frames. */
static void test_traditional__replies_acknowledge(void)
{
	traditional(1);
	for (uint32_t i = 0; i < 10; i++)
		sim_op(OP_REQUEST, 0, 10, 2.0 * i);
	EXPECT_WELL(sim_play_strictly());
	CHECK_EQ(cluster->counters[CAREFUL_C_TX_FRAMES], 20);
	/* After the last reply the other end asks once. */
	CHECK(cluster->counters[CAREFUL_C_ACKS_SENT] <= 2);
}

static const char *lose(const uint32_t *only, uint32_t n, uint32_t *seen)
{
	struct sim_fault *fault;
	const char *why;

	transfer();
	fault = sim_fault(SIM_LOSS, SIM_ANY, SIM_ANY, 0, 900);
	fault->what = SIM_FRAMES;
	fault->only = only;
	fault->only_count = n;
	why = sim_play_strictly();
	*seen = fault->seen;
	return why;
}

/* Each frame is lost in turn, data and acknowledgements. */
static void test_loss__each_frame_in_turn(void)
{
	static const uint32_t never = UINT32_MAX;
	uint32_t n, seen;

	EXPECT_WELL(lose(&never, 1, &n));
	CHECK(n > 40 && n < FRAMES_MAX);
	for (uint32_t i = 0; i < n; i++) {
		EXPECT_WELL(lose(&i, 1, &seen));
		CHECK_EQ(scene->faults[0].hits, 1);
		expect_first_attempts();
		CHECK(sim_last_done_ns() < SIM_START + (100 + 2 * FOUND_MS) * SIM_MS);
	}
	printf("  %u frames\n", n);
}

static void test_loss__each_two_frames(void)
{
	static const uint32_t never = UINT32_MAX;
	uint32_t n, seen;

	EXPECT_WELL(lose(&never, 1, &n));
	for (uint32_t i = 0; i < n; i++)
		for (uint32_t k = i + 1; k < n; k += 3) {
			const uint32_t only[2] = { i, k };

			EXPECT_WELL(lose(only, 2, &seen));
			expect_first_attempts();
			CHECK(sim_last_done_ns() < SIM_START + (100 + 4 * FOUND_MS) * SIM_MS);
		}
}

/* One frame in ten is lost, late, repeated, cut off or damaged, in both directions. */
static void test_faults__one_frame_in_ten(void)
{
	static const uint32_t kinds[] = { SIM_LOSS, SIM_REORDER, SIM_DUPLICATE, SIM_TRUNCATE,
					  SIM_FILL_EMPTY };

	for (uint32_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		for (uint64_t seed = 0; seed < 10; seed++) {
			struct sim_fault *fault;

			transfer();
			scene->seed = scene->config.seed = seed;
			fault = sim_fault(kinds[i], SIM_ANY, SIM_ANY, 0, 900);
			fault->what = SIM_FRAMES;
			fault->one_in = 10;
			fault->amount = 50000;
			EXPECT_WELL(sim_play_strictly());
			CHECK(fault->hits > 0);
			expect_first_attempts();
		}
}

/* Damage that the CRC covers counts as a loss; damage that only the digest covers is reported to
 * the user. */
static void test_damage__of_a_request_is_repaired(void)
{
	uint64_t damaged = 0;

	for (uint64_t seed = 0; seed < 20; seed++) {
		struct sim_fault *fault;

		traditional(seed);
		for (uint32_t i = 0; i < 12; i++)
			sim_op(OP_REQUEST, i & 1, 700, i);
		fault = sim_fault(SIM_CORRUPT, SIM_ANY, SIM_ANY, 0, 500);
		fault->what = SIM_FRAMES;
		fault->one_in = 5;
		EXPECT_WELL(sim_play_strictly());
		expect_first_attempts();
		damaged += cluster->counters[CAREFUL_C_DROP_CRC];
	}
	CHECK(damaged > 20);
}

/* Handlers that keep messages fill the peer's share. Further frames are dropped and requested when
 * there is room; no session ends, even after a long time. */
static void test_share__full_for_longer_than_a_stall(void)
{
	traditional(3);
	scene->options.copyout_buffers = 1;
	scene->options.unpacked = 1;
	for (uint32_t i = 0; i < 24; i++)
		sim_op(OP_REQUEST, 0, 200, 0.1 * i);
	sim_fault(FAULT_KEEP, 0, 1, 0, STALL_MS + 500);
	EXPECT_WELL(sim_play_strictly());
	CHECK(cluster->counters[CAREFUL_C_DROP_SHARE] > 0);
	expect_first_attempts();
}

/* A third node's frames always find buffers. */
static void test_share__of_each_peer(void)
{
	for (uint64_t seed = 0; seed < 10; seed++) {
		traditional(seed);
		scene->nodes = 3;
		scene->options.rx_buffers = 16;
		for (uint32_t i = 0; i < 12; i++) {
			struct op *op = sim_op(OP_STORE, 0, 12000, 0);

			op->from = (uint8_t)(i % 3);
			op->to = (uint8_t)((i + 1 + i / 3 % 2) % 3);
		}
		sim_fault(SIM_LOSS, 0, 1, 0, 900)->one_in = 5;
		EXPECT_WELL(sim_play_strictly());
		expect_first_attempts();
	}
}

/* Both ends report the other protocol, without other effects. */
static void test_handshake__the_other_protocol_is_refused(void)
{
	for (uint32_t mine = 0; mine < 2; mine++) {
		const char *why;

		sim_scene(5);
		scene->protocols[mine] = CAREFUL_PROTOCOL_TRADITIONAL;
		sim_op(OP_GET, 0, 100, 0);
		why = sim_play_strictly();
		CHECK(why && strstr(why, "ends with EPROTOTYPE"));
		CHECK(cluster->counters[CAREFUL_C_CTRL_PROTOCOL] > 0);
		CHECK_EQ(cluster->counters[CAREFUL_C_TX_FRAMES], 0);
	}
}

/* Returns the virtual time of the work with one frame in this many lost; 0: none. */
static double took_ms(uint32_t protocol, uint32_t one_in)
{
	double sum = 0;

	for (uint64_t seed = 0; seed < 20; seed++) {
		sim_scene(seed);
		scene->options.protocol = protocol;
		scene->options.rx_buffers = scene->options.tx_buffers = 128;
		for (uint32_t i = 0; i < 16; i++)
			sim_op(OP_STORE, 0, 12000, 0);
		if (one_in)
			sim_fault(SIM_LOSS, SIM_ANY, SIM_ANY, 0, 10000)->one_in = one_in;
		EXPECT_WELL(sim_play());
		sum += (double)(sim_last_done_ns() - SIM_START) * 1e-6;
	}
	return sum / 20;
}

/* Without loss careful is no slower. A lost frame costs a round trip of control messages, which are
 * read once per tick: more than with the traditional protocol, but no epoch. */
static void test_compare__with_careful(void)
{
	double careful = took_ms(CAREFUL_PROTOCOL_CAREFUL, 0);
	double other = took_ms(CAREFUL_PROTOCOL_TRADITIONAL, 0);

	printf("  without loss: careful %.2f ms, traditional %.2f ms\n", careful, other);
	CHECK(careful <= other * 1.05);
	for (uint32_t one_in = 1000; one_in >= 10; one_in /= 10) {
		careful = took_ms(CAREFUL_PROTOCOL_CAREFUL, one_in);
		other = took_ms(CAREFUL_PROTOCOL_TRADITIONAL, one_in);
		printf("  one in %u lost: careful %.2f ms, traditional %.2f ms\n", one_in, careful,
		       other);
		CHECK(careful < other * 2);
	}
}

int main(void)
{
	sim_init();
	RUN(test_traditional__nothing_is_sent_again_without_loss);
	RUN(test_traditional__replies_acknowledge);
	RUN(test_loss__each_frame_in_turn);
	RUN(test_loss__each_two_frames);
	RUN(test_faults__one_frame_in_ten);
	RUN(test_damage__of_a_request_is_repaired);
	RUN(test_share__full_for_longer_than_a_stall);
	RUN(test_share__of_each_peer);
	RUN(test_handshake__the_other_protocol_is_refused);
	RUN(test_compare__with_careful);
	cluster_destroy(cluster);
	return 0;
}
