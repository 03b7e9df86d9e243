/* SPDX-License-Identifier: BSD-2-Clause */
/* XXH3 of what is moved, 64 bits: by AVX2 where the CPU has it, in two fifths of the time that
 * what every CPU has takes. */
#ifndef STORAGE_XXH3_H
#define STORAGE_XXH3_H

#include <stddef.h>
#include <stdint.h>

struct xxh3;

/* NULL: no memory. It has to be reset before each use. */
struct xxh3 *xxh3_create(void);
void xxh3_free(struct xxh3 *state); /* or NULL */
void xxh3_reset(struct xxh3 *state);
void xxh3_copy(struct xxh3 *to, const struct xxh3 *from);
void xxh3_update(struct xxh3 *state, const void *data, size_t bytes);
uint64_t xxh3_end(const struct xxh3 *state);

/* Of one piece of memory. */
uint64_t xxh3_of(const void *data, size_t bytes);

/* xxh3_avx2.c's, for xxh3.c: the same by AVX2. */
void xxh3_update_avx2(struct xxh3 *state, const void *data, size_t bytes);
uint64_t xxh3_of_avx2(const void *data, size_t bytes);

#endif /* STORAGE_XXH3_H */
