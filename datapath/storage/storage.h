/* SPDX-License-Identifier: BSD-2-Clause */
/* Files as a pipeline stage: vectored reads and writes between a file and UMEM or other memory,
 * several at a time. The simulation implements this interface with memory. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

enum {
	STORAGE_IO_SEGMENTS = 64, /* of a write */
	STORAGE_READ_SEGMENTS = 512, /* of a read; the kernel allows 1024 */
	URING_DEPTH_MAX = 32766, /* the kernel's limit less two other uses */
};

enum storage_kind {
	STORAGE_UNKNOWN = 0,
	STORAGE_MEMORY, /* tmpfs, memfd, hugetlbfs: nothing to wait for */
	STORAGE_OTHER,
};

/* An operation. The caller owns it, and does not change it until it is done.
 *
 * @kind, @dev: kind and file system of the file, once storage knows them (dev 0: unknown); the
 *   caller may copy both to later operations on the same file */
struct storage_io {
	int fd;
	bool write;
	uint8_t kind; /* enum storage_kind */
	uint16_t iov_count;
	uint64_t offset;
	uint64_t bytes; /* sum of the segments */
	uint64_t dev;
	int64_t result; /* bytes moved (short only at the end of the file), or -errno */
	/* Called by storage's poll(), unless submit() returned 1. */
	void (*done)(struct storage_io *io);
	struct storage_io *next; /* for storage */
	struct iovec *iov; /* the caller's; changed until done */
};

struct storage {
	const struct storage_ops *ops;
	uint32_t pending; /* operations under way, whose done() will be called */
	/* errno if the kernel denies io_uring, and worker threads do the work; else 0 */
	int denied;
	/* other threads make writes of at least this size, even to memory; 0: none */
	uint64_t aside_bytes;
	uint64_t ops_count; /* operations started */
	uint64_t calls; /* system calls made */
	uint64_t registered; /* operations with a registered file or registered memory */
};

struct storage_ops {
	/* 1: done, result is set, done() is not called. 0: done() will be called. -EAGAIN: too many
	 * operations are under way. */
	int (*submit)(struct storage *storage, struct storage_io *io);
	/* Hands collected operations to the kernel; called after a round and before a wait. */
	void (*flush)(struct storage *storage);
	/* Between keep() and lose() the descriptor names the same file. Call lose() before close(),
	 * with no operation under way. */
	void (*keep)(struct storage *storage, int fd);
	void (*lose)(struct storage *storage, int fd);
	/* Names the memory that most writes come from; called once. */
	void (*memory)(struct storage *storage, void *base, uint64_t bytes);
	/* Reports whether an operation (fd, write and kind set) may wait for a device. */
	bool (*waits)(struct storage *storage, struct storage_io *io);
	/* Completes ready operations; returns their number. */
	uint32_t (*poll)(struct storage *storage);
	/* Returns a descriptor that is readable when poll() has work; -1: none. */
	int (*wait_fd)(struct storage *storage);
	/* Returns the number of operations that hang in a file system. Their memory and this
	 * storage then stay until the process ends. */
	uint32_t (*close)(struct storage *storage);
};

/* Optional operations: NULL if the storage has nothing to do. */
static inline void storage_flush(struct storage *storage)
{
	if (storage->ops->flush)
		storage->ops->flush(storage);
}

static inline void storage_keep(struct storage *storage, int fd)
{
	if (fd >= 0 && storage->ops->keep)
		storage->ops->keep(storage, fd);
}

static inline void storage_lose(struct storage *storage, int fd)
{
	if (fd >= 0 && storage->ops->lose)
		storage->ops->lose(storage, fd);
}

static inline void storage_memory(struct storage *storage, void *base, uint64_t bytes)
{
	if (storage->ops->memory)
		storage->ops->memory(storage, base, bytes);
}

/* Opens io_uring, or threads if io_uring is denied, for up to `depth` operations. Cached reads, and
 * writes to files in memory below aside_bytes, finish within submit(). */
int uring_open(uint32_t depth, struct storage **storage);
