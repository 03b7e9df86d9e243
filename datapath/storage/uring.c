/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * storage.h with liburing. What memory holds (the page cache, tmpfs) is copied
 * within submit(), since the copy is the work; what has to wait for a device
 * goes through the ring. No other file of the engine includes liburing. Calls nobody.
 *
 * Files and memory are not registered. tools/bench/uring measures that, one vectored
 * operation a submission, as here (of 831 submissions 820 held one): CPU time beside
 * the plain way, 40 rounds in turns, ext4, Linux 6.18. A registered file: 0.93 to
 * 1.02 of a read, 0.98 to 1.01 of a write. Registered buffers, by READV_FIXED and
 * WRITEV_FIXED (Linux 6.15): 1.04 to 1.47 of a read, for frames are many short pieces;
 * 0.84 of a write of 16 frames, 0.90 of one. That write alone gains, on kernels that
 * Debian 12 and 13 do not have, and only where the whole of UMEM is pinned once more;
 * READ_FIXED and WRITE_FIXED, which all kernels have, move one frame an operation.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <unistd.h>

#include "storage/storage.h"

enum {
	HINTS = 256,
	WORKERS = 64, /* of the kernel's, for regular files */
};

/*
 * An operation in the ring.
 *
 * @moved:    bytes moved so far
 * @segment:  the segment that the next byte belongs to
 * @whole:    what that segment was before it was shortened to what is left of it
 */
struct op {
	struct storage_io *io;
	struct op *next;
	uint64_t moved;
	uint32_t segment;
	struct iovec whole;
};

/*
 * @hints: 1 where the descriptor (modulo HINTS) was last seen to be memory. Only
 *         chooses what is tried first: numbers are used again for other files.
 */
struct uring {
	struct storage storage;
	struct io_uring ring;
	struct op *free;
	uint32_t depth;
	uint32_t pending;
	pid_t owner;
	uint8_t hints[HINTS];
	struct op ops[];
};

static void op_begin(struct op *op, struct storage_io *io)
{
	op->io = io;
	op->moved = 0;
	op->segment = 0;
	op->whole = io->iov[0];
}

/* Makes iov[segment] describe what is left of it after `bytes` more were moved. */
static void op_advance(struct op *op, uint64_t bytes)
{
	struct storage_io *io = op->io;

	assert(bytes <= io->bytes - op->moved);
	op->moved += bytes;
	while (bytes && bytes >= io->iov[op->segment].iov_len) {
		bytes -= io->iov[op->segment].iov_len;
		io->iov[op->segment] = op->whole;
		op->segment++;
		if (op->segment < io->iov_count)
			op->whole = io->iov[op->segment];
	}
	if (bytes) {
		struct iovec *iov = &io->iov[op->segment];

		iov->iov_base = (char *)iov->iov_base + bytes;
		iov->iov_len -= bytes;
	}
}

static void op_end(struct op *op, int64_t result)
{
	if (op->segment < op->io->iov_count)
		op->io->iov[op->segment] = op->whole;
	op->io->result = result;
}

/*
 * Whether the file is memory itself: seals exist on tmpfs, memfd and hugetlbfs
 * alone, and asking for them never waits, as fstatfs() of a network file system
 * may. ramfs has none and takes the slower path.
 */
static bool is_memory(struct storage_io *io)
{
	if (io->kind == STORAGE_UNKNOWN)
		io->kind = fcntl(io->fd, F_GET_SEALS) >= 0 ? STORAGE_MEMORY : STORAGE_OTHER;
	return io->kind == STORAGE_MEMORY;
}

/*
 * Moves all that is left by blocking calls (flags 0) or what needs no waiting
 * (RWF_NOWAIT). 1: the operation has ended; 0: it would have to wait; -EOPNOTSUPP:
 * the file does not do RWF_NOWAIT.
 */
