// SPDX-License-Identifier: BSD-2-Clause
/* CRC32C (Castagnoli) over small payloads: by instruction where the CPU has it, else by table.
 * Calls nobody. */
#include "link/link.h"

#include <string.h>

#ifdef __aarch64__
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

/*
 * The CRC of each byte. It is linear: that of a byte is the sum of those of its bits, which
 * follow from 0x82f63b78, the polynomial of RFC 3720 12.1 read from its other end.
 */
#define BIT(byte, n, crc) ((byte) >> (n)&1 ? (crc) : 0u)
#define ONE(byte)                                                                            \
	(BIT(byte, 0, 0xf26b8303u) ^ BIT(byte, 1, 0xe13b70f7u) ^ BIT(byte, 2, 0xc79a971fu) ^ \
	 BIT(byte, 3, 0x8ad958cfu) ^ BIT(byte, 4, 0x105ec76fu) ^ BIT(byte, 5, 0x20bd8edeu) ^ \
	 BIT(byte, 6, 0x417b1dbcu) ^ BIT(byte, 7, 0x82f63b78u))
#define FOUR(byte) ONE(byte), ONE((byte) + 1), ONE((byte) + 2), ONE((byte) + 3)
#define SIXTEEN(byte) FOUR(byte), FOUR((byte) + 4), FOUR((byte) + 8), FOUR((byte) + 12)
#define SIXTY_FOUR(byte) \
	SIXTEEN(byte), SIXTEEN((byte) + 16), SIXTEEN((byte) + 32), SIXTEEN((byte) + 48)

static const uint32_t table[256] = {
	SIXTY_FOUR(0),
	SIXTY_FOUR(64),
	SIXTY_FOUR(128),
	SIXTY_FOUR(192),
};

static uint32_t crc32c_table(const uint8_t *p, uint32_t bytes)
{
	uint32_t crc = ~0u;

	for (; bytes; bytes--, p++)
		crc = crc >> 8 ^ table[(crc ^ *p) & 0xff];
	return ~crc;
}

#if defined(__x86_64__)

static bool cpu_has_crc(void)
{
	return __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul");
}

/*
 * The instruction takes three cycles and can begin each cycle: three lanes of a block go side by
 * side. The CRC is linear: that of the block is the last lane's, and those of the others moved on
 * by the bytes behind them, which is a product with x^(8 * bytes) modulo the polynomial. The
 * product without carries is 33 bits more than it has to be; the instruction reduces it (Gopal et
 * al., Fast CRC Computation for iSCSI Polynomial Using CRC32 Instruction, Intel 2011).
 */
enum {
	SHORT_LANE = 32,
	LONG_LANE = 128,
};

static const uint32_t short_by[2] = { 0x9e4addf8, 0xba4fc28e }; /* x^(8 * 64 - 33), 32 */
static const uint32_t long_by[2] = { 0xb9e02b86, 0x0d3b6092 }; /* 256, 128 */

typedef long long two_words __attribute__((vector_size(16)));

static inline uint64_t read64(const uint8_t *p)
{
	uint64_t word;

	memcpy(&word, p, sizeof(word));
	return word;
}

__attribute__((target("sse4.2,pclmul"))) static inline uint64_t moved(uint64_t crc, uint32_t by)
{
	return (uint64_t)__builtin_ia32_pclmulqdq128((two_words){ (long long)crc },
						     (two_words){ by }, 0)[0];
}

/* A block of three lanes of so many bytes, a constant. */
__attribute__((target("sse4.2,pclmul"), always_inline)) static inline uint64_t
block(uint64_t crc, const uint8_t *p, uint32_t lane, const uint32_t *by)
{
	uint64_t second = 0, third = 0;

#pragma GCC unroll 16
	for (uint32_t i = 0; i < lane - 8; i += 8) {
		crc = __builtin_ia32_crc32di(crc, read64(p + i));
		second = __builtin_ia32_crc32di(second, read64(p + lane + i));
		third = __builtin_ia32_crc32di(third, read64(p + 2 * lane + i));
	}
	crc = __builtin_ia32_crc32di(crc, read64(p + lane - 8));
	second = __builtin_ia32_crc32di(second, read64(p + 2 * lane - 8));
	return __builtin_ia32_crc32di(third, read64(p + 3 * lane - 8) ^ moved(crc, by[0]) ^
						     moved(second, by[1]));
}

__attribute__((target("sse4.2,pclmul"))) static uint32_t crc32c_cpu(const uint8_t *p,
								    uint32_t bytes)
{
	uint64_t crc = ~0u;

	for (; bytes >= 3 * LONG_LANE; bytes -= 3 * LONG_LANE, p += 3 * LONG_LANE)
		crc = block(crc, p, LONG_LANE, long_by);
	for (; bytes >= 3 * SHORT_LANE; bytes -= 3 * SHORT_LANE, p += 3 * SHORT_LANE)
		crc = block(crc, p, SHORT_LANE, short_by);
	for (; bytes >= 8; bytes -= 8, p += 8)
		crc = __builtin_ia32_crc32di(crc, read64(p));
	for (; bytes; bytes--, p++)
		crc = __builtin_ia32_crc32qi((uint32_t)crc, *p);
	return ~(uint32_t)crc;
}

#elif defined(__aarch64__) && defined(__AARCH64EL__)

/* Optional in ARMv8.0. Asked once: whoever comes first, and they all get the same answer. */
static bool cpu_has_crc(void)
{
	static int8_t has = -1;
	int8_t known = __atomic_load_n(&has, __ATOMIC_RELAXED);

	if (known < 0) {
		known = !!(getauxval(AT_HWCAP) & HWCAP_CRC32);
		__atomic_store_n(&has, known, __ATOMIC_RELAXED);
	}
	return known;
}

/* In assembler: gcc and clang name the same builtins differently. */
static uint32_t crc32c_cpu(const uint8_t *p, uint32_t bytes)
{
	uint32_t crc = ~0u;
	uint64_t word;

	for (; bytes >= 8; bytes -= 8, p += 8) {
		memcpy(&word, p, 8);
		__asm__(".arch_extension crc\n\tcrc32cx %w0, %w0, %x1" : "+r"(crc) : "r"(word));
	}
	for (; bytes; bytes--, p++)
		__asm__(".arch_extension crc\n\tcrc32cb %w0, %w0, %w1"
			: "+r"(crc)
			: "r"((uint32_t)*p));
	return ~crc;
}

#else

static bool cpu_has_crc(void)
{
	return false;
}

static uint32_t crc32c_cpu(const uint8_t *p, uint32_t bytes)
{
	return crc32c_table(p, bytes);
}

#endif

uint32_t link_crc32c(const void *data, uint32_t bytes)
{
	return cpu_has_crc() ? crc32c_cpu(data, bytes) : crc32c_table(data, bytes);
}
