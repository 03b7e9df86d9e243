/* SPDX-License-Identifier: BSD-2-Clause */
/* Batches in the block server: memory for items, and the answer. storage/ runs the items. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/io.h"
#include "files/private.h"
#include "storage/tree/tree.h"

int block_open_scratch(struct block_job *job)
{
	struct block_handle *handle = job->handle;
	const struct block_export *export = NULL;
	int fd;

	if (job->bytes > BLOCK_BATCH_BYTES)
		return -E2BIG;
	if (!(job->flags & CAREFUL_BLOCK_NULL)) { /* else the memory is for a path */
		fd = block_path_open(job, job->path, O_RDONLY | O_DIRECTORY, 0, &export);
		if (fd < 0)
			return fd;
		handle->dir_fd = fd;
		handle->may_write = export->writable;
		handle->squashed = !export->owners;
	}
	handle->fd = memfd_create("careful-batch", MFD_CLOEXEC);
	if (handle->fd < 0 || ftruncate(handle->fd, (off_t)job->bytes))
		return -errno;
	handle->bytes = job->bytes;
	handle->writable = true;
	return 0;
}

static int store_answer(struct block_job *job, const struct careful_batch_answer *answer)
{
	struct block_handle *handle = job->handle;
	int rc;

	handle->fd = memfd_create("careful-batch-answer", MFD_CLOEXEC);
	if (handle->fd < 0)
		return -errno;
	rc = io_write(handle->fd, answer->items, answer->bytes);
	if (rc)
		return rc;
	handle->bytes = answer->bytes;
	job->args[1] = (uint32_t)(answer->bytes >> 32);
	job->args[2] = (uint32_t)answer->bytes;
	job->args[3] = answer->failed;
	job->denied = answer->denied;
	return 0;
}

struct under_way {
	struct block_server *server;
	const struct block_job *job;
};

static bool is_unwanted(void *user)
{
	const struct under_way *batch = user;

	return block_work_is_unwanted(batch->server, batch->job);
}

int block_batch(struct block_server *server, struct block_job *job)
{
	struct under_way batch = { server, job };
	const struct batch_wanted wanted = { is_unwanted, &batch };
	struct careful_batch_how how = {
		.flags = job->flags,
		.umask = job->umask,
		.writable = job->may_write,
		.squashed = job->squashed,
		.file_bytes_max = job->file_bytes_max,
		.answer_bytes_max = BLOCK_ANSWER_BYTES,
	};
	struct careful_batch_answer answer = { 0 };
	char *items = malloc(job->bytes + 1);
	ssize_t n;
	int rc;

	if (!items)
		return -ENOMEM;
	/* a copy, because the peer may still store */
	n = io_read(job->fd, items, job->bytes, 0);
	rc = n < 0 ? (int)n : n < (ssize_t)job->bytes ? -ENODATA : 0;
	if (!rc)
		rc = batch_run(job->dir_fd, items, job->bytes, &how, &wanted, &answer);
	if (!rc)
		rc = store_answer(job, &answer);
	careful_batch_release(&answer);
	free(items);
	return rc;
}
