/* SPDX-License-Identifier: BSD-2-Clause */
/* File operations that both ends of the block service share: digests of byte ranges, copies,
 * listings, and batches of small files. Calls can take long; they need no instance, and any thread
 * may make them. */
#ifndef CAREFUL_FILES_H
#define CAREFUL_FILES_H

#ifndef CAREFUL_CDEF
#include <careful/careful.h>
#include <careful/block.h>
#ifdef __cplusplus
extern "C" {
#endif
#endif

enum { CAREFUL_DIGEST_BYTES_MAX = 32, CAREFUL_UNSIZED_BYTES_MAX = 4194304 };

/* Computes the digest of a byte range of an open file, as DIGEST of the block service does (enum
 * careful_block_algorithm). Returns its length in bytes; -ENODATA: the file ends before the range;
 * -EINVAL: no such algorithm. */
int careful_digest(int fd, uint64_t offset, uint64_t bytes, uint32_t algorithm, uint8_t *digest);
/* Like careful_digest(), for a file's range at `offset`, whose bytes now lie at `place` in fd. */
int careful_digest_at(int fd, uint64_t place, uint64_t offset, uint64_t bytes, uint32_t algorithm,
		      uint8_t *digest);
/* Computes the BLAKE3 hash of a file, 32 bytes, from the digests (CAREFUL_BLOCK_BLAKE3) of its n >=
 * 2 blocks of equal size; the last block may be shorter. */
void careful_digest_join(const uint8_t *digests, uint64_t n, uint8_t *digest);

/* Copies up to `bytes` from an offset of a file to the same offset of another file, which must hold
 * zeros there; skips holes. Returns 0 or -errno. */
int careful_copy(int from, int to, uint64_t offset, uint64_t bytes);

/* Prepares an open file for reading block by block. Waits at most 60 ms, until any later change
 * shows in the file's times. *copy is a copy in memory if reads return another size than stat
 * reports, as in /proc and sysfs; else -1. Returns 0 or -errno; -EFBIG: such a file is too
 * large. */
int careful_prepare_read(int fd, int *copy);

/* Opens a path beneath the directory `base` with open()'s flags. Returns a descriptor or -errno.
 * Follows no symlink, not even at the end (-ELOOP), and does not leave `base` (-EXDEV). */
int careful_open_beneath(int base, const char *path, int flags);

/* How to run a batch; see BATCH of the block service.
 * @flags:             CAREFUL_BATCH_*
 * @writable:          1: items may create and change files
 * @squashed:          1: never set owners, set-ID bits of files, capabilities or trusted
 *                     attributes, whatever the items say
 * @no_symlinks:       1: follow no symlink, not even one that stays beneath `base`
 * @answer_bytes_max:  items beyond this size get EOVERFLOW, like those beyond 256 MiB read or 64
 *                     syncs; if not even that answer fits, the batch ends with EOVERFLOW
 * @memory:            the caller's memory for the answer, of answer_bytes_max; NULL: none */
struct careful_batch_how {
	uint32_t flags;
	uint32_t umask;
	uint32_t writable;
	uint32_t file_bytes_max;
	uint32_t no_symlinks;
	uint32_t squashed;
	uint64_t answer_bytes_max;
	void *memory;
};

/* @items: malloc'ed, unless the caller gave memory. @failed: number of items with a status.
 * @denied: how many of them name a path that leads out, or lack permission. */
struct careful_batch_answer {
	void *items;
	uint64_t bytes;
	uint32_t failed;
	uint32_t denied;
};

/* Runs careful_block_item records whose names lie beneath the directory `base`. Returns 0 or
 * -errno; -EPROTO: malformed records. The caller frees the answer's items, unless the caller gave
 * the memory. */
int careful_batch(int base, const void *items, uint64_t bytes, const struct careful_batch_how *how,
		  struct careful_batch_answer *answer);
void careful_batch_release(struct careful_batch_answer *answer);

/* A tree as careful_block_entry records.
 * @unreadable: entries that could not be read; one with too long a path has no record */
struct careful_list {
	void *entries;
	uint64_t bytes;
	uint32_t unreadable;
};

/* Lists the tree below the directory `base`, parents first. Returns 0 or -errno. */
int careful_list(int base, struct careful_list *list);
void careful_list_release(struct careful_list *list);

/* Which files of a listing can move in batches.
 * @file_bytes_max:  largest size of a small file
 * @no_links:        1: leave out files with several names
 * @part_files_max, @part_bytes_max: most files, and most bytes of their contents, in one batch; the
 *                   first batches are smaller */
struct careful_list_split_how {
	uint32_t file_bytes_max;
	uint32_t no_links;
	uint64_t part_bytes_max;
	uint32_t part_files_max;
	uint32_t pad;
};

/* One batch: where its items begin among the reads, and their bytes and count. */
struct careful_list_part {
	uint64_t offset;
	uint64_t bytes;
	uint64_t data_bytes;
	uint32_t files;
	uint32_t pad;
};

/* @reads: READ items of small files; @rest: careful_block_entry records of everything else,
 * including files that transfers left behind */
struct careful_list_split {
	void *reads;
	uint64_t reads_bytes;
	void *rest;
	uint64_t rest_bytes;
	struct careful_list_part *parts;
	uint32_t parts_count;
	uint32_t files;
};

/* Splits a listing, which is not trusted, into batches of small files and the rest. Returns 0,
 * -ENOMEM, or -EPROTO if the listing is malformed or has a name that leads out. */
int careful_list_split(const void *entries, uint64_t bytes,
		       const struct careful_list_split_how *how, struct careful_list_split *split);
void careful_list_split_release(struct careful_list_split *split);

/* A file in the answer to READ. */
struct careful_moved {
	uint64_t bytes;
	uint64_t digest;
};

/* Checks that the answers to READ items are exactly the named files, and gives the size and digest
 * of each. Returns 0; -ESTALE: one differs; -EPROTO: malformed answer. */
int careful_match(const void *reads, uint64_t reads_bytes, const void *answer,
		  uint64_t answer_bytes, struct careful_moved *moved, uint32_t count);

#ifndef CAREFUL_CDEF
#ifdef __cplusplus
}
#endif
#endif
#endif /* CAREFUL_FILES_H */
