// SPDX-License-Identifier: BSD-2-Clause
/*
 * The AF_XDP device: opens one NIC queue and closes it again, in the right order, and
 * says what is in effect. The parts are the other files' (xsk.h).
 */
#include "device/xsk.h"

#include <assert.h>
#include <errno.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <careful/wire.h>

#include "device/compat.h"

enum {
	VETH_RING = 256, /* drivers/net/veth.c, VETH_RING_SIZE */
};

int xsk_fail(struct careful_error *error, int rc, const char *format, ...)
{
	va_list args;

	if (error) {
		va_start(args, format);
		vsnprintf(error->text, sizeof(error->text), format, args);
		va_end(args);
	}
	return rc;
}

static void xsk_admit(struct device *dev, uint32_t slot, uint64_t cookie, uint32_t window)
{
	struct xsk_device *xsk = to_xsk(dev);
	struct careful_peer_entry *peer = &xsk->peers[slot];

	assert(slot < CAREFUL_PEERS_MAX);
	if (peer->cookie) {
		__atomic_store_n(&peer->cookie, 0, __ATOMIC_RELEASE);
		/* A program that read the old cookie may still be about to write seq_last,
		 * or to redirect a frame. */
		xsk_bpf_grace(xsk);
	}
	peer->seq_last = 0;
	peer->window = window;
	peer->probe_last = 0;
	__atomic_store_n(&peer->cookie, cookie, __ATOMIC_RELEASE);
}

/* XDP writes the number last: what stands there while it stays the same belongs to it. */
static void xsk_probed(struct device *dev, uint32_t slot, struct ping_seen *probed)
{
	const volatile struct careful_peer_entry *peer = &to_xsk(dev)->peers[slot];
	int cpu = sched_getcpu();

	do {
		probed->probe = __atomic_load_n(&peer->probe_last, __ATOMIC_ACQUIRE);
		probed->at_ns = peer->probe_ns;
		probed->net_cpu = peer->probe_cpu;
		__atomic_thread_fence(__ATOMIC_ACQUIRE);
	} while (peer->probe_last != probed->probe);
	probed->cpu = cpu < 0 ? 0 : (uint32_t)cpu;
}

static struct careful_tune_entry *xsk_tune(struct device *dev, uint32_t slot)
{
	assert(slot <= CAREFUL_TUNE_DEFAULT);
	return &to_xsk(dev)->tune[slot];
}

static int xsk_resolve(struct device *dev, const union address *to, struct llhdr *llhdr)
{
	return route_resolve(&to_xsk(dev)->route, to, llhdr);
}

static void xsk_distrust(struct device *dev, const union address *to)
{
	route_distrust(&to_xsk(dev)->route, to);
}

static uint64_t xsk_now_ns(struct device *dev)
{
	struct timespec now;

	(void)dev;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000ULL + (uint64_t)now.tv_nsec;
}

static void xsk_random(struct device *dev, void *buf, uint32_t bytes)
{
	ssize_t got;

	(void)dev;
	while (bytes) {
		got = getrandom(buf, bytes, 0);
		assert(got > 0 || errno == EINTR);
		if (got <= 0)
			continue;
		buf = (uint8_t *)buf + got;
		bytes -= (uint32_t)got;
	}
}

static uint32_t xsk_events(struct device *dev)
{
	struct xsk_device *xsk = to_xsk(dev);
	uint32_t events = route_events(&xsk->route);

	if (events & DEVICE_MTU)
		xsk_take_mtu(xsk, xsk->route.mtu);
	return events;
}

static uint32_t xsk_wait_fds(struct device *dev, int *fds, uint32_t n)
{
	const struct xsk_device *xsk = to_xsk(dev);
	const int all[DEVICE_WAIT_FDS_MAX] = { xsk->fd, xsk->route.news.fd, xsk->ctrl[0],
					       xsk->ctrl[1] };
	uint32_t count = 0;

	for (int i = 0; i < DEVICE_WAIT_FDS_MAX && count < n; i++)
		if (all[i] >= 0)
			fds[count++] = all[i];
	return count;
}

/* Whatever of it is open; the order is that of xsk_open(), backwards. A child
 * of fork() closes its descriptors, which would keep the socket, the program and the
 * lock alive after the owner's end; what has a name is the owner's to remove. */
