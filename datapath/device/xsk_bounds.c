// SPDX-License-Identifier: BSD-2-Clause
/* R of a queue in the mode in effect, and which resource bounds it. */
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

/*
 * Buffers for which a peer may be promised that the device finds one. With zero-copy it looks into
 * its own ring, which the driver fills from the fill ring when it polls. Since a poll that found u
 * frames waiting and e with us, at most R - u more may come before the next one: those that peers
 * may send, and those for which we give a buffer back meanwhile, which lies in the fill ring until
 * then. The ring was left all N buffers but u and e, and e is R at most: so N must be 2 R
 * (xsk_socket.c).
 */
static uint32_t in_umem(const struct queue *queue)
{
	return queue->info.zerocopy ? queue->rx_chunks / 2 : queue->rx_chunks;
}

/* R: what every resource on the way of a frame can hold (DESIGN: Windows). */
void xsk_bounds(struct xsk_queue *xsk)
{
	struct careful_device_info *info = &xsk->queue.info;
	const struct xsk_port *port = xsk_port_of(xsk);
	bool generic = port->xdp_mode == CAREFUL_XDP_GENERIC;
	bool veth = !strcmp(port->netdev.driver, "veth");

	info->bounds[CAREFUL_BOUND_UMEM] = in_umem(&xsk->queue);
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
