/* SPDX-License-Identifier: BSD-2-Clause */
/* New files. They are made in the target's directory, and renamed when complete. A temporary file
 * has a random name and is removed with its handle. A partial file stays. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "files/private.h"
#include "storage/tree/tree.h"

enum { SEED_BYTES = 16 << 20 }; /* copied between two calls of block_work_is_unwanted() */

/* Returns 0 if a new file may have the name, else -errno. */
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
	struct stat st;
	int fd;

	for (int i = 0; i < 16; i++) {
		if (getrandom(&random, sizeof(random), 0) != sizeof(random))
			return -EIO;
		snprintf(handle->temporary, sizeof(handle->temporary), ".careful-%016llx.part",
			 (unsigned long long)random);
		fd = openat(handle->dir_fd, handle->temporary,
			    O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
		if (fd < 0 && errno != EEXIST)
			break;
		if (fd < 0)
			continue;
		/* remove_partial() keeps locked files (items_write.c). */
		flock(fd, LOCK_EX | LOCK_NB);
		if (!fstat(fd, &st) && st.st_nlink)
			return fd;
		close(fd); /* removed before we had the lock */
	}
	handle->temporary[0] = 0;
	return -errno;
}

/* Reports whether the temporary name still names our open file. In a directory that others can
 * write to, the name could now be their link to any file. */
static bool has_its_name(const struct block_handle *handle, const struct stat *st)
{
	struct stat named;

	return S_ISREG(st->st_mode) && st->st_nlink == 1 && st->st_uid == geteuid() &&
	       !fstatat(handle->dir_fd, handle->temporary, &named, AT_SYMLINK_NOFOLLOW) &&
	       named.st_ino == st->st_ino && named.st_dev == st->st_dev;
}

