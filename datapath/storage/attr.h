/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Owner, mode and time of files that a batch makes.
 */
#ifndef STORAGE_ATTR_H
#define STORAGE_ATTR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include <careful/block.h>

#include "storage/tree.h"

/*
 * Gives an open file what `flags` (CAREFUL_BATCH_*) name, the time last. -ENOSYS: its file system
 * cannot hold one of the extended attributes; -ERANGE: nor the time. The file has all else.
 *
 * @fd:      opened with O_PATH, if is_path
 * @umask:   taken from the mode of a new file where flags leave the mode out
 * @squashed: set-ID bits of files, and attributes that are root's to give, are left out
 * @is_new:  made just now: its mode is set in any case
 * @has_mode: but not where it is so already
 */
struct attr_how {
	uint32_t flags;
	uint32_t umask;
	bool squashed;
	bool is_path;
	bool is_new;
	bool has_mode;
};
/* The mode that is set, without type bits. */
mode_t attr_mode(const struct careful_block_attr *attr, const struct attr_how *how);
int attr_apply(int fd, const struct careful_block_attr *attr, const char *xattrs,
	       size_t xattrs_bytes, const struct attr_how *how);

#endif /* STORAGE_ATTR_H */
