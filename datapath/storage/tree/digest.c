/* SPDX-License-Identifier: BSD-2-Clause */
/* Digests of byte ranges of files, read in pieces, because a range may exceed memory. */
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <careful/files.h>

#include "base/blake3.h"
#include "base/xxh3.h"

enum { PIECE = 256 << 10 };

struct state {
	struct xxh3 *xxh3; /* NULL if BLAKE3 is used */
	uint32_t algorithm;
	struct blake3 blake3;
};

static void update(struct state *s, const void *data, size_t bytes)
{
	if (s->xxh3)
		xxh3_update(s->xxh3, data, bytes);
	else
		blake3_update(&s->blake3, data, bytes);
}

/* Writes the digest; returns its bytes. */
static int finish(struct state *s, uint8_t *digest)
{
	uint64_t value;

	if (!s->xxh3) {
		blake3_final(&s->blake3, s->algorithm == CAREFUL_BLOCK_BLAKE3_ROOT, digest);
		return BLAKE3_BYTES;
	}
	value = htobe64(xxh3_end(s->xxh3));
	memcpy(digest, &value, sizeof(value));
	return sizeof(value);
}

static int add_range(struct state *s, int fd, uint64_t offset, uint64_t bytes, char *piece)
{
	while (bytes) {
		ssize_t n = pread(fd, piece, bytes < PIECE ? (size_t)bytes : PIECE, (off_t)offset);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n ? -errno : -ENODATA;
		update(s, piece, (size_t)n);
		offset += (uint64_t)n;
		bytes -= (uint64_t)n;
	}
	return 0;
}

int careful_digest(int fd, uint64_t offset, uint64_t bytes, uint32_t algorithm, uint8_t *digest)
{
	return careful_digest_at(fd, offset, offset, bytes, algorithm, digest);
}

int careful_digest_at(int fd, uint64_t place, uint64_t offset, uint64_t bytes, uint32_t algorithm,
		      uint8_t *digest)
{
	struct state s = { .algorithm = algorithm };
	char *piece;
	int rc;

	if (algorithm < CAREFUL_BLOCK_XXH3 || algorithm > CAREFUL_BLOCK_BLAKE3_ROOT)
		return -EINVAL;
	if (place > INT64_MAX || bytes > INT64_MAX - place)
		return -EINVAL;
	piece = malloc(PIECE);
	if (algorithm == CAREFUL_BLOCK_XXH3)
		s.xxh3 = xxh3_create();
	if (!piece || (algorithm == CAREFUL_BLOCK_XXH3 && !s.xxh3)) {
		rc = -ENOMEM;
	} else {
		if (s.xxh3)
			xxh3_reset(s.xxh3);
		else
			blake3_init(&s.blake3, algorithm == CAREFUL_BLOCK_BLAKE3 ? offset : 0);
		rc = add_range(&s, fd, place, bytes, piece);
		if (!rc)
			rc = finish(&s, digest);
	}
	xxh3_free(s.xxh3);
	free(piece);
	return rc;
}

void careful_digest_join(const uint8_t *digests, uint64_t n, uint8_t *digest)
{
	blake3_join(digests, n, digest);
}
