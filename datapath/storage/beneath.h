/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Paths that must not lead out of a directory. The kernel decides what is beneath it
 * (openat2, RESOLVE_BENEATH); nothing here compares path strings.
 */
#ifndef STORAGE_BENEATH_H
#define STORAGE_BENEATH_H

#include <stdint.h>

/* openat2() beneath dir_fd, `resolve` in addition: a descriptor, or -errno; -EXDEV for
 * what leaves it. */
int beneath_open(int dir_fd, const char *path, int flags, uint64_t resolve);

#endif /* STORAGE_BENEATH_H */
