// SPDX-License-Identifier: BSD-2-Clause
/* Makes a frame's headers from the kernel's route and neighbour of a host. The kernel resolves
 * neighbours; no call here waits for that. */
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <linux/if_addr.h>
#include <linux/if_ether.h>
#include <linux/neighbour.h>
#include <netinet/ip.h>
#include <netinet/ip6.h>
#include <netinet/udp.h>
#include <string.h>

#include "device/xsk/xsk.h"

enum {
	ROUTE_HOPS = 64,
	NUD_USABLE = NUD_PERMANENT | NUD_NOARP | NUD_REACHABLE | NUD_STALE | NUD_DELAY | NUD_PROBE,
};

struct ip_address {
	uint8_t data[16];
	uint32_t bytes; /* 4 or 16; 0: none */
};

struct hop {
	struct ip_address source;
	struct ip_address next; /* the gateway, or the destination itself */
	uint32_t ifindex;
	uint32_t hops; /* TTL; 0: not given */
	uint32_t mtu; /* the administrator's MTU for the route; 0: the interface's */
	uint8_t type; /* RTN_* */
	uint16_t nud; /* NUD_* of its neighbour entry; 0: none */
	uint8_t mac[6];
	bool has_mac;
	bool moved; /* the source that the other end knows is no longer ours */
};

static void copy_address(struct ip_address *to, const struct rtattr *attr)
{
	if (!attr || RTA_PAYLOAD(attr) > sizeof(to->data))
		return;
	to->bytes = RTA_PAYLOAD(attr);
	memcpy(to->data, RTA_DATA(attr), to->bytes);
}

static void read_route(const struct nlmsghdr *answer, void *user)
{
	const struct rtmsg *rtm = NLMSG_DATA(answer);
	const struct rtattr *attrs = RTM_RTA(rtm), *metrics, *via;
	size_t bytes = RTM_PAYLOAD(answer);
	struct hop *hop = user;

	if (answer->nlmsg_type != RTM_NEWROUTE)
		return;
	hop->type = rtm->rtm_type;
	hop->ifindex = rtnl_attr_u32(rtnl_attr(attrs, bytes, RTA_OIF));
	copy_address(&hop->source, rtnl_attr(attrs, bytes, RTA_PREFSRC));
	copy_address(&hop->next, rtnl_attr(attrs, bytes, RTA_GATEWAY));
	via = rtnl_attr(attrs, bytes, RTA_VIA); /* RFC 5549: a gateway of the other family */
	if (via && RTA_PAYLOAD(via) > sizeof(struct rtvia)) {
		hop->next.bytes = RTA_PAYLOAD(via) - sizeof(struct rtvia);
		if (hop->next.bytes > sizeof(hop->next.data))
			hop->next.bytes = 0;
		memcpy(hop->next.data, (uint8_t *)RTA_DATA(via) + sizeof(struct rtvia),
		       hop->next.bytes);
	}
	metrics = rtnl_attr(attrs, bytes, RTA_METRICS);
	if (!metrics)
		return;
	attrs = RTA_DATA(metrics);
	bytes = RTA_PAYLOAD(metrics);
	hop->hops = rtnl_attr_u32(rtnl_attr(attrs, bytes, RTAX_HOPLIMIT));
	hop->mtu = rtnl_attr_u32(rtnl_attr(attrs, bytes, RTAX_MTU));
}

/* Flags of a route request. */
enum {
	ASK_BOUND = 1, /* the packet leaves by our interface */
	ASK_SOURCE = 2, /* the packet has the source address that the other end knows */
	ASK_FIB = 4, /* return the matching route, not the route derived from it */
};

static void put_packet(struct rtnl_message *message, const struct route *route,
		       const union address *to)
{
	const uint16_t ours = htobe16(route->port), theirs = address_port(to);
	const uint8_t udp = IPPROTO_UDP;

	rtnl_put(message, RTA_IP_PROTO, &udp, sizeof(udp));
	rtnl_put(message, RTA_SPORT, &ours, sizeof(ours));
	rtnl_put(message, RTA_DPORT, theirs ? &theirs : &ours, sizeof(theirs));
}

/* Requests the route of a UDP packet between our ports; rules can depend on all of its fields. */
static int ask_route(struct route *route, const union address *to, const struct ip_address *dst,
		     uint32_t flags, struct hop *hop)
{
	struct rtnl_message message;
	struct rtmsg *rtm = rtnl_begin(&message, RTM_GETROUTE, 0, sizeof(*rtm));

	*hop = (struct hop){ 0 };
	rtm->rtm_family = (uint8_t)to->sa.sa_family;
	rtm->rtm_dst_len = (uint8_t)(dst->bytes * 8);
	rtm->rtm_flags = flags & ASK_FIB ? RTM_F_FIB_MATCH : 0;
	rtnl_put(&message, RTA_DST, dst->data, dst->bytes);
	if (flags & ASK_SOURCE) { /* the answer will not contain the source */
		rtm->rtm_src_len = rtm->rtm_dst_len;
		rtnl_put(&message, RTA_SRC, to->ours, dst->bytes);
		hop->source.bytes = dst->bytes;
		memcpy(hop->source.data, to->ours, dst->bytes);
	}
	put_packet(&message, route, to);
	if (flags & ASK_BOUND)
		rtnl_put(&message, RTA_OIF, &route->ifindex, sizeof(route->ifindex));
	return rtnl_ask(&route->ask, &message, read_route, hop);
}

