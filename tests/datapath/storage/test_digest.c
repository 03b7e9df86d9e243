/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Digests of ranges: BLAKE3 against its authors' test vectors (input byte i is i mod 251), parts
 * that join to the whole, XXH3 against its library, and invalid ranges.
 */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <xxhash.h>

#include <careful/files.h>

#include "base/blake3.h"
#include "base/xxh3.h"

/* github.com/BLAKE3-team/BLAKE3, test_vectors/test_vectors.json: "hash", 32 bytes. */
static const struct {
	size_t bytes;
	const char *hash;
} vectors[] = {
	{ 0, "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262" },
	{ 1, "2d3adedff11b61f14c886e35afa036736dcd87a74d27b5c1510225d0f592e213" },
	{ 1023, "10108970eeda3eb932baac1428c7a2163b0e924c9a9e25b35bba72b28f70bd11" },
	{ 1024, "42214739f095a406f3fc83deb889744ac00df831c10daa55189b5d121c855af7" },
	{ 1025, "d00278ae47eb27b34faecf67b4fe263f82d5412916c1ffd97c8cb7fb814b8444" },
	{ 2048, "e776b6028c7cd22a4d0ba182a8bf62205d2ef576467e838ed6f2529b85fba24a" },
	{ 2049, "5f4d72f40d7a5f82b15ca2b2e44b1de3c2ef86c426c95c1af0b6879522563030" },
	{ 3073, "7124b49501012f81cc7f11ca069ec9226cecb8a2c850cfe644e327d22d3e1cd3" },
	{ 5121, "628bd2cb2004694adaab7bbd778a25df25c47b9d4155a55f8fbd79f2fe154cff" },
	{ 7169, "a003fc7a51754a9b3c7fae0367ab3d782dccf28855a03d435f8cfe74605e7817" },
	{ 8192, "aae792484c8efe4f19e2ca7d371d8c467ffb10748d8a5a1ae579948f718a2a63" },
	{ 8193, "bab6c09cb8ce8cf459261398d2e7aef35700bf488116ceb94a36d0f5f1b7bc3b" },
	{ 31744, "62b6960e1a44bcc1eb1a611a8d6235b6b4b78f32e7abc4fb4c6cdcce94895c47" },
	{ 102400, "bc3e3d41a1146b069abffad3c0d44860cf664390afce4d9661f7902e7943e085" },
};

enum { FILE_BYTES = 102400 };

static uint8_t input[FILE_BYTES];
static int fd;

static const char *hex(const uint8_t *digest)
{
	static char text[2 * BLAKE3_BYTES + 1];

	for (int i = 0; i < BLAKE3_BYTES; i++)
		snprintf(text + 2 * i, 3, "%02x", digest[i]);
	return text;
}

static void test_blake3__vectors(void)
{
	uint8_t digest[CAREFUL_DIGEST_BYTES_MAX];

	for (size_t i = 0; i < sizeof(vectors) / sizeof(vectors[0]); i++) {
		size_t n = vectors[i].bytes;

		assert(careful_digest(fd, 0, n, CAREFUL_BLOCK_BLAKE3_ROOT, digest) == 32);
		assert(!strcmp(hex(digest), vectors[i].hash));
	}
}

static void test_blake3__pieces_of_any_size(void)
{
	uint8_t whole[32], digest[32];
	struct blake3 b;

	blake3_init(&b, 0);
	blake3_update(&b, input, 50000);
	blake3_final(&b, true, whole);
	for (size_t step = 1; step < 20000; step += step / 2 + 1) {
		blake3_init(&b, 0);
		for (size_t at = 0; at < 50000; at += step)
			blake3_update(&b, input + at, at + step < 50000 ? step : 50000 - at);
		blake3_final(&b, true, digest);
		assert(!memcmp(digest, whole, 32));
	}
}

