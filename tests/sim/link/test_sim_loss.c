// SPDX-License-Identifier: BSD-2-Clause
/*
 * Each frame of a small transfer is lost in turn, data and updates. It is repaired soon, no epoch
 * ends, and no operation is repeated. Then the same for each control message, and for each pair of
 * frames.
 */
#include "run.h"
#include "sim.h"

enum {
	FRAMES_MAX = 200,
	/* The silence before a lost tail is suspected, the questions, and a wake-up for each. */
	REPAIRED_MS = 50,
	FLAP_AT_MS = 200, /* the session is open, though messages were lost */
	FLAP_MS = 100,
	FLAP_LATE_MS = 10, /* from the link's return until frames are handed on, */
	FLAP_DONE_MS = 20, /* and until all is done */
};

/* Two bursts with silence between. */
static void transfer(void)
{
	sim_transfer(7, 600);
}

/* Counts the frames or messages of a kind without loss. */
static uint32_t count(uint8_t what)
{
	static uint32_t never = UINT32_MAX;
	struct sim_fault *fault;

	transfer();
	fault = sim_fault(SIM_LOSS, SIM_ANY, SIM_ANY, 0, 1000);
	fault->what = what;
	fault->only = &never;
	fault->only_count = 1;
	EXPECT_WELL(sim_play_strictly());
	CHECK(fault->seen > 0 && fault->seen < FRAMES_MAX);
	return fault->seen;
}

static const char *lose(uint8_t what, const uint32_t *only, uint32_t n)
{
	struct sim_fault *fault;
	const char *why;

	transfer();
	fault = sim_fault(SIM_LOSS, SIM_ANY, SIM_ANY, 0, 1000);
	fault->what = what;
	fault->only = only;
	fault->only_count = n;
	why = sim_play();
	CHECK_EQ(fault->hits > 0, 1);
	return why;
}

/* Checks that a repair sufficed, and that all was done this long after the last operation began. */
static void expect_repaired(uint32_t ms)
{
	CHECK(cluster->counters[CAREFUL_C_SENT_AGAIN] > 0);
	CHECK_EQ(cluster->counters[CAREFUL_C_EPOCHS_BROKEN], 0);
	CHECK_EQ(cluster->counters[CAREFUL_C_BAD_CREDITS], 0);
	CHECK_EQ(cluster->counters[CAREFUL_C_STALLS], 0);
	for (uint32_t k = 0; k < scene->ops_count; k++)
		CHECK_EQ(scene->ops[k].attempt, 1);
	CHECK(sim_last_done_ns() < SIM_START + (600 + ms) * SIM_MS);
}

static void each_frame(uint8_t what)
{
	uint32_t n = count(what);
	uint64_t last_ns = 0;

	for (uint32_t i = 0; i < n; i++) {
		EXPECT_WELL(lose(what, &i, 1));
		expect_repaired(REPAIRED_MS);
		if (sim_last_done_ns() > last_ns)
			last_ns = sim_last_done_ns();
	}
	printf("  %u frames; all is done after %.1f ms at most\n", n,
	       (double)(last_ns - SIM_START) * 1e-6);
}

static void test_loss__each_data_frame_in_turn(void)
{
	each_frame(SIM_DATA);
}

static void test_loss__each_update_in_turn(void)
{
	each_frame(SIM_UPDATES);
}

/* Requests are counted by cause: a later frame has arrived, or none has. */
static void test_loss__is_counted_by_cause(void)
{
	const uint32_t last = count(SIM_DATA) - 1;

	for (uint32_t i = 0; i <= last; i += last) {
		EXPECT_WELL(lose(SIM_DATA, &i, 1));
		CHECK(cluster->counters[CAREFUL_C_ASKED_AGAIN] > 0);
		CHECK_EQ(cluster->counters[CAREFUL_C_TIMED_OUT],
			 i ? cluster->counters[CAREFUL_C_ASKED_AGAIN] : 0);
	}
}

/* A lost control message is repeated; no frame is lost and no operation fails. */
static void test_loss__each_control_message_in_turn(void)
{
	uint32_t n = count(SIM_CONTROL);

	for (uint32_t i = 0; i < n; i++) {
		EXPECT_WELL(lose(SIM_CONTROL, &i, 1));
		CHECK_EQ(cluster->counters[CAREFUL_C_LOST_FRAMES], 0);
		CHECK_EQ(cluster->counters[CAREFUL_C_EPOCHS_BROKEN], 0);
		for (uint32_t k = 0; k < scene->ops_count; k++)
			CHECK_EQ(scene->ops[k].attempt, 1);
	}
	printf("  %u messages\n", n);
}

static void test_loss__each_two_frames(void)
{
	uint32_t n = count(SIM_FRAMES);
	uint32_t runs = 0;

	for (uint32_t i = 0; i < n; i++)
		for (uint32_t k = i + 1; k < n; k++, runs++) {
			const uint32_t only[2] = { i, k };

			EXPECT_WELL(lose(SIM_FRAMES, only, 2));
			expect_repaired(2 * REPAIRED_MS);
		}
	printf("  %u pairs of %u frames\n", runs, n);
}

static uint32_t handed_on[2]; /* by node: frames until the link's return */
static uint64_t continued_ns; /* when one more followed */

static void note_continued(struct node *node)
{
	const uint64_t now_ns = sim_now_ns(cluster->world);
	const uint32_t frames = node->c ? node->c->link.peers[0].flow.seq_in : 0;

	if (now_ns < SIM_START + (FLAP_AT_MS + FLAP_MS) * SIM_MS)
		handed_on[node->port] = frames;
	else if (!continued_ns && frames > handed_on[node->port])
		continued_ns = now_ns;
}

