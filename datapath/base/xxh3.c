// SPDX-License-Identifier: BSD-2-Clause
/* XXH3 from xxhash.h, compiled here: a distribution's library must run on CPUs without AVX2. */
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <stdbool.h>

#include "base/xxh3.h"

static inline bool has_avx2(void)
{
#ifdef __x86_64__
	return __builtin_cpu_supports("avx2");
#else
	return false;
#endif
}

_Static_assert(sizeof(XXH3_state_t) == XXH3_BYTES, "the state's size");

struct xxh3 *xxh3_create(void)
{
	return (struct xxh3 *)XXH3_createState();
}

void xxh3_free(struct xxh3 *state)
{
	XXH3_freeState((XXH3_state_t *)state);
}

void xxh3_reset(struct xxh3 *state)
{
	XXH3_64bits_reset((XXH3_state_t *)state);
}

void xxh3_update(struct xxh3 *state, const void *data, size_t bytes)
{
	if (has_avx2())
		xxh3_update_avx2(state, data, bytes);
	else
		XXH3_64bits_update((XXH3_state_t *)state, data, bytes);
}

uint64_t xxh3_end(const struct xxh3 *state)
{
	return XXH3_64bits_digest((const XXH3_state_t *)state);
}

uint64_t xxh3_hash(const void *data, size_t bytes)
{
	return has_avx2() ? xxh3_hash_avx2(data, bytes) : XXH3_64bits(data, bytes);
}