static int op_inline(struct op *op, int flags)
{
	struct storage_io *io = op->io;

	while (op->moved < io->bytes) {
		const struct iovec *iov = io->iov + op->segment;
		int count = io->iov_count - (int)op->segment;
		off_t offset = (off_t)(io->offset + op->moved);
		ssize_t n = io->write ? pwritev2(io->fd, iov, count, offset, flags) :
					preadv2(io->fd, iov, count, offset, flags);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN && flags)
			return 0;
		if (n < 0 && errno == EOPNOTSUPP && flags)
			return -EOPNOTSUPP;
		if (n <= 0 && !(n == 0 && !io->write)) {
			op_end(op, n < 0 ? -errno : -EIO);
			return 1;
		}
		if (n == 0) /* the file's end */
			break;
		op_advance(op, (uint64_t)n);
	}
	op_end(op, (int64_t)op->moved);
	return 1;
}

/* As op_inline(), by whichever way this file allows. */
static int op_try(struct uring *u, struct op *op)
{
	uint8_t *hint = &u->hints[(unsigned int)op->io->fd % HINTS];

	if (op->io->write || *hint) {
		*hint = is_memory(op->io);
		if (*hint)
			return op_inline(op, 0);
		/* A buffered write may wait for the device's write-back. */
		if (op->io->write)
			return 0;
	}
	int rc = op_inline(op, RWF_NOWAIT);

	if (rc != -EOPNOTSUPP)
		return rc;
	*hint = is_memory(op->io);
	return *hint ? op_inline(op, 0) : 0;
}

/* Queues what is left of op and hands it to the kernel. */
static void op_queue(struct uring *u, struct op *op)
{
	struct storage_io *io = op->io;
	struct io_uring_sqe *sqe = io_uring_get_sqe(&u->ring);
	unsigned int count = io->iov_count - op->segment;
	int rc;

	/* Each op has at most one entry, and there are as many entries as ops. */
	assert(sqe);
	if (io->write)
		io_uring_prep_writev(sqe, io->fd, io->iov + op->segment, count,
				     io->offset + op->moved);
	else
		io_uring_prep_readv(sqe, io->fd, io->iov + op->segment, count,
				    io->offset + op->moved);
	io_uring_sqe_set_data(sqe, op);
	do {
		rc = io_uring_submit(&u->ring);
	} while (rc == -EINTR);
	/* -EAGAIN, -EBUSY: the entry stays queued; poll() submits it again. Anything
	 * else would mean that the ring is broken and no operation ever ends. */
	assert(rc >= 0 || rc == -EAGAIN || rc == -EBUSY);
}

static int uring_submit(struct storage *storage, struct storage_io *io)
{
	struct uring *u = (struct uring *)storage;
	struct op local, *op;
	int rc;

	assert(io->iov_count > 0 && io->iov_count <= STORAGE_IO_SEGMENTS);
	io->result = io->offset > INT64_MAX || io->bytes > INT64_MAX - io->offset ? -EINVAL : 0;
	if (io->result || !io->bytes)
		return 1;
	op_begin(&local, io);
	rc = op_try(u, &local);
	if (rc)
		return rc;
	op = u->free;
	if (!op) {
		/* Not begun as far as the caller can tell: it will ask for all again. */
		op_end(&local, 0);
		return -EAGAIN;
	}
	u->free = op->next;
	*op = local;
	u->pending++;
	op_queue(u, op);
	return 0;
}

static bool uring_waits(struct storage *storage, struct storage_io *io)
{
	(void)storage;
	return !is_memory(io);
}

static void op_done(struct uring *u, struct op *op, int64_t result)
{
	struct storage_io *io = op->io;

	op_end(op, result);
	op->next = u->free;
	u->free = op;
	u->pending--;
	io->done(io);
}

