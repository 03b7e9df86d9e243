/* SPDX-License-Identifier: BSD-2-Clause */
/* Facts about descriptors (fd_facts.h). No call here waits for a file system. */
#include "storage/fd_facts.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

enum { PROC_BLOCK_BYTES = 1024 };

/* Reports whether the file is in memory. Only tmpfs, memfd and hugetlbfs have seals, and
 * F_GET_SEALS never waits; fstatfs() on a network file system may. ramfs has none and is slower. */
bool fd_is_memory(struct kept *all, struct storage_io *io, uint64_t *calls)
{
	struct kept *kept = io->kind == STORAGE_UNKNOWN ? fd_of(all, io->fd) : NULL;

	if (kept)
		io->kind = kept->kind;
	if (io->kind == STORAGE_UNKNOWN) {
		io->kind = fcntl(io->fd, F_GET_SEALS) >= 0 ? STORAGE_MEMORY : STORAGE_OTHER;
		++*calls;
	}
	if (kept)
		kept->kind = io->kind;
	return io->kind == STORAGE_MEMORY;
}

/* Returns the file system of an operation's file; 0: unknown. */
uint64_t fd_dev(struct kept *all, struct storage_io *io, uint64_t *calls)
{
	struct kept *kept = io->dev ? NULL : fd_of(all, io->fd);
	struct statx st;

	if (kept)
		io->dev = kept->dev;
	if (!io->dev) {
		++*calls;
		if (!statx(io->fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, 0, &st))
			io->dev = makedev(st.stx_dev_major, st.stx_dev_minor);
	}
	if (kept)
		kept->dev = io->dev;
	return io->dev;
}

/* Reports whether registered memory must not be written to the file. A /proc file has no
 * write_iter, and receives the iovec list itself instead of the bytes (Linux 6.18, loop_rw_iter()).
 * Block size identifies /proc without waiting; another file system with blocks this small merely
 * writes more slowly. */
bool fd_is_plain(int fd)
{
	int bytes = 0;

	return !ioctl(fd, FIGETBSZ, &bytes) && bytes == PROC_BLOCK_BYTES;
}
