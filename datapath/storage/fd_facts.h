/* SPDX-License-Identifier: BSD-2-Clause */
/* Facts about long-lived descriptors, so that each is asked for once. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "storage/storage.h"

enum { KEPT = 1024 }; /* a descriptor below this can be registered, at its own number */

/* A long-lived descriptor.
 *
 * @keepers: keep() calls without lose(); 0: not kept
 * @dev: its file system, like storage_io's
 * @kind: enum storage_kind
 * @ops: operations of the ring on it, counted to a small limit
 * @plain: never written from registered memory */
struct kept {
	uint32_t keepers;
	uint64_t dev;
	uint8_t kind;
	uint8_t ops;
	bool plain;
	bool registered;
};

/* Returns a descriptor's entry, or NULL if the descriptor is not kept. */
static inline struct kept *fd_of(struct kept *all, int fd)
{
	return fd >= 0 && fd < KEPT && all[fd].keepers ? &all[fd] : NULL;
}

/* Both ask once per message, or once per kept descriptor; *calls counts system calls. */
bool fd_is_memory(struct kept *all, struct storage_io *io, uint64_t *calls);
uint64_t fd_dev(struct kept *all, struct storage_io *io, uint64_t *calls);
bool fd_is_plain(int fd);
