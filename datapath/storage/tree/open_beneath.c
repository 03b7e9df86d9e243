/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "storage/tree/tree.h"

enum { RACES_MAX = 64 };

int beneath_open(int dir_fd, const char *path, int flags, uint64_t resolve)
{
	struct open_how how = {
		.flags = (uint64_t)(unsigned int)(flags | O_CLOEXEC | O_NOCTTY),
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS | resolve,
	};
	long fd;

	if (flags & O_PATH) /* openat2() refuses flags that O_PATH ignores */
		how.flags &= ~(uint64_t)O_NOCTTY;
	/* The kernel gives up with EAGAIN if a rename crosses the walk. */
	for (int i = 0; i < RACES_MAX; i++) {
		fd = syscall(SYS_openat2, dir_fd, path, &how, sizeof(how));
		if (fd >= 0)
			return (int)fd;
		if (errno != EAGAIN && errno != EINTR)
			return -errno;
	}
	return -EAGAIN;
}

bool beneath_denied(int status)
{
	return status == -EXDEV || status == -ELOOP || status == -EACCES || status == -EPERM ||
	       status == -EROFS;
}

int careful_open_beneath(int base, const char *path, int flags)
{
	return beneath_open(base, path, flags, RESOLVE_NO_SYMLINKS);
}
