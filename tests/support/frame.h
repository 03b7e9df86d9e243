/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Valid and invalid frames for tests. A zeroed shape is a well-formed DATA frame over IPv4 with a
 * body of frag_bytes; each field changes it.
 */
#ifndef CAREFUL_TESTS_FRAME_H
#define CAREFUL_TESTS_FRAME_H

#include <careful/wire.h>
#include <endian.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum {
	FRAME_BYTES_MAX = 16384,
	FRAME_EXT_MAX = 8,
	FRAME_NODE = 2,
};

static const uint64_t frame_cookie = 0x1122334455667788ULL;

struct shape {
	uint32_t vlans;
	uint16_t ethertype; /* instead of the right one */
	bool ipv6;
	uint32_t option_words; /* IPv4 */
	uint16_t frag_off; /* IPv4: the field; IPv6: in a fragment header */
	uint8_t ip_version; /* instead of the right one */
	uint8_t ihl; /* instead of the right one, words */
	uint8_t protocol; /* instead of UDP */
	int ip_bytes_delta, udp_bytes_delta, frag_bytes_delta;
	uint8_t ext[FRAME_EXT_MAX]; /* IPv6 extension headers, by type; 0xff: hop-by-hop */
	uint32_t exts;
	uint32_t ext_units; /* of 8 bytes, beyond the first 8, in each */
	uint16_t port; /* instead of the right one */
	uint16_t source; /* likewise */
	const uint8_t *to; /* destination address; NULL: all 0 */
	const uint8_t *from; /* source address; likewise */
	uint32_t padding; /* after the datagram */

	uint8_t version; /* instead of the right one */
	uint8_t type;
	uint8_t flags;
	bool bad_check;
	uint16_t node; /* 0: FRAME_NODE */
	uint64_t cookie; /* 0: frame_cookie */
	uint32_t seq; /* 0: 1 */
	uint8_t stage_limit;
	uint32_t msg_id;
	uint32_t frag_bytes;
};

struct frame {
	uint8_t data[FRAME_BYTES_MAX];
	uint32_t bytes;
	uint32_t hdr_at; /* of the careful header */
};

static inline void frame_be16(struct frame *frame, uint16_t value)
{
	frame->data[frame->bytes++] = (uint8_t)(value >> 8);
	frame->data[frame->bytes++] = (uint8_t)value;
}

static inline void frame_zero(struct frame *frame, uint32_t bytes)
{
	memset(frame->data + frame->bytes, 0, bytes);
	frame->bytes += bytes;
}

static inline void frame_ethernet(struct frame *frame, const struct shape *shape)
{
	static const uint8_t macs[12] = { 2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1 };

	memcpy(frame->data, macs, sizeof(macs));
	frame->bytes = sizeof(macs);
	for (uint32_t i = 0; i < shape->vlans; i++) {
		frame_be16(frame, shape->vlans > 1 && !i ? 0x88a8 : 0x8100);
		frame_be16(frame, (uint16_t)(10 + i));
	}
	frame_be16(frame, shape->ethertype ? shape->ethertype : shape->ipv6 ? 0x86dd : 0x0800);
}

static inline void frame_to(struct frame *frame, const struct shape *shape, uint32_t bytes)
{
	frame_zero(frame, bytes);
	if (shape->to)
		memcpy(frame->data + frame->bytes - bytes, shape->to, bytes);
}

static inline void frame_ipv4(struct frame *frame, const struct shape *shape, uint32_t udp_bytes)
{
	uint32_t words = 5 + shape->option_words;
	uint32_t ihl = shape->ihl ? shape->ihl : words;
	uint32_t version = shape->ip_version ? shape->ip_version : 4;

	frame->data[frame->bytes++] = (uint8_t)(version << 4 | ihl);
	frame->data[frame->bytes++] = 0;
	frame_be16(frame, (uint16_t)(words * 4 + udp_bytes + (uint32_t)shape->ip_bytes_delta));
	frame_be16(frame, 0);
	frame_be16(frame, shape->frag_off);
	frame->data[frame->bytes++] = 64;
	frame->data[frame->bytes++] = shape->protocol ? shape->protocol : 17;
	frame_zero(frame, 2 + 4);
	if (shape->from)
		memcpy(frame->data + frame->bytes - 4, shape->from, 4);
	frame_to(frame, shape, 4);
	memset(frame->data + frame->bytes, 1, 4 * shape->option_words); /* NOP */
	frame->bytes += 4 * shape->option_words;
}

