// SPDX-License-Identifier: BSD-2-Clause
/*
 * Requests of 64 bytes while one frame in 1,000 is lost, in both directions. The slowest one in
 * 1,000 takes three control round trips while other requests follow. A lone request takes as long
 * plus the silence after which a lost tail is suspected. Each run measures the control round trip.
 */
#include "event_world.h"

#include <stdlib.h>

#include "link/session/session.h"

enum {
	REQUESTS = 20000,
	BYTES = 64,
	DELAY_NS = 20000,
	LOST_ONE_IN = 1000,
	IN_FLIGHT_MAX = 16,
	SUSPECT_NS = 1000000 + ENGINE_TICK_NS,
	/* The most that a control round trip takes during a repair: each end looks at its socket every
	 * ENGINE_REPAIR_NS. Without repairs, the measured round trip can be longer. */
	ROUND_NS = 2 * (DELAY_NS + ENGINE_REPAIR_NS),
	ROUNDS = 3,
	QUESTIONS = 201, /* to measure the round trip */
};

static struct world w;
static uint64_t times_ns[REQUESTS];
static uint32_t done;

struct asked {
	uint64_t at_ns;
	bool busy;
};

static void on_request(const struct careful_message *message, void *user)
{
	(void)user;
	careful_reply(message, 0, message->args, message->payload, message->bytes);
}

static void on_reply(const struct careful_result *result, void *user)
{
	struct asked *asked = user;

	CHECK_EQ(result->status, 0);
	CHECK_EQ(result->bytes, BYTES);
	asked->busy = false;
	if (done < REQUESTS)
		times_ns[done++] = world_now_ns(&w) - asked->at_ns;
}

static void begin(void)
{
	world_set(&w, 2, 64, 64);
	w.options.repair = CAREFUL_REPAIR_ON;
	w.config.wire_delay_ns = w.config.ctrl_delay_ns = DELAY_NS;
	w.faults[w.faults_count++] = (struct sim_fault){
		.kind = SIM_LOSS,
		.from = SIM_ANY,
		.to = SIM_ANY,
		.what = SIM_FRAMES,
		.one_in = LOST_ONE_IN,
		.until_ns = UINT64_MAX,
	};
	world_begin(&w);
	CHECK_EQ(careful_handle(w.node[1].c, 1, on_request, NULL), 0);
}

static int ascending(const void *left, const void *right)
{
	uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;

	return (a > b) - (a < b);
}

static void ask(struct asked *asked)
{
	static const uint32_t args[CAREFUL_AM_ARGS];
	static const uint8_t payload[BYTES];
	int rc;

	if (asked->busy)
		return;
	rc = careful_request(w.node[0].c, w.node[0].peers[1], 1, args, payload, BYTES, on_reply,
			     asked);
	CHECK(!rc || rc == -EAGAIN);
	asked->busy = !rc;
	asked->at_ns = world_now_ns(&w);
}

/* Keeps this many requests in flight. */
static void step(struct asked *asked, uint32_t in_flight)
{
	for (uint32_t i = 0; i < in_flight; i++)
		ask(&asked[i]);
	w.idle = 0; /* polls all the time */
	world_step(&w);
}

/* Returns the median round trip of a control message while requests go on. */
static uint64_t control_round_ns(struct asked *asked, uint32_t in_flight)
{
	struct link_peer *peer = &w.node[0].c->link.peers[w.node[0].peers[1]];
	uint64_t rounds_ns[QUESTIONS], began_ns;

	for (uint32_t i = 0; i < QUESTIONS; i++) {
		control_watch_ask(peer);
		began_ns = world_now_ns(&w);
		while (peer->session->control_watch.nonce)
			step(asked, in_flight);
		rounds_ns[i] = world_now_ns(&w) - began_ns;
	}
	qsort(rounds_ns, QUESTIONS, sizeof(rounds_ns[0]), ascending);
	return rounds_ns[QUESTIONS / 2];
}

/* The slowest request in 1,000 takes at most three control round trips and this silence. */
static void slowest(uint32_t in_flight, uint64_t silence_ns)
{
	struct asked asked[IN_FLIGHT_MAX] = { 0 };
	uint64_t p50_ns, p999_ns, round_ns;

	begin();
	for (done = 0; done < REQUESTS;)
		step(asked, in_flight);
	round_ns = control_round_ns(asked, in_flight);
	CHECK(world_count(&w, CAREFUL_C_SENT_AGAIN) >= REQUESTS / LOST_ONE_IN);
	CHECK_EQ(world_count(&w, CAREFUL_C_EPOCHS_BROKEN), 0);
	world_end(&w);
	qsort(times_ns, REQUESTS, sizeof(times_ns[0]), ascending);
	p50_ns = times_ns[REQUESTS / 2];
	p999_ns = times_ns[REQUESTS - REQUESTS / 1000];
	printf("  %2u in flight: P50 %.1f us, P99.9 %.1f us, control round trip %.1f us\n",
	       in_flight, (double)p50_ns / 1e3, (double)p999_ns / 1e3, (double)round_ns / 1e3);
	CHECK(p999_ns <= silence_ns + ROUNDS * round_ns);
	CHECK(p999_ns <= silence_ns + ROUNDS * ROUND_NS);
}

static void test_tail__others_follow(void)
{
	slowest(IN_FLIGHT_MAX, 0);
}

static void test_tail__a_lone_request(void)
{
	slowest(1, SUSPECT_NS);
}

int main(void)
{
	RUN(test_tail__others_follow);
	RUN(test_tail__a_lone_request);
	return 0;
}
