// SPDX-License-Identifier: BSD-2-Clause
/* Sessions on the virtual network: one test for each fault that the simulation found. */
#include <errno.h>

#include "sim.h"

static void test_connect__both_ask_at_once_and_nothing_queued_fails(void)
{
	for (uint64_t seed = 0; seed < 20; seed++) {
		sim_scene(seed);
		sim_op(OP_STORE, 0, 2000, 0);
		sim_op(OP_GET, 1, 2000, 0);
		sim_op(OP_REQUEST, 0, 100, 0);
		sim_op(OP_REQUEST, 1, 100, 0);
		EXPECT_WELL(sim_play_strictly());
		CHECK_EQ(cluster->epochs, 2); /* one at each end */
	}
}

/* Frames of a new window arrive before its WELCOME. */
static void test_renew__frames_that_overtake_the_welcome(void)
{
	for (uint64_t seed = 0; seed < 20; seed++) {
		sim_scene(seed);
		scene->config.ctrl_delay_ns = 5 * SIM_MS;
		sim_op(OP_STORE, 0, 12000, 0)->from_file = true;
		sim_op(OP_STORE, 0, 12000, 21);
		sim_op(OP_GET, 0, 12000, 22);
		/* A new epoch, for frames that fit. */
		sim_fault(SIM_MTU, 0, 1, 20.9, 2000)->amount = 500;
		EXPECT_WELL(sim_play());
		CHECK_EQ(cluster->counters[CAREFUL_C_BAD_CREDITS], 0);
		CHECK(cluster->counters[CAREFUL_C_EPOCHS_BROKEN] > 0);
		CHECK(cluster->counters[CAREFUL_C_EPOCHS_BROKEN] <= 2);
	}
}

/* One of the frames before the WELCOME is a damaged request; this leaves no gap. */
static void test_connect__damage_before_the_welcome_is_not_forgotten(void)
{
	uint32_t broken = 0;

	for (uint64_t seed = 0; seed < 20; seed++) {
		sim_scene(seed);
		scene->config.ctrl_delay_ns = 5 * SIM_MS;
		sim_op(OP_GET, 0, 100, 0);
		sim_op(OP_REQUEST, 1, 700, 16);
		sim_fault(SIM_CORRUPT, 1, 0, 15, 19)->what = SIM_DATA;
		EXPECT_WELL(sim_play());
		CHECK_EQ(scene->faults[0].hits, 1);
		broken += cluster->counters[CAREFUL_C_DROP_CRC] != 0;
	}
	CHECK(broken > 5); /* in the payload, not in the header */
}

/* Forged ICMP reports an unreachable port again and again before the answer arrives. */
static void test_refused__a_stranger_stops_no_handshake(void)
{
	for (uint64_t seed = 0; seed < 20; seed++) {
		sim_scene(seed);
		sim_op(OP_GET, 0, 100, 0);
		sim_fault(SIM_LOSS, 0, 1, 0, 500)->what = SIM_CONTROL;
		sim_fault(SIM_STRANGER, 1, 0, 0, 500)->amount = 20000;
		EXPECT_WELL(sim_play_strictly());
	}
}

/* Forged ICMP, while a peer is silent during a transfer. */
static void test_refused__a_stranger_ends_no_session(void)
{
	for (uint64_t seed = 0; seed < 20; seed++) {
		sim_scene(seed);
		for (uint32_t i = 0; i < 6; i++)
			sim_op(i % OP_KINDS, i & 1, 12000, i); // NOLINT: whole steps
		sim_fault(FAULT_STALL, 0, 1, 2, 990);
		sim_fault(SIM_STRANGER, 1, 0, 1, 1000)->amount = 50000;
		EXPECT_WELL(sim_play_strictly());
		CHECK(scene->faults[0].hits > 0 && scene->faults[1].hits > 1000);
		CHECK_EQ(cluster->epochs, 2); /* one at each end */
		CHECK(cluster->counters[CAREFUL_C_CTRL_UNKNOWN] > 100);
	}
}

