/* SPDX-License-Identifier: BSD-2-Clause */
/* Histograms of a request's calls, and of link's operations if it was built with
 * CAREFUL_OPERATIONS. */
#ifndef BENCH_OPERATION_TIMES_H
#define BENCH_OPERATION_TIMES_H

#include <stdbool.h>
#include <stdint.h>

#include "link/operation_timer.h"

/* Calls of a request and its reply: send it, answer it, take the answer. */
enum { TIMED_CALLS = 3, TIMED_ALL = OPERATIONS + TIMED_CALLS };

/* Records that an operation, or a call (OPERATIONS plus its number), began at `began`. */
void timed_note(uint32_t which, uint64_t began);
/* Measures the time of a clock reading, which all times leave out. */
void timed_calibrate(void);
void timed_forget(void);
/* Prints the times of all operations, or of all calls, as members of a JSON object.
 * @units: how many requests were timed */
void timed_print(bool calls, uint32_t units);

#endif /* BENCH_OPERATION_TIMES_H */
