/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * All that the block service asks of storage beside what programs may (careful/files.h): paths
 * that must not lead out of a directory, what is told of a file, and directories as
 * careful_block_entry records (block.h), one at a time. The kernel decides what is beneath a
 * directory (openat2, RESOLVE_BENEATH); nothing here compares path strings.
 */
#ifndef STORAGE_TREE_H
#define STORAGE_TREE_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include <careful/block.h>
#include <careful/files.h>

/* openat2() beneath dir_fd, `resolve` in addition: a descriptor, or -errno; -EXDEV for
 * what leaves it. */
int beneath_open(int dir_fd, const char *path, int flags, uint64_t resolve);

/* Reports whether a status says that a path leads out, or through a symlink, or that what was asked may
 * not be done there. */
bool beneath_denied(int status);

void attr_set(struct careful_block_attr *attr, const struct stat *st);
/* The modification time of an open file, ns since 1970. */
int attr_set_time(int fd, int64_t ns);

enum { ENTRY_DENTS_BYTES = 64 << 10 };

/* Whether nobody wants any more what a batch does; @vain is asked before each item. */
struct batch_wanted {
	bool (*vain)(void *user);
	void *user;
};

/* careful_batch() for somebody who may go meanwhile: -ECONNRESET then, and files that wait for a
 * sync are not made. @wanted: or NULL. */
int batch_run(int base, const void *items, uint64_t bytes, const struct careful_batch_how *how,
	      const struct batch_wanted *wanted, struct careful_batch_answer *answer);

/*
 * @unreadable:  entries that could not be read, so far; those whose path is too long for
 *               any request have no record
 * @record:      the one at hand; its name and target follow in text, then 0s to 8 bytes
 */
struct entry_scan {
	uint32_t unreadable;
	struct {
		struct careful_block_entry entry;
		char text[2 * PATH_MAX + 8];
	} record;
	char dents[ENTRY_DENTS_BYTES] __attribute__((aligned(8)));
};

/* Takes the record at hand, of so many bytes: 0 or -errno, which ends the scan. */
typedef int entry_take(struct entry_scan *scan, size_t bytes, void *user);

/* Completes the record at hand, whose attr and text are there; its bytes. */
size_t entry_seal(struct entry_scan *scan, size_t name_bytes, size_t target_bytes);
/* Gives `take` a record of each entry of a directory, which it closes; `prefix` is the
 * directory's own name, "" for the top. */
int entry_each(struct entry_scan *scan, int dir_fd, const char *prefix, entry_take *take,
	       void *user);

/*
 * Reports whether what an O_PATH descriptor is of, or -errno, is a directory; closes it. One that opens
 * with ENOENT and is there, as an autofs mount point whose server is down, could not be read: it
 * is neither gone nor empty.
 */
bool entry_is_directory(int fd);

#endif /* STORAGE_TREE_H */
