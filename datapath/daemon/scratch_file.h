/* SPDX-License-Identifier: BSD-2-Clause */
/* Where pings are written: a file without a name, of the daemon's. */
#ifndef DAEMON_SCRATCH_FILE_H
#define DAEMON_SCRATCH_FILE_H

#include <stdint.h>

#include "service/block.h"

/* Opens it in the first of the writable exports that takes one, else in memory; *scratch
 * says where (enum careful_scratch). Returns a descriptor, or -errno. */
int scratch_file_open(const struct block_export_options *exports, uint32_t n, uint8_t *scratch);

#endif /* DAEMON_SCRATCH_FILE_H */
