/* SPDX-License-Identifier: BSD-2-Clause */
/* The monotonic clock, and time limits for poll(). */
#pragma once

#include <stdint.h>
#include <time.h>

static inline uint64_t clock_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static inline uint64_t clock_in_ms(uint64_t ms)
{
	return clock_now_ns() + ms * 1000000;
}

/* Returns the ms until a time, rounded up; -1 for UINT64_MAX. */
static inline int clock_until_ms(uint64_t at_ns)
{
	uint64_t now_ns = clock_now_ns();

	if (at_ns == UINT64_MAX)
		return -1;
	return at_ns <= now_ns ? 0 : (int)((at_ns - now_ns) / 1000000 + 1);
}

/* Returns the shorter of two limits in ms; -1 is none. */
static inline int clock_earlier_ms(int a_ms, int b_ms)
{
	if (a_ms < 0 || b_ms < 0)
		return a_ms < 0 ? b_ms : a_ms;
	return a_ms < b_ms ? a_ms : b_ms;
}
