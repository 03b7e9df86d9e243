/* SPDX-License-Identifier: BSD-2-Clause */
/* Directories by their path. */
#ifndef STORAGE_PATH_H
#define STORAGE_PATH_H

#include <stddef.h>

/* mkdir -p; *made: where in the path the first component ends that was not there, or 0. */
int path_make(const char *path, size_t *made);

#endif /* STORAGE_PATH_H */
