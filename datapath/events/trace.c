// SPDX-License-Identifier: BSD-2-Clause
/* Records sends and receives (P2 section 6.2) in memory, and writes them as text at the end, for
 * `carefulctl trace events`. Records beyond RECORDS_MAX are only counted. */
#include "events/private.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { RECORDS_MAX = 1 << 20 };

int careful_events_trace(struct careful_events *ev, const char *directory)
{
	char path[PATH_MAX];
	int n = snprintf(path, sizeof(path), "%s/event-%u-%u.trace", directory, ev->number,
			 ev->rank);

	if (n >= (int)sizeof(path))
		return -ENAMETOOLONG;
	if (ev->records)
		return 0;
	ev->trace_fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	if (ev->trace_fd < 0)
		return -errno;
	ev->records = calloc(RECORDS_MAX, sizeof(*ev->records));
	if (!ev->records) {
		close(ev->trace_fd);
		ev->trace_fd = -1;
		return -ENOMEM;
	}
	return 0;
}

void event_trace_add(struct careful_events *ev, char kind, uint32_t node, uint64_t event,
		     uint32_t bytes, uint32_t flags)
{
	uint64_t i = ev->records_count++;

	if (i < RECORDS_MAX)
		ev->records[i] = (struct event_record){
			.at_ns = ev->c->ops->now_ns(ev->c),
			.event = event,
			.node = node,
			.bytes = bytes,
			.flags = (uint8_t)flags,
			.kind = kind,
		};
}

void event_trace_end(struct careful_events *ev)
{
	uint64_t written = ev->records_count < RECORDS_MAX ? ev->records_count : RECORDS_MAX;
	FILE *out;

	if (!ev->records)
		return;
	out = fdopen(ev->trace_fd, "w");
	if (!out) {
		close(ev->trace_fd);
		return;
	}
	fprintf(out,
		"# careful events 1: rank %u of %u, window %u, receive buffers %u, left out %llu\n",
		ev->rank, ev->nodes, ev->window, ev->room,
		(unsigned long long)(ev->records_count - written));
	fprintf(out, "# at_ns what node event bytes flags\n");
	for (uint64_t i = 0; i < written; i++) {
		const struct event_record *record = &ev->records[i];

		fprintf(out, "%llu %c %u %llu %u %u\n", (unsigned long long)record->at_ns,
			record->kind, record->node, (unsigned long long)record->event,
			record->bytes, record->flags);
	}
	fclose(out);
}
