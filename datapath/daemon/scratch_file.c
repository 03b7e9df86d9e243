/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * In an export, because that is where what is put here would be written; without a name,
 * so that nobody sees it and nothing is left of it. Calls nobody.
 */
#include "daemon/scratch_file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>

#include <careful/wire.h>

int scratch_file_open(const struct block_export_options *exports, uint32_t n, uint8_t *scratch)
{
	int fd;

	for (uint32_t i = 0; i < n; i++) {
		if (!exports[i].writable)
			continue;
		fd = open(exports[i].path, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
		if (fd < 0)
			continue;
		*scratch = CAREFUL_SCRATCH_FILE;
		return fd;
	}
	*scratch = CAREFUL_SCRATCH_MEMORY;
	fd = memfd_create("careful-scratch", MFD_CLOEXEC);
	return fd < 0 ? -errno : fd;
}
