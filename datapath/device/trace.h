/* SPDX-License-Identifier: BSD-2-Clause */
/* Probes at stage boundaries. Without listeners, a stage's start costs a load and a branch, and its
 * end a register test. With listeners, the engine reads the clock at both, and the probe fires
 * after the end: the trap takes thousands of cycles and must not count in a stage. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <careful/trace.h>

#include "base/clock.h"

/* listeners of each stage; the kernel counts them */
extern uint16_t trace_listeners[CAREFUL_STAGES] __attribute__((visibility("hidden")));

/* Marks code that fills in a span: the hot path only tests began_ns. */
#define TRACE_COLD __attribute__((noinline, cold))

/* Returns the time if a tracer listens to the stage; otherwise 0, and the end is not reported. */
static inline uint64_t trace_begin(enum careful_stage stage)
{
	const volatile uint16_t *listeners = &trace_listeners[stage];

	return __builtin_expect(*listeners != 0, 0) ? clock_now_ns() : 0;
}

/* Ends and reports a span whose other fields the caller has set. */
void trace_end(struct careful_trace span);

/* programs that capture frames; the kernel counts them */
extern uint16_t trace_frame_listeners __attribute__((visibility("hidden")));

/* Reports whether sent frames are captured; a load and a branch per batch. */
static inline bool trace_captures(void)
{
	const volatile uint16_t *listeners = &trace_frame_listeners;

	return __builtin_expect(*listeners != 0, 0);
}

/* Reports a frame handed to the device. */
void trace_sent(const struct careful_trace_frame *frame);