/* Finds the route to a host as the kernel does for the control socket, which is bound to our
 * interface. The first request is not bound, and so detects our own addresses. If there is no
 * route, the kernel answers a bound request over IPv4 as if the host were a neighbour; ASK_FIB
 * shows whether a route exists. */
static int find_hop(struct route *route, const union address *to, const struct ip_address *dst,
		    uint32_t flags, struct hop *hop)
{
	/* A link-local address needs its link. */
	bool on_link = to->sa.sa_family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&to->in6.sin6_addr);
	int rc = ask_route(route, to, dst, flags | (on_link ? ASK_BOUND : 0), hop);
	struct hop bound;

	if (on_link || rc == -ENOBUFS || rc == -EAGAIN || (!rc && hop->type == RTN_LOCAL))
		return rc;
	if (!rc && hop->type == RTN_UNICAST && hop->ifindex == route->ifindex)
		return ask_route(route, to, dst, flags | ASK_BOUND, hop);
	if (!ask_route(route, to, dst, flags | ASK_BOUND | ASK_FIB, &bound) &&
	    bound.type == RTN_UNICAST && !ask_route(route, to, dst, flags | ASK_BOUND, &bound)) {
		*hop = bound;
		return 0;
	}
	return rc;
}

/* Returns the administrator's MTU for the route, or 0. A derived route also reflects ICMP "too
 * large" messages, which a stranger can forge. */
static uint32_t route_mtu(struct route *route, const union address *to,
			  const struct ip_address *dst, uint32_t flags)
{
	struct hop fib;

	return ask_route(route, to, dst, flags | ASK_BOUND | ASK_FIB, &fib) ? 0 : fib.mtu;
}

static void read_neighbour(const struct nlmsghdr *answer, void *user)
{
	const struct ndmsg *ndm = NLMSG_DATA(answer);
	const struct rtattr *mac;
	struct hop *hop = user;

	if (answer->nlmsg_type != RTM_NEWNEIGH)
		return;
	hop->nud = ndm->ndm_state;
	if (!(ndm->ndm_state & NUD_USABLE))
		return;
	mac = rtnl_attr((const void *)(ndm + 1), answer->nlmsg_len - NLMSG_LENGTH(sizeof(*ndm)),
			NDA_LLADDR);
	if (!mac || RTA_PAYLOAD(mac) != sizeof(hop->mac))
		return;
	memcpy(hop->mac, RTA_DATA(mac), sizeof(hop->mac));
	hop->has_mac = true;
}

/* Requests the neighbour (RTM_GETNEIGH), deletes it (RTM_DELNEIGH), or makes the kernel resolve it
 * (RTM_NEWNEIGH with NTF_USE, as if a datagram had been sent). */
static int ask_neighbour(struct route *route, uint16_t type, struct hop *hop)
{
	struct rtnl_message message;
	bool use = type == RTM_NEWNEIGH;
	struct ndmsg *ndm = rtnl_begin(&message, type, use ? NLM_F_CREATE : 0, sizeof(*ndm));

	ndm->ndm_family = hop->next.bytes == 4 ? AF_INET : AF_INET6;
	ndm->ndm_ifindex = (int)route->ifindex;
	if (use)
		ndm->ndm_flags = NTF_USE;
	rtnl_put(&message, NDA_DST, hop->next.data, hop->next.bytes);
	return rtnl_ask(&route->ask, &message, read_neighbour, hop);
}

static uint16_t ipv4_check(const uint8_t *header)
{
	uint32_t sum = 0;

	for (int i = 0; i < 20; i += 2)
		sum += (uint32_t)header[i] << 8 | header[i + 1];
	sum = (sum & 0xffff) + (sum >> 16);
	sum += sum >> 16;
	return htobe16((uint16_t)~sum);
}

static uint8_t *put_ethernet(uint8_t *p, const struct route *route, const struct hop *hop,
			     uint16_t type)
{
	memcpy(p, hop->mac, 6);
	memcpy(p + 6, route->mac, 6);
	p[12] = (uint8_t)(type >> 8);
	p[13] = (uint8_t)type;
	return p + ETHERNET_BYTES;
}

