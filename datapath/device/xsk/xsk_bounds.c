// SPDX-License-Identifier: BSD-2-Clause
/* Computes R of a queue in the mode in effect, and the resource that bounds R. */
#include <string.h>

#include "device/xsk/xsk.h"

enum {
	VETH_RING = 256, /* drivers/net/veth.c, VETH_RING_SIZE */
	/* Drivers refill their ring in batches of a NAPI budget: that many places may be empty. */
	REFILL_BATCH = 64,
};

static uint32_t device_bound(uint32_t ring)
{
	return ring > 2 * REFILL_BATCH ? ring - REFILL_BATCH : ring / 2;
}

/* Returns how many buffers peers may be granted. With zero-copy the device uses its own ring, which
 * the driver refills only when it polls. At the last poll, let u frames wait for us, and let us
 * hold e buffers. Until the next poll, peers may send R - u more; buffers returned meanwhile stay
 * in the fill ring. The device's ring had N - u - e of the N buffers, so N must be at least R + e.
 * e is at most R; hence N = 2 R (xsk_socket.c). */
static uint32_t umem_bound(const struct queue *queue)
{
	return queue->info.zerocopy ? queue->rx_chunks / 2 : queue->rx_chunks;
}

/* Computes R, the smallest of all resources on a frame's path (DESIGN: Windows). */
void xsk_bounds(struct xsk_queue *xsk)
{
	struct careful_device_info *info = &xsk->queue.info;
	const struct xsk_port *port = xsk_port_of(xsk);
	bool generic = port->xdp_mode == CAREFUL_XDP_GENERIC;
	bool veth = !strcmp(port->netdev.driver, "veth");

	info->bounds[CAREFUL_BOUND_UMEM] = umem_bound(&xsk->queue);
	info->bounds[CAREFUL_BOUND_FILL_RING] = xsk->fill.size;
	info->bounds[CAREFUL_BOUND_RX_RING] = xsk->rx.size;
	info->bounds[CAREFUL_BOUND_DEVICE_RING] = device_bound(port->netdev.rx_ring);
	/* From Linux 6.16 on, a full veth ring stops a sender that has a qdisc. The budget exists
	 * from 6.17 on. */
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
