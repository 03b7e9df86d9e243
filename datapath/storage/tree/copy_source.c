/* SPDX-License-Identifier: BSD-2-Clause */
/* Prepares a file for a copy in blocks: waits until a change would show in its times. Finds the real
 * size. For files of /proc, stat() reports 0 bytes; for files of sysfs, a page. */
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <careful/files.h>

#include "storage/tree/stable_read.h"

enum { PIECE = 64 << 10 };

static int copy_all(int from, int to, char *piece)
{
	off_t at = 0;
	ssize_t n;

	while ((n = pread(from, piece, PIECE, at)) > 0) {
		if (at + n > CAREFUL_UNSIZED_BYTES_MAX)
			return -EFBIG;
		if (pwrite(to, piece, (size_t)n, at) != n)
			return -ENOSPC;
		at += n;
	}
	/* EAGAIN would make the caller try again, but there is nothing to wait for. */
	return !n ? 0 : errno == EAGAIN ? -EIO : -errno;
}

static int copy_unsized(int fd, const struct stat *st)
{
	const struct timespec times[2] = { { .tv_nsec = UTIME_OMIT }, st->st_mtim };
	int copy = memfd_create("careful-unsized", MFD_CLOEXEC);
	char *piece = malloc(PIECE);
	int rc = copy < 0 ? -errno : !piece ? -ENOMEM : copy_all(fd, copy, piece);

	free(piece);
	if (!rc && (fchmod(copy, st->st_mode & 07777) || futimens(copy, times)))
		rc = -errno;
	if (!rc)
		return copy;
	if (copy >= 0)
		close(copy);
	return rc;
}

/* Reports whether reads give another size than stat(): 1, 0 or -errno. Reads only files without
 * blocks. A read of a hole returns all bytes asked for; a generated file ends early. */
static int is_misstated(int fd, const struct stat *st)
{
	size_t most = st->st_size && st->st_size < PIECE ? (size_t)st->st_size : PIECE;
	struct stat now;
	char *piece;
	ssize_t n;

	if (st->st_blocks)
		return 0;
	piece = malloc(PIECE);
	if (!piece)
		return -ENOMEM;
	n = pread(fd, piece, most, 0);
	free(piece);
	if (n < 0)
		return errno == EAGAIN ? -EIO : -errno;
	if (!st->st_size)
		return n > 0;
	if (fstat(fd, &now))
		return -errno;
	return (size_t)n < most && now.st_size == st->st_size;
}

int careful_prepare_read(int fd, int *copy)
{
	struct stat st;
	int rc;

	*copy = -1;
	if (fstat(fd, &st))
		return -errno;
	if (!S_ISREG(st.st_mode))
		return 0;
	rc = stable_read_wait(fd, &st);
	if (!rc)
		rc = is_misstated(fd, &st);
	if (rc > 0)
		rc = copy_unsized(fd, &st);
	if (rc <= 0)
		return rc;
	*copy = rc;
	return 0;
}