/* The link is down for 100 ms during a transfer. Returns after what time the transfer continues.
 * `gaps`: one frame in ten was lost before, so some are missing. */
static uint64_t flap(uint64_t seed, bool gaps)
{
	sim_scene(seed);
	scene->config.wire_delay_ns = 20000;
	scene->on_round = note_continued;
	continued_ns = 0;
	sim_op(OP_REQUEST, seed & 1, 100, 0);
	for (uint32_t i = 1; i < 24; i++)
		sim_op(i & 1 ? OP_GET : OP_STORE, seed & 1, 12000, FLAP_AT_MS - 3 + 0.25 * i);
	if (gaps)
		sim_fault(SIM_LOSS, SIM_ANY, SIM_ANY, 0, FLAP_AT_MS)->one_in = 10;
	sim_fault(SIM_LOSS, SIM_ANY, SIM_ANY, FLAP_AT_MS, FLAP_AT_MS + FLAP_MS);
	EXPECT_WELL(sim_play_strictly());
	CHECK_EQ(cluster->counters[CAREFUL_C_EPOCHS_BROKEN], 0);
	return continued_ns - SIM_START - (FLAP_AT_MS + FLAP_MS) * SIM_MS;
}

static void test_flap__continues_when_the_link_returns(void)
{
	for (uint32_t gaps = 0; gaps < 2; gaps++) {
		uint64_t most_ns = 0, done_ns = 0;

		for (uint64_t seed = 0; seed < 400; seed++) {
			const uint64_t late_ns = flap(seed, gaps);

			most_ns = late_ns > most_ns ? late_ns : most_ns;
			done_ns = sim_last_done_ns() > done_ns ? sim_last_done_ns() : done_ns;
		}
		printf("  %s: continues after at most %.1f ms, all is done after at most %.1f ms\n",
		       gaps ? "with gaps" : "without", (double)most_ns * 1e-6,
		       (double)(done_ns - SIM_START) * 1e-6 - FLAP_AT_MS - FLAP_MS);
		CHECK(most_ns < FLAP_LATE_MS * SIM_MS);
		CHECK(done_ns < SIM_START + (FLAP_AT_MS + FLAP_MS + FLAP_DONE_MS) * SIM_MS);
	}
}

/* An epoch ended while frames were requested: these requests are not counted in the next one. */
static void test_loss__requests_end_with_their_epoch(void)
{
	static const struct cut none;

	EXPECT_WELL(run_cut(cluster, 234960, true, &none));
}

/* Many frames were lost while a sink kept buffers: the window shrinks, but exceeds these buffers. */
static void test_loss__a_window_exceeds_what_sinks_keep(void)
{
	static const struct cut none;

	EXPECT_WELL(run_cut(cluster, 413680, true, &none));
}

/* Loses one frame in ten while both hosts' clocks reach clock_us. Returns the number of requests,
 * and adds the duration to *ns. */
static uint64_t repaired_at(uint64_t clock_us, uint64_t seed, uint64_t *ns)
{
	sim_scene(seed);
	scene->config.wire_delay_ns = 20000;
	for (uint32_t port = 0; clock_us && port < 2; port++)
		sim_fault(SIM_CLOCK, SIM_ANY, port, 0, 1)->amount =
			1000 * clock_us - SIM_START - 5 * SIM_MS;
	for (uint32_t i = 0; i < 24; i++)
		sim_op(i & 1 ? OP_GET : OP_STORE, seed & 1, 12000, 2 + 0.25 * i);
	sim_fault(SIM_LOSS, SIM_ANY, SIM_ANY, 2, 1000)->one_in = 10;
	EXPECT_WELL(sim_play());
	CHECK_EQ(cluster->counters[CAREFUL_C_EPOCHS_BROKEN], 0);
	*ns += sim_last_done_ns() - SIM_START;
	return cluster->counters[CAREFUL_C_ASKED_AGAIN];
}

/* The times of requests have 32 bits of microseconds: their sign changes after 36 minutes, and they
 * begin anew after 72. Neither costs more requests or time than a clock that has just started. */
static void test_repair__as_soon_when_the_time_wraps(void)
{
	static const uint64_t clocks_us[] = { 0, 1ull << 31, 1ull << 32 };
	uint64_t asked[3] = { 0 }, ns[3] = { 0 };

	for (uint32_t k = 0; k < 3; k++) {
		for (uint64_t seed = 0; seed < 400; seed++)
			asked[k] += repaired_at(clocks_us[k], seed, &ns[k]);
		printf("  at %llu us: %llu requests, %.1f ms\n", (unsigned long long)clocks_us[k],
		       (unsigned long long)asked[k], (double)ns[k] * 1e-6);
		CHECK(asked[k] <= asked[0] + asked[0] / 100);
		CHECK(ns[k] <= ns[0] + ns[0] / 5);
	}
}

int main(void)
{
	sim_init();
	RUN(test_loss__each_data_frame_in_turn);
	RUN(test_loss__each_update_in_turn);
	RUN(test_loss__is_counted_by_cause);
	RUN(test_loss__each_control_message_in_turn);
	RUN(test_loss__each_two_frames);
	RUN(test_repair__as_soon_when_the_time_wraps);
	RUN(test_loss__requests_end_with_their_epoch);
	RUN(test_loss__a_window_exceeds_what_sinks_keep);
	RUN(test_flap__continues_when_the_link_returns);
	cluster_destroy(cluster);
	return 0;
}
