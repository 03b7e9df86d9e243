/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the block server's workers do with files: open, create beside the final
 * name, commit, close, stat, mkdir. Listings are block_list.c's.
 */
#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "service/block_private.h"

/* Regular files only: opening anything else may wait, or do something. */
static int check_type(mode_t mode)
{
	if (S_ISREG(mode))
		return 0;
	return S_ISDIR(mode) ? -EISDIR : -ENOTSUP;
}

static int attr_of(int fd, struct block_job *job)
{
	struct stat st;

	if (fstat(fd, &st))
		return -errno;
	block_attr_set(&job->attr, &st);
	job->has_attr = true;
	return 0;
}

/* OPEN to read. The type is known before the file is opened, and again after, since
 * another may stand there by then; O_NONBLOCK keeps that one from hanging us. */
static int do_open(struct careful_block_server *server, struct block_job *job)
{
	struct block_handle *handle = job->handle;
	struct stat st;
	int fd, rc;

	fd = block_path_open(server, job->path, O_PATH, 0, NULL);
	if (fd < 0)
		return fd;
	rc = fstat(fd, &st) ? -errno : check_type(st.st_mode);
	close(fd);
	if (rc)
		return rc;
	fd = block_path_open(server, job->path, O_RDONLY | O_NONBLOCK, 0, NULL);
	if (fd < 0)
		return fd;
	handle->fd = fd;
	if (fstat(fd, &st))
		return -errno;
	rc = check_type(st.st_mode);
	if (rc)
		return rc;
	posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
	handle->bytes = (uint64_t)st.st_size;
	block_attr_set(&job->attr, &st);
	job->has_attr = true;
	return 0;
}

/* Whether a new file may come to stand at name, as far as can be seen now. */
static int check_target(int dir_fd, const char *name, uint32_t flags)
{
	struct stat st;

	if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW))
		return errno == ENOENT ? 0 : -errno;
	if (S_ISDIR(st.st_mode))
		return -EISDIR;
	return flags & CAREFUL_BLOCK_REPLACE ? 0 : -EEXIST;
}

