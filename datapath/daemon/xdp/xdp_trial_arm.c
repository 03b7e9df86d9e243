/* SPDX-License-Identifier: BSD-2-Clause */
#include "daemon/xdp/xdp_trial_arm.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <careful/wire.h>

#include "base/clock.h"
#include "measure/probe.h"

enum {
	TRIP_BYTES = 64,
	TRIPS_WARMUP = 50,
	TRIPS_MAX = 1500,
	TRIPS_MIN = 8, /* fewer are not significant */
	TRIPS_NS = 12 * 1000 * 1000,
	GET_BYTES = 32 << 10,
	GETS = 4, /* under way */
	GETS_MIN = 8,
	STREAM_WARMUP_NS = 8 * 1000 * 1000, /* for the kernel's memory for packets */
	STREAM_NS = 20 * 1000 * 1000,
	SLOW_NS = 5 * 1000 * 1000, /* a path with such a round trip or get is too slow for trials */
	GETS_ALONE = 3, /* one of them must be fast: a busy machine can delay the others */
};

_Static_assert((int)GET_BYTES <= (int)SCRATCH_BYTES, "fits the peer's scratch memory");

/* Requests under way. Static, because an answer may arrive after the trial has ended. */
static struct {
	uint32_t round; /* answers of earlier rounds are ignored */
	uint32_t first; /* index of the peer whose answer is @status */
	uint32_t outstanding; /* requests without an answer */
	uint64_t bytes;
	uint32_t answers;
	int status;
	uint32_t args[CAREFUL_AM_ARGS];
} under_way;

static void begin_round(void)
{
	uint32_t round = under_way.round + 1;

	memset(&under_way, 0, sizeof(under_way));
	under_way.round = round;
}

static void on_done(const struct careful_result *result, void *user)
{
	uint64_t tag = (uintptr_t)user;

	if ((uint32_t)tag != under_way.round)
		return;
	under_way.outstanding--;
	under_way.bytes += result->bytes;
	under_way.answers++;
	memcpy(under_way.args, result->args, sizeof(under_way.args));
	if (result->status && !under_way.status) {
		under_way.status = result->status;
		under_way.first = (uint32_t)(tag >> 32);
	}
}

/* Waits until at most `rest` requests have no answer. Returns the first failure's status, or 0. */
static int await_answers(struct careful *c, uint32_t rest, uint64_t until_ns)
{
	while (under_way.outstanding > rest && !under_way.status) {
		int rc = careful_wait(c, 1, -1);

		if (rc < 0)
			return rc;
		if (clock_now_ns() > until_ns)
			return -ETIMEDOUT;
	}
	return under_way.status;
}

static int request(struct careful *c, uint32_t peer, uint16_t handler, const uint32_t *args,
		   uint32_t bytes, uint64_t until_ns)
{
	static const uint8_t payload[TRIP_BYTES];
	int rc;

	while ((rc = careful_request(c, peer, handler, args, payload, bytes, on_done,
				     (void *)(uintptr_t)under_way.round)) == -EAGAIN) {
		if (careful_wait(c, 1, -1) < 0 || clock_now_ns() > until_ns)
			return -ETIMEDOUT;
	}
	if (rc)
		return rc;
	under_way.outstanding++;
	return await_answers(c, 0, until_ns);
}

int xdp_trial_ask(struct careful *c, uint32_t peer, uint16_t handler,
		  uint32_t args[CAREFUL_AM_ARGS], uint64_t until_ns)
{
	int rc;

	begin_round();
	rc = request(c, peer, handler, args, 0, until_ns);
	memcpy(args, under_way.args, sizeof(under_way.args));
	return rc;
}

int xdp_trial_ask_all(struct careful *c, const uint32_t *peers, uint32_t count, uint16_t handler,
		      const uint32_t args[CAREFUL_AM_ARGS], uint64_t until_ns, uint32_t *first)
{
	int rc = 0;

	begin_round();
	under_way.first = count;
	for (uint32_t i = 0; i < count; i++) {
		rc = careful_request(c, peers[i], handler, args, NULL, 0, on_done,
				     (void *)(uintptr_t)((uint64_t)i << 32 | under_way.round));
		if (rc) {
			*first = i;
			return rc;
		}
		under_way.outstanding++;
	}
	rc = await_answers(c, 0, until_ns);
	*first = under_way.first;
	return rc;
}

