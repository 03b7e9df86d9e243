// SPDX-License-Identifier: BSD-2-Clause
/* Opens and closes a queue of the interface, and reports its settings. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "device/xsk/xsk.h"

static void take_options(struct xsk_queue *xsk, const struct careful_options *options)
{
	struct queue *queue = &xsk->queue;

	queue->index = (uint16_t)options->queue;
	queue->chunk_bytes = XSK_CHUNK_BYTES;
	xsk->rx_buffers = options->rx_buffers ? options->rx_buffers : XSK_BUFFERS_DEFAULT;
	queue->tx_chunks = options->tx_buffers ? options->tx_buffers : XSK_BUFFERS_DEFAULT;
}

static void fill_info(struct xsk_queue *xsk, uint32_t option)
{
	const struct xsk_port *port = xsk_port_of(xsk);
	struct careful_device_info *info = &xsk->queue.info;

	memcpy(info->ifname, port->netdev.name, sizeof(info->ifname));
	memcpy(info->driver, port->netdev.driver, sizeof(info->driver));
	memcpy(info->native_refused, port->native_refused, sizeof(info->native_refused));
	info->ifindex = port->netdev.ifindex;
	info->xdp_mode = port->xdp_mode;
	info->xdp_by = option == CAREFUL_XDP_AUTO ? CAREFUL_XDP_BY_DRIVER : CAREFUL_XDP_BY_OPTION;
	info->queue = xsk->queue.index;
	info->mtu = port->netdev.mtu;
	xsk_bounds(xsk);
}

static void fill_all(struct queue *queue)
{
	for (uint32_t i = 0; i < queue->rx_chunks; i++) {
		uint64_t addr = (uint64_t)i * queue->chunk_bytes;

		xsk_fill(queue, &addr, 1);
	}
}

static void close_queue(struct queue *queue)
{
	struct xsk_queue *xsk = to_xsk(queue);

	xsk_socket_close(xsk);
	/* MADV_DONTFORK: no child has the area */
	if (xsk_is_owner(xsk_port_of(xsk)) && !queue->umem_stays)
		xsk_umem_unmap(xsk);
	free(xsk);
}

static const struct queue_ops queue_ops = {
	.rx = xsk_rx,
	.fill = xsk_fill,
	.tx = xsk_tx,
	.kick = xsk_kick,
	.complete = xsk_complete,
	.statistics = xsk_statistics,
	.mode = xsk_mode,
	.close = close_queue,
};

int xsk_open_without(const struct careful_options *options, uint32_t without, struct queue **queue,
		     struct careful_error *error)
{
	struct xsk_queue *xsk = calloc(1, sizeof(*xsk));
	int rc;

	if (!xsk)
		return explain(error, -ENOMEM, "out of memory");
	xsk->queue.ops = &queue_ops;
	xsk->queue.fd = -1;
	xsk->queue.frames_checked = true;
	take_options(xsk, options);
	rc = xsk_port_open(options, without, &xsk->queue.port, error);
	if (rc) {
		free(xsk);
		return rc;
	}
	rc = xsk_socket_open(xsk, options->require_zerocopy, error);
	if (!rc)
		rc = xsk_bpf_redirect(xsk_port_of(xsk), xsk->queue.index, xsk->queue.fd, error);
	if (rc) {
		device_close(&xsk->queue);
		return rc;
	}
	fill_all(&xsk->queue);
	fill_info(xsk, options->xdp_mode);
	*queue = &xsk->queue;
	return 0;
}

int xsk_open(const struct careful_options *options, struct queue **queue,
	     struct careful_error *error)
{
	return xsk_open_without(options, 0, queue, error);
}
