/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/io.h"

#include <errno.h>
#include <unistd.h>

int io_write(int fd, const void *data, size_t bytes)
{
	for (size_t done = 0; done < bytes;) {
		ssize_t n = write(fd, (const char *)data + done, bytes - done);

		if (n < 0 && errno != EINTR)
			return -errno;
		done += n > 0 ? (size_t)n : 0;
	}
	return 0;
}

ssize_t io_read(int fd, void *data, size_t bytes, off_t offset)
{
	size_t done = 0;
	ssize_t n = 1;

	while (done < bytes && n) {
		n = pread(fd, (char *)data + done, bytes - done, offset + (off_t)done);
		if (n < 0 && errno != EINTR)
			return -errno;
		done += n > 0 ? (size_t)n : 0;
	}
	return (ssize_t)done;
}