/* Counts the questions on a long path, with or without strangers. */
static uint64_t questions(uint64_t seed, bool strangers)
{
	sim_scene(seed);
	scene->config.wire_delay_ns = 8 * SIM_MS;
	for (uint32_t i = 0; i < 6; i++)
		sim_op(i % OP_KINDS, i & 1, 12000, 0);
	for (uint32_t to = 0; strangers && to < 2; to++)
		sim_fault(SIM_STRANGER, !to, to, 1, 60)->amount = 100000;
	EXPECT_WELL(sim_play_strictly());
	return cluster->counters[CAREFUL_C_SYNCS];
}

/* The answers to questions could overtake frames, so forged ICMP must cause few. An answer that
 * finds the flooded socket full is requested again. */
static void test_refused__a_stranger_causes_few_questions(void)
{
	uint64_t alone = 0, beside = 0;

	for (uint64_t seed = 0; seed < 20; seed++) {
		alone += questions(seed, false);
		beside += questions(seed, true);
	}
	printf("  %llu questions, %llu beside strangers\n", (unsigned long long)alone,
	       (unsigned long long)beside);
	CHECK(beside <= 4 * alone);
}

/* A node that has really gone is given up before the silence limit: ICMP quotes the frames under
 * way, then the questions. */
static void test_refused__a_killed_node_is_given_up_soon(void)
{
	for (uint64_t seed = 0; seed < 20; seed++) {
		struct op *request;

		sim_scene(seed);
		scene->config.wire_delay_ns = 60 * SIM_MS;
		sim_op(OP_STORE, 0, 12000, 0);
		request = sim_op(OP_REQUEST, 0, 500, 99);
		sim_fault(FAULT_KILL, 0, 1, 100, 400);
		EXPECT_WELL(sim_play());
		CHECK_EQ(scene->faults[0].hits, 1);
		CHECK_EQ(request->last_status, -ECONNREFUSED);
	}
}

static void test_hello__replayed_after_both_asked_resets_nothing(void)
{
	for (uint64_t seed = 0; seed < 20; seed++) {
		sim_scene(seed);
		for (uint32_t i = 0; i < 12; i++)
			sim_op(i % OP_KINDS, i & 1, 3000, 5.0 * (i / 4)); // NOLINT: whole steps;
		sim_fault(SIM_REPLAY, 0, 1, 1, 40)->amount = 50000;
		sim_fault(SIM_REPLAY, 1, 0, 1, 40)->amount = 50000;
		EXPECT_WELL(sim_play_strictly());
		CHECK(scene->faults[0].hits > 100);
	}
}

/* The WELCOME is lost, and a copy of the first HELLO arrives before the second. */
static void test_hello__a_late_copy_resets_nothing(void)
{
	static const uint32_t welcome = 1; /* after the CHALLENGE */

	for (uint64_t seed = 0; seed < 20; seed++) {
		struct sim_fault *fault;

		sim_scene(seed);
		sim_op(OP_GET, 1, 200, 0);
		sim_op(OP_REQUEST, 0, 200, 1.5);
		fault = sim_fault(SIM_LOSS, 0, 1, 0, 10);
		fault->what = SIM_CONTROL;
		fault->only = &welcome;
		fault->only_count = 1;
		sim_fault(SIM_REPLAY, 1, 0, 2, 30)->amount = 2 * SIM_MS;
		EXPECT_WELL(sim_play_strictly());
		CHECK_EQ(fault->hits, 1);
	}
}

/* A frame that waits to leave is not lost, even after a long time. */
static void test_sync__a_full_tx_ring_is_no_loss(void)
{
	for (uint32_t node = 0; node < 2; node++) {
		sim_scene(node);
		sim_op(OP_STORE, 0, 12000, 0);
		sim_op(OP_GET, 0, 12000, 5);
		sim_op(OP_REQUEST, 0, 100, 5);
		sim_fault(SIM_TX_FULL, 0, node, 4.9, 900);
		EXPECT_WELL(sim_play_strictly());
		CHECK(scene->faults[0].hits > 10);
		CHECK(cluster->counters[CAREFUL_C_SYNCS] > 0);
	}
}

