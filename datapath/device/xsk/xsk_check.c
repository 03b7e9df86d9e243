// SPDX-License-Identifier: BSD-2-Clause
/* careful_check(): what careful_open() requires and `doctor` shows. A check changes nothing.
 * xsk_host.c has the checks of the machine. */
#include <errno.h>
#include <linux/capability.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <string.h>
#include <sys/resource.h>

#include <careful/wire.h>

#include "device/compat.h"
#include "device/xsk/xsk.h"

enum {
	QUEUE_SUFFIX_BYTES = 3, /* of the instance's name, for queues other than the first */
	FIRST_OF_INTERFACE = CAREFUL_CHECK_INTERFACE,
	LAST_BEFORE_OPEN = CAREFUL_CHECK_STEERING,
};

struct check_input {
	const struct careful_options *options;
	struct xsk_port port; /* never opened */
	struct careful_error *error;
};

static int check_memlock(const struct check_input *in)
{
	const struct careful_options *options = in->options;
	uint64_t rx = options->rx_buffers ? options->rx_buffers : XSK_BUFFERS_DEFAULT;
	uint64_t tx = options->tx_buffers ? options->tx_buffers : XSK_BUFFERS_DEFAULT;
	uint64_t bytes = (rx + tx) * XSK_CHUNK_BYTES;
	struct rlimit limit;

	if (xsk_can(CAP_IPC_LOCK) || getrlimit(RLIMIT_MEMLOCK, &limit) ||
	    limit.rlim_cur == RLIM_INFINITY)
		return explain(in->error, 0, "no limit");
	if (limit.rlim_cur < bytes)
		return xsk_refuse_memlock(bytes, in->error);
	return explain(in->error, 0, "up to %llu KiB (ulimit -l)",
		       (unsigned long long)limit.rlim_cur >> 10);
}

static bool is_buffer_count(uint32_t buffers)
{
	return !(buffers & (buffers - 1)) && buffers <= CAREFUL_BUFFERS_MAX;
}

static int check_options(const struct check_input *in)
{
	const struct careful_options *o = in->options;
	const char *name = o->instance ? o->instance : o->ifname;
	bool rx = is_buffer_count(o->rx_buffers);
	size_t most = XSK_INSTANCE_BYTES - 1 - (o->queues > 1 ? QUEUE_SUFFIX_BYTES : 0);

	if (!rx || !is_buffer_count(o->tx_buffers))
		return explain_option(in->error, -EINVAL, rx ? "tx_buffers" : "rx_buffers",
				      "%u must be a power of two up to %u",
				      rx ? o->tx_buffers : o->rx_buffers, CAREFUL_BUFFERS_MAX);
	if (o->port > 65535)
		return refuse(in->error, -EINVAL, port, "%u is more than 65535", o->port);
	if (o->peers > CAREFUL_PEERS_MAX)
		return refuse(in->error, -EINVAL, peers, "%u is more than %u", o->peers,
			      CAREFUL_PEERS_MAX);
	if (!name || !name[0] || strlen(name) > most || strchr(name, '/') || name[0] == '.')
		return refuse(in->error, -EINVAL, instance,
			      "\"%s\" needs 1 to %zu characters, no / or leading dot",
			      name ? name : "", most);
	return explain(in->error, 0, "instance %s", name);
}

static int check_interface(const struct check_input *in)
{
	const struct netdev *netdev = &in->port.netdev;

	if (netdev->flags & IFF_LOOPBACK)
		return explain(in->error, -EINVAL,
			       "%s is a loopback interface; careful needs an Ethernet interface",
			       netdev->name);
	/* The kernel accepts program and socket, but no frame would pass. */
	if (netdev->hardware != ARPHRD_ETHER)
		return explain(
			in->error, -EINVAL,
			"%s (driver %s) is not an Ethernet interface: careful cannot use a tunnel, or IP over InfiniBand",
			netdev->name, netdev->driver);
	if (netdev->master[0])
		return explain(in->error, -EBUSY,
			       "%s is a port of %s (%s), which takes all frames: `ip link set "
			       "%s nomaster`",
			       netdev->name, netdev->master, netdev->master_kind, netdev->name);
	if (!(netdev->flags & IFF_UP))
		return explain(in->error, -ENETDOWN, "%s is down: `ip link set %s up`",
			       netdev->name, netdev->name);
	return explain(in->error, 0, "%s is up (driver %s)", netdev->name, netdev->driver);
}

static int check_mtu(const struct check_input *in)
{
	const struct netdev *netdev = &in->port.netdev;

	if (netdev->mtu < CAREFUL_MTU_MIN)
		return explain(in->error, -EMSGSIZE,
			       "%s: an MTU of %u is too small; the least is %u: `ip link set %s "
			       "mtu 1500`",
			       netdev->name, netdev->mtu, CAREFUL_MTU_MIN, netdev->name);
	return explain(in->error, 0, "%u", netdev->mtu);
}

