// SPDX-License-Identifier: BSD-2-Clause
/*
 * Histograms of the times of operations (link/operation_timer.h), in bins of 1 ns. The
 * clock is the processor's counter if it has one; the time of a clock reading is subtracted.
 */
#include "operation_times.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "clock.h"

enum {
	BINS = 2000, /* the last bin has all longer times */
	TRIES = 2000,
	OUTLIER =
		10, /* times the median, and 100 ns: another program ran meanwhile (P2's appendix) */
};

static uint32_t bins[OPERATIONS][BINS];
static uint64_t inner; /* ticks of spans within the open span, with their clock readings */
static double tick_ns = 1;
static uint64_t within, around; /* ticks of an empty span: as it counts them, and in all */

struct timed_span timed_begin(enum timed_operation what)
{
	struct timed_span span = { .what = what, .inner = inner };

	inner = 0;
	span.began = clock_ticks();
	return span;
}

static void put(uint32_t which, uint64_t ticks)
{
	double ns = ticks > within ? (double)(ticks - within) * tick_ns : 0;

	bins[which][ns < BINS - 1 ? (uint32_t)(ns + 0.5) : BINS - 1]++;
}

void timed_end(struct timed_span *span)
{
	uint64_t took = clock_ticks() - span->began;

	put(span->what, took - inner);
	inner = span->inner + took - within + around;
}

void timed_forget(void)
{
	memset(bins, 0, sizeof(bins));
	inner = 0;
}

void timed_calibrate(void)
{
	tick_ns = clock_tick_ns();
	within = around = UINT64_MAX;
	for (int i = 0; i < TRIES; i++) {
		uint64_t from = clock_ticks(), one;

		{
			one = clock_ticks();
			one = clock_ticks() - one;
		}
		within = one < within ? one : within;
		from = clock_ticks() - from;
		around = from < around ? from : around;
	}
	timed_forget();
}

/* Returns the median of the first n bins. */
static uint32_t middle(const uint32_t *counts, uint32_t n)
{
	uint64_t all = 0, below = 0;
	uint32_t at = 0;

	for (uint32_t i = 0; i < n; i++)
		all += counts[i];
	while (at + 1 < n && 2 * (below + counts[at]) < all)
		below += counts[at++];
	return at;
}

/* Prints the count per unit, and the median, mean and bins without outliers. */
static void print_one(const uint32_t *counts, const char *name, uint32_t units)
{
	uint32_t most = OUTLIER * (middle(counts, BINS) + 10);
	double sum = 0;
	uint64_t all = 0, kept = 0;

	most = most < BINS - 1 ? most : BINS - 1;
	for (uint32_t i = 0; i < BINS; i++)
		all += counts[i];
	for (uint32_t i = 0; i < most; i++) {
		kept += counts[i];
		sum += (double)i * counts[i];
	}
	while (most && !counts[most - 1])
		most--;
	printf(", \"%s\": {\"each\": %.3f, \"median_ns\": %u, \"mean_ns\": %.2f, \"counts\": [",
	       name, (double)all / units, middle(counts, most), kept ? sum / (double)kept : 0);
	for (uint32_t i = 0; i < most; i++)
		printf("%s%u", i ? ", " : "", counts[i]);
	printf("]}");
}

void timed_print(uint32_t units)
{
	static const char *const names[OPERATIONS] = { "send",	"left", "heed", "take",
						       "check", "tell", "tick" };

	for (uint32_t i = 0; i < OPERATIONS; i++)
		print_one(bins[i], names[i], units);
}