/* A TX ring that stays full for ever ends the session. */
static void test_sync__a_tx_ring_that_stays_full_ends_the_session(void)
{
	for (uint32_t node = 0; node < 2; node++) {
		sim_scene(node);
		sim_op(OP_STORE, 0, 12000, 0);
		sim_op(OP_GET, 0, 12000, 5);
		sim_fault(SIM_TX_FULL, 0, node, 4.9, 3 * STALL_MS);
		EXPECT_WELL(sim_play());
		CHECK(scene->ops[1].attempt > 1);
	}
}

/* The delayed question arrives and gets the earlier answer again. */
static void test_sync__an_answer_older_than_the_frames_is_no_loss(void)
{
	for (uint64_t seed = 0; seed < 20; seed++) {
		sim_scene(seed);
		scene->config.ctrl_delay_ns = 300000;
		sim_op(OP_STORE, 1, 12000, 0);
		sim_op(OP_GET, 0, 12000, 5);
		sim_op(OP_REQUEST, 0, 100, 5);
		sim_fault(SIM_CLOG, 1, 0, 4.5, 226.15 + (double)seed * 0.005)->what = SIM_FRAMES;
		EXPECT_WELL(sim_play_strictly());
		CHECK(cluster->counters[CAREFUL_C_SYNCS] > 0);
	}
}

/* The second question arrives behind the frames that the first overtook, while the process is
 * stopped. Control messages are read first, and no further frame follows. */
static void test_sync__frames_that_came_before_the_question_count(void)
{
	for (uint64_t seed = 0; seed < 20; seed++) {
		sim_scene(seed);
		sim_op(OP_STORE, 0, 12000, 0);
		sim_op(OP_REQUEST, 0, 100, 5)->reply_ns = 300 * SIM_MS;
		sim_fault(SIM_CLOG, 0, 1, 4.5, 216 + (double)seed * 0.4)->what = SIM_FRAMES;
		sim_fault(FAULT_STALL, 0, 1, 215, 250);
		EXPECT_WELL(sim_play_strictly());
		CHECK(cluster->counters[CAREFUL_C_SYNCS] > 1);
	}
}

/* A process that computed for longer than the silence limit sends a request: it awaited nothing
 * meanwhile, so the answer has its full time. */
static void test_sync__no_silence_where_nothing_was_awaited(void)
{
	for (uint64_t seed = 0; seed < 20; seed++) {
		sim_scene(seed);
		sim_op(OP_REQUEST, 0, 100, 0);
		/* By now a SYNC answer has returned the credits. */
		sim_op(OP_REQUEST, 0, 100, 510)->reply_ns = 50 * SIM_MS;
		sim_fault(FAULT_STALL, 0, 0, 500, 520 + STALL_MS);
		EXPECT_WELL(sim_play_strictly());
	}
}

/* The host returns while its place is still being drained. */
static void test_close__a_returning_host_finds_its_place(void)
{
	for (uint64_t seed = 0; seed < 20; seed++) {
		sim_scene(seed);
		scene->options.peers = 1;
		sim_op(OP_REQUEST, 0, 100, 0)->reply_ns = 100 * SIM_MS; /* kept as long */
		sim_op(OP_REQUEST, 0, 10, 10);
		sim_fault(FAULT_CLOSE, 0, 1, 3 + (double)seed * 0.1, 100);
		EXPECT_WELL(sim_play());
		CHECK_EQ(scene->faults[0].hits, 1);
		CHECK_EQ(cluster->counters[CAREFUL_C_CTRL_REFUSED], 0);
	}
}

/* A third host asks a peer whose only place is taken. */
static void test_refuse__a_waiting_operation_fails_with_the_reason(void)
{
	for (uint32_t kind = 0; kind < OP_KINDS; kind++) {
		const char *why;

		sim_scene(kind);
		scene->nodes = 3;
		scene->options.peers = 1;
		sim_op(OP_REQUEST, 0, 100, 0);
		sim_op(kind, 2, 100, 10)->to = 1;
		why = sim_play_strictly();
		CHECK(why && strstr(why, "operation 1, attempt 1 ends with EUSERS"));
	}
}

