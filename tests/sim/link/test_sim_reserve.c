// SPDX-License-Identifier: BSD-2-Clause
/*
 * Reservation (P2 section 7; link/send/reservation.h) on the virtual network: messages above a window
 * get grants and pay them back, and no fault loses buffers.
 */
#include <errno.h>

#include "sim.h"

enum { RESERVE = 24 };

/* The least windows; all other buffers are for grants. */
static void reserving(uint64_t seed, uint32_t reserve)
{
	sim_scene(seed);
	scene->options.reserve = reserve;
	scene->options.rx_buffers = 2 * 4 + reserve;
	CHECK(!(scene->options.rx_buffers & (scene->options.rx_buffers - 1)));
}

/* Messages above and below a window, both ways. */
static void transfer(uint64_t seed, uint32_t reserve)
{
	reserving(seed, reserve);
	sim_op(OP_STORE, 0, 12000, 0)->to_file = true;
	sim_op(OP_GET, 0, 12000, 0)->from_file = true;
	sim_op(OP_REQUEST, 0, 300, 0);
	sim_op(OP_STORE, 1, 5000, 0);
	sim_op(OP_REQUEST, 1, 300, 0.5)->reply_ns = 5 * SIM_MS;
	sim_op(OP_GET, 1, 11000, 2);
	sim_op(OP_STORE, 0, 2000, 2);
	scene->files_delay_ns = 20000;
}

static uint64_t count(enum careful_counter counter)
{
	return cluster->counters[counter];
}

static uint64_t last_done_ns(void)
{
	uint64_t last_ns = 0;

	for (uint32_t i = 0; i < scene->ops_count; i++)
		if (scene->ops[i].done_ns > last_ns)
			last_ns = scene->ops[i].done_ns;
	return last_ns - SIM_START;
}

/* The messages pay the grant back: at the end the pool is whole (invariants.c), without frames for
 * that alone. */
static void test_grant__is_paid_back_by_the_message(void)
{
	reserving(1, RESERVE);
	sim_op(OP_STORE, 0, 12000, 0);
	EXPECT_WELL(sim_play_strictly());
	CHECK(count(CAREFUL_C_GRANTED) >= 8 && count(CAREFUL_C_GRANTED) <= 24);
	CHECK_EQ(count(CAREFUL_C_GRANTS_ENDED), 0);
	/* For 17 frames and an answer there are fewer separate updates than frames. */
	CHECK(count(CAREFUL_C_TX_UPDATES) <= 12);
}

/* A message that fits the window asks for no grant, even if the window is full. */
static void test_grant__none_for_a_message_within_the_window(void)
{
	reserving(1, RESERVE);
	sim_op(OP_STORE, 0, 2 * 600, 0);
	sim_op(OP_REQUEST, 1, 500, 0);
	EXPECT_WELL(sim_play_strictly());
	CHECK_EQ(count(CAREFUL_C_GRANTED), 0);
}

static double took_ms(uint32_t reserve, uint32_t rx_buffers)
{
	sim_scene(1);
	scene->options.reserve = reserve;
	scene->options.rx_buffers = rx_buffers;
	scene->config.wire_delay_ns = 20000;
	sim_op(OP_REQUEST, 0, 10, 0); /* the session */
	sim_op(OP_STORE, 0, 12000, 5);
	EXPECT_WELL(sim_play_strictly());
	return (double)last_done_ns() / 1e6 - 5;
}

static void test_grant__a_long_path_is_filled(void)
{
	double small = took_ms(0, 8), granted = took_ms(RESERVE, 32), large = took_ms(0, 32);

	printf("  windows of 4: %.3f ms, and grants: %.3f, windows of 16: %.3f\n", small, granted,
	       large);
	CHECK(granted < 0.6 * small);
	CHECK(granted < large + 1.5 * 2 * 0.020); /* the question, and its answer */
}

static double gets_ms(uint32_t reserve)
{
	enum { GETS = 20, OUTS = 8, WINDOWS = 64 };

	sim_scene(1);
	scene->options.reserve = reserve;
	scene->options.rx_buffers = WINDOWS + reserve;
	scene->limits.messages.outs = OUTS;
	scene->shape.segments_max = 2; /* such fragments are read again from their source */
	scene->shape.frame_bytes *= 2;
	scene->plan_bytes = scene->shape.frame_bytes;
	scene->config.wire_delay_ns = scene->config.ctrl_delay_ns = 20000;
	sim_op(OP_REQUEST, 0, 10, 0); /* the session */
	for (uint32_t i = 0; i < GETS; i++)
		sim_op(OP_GET, 0, 12000, 5)->from_file = true;
	EXPECT_WELL(sim_play_strictly());
	return (double)last_done_ns() / 1e6 - 5;
}

/* Credits prove late that data has arrived if they may be a grant, and their sender has room for few
 * messages: it asks. */
static void test_gets__end_as_soon_with_a_large_reserve(void)
{
	double small = gets_ms(0), large = gets_ms(960);

	printf("  %.3f ms, with a large reserve %.3f ms\n", small, large);
	CHECK(large <= 1.3 * small);
}

/* Each frame is lost in turn: grants end with their epoch, and the pool is whole. */
static void test_loss__each_frame_in_turn(void)
{
	uint32_t n = 1;

	for (uint32_t i = 0; i < n; i++) {
		struct sim_fault *fault;

		transfer(7, RESERVE);
		fault = sim_fault(SIM_LOSS, SIM_ANY, SIM_ANY, 0, 900);
		fault->what = SIM_FRAMES;
		fault->only = &i;
		fault->only_count = 1;
		EXPECT_WELL(sim_play());
		CHECK_EQ(fault->hits, 1);
		if (!i)
			n = fault->seen < 60 ? fault->seen : 60;
	}
	CHECK(n > 40);
}

/* One frame in ten is lost, late, repeated, cut off, damaged, or finds no buffer; nodes die, stop,
 * and keep messages. */
static void test_faults__all_kinds(void)
{
	uint64_t granted = 0;

	for (uint32_t kind = 0; kind < FAULT_KINDS; kind++)
		for (uint64_t seed = 0; seed < 6; seed++) {
			struct sim_fault *fault;

			transfer(seed, RESERVE);
			fault = sim_fault(kind, seed & 1, !(seed & 1), 0.01, 3);
			fault->one_in = 10;
			fault->amount = kind == SIM_MTU ? 500 : 50000;
			if (kind == SIM_FILL_EMPTY)
				fault->what = SIM_FRAMES;
			EXPECT_WELL(sim_play());
			granted += count(CAREFUL_C_GRANTED);
		}
	CHECK(granted > 1000);
}

int main(void)
{
	sim_init();
	RUN(test_grant__is_paid_back_by_the_message);
	RUN(test_grant__none_for_a_message_within_the_window);
	RUN(test_grant__a_long_path_is_filled);
	RUN(test_gets__end_as_soon_with_a_large_reserve);
	RUN(test_loss__each_frame_in_turn);
	RUN(test_faults__all_kinds);
	cluster_destroy(cluster);
	return 0;
}
