/* SPDX-License-Identifier: BSD-2-Clause */
/* BLAKE3 (O'Connor, Aumasson, Neves, Wilcox-O'Hearn: BLAKE3, 2020), unkeyed, 256 bits. Parts of a
 * file that are subtrees can be hashed separately and joined to the file's usual hash. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	BLAKE3_BYTES = 32,
	BLAKE3_CHUNK = 1024,
	BLAKE3_DEPTH = 54, /* of the tree over 2^64 bytes */
};

struct blake3 {
	/* chaining values of complete subtrees, larger first; one for each bit of `chunks` */
	uint32_t stack[BLAKE3_DEPTH][8];
	uint32_t depth;
	uint32_t used;
	uint64_t first; /* number of the part's first chunk in the whole input */
	uint64_t chunks; /* chunks in the stack */
	/* bytes not yet in the stack; a full chunk waits here in case it is the last */
	uint8_t tail[BLAKE3_CHUNK];
};

/* offset: the part's place in the whole input; a multiple of the smallest power of two of chunks
 * that holds the part. */
void blake3_init(struct blake3 *b, uint64_t offset);
void blake3_update(struct blake3 *b, const void *data, size_t bytes);
/* root: the part is the whole input; else the result is a chaining value. */
void blake3_final(const struct blake3 *b, bool root, uint8_t out[BLAKE3_BYTES]);
/* Joins the chaining values of n >= 2 parts to the hash of the whole. Parts have equal size, a
 * power of two of chunks; the last may be shorter. */
void blake3_join(const uint8_t *parts, uint64_t n, uint8_t out[BLAKE3_BYTES]);
