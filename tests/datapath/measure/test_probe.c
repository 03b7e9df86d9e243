/* SPDX-License-Identifier: BSD-2-Clause */
/* The probe service between two instances: empty answers, stamped in order of arrival. */
#include "instances.h"

#include <careful/wire.h>

#include "engine/sharing.h"
#include "measure/probe.h"

static uint64_t stamps;

/* A clock that ticks when it is read, so that each stamp is known. */
static uint64_t ticking(void)
{
	return 0x100000002ULL + 1000 * stamps++;
}

static struct probe probe = { .now_ns = ticking, .cookie_of = engine_cookie };

static uint64_t stamp_of(const struct outcome *outcome)
{
	return (uint64_t)outcome->result.args[0] << 32 | outcome->result.args[1];
}

static void test_probe__any_payload_is_answered_empty_with_the_clock(void)
{
	static uint8_t payload[3000];
	struct ends ends;

	ends_open(&ends, 3826);
	stamps = 0;
	CHECK_EQ(probe_serve(ends.c[1], &probe), 0);
	for (uint32_t i = 0; i < 3; i++) {
		struct outcome outcome = { 0 };

		CHECK_EQ(careful_request(ends.c[0], (uint32_t)ends.peer, CAREFUL_PROBE, NULL,
					 payload, i * 1500, on_done, &outcome),
			 0);
		await(&ends, &outcome);
		CHECK_EQ(outcome.result.status, 0);
		CHECK_EQ(outcome.result.bytes, 0);
		CHECK_EQ(stamp_of(&outcome), 0x100000002ULL + i * 1000ULL);
	}
	ends_close(&ends);
}

/* Sends frames `from` to `to` - 1, of different sizes, of a train; the last has an outcome. */
static void send_train(struct ends *ends, uint32_t train, uint32_t from, uint32_t to,
		       struct outcome *outcome)
{
	static uint8_t payload[3000];

	for (uint32_t i = from; i < to; i++) {
		const uint32_t args[CAREFUL_AM_ARGS] = { train, i };
		bool last = i + 1 == to && outcome;

		CHECK_EQ(careful_request(ends->c[0], (uint32_t)ends->peer, CAREFUL_PROBE, args,
					 payload, i % 16 * 100, last ? on_done : NULL, outcome),
			 0);
	}
}

static void test_probe__a_train_has_one_answer(void)
{
	static struct outcome outcome;
	struct careful_info info;
	struct ends ends;

	memset(&outcome, 0, sizeof(outcome));
	ends_open(&ends, 3826);
	stamps = 0;
	probe_serve(ends.c[1], &probe);
	send_train(&ends, 7, 0, 16, &outcome);
	await(&ends, &outcome);
	CHECK_EQ(outcome.result.status, 0);
	CHECK_EQ(outcome.result.bytes, 16 * sizeof(__be64));
	for (uint64_t i = 0; i < 16; i++) {
		__be64 stamp;

		memcpy(&stamp, outcome.payload + i * sizeof(stamp), sizeof(stamp));
		CHECK_EQ(be64toh(stamp), 0x100000002ULL + i * 1000ULL);
	}
	CHECK_EQ(careful_info(ends.c[1], &info), 0);
	CHECK_EQ(info.counters[CAREFUL_C_TX_FRAMES], 1);
	ends_close(&ends);
}

static void test_probe__a_train_that_is_not_whole(void)
{
	static struct outcome outcome;
	struct ends ends;

	ends_open(&ends, 3826);
	probe_serve(ends.c[1], &probe);
	/* Another train begins before the end; a train is too long; a frame is missing. */
	for (uint32_t i = 0; i < 3; i++) {
		memset(&outcome, 0, sizeof(outcome));
		if (i == 0) {
			send_train(&ends, 1, 0, 4, NULL);
			send_train(&ends, 2, 0, 2, NULL);
			send_train(&ends, 1, 4, 5, &outcome);
		} else if (i == 1) {
			for (uint32_t peer = 0; peer < CAREFUL_PEERS_MAX; peer++) {
				probe.trains[peer].number = 3;
				probe.trains[peer].count = CAREFUL_PROBE_FRAMES;
			}
			send_train(&ends, 3, CAREFUL_PROBE_FRAMES, CAREFUL_PROBE_FRAMES + 1,
				   &outcome);
		} else {
			send_train(&ends, 4, 0, 2, NULL);
			send_train(&ends, 4, 3, 4, &outcome);
		}
		await(&ends, &outcome);
		CHECK_EQ(outcome.result.status, -EAGAIN);
		CHECK_EQ(outcome.result.bytes, 0);
	}
	ends_close(&ends);
}

/* Asks for arrivals and waits for the answer. */
static void ask_arrivals(struct ends *ends, uint32_t from, struct outcome *outcome)
{
	const uint32_t args[CAREFUL_AM_ARGS] = { from };

	memset(outcome, 0, sizeof(*outcome));
	CHECK_EQ(careful_request(ends->c[0], (uint32_t)ends->peer, CAREFUL_ARRIVALS, args, NULL, 0,
				 on_done, outcome),
		 0);
	await(ends, outcome);
}

static struct careful_arrival arrival_of(const struct outcome *outcome, uint32_t i)
{
	struct careful_arrival at;

	memcpy(&at, outcome->payload + i * sizeof(at), sizeof(at));
	return (struct careful_arrival){
		.at_ns = be64toh(at.at_ns),
		.bytes = be32toh(at.bytes),
		.others = be32toh(at.others),
	};
}

