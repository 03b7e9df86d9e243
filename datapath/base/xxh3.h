/* SPDX-License-Identifier: BSD-2-Clause */
/* 64-bit XXH3. AVX2, if the CPU has it, needs two fifths of the time of the portable code. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct xxh3;

enum { XXH3_BYTES = 576 }; /* of a state, which is aligned to 64 bytes */

/* Returns NULL if memory is short. Reset the state before each use. */
struct xxh3 *xxh3_create(void);
void xxh3_free(struct xxh3 *state); /* may be NULL */
void xxh3_reset(struct xxh3 *state);
void xxh3_update(struct xxh3 *state, const void *data, size_t bytes);
uint64_t xxh3_end(const struct xxh3 *state);

/* Hashes `bytes` of memory at once. */
uint64_t xxh3_hash(const void *data, size_t bytes);

/* AVX2 versions, for xxh3.c only (xxh3_avx2.c). */
void xxh3_update_avx2(struct xxh3 *state, const void *data, size_t bytes);
uint64_t xxh3_hash_avx2(const void *data, size_t bytes);
