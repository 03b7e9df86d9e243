/* SPDX-License-Identifier: BSD-2-Clause */
/* Other options for a carefuld that runs: exports, and how long it waits. */
#ifndef DAEMON_RELOAD_H
#define DAEMON_RELOAD_H

#include <stdint.h>

#include <careful/careful.h>

#include "daemon/options.h"
#include "files/block.h"

/* Logs which exports there are. */
void reload_log(const struct daemon_options *options);

/* words: of a command line, a NUL behind each. All that they say is in effect, or, with -errno
 * and *error, nothing of it. */
int reload(struct careful *instance, struct block_server *block, const char *words, uint32_t bytes,
	   struct careful_error *error);

#endif /* DAEMON_RELOAD_H */
