// SPDX-License-Identifier: BSD-2-Clause
/* Changes the XDP mode of an open queue: detaches the program and attaches it again. A socket in
 * copy mode stays bound, because it works in both modes; zero-copy works only in native mode.
 * Attaching a loaded program needs no capability since Linux 5.19, so the process may have dropped
 * CAP_BPF and CAP_NET_ADMIN. Must run in the interface's network namespace, because the kernel
 * looks up its index there. */
#include <errno.h>

#include "device/xsk/xsk.h"

int xsk_mode(struct queue *queue, uint32_t mode, struct careful_error *error)
{
	struct xsk_queue *xsk = to_xsk(queue);
	struct xsk_port *port = xsk_port_of(xsk);
	int program = xsk_bpf_program(port), rc;
	const uint32_t old = port->xdp_mode;

	if (mode == old)
		return 0;
	if (port->port.spread.count)
		return explain(error, -EOPNOTSUPP, "%s: several queues share the XDP program",
			       port->netdev.name);
	if (queue->info.zerocopy)
		return explain(error, -EOPNOTSUPP, "%s: zero-copy needs native XDP",
			       port->netdev.name);
	xsk_detach(port);
	rc = xsk_attach(port, program, mode, error);
	if (rc && xsk_attach(port, program, old, NULL))
		port->xdp_mode = old; /* no program is attached; statistics() reports that */
	queue->info.xdp_mode = port->xdp_mode;
	xsk_bounds(xsk);
	return rc;
}
