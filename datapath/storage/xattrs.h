/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Extended attributes (ACLs are such) of a file as careful_block_xattr records: those
 * of users, ACLs, capabilities and, for root, trusted ones. Descriptors may be O_PATH.
 */
#ifndef STORAGE_XATTRS_H
#define STORAGE_XATTRS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* What an O_PATH descriptor is opened by again. */
#define XATTRS_PROC "/proc/self/fd/%d"
enum {
	XATTRS_PROC_BYTES = 32,
	XATTRS_MAX = 192 << 10, /* of a file; more are an error */
};

/* The records' bytes, or -errno; -E2BIG: more than room. A file system that has no such
 * attributes is no error. */
ssize_t xattrs_get(int fd, char *buf, size_t room);
/* Makes a file have these and no others; sets only those that differ. Squashed: those that only
 * root may give (capabilities, trusted ones) are left as they are. -ENOSYS: its file system cannot
 * hold all of them; it has the others. -EPROTO: no records. */
int xattrs_set(int fd, const char *records, size_t bytes, bool squashed);

#endif /* STORAGE_XATTRS_H */
