// SPDX-License-Identifier: BSD-2-Clause
/* The same as test_released.c, of the version before: one that today's is not served with. */
#define RELEASED "released_before.h"
#include "test_released.c" /* NOLINT(bugprone-suspicious-include) */
