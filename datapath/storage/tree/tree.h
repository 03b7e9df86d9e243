/* SPDX-License-Identifier: BSD-2-Clause */
/* Storage for the block service, beyond the public careful/files.h: paths that cannot leave a
 * directory, attributes, and directories as careful_block_entry records (block.h). The kernel
 * enforces "beneath" (openat2, RESOLVE_BENEATH); no code here compares path strings. */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include <careful/block.h>
#include <careful/files.h>

/* Calls openat2() beneath dir_fd, with `resolve` added. Returns a descriptor or -errno; -EXDEV: the
 * path leaves dir_fd. */
int beneath_open(int dir_fd, const char *path, int flags, uint64_t resolve);

/* Reports whether a status means that a path leads out or through a symlink, or that access was
 * denied. */
bool beneath_denied(int status);

/* Renames a temporary file to its final name in the same directory. */
int rename_temporary(int dir, const char *temporary, const char *name, bool replace);

void attr_set(struct careful_block_attr *attr, const struct stat *st);
/* Sets an open file's modification time, ns since 1970. */
int attr_set_time(int fd, int64_t ns);

enum { ENTRY_DENTS_BYTES = 64 << 10 };

struct batch_wanted {
	/* Reports whether the batch's caller has left; called before each item. */
	bool (*is_unwanted)(void *user);
	void *user;
};

/* Runs careful_batch() for a caller who may leave: the batch then ends with -ECONNRESET, and
 * pending files are not made. @wanted: may be NULL */
int batch_run(int base, const void *items, uint64_t bytes, const struct careful_batch_how *how,
	      const struct batch_wanted *wanted, struct careful_batch_answer *answer);

/* @record: the current record; text holds name and target, zero-padded to 8 bytes */
struct entry_scan {
	/* entries that could not be read; an entry whose path is too long for a request has no
	 * record */
	uint32_t unreadable;
	struct {
		struct careful_block_entry entry;
		char text[2 * PATH_MAX + 8];
	} record;
	char dents[ENTRY_DENTS_BYTES] __attribute__((aligned(8)));
};

/* Receives the current record, of `bytes`. 0, or -errno to end the scan. */
typedef int entry_take(struct entry_scan *scan, size_t bytes, void *user);

/* Completes the current record, whose attr and text are set; returns its bytes. */
size_t entry_finish(struct entry_scan *scan, size_t name_bytes, size_t target_bytes);
/* Calls `take` for each entry of a directory, then closes dir_fd. `prefix`: the directory's path,
 * "" for the top. */
int entry_each(struct entry_scan *scan, int dir_fd, const char *prefix, entry_take *take,
	       void *user);

/* Reports whether fd, an O_PATH descriptor or -errno, is a directory; closes fd. An autofs mount
 * point whose server is down opens with ENOENT, but O_PATH shows that it exists. */
bool entry_is_directory(int fd);
