/* SPDX-License-Identifier: BSD-2-Clause */
/* Reads and writes of whole ranges. */
#pragma once

#include <stddef.h>
#include <sys/types.h>

/* Writes all bytes at the file's position. Returns 0 or -errno. */
int io_write(int fd, const void *data, size_t bytes);
/* Reads up to the end of the range or of the file. Returns the bytes read, or -errno. */
ssize_t io_read(int fd, void *data, size_t bytes, off_t offset);
