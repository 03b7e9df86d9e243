/* SPDX-License-Identifier: BSD-2-Clause */
#include "daemon/scratch_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <careful/wire.h>

#include "daemon/log.h"
#include "base/thread.h"
#include "engine/sharing.h"

enum { IDLE_MS = 5000, STACK_BYTES = 64 << 10 };

static void open_memory(struct scratch_file *file)
{
	file->scratch = CAREFUL_SCRATCH_MEMORY;
	file->fd = memfd_create("careful-scratch", MFD_CLOEXEC);
	if (file->fd >= 0)
		return;
	log_line("no scratch file for pings: %s", strerror(errno));
	file->scratch = CAREFUL_SCRATCH_NONE;
}

/* Opens the file in the first writable export that supports O_TMPFILE, else in memory. */
static void *open_file(void *user)
{
	struct scratch_file *file = user;

	file->scratch = CAREFUL_SCRATCH_FILE;
	for (uint32_t i = 0; file->fd < 0 && i < file->exports_count; i++) {
		if (file->exports[i].writable)
			file->fd =
				open(file->exports[i].path, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	}
	if (file->fd < 0)
		open_memory(file);
	atomic_store(&file->opened, true);
	return NULL;
}

void scratch_file_serve(struct scratch_file *file, struct careful *instance,
			const struct block_export_options *exports, uint32_t n)
{
	bool writable = false;

	*file = (struct scratch_file){
		.instance = instance,
		.exports = exports,
		.exports_count = n,
		.fd = -1,
		.scratch = CAREFUL_SCRATCH_FILE,
	};
	for (uint32_t i = 0; i < n; i++)
		writable = writable || exports[i].writable;
	if (!writable)
		open_memory(file);
	engine_scratch(instance, file->fd, file->scratch);
}

static void start_opening(struct scratch_file *file)
{
	atomic_store(&file->opened, false);
	file->opening = !thread_start(&file->thread, STACK_BYTES, open_file, file);
	if (file->opening)
		return;
	open_memory(file);
	engine_scratch(file->instance, file->fd, file->scratch);
}

void scratch_file_poll(struct scratch_file *file, int64_t now_ms)
{
	uint64_t asked = engine_scratch_asked(file->instance);

	if (file->opening && atomic_load(&file->opened)) {
		pthread_join(file->thread, NULL);
		file->opening = false;
		engine_scratch(file->instance, file->fd, file->scratch);
	}
	if (asked != file->asked) {
		file->asked = asked;
		file->used_ms = now_ms;
		if (!file->opening && file->fd < 0)
			start_opening(file);
	} else if (!file->opening && file->fd >= 0 && file->scratch == CAREFUL_SCRATCH_FILE &&
		   now_ms - file->used_ms > IDLE_MS) {
		engine_scratch(file->instance, -1, file->scratch);
		close(file->fd);
		file->fd = -1;
	}
}

int scratch_file_timeout_ms(const struct scratch_file *file)
{
	return file->opening ? 1 : -1;
}
