// SPDX-License-Identifier: BSD-2-Clause
/* An interface with several queues. Each queue is an instance with its own program, maps and UDP
 * port. A dispatcher on the interface passes each frame to the program of its queue. The first
 * queue's instance attaches the dispatcher and pins the map of programs; each instance sets its
 * entry there. The instances share only the table of sessions. */
#include <bpf/bpf.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "device/compat.h"
#include "device/xsk/xsk.h"

/* With generic XDP a veth delivers a frame to another queue than the one that sent it. */
static int check_mode(const struct xsk_port *port, struct careful_error *error)
{
	if (port->xdp_mode != CAREFUL_XDP_GENERIC || !port->port.spread.straight)
		return 0;
	return explain(
		error, -EOPNOTSUPP,
		"%s: with generic XDP a veth delivers frames to the wrong queue: several queues need native XDP%s%s",
		port->netdev.name, port->native_refused[0] ? ", which was refused: " : "",
		port->native_refused);
}

static const size_t entries_bytes = CAREFUL_SPREAD_MAX * sizeof(struct careful_queue_entry);

static int map_entries(struct xsk_port *port, int fd, struct careful_error *error)
{
	port->port.spread.entries = xsk_map_memory(fd, entries_bytes);
	if (!port->port.spread.entries)
		return explain(error, -errno, "cannot map the spread map: %s", strerror(errno));
	return 0;
}

static int set_program(const struct xsk_port *port, uint32_t queue, int program,
		       struct careful_error *error)
{
	const uint32_t value = (uint32_t)program;

	if (bpf_map_update_elem(port->programs, &queue, &value, BPF_ANY))
		return explain(error, -errno, "cannot enter the program into the queues map: %s",
			       strerror(errno));
	return 0;
}

int xsk_dispatcher_lead(struct xsk_port *port, int programs, int entries, int program,
			struct careful_error *error)
{
	int rc = check_mode(port, error);

	if (rc)
		return rc;
	port->programs = fcntl(programs, F_DUPFD_CLOEXEC, 0);
	if (port->programs < 0)
		return explain(error, -errno, "cannot open the queues map: %s", strerror(errno));
	rc = map_entries(port, entries, error);
	/* This program also counts the frames of queues that nobody has opened. */
	for (uint32_t i = 0; !rc && i < CAREFUL_QUEUES_MAX; i++)
		rc = set_program(port, i, program, error);
	return rc;
}

int xsk_dispatcher_join(struct xsk_port *port, int program, struct careful_error *error)
{
	char path[XSK_PATH_BYTES];
	int fd, rc;

	xsk_pin_path(port->first, "queues", path, sizeof(path));
	port->programs = bpf_obj_get(path);
	port->xdp_mode = xsk_attached_mode(port);
	if (port->programs < 0 || !port->xdp_mode)
		return explain(error, -ENOENT,
			       "queue %u of %s: the first queue is not open (instance %s)",
			       port->port.spread.index, port->netdev.name, port->first);
	xsk_pin_path(port->first, "spread", path, sizeof(path));
	fd = bpf_obj_get(path);
	if (fd < 0)
		return explain(error, -errno, "%s: %s", path, strerror(errno));
	rc = map_entries(port, fd, error);
	close(fd);
	return rc ? rc : set_program(port, port->port.spread.index, program, error);
}

void xsk_dispatcher_close(struct xsk_port *port)
{
	struct spread *spread = &port->port.spread;
	const uint32_t queue = spread->index;

	if (spread->entries) {
		if (xsk_is_owner(port)) {
			spread->entries[queue].slots = 0;
			bpf_map_delete_elem(port->programs, &queue);
		}
		munmap(spread->entries, entries_bytes);
	}
	spread->entries = NULL;
	if (port->programs >= 0)
		close(port->programs);
	port->programs = -1;
}
