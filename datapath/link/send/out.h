/* SPDX-License-Identifier: BSD-2-Clause */
/* The last steps of sending a frame to a peer or a group: link header, checks, queue. */
#pragma once

#include <assert.h>
#include <endian.h>
#include <string.h>

#include "link/link_private.h"

static inline uint32_t out_get16(const uint8_t *p)
{
	__be16 value;

	memcpy(&value, p, sizeof(value));
	return be16toh(value);
}

static inline void out_put16(uint8_t *p, uint32_t value)
{
	__be16 be = htobe16((uint16_t)value);

	memcpy(p, &be, sizeof(be));
}

/* Writes the Ethernet, IP and UDP headers for this length. The template's IPv4 checksum, of an empty
 * datagram, is adjusted for the length (RFC 1624). The copy has a constant size, for speed: its end
 * may reach into *hdr, which is written later. */
static inline __attribute__((always_inline)) void
out_llhdr(const struct llhdr *llhdr, struct careful_hdr *hdr, uint32_t body_bytes)
{
	const uint8_t *from = llhdr->data;
	uint8_t *p = (uint8_t *)hdr - llhdr->bytes;
	uint32_t udp = 8 + LINK_HDR_BYTES + body_bytes;

	_Static_assert((int)LLHDR_MAX <= (int)LINK_IPV4_BYTES + (int)LINK_HDR_BYTES,
		       "the template ends within the header");
	memcpy(p, from, LLHDR_MAX);
	if (from[LINK_ETHERNET_BYTES] >> 4 == 4) {
		uint32_t sum = (~out_get16(from + 24) & 0xffff) + udp - 8;

		sum = (sum & 0xffff) + (sum >> 16);
		out_put16(p + 16, 20 + udp);
		out_put16(p + 24, ~sum);
	} else {
		out_put16(p + 18, udp);
	}
	out_put16(p + llhdr->bytes - 4, udp);
}

/* Counts a queued frame. payload: bytes of its body that belong to the application */
static inline void out_sent(struct link_peer *peer, uint32_t body_bytes, uint32_t payload)
{
	struct link *link = peer->link;

	link->tx_pulse_payload += payload;
	link->tx_last = peer;
	peer->tx_frames++;
	peer->tx_bytes += body_bytes;
	link_count(link, CAREFUL_C_TX_FRAMES);
	link->counters[CAREFUL_C_TX_BYTES] += body_bytes;
}

static inline void out_queue(struct link *link, const struct link_txframe *frame)
{
	if (link->tx_queued + frame->segments > LINK_TX_QUEUE)
		link_kick(link);
	assert(link->tx_queued + frame->segments <= LINK_TX_QUEUE);
	for (uint32_t i = 0; i < frame->segments; i++) {
		link->tx_queue[link->tx_queued++] = frame->desc[i];
		sink_add(&link->net_tx, frame->desc[i].bytes);
	}
	link->tx_pulse_frames++;
}

/* Writes the payload's CRC, then the header's. In this order, the wide loads for the header's check
 * do not wait for the narrow stores of its fields. */
static inline void out_finish(struct link_txframe *frame, uint32_t crc_bytes)
{
	if (crc_bytes)
		frame->hdr->payload_crc = htobe32(link_crc32c(frame->body, crc_bytes));
	frame->hdr->check = htobe32(careful_hdr_check(frame->hdr));
}
