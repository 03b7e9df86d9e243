/* SPDX-License-Identifier: BSD-2-Clause */
/* The file that pings are written to: in a writable export, like files of puts, but unnamed. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "files/block.h"

struct scratch_file {
	struct careful *instance;
	const struct block_export_options *exports;
	uint32_t exports_count;
	int fd; /* the file, or -1 */
	uint8_t scratch; /* its place (enum careful_scratch); belongs to the thread until opened */
	bool opening; /* a thread opens the file, because a file system may hang */
	atomic_bool opened; /* the thread has ended */
	pthread_t thread;
	uint64_t asked; /* pings up to the last poll */
	int64_t used_ms; /* time of the last ping */
};

/* Begins to serve pings. Without a writable export, the file lies in memory and is opened now. */
void scratch_file_serve(struct scratch_file *file, struct careful *instance,
			const struct block_export_options *exports, uint32_t n);
/* Opens the file for a ping. Closes it when pings stop, so that the export can be unmounted. */
void scratch_file_poll(struct scratch_file *file, int64_t now_ms);
/* Returns the milliseconds until the next poll; -1: after another event. */
int scratch_file_timeout_ms(const struct scratch_file *file);
