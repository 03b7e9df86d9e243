/* SPDX-License-Identifier: BSD-2-Clause */
/* The file that pings are written to: unnamed, in a writable export, like the files of puts. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "files/block.h"

/* @fd:      the file, or -1
 * @scratch: its place (enum careful_scratch); belongs to the thread until @opened
 * @opening: a thread opens the file, because a file system may hang
 * @opened:  the thread has ended
 * @asked:   pings so far
 * @used_ms: time of the last ping */
struct scratch_file {
	struct careful *instance;
	const struct block_export_options *exports;
	uint32_t exports_count;
	int fd;
	uint8_t scratch;
	bool opening;
	atomic_bool opened;
	pthread_t thread;
	uint64_t asked;
	int64_t used_ms;
};

/* Begins to serve pings. Without a writable export the file is memory and opens now. */
void scratch_file_serve(struct scratch_file *file, struct careful *instance,
			const struct block_export_options *exports, uint32_t n);
/* Opens the file for a ping, and closes it when pings stop: an unused export can be unmounted. */
void scratch_file_poll(struct scratch_file *file, int64_t now_ms);
/* Returns milliseconds until the next poll; -1: not soon. */
int scratch_file_timeout_ms(const struct scratch_file *file);
