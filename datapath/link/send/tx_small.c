// SPDX-License-Identifier: BSD-2-Clause
/* The fast path of a message of one frame: builds and queues it in one function. The steps of tx.c
 * handle the other cases (a sealed session, no room). */
#include "link/link_private.h"
#include "link/repair/repair.h"
#include "link/send/out.h"
#include "link/operation_timer.h"

#include <endian.h>
#include <string.h>

static inline struct flow_stamp number(struct link_peer *peer, const struct device_desc *desc,
				       uint32_t body_bytes, bool traditional, uint8_t *flags)
{
	OPERATION(OPERATION_SEND);
	if (traditional)
		return peer->link->traditional->ops->number_frame(peer, desc, 1, CAREFUL_DATA,
								  flags);
	return flow_stamp(&peer->flow, link_cost(peer, body_bytes));
}

/* Writes struct careful_hdr by words, so that its check is computed while they are in registers. */
static inline void write_hdr(const struct link_peer *peer, uint8_t *hdr, struct flow_stamp stamp,
			     uint8_t flags, uint32_t bytes, uint32_t crc)
{
	__be64 words[] = {
		htobe64((uint64_t)CAREFUL_WIRE_VERSION << 56 | (uint64_t)CAREFUL_DATA << 48 |
			(uint64_t)flags << 40 | (uint64_t)peer->slot_out << 16 | peer->queue_out),
		htobe64(peer->cookie_out),
		htobe64((uint64_t)stamp.seq << 32 | stamp.credits),
		htobe64(bytes), /* msg_id 0 */
		htobe64(crc), /* frag_off 0 */
		htobe64((uint64_t)bytes << 48 | (uint64_t)stamp.extra << 32),
	};

	_Static_assert(sizeof(words) == LINK_HDR_BYTES, "the words are the header");
	words[5] |= htobe64(careful_hdr_check(words));
#pragma GCC unroll 6
	for (uint32_t i = 0; i < 6; i++)
		memcpy(hdr + sizeof(words[0]) * i, &words[i], sizeof(words[0]));
}

static inline bool may_send(const struct link_peer *peer, uint32_t body_bytes, bool traditional)
{
	const struct link *link = peer->link;

	return peer->phase == LINK_OPEN && peer->llhdr.bytes &&
	       (traditional ? peer->link->traditional->ops->may_keep(peer, 0) :
			      flow_may_send(&peer->flow, link_cost(peer, body_bytes))) &&
	       body_bytes <= link->queue->chunk_bytes - LINK_PAYLOAD_AT &&
	       link->tx_free_count > LINK_CHUNKS_FREE_MIN && link->tx_queued < LINK_TX_QUEUE;
}

static inline __attribute__((always_inline)) bool send_short(struct link_peer *peer,
							     const struct careful_am *am,
							     const void *payload, uint32_t bytes,
							     bool traditional)
{
	const uint32_t body_bytes = sizeof(*am) + bytes;
	struct link *link = peer->link;
	uint8_t flags = CAREFUL_F_FIRST | CAREFUL_F_LAST;
	struct flow_stamp stamp;
	struct device_desc *desc;
	uint64_t addr;
	uint8_t *body;
	uint32_t crc;

	if (!may_send(peer, body_bytes, traditional))
		return false;
	addr = link->tx_free[--link->tx_free_count] + LINK_PAYLOAD_AT;
	body = link->queue->umem + addr;
	memcpy(body, am, sizeof(*am));
	if (bytes)
		memcpy(body + sizeof(*am), payload, bytes);
	out_llhdr(&peer->llhdr, (struct careful_hdr *)(body - LINK_HDR_BYTES), body_bytes);
	desc = &link->tx_queue[link->tx_queued++];
	*desc = (struct device_desc){
		.addr = addr - LINK_HDR_BYTES - peer->llhdr.bytes,
		.bytes = peer->beside + body_bytes,
	};
	crc = link_crc32c(body, body_bytes);
	stamp = number(peer, desc, body_bytes, traditional, &flags);
	write_hdr(peer, body - LINK_HDR_BYTES, stamp, flags, bytes, crc);
	sink_add(&link->net_tx, peer->beside + body_bytes);
	link->tx_pulse_frames++;
	out_sent(peer, body_bytes, bytes);
	if (!traditional && peer->repair.log)
		link_log_keep_small(peer, body, body_bytes);
	return true;
}

/* One function for each protocol, so that neither tests which one is used. */
bool link_small_careful(struct link_peer *peer, const struct careful_am *am, const void *payload,
			uint32_t bytes)
{
	return send_short(peer, am, payload, bytes, false);
}

bool link_small_traditional(struct link_peer *peer, const struct careful_am *am,
			    const void *payload, uint32_t bytes)
{
	return send_short(peer, am, payload, bytes, true);
}
