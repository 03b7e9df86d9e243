// SPDX-License-Identifier: BSD-2-Clause
/* Records sends and receives (P2 section 6.2) in memory, and writes them as text at the end, for
 * `carefulctl trace events`. Records beyond NOTES_MAX are only counted; the file has the count. */
#include "events/private.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { NOTES_MAX = 1 << 20 };

int careful_events_trace(struct careful_events *ev, const char *directory)
{
	char path[PATH_MAX];
	int n = snprintf(path, sizeof(path), "%s/event-%u-%u.trace", directory, ev->number,
			 ev->rank);

	if (n >= (int)sizeof(path))
		return -ENAMETOOLONG;
	if (ev->notes)
		return 0;
	ev->notes_fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	if (ev->notes_fd < 0)
		return -errno;
	ev->notes = calloc(NOTES_MAX, sizeof(*ev->notes));
	if (!ev->notes) {
		close(ev->notes_fd);
		ev->notes_fd = -1;
		return -ENOMEM;
	}
	return 0;
}

void event_note_down(struct careful_events *ev, char what, uint32_t node, uint64_t event,
		     uint32_t bytes, uint32_t flags)
{
	uint64_t i = ev->notes_count++;

	if (i < NOTES_MAX)
		ev->notes[i] = (struct event_note){
			.at_ns = ev->c->ops->now_ns(ev->c),
			.event = event,
			.node = node,
			.bytes = bytes,
			.flags = (uint8_t)flags,
			.what = what,
		};
}

void event_trace_end(struct careful_events *ev)
{
	uint64_t kept = ev->notes_count < NOTES_MAX ? ev->notes_count : NOTES_MAX;
	FILE *out;

	if (!ev->notes)
		return;
	out = fdopen(ev->notes_fd, "w");
	if (!out) {
		close(ev->notes_fd);
		return;
	}
	fprintf(out,
		"# careful events 1: rank %u of %u, window %u, receive buffers %u, left out %llu\n",
		ev->rank, ev->nodes, ev->window, ev->room,
		(unsigned long long)(ev->notes_count - kept));
	fprintf(out, "# at_ns what node event bytes flags\n");
	for (uint64_t i = 0; i < kept; i++) {
		const struct event_note *note = &ev->notes[i];

		fprintf(out, "%llu %c %u %llu %u %u\n", (unsigned long long)note->at_ns, note->what,
			note->node, (unsigned long long)note->event, note->bytes, note->flags);
	}
	fclose(out);
}
