/* SPDX-License-Identifier: BSD-2-Clause */
#include "storage/op.h"

#include <assert.h>
#include <errno.h>
#include <sys/uio.h>

void op_begin(struct op *op, struct storage_io *io)
{
	op->job.waits = false;
	op->calls = 0;
	op->io = io;
	op->moved = 0;
	op->segment = 0;
	op->whole = io->iov[0];
}

void op_advance(struct op *op, uint64_t bytes)
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

void op_end(struct op *op, int64_t result)
{
	if (op->segment < op->io->iov_count)
		op->io->iov[op->segment] = op->whole;
	op->io->result = result;
}

int op_inline(struct op *op, int flags, uint64_t *calls)
{
	struct storage_io *io = op->io;

	while (op->moved < io->bytes) {
		const struct iovec *iov = io->iov + op->segment;
		int count = io->iov_count - (int)op->segment;
		off_t offset = (off_t)(io->offset + op->moved);
		ssize_t n = io->write ? pwritev2(io->fd, iov, count, offset, flags) :
					preadv2(io->fd, iov, count, offset, flags);

		++*calls;
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
		if (n == 0) /* end of file */
			break;
		op_advance(op, (uint64_t)n);
	}
	op_end(op, (int64_t)op->moved);
	return 1;
}

bool op_is_within(const struct iovec *memory, const struct iovec *iov, unsigned int count)
{
	const char *begin = memory->iov_base, *end = begin + memory->iov_len;

	for (unsigned int i = 0; i < count; i++) {
		const char *at = iov[i].iov_base;

		if (at < begin || at >= end || iov[i].iov_len > (size_t)(end - at))
			return false;
	}
	return true;
}
