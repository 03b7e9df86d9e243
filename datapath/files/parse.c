/* SPDX-License-Identifier: BSD-2-Clause */
/* Parses requests of the block service into jobs. */
#include <endian.h>
#include <errno.h>
#include <string.h>

#include "files/private.h"

static int parse_path(struct block_job *job, const char *path, uint32_t bytes)
{
	if (bytes >= PATH_MAX)
		return -ENAMETOOLONG;
	if (memchr(path, 0, bytes))
		return -EINVAL;
	memcpy(job->path, path, bytes);
	job->path[bytes] = 0;
	return 0;
}

static int parse_range(struct block_job *job, const void *payload, uint32_t bytes)
{
	struct careful_block_range range;

	if (bytes < sizeof(range))
		return -EINVAL;
	memcpy(&range, payload, sizeof(range));
	job->offset = be64toh(range.offset);
	job->bytes = be64toh(range.bytes);
	job->block_bytes = be32toh(range.block_bytes);
	job->algorithm = be32toh(range.algorithm);
	return job->offset > INT64_MAX || job->bytes > INT64_MAX - job->offset ? -EINVAL : 0;
}

static int parse_batch(struct block_job *job, const uint32_t *args, const void *payload,
		       uint32_t bytes)
{
	struct careful_block_batch batch;

	if (bytes < sizeof(batch))
		return -EINVAL;
	memcpy(&batch, payload, sizeof(batch));
	job->key = args[0];
	job->flags = args[1];
	job->attempt = block_attempt(args);
	job->bytes = be64toh(batch.bytes);
	job->file_bytes_max = be32toh(batch.file_bytes_max);
	job->umask = be32toh(batch.umask);
	return 0;
}

int block_parse(struct block_job *job, const uint32_t *args, const void *payload, uint32_t bytes)
{
	struct careful_block_open open;
	uint32_t path_bytes;

	switch (job->op) {
	case CAREFUL_BLOCK_LIST:
		job->attempt = block_attempt(args);
		/* fallthrough */
	case CAREFUL_BLOCK_STAT:
		job->flags = args[0];
		return parse_path(job, payload, bytes);
	case CAREFUL_BLOCK_CLOSE:
		job->key = args[0];
		job->flags = args[1];
		if (!job->key)
			job->attempt = block_attempt(args);
		return 0;
	case CAREFUL_BLOCK_DIGEST:
	case CAREFUL_BLOCK_EXTENTS:
		job->key = args[0];
		return parse_range(job, payload, bytes);
	case CAREFUL_BLOCK_BATCH:
		return parse_batch(job, args, payload, bytes);
	default:
		break;
	}
	if (bytes < sizeof(open))
		return -EINVAL;
	memcpy(&open, payload, sizeof(open));
	job->mode = be32toh(open.mode);
	job->bytes = be64toh(open.bytes);
	job->mtime_ns = be64toh(open.mtime_ns);
	if (job->op == CAREFUL_BLOCK_COMMIT) {
		job->key = args[0];
		job->flags = args[1];
		return 0;
	}
	job->flags = be32toh(open.flags);
	if (job->op == CAREFUL_BLOCK_OPEN) {
		job->key = args[0];
		job->attempt = block_attempt(args);
		job->tag = be64toh(open.tag);
		job->tail_bytes = be32toh(open.tail_bytes);
	}
	path_bytes = be32toh(open.path_bytes);
	if (path_bytes > bytes - sizeof(open))
		return -EINVAL;
	return parse_path(job, (const char *)payload + sizeof(open), path_bytes);
}
