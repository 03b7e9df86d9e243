/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * New files, on the block server's workers: made beside their final name, and given it when they
 * are complete. Temporary ones have random names and go with their handle; partial ones have a name
 * that the client can find again, and stay.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "files/private.h"
#include "storage/tree.h"

enum { SEED_BYTES = 16 << 20 }; /* between two looks at whether anybody still wants them */

/* Reports whether a new file may come to stand at name, as far as can be seen now. */
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
		flock(fd, LOCK_EX | LOCK_NB); /* so that nobody clears it away */
		if (!fstat(fd, &st) && st.st_nlink)
			return fd;
		close(fd); /* somebody had done so already */
	}
	handle->temporary[0] = 0;
	return -errno;
}

/* Reports whether the open file is what stands at the temporary name, and a file of our own: in
 * a directory that others write to, it could be a link of theirs to anything. */
static bool is_at_its_name(const struct block_handle *handle, const struct stat *st)
{
	struct stat named;

	return S_ISREG(st->st_mode) && st->st_nlink == 1 && st->st_uid == geteuid() &&
	       !fstatat(handle->dir_fd, handle->temporary, &named, AT_SYMLINK_NOFOLLOW) &&
	       named.st_ino == st->st_ino && named.st_dev == st->st_dev;
}

/*
 * Opens the partial file of a tag, or makes it; *st is what it is. One handle at a time
 * has it: the lock ends with the handle, also when this process is killed.
 */
static int open_partial(struct block_handle *handle, uint64_t tag, struct stat *st)
{
	int fd, rc;

	snprintf(handle->temporary, sizeof(handle->temporary), ".careful-%016llx.part",
		 (unsigned long long)tag);
	/* Another may have given it its name between our open and our lock. */
	for (int i = 0; i < 16; i++) {
		fd = openat(handle->dir_fd, handle->temporary,
			    O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
		if (fd < 0)
			return -errno;
		rc = flock(fd, LOCK_EX | LOCK_NB) ? -errno : fstat(fd, st) ? -errno : 0;
		if (!rc && is_at_its_name(handle, st)) {
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

/* Reports whether the file system has so much for others than root: what is kept for root is no room. */
bool block_has_room(int fd, uint64_t bytes)
{
	struct statvfs fs;

	return fstatvfs(fd, &fs) || !fs.f_blocks || bytes / fs.f_frsize <= fs.f_bavail;
}

/*
 * Gives the file its size, with blocks behind it where that is cheap, so that a full
 * disk is an error now. In memory (F_GET_SEALS: tmpfs) it would not be: each page
 * would be cleared, only to be overwritten; there it is enough that it could fit. What a disk
 * keeps for root is not for peers.
 */
static int preallocate(int fd, uint64_t bytes)
{
	if (bytes > INT64_MAX)
		return -EFBIG;
	if (!block_has_room(fd, bytes))
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
		rc = block_work_vain(server, job) ? -ECANCELED :
						    careful_copy(from, job->handle->fd, at, n);
	}
	return rc;
}

/* Begins with what stands at the final name, as far as it fits. A file, known before it is opened:
 * opening anything else may do something. */
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
	rc = fstat(fd, &st) ? -errno : 0;
	if (!rc && S_ISREG(st.st_mode)) {
		if ((uint64_t)st.st_size < bytes)
			bytes = (uint64_t)st.st_size;
		rc = copy(server, job, fd, bytes);
	}
	close(fd);
	return rc;
}

/* The new file's size, room and first contents. */
static int furnish(struct block_server *server, const struct block_job *job)
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
	return rc;
}

/* What the name is to become, found and allowed. */
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

/* OPEN with CREATE. */
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
		/* One of another size is of another source: only to be read, and to go. */
		handle->writable = handle->bytes == job->bytes + job->tail_bytes;
		return block_attr_of(handle->fd, job);
	}
	rc = furnish(server, job);
	if (!rc)
		rc = block_attr_of(handle->fd, job);
	if (rc)
		handle->partial = false; /* there is nothing in it to keep */
	return rc;
}

/* The permissions of the file that is committed: those of the file it replaces, if there is one
 * and the client does not insist. */
static mode_t committed_mode(const struct block_job *job)
{
	const struct block_handle *handle = job->handle;
	struct stat st;

	if (!(job->flags & CAREFUL_BLOCK_MODE) && job->flags & CAREFUL_BLOCK_REPLACE &&
	    !fstatat(handle->dir_fd, handle->name, &st, AT_SYMLINK_NOFOLLOW) && S_ISREG(st.st_mode))
		return st.st_mode & 0777;
	return job->mode & 0777;
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

/* Cuts off what is not the file's. */
static int cut(struct block_handle *handle, const struct block_job *job)
{
	if (!handle->partial && !handle->stream)
		return 0;
	if (handle->stream)
		handle->file_bytes = job->bytes;
	if (handle->file_bytes > INT64_MAX)
		return -EFBIG;
	return ftruncate(handle->fd, (off_t)handle->file_bytes) ? -errno : 0;
}

/* COMMIT of a file that was written in its place: it has its name. */
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
	/* What takes long, and what may be refused, comes while the journal is there: who fails
	 * in it goes on. */
	rc = sync && handle->partial && fsync(handle->fd) ? -errno : 0;
	if (!rc)
		rc = check_target(handle->dir_fd, handle->name, job->flags);
	if (rc)
		return rc;
	rc = cut(handle, job);
	if (!rc && fchmod(handle->fd, committed_mode(job)))
		rc = -errno;
	if (!rc && job->mtime_ns)
		rc = attr_set_time(handle->fd, (int64_t)job->mtime_ns);
	if (!rc && sync && fsync(handle->fd))
		rc = -errno;
	if (!rc)
		rc = give_name(handle, job->flags & CAREFUL_BLOCK_REPLACE);
	if (rc) {
		handle->partial = false; /* without its journal nothing goes on with it */
		return rc;
	}
	/* EINVAL: a file system whose directories need no sync. */
	if (sync && fsync(handle->dir_fd) && errno != EINVAL)
		return -errno;
	return block_attr_of(handle->fd, job);
}