/* One completion; true if the operation has ended. */
static bool op_completed(struct uring *u, struct op *op, int res)
{
	if (res == -EINTR || res == -EAGAIN) {
		op_queue(u, op);
		return false;
	}
	if (res < 0 || (res == 0 && op->io->write)) {
		op_done(u, op, res < 0 ? res : -EIO);
		return true;
	}
	if (res > 0)
		op_advance(op, (uint64_t)res);
	if (res == 0 || op->moved == op->io->bytes) {
		op_done(u, op, (int64_t)op->moved);
		return true;
	}
	/* Short: the file's end, or the kernel's choice. Asking again tells. */
	op_queue(u, op);
	return false;
}

static uint32_t uring_poll(struct storage *storage)
{
	struct uring *u = (struct uring *)storage;
	struct io_uring_cqe *cqe;
	uint32_t done = 0;

	if (!u->pending)
		return 0;
	if (io_uring_sq_ready(&u->ring))
		io_uring_submit(&u->ring);
	while (io_uring_peek_cqe(&u->ring, &cqe) == 0) {
		struct op *op = io_uring_cqe_get_data(cqe);
		int res = cqe->res;

		io_uring_cqe_seen(&u->ring, cqe);
		if (op)
			done += op_completed(u, op, res);
	}
	return done;
}

/* The ring's own descriptor: readable exactly while completions wait, so that there
 * is nothing to reset, as there would be with an eventfd. */
static int uring_wait_fd(struct storage *storage)
{
	return ((struct uring *)storage)->ring.ring_fd;
}

static uint32_t uring_pending(struct storage *storage)
{
	return ((struct uring *)storage)->pending;
}

/*
 * Leaves no operation behind: the kernel may write into the caller's memory until
 * each has completed. Cancels what has not begun, then waits for the rest; done() is
 * not called, the callers are being closed too. In a child of fork() they are the
 * parent's operations, and go on.
 */
static void uring_close(struct storage *storage)
{
	struct uring *u = (struct uring *)storage;
	struct io_uring_sqe *sqe;
	struct io_uring_cqe *cqe;

	if (u->owner != getpid())
		u->pending = 0;
	if (u->pending) {
		sqe = io_uring_get_sqe(&u->ring);
		if (sqe) {
			io_uring_prep_cancel64(sqe, 0, IORING_ASYNC_CANCEL_ANY);
			io_uring_sqe_set_data(sqe, NULL);
		}
		io_uring_submit(&u->ring);
	}
	while (u->pending) {
		int rc = io_uring_wait_cqe(&u->ring, &cqe);

		if (rc == -EINTR)
			continue;
		if (rc < 0)
			break;
		if (io_uring_cqe_get_data(cqe))
			u->pending--;
		io_uring_cqe_seen(&u->ring, cqe);
	}
	io_uring_queue_exit(&u->ring);
	free(u);
}

static const struct storage_ops uring_ops = {
	.submit = uring_submit,
	.waits = uring_waits,
	.poll = uring_poll,
	.wait_fd = uring_wait_fd,
	.pending = uring_pending,
	.close = uring_close,
};

int uring_open(uint32_t depth, struct storage **storage)
{
	unsigned int workers[2] = { WORKERS, 0 };
	struct uring *u;
	int rc;

	if (depth == 0 || depth > URING_DEPTH_MAX)
		return -EINVAL;
	u = calloc(1, sizeof(*u) + depth * sizeof(u->ops[0]));
	if (!u)
		return -ENOMEM;
	u->storage.ops = &uring_ops;
	u->depth = depth;
	u->owner = getpid();
	for (uint32_t i = 0; i < depth; i++) {
		u->ops[i].next = u->free;
		u->free = &u->ops[i];
	}
	/* One entry more, for the cancellation at the end. */
	rc = io_uring_queue_init(depth + 1, &u->ring, 0);
	if (rc < 0) {
		free(u);
		return rc;
	}
	/* A file that hangs holds one of them; what cannot be set stays as it is. */
	io_uring_register_iowq_max_workers(&u->ring, workers);
	*storage = &u->storage;
	return 0;
}
