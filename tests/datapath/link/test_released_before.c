// SPDX-License-Identifier: BSD-2-Clause
/* Like test_released.c, with the version before, which today's version does not serve. */
#define RELEASED "released_before.h"
#include "test_released.c" /* NOLINT(bugprone-suspicious-include) */
