// SPDX-License-Identifier: BSD-2-Clause
/* XXH3, compiled for AVX2 on x86 (CMakeLists.txt); call only if the CPU has AVX2. */
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/xxh3.h"

void xxh3_update_avx2(struct xxh3 *state, const void *data, size_t bytes)
{
	XXH3_64bits_update((XXH3_state_t *)state, data, bytes);
}

uint64_t xxh3_hash_avx2(const void *data, size_t bytes)
{
	return XXH3_64bits(data, bytes);
}
