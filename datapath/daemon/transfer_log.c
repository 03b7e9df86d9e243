/* SPDX-License-Identifier: BSD-2-Clause */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "daemon/transfer_log.h"

/* Longest path in a line: the result must still fit behind it. The journal gets the whole path. */
enum { PATH_SHOWN_BYTES = 1536 };

static const char *outcome(const struct block_end *end)
{
	if (end->status)
		return strerror(-end->status);
	if (end->op == BLOCK_DISCARD)
		return "broken off";
	if (end->small || !end->writable)
		return "done";
	return end->op == CAREFUL_BLOCK_COMMIT ? "complete" : "not completed";
}

void transfer_log(struct transfer_log *log, const struct block_end *end, const char *name)
{
	struct log_limit *limit = &log->limits[end->peer];
	char bytes[32], took[32], status[16];
	bool is_read = end->read_bytes > end->written_bytes;
	uint64_t moved = is_read ? end->read_bytes : end->written_bytes;
	const struct log_field fields[] = {
		{ "CAREFUL_PEER", name },
		{ "CAREFUL_PATH", end->path },
		{ "CAREFUL_DIRECTION", is_read ? "read" : "written" },
		{ "CAREFUL_BYTES", bytes },
		{ "CAREFUL_SECONDS", took },
		{ "CAREFUL_STATUS", outcome(end) },
		{ "ERRNO", status },
		{ NULL, NULL },
	};

	limit->burst = TRANSFER_LOG_BURST;
	limit->interval_s = TRANSFER_LOG_S;
	if (!log_allowed(limit))
		return;
	snprintf(bytes, sizeof(bytes), "%" PRIu64, moved);
	snprintf(took, sizeof(took), "%.3f", (double)end->took_ns / 1e9);
	snprintf(status, sizeof(status), "%d", -end->status);
	log_event(fields, "peer %u %s: %s\"%.*s%s\": %s bytes %s in %s s, %s", end->peer, name,
		  end->small ? "small files in " : "", PATH_SHOWN_BYTES, end->path,
		  strlen(end->path) > PATH_SHOWN_BYTES ? "..." : "", bytes,
		  is_read ? "read" : "written", took, outcome(end));
}