static uint8_t *put_ipv4(uint8_t *p, const struct hop *hop, const struct ip_address *dst)
{
	struct iphdr ip = {
		.version = 4,
		.ihl = 5,
		.tot_len = htobe16(sizeof(ip) + sizeof(struct udphdr)),
		.frag_off = htobe16(IP_DF),
		.ttl = hop->hops ? (uint8_t)hop->hops : ROUTE_HOPS,
		.protocol = IPPROTO_UDP,
	};

	memcpy(&ip.saddr, hop->source.data, sizeof(ip.saddr));
	memcpy(&ip.daddr, dst->data, sizeof(ip.daddr));
	memcpy(p, &ip, sizeof(ip));
	ip.check = ipv4_check(p);
	memcpy(p, &ip, sizeof(ip));
	return p + sizeof(ip);
}

static uint8_t *put_ipv6(uint8_t *p, const struct hop *hop, const struct ip_address *dst)
{
	struct ip6_hdr ip = { 0 };

	ip.ip6_vfc = 6 << 4;
	ip.ip6_plen = htobe16(sizeof(struct udphdr));
	ip.ip6_nxt = IPPROTO_UDP;
	ip.ip6_hlim = hop->hops ? (uint8_t)hop->hops : ROUTE_HOPS;
	memcpy(&ip.ip6_src, hop->source.data, sizeof(ip.ip6_src));
	memcpy(&ip.ip6_dst, dst->data, sizeof(ip.ip6_dst));
	memcpy(p, &ip, sizeof(ip));
	return p + sizeof(ip);
}

static bool is_neighbour(const struct hop *hop, const struct ip_address *dst)
{
	return hop->next.bytes == dst->bytes && !memcmp(hop->next.data, dst->data, dst->bytes);
}

/* The UDP checksum stays 0, even for IPv6: our header's check, CRC and digests protect the same
 * bytes (RFC 6936). */
static void put_headers(const struct route *route, const union address *to,
			const struct ip_address *dst, const struct hop *hop, struct llhdr *llhdr)
{
	bool ipv4 = to->sa.sa_family == AF_INET;
	uint16_t port = address_port(to);
	struct udphdr udp = {
		.source = htobe16(route->port),
		.dest = port ? port : htobe16(route->port),
		.len = htobe16(sizeof(udp)),
	};
	uint8_t *p = put_ethernet(llhdr->data, route, hop, ipv4 ? ETH_P_IP : ETH_P_IPV6);

	p = ipv4 ? put_ipv4(p, hop, dst) : put_ipv6(p, hop, dst);
	memcpy(p, &udp, sizeof(udp));
	llhdr->bytes = (uint8_t)(p + sizeof(udp) - llhdr->data);
	llhdr->mtu = hop->mtu < UINT16_MAX ? (uint16_t)hop->mtu : 0;
	llhdr->neighbour = is_neighbour(hop, dst);
}

/* Reports whether the source address that the other end knows is still ours. The answer to a route
 * request with that source does not tell: over IPv4 it is that there is no route, over IPv6 there is
 * one. An IPv6 address that is being checked for duplicates has no local route, but is ours. */
static bool has_source(struct route *route, const union address *to, uint32_t bytes)
{
	struct ip_address ours = { .bytes = bytes };
	struct rtnl_message message;
	struct ifaddrmsg *ifa;
	struct hop hop;
	int rc;

	memcpy(ours.data, to->ours, bytes);
	if (to->sa.sa_family == AF_INET6) {
		ifa = rtnl_begin(&message, RTM_GETADDR, 0, sizeof(*ifa));
		ifa->ifa_family = AF_INET6;
		ifa->ifa_index = IN6_IS_ADDR_LINKLOCAL(ours.data) ? route->ifindex : 0;
		rtnl_put(&message, IFA_ADDRESS, ours.data, bytes);
		return rtnl_ask(&route->ask, &message, NULL, NULL) != -EADDRNOTAVAIL;
	}
	rc = ask_route(route, to, &ours, 0, &hop);
	if (rc || hop.type != RTN_LOCAL) /* perhaps an address of a VRF */
		rc = ask_route(route, to, &ours, ASK_BOUND, &hop);
	return rc == -ENOBUFS || rc == -EAGAIN || (!rc && hop.type == RTN_LOCAL);
}

/* Finds the next hop to a host on our interface, and its neighbour entry. */
static int find_neighbour(struct route *route, const union address *to, struct ip_address *dst,
			  struct hop *hop)
{
	uint32_t flags = 0;
	bool moved = false;
	int rc;

