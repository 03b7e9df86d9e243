/* SPDX-License-Identifier: BSD-2-Clause */
/* New options for a running carefuld: exports, the wait mode, and times. */
#pragma once

#include <stdint.h>

#include <careful/careful.h>

#include "daemon/options.h"
#include "files/block.h"

void reload_log(const struct daemon_options *options);

/* Applies a command line of NUL-ended words. Failure changes nothing: -errno with *error. */
int reload(struct careful *instance, struct block_server *block, const char *words, uint32_t bytes,
	   struct careful_error *error);
