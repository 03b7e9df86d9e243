/* SPDX-License-Identifier: BSD-2-Clause */
/* No call here waits for a file system. */
#include "storage/fd_facts.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

enum { PROC_BLOCK_BYTES = 1024 };

/* Reports whether the file is in memory. Only tmpfs, memfd and hugetlbfs have seals. F_GET_SEALS
 * never waits; fstatfs() on a network file system may. */
bool fd_is_memory(struct fd_facts *fds, struct storage_io *io, uint64_t *calls)
{
	struct fd_facts *facts = io->kind == STORAGE_UNKNOWN ? find_fd(fds, io->fd) : NULL;

	if (facts)
		io->kind = facts->kind;
	if (io->kind == STORAGE_UNKNOWN) {
		io->kind = fcntl(io->fd, F_GET_SEALS) >= 0 ? STORAGE_MEMORY : STORAGE_OTHER;
		++*calls;
	}
	if (facts)
		facts->kind = io->kind;
	return io->kind == STORAGE_MEMORY;
}

/* Returns the file system of an operation's file; 0: unknown. */
uint64_t fd_dev(struct fd_facts *fds, struct storage_io *io, uint64_t *calls)
{
	struct fd_facts *facts = io->dev ? NULL : find_fd(fds, io->fd);
	struct statx st;

	if (facts)
		io->dev = facts->dev;
	if (!io->dev) {
		++*calls;
		if (!statx(io->fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, 0, &st))
			io->dev = makedev(st.stx_dev_major, st.stx_dev_minor);
	}
	if (facts)
		facts->dev = io->dev;
	return io->dev;
}

/* Reports whether registered memory must not be written to the file. A /proc file has no
 * write_iter, and gets the iovec list instead of the bytes (Linux 6.18, loop_rw_iter()). The block
 * size identifies /proc without waiting; other file systems with blocks this small merely write
 * more slowly. */
bool fd_is_plain(int fd)
{
	int bytes = 0;

	return !ioctl(fd, FIGETBSZ, &bytes) && bytes == PROC_BLOCK_BYTES;
}
