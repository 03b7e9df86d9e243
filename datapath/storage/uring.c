/* SPDX-License-Identifier: BSD-2-Clause */
/* storage.h with liburing. Data in memory (page cache, tmpfs) is copied within submit(), since the
 * copy is all the work. Operations that wait for a device, and large writes (aside_bytes), go
 * through the ring; flush() submits them together.
 *
 * A kept descriptor is registered at the ring's second operation on it: for a single operation,
 * registering costs more than it saves. Memory is registered for writes only, with WRITEV_FIXED
 * (Linux 6.15) or WRITE_FIXED for one segment. Writes then took 0.84 to 0.90 of the CPU time; reads
 * 1.04 to 1.47. If the kernel denies io_uring, worker threads (fs_workers.h) do all the work. */
#include <assert.h>
#include <errno.h>
#include <liburing.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <unistd.h>

#include "storage/fd_facts.h"
#include "storage/fs_workers.h"
#include "storage/op.h"
#include "storage/storage.h"

enum {
	HINTS = 256,
	WORKERS = 64, /* the kernel's workers for regular files */
	REGISTER_AT = 2, /* the ring's operations on a descriptor */
	WRITEV_FIXED = 61, /* not in liburing 2.3 */
	CLOSE_MS = 500, /* at close, an operation that takes longer hangs */
};

struct uring {
	struct storage storage;
	struct io_uring ring;
	struct op *free;
	uint32_t in_ring; /* number of operations in the ring, all on file system ring_dev */
	uint64_t ring_dev;
	struct fs_workers *fs_workers; /* NULL until needed */
	pid_t owner;
	struct iovec memory; /* registered memory; length 0: none */
	bool vectored; /* the kernel has WRITEV_FIXED */
	bool files; /* files can be registered */
	/* 1 if the descriptor (modulo HINTS) last named a file in memory; a guess, because
	 * descriptor numbers are reused */
	uint8_t hints[HINTS];
	struct fd_facts fds[FDS_MAX];
	struct op ops[];
};

static bool is_aside(const struct uring *u, const struct op *op)
{
	return op->io->write && u->storage.aside_bytes && op->io->bytes >= u->storage.aside_bytes;
}

/* Moves what needs no wait. Returns like op_inline(). */
static int try_now(struct uring *u, struct op *op)
{
	uint8_t *hint = &u->hints[(unsigned int)op->io->fd % HINTS];

	if (is_aside(u, op))
		return 0;
	if (op->io->write || *hint) {
		*hint = fd_is_memory(u->fds, op->io, &u->storage.calls);
		if (*hint)
			return op_inline(op, 0, &u->storage.calls);
		/* A buffered write may wait for write-back. */
		if (op->io->write)
			return 0;
	}
	int rc = op_inline(op, RWF_NOWAIT, &u->storage.calls);

	if (rc != -EOPNOTSUPP)
		return rc;
	*hint = fd_is_memory(u->fds, op->io, &u->storage.calls);
	return *hint ? op_inline(op, 0, &u->storage.calls) : 0;
}

/* Reports whether the descriptor is registered; registers it at its second operation. */
static bool is_registered(struct uring *u, int fd)
{
	struct fd_facts *facts = find_fd(u->fds, fd);

	if (!facts || !u->files)
		return false;
	if (facts->ops < REGISTER_AT && ++facts->ops == REGISTER_AT) {
		facts->registered =
			io_uring_register_files_update(&u->ring, (unsigned int)fd, &fd, 1) == 1;
		u->storage.calls++;
	}
	return facts->registered;
}

static bool is_in_registered(const struct uring *u, const struct iovec *iov, unsigned int count)
{
	return u->memory.iov_len && (count == 1 || u->vectored) &&
	       op_is_within(&u->memory, iov, count);
}

static bool may_be_fixed(struct uring *u, int fd)
{
	const struct fd_facts *facts = find_fd(u->fds, fd);

	return fd < FDS_MAX && !(facts && facts->plain);
}

static void op_queue(struct uring *u, struct op *op)
{
	struct storage_io *io = op->io;
	struct io_uring_sqe *sqe = io_uring_get_sqe(&u->ring);
	struct iovec *iov = io->iov + op->segment;
	unsigned int count = io->iov_count - op->segment;
	uint64_t offset = io->offset + op->moved;
	bool fixed = io->write && may_be_fixed(u, io->fd) && is_in_registered(u, iov, count);

	assert(sqe); /* there are as many entries as ops, and an op has at most one */
	if (!io->write)
		io_uring_prep_readv(sqe, io->fd, iov, count, offset);
	else if (fixed && count == 1)
		io_uring_prep_write_fixed(sqe, io->fd, iov->iov_base, (unsigned int)iov->iov_len,
					  offset, 0);
	else
		io_uring_prep_writev(sqe, io->fd, iov, count, offset);
	if (fixed && count > 1)
		sqe->opcode = WRITEV_FIXED;
	if (is_registered(u, io->fd)) {
		sqe->flags |= IOSQE_FIXED_FILE;
		fixed = true;
	}
	if (is_aside(u, op))
		sqe->flags |= IOSQE_ASYNC;
	u->storage.registered += fixed;
	io_uring_sqe_set_data(sqe, op);
}