static int by_time(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

/* Measures round trips. *trip_ns is their lower quartile, because disturbances only add time. */
static int measure_trips(struct careful *c, uint32_t peer, uint64_t until_ns, double *trip_ns)
{
	static uint64_t took[TRIPS_MAX];
	const uint32_t args[CAREFUL_AM_ARGS] = { 0 };
	uint64_t start_ns = clock_now_ns(), began_ns = start_ns;
	uint32_t count = 0, quarter;
	int rc;

	for (uint32_t i = 0;
	     count < TRIPS_MAX && (began_ns - start_ns < TRIPS_NS || count < TRIPS_MIN); i++) {
		begin_round();
		rc = request(c, peer, CAREFUL_PROBE, args, TRIP_BYTES, until_ns);
		if (rc)
			return rc;
		took[count] = clock_now_ns() - began_ns;
		began_ns += took[count];
		/* On a slow path the round trips of the warm-up count, too. */
		count += i >= TRIPS_WARMUP || took[count] > TRIPS_NS / TRIPS_WARMUP;
	}
	qsort(took, count, sizeof(took[0]), by_time);
	quarter = count / 4;
	*trip_ns = (double)took[quarter];
	return took[quarter] > SLOW_NS ? -ETIME : 0;
}

static int get(struct careful *c, uint32_t peer, uint32_t region)
{
	const struct careful_span span = { .base = scratch_memory(), .fd = -1 };
	int rc = careful_get(c, peer, region, 0, &span, GET_BYTES, CAREFUL_NO_DIGEST, on_done,
			     (void *)(uintptr_t)under_way.round);

	under_way.outstanding += !rc;
	return rc == -EAGAIN ? 0 : rc;
}

/* Makes single gets. Returns -ETIME if all are slow: a stream of gets would delay others' data. */
static int try_gets(struct careful *c, uint32_t peer, uint32_t region, uint64_t until_ns)
{
	for (uint32_t i = 0; i < GETS_ALONE; i++) {
		uint64_t began_ns = clock_now_ns();
		int rc = get(c, peer, region);

		if (!rc)
			rc = await_answers(c, 0, until_ns);
		if (rc || clock_now_ns() - began_ns < SLOW_NS)
			return rc;
	}
	return -ETIME;
}

static int measure_stream(struct careful *c, uint32_t peer, uint32_t region, uint64_t until_ns,
			  double *rate)
{
	uint64_t start, at, warm = 0, bytes = 0; /* warm: when the warm-up ended; 0: not yet */
	uint32_t gets = 0;
	int rc;

	begin_round();
	rc = try_gets(c, peer, region, until_ns);
	if (rc)
		return rc;
	start = clock_now_ns();
	do {
		if (under_way.outstanding < GETS)
			rc = get(c, peer, region);
		if (!rc)
			rc = await_answers(c, GETS - 1, until_ns);
		at = clock_now_ns();
		if (!warm && at - start >= STREAM_WARMUP_NS) {
			warm = at;
			bytes = under_way.bytes;
			gets = under_way.answers;
		}
	} while (!rc && (!warm || at - warm < STREAM_NS || under_way.answers - gets < GETS_MIN));
	if (rc)
		return rc;
	*rate = (double)(under_way.bytes - bytes) * 1000 / (double)(at - warm);
	return await_answers(c, 0, until_ns);
}

int xdp_trial_arm(struct careful *c, uint32_t peer, uint32_t region, uint64_t until_ns,
		  struct xdp_figures *figures)
{
	int rc = measure_trips(c, peer, until_ns, &figures->trip_ns);

	return rc ? rc : measure_stream(c, peer, region, until_ns, &figures->rate);
}
