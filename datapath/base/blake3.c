/* SPDX-License-Identifier: BSD-2-Clause */
/* BLAKE3 as in its paper, sections 2.1 to 2.5. Eight chunks are compressed in parallel, one per
 * lane; the compiler maps lanes to the machine's vectors. */
#include "base/blake3.h"

#include <endian.h>
#include <string.h>

enum { LANES = 8, BLOCK = 64, ROUNDS = 7 };
enum { CHUNK_START = 1, CHUNK_END = 2, PARENT = 4, ROOT = 8 };

typedef uint32_t lanes __attribute__((vector_size(4 * LANES)));

static const uint32_t iv[8] = { 0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
				0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19 };

/* Index of the message word at each place, per round: the permutation of the paper's table 2,
 * applied once more each round. */
static const uint8_t schedule[ROUNDS][16] = {
	{ 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 },
	{ 2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8 },
	{ 3, 4, 10, 12, 13, 2, 7, 14, 6, 5, 9, 0, 11, 15, 8, 1 },
	{ 10, 7, 12, 9, 14, 3, 13, 15, 4, 0, 11, 2, 5, 8, 1, 6 },
	{ 12, 13, 9, 11, 15, 10, 14, 8, 7, 2, 5, 3, 0, 1, 6, 4 },
	{ 9, 14, 11, 5, 8, 12, 15, 1, 13, 3, 0, 10, 2, 6, 4, 7 },
	{ 11, 15, 5, 0, 1, 9, 8, 6, 14, 10, 2, 12, 3, 4, 7, 13 },
};

#define ROTATE(x, n) (((x) >> (n)) | ((x) << (32 - (n))))

#define MIX(a, b, c, d, x, y)                \
	do {                                 \
		(a) = (a) + (b) + (x);       \
		(d) = ROTATE((d) ^ (a), 16); \
		(c) = (c) + (d);             \
		(b) = ROTATE((b) ^ (c), 12); \
		(a) = (a) + (b) + (y);       \
		(d) = ROTATE((d) ^ (a), 8);  \
		(c) = (c) + (d);             \
		(b) = ROTATE((b) ^ (c), 7);  \
	} while (0)

#define ROUND(v, m, s)                                                             \
	do {                                                                       \
		MIX((v)[0], (v)[4], (v)[8], (v)[12], (m)[(s)[0]], (m)[(s)[1]]);    \
		MIX((v)[1], (v)[5], (v)[9], (v)[13], (m)[(s)[2]], (m)[(s)[3]]);    \
		MIX((v)[2], (v)[6], (v)[10], (v)[14], (m)[(s)[4]], (m)[(s)[5]]);   \
		MIX((v)[3], (v)[7], (v)[11], (v)[15], (m)[(s)[6]], (m)[(s)[7]]);   \
		MIX((v)[0], (v)[5], (v)[10], (v)[15], (m)[(s)[8]], (m)[(s)[9]]);   \
		MIX((v)[1], (v)[6], (v)[11], (v)[12], (m)[(s)[10]], (m)[(s)[11]]); \
		MIX((v)[2], (v)[7], (v)[8], (v)[13], (m)[(s)[12]], (m)[(s)[13]]);  \
		MIX((v)[3], (v)[4], (v)[9], (v)[14], (m)[(s)[14]], (m)[(s)[15]]);  \
	} while (0)

/* Compresses one block of 64 bytes, given as 16 words, into cv. */
static void compress(uint32_t cv[8], const uint32_t m[16], uint64_t counter, uint32_t bytes,
		     uint32_t flags)
{
	uint32_t v[16];

	memcpy(v, cv, 32);
	memcpy(v + 8, iv, 16);
	v[12] = (uint32_t)counter;
	v[13] = (uint32_t)(counter >> 32);
	v[14] = bytes;
	v[15] = flags;
	for (int r = 0; r < ROUNDS; r++)
		ROUND(v, m, schedule[r]);
	for (int i = 0; i < 8; i++)
		cv[i] = v[i] ^ v[i + 8];
}

static uint32_t word(const uint8_t *p)
{
	uint32_t w;

	memcpy(&w, p, sizeof(w));
	return le32toh(w);
}

static void read_words(uint32_t *words, const uint8_t *in, int n)
{
	for (int i = 0; i < n; i++)
		words[i] = word(in + 4 * i);
}

/* Computes a chunk's chaining value; with ROOT the hash of a one-chunk input. */
static void chunk(const uint8_t *in, uint32_t bytes, uint64_t counter, uint32_t flags,
		  uint32_t cv[8])
{
	uint32_t start = CHUNK_START;
	uint32_t m[16];

	memcpy(cv, iv, sizeof(iv));
	while (bytes > BLOCK) {
		read_words(m, in, 16);
		compress(cv, m, counter, BLOCK, start);
		start = 0;
		in += BLOCK;
		bytes -= BLOCK;
	}
	uint8_t last[BLOCK] = { 0 };

	if (bytes)
		memcpy(last, in, bytes);
	read_words(m, last, 16);
	compress(cv, m, counter, bytes, start | CHUNK_END | flags);
}

/* A macro, because passing vectors as arguments depends on the machine. */
#define ALL(x) ((lanes){ x, x, x, x, x, x, x, x })

