// SPDX-License-Identifier: BSD-2-Clause
/* The hot path: the four rings shared with the kernel, and the kick. Apart from statistics, its only
 * system calls are the kick, the wakeup for buffers and, while the link is down, a read of netlink. */
#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "device/compat.h"
#include "device/trace.h"
#include "device/xsk/xsk.h"

_Static_assert(sizeof(struct device_desc) == sizeof(struct xdp_desc), "same layout");
_Static_assert(offsetof(struct device_desc, bytes) == offsetof(struct xdp_desc, len),
	       "same layout");
_Static_assert((int)DEVICE_DESC_MORE == (int)XDP_PKT_CONTD, "same flag");

static uint32_t whole_frames(const struct device_desc *descs, uint32_t n)
{
	while (n && (descs[n - 1].options & DEVICE_DESC_MORE))
		n--;
	return n;
}

/* Wakes a driver that needs buffers; only zero-copy drivers sleep for lack of buffers. */
static void wake_fill(struct xsk_queue *xsk)
{
	xsk->fill_asleep = xsk_ring_prod__needs_wakeup(&xsk->fill) &&
			   recvfrom(xsk->queue.fd, NULL, 0, MSG_DONTWAIT, NULL, NULL) < 0 &&
			   xsk->queue.info.zerocopy;
}

uint32_t xsk_rx(struct queue *queue, struct device_desc *descs, uint32_t n)
{
	struct xsk_queue *xsk = to_xsk(queue);
	uint32_t at, got, whole;

	got = xsk_ring_cons__peek(&xsk->rx, n, &at);
	if (!got) {
		if (xsk->fill_asleep)
			wake_fill(xsk);
		return 0;
	}
	for (uint32_t i = 0; i < got; i++) {
		const struct xdp_desc *desc = xsk_ring_cons__rx_desc(&xsk->rx, at + i);

		memcpy(&descs[i], desc, sizeof(*desc));
	}
	/* The kernel publishes whole frames, so only n can have cut one. */
	whole = whole_frames(descs, got);
	if (!whole)
		whole = got;
	xsk_ring_cons__cancel(&xsk->rx, got - whole);
	xsk_ring_cons__release(&xsk->rx, whole);
	return whole;
}

void xsk_fill(struct queue *queue, const uint64_t *addrs, uint32_t n)
{
	struct xsk_queue *xsk = to_xsk(queue);
	uint64_t mask = ~(uint64_t)(queue->chunk_bytes - 1);
	uint32_t at = 0, room;

	room = xsk_ring_prod__reserve(&xsk->fill, n, &at);
	assert(room == n); /* the ring has room for more than all receive buffers */
	(void)room;
	for (uint32_t i = 0; i < n; i++)
		*xsk_ring_prod__fill_addr(&xsk->fill, at + i) = addrs[i] & mask;
	xsk_ring_prod__submit(&xsk->fill, n);
	wake_fill(xsk);
}

TRACE_COLD static void trace_frames(const struct queue *queue, const struct device_desc *descs,
				    uint32_t n)
{
	for (uint32_t first = 0, i = 0, bytes = 0; i < n; i++) {
		bytes += descs[i].bytes;
		if (descs[i].options & DEVICE_DESC_MORE)
			continue;
		trace_sent(&(struct careful_trace_frame){
			.at = (uintptr_t)(queue->umem + descs[first].addr),
			.part_bytes = descs[first].bytes,
			.frame_bytes = bytes,
		});
		first = i + 1;
		bytes = 0;
	}
}

uint32_t xsk_tx(struct queue *queue, const struct device_desc *descs, uint32_t n)
{
	struct xsk_queue *xsk = to_xsk(queue);
	uint32_t room = xsk_prod_nb_free(&xsk->tx, n);
	uint32_t taken = whole_frames(descs, room < n ? room : n);
	uint32_t at = 0;

	if (!taken || !xsk_ring_prod__reserve(&xsk->tx, taken, &at))
		return 0;
	for (uint32_t i = 0; i < taken; i++)
		memcpy(xsk_ring_prod__tx_desc(&xsk->tx, at + i), &descs[i], sizeof(*descs));
	if (trace_captures())
		trace_frames(queue, descs, taken);
	/* The kick publishes the descriptors: a driver that polls the ring would start at once. */
	xsk->tx_held += taken;
	return taken;
}

