/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Threads beside the ring, a few for each file system, so that one that hangs holds up no other.
 *
 * The kernel has so many workers for all operations of a thread, whichever its ring, and lets
 * buffered writes wait for each other whose inodes share one of 64 places of a hash (io-wq.c). So
 * one file system at a time has the ring, whichever comes while nothing is under way there; those
 * that come meanwhile come here (uring.c).
 */
#ifndef STORAGE_LANES_H
#define STORAGE_LANES_H

#include <stdint.h>

#include "storage/op.h"

struct lanes;

int lanes_open(struct lanes **lanes);
/* Moves all of op in a thread of its file system (io->dev). -EBUSY: no lane is free. */
int lanes_put(struct lanes *lanes, struct op *op);
/* Readable while lanes_take() has something. */
int lanes_fd(const struct lanes *lanes);
/* Those that have ended, a list; *calls: system calls made for them. */
struct op *lanes_take(struct lanes *lanes, uint64_t *calls);
/* Waits so long for what is under way; what was not begun never is. Returns how many operations
 * hang: they end by themselves, and until then use their files and memory. */
uint32_t lanes_close(struct lanes *lanes, uint32_t patience_ms);

#endif /* STORAGE_LANES_H */
