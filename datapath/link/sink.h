/* SPDX-License-Identifier: BSD-2-Clause */
/* The minpulse rule for bytes that wait for a stage (P3 section 3; P5), for all stages. The owner
 * of a sink chooses the threshold and knows the bytes. */
#pragma once

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

#include <careful/abi.h>

/* A place where bytes wait. All 0: idle and empty.
 *
 * @waiting_bytes: that the stage has not taken yet
 * @busy:          the stage is at work on what it took */
struct sink {
	uint64_t waiting_bytes;
	bool busy;
};

/* Returns a sink's least pulse, bytes. */
static inline uint32_t sink_least(uint32_t minpulse_bytes)
{
	return minpulse_bytes & ~CAREFUL_MINPULSE_EXACT;
}

/* Reports whether a sink takes no more than its least pulse. */
static inline bool sink_exact(uint32_t minpulse_bytes)
{
	return minpulse_bytes & CAREFUL_MINPULSE_EXACT;
}

static inline void sink_add(struct sink *sink, uint64_t bytes)
{
	sink->waiting_bytes += bytes;
}

/* Reports whether the stage should take the waiting bytes now: it is idle, and a pulse waits or no
 * more bytes can come (the message's tail, or no room is left). */
static inline bool sink_due(const struct sink *sink, uint32_t minpulse_bytes, bool no_more)
{
	return !sink->busy && sink->waiting_bytes &&
	       (no_more || sink->waiting_bytes >= sink_least(minpulse_bytes));
}

/* The stage begins with all waiting bytes, or with as many as it can take at once. */
static inline void sink_take(struct sink *sink, uint64_t bytes)
{
	assert(!sink->busy && bytes <= sink->waiting_bytes);
	sink->waiting_bytes -= bytes;
	sink->busy = true;
}

static inline void sink_idle(struct sink *sink)
{
	assert(sink->busy);
	sink->busy = false;
}
