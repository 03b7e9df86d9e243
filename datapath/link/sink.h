/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The rule for bytes that wait for a stage that takes them in pulses (P3 section 3; P5): the rule,
 * once, for whoever has such a place. Which threshold applies, and what more there is to say of the
 * bytes, is the owner's business.
 */
#pragma once

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

/*
 * One place; all 0 is an idle one where nothing waits.
 *
 * @waiting_bytes:  that the stage has not taken yet
 * @busy:           the stage is at work on what it took
 */
struct sink {
	uint64_t waiting_bytes;
	bool busy;
};

static inline void sink_add(struct sink *sink, uint64_t bytes)
{
	sink->waiting_bytes += bytes;
}

/* Reports whether the stage is to take now what waits: it is idle, and there is a pulse of it, or no
 * more will come before that is gone: the message's tail, or room that has run out. */
static inline bool sink_due(const struct sink *sink, uint32_t minpulse_bytes, bool no_more)
{
	return !sink->busy && sink->waiting_bytes &&
	       (no_more || sink->waiting_bytes >= minpulse_bytes);
}

/* The stage begins, with all that waits, or with as much as it can have at once. */
static inline void sink_take(struct sink *sink, uint64_t bytes)
{
	assert(!sink->busy && bytes <= sink->waiting_bytes);
	sink->waiting_bytes -= bytes;
	sink->busy = true;
}

/* It has done what it took. */
static inline void sink_idle(struct sink *sink)
{
	assert(sink->busy);
	sink->busy = false;
}
