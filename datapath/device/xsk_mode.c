// SPDX-License-Identifier: BSD-2-Clause
/*
 * Another XDP mode under a queue that is open: the program leaves the interface and comes back. A
 * socket in copy mode takes frames of either and stays bound; a driver that writes into UMEM itself
 * does so in native mode alone, which is kept. From Linux 5.19 on the kernel asks for no capability
 * to put on a program that was loaded before: CAP_BPF and CAP_NET_ADMIN may be dropped after
 * opening (a test does). Called in the interface's network namespace, in which its number is looked
 * up.
 */
#include <errno.h>

#include "device/xsk.h"

int xsk_mode(struct queue *queue, uint32_t mode, struct careful_error *error)
{
	struct xsk_queue *xsk = to_xsk(queue);
	struct xsk_port *port = xsk_port_of(xsk);
	int program = xsk_bpf_program(port), rc;
	const uint32_t was = port->xdp_mode;

	if (mode == was)
		return 0;
	if (port->port.spread.count)
		return refuse(error, -EOPNOTSUPP, "%s: its queues share the program",
			      port->netdev.name);
	if (queue->info.zerocopy)
		return refuse(error, -EOPNOTSUPP, "%s: zero-copy needs native XDP",
			      port->netdev.name);
	xsk_take_off(port);
	rc = xsk_attach(port, program, mode, error);
	if (rc && xsk_attach(port, program, was, NULL))
		port->xdp_mode = was; /* there is none: statistics() tell */
	queue->info.xdp_mode = port->xdp_mode;
	xsk_bounds(xsk);
	return rc;
}
