/* SPDX-License-Identifier: BSD-2-Clause */
/* Owner, mode and time of the files of a batch. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include <careful/block.h>

#include "storage/tree/tree.h"

/* Sets on an open file what `flags` (CAREFUL_BATCH_*) name, the time last. -ENOSYS: the file system
 * cannot hold some extended attribute; -ERANGE: cannot hold the time. The other attributes are then
 * set.
 *
 * @umask: applies to a new file's mode if flags leave the mode out
 * @squashed: leaves out set-ID bits of files, and attributes that only root may set
 * @is_path: fd was opened with O_PATH
 * @is_new: the file was just made: set its mode in any case
 * @has_mode: the mode is already right */
struct attr_how {
	uint32_t flags;
	uint32_t umask;
	bool squashed;
	bool is_path;
	bool is_new;
	bool has_mode;
};
/* Returns the mode to set, without type bits. */
mode_t attr_mode(const struct careful_block_attr *attr, const struct attr_how *how);
int attr_apply(int fd, const struct careful_block_attr *attr, const char *xattrs,
	       size_t xattrs_bytes, const struct attr_how *how);
