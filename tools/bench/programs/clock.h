/* SPDX-License-Identifier: BSD-2-Clause */
/* Helpers of the measuring programs: clocks, quantiles, and the settings that CAREFUL_XDP (auto,
 * native, generic) and CAREFUL_PROTOCOL (careful, traditional) name. */
#ifndef BENCH_CLOCK_H
#define BENCH_CLOCK_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <careful/careful.h>

#include "base/clock.h"

/* The processor's counter if it has one; a tick lasts clock_tick_ns(). */
static inline uint64_t clock_ticks(void)
{
#if defined(__x86_64__) || defined(__i386__)
	return __builtin_ia32_rdtsc();
#else
	return clock_now_ns();
#endif
}

/* Needs 20 ms. */
static inline double clock_tick_ns(void)
{
	uint64_t began_ns = clock_now_ns(), began = clock_ticks(), took_ns;

	while ((took_ns = clock_now_ns() - began_ns) < 20 * 1000 * 1000)
		;
	return (double)took_ns / (double)(clock_ticks() - began);
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

/* Sorts ns and prints its percentiles as a part of a JSON object. */
static inline void clock_print(uint64_t *ns, uint32_t count)
{
	printf(", \"p50_us\": %.3f, \"p99_us\": %.3f", clock_quantile(ns, count, 50) / 1e3,
	       clock_quantile(ns, count, 99) / 1e3);
}

static inline uint32_t clock_protocol(void)
{
	const char *name = getenv("CAREFUL_PROTOCOL");

	return name && !strcmp(name, "traditional");
}

static inline uint32_t clock_xdp_mode(void)
{
	const char *name = getenv("CAREFUL_XDP");

	if (name && !strcmp(name, "native"))
		return CAREFUL_XDP_NATIVE;
	return name && !strcmp(name, "generic") ? CAREFUL_XDP_GENERIC : CAREFUL_XDP_AUTO;
}

/* Prints it, as a part of a JSON object. */
static inline void clock_print_xdp(struct careful *c)
{
	struct careful_info info = { 0 };

	careful_info(c, &info);
	printf(", \"xdp\": \"%s\"",
	       info.device.xdp_mode == CAREFUL_XDP_NATIVE ? "native" : "generic");
}

#endif /* BENCH_CLOCK_H */
