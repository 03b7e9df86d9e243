/* SPDX-License-Identifier: BSD-2-Clause */
/* Where stage probes are written: a file without a name, of the daemon's. */
#ifndef DAEMON_STAGE_FILE_H
#define DAEMON_STAGE_FILE_H

#include <stdint.h>

#include "service/block.h"

/* Opens it in the first of the writable exports that takes one, else in memory; *scratch
 * says where (enum careful_scratch). Returns a descriptor, or -errno. */
int stage_file_open(const struct careful_block_export *exports, uint32_t n, uint8_t *scratch);

#endif /* DAEMON_STAGE_FILE_H */
