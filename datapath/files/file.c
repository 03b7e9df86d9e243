/* SPDX-License-Identifier: BSD-2-Clause */
/* Runs the workers' jobs. Contains the jobs that open, close and stat files or make directories. */
#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <unistd.h>

#include "files/private.h"
#include "storage/tree/tree.h"

/* Checks that a file is regular or a block device: to open another type may block or have effects.
 * Block devices need the export's permission, because their contents lie outside the export. */
static int check_type(const struct block_export *export, mode_t mode)
{
	if (S_ISREG(mode))
		return 0;
	if (S_ISBLK(mode))
		return export->devices ? 0 : -EPERM;
	return S_ISDIR(mode) ? -EISDIR : -ENOTSUP;
}

/* Opens a regular file or a block device. Checks the type before the open, and after it, because
 * the path may name another file by then; O_NONBLOCK keeps that file from blocking us. O_EXCL
 * refuses mounted devices. */
static int open_blocks(struct block_job *job, bool write)
{
	struct block_handle *handle = job->handle;
	const struct block_export *export = NULL;
	struct stat st;
	int fd, rc;

	fd = block_path_open(job, job->path, O_PATH, 0, &export);
	if (fd < 0)
		return fd;
	rc = fstat(fd, &st) ? -errno : check_type(export, st.st_mode);
	close(fd);
	if (!rc && write && !export->writable)
		rc = -EROFS;
	if (rc)
		return rc;
	fd = block_path_open(job, job->path,
			     O_NONBLOCK | (write ? O_RDWR : O_RDONLY) |
				     (write && S_ISBLK(st.st_mode) ? O_EXCL : 0),
			     0, NULL);
	if (fd < 0)
		return fd;
	handle->fd = fd;
	rc = fstat(fd, &st) ? -errno : check_type(export, st.st_mode);
	/* When root writes to a file, the kernel does not clear its set-ID bits. */
	if (!rc && write && !export->owners && (st.st_mode & (S_ISUID | S_ISGID)))
		rc = -EPERM;
	if (!rc)
		rc = block_attr_of(fd, job);
	handle->bytes = be64toh(job->attr.bytes);
	return rc;
}

/* Serves a copy of a file without a size (careful_prepare_read()). */
static int serve_copy(struct block_handle *handle, int copy)
{
	struct stat st;
	uint64_t before;

	close(handle->fd);
	handle->fd = copy;
	if (fstat(copy, &st))
		return -errno;
	handle->memory = (uint64_t)st.st_size;
	before = atomic_fetch_add(&handle->account->memory, handle->memory);
	return before + handle->memory > BLOCK_LISTINGS_MEMORY ? -EAGAIN : 0;
}

static int do_open(struct block_job *job)
{
	struct block_handle *handle = job->handle;
	int rc = open_blocks(job, false), copy;

	if (!rc)
		rc = careful_prepare_read(handle->fd, &copy);
	if (!rc && copy >= 0)
		rc = serve_copy(handle, copy);
	if (!rc)
		rc = block_attr_of(handle->fd, job);
	if (rc)
		return rc;
	handle->bytes = be64toh(job->attr.bytes);
	posix_fadvise(handle->fd, 0, 0, POSIX_FADV_SEQUENTIAL);
	return 0;
}

/* Opens a file for writing in place; a regular file may grow to the size that the client gives. */
static int do_open_inplace(struct block_job *job)
{
	struct block_handle *handle = job->handle;
	int rc = open_blocks(job, true);

	if (rc)
		return rc;
	if (job->bytes > INT64_MAX)
		return -EFBIG;
	if (S_ISREG(be32toh(job->attr.mode)) && job->bytes > handle->bytes)
		handle->bytes = job->bytes;
	handle->writable = true;
	return 0;
}

/* Opens /dev/zero, which reads as zeros and discards writes. */
static int do_open_null(struct block_job *job)
{
	struct block_handle *handle = job->handle;

	handle->fd = open("/dev/zero", O_RDWR | O_CLOEXEC);
	if (handle->fd < 0)
		return -errno;
	handle->bytes = job->bytes > INT64_MAX ? INT64_MAX : job->bytes;
	handle->writable = true;
	return block_attr_of(handle->fd, job);
}

static int do_open_as(struct block_server *server, struct block_job *job)
{
	if (job->flags & CAREFUL_BLOCK_SCRATCH)
		return block_open_scratch(job);
	if (job->flags & CAREFUL_BLOCK_NULL)
		return do_open_null(job);
	if (job->flags & CAREFUL_BLOCK_INPLACE)
		return do_open_inplace(job);
	return job->flags & CAREFUL_BLOCK_CREATE ? block_create(server, job) : do_open(job);
}

