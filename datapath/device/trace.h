/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Probes at the boundaries of stages. While nobody listens to a stage, its beginning
 * costs a load and a branch, and its end a test of a register. While somebody does, the
 * engine reads the clock at both and the probe fires after the end, so that the trap,
 * thousands of cycles, is in no stage's time.
 */
#ifndef DEVICE_TRACE_H
#define DEVICE_TRACE_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include <careful/trace.h>

/* How many listen to each stage; the kernel counts. */
extern uint16_t trace_listeners[CAREFUL_STAGES] __attribute__((visibility("hidden")));

static inline uint64_t trace_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

/* What fills a span in: away from the hot path, which has the test of began_ns alone. */
#define TRACE_COLD __attribute__((noinline, cold))

/* The time if somebody listens to the stage, else 0: then there is no end to tell of. */
static inline uint64_t trace_begin(enum careful_stage stage)
{
	const volatile uint16_t *listeners = &trace_listeners[stage];

	return __builtin_expect(*listeners != 0, 0) ? trace_now() : 0;
}

/* Ends a span that begin_ns, stage and whatever else is meant describe; tells of it. */
void trace_end(struct careful_trace span);

/* How many capture frames; the kernel counts. */
extern uint16_t trace_frame_listeners __attribute__((visibility("hidden")));

/* Reports whether somebody captures what is sent: a load and a branch for each batch. */
static inline bool trace_captures(void)
{
	const volatile uint16_t *listeners = &trace_frame_listeners;

	return __builtin_expect(*listeners != 0, 0);
}

/* A frame that is handed to the device. */
void trace_sent(const struct careful_trace_frame *frame);

#endif /* DEVICE_TRACE_H */
