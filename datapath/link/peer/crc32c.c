// SPDX-License-Identifier: BSD-2-Clause
/* CRC32C (Castagnoli) of small payloads, by an instruction if the CPU has it, else by table. */
#include "link/link_private.h"

#include <string.h>

#ifdef __x86_64__
#include <immintrin.h>
#endif
#ifdef __aarch64__
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

/* The CRC of each byte: the sum of the CRCs of its bits, which follow from 0x82f63b78, the
 * polynomial of RFC 3720 12.1 in reversed order. */
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

/* The instruction takes three cycles, and one can start in each cycle: so three lanes of a block
 * are computed in parallel. The CRC is linear: a block's CRC is the sum of its lanes' CRCs, each
 * multiplied by x^(8 * bytes behind it) modulo the polynomial. The carry-less product has 33 bits
 * too many; the CRC instruction reduces it (Gopal et al., Fast CRC Computation for iSCSI Polynomial
 * Using CRC32 Instruction, Intel 2011). */
enum {
	SHORT_LANE = 32,
	LONG_LANE = 128,
};

static const uint32_t short_shifts[2] = { 0x9e4addf8, 0xba4fc28e }; /* x^(8 * n - 33), n = 64, 32 */
static const uint32_t long_shifts[2] = { 0xb9e02b86, 0x0d3b6092 }; /* n = 256, 128 */

typedef long long two_words __attribute__((vector_size(16)));

static inline uint64_t read64(const uint8_t *p)
{
	uint64_t word;

	memcpy(&word, p, sizeof(word));
	return word;
}

/* Multiplies by a power of x. */
__attribute__((target("sse4.2,pclmul"))) static inline uint64_t shift(uint64_t crc, uint32_t power)
{
	return (uint64_t)__builtin_ia32_pclmulqdq128((two_words){ (long long)crc },
						     (two_words){ power }, 0)[0];
}

/* Adds a block of three lanes, each of `lane` bytes, a constant. */
__attribute__((target("sse4.2,pclmul"), always_inline)) static inline uint64_t
block(uint64_t crc, const uint8_t *p, uint32_t lane, const uint32_t *shifts)
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
	return __builtin_ia32_crc32di(third, read64(p + 3 * lane - 8) ^ shift(crc, shifts[0]) ^
						     shift(second, shifts[1]));
}

/* Adds the last bytes to `crc` and inverts it. */
__attribute__((target("sse4.2,pclmul"))) static inline uint32_t
finish(uint64_t crc, const uint8_t *p, uint32_t bytes)
{
	for (; bytes >= 3 * LONG_LANE; bytes -= 3 * LONG_LANE, p += 3 * LONG_LANE)
		crc = block(crc, p, LONG_LANE, long_shifts);
	for (; bytes >= 3 * SHORT_LANE; bytes -= 3 * SHORT_LANE, p += 3 * SHORT_LANE)
		crc = block(crc, p, SHORT_LANE, short_shifts);
	for (; bytes >= 8; bytes -= 8, p += 8)
		crc = __builtin_ia32_crc32di(crc, read64(p));
	for (; bytes; bytes--, p++)
		crc = __builtin_ia32_crc32qi((uint32_t)crc, *p);
	return ~(uint32_t)crc;
}

__attribute__((target("sse4.2,pclmul"))) static uint32_t crc32c_cpu(const uint8_t *p,
								    uint32_t bytes)
{
	return finish(~0u, p, bytes);
}

static bool cpu_has_wide(void)
{
	return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("vpclmulqdq") &&
	       cpu_has_crc();
}

/* For processors that compute four carry-less products at a time. 16 bytes, multiplied by
 * x^(distance), can be added to 16 later bytes: the CRC of the sum is the CRC of all. Four registers
 * fold 256 bytes at a time, and are at last folded into 16 bytes. */
#define WIDE target("avx512f,vpclmulqdq,sse4.2,pclmul")

enum { WIDE_BYTES = 4 * sizeof(__m512i) };

/* x^(bits + 31), x^(bits - 33) */
static const long long shift128[2] = { 0xf20c0dfe, 0x493c7d27 };
static const long long shift512[2] = { 0x740eef02, 0x9e4addf8 };
static const long long shift2048[2] = { 0xdcb17aa4, 0xb9e02b86 };

__attribute__((WIDE, always_inline)) static inline __m512i shift_wide(__m512i x,
								      const long long *powers)
{
	__m512i k = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)powers));

	return _mm512_xor_si512(_mm512_clmulepi64_epi128(x, k, 0x00),
				_mm512_clmulepi64_epi128(x, k, 0x11));
}

__attribute__((WIDE)) static uint32_t crc32c_wide(const uint8_t *p, uint32_t bytes)
{
	__m512i x[4], all;
	__m128i sum;

#pragma GCC unroll 4
	for (int i = 0; i < 4; i++)
		x[i] = _mm512_loadu_si512(p + i * sizeof(*x));
	x[0] = _mm512_xor_si512(x[0], _mm512_zextsi128_si512(_mm_cvtsi32_si128(-1)));
	for (p += WIDE_BYTES, bytes -= WIDE_BYTES; bytes >= WIDE_BYTES;
	     p += WIDE_BYTES, bytes -= WIDE_BYTES) {
#pragma GCC unroll 4
		for (int i = 0; i < 4; i++)
			x[i] = _mm512_xor_si512(shift_wide(x[i], shift2048),
						_mm512_loadu_si512(p + i * sizeof(*x)));
	}
	all = x[0];
#pragma GCC unroll 4
	for (int i = 1; i < 4; i++)
		all = _mm512_xor_si512(shift_wide(all, shift512), x[i]);
	for (; bytes >= sizeof(all); p += sizeof(all), bytes -= sizeof(all))
		all = _mm512_xor_si512(shift_wide(all, shift512), _mm512_loadu_si512(p));
	sum = _mm512_castsi512_si128(all);
	for (int i = 1; i < 4; i++) {
		all = _mm512_alignr_epi64(all, all, 2); /* the next 16 bytes */
		sum = _mm_xor_si128(
			_mm512_castsi512_si128(shift_wide(_mm512_castsi128_si512(sum), shift128)),
			_mm512_castsi512_si128(all));
	}
	return finish(__builtin_ia32_crc32di(__builtin_ia32_crc32di(0, (uint64_t)sum[0]),
					     (uint64_t)sum[1]),
		      p, bytes);
}

#elif defined(__aarch64__) && defined(__AARCH64EL__)

/* The instruction is optional in ARMv8.0. */
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
#ifdef __x86_64__
	if (bytes >= WIDE_BYTES && cpu_has_wide())
		return crc32c_wide(data, bytes);
#endif
	return cpu_has_crc() ? crc32c_cpu(data, bytes) : crc32c_table(data, bytes);
}
