/* SPDX-License-Identifier: BSD-2-Clause */
/* An operation that moves its bytes in steps: its progress, and steps by blocking system calls.
 * uring.c has the steps by io_uring. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/pool.h"
#include "storage/storage.h"

struct op {
	struct pool_job job; /* for a worker thread */
	uint64_t calls; /* system calls of the worker thread */
	struct storage_io *io;
	struct op *next;
	uint64_t moved; /* bytes moved so far */
	uint32_t segment; /* index of the segment with the next byte */
	struct iovec whole; /* that segment before op_advance() shortened it */
};

void op_begin(struct op *op, struct storage_io *io);
/* Advances by `bytes`: iov[segment] then describes the rest of its segment. */
void op_advance(struct op *op, uint64_t bytes);
/* Ends the operation and restores the caller's segments. */
void op_end(struct op *op, int64_t result);
/* Moves the rest with blocking calls (flags 0), or as much as needs no wait (RWF_NOWAIT). Returns 1
 * if the operation has ended, 0 if the next step would wait, -EOPNOTSUPP if the file has no
 * RWF_NOWAIT. *calls counts system calls. */
int op_inline(struct op *op, int flags, uint64_t *calls);
/* Reports whether all segments lie in `memory`. */
bool op_is_within(const struct iovec *memory, const struct iovec *iov, unsigned int count);
