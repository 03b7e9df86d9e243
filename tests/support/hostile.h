/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A misbehaving peer for tests, against a whole instance on the device of tests/fuzz. Its frames
 * have the right cookie and number by default, and any credits.
 */
#ifndef CAREFUL_TESTS_HOSTILE_H
#define CAREFUL_TESTS_HOSTILE_H

#include <endian.h>
#include <errno.h>

#include "check.h"
#include "frame.h"
#include "node.h"

enum { HOSTILE_REST = 1024 };

/*
 * A frame.
 *
 * @peer:       its slot at the instance
 * @flags:      besides FIRST and LAST; @without: of these, missing
 * @off, @more: bytes of the message before and behind this frame
 * @credits:    claimed returned buffers, the wire's cumulative count
 * @extra:      buffers that it asks for beyond its window
 * @ahead:      missing numbers before its own
 * @am:         kind, handler, token, region and bytes, as on the wire
 * @bytes:      payload bytes, the first of which are @rest
 */
struct hostile {
	uint32_t peer;
	uint8_t flags, without;
	uint32_t off, more;
	uint32_t credits;
	uint16_t extra;
	uint16_t ahead;
	uint32_t msg_id;
	struct careful_am am;
	uint32_t bytes;
	uint8_t rest[HOSTILE_REST];
};

/* Delivers a frame, by default a whole message, that is not handled yet. */
static inline void hostile_arrive(struct node *node, const struct hostile *what)
{
	const struct link_peer *peer = &node->c->link.peers[what->peer];
	const struct shape shape = {
		.flags = (CAREFUL_F_FIRST | CAREFUL_F_LAST | what->flags) & ~what->without,
		.cookie = peer->cookie_in,
		.seq = peer->flow.seq_in + node->arrived_count + 1 + what->ahead,
		.frag_bytes = what->bytes,
	};
	struct frame frame = { 0 };
	struct careful_hdr hdr;
	uint8_t *body;

	frame_build(&frame, &shape);
	body = frame.data + frame.hdr_at + sizeof(hdr);
	if (shape.flags & CAREFUL_F_FIRST)
		memcpy(body, &what->am, sizeof(what->am));
	if (shape.flags & CAREFUL_F_FIRST && what->bytes)
		memcpy(body + sizeof(what->am), what->rest,
		       what->bytes < HOSTILE_REST ? what->bytes : HOSTILE_REST);
	memcpy(&hdr, frame.data + frame.hdr_at, sizeof(hdr));
	hdr.src_node = htobe16((uint16_t)what->peer);
	hdr.credits = htobe32(what->credits);
	hdr.extra = htobe16(what->extra);
	hdr.msg_id = htobe32(what->msg_id);
	hdr.msg_bytes = htobe32(what->off + what->bytes + what->more);
	hdr.frag_off = htobe32(what->off);
	hdr.payload_crc = htobe32(link_crc32c(
		body, sizeof(what->am) + (what->flags & CAREFUL_F_BULK ? 0 : what->bytes)));
	hdr.check = htobe32(careful_hdr_check(&hdr));
	memcpy(frame.data + frame.hdr_at, &hdr, sizeof(hdr));
	node_arrive(node, frame.data, frame.bytes);
}

/* Delivers a frame and lets the instance handle it. */
static inline void hostile_send(struct node *node, const struct hostile *what)
{
	hostile_arrive(node, what);
	node_poll(node, 1);
	node_leave(node, NODE_TX);
}

#endif /* CAREFUL_TESTS_HOSTILE_H */
