/* SPDX-License-Identifier: BSD-2-Clause */
/* A cache of what the kernel reports about long-lived descriptors. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "storage/storage.h"

enum { FDS_MAX = 1024 }; /* only descriptors below this are cached and registered */

/* A long-lived descriptor. */
struct fd_facts {
	uint32_t keep_count; /* keep() calls without lose(); 0: not kept */
	uint64_t dev; /* its file system, like storage_io's */
	uint8_t kind; /* enum storage_kind */
	uint8_t ops; /* operations of the ring on it, counted to a small limit */
	bool plain; /* never written from registered memory */
	bool registered;
};

/* Returns a descriptor's entry, or NULL if the descriptor is not kept. */
static inline struct fd_facts *find_fd(struct fd_facts *fds, int fd)
{
	return fd >= 0 && fd < FDS_MAX && fds[fd].keep_count ? &fds[fd] : NULL;
}

/* The first two ask the kernel once for each operation or kept descriptor; *calls counts system
 * calls. */
bool fd_is_memory(struct fd_facts *fds, struct storage_io *io, uint64_t *calls);
uint64_t fd_dev(struct fd_facts *fds, struct storage_io *io, uint64_t *calls);
bool fd_is_plain(int fd);
