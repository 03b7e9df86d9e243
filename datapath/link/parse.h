/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Finds the careful header in a frame: Ethernet, VLAN tags, IPv4 or IPv6, UDP.
 * XDP has admitted the frame already; a device without XDP has not, so every
 * bound is checked here too.
 */
#ifndef LINK_PARSE_H
#define LINK_PARSE_H

#include <stdint.h>
#include <string.h>

#include <careful/wire.h>

enum {
	PARSE_ETH = 14,
	PARSE_VLAN = 4,
	PARSE_VLANS_MAX = 2,
	PARSE_UDP = 8,
	PARSE_IP6 = 40,
	PARSE_IP6_EXTENSIONS_MAX = 6, /* as XDP */
};

static inline uint32_t parse_be16(const uint8_t *p)
{
	return (uint32_t)p[0] << 8 | p[1];
}

/* Skips hop-by-hop, routing and destination options, and the header of an "atomic"
 * fragment (RFC 6946), which is a whole packet; 0: no UDP there. */
static inline uint32_t parse_ip6(const uint8_t *p, uint32_t at, uint32_t bytes)
{
	uint8_t next;

	if (at + PARSE_IP6 > bytes)
		return 0;
	next = p[at + 6];
	at += PARSE_IP6;
	for (int i = 0; i < PARSE_IP6_EXTENSIONS_MAX; i++) {
		uint8_t type = next;

		if (type != 0 && type != 43 && type != 44 && type != 60)
			break;
		if (at + 8 > bytes || (type == 44 && parse_be16(p + at + 2) & 0xfff9))
			return 0;
		next = p[at];
		at += type == 44 ? 8 : 8 + 8u * p[at + 1];
	}
	return next == 17 ? at : 0;
}

static inline uint32_t parse_ip4(const uint8_t *p, uint32_t at, uint32_t bytes)
{
	uint32_t header;

	if (at + 20 > bytes)
		return 0;
	header = (p[at] & 15u) * 4;
	if (header < 20 || p[at + 9] != 17 || parse_be16(p + at + 6) & 0x3fff)
		return 0;
	return at + header;
}

/* Offset of the careful header in the frame's first `bytes` bytes, and what UDP
 * says follows it; 0: there is none. */
static inline uint32_t parse_frame(const uint8_t *p, uint32_t bytes, uint32_t *body_total)
{
	uint32_t at = PARSE_ETH;
	uint32_t proto, udp;

	if (bytes < PARSE_ETH)
		return 0;
	proto = parse_be16(p + 12);
	for (int i = 0; i < PARSE_VLANS_MAX && (proto == 0x8100 || proto == 0x88a8); i++) {
		if (at + PARSE_VLAN > bytes)
			return 0;
		proto = parse_be16(p + at + 2);
		at += PARSE_VLAN;
	}
	if (proto == 0x0800)
		at = parse_ip4(p, at, bytes);
	else if (proto == 0x86dd)
		at = parse_ip6(p, at, bytes);
	else
		return 0;
	if (!at || at + PARSE_UDP + sizeof(struct careful_hdr) > bytes)
		return 0;
	udp = parse_be16(p + at + 4);
	if (udp < PARSE_UDP + sizeof(struct careful_hdr))
		return 0;
	*body_total = udp - PARSE_UDP - (uint32_t)sizeof(struct careful_hdr);
	return at + PARSE_UDP;
}

#endif /* LINK_PARSE_H */
