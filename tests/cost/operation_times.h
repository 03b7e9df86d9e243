/* SPDX-License-Identifier: BSD-2-Clause */
/* Histograms of link's operations, which was built with CAREFUL_OPERATIONS. */
#ifndef CAREFUL_TESTS_OPERATION_TIMES_H
#define CAREFUL_TESTS_OPERATION_TIMES_H

#include <stdint.h>

#include "link/operation_timer.h"

/* Measures the time of a clock reading, which all times leave out. */
void timed_calibrate(void);
void timed_forget(void);
/* Prints the times of all operations as members of a JSON object.
 * @units: how many requests were timed */
void timed_print(uint32_t units);

#endif /* CAREFUL_TESTS_OPERATION_TIMES_H */