static uint32_t tx_waiting(struct xsk_queue *xsk)
{
	return xsk->tx.cached_prod - __atomic_load_n(xsk->tx.consumer, __ATOMIC_ACQUIRE);
}

/* Reports whether a failed kick lost no frame (Documentation/networking/af_xdp.rst, and kick_tx() of
 * its sample). EAGAIN: device, socket buffer or budget is full. ENOBUFS: no memory for now. A
 * zero-copy kick only wakes the driver, so its frames stay in the ring. In copy mode EBUSY, from a
 * device without a qdisc, means a dropped frame. */
static bool is_harmless(int error, bool zerocopy)
{
	if (error == EAGAIN || error == ENOBUFS || error == EINTR)
		return true;
	return zerocopy && (error == EBUSY || error == ENETDOWN);
}

int xsk_kick(struct queue *queue)
{
	struct xsk_queue *xsk = to_xsk(queue);
	struct xsk_port *port = xsk_port_of(xsk);
	bool zerocopy = queue->info.zerocopy;
	int failed;

	if (!tx_waiting(xsk))
		return 0;
	/* Without a carrier the kernel would take frames and drop them; once published, even a
	 * poll() would do so. */
	if (!port->route.up && !route_up(&port->route))
		return -EAGAIN;
	if (xsk->tx_held) {
		xsk_ring_prod__submit(&xsk->tx, xsk->tx_held);
		xsk->tx_held = 0;
	}
	if (!xsk_ring_prod__needs_wakeup(&xsk->tx))
		return 0; /* the driver is already sending */
	xsk->kicks++;
	failed = sendto(xsk->queue.fd, NULL, 0, MSG_DONTWAIT, NULL, 0) < 0 ? errno : 0;
	if (failed && !is_harmless(failed, zerocopy))
		xsk->kicks_failed++;
	/* Once awake, a zero-copy driver takes the rest by itself. */
	if ((zerocopy && !failed) || !tx_waiting(xsk))
		return 0;
	xsk->kicks_again++;
	return -EAGAIN;
}

uint32_t xsk_complete(struct queue *queue, uint64_t *addrs, uint32_t n)
{
	struct xsk_queue *xsk = to_xsk(queue);
	uint32_t at, count = xsk_ring_cons__peek(&xsk->comp, n, &at);

	for (uint32_t i = 0; i < count; i++)
		addrs[i] = *xsk_ring_cons__comp_addr(&xsk->comp, at + i);
	if (count)
		xsk_ring_cons__release(&xsk->comp, count);
	return count;
}

void xsk_statistics(struct queue *queue, struct careful_device_statistics *out)
{
	struct xsk_queue *xsk = to_xsk(queue);
	struct xdp_statistics kernel = { 0 };
	socklen_t bytes = sizeof(kernel);

	/* An older kernel fills fewer fields. */
	getsockopt(xsk->queue.fd, SOL_XDP, XDP_STATISTICS, &kernel, &bytes);
	/* A zero-copy driver asks for more buffers than exist, because its ring has more places; so
	 * it finds the fill ring empty even if no frame is lost. */
	if (queue->info.zerocopy)
		kernel.rx_fill_ring_empty_descs = 0;
	*out = (struct careful_device_statistics){
		.rx_dropped = kernel.rx_dropped,
		.rx_ring_full = kernel.rx_ring_full,
		.rx_fill_ring_empty = kernel.rx_fill_ring_empty_descs,
		.rx_refused = xsk_bpf_refused(xsk_port_of(xsk)),
		.rx_invalid_descs = kernel.rx_invalid_descs,
		.tx_invalid_descs = kernel.tx_invalid_descs,
		.kicks = xsk->kicks,
		.kicks_again = xsk->kicks_again,
		.kicks_failed = xsk->kicks_failed,
		.program_detached = !xsk_attached(xsk_port_of(xsk)),
	};
}
