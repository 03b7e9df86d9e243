/* SPDX-License-Identifier: BSD-2-Clause */
/* The bytes that G is charged for: every byte of the Ethernet frame (no preamble, no FCS), or only
 * the payload, as the papers count. The payload follows the careful header if there is one, else
 * the UDP, TCP or ICMP header. */
#include "way.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>

#include <careful/wire.h>

enum {
	ETHERNET_BYTES = 14,
	ETHERTYPE_AT = 12,
	ETHERTYPE_IPV4 = 0x0800,
	ETHERTYPE_IPV6 = 0x86dd,
	IPV4_BYTES_MIN = 20,
	IPV6_BYTES = 40,
	UDP_BYTES = 8,
	ICMP_BYTES = 8,
	TCP_BYTES_MIN = 20,
};

static uint16_t be16_at(const uint8_t *data)
{
	return (uint16_t)(data[0] << 8 | data[1]);
}

static uint32_t udp_payload(const struct hop_config *config, const uint8_t *udp, uint32_t bytes)
{
	struct careful_hdr hdr;
	bool ours = be16_at(udp) == config->careful_port ||
		    be16_at(udp + 2) == config->careful_port;

	if (!ours)
		return bytes - UDP_BYTES;
	if (bytes < UDP_BYTES + sizeof(hdr))
		return 0;
	memcpy(&hdr, udp + UDP_BYTES, sizeof(hdr));
	return hdr.type & CAREFUL_CTRL_BIT ? 0 : ntohs(hdr.frag_bytes);
}

/* Returns the payload after the IP header, by protocol; 0: unknown protocol. */
static uint32_t inner_payload(const struct hop_config *config, uint8_t protocol, const uint8_t *at,
			      uint32_t inner)
{
	switch (protocol) {
	case IPPROTO_UDP:
		return inner < UDP_BYTES ? 0 : udp_payload(config, at, inner);
	case IPPROTO_ICMP:
	case IPPROTO_ICMPV6:
		return inner < ICMP_BYTES ? 0 : inner - ICMP_BYTES;
	case IPPROTO_TCP:
		if (inner < TCP_BYTES_MIN || inner < (at[12] >> 4) * 4u)
			return 0;
		return inner - (at[12] >> 4) * 4u;
	default:
		return inner;
	}
}

/* Returns the payload of an IPv4 packet; 0: unknown. */
static uint32_t ipv4_payload(const struct hop_config *config, const uint8_t *ip, uint32_t bytes)
{
	uint32_t header = (ip[0] & 15u) * 4, total = be16_at(ip + 2);
	const uint8_t *at = ip + header;

	if (header < IPV4_BYTES_MIN || total > bytes || total < header)
		return 0;
	return inner_payload(config, ip[9], at, total - header);
}

/* The same for IPv6, whose extension headers count as payload. */
static uint32_t ipv6_payload(const struct hop_config *config, const uint8_t *ip, uint32_t bytes)
{
	uint32_t inner = be16_at(ip + 4);

	if (bytes < IPV6_BYTES || inner > bytes - IPV6_BYTES)
		return 0;
	return inner_payload(config, ip[6], ip + IPV6_BYTES, inner);
}

uint32_t hop_charged(const struct hop_config *config, const uint8_t *data, uint32_t bytes)
{
	if (!config->payload_only)
		return bytes;
	if (bytes < ETHERNET_BYTES + IPV4_BYTES_MIN)
		return 0;
	switch (be16_at(data + ETHERTYPE_AT)) {
	case ETHERTYPE_IPV4:
		return ipv4_payload(config, data + ETHERNET_BYTES, bytes - ETHERNET_BYTES);
	case ETHERTYPE_IPV6:
		return ipv6_payload(config, data + ETHERNET_BYTES, bytes - ETHERNET_BYTES);
	default:
		return 0;
	}
}
