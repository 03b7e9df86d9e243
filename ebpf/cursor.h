/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * A cursor over a frame, from Ethernet to UDP. Each step checks its bounds once and
 * moves on; what cannot be read is not ours. What the datagram then holds is
 * careful.bpf.c's affair.
 */
#ifndef CAREFUL_CURSOR_H
#define CAREFUL_CURSOR_H

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/udp.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

enum {
	CURSOR_VLAN_MAX = 2, /* one tag, or two (802.1ad) */
	CURSOR_IPV6_EXT_MAX = 6, /* extension headers; a chain beyond is not ours */
	CURSOR_TYPE_8021Q = 0x8100,
	CURSOR_TYPE_8021AD = 0x88a8,
	CURSOR_IP_MORE = 0x2000, /* IPv4: more fragments follow */
	CURSOR_IP_OFFSET = 0x1fff,
	CURSOR_IP6_MORE = 0x0001,
	CURSOR_IP6_OFFSET = 0xfff8,
};

/*
 * @at:        the next header
 * @end:       of what can be read (the first buffer of a frame of several)
 * @ip_bytes:  from `at` on, what the IP header says is left of the packet
 * @fragment:  first fragment of an IP packet
 */
struct cursor {
	void *at;
	void *end;
	__u32 ip_bytes;
	__u8 fragment;
};

struct cursor_vlan {
	__be16 tci;
	__be16 type;
};

struct cursor_ipv6_ext {
	__u8 next;
	__u8 units; /* of 8 bytes, beyond the first 8 */
	__u8 rest[6];
};

struct cursor_ipv6_fragment {
	__u8 next;
	__u8 reserved;
	__be16 offset; /* and, in the last bit, whether more follow */
	__be32 id;
};

/* Ethernet and its tags. Returns the type of what follows, host order, or -1. */
static __always_inline int cursor_ethernet(struct cursor *cursor)
{
	struct ethhdr *eth = cursor->at;
	__u16 type;

	if ((void *)(eth + 1) > cursor->end)
		return -1;
	type = bpf_ntohs(eth->h_proto);
	cursor->at = eth + 1;
#pragma unroll
	for (int i = 0; i < CURSOR_VLAN_MAX; i++) {
		struct cursor_vlan *vlan = cursor->at;

		if (type != CURSOR_TYPE_8021Q && type != CURSOR_TYPE_8021AD)
			break;
		if ((void *)(vlan + 1) > cursor->end)
			return -1;
		type = bpf_ntohs(vlan->type);
		cursor->at = vlan + 1;
	}
	return type;
}

/* IPv4 with its options. Returns the protocol of what follows, or -1. */
static __always_inline int cursor_ipv4(struct cursor *cursor)
{
	struct iphdr *ip = cursor->at;
	__u32 header, total, offset;

	if ((void *)(ip + 1) > cursor->end || ip->version != 4)
		return -1;
	header = ip->ihl * 4;
	total = bpf_ntohs(ip->tot_len);
	offset = bpf_ntohs(ip->frag_off);
	if (header < sizeof(*ip) || total < header)
		return -1;
	/* Only a first fragment has a UDP header. */
	if (offset & CURSOR_IP_OFFSET)
		return -1;
	cursor->fragment = !!(offset & CURSOR_IP_MORE);
	cursor->ip_bytes = total - header;
	cursor->at = (void *)ip + header;
	return ip->protocol;
}

/* One IPv6 extension header, of type `next`. Returns the type of the one after it,
 * the same if it is none that we step over, or -1. */
static __always_inline int cursor_ipv6_ext(struct cursor *cursor, int next)
{
	struct cursor_ipv6_ext *ext = cursor->at;
	struct cursor_ipv6_fragment *frag = cursor->at;
	__u32 bytes = sizeof(*ext);

	if (next != IPPROTO_HOPOPTS && next != IPPROTO_DSTOPTS && next != IPPROTO_ROUTING &&
	    next != IPPROTO_FRAGMENT)
		return next;
	if ((void *)(ext + 1) > cursor->end)
		return -1;
	if (next == IPPROTO_FRAGMENT) {
		__u32 offset = bpf_ntohs(frag->offset);

		if (offset & CURSOR_IP6_OFFSET)
			return -1;
		/* An "atomic" fragment (RFC 6946) is a whole packet. */
		cursor->fragment |= !!(offset & CURSOR_IP6_MORE);
	} else {
		bytes += ext->units * 8;
	}
	if (bytes > cursor->ip_bytes)
		return -1;
	cursor->ip_bytes -= bytes;
	cursor->at = (void *)ext + bytes;
	return ext->next;
}

/* IPv6 with its extension headers. Returns the protocol of what follows, or -1. */
static __always_inline int cursor_ipv6(struct cursor *cursor)
{
	struct ipv6hdr *ip = cursor->at;
	int next;

	if ((void *)(ip + 1) > cursor->end || ip->version != 6)
		return -1;
	next = ip->nexthdr;
	cursor->ip_bytes = bpf_ntohs(ip->payload_len);
	cursor->at = ip + 1;
	for (int i = 0; i < CURSOR_IPV6_EXT_MAX; i++) {
		if (next < 0 || next == IPPROTO_UDP)
			break;
		next = cursor_ipv6_ext(cursor, next);
	}
	return next;
}

/* All of the above, and UDP. Returns its header, or NULL. */
static __always_inline struct udphdr *cursor_udp(struct cursor *cursor)
{
	int type = cursor_ethernet(cursor);
	int protocol = -1;
	struct udphdr *udp;

	if (type == ETH_P_IP)
		protocol = cursor_ipv4(cursor);
	else if (type == ETH_P_IPV6)
		protocol = cursor_ipv6(cursor);
	udp = cursor->at;
	if (protocol != IPPROTO_UDP || (void *)(udp + 1) > cursor->end)
		return 0;
	cursor->at = udp + 1;
	return udp;
}

#endif /* CAREFUL_CURSOR_H */
