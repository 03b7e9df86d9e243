// SPDX-License-Identifier: BSD-2-Clause
/* Frames to a group: admits their senders at XDP (groups map; group_* of the peers map), and joins
 * the multicast group, which the kernel announces to NIC and switch (IGMP). */
#include <assert.h>
#include <bpf/bpf.h>
#include <errno.h>
#include <net/if.h>
#include <sys/socket.h>
#include <unistd.h>

#include "device/xsk/xsk.h"

static int add_membership(const struct xsk_port *port, int fd, bool ipv4)
{
	const struct ip_mreqn group = {
		.imr_multiaddr = route_group(port->udp),
		.imr_ifindex = (int)port->netdev.ifindex,
	};
	const struct ipv6_mreq group6 = {
		.ipv6mr_multiaddr = route_group6(port->udp),
		.ipv6mr_interface = port->netdev.ifindex,
	};

	return ipv4 ? setsockopt(fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &group, sizeof(group)) :
		      setsockopt(fd, IPPROTO_IPV6, IPV6_JOIN_GROUP, &group6, sizeof(group6));
}

/* Joins the multicast group, until the last sender's group ends. */
static int join(struct xsk_port *port, bool ipv4)
{
	int *fd = &port->group_fds[!ipv4];
	int rc = 0;

	if (*fd >= 0)
		return 0;
	*fd = socket(ipv4 ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (*fd < 0)
		return -errno;
	if (add_membership(port, *fd, ipv4)) {
		rc = -errno;
		close(*fd);
		*fd = -1;
	}
	return rc;
}

/* Opens a group once no program can still run with the slot's previous group cookie. */
static void begin(struct xsk_port *port, uint32_t slot)
{
	struct careful_peer_entry *peer = &port->peers[slot];
	struct xsk_group *group = &port->groups[slot];

	if (!group->cookie || group->open || !xsk_grace_over(port, group->closing))
		return;
	peer->group_probe = 0;
	address_words(&group->from, peer->group_source);
	if (bpf_map_update_elem(xsk_bpf_groups(port), &group->cookie, &slot, BPF_NOEXIST))
		return; /* no probe is received, so the sender sends a copy to each member */
	__atomic_store_n(&peer->group_cookie, group->cookie, __ATOMIC_RELEASE);
	group->open = true;
}

static void end(struct xsk_port *port, uint32_t slot)
{
	struct xsk_group *group = &port->groups[slot];

	if (!group->cookie)
		return;
	if (group->open) {
		__atomic_store_n(&port->peers[slot].group_cookie, 0, __ATOMIC_RELEASE);
		bpf_map_delete_elem(xsk_bpf_groups(port), &group->cookie);
		group->closing = xsk_grace_start(port);
	}
	group->cookie = 0;
	group->open = false;
	if (!--port->groups_count)
		xsk_group_close(port);
}

int xsk_group(struct port *nic, uint32_t slot, uint64_t cookie, const union address *from)
{
	struct xsk_port *port = to_xsk_port(nic);
	struct xsk_group *group = &port->groups[slot];
	int rc;

	assert(slot < CAREFUL_PEERS_MAX);
	end(port, slot);
	if (!cookie)
		return 0;
	if (!(port->netdev.flags & IFF_MULTICAST))
		return -EOPNOTSUPP;
	rc = join(port, from->sa.sa_family == AF_INET);
	if (rc)
		return rc;
	group->cookie = cookie;
	group->from = *from;
	port->groups_count++;
	begin(port, slot);
	return 0;
}

uint32_t xsk_grouped(struct port *nic, uint32_t slot)
{
	struct xsk_port *port = to_xsk_port(nic);

	begin(port, slot);
	if (!port->groups[slot].open)
		return 0;
	return *(const volatile uint32_t *)&port->peers[slot].group_probe;
}

int xsk_multicast(struct port *nic, const union address *like, struct llhdr *llhdr)
{
	struct xsk_port *port = to_xsk_port(nic);

	if (!(port->netdev.flags & IFF_MULTICAST))
		return -EOPNOTSUPP;
	return route_multicast(&port->route, like, llhdr);
}

void xsk_group_close(struct xsk_port *port)
{
	for (int i = 0; i < 2; i++) {
		if (port->group_fds[i] >= 0)
			close(port->group_fds[i]);
		port->group_fds[i] = -1;
	}
}
