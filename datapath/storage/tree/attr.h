/* SPDX-License-Identifier: BSD-2-Clause */
/* Owner, mode and time of the files of a batch. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include <careful/block.h>

#include "storage/tree/tree.h"

/* How to set attributes.
 *
 * @flags: CAREFUL_BATCH_*
 * @umask: applies to a new file's mode, without CAREFUL_BATCH_MODE
 * @squashed: omit set-ID bits of files, and attributes that only root may set
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
/* Sets the attributes of an open file. If the file system cannot hold some extended attribute
 * (-ENOSYS), or the time (-ERANGE), the others are set. */
int attr_apply(int fd, const struct careful_block_attr *attr, const char *xattrs,
	       size_t xattrs_bytes, const struct attr_how *how);