static void xsk_close(struct device *dev)
{
	struct xsk_device *xsk = to_xsk(dev);
	bool ours = xsk_ours(xsk);

	xsk_socket_close(xsk);
	if (ours && xsk->own_qdisc)
		qdisc_remove(&xsk->route.ask, xsk->netdev.ifindex);
	xsk_bpf_close(xsk);
	if (ours) /* no child has it */
		xsk_umem_unmap(xsk);
	xsk_ctrl_close(xsk);
	route_close(&xsk->route);
	xsk_unlock(xsk);
	free(xsk);
}

static const struct device_ops xsk_ops = {
	.rx = xsk_rx,
	.fill = xsk_fill,
	.tx = xsk_tx,
	.kick = xsk_kick,
	.complete = xsk_complete,
	.ctrl_send = xsk_ctrl_send,
	.ctrl_recv = xsk_ctrl_recv,
	.stamps = xsk_stamps,
	.admit = xsk_admit,
	.probed = xsk_probed,
	.tune = xsk_tune,
	.resolve = xsk_resolve,
	.distrust = xsk_distrust,
	.now_ns = xsk_now_ns,
	.random = xsk_random,
	.events = xsk_events,
	.wait_fds = xsk_wait_fds,
	.statistics = xsk_statistics,
	.close = xsk_close,
};

static int read_options(struct xsk_device *xsk, const struct careful_options *options,
			struct careful_error *error)
{
	const char *instance = options->instance ? options->instance : options->ifname;
	struct device *dev = &xsk->dev;

	dev->queue = (uint16_t)options->queue;
	dev->chunk_bytes = XSK_CHUNK_BYTES;
	dev->rx_chunks = options->rx_buffers ? options->rx_buffers : XSK_BUFFERS_DEFAULT;
	dev->tx_chunks = options->tx_buffers ? options->tx_buffers : XSK_BUFFERS_DEFAULT;
	xsk->peers_count = options->peers ? options->peers : XSK_PEERS_DEFAULT;
	xsk->port = options->port ? (uint16_t)options->port : CAREFUL_PORT_DEFAULT;
	if (options->port > 65535)
		return xsk_fail(error, -EINVAL, "port %u: the largest is 65535", options->port);
	if (xsk->peers_count > CAREFUL_PEERS_MAX)
		return xsk_fail(error, -EINVAL, "peers %u: at most %u", xsk->peers_count,
				CAREFUL_PEERS_MAX);
	if (dev->rx_chunks & (dev->rx_chunks - 1) || dev->rx_chunks > XSK_BUFFERS_MAX)
		return xsk_fail(error, -EINVAL, "receive buffers %u: a power of two, at most %u",
				dev->rx_chunks, XSK_BUFFERS_MAX);
	if (dev->tx_chunks > XSK_BUFFERS_MAX)
		return xsk_fail(error, -EINVAL, "send buffers %u: at most %u", dev->tx_chunks,
				XSK_BUFFERS_MAX);
	if (!instance || !instance[0] || strlen(instance) >= sizeof(xsk->instance) ||
	    strchr(instance, '/') || instance[0] == '.')
		return xsk_fail(error, -EINVAL,
				"instance \"%s\": 1 to %zu characters, no / and no leading dot",
				instance ? instance : "", sizeof(xsk->instance) - 1);
	memcpy(xsk->instance, instance, strlen(instance) + 1);
	return 0;
}

/* Is there AF_XDP, and may we? */
static int check_kernel(const char *ifname, struct careful_error *error)
{
	int fd = socket(AF_XDP, SOCK_RAW | SOCK_CLOEXEC, 0);
	int rc = -errno;

	if (fd >= 0) {
		close(fd);
		return 0;
	}
	if (rc == -EPERM)
		return xsk_fail(error, rc,
				"%s: no permission for an AF_XDP socket; run as root (or with "
				"CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF)",
				ifname);
	return xsk_fail(error, rc, "this kernel has no AF_XDP sockets (CONFIG_XDP_SOCKETS): %s",
			strerror(-rc));
}

