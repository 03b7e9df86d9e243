/* SPDX-License-Identifier: BSD-2-Clause */
/* Histograms of link's operations, where link was built with CAREFUL_OPERATIONS. */
#ifndef BENCH_TIMED_H
#define BENCH_TIMED_H

#include <stdint.h>

/* Finds out what looking at the clock takes. */
void timed_calibrate(void);
void timed_forget(void);
/* Each one's times, as members of a JSON object; units: what was done, how often. */
void timed_print(uint32_t units);

#endif /* BENCH_TIMED_H */
