/* SPDX-License-Identifier: BSD-2-Clause */
/* What is known of descriptors, so that it is asked once of one that stays what it is. */
#ifndef STORAGE_KEPT_H
#define STORAGE_KEPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "storage/storage.h"

enum { KEPT = 1024 }; /* descriptors below it can be registered, each at its own number */

/*
 * A descriptor that stays what it is.
 *
 * @keepers:  who said so; 0: nobody
 * @dev:      its file system, as of struct storage_io
 * @kind:     enum storage_kind
 * @ops:      that the ring had on it, up to a few
 * @plain:    no registered memory is written to it
 */
struct kept {
	uint32_t keepers;
	uint64_t dev;
	uint8_t kind;
	uint8_t ops;
	bool plain;
	bool registered;
};

/* Of all; NULL where it does not stay. */
static inline struct kept *kept_of(struct kept *all, int fd)
{
	return fd >= 0 && fd < KEPT && all[fd].keepers ? &all[fd] : NULL;
}

/* Both ask once of a message, or of a descriptor that stays; *calls counts system calls. */
bool kept_is_memory(struct kept *all, struct storage_io *io, uint64_t *calls);
uint64_t kept_dev(struct kept *all, struct storage_io *io, uint64_t *calls);
bool kept_is_plain(int fd);

#endif /* STORAGE_KEPT_H */
