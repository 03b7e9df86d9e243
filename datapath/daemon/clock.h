/* SPDX-License-Identifier: BSD-2-Clause */
/* The daemon's clock: CLOCK_MONOTONIC, as for probes. */
#ifndef DAEMON_CLOCK_H /* the simulator has its own */
#define DAEMON_CLOCK_H

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

#endif
