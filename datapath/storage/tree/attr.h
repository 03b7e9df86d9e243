/* SPDX-License-Identifier: BSD-2-Clause */
/* Owner, mode and time of the files of a batch. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include <careful/block.h>

#include "storage/tree/tree.h"

/* How to set attributes. */
struct attr_how {
	uint32_t flags; /* CAREFUL_BATCH_* */
	uint32_t umask; /* applies to a new file's mode, without CAREFUL_BATCH_MODE */
	bool squashed; /* omit set-ID bits of files, and attributes that only root may set */
	bool is_path; /* fd was opened with O_PATH */
	bool is_new; /* the file was just made: set its mode in any case */
	bool has_mode; /* the mode is already right */
};
/* Returns the mode to set, without type bits. */
mode_t attr_mode(const struct careful_block_attr *attr, const struct attr_how *how);
/* Sets the attributes of an open file. If the file system cannot hold some extended attribute
 * (-ENOSYS), or the time (-ERANGE), the others are set. */
int attr_apply(int fd, const struct careful_block_attr *attr, const char *xattrs,
	       size_t xattrs_bytes, const struct attr_how *how);
