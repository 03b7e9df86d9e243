/* SPDX-License-Identifier: BSD-2-Clause */
/* Directories by their path. */
#pragma once

#include <stddef.h>

/* Like mkdir -p. *made: where the first new component ends in `path`, or 0. */
int path_make(const char *path, size_t *made);
