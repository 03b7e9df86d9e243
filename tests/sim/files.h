/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Files in memory for simulations, behind the engine's storage interface. Reads and writes need
 * virtual time. Descriptors from FILES_MAX on are the system's.
 */
#ifndef SIM_FILES_H
#define SIM_FILES_H

#include <stdbool.h>
#include <stdint.h>

#include "storage/storage.h"

enum { FILES_MAX = 128, FILES_DEPTH = 64 };

/* @time_ns: the time, updated by the owner. @delay_ns: of each operation; 0: it ends within
 *   submit(). @frozen: bit mask of descriptors whose operations hang until @thaw_ns. */
struct files {
	struct storage storage;
	struct file {
		uint8_t *bytes;
		uint32_t count;
	} file[FILES_MAX];
	struct storage_io *queue[FILES_DEPTH]; /* in the order of their ends */
	uint64_t due_ns[FILES_DEPTH];
	uint32_t head;
	uint64_t time_ns;
	uint64_t delay_ns;
	uint64_t frozen;
	uint64_t thaw_ns;
	uint32_t reads, writes; /* submitted operations */
};

void files_init(struct files *files, uint64_t delay_ns);
/* Sets the caller's bytes as a descriptor's contents. */
/* NOLINTNEXTLINE(readability-non-const-parameter): writes go there */
void files_set(struct files *files, int fd, uint8_t *bytes, uint32_t count);
/* Returns the time at which the next operation ends; UINT64_MAX: none is under way. */
uint64_t files_next_ns(const struct files *files);

#endif /* SIM_FILES_H */
