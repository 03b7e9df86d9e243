/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the log says of peers' transfers: who, which file, how many bytes, how it ended. Each
 * peer has a limit of its own: one that opens files without end does not silence the others.
 */
#ifndef DAEMON_TRANSFER_LOG_H
#define DAEMON_TRANSFER_LOG_H

#include <careful/abi.h>

#include "daemon/log.h"
#include "files/block.h"

enum { TRANSFER_LOG_BURST = 100, TRANSFER_LOG_S = 10 };

struct transfer_log {
	struct log_limit limits[CAREFUL_PEERS_MAX];
};

/* A peer's use of a file ended; name: what the log calls it. */
void transfer_log(struct transfer_log *log, const struct block_end *end, const char *name);

#endif /* DAEMON_TRANSFER_LOG_H */
