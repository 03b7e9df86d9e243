/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Two queues that note, by the processor's counter, when frames were seen and when the device was
 * told to send. The first is a caller's, who clears `sent` before each trip; the second answers,
 * and begins anew with the first frame that comes after an answer.
 */
#ifndef BENCH_NOTED_H
#define BENCH_NOTED_H

#include <stdatomic.h>

#include "clock.h"
#include "device/device.h"

/*
 * @sent:   the device was first told to send; 0: not since the last trip
 * @came:   frames were last seen
 * @began:  the first look for frames after the last kick
 * @looks:  looks since then
 * @queued: descriptors, since then
 */
struct noted {
	_Alignas(64) atomic_ullong sent;
	atomic_ullong came;
	uint64_t began, looks, queued;
};

extern struct noted noted[2];

/* Once what was to be read before has been: the counter alone does not wait. */
static inline uint64_t noted_ticks(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_lfence();
#endif
	return clock_ticks();
}

/* From here on. */
void noted_watch(int side, struct queue *queue);

#endif /* BENCH_NOTED_H */
