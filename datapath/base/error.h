/* SPDX-License-Identifier: BSD-2-Clause */
/* One line for the user: why a call failed and what to do, or what a check found. */
#pragma once

#include <careful/careful.h>

/* Fills *error unless NULL; returns rc. */
__attribute__((format(printf, 3, 4))) int explain(struct careful_error *error, int rc,
						  const char *format, ...);