/* Computes the chaining values of LANES consecutive whole chunks. */
static void chunks(const uint8_t *in, uint64_t counter, uint32_t out[LANES][8])
{
	lanes cv[8], low, high;

	for (int i = 0; i < 8; i++)
		cv[i] = ALL(iv[i]);
	for (uint32_t k = 0; k < LANES; k++) {
		low[k] = (uint32_t)(counter + k);
		high[k] = (uint32_t)((counter + k) >> 32);
	}
	for (int b = 0; b < BLAKE3_CHUNK / BLOCK; b++) {
		uint32_t flags = (b ? 0 : CHUNK_START) |
				 (b + 1 < BLAKE3_CHUNK / BLOCK ? 0 : CHUNK_END);
		lanes m[16];

		for (int i = 0; i < 16; i++) {
			const uint8_t *p = in + b * BLOCK + 4 * i;

			m[i] = (lanes){ word(p),
					word(p + BLAKE3_CHUNK),
					word(p + 2 * BLAKE3_CHUNK),
					word(p + 3 * BLAKE3_CHUNK),
					word(p + 4 * BLAKE3_CHUNK),
					word(p + 5 * BLAKE3_CHUNK),
					word(p + 6 * BLAKE3_CHUNK),
					word(p + 7 * BLAKE3_CHUNK) };
		}
		lanes v[16] = { cv[0], cv[1], cv[2],	  cv[3],      cv[4],	  cv[5],
				cv[6], cv[7], ALL(iv[0]), ALL(iv[1]), ALL(iv[2]), ALL(iv[3]),
				low,   high,  ALL(BLOCK), ALL(flags) };

		for (int r = 0; r < ROUNDS; r++)
			ROUND(v, m, schedule[r]);
		for (int i = 0; i < 8; i++)
			cv[i] = v[i] ^ v[i + 8];
	}
	for (uint32_t k = 0; k < LANES; k++)
		for (int i = 0; i < 8; i++)
			out[k][i] = cv[i][k];
}

static void parent(uint32_t left[8], const uint32_t right[8], uint32_t flags)
{
	uint32_t m[16];

	memcpy(m, left, 32);
	memcpy(m + 8, right, 32);
	memcpy(left, iv, sizeof(iv));
	compress(left, m, 0, BLOCK, PARENT | flags);
}

/* Adds a complete chunk that is not the last, and joins the subtrees that it completes. */
static void push(struct blake3 *b, const uint32_t cv[8])
{
	uint32_t *top = b->stack[b->depth];

	memcpy(top, cv, 32);
	b->chunks++;
	for (uint64_t n = b->chunks; !(n & 1); n >>= 1) {
		parent(b->stack[b->depth - 1], b->stack[b->depth], 0);
		b->depth--;
	}
	b->depth++;
}

void blake3_init(struct blake3 *b, uint64_t offset)
{
	b->depth = 0;
	b->used = 0;
	b->first = offset / BLAKE3_CHUNK;
	b->chunks = 0;
}

void blake3_update(struct blake3 *b, const void *data, size_t bytes)
{
	const uint8_t *p = data;
	uint32_t cvs[LANES][8];

	while (bytes) {
		size_t n = BLAKE3_CHUNK - b->used;

		if (!n) {
			chunk(b->tail, BLAKE3_CHUNK, b->first + b->chunks, 0, cvs[0]);
			push(b, cvs[0]);
			b->used = 0;
			continue;
		}
		if (!b->used && bytes > (size_t)LANES * BLAKE3_CHUNK) {
			chunks(p, b->first + b->chunks, cvs);
			for (int k = 0; k < LANES; k++)
				push(b, cvs[k]);
			p += (size_t)LANES * BLAKE3_CHUNK;
			bytes -= (size_t)LANES * BLAKE3_CHUNK;
			continue;
		}
		if (n > bytes)
			n = bytes;
		memcpy(b->tail + b->used, p, n);
		b->used += (uint32_t)n;
		p += n;
		bytes -= n;
	}
}

/* Joins the stack's subtrees with the last one, whose chaining value is `right`. */
static void finish(const struct blake3 *b, uint32_t right[8], bool root, uint8_t out[BLAKE3_BYTES])
{
	uint32_t left[8];

	for (uint32_t depth = b->depth; depth--;) {
		memcpy(left, b->stack[depth], sizeof(left));
		parent(left, right, root && !depth ? ROOT : 0);
		memcpy(right, left, sizeof(left));
	}
	for (int i = 0; i < 8; i++) {
		uint32_t w = htole32(right[i]);

		memcpy(out + 4 * i, &w, sizeof(w));
	}
}

void blake3_final(const struct blake3 *b, bool root, uint8_t out[BLAKE3_BYTES])
{
	uint32_t right[8];

	chunk(b->tail, b->used, b->first + b->chunks, root && !b->depth ? ROOT : 0, right);
	finish(b, right, root, out);
}

void blake3_join(const uint8_t *parts, uint64_t n, uint8_t out[BLAKE3_BYTES])
{
	struct blake3 b;
	uint32_t cv[8];

	/* All parts but the last are complete subtrees of equal size, so they join like chunks. */
	blake3_init(&b, 0);
	for (uint64_t i = 0; i + 1 < n; i++) {
		read_words(cv, parts + i * BLAKE3_BYTES, 8);
		push(&b, cv);
	}
	read_words(cv, parts + (n - 1) * BLAKE3_BYTES, 8);
	finish(&b, cv, true, out);
}
