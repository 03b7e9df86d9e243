/* SPDX-License-Identifier: BSD-2-Clause */
/* The file that pings are written to: the daemon's, without a name, in a writable export. */
#ifndef DAEMON_SCRATCH_FILE_H
#define DAEMON_SCRATCH_FILE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "files/block.h"

/*
 * @fd:      the file, or -1
 * @scratch: where it lies (enum careful_scratch); the thread's until `opened`
 * @opening: a thread opens it: a file system may hang
 * @opened:  that thread has ended
 * @asked, @used_ms: pings so far, and when the last came
 */
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

/* Begins to serve pings. Without a writable export the file is memory, and open from now on. */
void scratch_file_serve(struct scratch_file *file, struct careful *instance,
			const struct block_export_options *exports, uint32_t n);
/* Opens the file when a ping asks for it, and closes it when no more come: an export that nobody
 * uses can be unmounted. */
void scratch_file_poll(struct scratch_file *file, int64_t now_ms);
/* Milliseconds until poll has something to do; -1: not soon. */
int scratch_file_timeout_ms(const struct scratch_file *file);

#endif /* DAEMON_SCRATCH_FILE_H */
