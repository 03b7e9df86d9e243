// SPDX-License-Identifier: BSD-2-Clause
/* UMEM and its socket: memory, rings and the bind, which tries the fastest mode first. */
#include <errno.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "device/compat.h"
#include "device/xsk/xsk.h"

enum {
	HUGEPAGE_BYTES = 2 << 20,
	BIND_TRIES = 100, /* the kernel may still be removing a dead owner's socket */
	BIND_PAUSE_US = 10000,
	/* Zero-copy drivers reserve an skb's tail in multi-buffer chunks, and round down. */
	ZEROCOPY_UNIT_BYTES = 128,
	/* Drivers put a header before a frame: virtio_net needs 12 bytes, and refuses a UMEM
	 * without them (virtnet_xsk_pool_enable()). */
	ZEROCOPY_HEADROOM = 64,
	/* Factor for the fill and TX rings. The kernel gives us a frame before it releases the
	 * frame's ring entry (xsk_flush(), net/xdp/xsk.c), so the ring can look full when we return
	 * the buffer. */
	RING_SLACK = 2,
};

static uint32_t ring_size(uint32_t n)
{
	uint32_t power = 64;

	while (power < n)
		power <<= 1;
	return power;
}

/* Maps memory aligned to a hugepage, so that the kernel can use one. */
static void *map_aligned(size_t bytes)
{
	size_t spare = HUGEPAGE_BYTES;
	uint8_t *memory = mmap(NULL, bytes + spare, PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	size_t before;

	if (memory == MAP_FAILED)
		return NULL;
	before = -(uintptr_t)memory & (HUGEPAGE_BYTES - 1);
	if (before)
		munmap(memory, before);
	if (spare > before)
		munmap(memory + before + bytes, spare - before);
	return memory + before;
}

static int umem_map(struct xsk_queue *xsk, struct careful_error *error)
{
	struct queue *queue = &xsk->queue;
	size_t bytes = (size_t)(queue->rx_chunks + queue->tx_chunks) * queue->chunk_bytes;
	size_t mapped = (bytes + HUGEPAGE_BYTES - 1) & ~(size_t)(HUGEPAGE_BYTES - 1);
	bool huge = !(xsk_port_of(xsk)->without & XSK_WITHOUT_HUGEPAGES);
	uint8_t *memory = MAP_FAILED;

	if (huge)
		memory = mmap(NULL, mapped, PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
	queue->info.hugepages = memory != MAP_FAILED;
	if (memory == MAP_FAILED) {
		memory = map_aligned(mapped);
		if (!memory)
			return explain(error, -ENOMEM, "no memory for %zu bytes of buffers", bytes);
		if (huge)
			madvise(memory, mapped, MADV_HUGEPAGE);
		madvise(memory, mapped, MADV_POPULATE_WRITE);
		/* asks for transparent hugepages */
		queue->info.hugepages = huge && !madvise(memory, mapped, MADV_COLLAPSE);
	}
	madvise(memory, mapped, MADV_DONTFORK); /* a child does not need the area */
	queue->umem = memory;
	queue->info.umem_bytes = bytes;
	xsk->umem_bytes = mapped;
	return 0;
}

void xsk_umem_unmap(struct xsk_queue *xsk)
{
	if (xsk->queue.umem)
		munmap(xsk->queue.umem, xsk->umem_bytes);
	xsk->queue.umem = NULL;
}

static int bind_once(struct xsk_queue *xsk, uint32_t flags)
{
	struct queue *queue = &xsk->queue;
	const char *ifname = xsk_port_of(xsk)->netdev.name;
	const struct xsk_umem_config umem = {
		.fill_size = RING_SLACK * ring_size(queue->rx_chunks),
		.comp_size = ring_size(queue->tx_chunks),
		.frame_size = queue->chunk_bytes,
		.frame_headroom = flags & XDP_ZEROCOPY ? ZEROCOPY_HEADROOM : 0,
	};
	const struct xsk_socket_config socket = {
		.rx_size = ring_size(queue->rx_chunks),
		.tx_size = RING_SLACK * ring_size(queue->tx_chunks),
		.libxdp_flags = XSK_LIBXDP_FLAGS__INHIBIT_PROG_LOAD,
		.bind_flags = (uint16_t)flags,
	};
	int rc;

	rc = xsk_umem__create(&xsk->umem, queue->umem, queue->info.umem_bytes, &xsk->fill,
			      &xsk->comp, &umem);
	if (rc)
		return rc;
	rc = xsk_socket__create(&xsk->socket, ifname, queue->index, xsk->umem, &xsk->rx, &xsk->tx,
				&socket);
	if (!rc)
		return 0;
	xsk->socket = NULL;
	xsk_umem__delete(xsk->umem);
	xsk->umem = NULL;
	return rc;
}

static int bind_patiently(struct xsk_queue *xsk, uint32_t flags)
{
	int rc = -EBUSY;

	for (int i = 0; rc == -EBUSY && i < BIND_TRIES; i++) {
		if (i)
			usleep(BIND_PAUSE_US);
		rc = bind_once(xsk, flags);
	}
	return rc;
}

static uint32_t buffer_bytes(const struct xsk_queue *xsk, bool zerocopy, bool multibuffer)
{
	/* The chunk without headroom, as in xsk_pool_get_rx_frame_size() (net/xdp/xsk.c). In copy
	 * mode the kernel fills each chunk completely. */
	uint32_t bytes = xsk->queue.chunk_bytes - XDP_PACKET_HEADROOM;

	if (!zerocopy)
		return bytes;
	bytes -= ZEROCOPY_HEADROOM + (multibuffer ? XSK_SKB_TAIL_BYTES : 0);
	return bytes & ~(uint32_t)(ZEROCOPY_UNIT_BYTES - 1);
}

/* Returns the largest frame without multi-buffer. The driver redirects a frame only if the frame,
 * its headroom and its tail fit a page. */
static uint32_t single_frame_bytes(const struct xsk_queue *xsk)
{
	return xsk->queue.chunk_bytes - XDP_PACKET_HEADROOM - XSK_SKB_TAIL_BYTES;
}

/* Maps the buffers; zero-copy needs twice as many as are granted to peers (xsk_bounds.c). */
static int prepare_umem(struct xsk_queue *xsk, uint32_t flags, struct careful_error *error)
{
	uint32_t chunks = xsk->rx_buffers * (flags & XDP_ZEROCOPY ? 2 : 1);

	if (xsk->queue.umem && xsk->queue.rx_chunks == chunks)
		return 0;
	xsk_umem_unmap(xsk);
	xsk->queue.rx_chunks = chunks;
	return umem_map(xsk, error);
}

/* Tries the possible modes, best first. Returns the bind flags in effect, or -errno. */
static int bind_best(struct xsk_queue *xsk, bool require_zerocopy, struct careful_error *error)
{
	const struct xsk_port *port = xsk_port_of(xsk);
	bool zerocopy = port->xdp_mode == CAREFUL_XDP_NATIVE && !port->netdev.zerocopy_broken;
	bool sg = xsk_bpf_frags(port) && !(port->without & XSK_WITHOUT_SG);
	bool single = port->netdev.mtu + ETHERNET_BYTES <= single_frame_bytes(xsk);
	const struct {
		uint32_t flags;
		bool wanted;
	} tries[] = {
		{ XDP_ZEROCOPY | XDP_USE_SG, zerocopy && sg },
		{ XDP_ZEROCOPY, zerocopy && (single || require_zerocopy) },
		{ XDP_COPY | XDP_USE_SG, !require_zerocopy && sg },
		{ XDP_COPY, !require_zerocopy },
	};
	int rc = -EOPNOTSUPP;

	for (size_t i = 0; i < sizeof(tries) / sizeof(tries[0]); i++) {
		if (!tries[i].wanted)
			continue;
		rc = prepare_umem(xsk, tries[i].flags, error);
		if (rc)
			continue; /* the next mode may need less */
		rc = bind_patiently(xsk, tries[i].flags | XDP_USE_NEED_WAKEUP);
		if (!rc)
			return (int)tries[i].flags;
		if (rc == -EBUSY || rc == -EPERM || rc == -ENETDOWN || rc == -ENODEV)
			break;
	}
	return rc;
}

/* Returns advice for an errno with a special meaning in virtio_net, or NULL. Queue and headroom are
 * right when we bind, so EINVAL means the DMA API (virtnet_xsk_pool_enable()) or, before Linux 6.3,
 * a driver without zero-copy. ENOENT comes from virtqueue_reset(). */
static const char *virtio_advice(int rc)
{
	if (rc == -EINVAL)
		return "the host must let it use the DMA API "
		       "(QEMU: iommu_platform=on,disable-legacy=on), and this Linux must be 6.13 or later";
	if (rc == -ENOENT)
		return "the host must let it reset a queue (QEMU 7.2 or later: queue_reset=on)";
	if (rc == -EOPNOTSUPP)
		return "it has none before Linux 6.13";
	return NULL;
}

const char *xsk_zerocopy_advice(const char *driver, int rc)
{
	const char *virtio = !strcmp(driver, "virtio_net") ? virtio_advice(rc) : NULL;

	if (virtio)
		return virtio;
	switch (rc) {
	case -EOPNOTSUPP:
	case -ENOTSUPP:
		return "it has none, or not in this configuration";
	case -EINVAL:
		return "this queue, ring or MTU does not suit: ethtool -L, ethtool -G";
	case -ENOMEM:
	case -EIO:
		return "UMEM could not be mapped for the device: use fewer buffers, or check its IOMMU";
	default:
		return "see dmesg";
	}
}

int xsk_refuse_memlock(uint64_t bytes, struct careful_error *error)
{
	struct rlimit limit = { 0 };

	getrlimit(RLIMIT_MEMLOCK, &limit);
	return explain(error, -ENOBUFS,
		       "%llu KiB of buffers and this user's locked memory exceed the limit of %llu "
		       "KiB (ulimit -l): raise the limit, or run with CAP_IPC_LOCK",
		       (unsigned long long)bytes >> 10, (unsigned long long)limit.rlim_cur >> 10);
}

int xsk_refuse_zerocopy(const struct xsk_port *port, int rc, struct careful_error *error)
{
	const char *ifname = port->netdev.name, *driver = port->netdev.driver;

	if (port->xdp_mode != CAREFUL_XDP_NATIVE)
		return refuse(error, -EOPNOTSUPP, require_zerocopy,
			      "%s: zero-copy needs native XDP, %s%s; or let frames be copied",
			      ifname,
			      port->native_refused[0] ? "which was refused: " :
							"but the XDP mode is generic",
			      port->native_refused);
	if (port->netdev.zerocopy_broken)
		return refuse(
			error, -EOPNOTSUPP, require_zerocopy,
			"%s: with zero-copy, driver %s wakes the wrong interrupt, so that no frame "
			"passes: boot Linux 7.0, which fixes that, or let frames be copied",
			ifname, driver);
	return refuse(error, -EOPNOTSUPP, require_zerocopy,
		      "%s: driver %s refuses zero-copy (%s): %s; or let frames be copied", ifname,
		      driver, strerror(-rc), xsk_zerocopy_advice(driver, rc));
}

static int refuse_bind(const struct xsk_queue *xsk, int rc, bool require_zerocopy,
		       struct careful_error *error)
{
	const struct xsk_port *port = xsk_port_of(xsk);
	const char *ifname = port->netdev.name;

	if (rc == -ENOMEM && !xsk->queue.umem)
		return rc; /* umem_map() has filled *error */
	if (rc == -EBUSY)
		return explain(error, rc, "queue %u of %s already has an AF_XDP socket",
			       xsk->queue.index, ifname);
	if (rc == -ENOBUFS)
		return xsk_refuse_memlock(xsk->queue.info.umem_bytes, error);
	if (!require_zerocopy || rc == -ENETDOWN || rc == -ENODEV)
		return explain(error, rc, "%s: cannot bind an AF_XDP socket to queue %u: %s",
			       ifname, xsk->queue.index, strerror(-rc));
	return xsk_refuse_zerocopy(port, rc, error);
}

/* Sizes the socket's limits so that they never stop a frame. */
static void tune_socket(struct xsk_queue *xsk)
{
	/* The kernel accounts up to twice the chunk for a frame in flight. */
	const int sndbuf = (int)(xsk->queue.tx_chunks * xsk->queue.chunk_bytes * 2);
	const uint32_t budget = ring_size(xsk->queue.tx_chunks);

	setsockopt(xsk->queue.fd, SOL_SOCKET, SO_SNDBUFFORCE, &sndbuf, sizeof(sndbuf));
	if (!(xsk_port_of(xsk)->without & XSK_WITHOUT_BUDGET))
		xsk->tx_budget = !setsockopt(xsk->queue.fd, SOL_XDP, XDP_MAX_TX_SKB_BUDGET, &budget,
					     sizeof(budget));
}

static void read_result(struct xsk_queue *xsk, uint32_t flags)
{
	struct queue *queue = &xsk->queue;
	uint32_t frame_bytes = xsk_port_of(xsk)->netdev.mtu + ETHERNET_BYTES;
	bool zerocopy = flags & XDP_ZEROCOPY, sg = flags & XDP_USE_SG;
	uint32_t largest;

	queue->buffer_bytes = buffer_bytes(xsk, zerocopy, sg);
	queue->segments_max = sg ? DEVICE_SEGMENTS_MAX : 1;
	largest = sg ? queue->segments_max * queue->buffer_bytes : single_frame_bytes(xsk);
	/* Windows are sized for these frames; a larger MTU later does not enlarge them. */
	queue->frame_bytes_max = frame_bytes < largest ? frame_bytes : largest;
	queue->info.zerocopy = zerocopy;
	queue->info.multibuffer = sg;
	queue->info.need_wakeup = 1;
	queue->info.buffer_bytes = queue->buffer_bytes;
	queue->info.frame_bytes = queue->frame_bytes_max;
}

int xsk_socket_open(struct xsk_queue *xsk, bool require_zerocopy, struct careful_error *error)
{
	int flags = bind_best(xsk, require_zerocopy, error);

	if (flags < 0)
		return refuse_bind(xsk, flags, require_zerocopy, error);
	xsk->queue.fd = xsk_socket__fd(xsk->socket);
	tune_socket(xsk);
	read_result(xsk, (uint32_t)flags);
	return 0;
}

void xsk_socket_close(struct xsk_queue *xsk)
{
	if (xsk->socket)
		xsk_socket__delete(xsk->socket);
	if (xsk->umem)
		xsk_umem__delete(xsk->umem);
	xsk->socket = NULL;
	xsk->umem = NULL;
	xsk->queue.fd = -1;
}
