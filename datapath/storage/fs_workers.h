/* SPDX-License-Identifier: BSD-2-Clause */
/* A few threads for each file system, so that a file system that hangs delays no other. The kernel
 * gives a thread a fixed number of io_uring workers for all its rings, and serialises buffered
 * writes of inodes that share one of 64 hash slots (io-wq.c). So the ring serves one file system at
 * a time; operations of others run here (uring.c). */
#pragma once

#include <stdint.h>

#include "storage/op.h"

struct fs_workers;

int fs_workers_open(struct fs_workers **workers);
/* Runs the whole operation in a thread of its file system (io->dev). -EBUSY: no group is free. */
int fs_workers_put(struct fs_workers *workers, struct op *op);
/* Returns a descriptor that is readable while fs_workers_take() has something. */
int fs_workers_fd(const struct fs_workers *workers);
/* Returns a finished operation, or NULL. */
struct op *fs_workers_take(struct fs_workers *workers);
/* Waits up to patience_ms for running operations; queued ones never start. Returns how many hang
 * then: these use their files and memory until they end. */
uint32_t fs_workers_close(struct fs_workers *workers, uint32_t patience_ms);
