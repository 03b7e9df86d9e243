// SPDX-License-Identifier: BSD-2-Clause
/* The interface of an instance: opens and closes its parts in order; admits peers at XDP. */
#include "device/xsk/xsk.h"

#include <assert.h>
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include <careful/wire.h>

#include "base/clock.h"
#include "device/compat.h"
#include "device/entry.h"

static void xsk_settle(struct port *port, uint32_t slot)
{
	struct xsk_port *xsk = to_xsk_port(port);

	xsk->closing[slot] = xsk_grace_start(xsk);
}

static bool xsk_closed(struct port *port, uint32_t slot)
{
	const struct xsk_port *xsk = to_xsk_port(port);

	return xsk_grace_over(xsk, xsk->closing[slot]);
}

/* Opens the slot to frames with this cookie; 0 closes it. */
static struct careful_peer_entry *xsk_admit(struct port *port, uint32_t slot, uint64_t cookie,
					    uint32_t window, uint32_t buffer_bytes, bool sealed)
{
	struct xsk_port *xsk = to_xsk_port(port);
	struct careful_peer_entry *peer = &xsk->peers[slot];

	assert(slot < CAREFUL_PEERS_MAX);
	if (!cookie) {
		__atomic_store_n(&peer->cookie, 0, __ATOMIC_RELEASE);
		xsk_settle(port, slot);
		return peer;
	}
	assert(!peer->cookie && xsk_closed(port, slot));
	peer->seq_last = 0;
	peer->seq_taken = 0;
	peer->window = sealed ? 0 : window;
	peer->sealed_window = sealed ? window : 0;
	peer->filled = 0;
	peer->buffer_bytes = buffer_bytes;
	peer->limit = 0; /* so that XDP reads may_fill at the first frame */
	peer->may_fill = window;
	peer->probe_last = 0;
	peer->train = 0;
	__atomic_store_n(&peer->cookie, cookie, __ATOMIC_RELEASE);
	return peer;
}

/* Reads the last ping, and again if its number, which XDP writes last, changes meanwhile. */
static void xsk_probed(struct port *port, uint32_t slot, struct ping_seen *probed)
{
	const struct xsk_port *xsk = to_xsk_port(port);
	const volatile struct careful_peer_entry *peer = &xsk->peers[slot];
	int cpu = sched_getcpu();

	do {
		probed->probe = __atomic_load_n(&peer->probe_last, __ATOMIC_ACQUIRE);
		probed->at_ns = peer->probe_ns + xsk->clock_ahead_ns;
		probed->net_cpu = peer->probe_cpu;
		__atomic_thread_fence(__ATOMIC_ACQUIRE);
	} while (peer->probe_last != probed->probe);
	probed->cpu = cpu < 0 ? 0 : (uint32_t)cpu;
}

static void xsk_train(struct port *port, uint32_t slot, uint32_t number)
{
	entry_train(&to_xsk_port(port)->peers[slot], number);
}

static void xsk_trained(struct port *port, uint32_t slot, struct train_seen *seen)
{
	entry_trained(&to_xsk_port(port)->peers[slot], seen);
}

static struct careful_tune_entry *xsk_tune(struct port *port, uint32_t slot)
{
	assert(slot <= CAREFUL_TUNE_DEFAULT);
	return &to_xsk_port(port)->tune[slot];
}

static struct careful_live_entry *xsk_live(struct port *port, uint32_t slot)
{
	assert(slot < to_xsk_port(port)->peers_count);
	return &to_xsk_port(port)->live[slot];
}

static struct careful_arrivals *xsk_arrivals(struct port *port)
{
	return to_xsk_port(port)->arrivals;
}

static int xsk_resolve(struct port *port, const union address *to, struct llhdr *llhdr)
{
	return route_resolve(&to_xsk_port(port)->route, to, llhdr);
}

static void xsk_source(struct port *port, union address *to)
{
	route_source(&to_xsk_port(port)->route, to);
}

static void xsk_distrust(struct port *port, const union address *to)
{
	route_distrust(&to_xsk_port(port)->route, to);
}

static uint64_t xsk_now_ns(struct port *port)
{
	(void)port;
	return clock_now_ns();
}

static void xsk_random(struct port *port, void *buf, uint32_t bytes)
{
	ssize_t n;

	(void)port;
	while (bytes) {
		n = getrandom(buf, bytes, 0);
		assert(n > 0 || errno == EINTR);
		if (n <= 0)
			continue;
		buf = (uint8_t *)buf + n;
		bytes -= (uint32_t)n;
	}
}

/* Returns how far our clock is ahead of XDP's; nonzero in a time namespace. */
static uint64_t clock_ahead_ns(void)
{
	FILE *file = fopen("/proc/self/timens_offsets", "re");
	long long seconds = 0, ns = 0;

	if (!file)
		return 0;
	if (fscanf(file, "monotonic %lld %lld", &seconds, &ns) != 2) // NOLINT(cert-err34-c)
		seconds = ns = 0;
	fclose(file);
	return (uint64_t)(seconds * 1000000000LL + ns);
}

static uint32_t xsk_downs(struct port *port)
{
	return route_downs(&to_xsk_port(port)->route);
}

static uint32_t xsk_events(struct port *port)
{
	struct xsk_port *xsk = to_xsk_port(port);
	uint32_t events = route_events(&xsk->route);

	if (events & DEVICE_MTU)
		port->mtu = xsk->route.mtu;
	if (events & DEVICE_QDISC && xsk->own_qdisc) { /* somebody else's qdisc stays */
		qdisc_add(&xsk->route.ask, xsk->netdev.ifindex, &xsk->own_qdisc);
		port->qdiscs += xsk->own_qdisc;
	}
	return events;
}