	*hop = (struct hop){ 0 };
	if (to->sa.sa_family != AF_INET && to->sa.sa_family != AF_INET6)
		return -EAFNOSUPPORT;
	if (to->sa.sa_family == AF_INET) {
		dst->bytes = 4;
		memcpy(dst->data, &to->in.sin_addr, 4);
	} else {
		dst->bytes = 16;
		memcpy(dst->data, &to->in6.sin6_addr, 16);
	}
	if (address_has_ours(to)) {
		moved = !has_source(route, to, dst->bytes);
		flags = moved ? 0 : ASK_SOURCE;
	}
	rc = find_hop(route, to, dst, flags, hop);
	hop->moved = moved;
	if (rc == -ENOBUFS || rc == -EAGAIN)
		return -EAGAIN;
	if (rc || (hop->type != RTN_UNICAST && hop->type != RTN_LOCAL))
		return route->up ? -ENETUNREACH : -ENETDOWN;
	if (hop->type == RTN_LOCAL)
		return -ENOTUNIQ;
	if (hop->ifindex != route->ifindex)
		return -EXDEV;
	if (hop->source.bytes != dst->bytes)
		return -ENETUNREACH;
	if (!hop->next.bytes)
		hop->next = *dst;
	if (flags & ASK_SOURCE)
		memcpy(hop->source.data, to->ours, hop->source.bytes);
	if (hop->mtu)
		hop->mtu = route_mtu(route, to, dst, flags);
	ask_neighbour(route, RTM_GETNEIGH, hop);
	return 0;
}

int route_resolve(struct route *route, const union address *to, struct llhdr *llhdr)
{
	struct ip_address dst;
	struct hop hop;
	int rc = find_neighbour(route, to, &dst, &hop);

	llhdr->moved = hop.moved;
	if (rc)
		return rc;
	if (!hop.has_mac) {
		ask_neighbour(route, RTM_NEWNEIGH, &hop);
		return -EAGAIN;
	}
	put_headers(route, to, &dst, &hop, llhdr);
	return 0;
}

/* Reports whether the host can answer to the source that the kernel chose. */
static bool is_usable(const union address *to, const struct hop *hop)
{
	const struct in6_addr *source = (const void *)hop->source.data;

	return to->sa.sa_family != AF_INET6 ||
	       !(IN6_IS_ADDR_LOOPBACK(source) ||
		 (IN6_IS_ADDR_LINKLOCAL(source) && !IN6_IS_ADDR_LINKLOCAL(&to->in6.sin6_addr)));
}

void route_source(struct route *route, union address *to)
{
	struct ip_address dst;
	struct hop hop;

	if (!find_neighbour(route, to, &dst, &hop) && is_usable(to, &hop))
		memcpy(to->ours, hop.source.data, hop.source.bytes);
}

/* Computes the group's MAC address (RFC 1112 section 6.4, RFC 2464 section 7). */
static void group_address(bool ipv4, uint16_t port, struct ip_address *group, uint8_t *mac)
{
	const struct in_addr address = route_group(port);
	const struct in6_addr address6 = route_group6(port);

	group->bytes = ipv4 ? sizeof(address) : sizeof(address6);
	memcpy(group->data, ipv4 ? (const void *)&address : &address6, group->bytes);
	if (ipv4) {
		memcpy(mac, (const uint8_t[]){ 0x01, 0x00, 0x5e, group->data[1] & 0x7f }, 4);
		memcpy(mac + 4, group->data + 2, 2);
	} else {
		memcpy(mac, (const uint8_t[]){ 0x33, 0x33 }, 2);
		memcpy(mac + 2, group->data + 12, 4);
	}
}

/* Makes the headers of a frame to every host of our link in the multicast group of this peer's
 * port. TTL 1: no router forwards the frame. */
int route_multicast(struct route *route, const union address *to, struct llhdr *llhdr)
{
	const uint16_t port = address_port(to);
	struct ip_address dst, group;
	struct hop hop;
	int rc = find_neighbour(route, to, &dst, &hop);

	if (rc)
		return rc;
	if (!is_neighbour(&hop, &dst))
		return -EHOSTUNREACH;
	group_address(to->sa.sa_family == AF_INET, port ? ntohs(port) : route->port, &group,
		      hop.mac);
	hop.hops = 1;
	put_headers(route, to, &group, &hop, llhdr);
	return 0;
}

/* Deletes a learned neighbour entry, so that the next message makes the kernel resolve the address
 * by broadcast. By itself the kernel trusts an entry for up to 45 s, then probes only the old link
 * address for 8 s (base_reachable_time, delay_first_probe_time, ucast_solicit); our callers do not
 * wait that long. Manual entries, and entries being resolved, stay. */
void route_distrust(struct route *route, const union address *to)
{
	struct ip_address dst;
	struct hop hop;

	if (!find_neighbour(route, to, &dst, &hop) && hop.has_mac &&
	    !(hop.nud & (NUD_PERMANENT | NUD_NOARP)))
		ask_neighbour(route, RTM_DELNEIGH, &hop);
}
