/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Whether a file changed while it was read. Its size and times before and after tell only of
 * changes that begin in between: one that is under way may have set them before, and on older
 * kernels all within a tick (10 ms at most) share one time. So a file that changed a moment ago
 * is not to be believed yet.
 */
#ifndef STORAGE_STEADY_H
#define STORAGE_STEADY_H

#include <stdbool.h>
#include <sys/stat.h>

/* Waits until the last change is old enough, or has been too young for too long; *st is what
 * the file is then. 0 or -errno. */
int steady_wait(int fd, struct stat *st);
/* Reports whether what was read between two looks at a file is what it held at one time. */
bool steady_between(const struct stat *before, const struct stat *after);

#endif /* STORAGE_STEADY_H */
