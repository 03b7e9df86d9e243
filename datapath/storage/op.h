/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * An operation that moves in steps, as files and the kernel choose: how far it has come, and
 * the steps that are system calls of this thread. What waits for a device is uring.c's.
 */
#ifndef STORAGE_OP_H
#define STORAGE_OP_H

#include <stdbool.h>
#include <stdint.h>

#include "storage/storage.h"

/*
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

void op_begin(struct op *op, struct storage_io *io);
/* Makes iov[segment] describe what is left of it after `bytes` more were moved. */
void op_advance(struct op *op, uint64_t bytes);
/* The caller's segments are as they were. */
void op_end(struct op *op, int64_t result);
/*
 * Moves all that is left by blocking calls (flags 0) or what needs no waiting
 * (RWF_NOWAIT). 1: the operation has ended; 0: it would have to wait; -EOPNOTSUPP:
 * the file does not do RWF_NOWAIT. *calls counts.
 */
int op_inline(struct op *op, int flags, uint64_t *calls);
/* Reports whether all pieces are in that memory. */
bool op_is_within(const struct iovec *memory, const struct iovec *iov, unsigned int count);

#endif /* STORAGE_OP_H */