static int check_queue(const struct check_input *in)
{
	const struct netdev *netdev = &in->port.netdev;
	uint32_t queue = in->options->queue, queues = in->options->queues;
	uint32_t most = netdev->rx_queues < netdev->tx_queues ? netdev->rx_queues :
								netdev->tx_queues;

	most = most < CAREFUL_SPREAD_MAX ? most : CAREFUL_SPREAD_MAX;
	if (queues > 1 && queues > most)
		return refuse(in->error, -EINVAL, queues,
			      "%s has %u receive and %u send queues: use at most %u", netdev->name,
			      netdev->rx_queues, netdev->tx_queues, most);
	if (queues > 1 && queue >= queues)
		return refuse(in->error, -EINVAL, queue, "%u is too large for %u queues", queue,
			      queues);
	if (queue >= netdev->rx_queues)
		return explain(in->error, -EINVAL, "%s has no receive queue %u; the last is %u",
			       netdev->name, queue, netdev->rx_queues - 1);
	if (queue >= CAREFUL_QUEUES_MAX)
		return explain(in->error, -EINVAL,
			       "%s: careful cannot use queue %u; the last is %u", netdev->name,
			       queue, CAREFUL_QUEUES_MAX - 1);
	return explain(in->error, 0, "%u of %u", queue, netdev->rx_queues);
}

static int check_steering(const struct check_input *in)
{
	const struct netdev *netdev = &in->port.netdev;
	uint32_t queue = in->options->queue;
	uint16_t port = in->port.udp;
	int rc;

	if (netdev->rx_queues == 1)
		return explain(in->error, 0, "one queue: not needed");
	if (in->options->queues > 1 && netdev_straight(netdev))
		return explain(in->error, 0,
			       "frames arrive at the queue from which the other end sends");
	rc = netdev_steered(netdev, queue, port);
	if (rc > 0)
		return explain(in->error, 0, "port %u goes to queue %u", port, queue);
	if (!rc)
		return explain(
			in->error, -EXDEV,
			"%s has %u receive queues and port %u may arrive at any of them: `ethtool -N "
			"%s flow-type udp4 dst-port %u action %u` (and udp6)",
			netdev->name, netdev->rx_queues, port, netdev->name, port, queue);
	if (rc == -ENOENT)
		return explain(in->error, -EINVAL,
			       "%s has %u receive queues and its steering is off: `ethtool -K %s "
			       "ntuple on`",
			       netdev->name, netdev->rx_queues, netdev->name);
	return explain(in->error, -EOPNOTSUPP,
		       "%s has %u receive queues and cannot steer a port to one: `ethtool -L %s %s "
		       "1`",
		       netdev->name, netdev->rx_queues, netdev->name,
		       netdev->combined ? "combined" : "rx");
}

static int check_port(const struct check_input *in)
{
	struct xsk_port port = in->port;
	int rc = xsk_ctrl_open(&port, in->error);

	xsk_ctrl_close(&port);
	return rc ? rc : explain(in->error, 0, "%u is free", port.udp);
}

static int check_program(const struct check_input *in)
{
	return xsk_attach_check(&in->port, in->error);
}

/* A driver with native XDP reveals its zero-copy support only when the socket is bound. */
static int check_zerocopy(const struct check_input *in)
{
	struct xsk_port port = in->port;
	bool generic = in->options->xdp_mode == CAREFUL_XDP_GENERIC;

	if (!in->options->require_zerocopy)
		return explain(in->error, 0, "not required: without it, frames are copied");
	port.xdp_mode = generic ? CAREFUL_XDP_GENERIC : CAREFUL_XDP_NATIVE;
	if (generic || port.netdev.zerocopy_broken)
		return xsk_refuse_zerocopy(&port, -EOPNOTSUPP, in->error);
	return explain(in->error, -EAGAIN, "only an attempt shows whether driver %s has it",
		       port.netdev.driver);
}

static int (*const checks[CAREFUL_CHECKS])(const struct check_input *in) = {
	[CAREFUL_CHECK_MEMLOCK] = check_memlock,     [CAREFUL_CHECK_OPTIONS] = check_options,
	[CAREFUL_CHECK_INTERFACE] = check_interface, [CAREFUL_CHECK_MTU] = check_mtu,
	[CAREFUL_CHECK_QUEUE] = check_queue,	     [CAREFUL_CHECK_STEERING] = check_steering,
	[CAREFUL_CHECK_PORT] = check_port,	     [CAREFUL_CHECK_PROGRAM] = check_program,
	[CAREFUL_CHECK_ZEROCOPY] = check_zerocopy,
};

static int run(const struct check_input *in, uint32_t check)
{
	return checks[check] ? checks[check](in) : xsk_check_host(check, in->error);
}

static void begin(struct check_input *in, const struct careful_options *options,
		  struct careful_error *error)
{
	memset(in, 0, sizeof(*in));
	in->options = options;
	in->error = error;
	in->port.udp = options->port ? (uint16_t)options->port : CAREFUL_PORT_DEFAULT;
	in->port.ctrl[0] = in->port.ctrl[1] = in->port.link = -1;
}

int careful_check(const struct careful_options *options, uint32_t check,
		  struct careful_error *error)
{
	struct check_input input;

	if (check >= CAREFUL_CHECKS)
		return -EINVAL;
	begin(&input, options, error);
	if (check >= FIRST_OF_INTERFACE) {
		int rc = netdev_read(options->ifname, &input.port.netdev, error);

		if (rc)
			return rc;
	}
	return run(&input, check);
}

int xsk_check_all(const struct careful_options *options, struct netdev *netdev,
		  struct careful_error *error)
{
	struct careful_error result = { 0 };
	struct check_input input;
	int rc = 0;

	begin(&input, options, &result);
	for (uint32_t i = 0; !rc && i <= LAST_BEFORE_OPEN; i++) {
		if (i == FIRST_OF_INTERFACE)
			rc = netdev_read(options->ifname, &input.port.netdev, &result);
		if (!rc)
			rc = run(&input, i);
		rc = rc > 0 ? 0 : rc;
	}
	if (rc)
		explain_option(error, rc, result.option, "%s", result.text);
	*netdev = input.port.netdev;
	return rc;
}