static void close_handle(struct block_handle *handle, bool discard)
{
	if (handle->temporary[0] && (discard || !handle->partial))
		unlinkat(handle->dir_fd, handle->temporary, 0);
	handle->temporary[0] = 0;
	if (handle->fd >= 0)
		close(handle->fd);
	if (handle->dir_fd >= 0)
		close(handle->dir_fd);
	handle->fd = handle->dir_fd = -1;
	atomic_fetch_sub(&handle->account->memory, handle->memory);
	atomic_fetch_sub(&handle->account->disk, handle->disk);
	handle->memory = 0;
	handle->disk = 0;
}

static int do_stat(struct block_job *job)
{
	int fd, rc;

	if (block_path_is_top(job, job->path)) {
		block_attr_top(&job->attr);
		job->has_attr = true;
		return 0;
	}
	fd = block_path_open(job, job->path, O_PATH, 0, NULL);
	if (fd < 0)
		return fd;
	rc = block_attr_of(fd, job);
	close(fd);
	return rc;
}

static int do_mkdir(struct block_job *job)
{
	const struct block_export *export = NULL;
	const char *name;
	struct stat st;
	int fd, rc;

	/* An export's root exists: success, as for any directory. */
	fd = block_path_is_top(job, job->path) ?
		     -EISDIR :
		     block_path_open(job, job->path, O_PATH | O_DIRECTORY, 0, &export);
	if (fd >= 0) {
		close(fd);
		return export->writable ? 0 : -EROFS;
	}
	fd = block_path_parent(job, &name, &export);
	if (fd < 0)
		return fd;
	rc = export->writable ? 0 : -EROFS;
	if (!rc && mkdirat(fd, name, job->mode & 0777))
		rc = -errno;
	/* Another process may have made the directory in between. */
	if (rc == -EEXIST && !fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) && S_ISDIR(st.st_mode))
		rc = 0;
	close(fd);
	return rc;
}

/* Replaces errors that FUSE or a network file system may return, and that the client would take for
 * the end of its connection or session. */
static int file_status(int status)
{
	switch (-status) {
	case ECONNABORTED:
	case ECONNREFUSED:
	case ECONNRESET:
	case EHOSTUNREACH:
	case ENETDOWN:
	case ENETUNREACH:
	case ENODEV:
	case ENOTCONN:
	case ETIMEDOUT:
		return -EIO;
	default:
		return status;
	}
}

void block_run(struct block_server *server, struct block_job *job)
{
	bool null = job->op == CAREFUL_BLOCK_OPEN && (job->flags & CAREFUL_BLOCK_NULL);

	if (job->path && !job->exports->count && !null) {
		job->status = -ENOMEDIUM; /* nothing is exported */
		return;
	}
	switch (job->op) {
	case CAREFUL_BLOCK_OPEN:
		job->status = do_open_as(server, job);
		break;
	case CAREFUL_BLOCK_LIST:
		job->status = block_list(server, job);
		break;
	case CAREFUL_BLOCK_STAT:
		job->status = do_stat(job);
		break;
	case CAREFUL_BLOCK_MKDIR:
		job->status = do_mkdir(job);
		break;
	case CAREFUL_BLOCK_DIGEST:
		job->status = block_digest(job);
		break;
	case CAREFUL_BLOCK_EXTENTS:
		job->status = block_extents(job);
		break;
	case CAREFUL_BLOCK_BATCH:
		job->status = block_batch(server, job);
		break;
	case CAREFUL_BLOCK_COMMIT:
		job->status = block_commit(job);
		close_handle(job->handle, false);
		break;
	case CAREFUL_BLOCK_CLOSE:
		job->status = block_attr_of(job->handle->fd, job);
		close_handle(job->handle, job->flags & CAREFUL_BLOCK_DISCARD);
		break;
	case BLOCK_DISCARD:
		close_handle(job->handle, false);
		break;
	default:
		assert(!"unknown job");
	}
	job->status = file_status(job->status);
	if (job->fd >= 0)
		close(job->fd);
	if (job->dir_fd >= 0)
		close(job->dir_fd);
	job->fd = job->dir_fd = -1;
	/* A failed open leaves nothing open. */
	if (job->status && job->handle && job->path)
		close_handle(job->handle, false);
}