static int open_temporary(struct block_handle *handle)
{
	uint64_t random;
	int fd;

	for (int i = 0; i < 16; i++) {
		if (getrandom(&random, sizeof(random), 0) != sizeof(random))
			return -EIO;
		snprintf(handle->temporary, sizeof(handle->temporary), ".careful-%016llx.part",
			 (unsigned long long)random);
		fd = openat(handle->dir_fd, handle->temporary,
			    O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
		if (fd >= 0)
			return fd;
		if (errno != EEXIST)
			break;
	}
	handle->temporary[0] = 0;
	return -errno;
}

/*
 * Gives the file its size, with blocks behind it where that is cheap, so that a full
 * disk is an error now. In memory (F_GET_SEALS: tmpfs) it would not be: each page
 * would be cleared, only to be overwritten; there it is enough that it could fit.
 */
static int preallocate(int fd, uint64_t bytes)
{
	struct statvfs fs;

	if (bytes > INT64_MAX)
		return -EFBIG;
	if (bytes && fcntl(fd, F_GET_SEALS) < 0) {
		if (fallocate(fd, 0, 0, (off_t)bytes) == 0)
			return 0;
		if (errno != EOPNOTSUPP && errno != ENOSYS)
			return -errno;
	} else if (fstatvfs(fd, &fs) == 0 && fs.f_blocks && bytes / fs.f_frsize > fs.f_bavail) {
		return -ENOSPC;
	}
	return ftruncate(fd, (off_t)bytes) ? -errno : 0;
}

/* OPEN with CREATE. */
static int do_create(struct careful_block_server *server, struct block_job *job)
{
	struct block_handle *handle = job->handle;
	const struct block_export *export = NULL;
	const char *name;
	int rc;

	rc = block_path_parent(server, job->path, &name, &export);
	if (rc < 0)
		return rc;
	handle->dir_fd = rc;
	if (!export->writable)
		return -EROFS;
	if (strlen(name) > NAME_MAX)
		return -ENAMETOOLONG;
	rc = check_target(handle->dir_fd, name, job->flags);
	if (rc)
		return rc;
	rc = open_temporary(handle);
	if (rc < 0)
		return rc;
	handle->fd = rc;
	memcpy(handle->name, name, strlen(name) + 1);
	rc = preallocate(handle->fd, job->bytes);
	if (rc)
		return rc;
	handle->bytes = job->bytes;
	return attr_of(handle->fd, job);
}

/* Gives the temporary file its name; where renameat2 has no flags, by a link. */
static int give_name(struct block_handle *handle, bool replace)
{
	unsigned int flags = replace ? 0 : RENAME_NOREPLACE;

	if (renameat2(handle->dir_fd, handle->temporary, handle->dir_fd, handle->name, flags)) {
		if (replace || errno != EINVAL)
			return -errno;
		if (linkat(handle->dir_fd, handle->temporary, handle->dir_fd, handle->name, 0))
			return -errno;
		unlinkat(handle->dir_fd, handle->temporary, 0);
	}
	handle->temporary[0] = 0;
	return 0;
}

static int do_commit(struct block_job *job)
{
	struct block_handle *handle = job->handle;
	bool sync = !(job->flags & CAREFUL_BLOCK_NOSYNC);
	int rc;

	if (fchmod(handle->fd, job->mode & 0777))
		return -errno;
	if (job->mtime_ns) {
		int64_t ns = (int64_t)job->mtime_ns;
		int64_t second = 1000000000;
		struct timespec times[2] = { { .tv_nsec = UTIME_OMIT } };

		/* The time may lie before 1970; tv_nsec counts upwards all the same. */
		times[1].tv_sec = ns / second - (ns % second < 0);
		times[1].tv_nsec = ns - times[1].tv_sec * second;
		if (futimens(handle->fd, times))
			return -errno;
	}
	if (sync && fsync(handle->fd))
		return -errno;
	rc = give_name(handle, job->flags & CAREFUL_BLOCK_REPLACE);
	if (rc)
		return rc;
	/* EINVAL: a file system whose directories need no sync. */
	if (sync && fsync(handle->dir_fd) && errno != EINVAL)
		return -errno;
	return attr_of(handle->fd, job);
}

/* The last of a handle: what it holds is given back, whatever came before. */
static void close_handle(struct careful_block_server *server, struct block_handle *handle)
{
	if (handle->temporary[0])
		unlinkat(handle->dir_fd, handle->temporary, 0);
	handle->temporary[0] = 0;
	if (handle->fd >= 0)
		close(handle->fd);
	if (handle->dir_fd >= 0)
		close(handle->dir_fd);
	handle->fd = -1;
	handle->dir_fd = -1;
	atomic_fetch_sub(&server->listings_memory, handle->memory);
	handle->memory = 0;
}

static int do_stat(struct careful_block_server *server, struct block_job *job)
{
	int fd, rc;

	if (block_path_is_top(server, job->path)) {
		block_attr_top(&job->attr);
		job->has_attr = true;
		return 0;
	}
	fd = block_path_open(server, job->path, O_PATH, 0, NULL);
	if (fd < 0)
		return fd;
	rc = attr_of(fd, job);
	close(fd);
	return rc;
}

static int do_mkdir(struct careful_block_server *server, struct block_job *job)
{
	const struct block_export *export = NULL;
	const char *name;
	struct stat st;
	int fd, rc;

	/* The root of an export exists: no error, as for any directory. */
	fd = block_path_is_top(server, job->path) ?
		     -EISDIR :
		     block_path_open(server, job->path, O_PATH | O_DIRECTORY, 0, &export);
	if (fd >= 0) {
		close(fd);
		return export->writable ? 0 : -EROFS;
	}
	fd = block_path_parent(server, job->path, &name, &export);
	if (fd < 0)
		return fd;
	rc = export->writable ? 0 : -EROFS;
	if (!rc && mkdirat(fd, name, job->mode & 0777))
		rc = -errno;
	/* Another may have made it in between. */
	if (rc == -EEXIST && !fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) && S_ISDIR(st.st_mode))
		rc = 0;
	close(fd);
	return rc;
}

/* Does a job, on a worker thread. */
void block_run(struct careful_block_server *server, struct block_job *job)
{
	if (job->path && !server->exports_count) {
		job->status = -EACCES;
		return;
	}
	switch (job->op) {
	case CAREFUL_BLOCK_OPEN:
		job->status = job->flags & CAREFUL_BLOCK_CREATE ? do_create(server, job) :
								  do_open(server, job);
		break;
	case CAREFUL_BLOCK_LIST:
		job->status = block_list(server, job);
		break;
	case CAREFUL_BLOCK_STAT:
		job->status = do_stat(server, job);
		break;
	case CAREFUL_BLOCK_MKDIR:
		job->status = do_mkdir(server, job);
		break;
	case CAREFUL_BLOCK_COMMIT:
		job->status = do_commit(job);
		close_handle(server, job->handle);
		break;
	case CAREFUL_BLOCK_CLOSE:
		job->status = attr_of(job->handle->fd, job);
		close_handle(server, job->handle);
		break;
	case BLOCK_DISCARD:
		close_handle(server, job->handle);
		break;
	default:
		assert(!"a job that is none");
	}
	/* What could not be opened holds nothing. */
	if (job->status && job->handle && job->path)
		close_handle(server, job->handle);
}
