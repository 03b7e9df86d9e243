// SPDX-License-Identifier: BSD-2-Clause
/*
 * R of a queue in the mode in effect, and which resource bounds it. Calls netdev.c.
 */
#include <string.h>

#include "device/xsk.h"

enum {
	VETH_RING = 256, /* drivers/net/veth.c, VETH_RING_SIZE */
	/* Drivers put buffers back into their ring in batches, of a NAPI poll's budget at most:
	 * so many places of it may have none. */
	REFILL_BATCH = 64,
};

/* What a device's own ring certainly holds. */
static uint32_t of_device(uint32_t ring)
{
	return ring > 2 * REFILL_BATCH ? ring - REFILL_BATCH : ring / 2;
}

/* R: what every resource on the way of a frame can hold (DESIGN: Windows). */
void xsk_bounds(struct xsk_queue *xsk)
{
	struct careful_device_info *info = &xsk->queue.info;
	const struct xsk_port *port = xsk_port_of(xsk);
	bool generic = port->xdp_mode == CAREFUL_XDP_GENERIC;
	bool veth = !strcmp(port->netdev.driver, "veth");

	info->bounds[CAREFUL_BOUND_UMEM] = xsk->queue.rx_chunks;
	info->bounds[CAREFUL_BOUND_FILL_RING] = xsk->fill.size;
	info->bounds[CAREFUL_BOUND_RX_RING] = xsk->rx.size;
	info->bounds[CAREFUL_BOUND_DEVICE_RING] = of_device(port->netdev.rx_ring);
	/* A veth's ring stops a sender that has a qdisc; but only since 6.16, which a kernel
	 * that knows the budget (6.17) certainly is. */
	if (veth && !generic && !xsk->tx_budget)
		info->bounds[CAREFUL_BOUND_DEVICE_RING] = VETH_RING;
	if (generic)
		info->bounds[CAREFUL_BOUND_BACKLOG] = netdev_backlog();
	info->receive_buffers = info->bounds[CAREFUL_BOUND_UMEM];
	info->receive_bound = CAREFUL_BOUND_UMEM;
	for (uint32_t i = 0; i < CAREFUL_BOUNDS; i++) {
		if (!info->bounds[i] || info->bounds[i] >= info->receive_buffers)
			continue;
		info->receive_buffers = info->bounds[i];
		info->receive_bound = i;
	}
}
