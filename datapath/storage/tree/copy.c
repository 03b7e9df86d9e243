/* SPDX-License-Identifier: BSD-2-Clause */
/* Copies a range between files: shares blocks if the file system can, and keeps holes. */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include <careful/files.h>

enum { PIECE = 1 << 20 };

/* Reports whether the kernel does not support copy_file_range() for these files. */
static int is_refused(int error)
{
	return error == EXDEV || error == EINVAL || error == EOPNOTSUPP || error == ENOSYS ||
	       error == EBADF || error == EPERM;
}

/* Copies through memory. Like copy_file_range(), may copy less than `bytes`. */
static ssize_t copy_piece(int from, int to, uint64_t offset, uint64_t bytes)
{
	size_t size = bytes < PIECE ? (size_t)bytes : PIECE;
	char *piece = malloc(size);
	ssize_t n, done = 0;

	if (!piece) {
		errno = ENOMEM;
		return -1;
	}
	n = pread(from, piece, size, (off_t)offset);
	while (n > 0 && done < n) {
		ssize_t k = pwrite(to, piece + done, (size_t)(n - done), (off_t)offset + done);

		if (k < 0 && errno != EINTR)
			break;
		done += k > 0 ? k : 0;
	}
	free(piece);
	return n <= 0 ? n : done < n ? -1 : n;
}

static int copy_range(int from, int to, uint64_t offset, uint64_t end)
{
	int by_memory = 0;

	while (offset < end) {
		off_t in = (off_t)offset, out = (off_t)offset;
		ssize_t n = by_memory ? copy_piece(from, to, offset, end - offset) :
					copy_file_range(from, &in, to, &out, end - offset, 0);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && !by_memory && is_refused(errno)) {
			by_memory = 1;
			continue;
		}
		if (n < 0)
			return -errno;
		if (n == 0) /* the source became shorter */
			return 0;
		offset += (uint64_t)n;
	}
	return 0;
}

int careful_copy(int from, int to, uint64_t offset, uint64_t bytes)
{
	uint64_t at = offset, last = offset + bytes;

	while (at < last) {
		off_t data = lseek(from, (off_t)at, SEEK_DATA);
		off_t hole = data < 0 ? -1 : lseek(from, data, SEEK_HOLE);
		uint64_t end;
		int rc;

		if (data < 0 && errno == ENXIO)
			return 0;
		if (data < 0) /* the file system does not report holes */
			data = (off_t)at;
		if ((uint64_t)data >= last)
			return 0;
		end = hole < 0 || (uint64_t)hole > last ? last : (uint64_t)hole;
		rc = copy_range(from, to, (uint64_t)data, end);
		if (rc)
			return rc;
		at = end;
	}
	return 0;
}