/* Opens or creates the partial file of a tag; sets *st. Its lock allows one handle at a time. */
static int open_partial(struct block_handle *handle, uint64_t tag, struct stat *st)
{
	int fd, rc;

	snprintf(handle->temporary, sizeof(handle->temporary), ".careful-%016llx.part",
		 (unsigned long long)tag);
	/* Another handle may rename the file between our open and our lock. */
	for (int i = 0; i < 16; i++) {
		fd = openat(handle->dir_fd, handle->temporary,
			    O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
		if (fd < 0)
			return -errno;
		rc = flock(fd, LOCK_EX | LOCK_NB) ? -errno : fstat(fd, st) ? -errno : 0;
		if (!rc && has_its_name(handle, st)) {
			handle->partial = true;
			return fd;
		}
		close(fd);
		if (rc)
			return rc == -EWOULDBLOCK ? -EBUSY : rc;
		if (st->st_nlink)
			return -EPERM;
	}
	return -EBUSY;
}

/* Reports whether the file system has room, without the blocks reserved for root. */
static bool has_room(int fd, uint64_t bytes)
{
	struct statvfs fs;

	return fstatvfs(fd, &fs) || !fs.f_blocks || bytes / fs.f_frsize <= fs.f_bavail;
}

/* Sets the file's size. Allocates blocks, so that a full disk is an error now. Does not allocate on
 * tmpfs (where F_GET_SEALS works), which would needlessly clear each page. */
static int preallocate(int fd, uint64_t bytes)
{
	if (bytes > INT64_MAX)
		return -EFBIG;
	if (!has_room(fd, bytes))
		return -ENOSPC;
	if (bytes && fcntl(fd, F_GET_SEALS) < 0) {
		if (fallocate(fd, 0, 0, (off_t)bytes) == 0)
			return 0;
		if (errno != EOPNOTSUPP && errno != ENOSYS)
			return -errno;
	}
	return ftruncate(fd, (off_t)bytes) ? -errno : 0;
}

static int copy(struct block_server *server, const struct block_job *job, int from, uint64_t bytes)
{
	uint64_t at = 0, n;
	int rc = 0;

	for (; !rc && at < bytes; at += n) {
		n = bytes - at < SEED_BYTES ? bytes - at : SEED_BYTES;
		rc = block_work_is_unwanted(server, job) ?
			     -ECANCELED :
			     careful_copy(from, job->handle->fd, at, n);
	}
	return rc;
}

/* Copies at most `bytes` bytes of an open file. Returns 1 if it is not a regular file. */
static int copy_file(struct block_server *server, const struct block_job *job, int from,
		     uint64_t bytes)
{
	struct stat st;

	if (fstat(from, &st))
		return -errno;
	if (!S_ISREG(st.st_mode))
		return 1;
	return copy(server, job, from, (uint64_t)st.st_size < bytes ? (uint64_t)st.st_size : bytes);
}

/* Copies at most `bytes` bytes of the file that now has the final name. Checks that file's type
 * before the open, because opening a device or FIFO can have effects. */
static int seed(struct block_server *server, const struct block_job *job, uint64_t bytes)
{
	const struct block_handle *handle = job->handle;
	struct stat st;
	int rc, fd;

	if (fstatat(handle->dir_fd, handle->name, &st, AT_SYMLINK_NOFOLLOW))
		return errno == ENOENT ? 0 : -errno;
	if (!S_ISREG(st.st_mode))
		return 0;
	fd = openat(handle->dir_fd, handle->name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT || errno == ELOOP ? 0 : -errno;
	rc = copy_file(server, job, fd, bytes);
	close(fd);
	return rc < 0 ? rc : 0;
}

/* Sets the new file's size, and copies its initial contents. */
static int fill(struct block_server *server, struct block_job *job)
{
	struct block_handle *handle = job->handle;
	uint64_t bytes = job->bytes;
	int rc = 0;

	handle->stream = job->flags & CAREFUL_BLOCK_STREAM;
	if (handle->stream) {
		handle->bytes = INT64_MAX;
		return 0;
	}
	if (bytes > INT64_MAX - UINT32_MAX)
		return -EFBIG;
	handle->bytes = bytes + (handle->partial ? job->tail_bytes : 0);
	handle->file_bytes = bytes;
	if (!(job->flags & CAREFUL_BLOCK_SPARSE))
		rc = preallocate(handle->fd, handle->bytes);
	else if (ftruncate(handle->fd, (off_t)handle->bytes))
		rc = -errno;
	if (!rc && (job->flags & CAREFUL_BLOCK_SEED))
		rc = seed(server, job, bytes);
	if (!rc && (job->flags & CAREFUL_BLOCK_COPY)) {
		rc = copy_file(server, job, job->fd, bytes);
		rc = rc > 0 ? -EINVAL : rc;
		job->args[1] = 2;
	}
	return rc;
}

/* Opens the parent directory and checks that the name may be created there. */
static int prepare(struct block_job *job)
{
	struct block_handle *handle = job->handle;
	const struct block_export *export = NULL;
	const char *name;
	int rc;

	rc = block_path_parent(job, &name, &export);
	if (rc < 0)
		return rc;
	handle->dir_fd = rc;
	if (!export->writable)
		return -EROFS;
	if (strlen(name) > NAME_MAX)
		return -ENAMETOOLONG;
	memcpy(handle->name, name, strlen(name) + 1);
	handle->writable = true;
	return check_target(handle->dir_fd, name, job->flags);
}

int block_create(struct block_server *server, struct block_job *job)
{
	struct block_handle *handle = job->handle;
	struct stat st = { 0 };
	int rc = job->tag && (job->flags & CAREFUL_BLOCK_STREAM) ? -EINVAL : prepare(job);

	if (rc)
		return rc;
	rc = job->tag ? open_partial(handle, job->tag, &st) : open_temporary(handle);
	if (rc < 0) {
		handle->temporary[0] = 0;
		return rc;
	}
	handle->fd = rc;
	if (st.st_size) {
		job->args[1] = 1;
		handle->bytes = (uint64_t)st.st_size;
		handle->file_bytes = job->bytes;
		/* With another size, it is part of another source: only to be read or discarded. */
		handle->writable = handle->bytes == job->bytes + job->tail_bytes;
		return block_attr_of(handle->fd, job);
	}
	rc = fill(server, job);
	if (!rc)
		rc = block_attr_of(handle->fd, job);
	if (rc)
		handle->partial = false; /* an empty partial file is not worth keeping */
	return rc;
}

/* Returns a new file's permissions: those of the file that it replaces, unless MODE is set. */
static mode_t committed_mode(const struct block_job *job)
{
	const struct block_handle *handle = job->handle;
	struct stat st;

	if (!(job->flags & CAREFUL_BLOCK_MODE) && job->flags & CAREFUL_BLOCK_REPLACE &&
	    !fstatat(handle->dir_fd, handle->name, &st, AT_SYMLINK_NOFOLLOW) && S_ISREG(st.st_mode))
		return st.st_mode & 0777;
	return job->mode & 0777;
}

/* Sets the final size, which cuts off the journal behind the contents of a partial file. */
static int set_size(struct block_handle *handle, const struct block_job *job)
{
	if (!handle->partial && !handle->stream)
		return 0;
	if (handle->stream)
		handle->file_bytes = job->bytes;
	if (handle->file_bytes > INT64_MAX)
		return -EFBIG;
	return ftruncate(handle->fd, (off_t)handle->file_bytes) ? -errno : 0;
}

/* Commits a file that was written in place and already has its name. */
static int commit_inplace(struct block_job *job)
{
	if (!(job->flags & CAREFUL_BLOCK_NOSYNC) && fsync(job->handle->fd) && errno != EINVAL)
		return -errno;
	return block_attr_of(job->handle->fd, job);
}

int block_commit(struct block_job *job)
{
	struct block_handle *handle = job->handle;
	bool sync = !(job->flags & CAREFUL_BLOCK_NOSYNC);
	int rc;

	if (!handle->name[0])
		return commit_inplace(job);
	/* Sync and check come before the journal is cut off: if they fail, a client can resume. */
	rc = sync && handle->partial && fsync(handle->fd) ? -errno : 0;
	if (!rc)
		rc = check_target(handle->dir_fd, handle->name, job->flags);
	if (rc)
		return rc;
	rc = set_size(handle, job);
	if (!rc && fchmod(handle->fd, committed_mode(job)))
		rc = -errno;
	if (!rc && job->mtime_ns)
		rc = attr_set_time(handle->fd, (int64_t)job->mtime_ns);
	if (!rc && sync && fsync(handle->fd))
		rc = -errno;
	if (!rc)
		rc = rename_temporary(handle->dir_fd, handle->temporary, handle->name,
				      job->flags & CAREFUL_BLOCK_REPLACE);
	if (rc) {
		handle->partial = false; /* nothing can resume without the journal */
		return rc;
	}
	handle->temporary[0] = 0;
	/* EINVAL: the file system does not sync directories. */
	if (sync && fsync(handle->dir_fd) && errno != EINVAL)
		return -errno;
	return block_attr_of(handle->fd, job);
}
