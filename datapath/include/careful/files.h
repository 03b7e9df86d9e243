/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What both ends of the block service do to files without the network: digests of
 * byte ranges, copies, and batches of small files. Calls may take long and use no instance; any thread may make them.
 */
#ifndef CAREFUL_FILES_H
#define CAREFUL_FILES_H

#ifndef CAREFUL_CDEF
#include <careful/careful.h>
#include <careful/wire.h>
#ifdef __cplusplus
extern "C" {
#endif
#endif

enum { CAREFUL_DIGEST_BYTES_MAX = 32 };

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

/* Copies the first `bytes` of a file, or as many as it has, into another of at least
 * that size that holds zeros: holes are left out. 0 or -errno. */
int careful_copy(int from, int to, uint64_t bytes);

/* How a batch is run, as BATCH of the block service says it.
 * @flags:             CAREFUL_BATCH_*
 * @writable:          1: items may make and change things
 * @answer_bytes_max:  items beyond are answered with EOVERFLOW, or not at all */
struct careful_batch_how {
	uint32_t flags;
	uint32_t umask;
	uint32_t writable;
	uint32_t file_bytes_max;
	uint64_t answer_bytes_max;
};

/* @items: malloc'ed; @failed: how many have a status */
struct careful_batch_answer {
	void *items;
	uint64_t bytes;
	uint32_t failed;
};

/* Runs careful_block_item records with names beneath the directory `base`, and none that
 * leads out. 0 or -errno; -EPROTO: they are none. */
int careful_batch(int base, const void *items, uint64_t bytes, const struct careful_batch_how *how,
		  struct careful_batch_answer *answer);
void careful_batch_release(struct careful_batch_answer *answer);

#ifndef CAREFUL_CDEF
#ifdef __cplusplus
}
#endif
#endif
#endif /* CAREFUL_FILES_H */