/* Three hosts share one place: an idle session yields it and gets it back. */
static void test_yield__an_idle_session_loses_no_frame(void)
{
	for (uint64_t seed = 0; seed < 20; seed++) {
		sim_scene(seed);
		scene->nodes = 3;
		scene->options.peers = 1;
		sim_op(seed % OP_KINDS, 0, 5000, 0)->to = 1;
		sim_op(OP_REQUEST, 2, 100, 1500)->to = 1;
		sim_op(OP_STORE, 0, 5000, 3000 + (double)seed * 0.3)->to = 1;
		sim_op(OP_GET, 2, 5000, 4500 + (double)seed * 0.3)->to = 1;
		EXPECT_WELL(sim_play_strictly());
		CHECK_EQ(cluster->counters[CAREFUL_C_LOST_FRAMES], 0);
		CHECK_EQ(cluster->counters[CAREFUL_C_CTRL_REFUSED], 0);
	}
}

/* The asking host has one place too: it asks its idle peer to yield before it asks another. */
static void test_yield__the_asking_host_frees_a_place(void)
{
	for (uint64_t seed = 0; seed < 20; seed++) {
		sim_scene(seed);
		scene->nodes = 3;
		scene->options.peers = 1;
		sim_op(seed % OP_KINDS, 0, 5000, 0)->to = 1;
		sim_op(OP_REQUEST, 0, 100, 20 + (double)seed * 100)->to = 2;
		sim_op(OP_GET, 0, 5000, 5000 + (double)seed * 0.3)->to = 1;
		EXPECT_WELL(sim_play_strictly());
		CHECK_EQ(cluster->counters[CAREFUL_C_LOST_FRAMES], 0);
		CHECK_EQ(cluster->counters[CAREFUL_C_CTRL_REFUSED], 0);
	}
}

/* A clock jump during neighbour resolution counts as no failed attempt. */
static void test_resolve__a_clock_jump_is_no_attempt(void)
{
	for (uint64_t seed = 0; seed < 20; seed++) {
		struct op *store;

		sim_scene(seed);
		store = sim_op(OP_STORE, 0, 2000, 0);
		sim_fault(SIM_UNRESOLVED, 0, 1, 0, 30);
		sim_fault(SIM_CLOCK, 0, 1, 10, 11)->amount = 5000 * SIM_MS;
		EXPECT_WELL(sim_play());
		CHECK(scene->faults[0].hits > 1);
		CHECK_EQ(scene->faults[1].hits, 1);
		CHECK_EQ(store->last_status, 0);
	}
}

/* If the neighbour is never found, the session and its store end. */
static void test_resolve__a_neighbour_never_found_ends_the_session(void)
{
	struct op *store;

	sim_scene(1);
	store = sim_op(OP_STORE, 0, 2000, 0);
	sim_fault(SIM_UNRESOLVED, 0, 1, 0, 20000);
	EXPECT_WELL(sim_play());
	CHECK_EQ(store->last_status, -ECONNRESET);
}

/* A third node sends to node 1 faster than node 1 receives: for at least 180 ms, node 1's RX ring
 * is never empty. */
static void saturate(uint64_t seed)
{
	sim_scene(seed);
	scene->nodes = 3;
	scene->options.rx_buffers = scene->options.copyout_buffers = 8; /* count per tick */
	scene->config.rx_g_ns = SIM_MS / 2;
	scene->options.sync_ms = STALL_MS;
	for (uint32_t i = 0; i < OPS_MAX - 1; i++)
		sim_op(OP_STORE, 2, OP_BYTES_MAX, 0)->to = 1;
}

static uint64_t saturated_until(void)
{
	uint64_t last = 0;

	for (uint32_t i = 0; i < OPS_MAX - 1; i++)
		if (scene->ops[i].done_ns > last)
			last = scene->ops[i].done_ns;
	CHECK(last > SIM_START + 180 * SIM_MS);
	return last;
}

