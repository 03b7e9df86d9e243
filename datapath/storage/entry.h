/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Directories as careful_block_entry records (block.h), one directory at a time. Where the
 * records go, and in which order directories are read, is the caller's.
 */
#ifndef STORAGE_ENTRY_H
#define STORAGE_ENTRY_H

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

#include <careful/block.h>

enum { ENTRY_DENTS_BYTES = 64 << 10 };

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

#endif /* STORAGE_ENTRY_H */
