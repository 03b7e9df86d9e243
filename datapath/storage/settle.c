/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A file that is about to be copied, block by block: not before a change would show in its
 * times, and with a size, which those of /proc have only once they are read. Calls steady.c.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <careful/files.h>

#include "storage/steady.h"

enum { PIECE = 64 << 10 };

/* Copies what is there to read. 0 or -errno. */
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
	/* That there is nothing now is no reason to ask again. */
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

int careful_settle(int fd, int *copy)
{
	struct stat st;
	ssize_t n;
	char byte;
	int rc;

	*copy = -1;
	if (fstat(fd, &st))
		return -errno;
	rc = S_ISREG(st.st_mode) ? steady_wait(fd, &st) : 0;
	if (rc || !S_ISREG(st.st_mode) || st.st_size)
		return rc;
	n = pread(fd, &byte, 1, 0);
	if (n < 0)
		return errno == EAGAIN ? -EIO : -errno;
	rc = n ? copy_unsized(fd, &st) : 0;
	if (rc < 0)
		return rc;
	if (n)
		*copy = rc;
	return 0;
}
