/* SPDX-License-Identifier: BSD-2-Clause */
/* Jobs on ranges of open files: digests, and extents of data. */
#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "files/private.h"
#include "storage/tree/tree.h"

enum {
	DIGEST_BYTES = 256 << 20, /* most bytes that an answer covers, so that it is not late */
	BLOCK_BYTES_MIN = 1024,
	BLOCK_BYTES_MAX = 1 << 30,
};

static int check_range(const struct block_job *job, uint32_t *digest_bytes)
{
	uint32_t block = job->block_bytes;
	bool power = block && !(block & (block - 1));

	*digest_bytes = job->algorithm == CAREFUL_BLOCK_XXH3 ? 8 : CAREFUL_DIGEST_BYTES_MAX;
	if (block < BLOCK_BYTES_MIN || block > BLOCK_BYTES_MAX)
		return -EINVAL;
	if (job->algorithm == CAREFUL_BLOCK_BLAKE3 && (!power || job->offset % block))
		return -EINVAL;
	return 0;
}

int block_digest(struct block_job *job)
{
	uint8_t digest[CAREFUL_DIGEST_BYTES_MAX];
	uint32_t digest_bytes, n = 0;
	uint64_t at = 0;
	int rc = check_range(job, &digest_bytes);
	uint8_t *out;

	if (rc)
		return rc;
	out = malloc(job->reply_max);
	if (!out)
		return -ENOMEM;
	job->reply = out;
	while (at < job->bytes && (n + 1) * digest_bytes <= job->reply_max && at < DIGEST_BYTES) {
		uint64_t size = job->bytes - at;

		if (size > job->block_bytes)
			size = job->block_bytes;
		rc = careful_digest(job->fd, job->offset + at, size, job->algorithm, digest);
		if (rc < 0)
			return rc;
		assert((uint32_t)rc == digest_bytes);
		memcpy(out + (size_t)n * digest_bytes, digest, digest_bytes);
		at += size;
		n++;
	}
	job->args[0] = n;
	job->reply_bytes = n * digest_bytes;
	return 0;
}

/* Finds the next data in [at, end). Returns 1 with *from and *to, 0 for none, or -errno. */
static int next_data(int fd, uint64_t at, uint64_t end, uint64_t *from, uint64_t *to)
{
	off_t data = lseek(fd, (off_t)at, SEEK_DATA);
	off_t hole;

	if (data < 0 && errno == ENXIO)
		return 0;
	if (data < 0 && errno != EINVAL)
		return -errno;
	hole = data < 0 ? (off_t)end : lseek(fd, data, SEEK_HOLE);
	*from = data < 0 ? at : (uint64_t)data;
	*to = hole < 0 || (uint64_t)hole > end ? end : (uint64_t)hole;
	return *from < end;
}

int block_extents(struct block_job *job)
{
	uint64_t end = job->offset + job->bytes;
	uint64_t at = job->offset, from = 0, to = 0;
	struct careful_block_extent *out;
	uint32_t n = 0;
	int rc = 1;

	out = malloc(job->reply_max);
	if (!out)
		return -ENOMEM;
	job->reply = out;
	while (at < end && (n + 1) * sizeof(*out) <= job->reply_max) {
		rc = next_data(job->fd, at, end, &from, &to);
		if (rc <= 0)
			break;
		out[n++] = (struct careful_block_extent){
			.offset = htobe64(from),
			.bytes = htobe64(to - from),
		};
		at = to;
	}
	if (rc < 0)
		return rc;
	if (!rc)
		at = end;
	job->args[0] = n;
	job->args[1] = (uint32_t)(at >> 32);
	job->args[2] = (uint32_t)at;
	job->reply_bytes = n * (uint32_t)sizeof(*out);
	return 0;
}
