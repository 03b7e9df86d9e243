/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What both ends of the block service do to files without the network: digests of
 * byte ranges, copies, listings, and batches of small files. Calls may take long and use
 * no instance; any thread may make them.
 */
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

/* Digest of a byte range of an open file, as DIGEST of the block service gives it
 * (enum careful_block_algorithm). Returns its bytes; -ENODATA: the file ends before
 * the range does; -EINVAL: no such algorithm. */
int careful_digest(int fd, uint64_t offset, uint64_t bytes, uint32_t algorithm, uint8_t *digest);
/* Likewise, of a range that is at `place` in its file now, though it is of `offset`. */
int careful_digest_at(int fd, uint64_t place, uint64_t offset, uint64_t bytes, uint32_t algorithm,
		      uint8_t *digest);
/* The BLAKE3 hash of a file from the digests (CAREFUL_BLOCK_BLAKE3) of its n >= 2 blocks
 * of equal size, the last of which may be shorter: 32 bytes each. */
void careful_digest_join(const uint8_t *digests, uint64_t n, uint8_t *digest);

/* Copies `bytes` of a file from an offset on, or as many as it has there, to the same place
 * of another of at least that size that holds zeros: holes are left out. 0 or -errno. */
int careful_copy(int from, int to, uint64_t offset, uint64_t bytes);

/* For an open file that is about to be read block by block: waits, 60 ms at most, until any
 * change from now on shows in its times. *copy is a copy of it, in memory, if reads give it
 * another size than stat does, as in /proc and sysfs; else -1. 0 or -errno; -EFBIG: such a file
 * is too large. */
int careful_settle(int fd, int *copy);

/* Opens what lies beneath the directory `base`, for open()'s flags: a descriptor, or -errno.
 * No symlink on the way there, nor at its end, is followed: -ELOOP; -EXDEV: it leads out. */
int careful_open_beneath(int base, const char *path, int flags);

/* How a batch is run, as BATCH of the block service says it.
 * @flags:             CAREFUL_BATCH_*
 * @writable:          1: items may make and change things
 * @squashed:          1: owners, set-ID bits of files, capabilities and trusted attributes are
 *                     not set, whatever the items say
 * @no_symlinks:       1: none is followed, not even one that stays beneath
 * @answer_bytes_max:  items beyond are answered with EOVERFLOW; where not even that fits,
 *                     the batch ends with it; so are those beyond 256 MiB read, or 64 syncs
 * @memory:            of the caller's, of answer_bytes_max, for the answer; NULL: none */
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

/* @items: malloc'ed, unless the caller gave memory; @failed: how many have a status; @denied: of
 * these, as the path leads out, or that may not be done there */
struct careful_batch_answer {
	void *items;
	uint64_t bytes;
	uint32_t failed;
	uint32_t denied;
};

/* Runs careful_block_item records with names beneath the directory `base`, and none that
 * leads out. 0 or -errno; -EPROTO: they are no such records. Memory that the caller gave
 * is not to be released. */
int careful_batch(int base, const void *items, uint64_t bytes, const struct careful_batch_how *how,
		  struct careful_batch_answer *answer);
void careful_batch_release(struct careful_batch_answer *answer);

/* A tree as careful_block_entry records.
 * @unreadable: entries that could not be read; those with too long a path have no record */
struct careful_list {
	void *entries;
	uint64_t bytes;
	uint32_t unreadable;
};

/* Lists what is below the directory `base`, parents first. 0 or -errno: it cannot be read. */
int careful_list(int base, struct careful_list *list);
void careful_list_release(struct careful_list *list);

/* What can be moved many at a time, without a look at each.
 * @file_bytes_max:  a small file's bytes
 * @no_links:        1: files with several names are not among them
 * @part_files_max, @part_bytes_max: files of one batch, and bytes of their contents; the
 *                   first batches have less */
struct careful_sift_how {
	uint32_t file_bytes_max;
	uint32_t no_links;
	uint64_t part_bytes_max;
	uint32_t part_files_max;
	uint32_t pad;
};

/* One batch: where its items begin among the reads, their bytes, and what they are of. */
struct careful_sift_part {
	uint64_t offset;
	uint64_t bytes;
	uint64_t data_bytes;
	uint32_t files;
	uint32_t pad;
};

/* @reads: READ items of small files; @rest: careful_block_entry records of all else, files
 * that transfers left among them */
struct careful_sifted {
	void *reads;
	uint64_t reads_bytes;
	void *rest;
	uint64_t rest_bytes;
	struct careful_sift_part *parts;
	uint32_t parts_count;
	uint32_t files;
};

/* Takes a listing apart, which may be anything. 0, -ENOMEM, or -EPROTO: it is none, or has
 * a name that leads out. */
int careful_sift(const void *entries, uint64_t bytes, const struct careful_sift_how *how,
		 struct careful_sifted *sifted);
void careful_sift_release(struct careful_sifted *sifted);

/* A file that READ was answered with. */
struct careful_moved {
	uint64_t bytes;
	uint64_t digest;
};

/* Reports whether what READ items were answered with are the files that they name, all of them
 * and nothing else: 0, with what each is. -ESTALE: one is not; -EPROTO: it is no answer. */
int careful_match(const void *reads, uint64_t reads_bytes, const void *found, uint64_t found_bytes,
		  struct careful_moved *moved, uint32_t count);

#ifndef CAREFUL_CDEF
#ifdef __cplusplus
}
#endif
#endif
#endif /* CAREFUL_FILES_H */