static void test_probe__arrivals_have_times_and_sizes(void)
{
	static struct outcome outcome;
	uint64_t before_ns = 0;
	struct ends ends;

	ends_open(&ends, 3826);
	probe.arrivals = engine_arrivals(ends.c[1]);
	CHECK_EQ(probe_serve(ends.c[1], &probe), 0);
	ask_arrivals(&ends, 1, &outcome);
	CHECK_EQ(outcome.result.status, -ENOENT);
	ask_arrivals(&ends, 0, &outcome);
	CHECK_EQ(outcome.result.status, 0);
	memset(&outcome, 0, sizeof(outcome));
	send_train(&ends, 7, 0, 16, &outcome);
	await(&ends, &outcome);
	ask_arrivals(&ends, 1, &outcome);
	CHECK_EQ(outcome.result.status, 0);
	CHECK(outcome.result.args[0] >= 17); /* the train, and the question */
	CHECK_EQ(outcome.result.bytes,
		 outcome.result.args[0] * (uint32_t)sizeof(struct careful_arrival));
	for (uint32_t i = 0; i < 16; i++) {
		const struct careful_arrival at = arrival_of(&outcome, i);

		CHECK_EQ(at.bytes, sizeof(struct careful_am) + i * 100);
		CHECK(at.at_ns >= before_ns);
		CHECK_EQ(at.others, 0);
		before_ns = at.at_ns;
	}
	ask_arrivals(&ends, 1 + 16, &outcome);
	CHECK_EQ(arrival_of(&outcome, 0).bytes, sizeof(struct careful_am));
	ends_close(&ends);
}

/* The ring keeps the last arrivals; a question for older ones gets the oldest that are left. */
static void test_probe__arrivals_that_were_overwritten(void)
{
	const uint32_t kept = CAREFUL_ARRIVALS_MAX / 2;
	static struct outcome outcome;
	struct careful_arrivals *arrivals;
	struct ends ends;

	ends_open(&ends, 3826);
	arrivals = probe.arrivals = engine_arrivals(ends.c[1]);
	CHECK_EQ(probe_serve(ends.c[1], &probe), 0);
	ask_arrivals(&ends, 0, &outcome);
	CHECK_EQ(outcome.result.bytes, 0);
	arrivals->count = 1000;
	arrivals->ring[(1001 - kept) % CAREFUL_ARRIVALS_MAX].bytes = 77;
	ask_arrivals(&ends, 1, &outcome);
	CHECK_EQ(outcome.result.args[0], 1001); /* includes the question */
	CHECK_EQ(outcome.result.args[1], 1001 - kept);
	CHECK_EQ(arrival_of(&outcome, 0).bytes, 77);
	CHECK_EQ(arrivals->until, 1001 + CAREFUL_ARRIVALS_MORE);
	ask_arrivals(&ends, UINT32_MAX, &outcome);
	CHECK_EQ(outcome.result.status, 0);
	CHECK_EQ(outcome.result.bytes, 0);
	arrivals->until = arrivals->count;
	ask_arrivals(&ends, 1002, &outcome);
	CHECK_EQ(outcome.result.args[0],
		 1002); /* the recording had ended: this question is not in it */
	ends_close(&ends);
}

/* A recording is not disturbed while its session asks, and other sessions cannot read it. */
static void test_probe__arrivals_of_another_session(void)
{
	static struct outcome outcome;
	struct careful_arrivals *arrivals;
	struct ends ends;

	ends_open(&ends, 3826);
	arrivals = probe.arrivals = engine_arrivals(ends.c[1]);
	CHECK_EQ(probe_serve(ends.c[1], &probe), 0);
	stamps = 0;
	arrivals->cookie = engine_cookie(ends.c[1], 0) + 1;
	arrivals->count = 5;
	arrivals->until = 100;
	probe.asked_ns = ticking();
	ask_arrivals(&ends, 1, &outcome);
	CHECK_EQ(outcome.result.status, -ENOENT);
	CHECK_EQ(outcome.result.bytes, 0);
	ask_arrivals(&ends, 0, &outcome);
	CHECK_EQ(outcome.result.status, -EBUSY);
	CHECK_EQ(arrivals->count, 5);
	CHECK(arrivals->others > 0);
	stamps += CAREFUL_ARRIVALS_MS * 1000; /* a microsecond each */
	ask_arrivals(&ends, 0, &outcome);
	CHECK_EQ(outcome.result.status, 0);
	CHECK_EQ(arrivals->cookie, engine_cookie(ends.c[1], 0));
	ends_close(&ends);
}

/* A peer that keeps beginning trains, even under the same number, ends no train of another. */
static void test_probe__trains_of_two_peers(void)
{
	const struct careful_message begin = { .peer = 1, .args = { 5, 0 } };

	for (uint32_t i = 0; i < 16; i++) {
		const struct careful_message next = { .peer = 0, .args = { 5, i } };

		CHECK(probe_train_add(&probe.trains[next.peer], &next, i));
		CHECK(probe_train_add(&probe.trains[begin.peer], &begin, i));
	}
	CHECK_EQ(probe.trains[0].count, 16);
	CHECK_EQ(probe.trains[1].count, 1);
}

int main(void)
{
	RUN(test_probe__any_payload_is_answered_empty_with_the_clock);
	RUN(test_probe__a_train_has_one_answer);
	RUN(test_probe__a_train_that_is_not_whole);
	RUN(test_probe__arrivals_have_times_and_sizes);
	RUN(test_probe__arrivals_that_were_overwritten);
	RUN(test_probe__arrivals_of_another_session);
	RUN(test_probe__trains_of_two_peers);
	return 0;
}
