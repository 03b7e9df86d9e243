// SPDX-License-Identifier: BSD-2-Clause
/* CRC32C (Castagnoli) over small payloads: by instruction where the CPU has it. */
#include "link/link.h"

#include <string.h>

static uint32_t crc32c_table(const uint8_t *p, uint32_t bytes)
{
	uint32_t crc = ~0u;

	for (uint32_t i = 0; i < bytes; i++) {
		crc ^= p[i];
		for (int bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
	}
	return ~crc;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) static uint32_t crc32c_sse42(const uint8_t *p, uint32_t bytes)
{
	uint64_t crc = ~0u;
	uint64_t word;

	for (; bytes >= 8; bytes -= 8, p += 8) {
		memcpy(&word, p, 8);
		crc = __builtin_ia32_crc32di(crc, word);
	}
	for (; bytes; bytes--, p++)
		crc = __builtin_ia32_crc32qi((uint32_t)crc, *p);
	return ~(uint32_t)crc;
}
#endif

uint32_t link_crc32c(const void *data, uint32_t bytes)
{
#if defined(__x86_64__)
	if (__builtin_cpu_supports("sse4.2"))
		return crc32c_sse42(data, bytes);
#endif
	return crc32c_table(data, bytes);
}
