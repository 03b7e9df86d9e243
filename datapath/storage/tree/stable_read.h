/* SPDX-License-Identifier: BSD-2-Clause */
/* Detects that a file changed while it was read. Size and times do not show a change that began
 * before the read and still runs; and on older kernels all changes within a tick (up to 10 ms) have
 * the same time. So reads of a recently changed file are not trusted. */
#pragma once

#include <stdbool.h>
#include <sys/stat.h>

/* Waits until the last change is old enough, but at most 60 ms; *st: the file after that. */
int stable_read_wait(int fd, struct stat *st);
/* Reports whether data read between two fstat() calls was the file's content at one moment. */
bool stable_read_between(const struct stat *before, const struct stat *after);