static void test_blake3__parts_join(void)
{
	static uint8_t parts[128][32];
	uint8_t whole[32], joined[32];
	int copy = memfd_create("copy", MFD_CLOEXEC);

	assert(copy >= 0);
	for (uint64_t block = 1024; block <= 65536; block *= 2) {
		for (uint64_t bytes = block + 1; bytes <= FILE_BYTES; bytes += block / 3 + 1021) {
			uint64_t n = 0;

			for (uint64_t at = 0; at < bytes; at += block, n++) {
				uint64_t size = bytes - at < block ? bytes - at : block;

				assert(careful_digest(fd, at, size, CAREFUL_BLOCK_BLAKE3,
						      parts[n]) == 32);
			}
			/* The last part, copied to another place. */
			assert(!lseek(copy, 0, SEEK_SET));
			assert(write(copy, input + (n - 1) * block, bytes - (n - 1) * block) ==
			       (ssize_t)(bytes - (n - 1) * block));
			careful_digest_at(copy, 0, (n - 1) * block, bytes - (n - 1) * block,
					  CAREFUL_BLOCK_BLAKE3, joined);
			assert(!memcmp(joined, parts[n - 1], 32));
			careful_digest_join(parts[0], n, joined);
			careful_digest(fd, 0, bytes, CAREFUL_BLOCK_BLAKE3_ROOT, whole);
			assert(!memcmp(joined, whole, 32));
		}
	}
	close(copy);
}

static void test_digest__xxh3(void)
{
	uint8_t digest[32], expected[8];
	XXH64_canonical_t canonical;

	XXH64_canonicalFromHash(&canonical, XXH3_64bits(input + 1000, 70000));
	memcpy(expected, canonical.digest, 8);
	assert(careful_digest(fd, 1000, 70000, CAREFUL_BLOCK_XXH3, digest) == 8);
	assert(!memcmp(digest, expected, 8));
}

/* Equals the library's for pieces of any size and at any address, with this CPU's code. */
static void test_xxh3__pieces_of_any_size(void)
{
	struct xxh3 *state = xxh3_create();

	assert(state);
	for (size_t bytes = 0; bytes < 20000; bytes += 1 + bytes / 7) {
		const uint8_t *from = input + bytes % 67;
		uint64_t expected = XXH3_64bits(from, bytes);

		assert(xxh3_hash(from, bytes) == expected);
		for (size_t piece = 1; piece <= 4096; piece = 3 * piece + bytes % 5) {
			xxh3_reset(state);
			for (size_t at = 0; at < bytes; at += piece)
				xxh3_update(state, from + at,
					    bytes - at < piece ? bytes - at : piece);
			assert(xxh3_end(state) == expected);
		}
	}
	xxh3_free(state);
	xxh3_free(NULL);
}

static void test_digest__no_such_range(void)
{
	uint8_t digest[32];

	assert(careful_digest(fd, 1, FILE_BYTES, CAREFUL_BLOCK_XXH3, digest) == -ENODATA);
	assert(careful_digest(fd, FILE_BYTES, 1, CAREFUL_BLOCK_BLAKE3, digest) == -ENODATA);
	assert(careful_digest(fd, UINT64_MAX, 1, CAREFUL_BLOCK_XXH3, digest) == -EINVAL);
	assert(careful_digest(fd, 1, UINT64_MAX, CAREFUL_BLOCK_XXH3, digest) == -EINVAL);
	assert(careful_digest(fd, 0, 1, 0, digest) == -EINVAL);
	assert(careful_digest(fd, 0, 1, 4, digest) == -EINVAL);
	assert(careful_digest(-1, 0, 1, CAREFUL_BLOCK_XXH3, digest) == -EBADF);
}

int main(void)
{
	for (size_t i = 0; i < FILE_BYTES; i++)
		input[i] = (uint8_t)(i % 251);
	fd = memfd_create("input", MFD_CLOEXEC);
	assert(fd >= 0 && write(fd, input, FILE_BYTES) == FILE_BYTES);
	test_blake3__vectors();
	test_blake3__pieces_of_any_size();
	test_blake3__parts_join();
	test_digest__xxh3();
	test_xxh3__pieces_of_any_size();
	test_digest__no_such_range();
	close(fd);
	return 0;
}
