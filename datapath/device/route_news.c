// SPDX-License-Identifier: BSD-2-Clause
/* Changes of routes, neighbours and the link, as netlink reports them. */
#include <errno.h>
#include <linux/neighbour.h>
#include <net/if.h>
#include <string.h>
#include <sys/socket.h>

#include "device/xsk/xsk.h"

enum {
	ROUTE_GROUPS = RTMGRP_LINK | RTMGRP_NEIGH | RTMGRP_IPV4_ROUTE | RTMGRP_IPV6_ROUTE |
		       RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR | RTMGRP_IPV4_RULE | RTMGRP_TC |
		       1 << (RTNLGRP_IPV6_RULE - 1) | 1 << (RTNLGRP_NEXTHOP - 1),
	ROUTE_UP = IFF_UP | 0x10000, /* IFF_LOWER_UP: the carrier is there */
	ROUTE_NEWS_MAX = 64, /* datagrams read per call of route_events() */
};

static uint32_t link_events(struct route *route, const struct nlmsghdr *m)
{
	const struct ifinfomsg *ifi = NLMSG_DATA(m);
	const struct rtattr *attrs = IFLA_RTA(ifi);
	size_t bytes = IFLA_PAYLOAD(m);
	bool up = (ifi->ifi_flags & ROUTE_UP) == ROUTE_UP;
	const struct rtattr *mac = rtnl_attr(attrs, bytes, IFLA_ADDRESS);
	uint32_t mtu = rtnl_attr_u32(rtnl_attr(attrs, bytes, IFLA_MTU));
	const struct rtattr *downs = rtnl_attr(attrs, bytes, IFLA_CARRIER_DOWN_COUNT);
	uint32_t events = 0;

	/* AF_BRIDGE messages concern a bridge's port, not the link. */
	if ((uint32_t)ifi->ifi_index != route->ifindex || ifi->ifi_family != AF_UNSPEC)
		return 0;
	if (m->nlmsg_type == RTM_DELLINK) {
		route->gone = true;
		route->up = false;
		return DEVICE_GONE | DEVICE_DOWN;
	}
	if (downs)
		route->downs = rtnl_attr_u32(downs);
	if (up != route->up)
		events |= up ? DEVICE_UP | DEVICE_ROUTES : DEVICE_DOWN;
	if (mtu && mtu != route->mtu) {
		events |= DEVICE_MTU;
		route->mtu = mtu;
	}
	if (mac && RTA_PAYLOAD(mac) == sizeof(route->mac) &&
	    memcmp(RTA_DATA(mac), route->mac, sizeof(route->mac)) != 0) {
		events |= DEVICE_ROUTES;
		memcpy(route->mac, RTA_DATA(mac), sizeof(route->mac));
	}
	route->up = up;
	return events;
}

static uint32_t message_events(struct route *route, const struct nlmsghdr *m)
{
	const struct ndmsg *ndm = NLMSG_DATA(m);
	const struct tcmsg *tc = NLMSG_DATA(m);

	switch (m->nlmsg_type) {
	case RTM_DELQDISC:
		return (uint32_t)tc->tcm_ifindex == route->ifindex &&
				       tc->tcm_handle == QDISC_HANDLE ?
			       DEVICE_QDISC :
			       0;
	case RTM_NEWLINK:
	case RTM_DELLINK:
		return link_events(route, m);
	case RTM_NEWNEIGH:
	case RTM_DELNEIGH:
		return (uint32_t)ndm->ndm_ifindex == route->ifindex ? DEVICE_ROUTES : 0;
	case RTM_NEWROUTE:
	case RTM_DELROUTE:
	case RTM_NEWADDR:
	case RTM_DELADDR:
	case RTM_NEWRULE:
	case RTM_DELRULE:
	case RTM_NEWNEXTHOP:
	case RTM_DELNEXTHOP:
		return DEVICE_ROUTES;
	default:
		return 0;
	}
}

struct link_state {
	struct route *route;
	uint32_t events;
};

static void read_link(const struct nlmsghdr *answer, void *user)
{
	struct link_state *state = user;

	state->events |= link_events(state->route, answer);
}

/* Reads the link's state again; events may have been missed. */
static uint32_t catch_up(struct route *route)
{
	struct link_state state = { .route = route, .events = DEVICE_ROUTES };
	struct rtnl_message message;
	struct ifinfomsg *ifi = rtnl_begin(&message, RTM_GETLINK, 0, sizeof(*ifi));

	ifi->ifi_index = (int)route->ifindex;
	if (rtnl_ask(&route->ask, &message, read_link, &state) == -ENODEV) {
		route->gone = true;
		route->up = false;
		state.events |= DEVICE_GONE | DEVICE_DOWN;
	}
	return state.events;
}

int route_open(struct route *route, const struct netdev *netdev, uint16_t port)
{
	int rc;

	route->ifindex = netdev->ifindex;
	route->mtu = netdev->mtu;
	route->port = port;
	memcpy(route->mac, netdev->mac, sizeof(route->mac));
	rc = rtnl_open(&route->ask, 0);
	if (!rc)
		rc = rtnl_open(&route->news, ROUTE_GROUPS);
	/* After subscribing, so that no change is missed. */
	if (!rc)
		catch_up(route);
	route->downs_before = route->downs;
	return rc;
}

void route_close(struct route *route)
{
	rtnl_close(&route->ask);
	rtnl_close(&route->news);
}

uint32_t route_events(struct route *route)
{
	uint32_t events = route->pending;
	struct rtnl *news = &route->news;

	route->pending = 0;
	for (int i = 0; i < ROUTE_NEWS_MAX; i++) {
		ssize_t bytes =
			recv(news->fd, news->datagram, sizeof(news->datagram), MSG_DONTWAIT);
		size_t rest = (size_t)bytes;

		if (bytes < 0 && errno == ENOBUFS)
			events |= catch_up(route);
		else if (bytes < 0)
			break;
		else
			for (struct nlmsghdr *m = (void *)news->datagram; NLMSG_OK(m, rest);
			     m = NLMSG_NEXT(m, rest))
				events |= message_events(route, m);
	}
	return events;
}

/* Counts the carrier losses. Asks the kernel, because notifications come up to a second late. */
uint32_t route_downs(struct route *route)
{
	route->pending |= catch_up(route);
	return route->downs - route->downs_before;
}

/* Reports whether frames may be sent; reads pending news if the link was down. */
bool route_up(struct route *route)
{
	if (!route->up)
		route->pending = route_events(route);
	return route->up;
}
