/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * For simulations: files in memory behind the engine's storage interface, whose reads
 * and writes take virtual time. Descriptors from FILES_MAX on are the system's.
 */
#ifndef SIM_FILES_H
#define SIM_FILES_H

#include <stdbool.h>
#include <stdint.h>

#include "storage/storage.h"

enum { FILES_MAX = 128, FILES_DEPTH = 64 };

/* @time_ns: what its owner keeps current. @delay_ns: of each operation, and 0 where it
 * ends within submit(). @frozen: descriptors, a bit each, whose operations do not end before
 * @thaw_ns. */
struct files {
	struct storage storage;
	struct file {
		uint8_t *bytes;
		uint32_t count;
	} file[FILES_MAX];
	struct storage_io *queue[FILES_DEPTH]; /* in the order in which they end */
	uint64_t due_ns[FILES_DEPTH];
	uint32_t head;
	uint64_t time_ns;
	uint64_t delay_ns;
	uint64_t frozen;
	uint64_t thaw_ns;
	uint32_t reads, writes; /* that were submitted */
};

void files_init(struct files *files, uint64_t delay_ns);
/* Bytes behind a descriptor, which are the caller's. */
/* NOLINTNEXTLINE(readability-non-const-parameter): writes go there */
void files_set(struct files *files, int fd, uint8_t *bytes, uint32_t count);
/* When the next operation ends; UINT64_MAX: none is under way. */
uint64_t files_next_ns(const struct files *files);

#endif /* SIM_FILES_H */