/* R: what every resource on the way of a frame can hold (DESIGN: Windows). */
static void read_bounds(struct xsk_device *xsk)
{
	struct careful_device_info *info = &xsk->dev.info;
	bool generic = info->xdp_mode == CAREFUL_XDP_GENERIC;
	bool veth = !strcmp(xsk->netdev.driver, "veth");

	info->bounds[CAREFUL_BOUND_UMEM] = xsk->dev.rx_chunks;
	info->bounds[CAREFUL_BOUND_FILL_RING] = xsk->fill.size;
	info->bounds[CAREFUL_BOUND_RX_RING] = xsk->rx.size;
	info->bounds[CAREFUL_BOUND_DEVICE_RING] = xsk->netdev.rx_ring;
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

static void fill_info(struct xsk_device *xsk)
{
	struct careful_device_info *info = &xsk->dev.info;

	xsk->dev.mtu = xsk->netdev.mtu;
	memcpy(info->ifname, xsk->netdev.name, sizeof(info->ifname));
	memcpy(info->driver, xsk->netdev.driver, sizeof(info->driver));
	info->ifindex = xsk->netdev.ifindex;
	info->queue = xsk->dev.queue;
	info->mtu = xsk->netdev.mtu;
	read_bounds(xsk);
}

static void fill_all(struct xsk_device *xsk)
{
	for (uint32_t i = 0; i < xsk->dev.rx_chunks; i++) {
		uint64_t addr = (uint64_t)i * xsk->dev.chunk_bytes;

		xsk_fill(&xsk->dev, &addr, 1);
	}
}

/* A veth with a full ring answers EAGAIN if it has a qdisc, and drops if it has none. */
static int add_qdisc(struct xsk_device *xsk, struct careful_error *error)
{
	int rc = 0;

	if (!strcmp(xsk->netdev.driver, "veth"))
		rc = qdisc_add(&xsk->route.ask, xsk->netdev.ifindex, &xsk->own_qdisc);
	if (rc)
		return xsk_fail(error, rc, "%s: cannot install a pfifo: %s", xsk->netdev.name,
				strerror(-rc));
	return 0;
}

static int open_parts(struct xsk_device *xsk, const struct careful_options *options,
		      struct careful_error *error)
{
	int rc;

	rc = netdev_read(options->ifname, &xsk->netdev, error);
	if (!rc)
		rc = read_options(xsk, options, error);
	if (!rc)
		rc = netdev_check(&xsk->netdev, options->queue, xsk->port, error);
	if (!rc)
		rc = check_kernel(options->ifname, error);
	if (!rc)
		rc = xsk_lock(xsk, error);
	if (rc)
		return rc;
	rc = route_open(&xsk->route, &xsk->netdev, xsk->port);
	if (rc)
		return xsk_fail(error, rc, "no netlink socket: %s", strerror(-rc));
	rc = xsk_ctrl_open(xsk, error);
	if (!rc)
		rc = xsk_umem_map(xsk, error);
	if (!rc)
		rc = xsk_bpf_open(xsk, options, error);
	/* With our program on it the interface is ours, and so is its qdisc. */
	if (!rc)
		rc = add_qdisc(xsk, error);
	if (!rc)
		rc = xsk_socket_open(xsk, options, error);
	if (!rc)
		rc = xsk_bpf_redirect(xsk, error);
	return rc;
}

int xsk_open_without(const struct careful_options *options, uint32_t without, struct device **dev,
		     struct careful_error *error)
{
	struct xsk_device *xsk = calloc(1, sizeof(*xsk));
	int rc;

	if (!xsk)
		return xsk_fail(error, -ENOMEM, "out of memory");
	xsk->dev.ops = &xsk_ops;
	xsk->without = without;
	xsk->owner = getpid();
	xsk->fd = xsk->lock = xsk->ctrl[0] = xsk->ctrl[1] = -1;
	xsk->route.ask.fd = xsk->route.news.fd = -1;
	rc = open_parts(xsk, options, error);
	if (rc) {
		xsk_close(&xsk->dev);
		return rc;
	}
	fill_all(xsk);
	fill_info(xsk);
	*dev = &xsk->dev;
	return 0;
}

int xsk_open(const struct careful_options *options, struct device **dev,
	     struct careful_error *error)
{
	return xsk_open_without(options, 0, dev, error);
}