static void test_repair__ends_at_a_receiver_that_is_never_idle(void)
{
	for (uint64_t seed = 0; seed < 10; seed++) {
		static const uint32_t second = 1;
		struct sim_fault *fault;
		struct op *store;

		saturate(seed);
		store = sim_op(OP_STORE, 0, OP_BYTES_MAX, 0);
		fault = sim_fault(SIM_LOSS, 0, 1, 0, 100);
		fault->what = SIM_DATA;
		fault->only = &second;
		fault->only_count = 1;
		EXPECT_WELL(sim_play());
		CHECK_EQ(fault->hits, 1);
		CHECK_EQ(store->attempt, 1);
		CHECK(cluster->counters[CAREFUL_C_SENT_AGAIN] > 0);
		CHECK(store->done_ns + 50 * SIM_MS < saturated_until());
	}
}

static void test_close__is_seen_by_a_receiver_that_is_never_idle(void)
{
	for (uint64_t seed = 0; seed < 10; seed++) {
		struct op *request;

		saturate(seed);
		request = sim_op(OP_REQUEST, 1, 100, 0);
		request->to = 0;
		request->reply_ns = 50 * SIM_MS;
		sim_fault(FAULT_CLOSE, 0, 0, 20, 100);
		EXPECT_WELL(sim_play());
		CHECK_EQ(scene->faults[0].hits, 1);
		CHECK(request->attempt > 1);
		CHECK(request->done_ns + 20 * SIM_MS < saturated_until());
	}
}

/* A handler, or an operation's callback, closes a session with many operations both ways. */
static void test_close__in_a_callback(void)
{
	uint32_t repeated = 0;

	for (uint64_t seed = 0; seed < 50; seed++) {
		sim_scene(seed);
		for (uint32_t i = 0; i < 12; i++)
			sim_op(i % OP_KINDS, i & 1, 12000, 0);
		sim_fault(FAULT_CLOSE, 0, seed & 1, (double)seed * 0.1, 2000)->amount = 2;
		EXPECT_WELL(sim_play());
		CHECK_EQ(scene->faults[0].hits, 1);
		for (uint32_t i = 0; i < 12; i++)
			repeated += scene->ops[i].attempt > 1;
	}
	CHECK(repeated > 50); /* closed sessions with operations under way */
}

int main(void)
{
	sim_init();
	RUN(test_connect__both_ask_at_once_and_nothing_queued_fails);
	RUN(test_renew__frames_that_overtake_the_welcome);
	RUN(test_close__in_a_callback);
	RUN(test_connect__damage_before_the_welcome_is_not_forgotten);
	RUN(test_refused__a_stranger_stops_no_handshake);
	RUN(test_refused__a_stranger_ends_no_session);
	RUN(test_refused__a_stranger_causes_few_questions);
	RUN(test_refused__a_killed_node_is_given_up_soon);
	RUN(test_hello__replayed_after_both_asked_resets_nothing);
	RUN(test_hello__a_late_copy_resets_nothing);
	RUN(test_sync__a_full_tx_ring_is_no_loss);
	RUN(test_sync__a_tx_ring_that_stays_full_ends_the_session);
	RUN(test_sync__an_answer_older_than_the_frames_is_no_loss);
	RUN(test_sync__frames_that_came_before_the_question_count);
	RUN(test_sync__no_silence_where_nothing_was_awaited);
	RUN(test_close__a_returning_host_finds_its_place);
	RUN(test_refuse__a_waiting_operation_fails_with_the_reason);
	RUN(test_yield__an_idle_session_loses_no_frame);
	RUN(test_yield__the_asking_host_frees_a_place);
	RUN(test_resolve__a_clock_jump_is_no_attempt);
	RUN(test_resolve__a_neighbour_never_found_ends_the_session);
	RUN(test_repair__ends_at_a_receiver_that_is_never_idle);
	RUN(test_close__is_seen_by_a_receiver_that_is_never_idle);
	cluster_destroy(cluster);
	return 0;
}
