/* SPDX-License-Identifier: BSD-2-Clause */
/* Logs peers' transfers: the peer, the file, the bytes and the result. Each peer has its own rate
 * limit, so a busy peer does not silence the others. */
#pragma once

#include <careful/abi.h>

#include "daemon/log.h"
#include "files/block.h"

enum { TRANSFER_LOG_BURST = 100, TRANSFER_LOG_S = 10 };

struct transfer_log {
	struct log_limit limits[CAREFUL_PEERS_MAX];
};

/* Logs the end of a peer's use of a file; name is the peer's name in the log. */
void transfer_log(struct transfer_log *log, const struct block_end *end, const char *name);