/* Submits all queued operations with one system call. On -EAGAIN or -EBUSY the entries stay queued
 * for the next flush(). */
static void uring_flush(struct storage *storage)
{
	struct uring *u = (struct uring *)storage;
	int rc;

	if (storage->denied || !io_uring_sq_ready(&u->ring))
		return;
	do {
		rc = io_uring_submit(&u->ring);
		u->storage.calls++;
	} while (rc == -EINTR);
	/* After any other error, operations would never end. */
	assert(rc >= 0 || rc == -EAGAIN || rc == -EBUSY);
}

static void await_workers(struct uring *u)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&u->ring);

	assert(sqe);
	io_uring_prep_poll_add(sqe, fs_workers_fd(u->fs_workers), POLLIN);
	io_uring_sqe_set_data(sqe, u->fs_workers);
}

/* Gives op to a worker if the ring serves another file system, or is denied; false: not given. */
static bool put_to_worker(struct uring *u, struct op *op)
{
	uint64_t dev = fd_dev(u->fds, op->io, &u->storage.calls);

	if (u->storage.denied)
		return !fs_workers_put(u->fs_workers, op);
	if (!u->in_ring)
		u->ring_dev = dev;
	if (!dev || dev == u->ring_dev)
		return false;
	if (!u->fs_workers) {
		if (fs_workers_open(&u->fs_workers))
			return false;
		await_workers(u);
	}
	return !fs_workers_put(u->fs_workers, op);
}

static int uring_submit(struct storage *storage, struct storage_io *io)
{
	struct uring *u = (struct uring *)storage;
	struct op local, *op, *next;
	bool in_worker;
	int rc;

	assert(io->iov_count > 0 &&
	       io->iov_count <= (io->write ? STORAGE_IO_SEGMENTS : STORAGE_READ_SEGMENTS));
	u->storage.ops_count++;
	io->result = io->offset > INT64_MAX || io->bytes > INT64_MAX - io->offset ? -EINVAL : 0;
	if (io->result || !io->bytes)
		return 1;
	op_begin(&local, io);
	rc = try_now(u, &local);
	if (rc)
		return rc;
	op = u->free;
	next = op ? op->next : NULL;
	if (op)
		*op = local;
	in_worker = op && put_to_worker(u, op);
	if (!op || (!in_worker && storage->denied)) {
		op_end(&local, 0); /* the caller repeats the whole operation */
		if (op)
			op->next = next;
		return -EAGAIN;
	}
	u->free = next;
	storage->pending++;
	if (!in_worker) {
		u->in_ring++;
		op_queue(u, op);
	}
	return 0;
}

static bool uring_waits(struct storage *storage, struct storage_io *io)
{
	struct uring *u = (struct uring *)storage;

	return !fd_is_memory(u->fds, io, &storage->calls);
}

static void op_free(struct uring *u, struct op *op)
{
	struct storage_io *io = op->io;

	op->next = u->free;
	u->free = op;
	u->storage.pending--;
	io->done(io);
}

static void op_done(struct uring *u, struct op *op, int64_t result)
{
	op_end(op, result);
	u->in_ring--;
	op_free(u, op);
}

static uint32_t take_workers(struct uring *u)
{
	uint32_t done = 0;
	struct op *op;

	while ((op = fs_workers_take(u->fs_workers))) {
		u->storage.calls += op->calls;
		op_free(u, op);
		done++;
	}
	if (!u->storage.denied)
		await_workers(u);
	return done;
}

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
	/* A short result: the next one shows whether this is the end of the file. */
	op_queue(u, op);
	return false;
}

static uint32_t uring_poll(struct storage *storage)
{
	struct uring *u = (struct uring *)storage;
	struct io_uring_cqe *cqe;
	uint32_t done = 0;

	if (!storage->pending)
		return 0;
	if (storage->denied)
		return take_workers(u);
	while (io_uring_peek_cqe(&u->ring, &cqe) == 0) {
		/* never NULL: cancellations come only in close() */
		void *data = io_uring_cqe_get_data(cqe);
		int res = cqe->res;

		io_uring_cqe_seen(&u->ring, cqe);
		if (u->fs_workers && data == u->fs_workers)
			done += take_workers(u);
		else
			done += op_completed(u, data, res);
	}
	return done;
}

