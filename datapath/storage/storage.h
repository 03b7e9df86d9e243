/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Files as a pipeline stage: vectored reads and writes between a file and UMEM
 * (or any memory), several under way at a time, nothing allocated per operation.
 * The engine sees only this; a simulation puts memory behind it.
 */
#ifndef CAREFUL_STORAGE_H
#define CAREFUL_STORAGE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

enum {
	STORAGE_IO_SEGMENTS = 64, /* of a write */
	STORAGE_READ_SEGMENTS = 512, /* of a read; the kernel takes 1024 */
	URING_DEPTH_MAX = 32766, /* the kernel's limit, and two for other things */
};

/* What a file stands on. */
enum storage_kind {
	STORAGE_UNKNOWN = 0,
	STORAGE_MEMORY, /* tmpfs, memfd, hugetlbfs: nothing to wait for */
	STORAGE_OTHER,
};

/*
 * One operation; owned by the caller, and left alone until it is done.
 *
 * @kind:    what storage knows of the file; stays for the next operation on the same one
 * @dev:     its file system, likewise; 0: not known yet
 * @result:  bytes moved (fewer than asked only at a file's end), or -errno
 * @done:    called from storage's poll(), unless submit() said that it is done
 */
struct storage_io {
	int fd;
	bool write;
	uint8_t kind; /* enum storage_kind */
	uint16_t iov_count;
	uint64_t offset;
	uint64_t bytes; /* sum of the segments */
	uint64_t dev;
	int64_t result;
	void (*done)(struct storage_io *io);
	struct storage_io *next; /* storage's own */
	struct iovec *iov; /* the caller's; as it was, when it is done */
};

/*
 * @ops_count:   operations that were begun
 * @calls:       system calls made for them
 * @registered:  handed to the kernel with a registered file, or registered memory
 * @denied:      the errno of a kernel that denies io_uring; lanes do its work then; else 0
 * @aside_bytes: writes of as much, or more, are another thread's, also to memory; 0: none
 */
struct storage {
	const struct storage_ops *ops;
	int denied;
	uint64_t aside_bytes;
	uint64_t ops_count, calls, registered;
};

struct storage_ops {
	/* 1: done at once, result is set, done() is not called. 0: done() will be
	 * called. -EAGAIN: too many under way. */
	int (*submit)(struct storage *storage, struct storage_io *io);
	/* Hands over what submit() collected; at the end of a round, and before one waits. */
	void (*flush)(struct storage *storage);
	/* The descriptor stays what it is until lose(), which comes before it is closed, and
	 * while nothing is under way on it. */
	void (*keep)(struct storage *storage, int fd);
	void (*lose)(struct storage *storage, int fd);
	/* What is written comes from there as a rule; said once. */
	void (*memory)(struct storage *storage, void *base, uint64_t bytes);
	/* Whether that operation, of which fd, write and kind are set, may wait for a device. */
	bool (*waits)(struct storage *storage, struct storage_io *io);
	/* Completes what is ready; returns how many. */
	uint32_t (*poll)(struct storage *storage);
	/* Readable when poll() has something to do; -1: never. */
	int (*wait_fd)(struct storage *storage);
	uint32_t (*pending)(struct storage *storage);
	/* Returns how many operations hang in a file system: what they use, the callers' memory
	 * and this, stays until the process ends. */
	uint32_t (*close)(struct storage *storage);
};

/* What a storage need not have: it is NULL where there is nothing to do. */
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

/* io_uring, or threads if io_uring is denied, with `depth` operations under way at most. A cached read and a write
 * to memory-backed files finish within submit(), unless aside_bytes says otherwise. */
int uring_open(uint32_t depth, struct storage **storage);

#endif /* CAREFUL_STORAGE_H */
