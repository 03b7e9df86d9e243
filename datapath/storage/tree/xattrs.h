/* SPDX-License-Identifier: BSD-2-Clause */
/* A file's extended attributes as careful_block_xattr records: user attributes, ACLs, capabilities
 * and, for root, trusted ones. Descriptors may be O_PATH. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* The path that reopens an O_PATH descriptor. */
#define XATTRS_PROC "/proc/self/fd/%d"
enum {
	XATTRS_PROC_BYTES = 32,
	XATTRS_MAX = 192 << 10, /* most bytes of one file's records; more is an error */
};

/* Reads the records; returns their bytes, or -errno. -E2BIG: more than `room`. Returns 0 if the file
 * system has no extended attributes. */
ssize_t xattrs_get(int fd, char *buf, size_t room);
/* Gives a file exactly these attributes; sets only those that differ. With `squashed` it leaves
 * attributes that only root may set (capabilities, trusted ones) as they are. -ENOSYS: the file
 * system cannot hold some; the others are set. -EPROTO: malformed records. */
int xattrs_set(int fd, const char *records, size_t bytes, bool squashed);