/* The ring's descriptor is readable while completions wait; unlike an eventfd, it needs no reset. */
static int uring_wait_fd(struct storage *storage)
{
	const struct uring *u = (struct uring *)storage;

	return storage->denied ? fs_workers_fd(u->fs_workers) : u->ring.ring_fd;
}

/* Waits for the ring's operations, until none has ended for CLOSE_MS. */
static void await_ring(struct uring *u)
{
	struct __kernel_timespec patience = { .tv_nsec = CLOSE_MS * 1000000LL };
	struct io_uring_cqe *cqe;

	while (u->in_ring) {
		int rc = io_uring_wait_cqe_timeout(&u->ring, &cqe, &patience);
		void *data;

		if (rc == -EINTR)
			continue;
		if (rc < 0)
			return;
		data = io_uring_cqe_get_data(cqe);
		u->in_ring -= data && data != u->fs_workers;
		io_uring_cqe_seen(&u->ring, cqe);
	}
}

/* Ends every operation, because the kernel may write into the caller's memory until completion:
 * cancels what has not started, then waits for the rest. Does not call done(). After fork() a child
 * leaves the parent's operations alone. */
static uint32_t uring_close(struct storage *storage)
{
	struct uring *u = (struct uring *)storage;
	bool ours = u->owner == getpid();
	struct io_uring_sqe *sqe;
	uint32_t left = 0;

	if (ours && !storage->denied && (u->in_ring || u->fs_workers)) {
		sqe = io_uring_get_sqe(&u->ring);
		if (sqe) {
			io_uring_prep_cancel64(sqe, 0, IORING_ASYNC_CANCEL_ANY);
			io_uring_sqe_set_data(sqe, NULL);
		}
		io_uring_submit(&u->ring);
		await_ring(u);
		left = u->in_ring;
	}
	if (ours && u->fs_workers)
		left += fs_workers_close(u->fs_workers, left ? 0 : CLOSE_MS);
	if (left)
		return left;
	if (!storage->denied)
		io_uring_queue_exit(&u->ring);
	free(u);
	return 0;
}

static void uring_keep(struct storage *storage, int fd)
{
	struct uring *u = (struct uring *)storage;

	if (fd < 0 || fd >= FDS_MAX)
		return;
	if (!u->fds[fd].keep_count++)
		u->fds[fd] = (struct fd_facts){ .keep_count = 1, .plain = fd_is_plain(fd) };
}

static void uring_lose(struct storage *storage, int fd)
{
	struct uring *u = (struct uring *)storage;
	struct fd_facts *facts = find_fd(u->fds, fd);
	int none = -1;

	if (!facts || --facts->keep_count || !facts->registered)
		return;
	io_uring_register_files_update(&u->ring, (unsigned int)fd, &none, 1);
	u->storage.calls++;
}

/* Registering fails if the limit of locked memory is too low or the area is too large; writes then
 * use plain memory. */
static void uring_memory(struct storage *storage, void *base, uint64_t bytes)
{
	struct uring *u = (struct uring *)storage;
	struct iovec memory = { .iov_base = base, .iov_len = bytes };
	struct io_uring_probe *probe;

	if (storage->denied)
		return;
	probe = io_uring_get_probe_ring(&u->ring);
	u->vectored = probe && io_uring_opcode_supported(probe, WRITEV_FIXED);
	io_uring_free_probe(probe);
	if (!io_uring_register_buffers(&u->ring, &memory, 1))
		u->memory = memory;
}

static const struct storage_ops uring_ops = {
	.submit = uring_submit,
	.flush = uring_flush,
	.keep = uring_keep,
	.lose = uring_lose,
	.memory = uring_memory,
	.waits = uring_waits,
	.poll = uring_poll,
	.wait_fd = uring_wait_fd,
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
	u->owner = getpid();
	for (uint32_t i = 0; i < depth; i++) {
		u->ops[i].next = u->free;
		u->free = &u->ops[i];
	}
	/* One entry for the worker threads, one for the final cancellation. */
	rc = io_uring_queue_init(depth + 2, &u->ring, 0);
	if (rc == -EPERM || rc == -EACCES || rc == -ENOSYS) {
		u->storage.denied = -rc;
		rc = fs_workers_open(&u->fs_workers);
	}
	if (rc < 0) {
		free(u);
		return rc;
	}
	*storage = &u->storage;
	if (u->storage.denied)
		return 0;
	u->files = !io_uring_register_files_sparse(&u->ring, FDS_MAX);
	/* A hanging operation occupies a worker; failure to set the limit is harmless. */
	io_uring_register_iowq_max_workers(&u->ring, workers);
	return 0;
}