static inline uint8_t frame_ext(const struct shape *shape, uint32_t i)
{
	if (i == shape->exts)
		return shape->protocol ? shape->protocol : 17;
	return shape->ext[i] == 0xff ? 0 : shape->ext[i];
}

static inline void frame_ipv6(struct frame *frame, const struct shape *shape, uint32_t udp_bytes)
{
	uint32_t version = shape->ip_version ? shape->ip_version : 6, bytes = 0;

	for (uint32_t i = 0; i < shape->exts; i++)
		bytes += shape->ext[i] == 44 ? 8 : 8 + 8 * shape->ext_units;
	frame->data[frame->bytes++] = (uint8_t)(version << 4);
	frame_zero(frame, 3);
	frame_be16(frame, (uint16_t)(bytes + udp_bytes + (uint32_t)shape->ip_bytes_delta));
	frame->data[frame->bytes++] = frame_ext(shape, 0);
	frame->data[frame->bytes++] = 64;
	frame_zero(frame, 16);
	if (shape->from)
		memcpy(frame->data + frame->bytes - 16, shape->from, 16);
	frame_to(frame, shape, 16);
	for (uint32_t i = 0; i < shape->exts; i++) {
		bool fragment = shape->ext[i] == 44;

		frame->data[frame->bytes++] = frame_ext(shape, i + 1);
		frame->data[frame->bytes++] = fragment ? 0 : (uint8_t)shape->ext_units;
		frame_be16(frame, fragment ? shape->frag_off : 0);
		frame_zero(frame, fragment ? 4 : 4 + 8 * shape->ext_units);
	}
}

static inline void frame_hdr(struct frame *frame, const struct shape *shape)
{
	struct careful_hdr hdr = {
		.version = shape->version ? shape->version : CAREFUL_WIRE_VERSION,
		.type = shape->type ? shape->type : CAREFUL_DATA,
		.flags = shape->flags,
		.stage_limit = shape->stage_limit,
		.src_node = htobe16(shape->node ? shape->node : FRAME_NODE),
		.cookie = htobe64(shape->cookie ? shape->cookie : frame_cookie),
		.seq = htobe32(shape->seq ? shape->seq : 1),
		.msg_id = htobe32(shape->msg_id),
		.frag_bytes =
			htobe16((uint16_t)(shape->frag_bytes + (uint32_t)shape->frag_bytes_delta)),
	};

	hdr.check = htobe32(careful_hdr_check(&hdr) ^ shape->bad_check);
	frame->hdr_at = frame->bytes;
	memcpy(frame->data + frame->bytes, &hdr, sizeof(hdr));
	frame->bytes += sizeof(hdr);
}

static inline void frame_build(struct frame *frame, const struct shape *shape)
{
	uint32_t body = shape->frag_bytes, udp_bytes;

	if (shape->type != CAREFUL_UPDATE && shape->flags & CAREFUL_F_FIRST)
		body += sizeof(struct careful_am);
	if (shape->type != CAREFUL_UPDATE && shape->flags & CAREFUL_F_LAST &&
	    shape->flags & CAREFUL_F_DIGEST)
		body += CAREFUL_DIGEST_BYTES;
	udp_bytes = 8 + (uint32_t)sizeof(struct careful_hdr) + body;
	frame_ethernet(frame, shape);
	if (shape->ipv6)
		frame_ipv6(frame, shape, udp_bytes);
	else
		frame_ipv4(frame, shape, udp_bytes);
	frame_be16(frame, shape->source ? shape->source : CAREFUL_PORT_DEFAULT);
	frame_be16(frame, shape->port ? shape->port : CAREFUL_PORT_DEFAULT);
	frame_be16(frame, (uint16_t)(udp_bytes + (uint32_t)shape->udp_bytes_delta));
	frame_be16(frame, 0);
	frame_hdr(frame, shape);
	frame_zero(frame, body + shape->padding);
}

#endif /* CAREFUL_TESTS_FRAME_H */
