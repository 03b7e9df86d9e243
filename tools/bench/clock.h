/* SPDX-License-Identifier: BSD-2-Clause */
/* What the measuring programs share: a clock, quantiles, and the XDP mode that
 * CAREFUL_XDP names (auto, native, generic). */
#ifndef BENCH_CLOCK_H
#define BENCH_CLOCK_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <careful/careful.h>

static inline uint64_t clock_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static inline int clock_compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a;
	uint64_t y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

/* Sorts ns and returns its percentile. */
static inline double clock_quantile(uint64_t *ns, uint32_t count, uint32_t percent)
{
	qsort(ns, count, sizeof(*ns), clock_compare);
	return count ? (double)ns[(uint64_t)(count - 1) * percent / 100] : 0;
}

static inline uint32_t clock_xdp_mode(void)
{
	const char *name = getenv("CAREFUL_XDP");

	if (name && !strcmp(name, "native"))
		return CAREFUL_XDP_NATIVE;
	return name && !strcmp(name, "generic") ? CAREFUL_XDP_GENERIC : CAREFUL_XDP_AUTO;
}

#endif /* BENCH_CLOCK_H */
