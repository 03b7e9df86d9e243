// SPDX-License-Identifier: BSD-2-Clause
/*
 * What ebpf/careful.bpf.c does with a frame, on a virtual device: the same checks in
 * the same order, on frames without VLAN tags, IP options or extension headers.
 */
#include "device/sim_private.h"

#include <endian.h>
#include <string.h>

#include <careful/wire.h>

static uint32_t be16_at(const uint8_t *p)
{
	return (uint32_t)p[0] << 8 | p[1];
}

/* The datagram to our port that the frame holds; 0: it holds none. */
static uint32_t find_datagram(const uint8_t *frame, uint32_t bytes, uint32_t *datagram_bytes,
			      bool *whole)
{
	bool ipv6 = bytes > 14 && frame[14] >> 4 == 6;
	uint32_t udp_at = ipv6 ? 14 + 40 : 14 + 20;
	uint32_t udp_bytes, ip_bytes;

	if (bytes < udp_at + 8 || be16_at(frame + 12) != (ipv6 ? 0x86dd : 0x0800))
		return 0;
	if (!ipv6 && (frame[14] != 0x45 || be16_at(frame + 20) & 0x3fff))
		return 0;
	if (frame[ipv6 ? 20 : 23] != 17 || be16_at(frame + udp_at + 2) != CAREFUL_PORT_DEFAULT)
		return 0;
	ip_bytes = ipv6 ? be16_at(frame + 18) : be16_at(frame + 16) - 20;
	udp_bytes = be16_at(frame + udp_at + 4);
	*whole = udp_bytes >= 8 + sizeof(struct careful_hdr) && udp_bytes <= ip_bytes &&
		 udp_at + udp_bytes <= bytes;
	*datagram_bytes = udp_bytes - 8;
	return udp_at + 8;
}

static uint32_t body_bytes(const struct careful_hdr *hdr)
{
	uint32_t bytes = be16toh(hdr->frag_bytes);

	if (hdr->type == CAREFUL_UPDATE)
		return bytes ? ~0u : 0;
	if (hdr->flags & CAREFUL_F_FIRST)
		bytes += (uint32_t)sizeof(struct careful_am);
	if ((hdr->flags & CAREFUL_F_LAST) && (hdr->flags & CAREFUL_F_DIGEST))
		bytes += CAREFUL_DIGEST_BYTES;
	return bytes;
}

static enum careful_xdp_counter admit(struct sim_device *sim, const struct careful_hdr *hdr)
{
	uint32_t slot = be16toh(hdr->src_node);
	uint32_t seq = be32toh(hdr->seq);
	uint32_t probe = be32toh(hdr->msg_id);
	bool ping = hdr->type == CAREFUL_PING;
	bool ends_here = ping && hdr->stage_limit == CAREFUL_STAGE_NET_RX;
	struct careful_peer_entry *peer;

	if (slot >= sim->peers_count)
		return CAREFUL_XDP_DROP_NODE;
	peer = &sim->peers[slot];
	if (!peer->cookie || peer->cookie != be64toh(hdr->cookie))
		return CAREFUL_XDP_DROP_COOKIE;
	if (ping && !careful_ping_new(probe, peer->probe_last))
		return CAREFUL_XDP_DROP_PING;
	if (!ends_here && !careful_seq_ahead(seq, peer->seq_last, peer->window))
		return CAREFUL_XDP_DROP_SEQ;
	if (!ends_here)
		peer->seq_last = seq;
	if (ping) {
		peer->probe_ns = sim->nic.ops->now_ns(&sim->nic);
		peer->probe_last = probe;
	}
	return ends_here ? CAREFUL_XDP_PASS_PING : CAREFUL_XDP_ADMITTED;
}

/* What becomes of a frame. */
enum careful_xdp_counter sim_xdp(struct sim_device *sim, const uint8_t *frame, uint32_t bytes)
{
	struct careful_hdr hdr;
	uint32_t datagram_bytes = 0;
	bool whole = false;
	uint32_t at = find_datagram(frame, bytes, &datagram_bytes, &whole);

	if (!at)
		return CAREFUL_XDP_PASS_OTHER;
	if (at + 2 > bytes)
		return CAREFUL_XDP_DROP_SHORT;
	if (frame[at + 1] & CAREFUL_CTRL_BIT)
		return CAREFUL_XDP_PASS_CONTROL;
	if (!whole || at + sizeof(hdr) > bytes)
		return CAREFUL_XDP_DROP_SHORT;
	memcpy(&hdr, frame + at, sizeof(hdr));
	if (hdr.version != CAREFUL_WIRE_VERSION)
		return CAREFUL_XDP_DROP_VERSION;
	if (be32toh(hdr.check) != careful_hdr_check(&hdr))
		return CAREFUL_XDP_DROP_CHECK;
	if (hdr.type != CAREFUL_DATA && hdr.type != CAREFUL_UPDATE && hdr.type != CAREFUL_PING)
		return CAREFUL_XDP_DROP_TYPE;
	if (hdr.type == CAREFUL_PING && (!hdr.stage_limit || hdr.stage_limit > CAREFUL_STAGE_STORE))
		return CAREFUL_XDP_DROP_PING;
	if (sizeof(hdr) + body_bytes(&hdr) != datagram_bytes)
		return CAREFUL_XDP_DROP_SHORT;
	return admit(sim, &hdr);
}
