/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * BLAKE3 (O'Connor, Aumasson, Neves, Wilcox-O'Hearn: BLAKE3, 2020), unkeyed, 256 bits:
 * of a whole input, or of a part that is a subtree of it, so that the parts of a file
 * can be hashed apart and joined to the hash that any other program computes.
 */
#ifndef STORAGE_BLAKE3_H
#define STORAGE_BLAKE3_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	BLAKE3_BYTES = 32,
	BLAKE3_CHUNK = 1024,
	BLAKE3_DEPTH = 54, /* of the tree over 2^64 bytes */
};

/*
 * @stack:   chaining values of complete subtrees, larger ones first; one for each bit
 *           of `chunks`
 * @first:   number of the part's first chunk in the whole input
 * @chunks:  in the stack
 * @tail:    what has come since; a full chunk waits here until it is known not to be
 *           the last one
 */
struct blake3 {
	uint32_t stack[BLAKE3_DEPTH][8];
	uint32_t depth;
	uint32_t used;
	uint64_t first;
	uint64_t chunks;
	uint8_t tail[BLAKE3_CHUNK];
};

/* offset: where in the whole input the part begins, a multiple of its size rounded up
 * to a power of two of chunks. */
void blake3_init(struct blake3 *b, uint64_t offset);
void blake3_update(struct blake3 *b, const void *data, size_t bytes);
/* root: the part is the whole; else its chaining value. */
void blake3_final(const struct blake3 *b, bool root, uint8_t out[BLAKE3_BYTES]);
/* The hash of the whole from the chaining values of n >= 2 parts of equal size, a power
 * of two of chunks; the last may be shorter. */
void blake3_join(const uint8_t *parts, uint64_t n, uint8_t out[BLAKE3_BYTES]);

#endif /* STORAGE_BLAKE3_H */