static uint32_t xsk_wait_fds(struct port *port, int *fds, uint32_t n)
{
	const struct xsk_port *xsk = to_xsk_port(port);
	const int all[] = { xsk->route.news.fd, xsk->ctrl[0], xsk->ctrl[1] };
	uint32_t count = 0;

	for (int i = 0; i < 3 && count < n; i++)
		if (all[i] >= 0)
			fds[count++] = all[i];
	return count;
}

/* Closes what is open, in reverse order of xsk_port_open(). A child of fork() closes its
 * descriptors, too: they would keep socket, program and lock alive after the owner's end. Only the
 * owner removes names from the file system. */
static void close_port(struct port *port)
{
	struct xsk_port *xsk = to_xsk_port(port);

	if (xsk_is_owner(xsk) && xsk->own_qdisc)
		qdisc_remove(&xsk->route.ask, xsk->netdev.ifindex);
	xsk_group_close(xsk);
	xsk_grace_close(xsk);
	xsk_bpf_close(xsk);
	xsk_ctrl_close(xsk);
	route_close(&xsk->route);
	xsk_unlock(xsk);
	free(xsk);
}

static const struct port_ops port_ops = {
	.ctrl_send = xsk_ctrl_send,
	.ctrl_recv = xsk_ctrl_recv,
	.stamps = xsk_stamps,
	.admit = xsk_admit,
	.settle = xsk_settle,
	.closed = xsk_closed,
	.group = xsk_group,
	.grouped = xsk_grouped,
	.multicast = xsk_multicast,
	.probed = xsk_probed,
	.train = xsk_train,
	.trained = xsk_trained,
	.tune = xsk_tune,
	.live = xsk_live,
	.arrivals = xsk_arrivals,
	.resolve = xsk_resolve,
	.source = xsk_source,
	.distrust = xsk_distrust,
	.now_ns = xsk_now_ns,
	.random = xsk_random,
	.downs = xsk_downs,
	.events = xsk_events,
	.wait_fds = xsk_wait_fds,
	.close = close_port,
};

static void take_options(struct xsk_port *xsk, const struct careful_options *options)
{
	const char *instance = options->instance ? options->instance : options->ifname;

	xsk->peers_count = options->peers ? options->peers : XSK_PEERS_DEFAULT;
	xsk->udp = options->port ? (uint16_t)options->port : CAREFUL_PORT_DEFAULT;
	snprintf(xsk->first, sizeof(xsk->first), "%s", instance);
	snprintf(xsk->instance, sizeof(xsk->instance), "%s", instance);
	xsk->port.spread.straight = netdev_straight(&xsk->netdev);
	if (options->queues < 2)
		return;
	xsk->port.spread.count = (uint16_t)options->queues;
	xsk->port.spread.index = (uint16_t)options->queue;
	if (options->queue)
		snprintf(xsk->instance, sizeof(xsk->instance), "%s+%u", instance, options->queue);
}

/* With a qdisc, a veth returns EAGAIN when its ring is full; without one it drops frames. */
static int add_qdisc(struct xsk_port *xsk, struct careful_error *error)
{
	int rc = 0;

	if (!strcmp(xsk->netdev.driver, "veth") && !xsk_dispatcher_joins(xsk))
		rc = qdisc_add(&xsk->route.ask, xsk->netdev.ifindex, &xsk->own_qdisc);
	if (rc)
		return explain(error, rc, "%s: cannot install a pfifo: %s", xsk->netdev.name,
			       strerror(-rc));
	return 0;
}

static int open_parts(struct xsk_port *xsk, const struct careful_options *options,
		      struct careful_error *error)
{
	int rc = xsk_check_all(options, &xsk->netdev, error);

	if (rc)
		return rc;
	take_options(xsk, options);
	rc = xsk_lock(xsk, error);
	if (rc)
		return rc;
	rc = route_open(&xsk->route, &xsk->netdev, xsk->udp);
	if (rc)
		return explain(error, rc, "cannot open a netlink socket: %s", strerror(-rc));
	xsk->port.mtu = xsk->route.mtu;
	rc = xsk_ctrl_open(xsk, error);
	if (!rc)
		rc = xsk_bpf_open(xsk, (uint16_t)options->queue, options->xdp_mode, error);
	if (!rc)
		rc = xsk_grace_open(xsk, error);
	/* Our program is attached now, so the interface and its qdisc are ours. */
	if (!rc)
		rc = add_qdisc(xsk, error);
	return rc;
}

int xsk_port_open(const struct careful_options *options, uint32_t without, struct port **port,
		  struct careful_error *error)
{
	struct xsk_port *xsk = calloc(1, sizeof(*xsk));
	int rc;

	if (!xsk)
		return explain(error, -ENOMEM, "out of memory");
	xsk->port.ops = &port_ops;
	xsk->without = without;
	xsk->owner = getpid();
	xsk->clock_ahead_ns = clock_ahead_ns();
	xsk->lock = xsk->link = xsk->programs = xsk->ctrl[0] = xsk->ctrl[1] = -1;
	xsk->group_fds[0] = xsk->group_fds[1] = -1;
	xsk->route.ask.fd = xsk->route.news.fd = -1;
	rc = open_parts(xsk, options, error);
	if (rc) {
		close_port(&xsk->port);
		return rc;
	}
	*port = &xsk->port;
	return 0;
}
