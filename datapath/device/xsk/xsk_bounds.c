// SPDX-License-Identifier: BSD-2-Clause
/* R of a queue in the mode in effect, and the resource that bounds R. */
#include <string.h>

#include "device/xsk/xsk.h"

enum {
	VETH_RING = 256, /* drivers/net/veth.c, VETH_RING_SIZE */
	/* Drivers refill their ring in batches of a NAPI budget, so as many places may be empty. */
	REFILL_BATCH = 64,
};

static uint32_t of_device(uint32_t ring)
{
	return ring > 2 * REFILL_BATCH ? ring - REFILL_BATCH : ring / 2;
}

/* Returns the buffers that peers may be promised. With zero-copy the device looks into its own
 * ring, which the driver refills only when it polls. Let the last poll find u frames waiting and e
 * frames with us. Until the next poll at most R - u more can arrive: what peers may send, plus
 * buffers given back meanwhile, which stay in the fill ring. The device's ring had N - u - e of the
 * N buffers, so N must be R + e at least. e is at most R; hence N = 2 R (xsk_socket.c). */
static uint32_t in_umem(const struct queue *queue)
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

	info->bounds[CAREFUL_BOUND_UMEM] = in_umem(&xsk->queue);
	info->bounds[CAREFUL_BOUND_FILL_RING] = xsk->fill.size;
	info->bounds[CAREFUL_BOUND_RX_RING] = xsk->rx.size;
	info->bounds[CAREFUL_BOUND_DEVICE_RING] = of_device(port->netdev.rx_ring);
	/* A veth's full ring stops a sender with a qdisc since Linux 6.16; the budget exists since
	 * 6.17. */
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
