/* SPDX-License-Identifier: BSD-2-Clause */
/* The minpulse rule for bytes that wait for a stage (P3 section 3; P5). The owner of a sink chooses
 * the threshold. */
#pragma once

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

#include <careful/abi.h>

/* Bytes that wait for a stage. All 0: idle and empty. */
struct sink {
	uint64_t waiting_bytes;
	bool busy; /* the stage works on bytes that it took */
};

/* Returns a sink's least pulse, in bytes. */
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
 * more bytes can come. */
static inline bool sink_due(const struct sink *sink, uint32_t minpulse_bytes, bool no_more)
{
	return !sink->busy && sink->waiting_bytes &&
	       (no_more || sink->waiting_bytes >= sink_least(minpulse_bytes));
}

/* Starts the stage with these bytes. */
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
