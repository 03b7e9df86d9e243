/* SPDX-License-Identifier: BSD-2-Clause */
/* Declarations that the files of link/ share. No other layer includes them. */
#pragma once

#include <careful/ping.h>

#include "link/link.h"

enum {
	/* The largest W, and the largest grant: the log of a peer takes up to 33 MiB. */
	LINK_WINDOW_MAX = 4096,
	LINK_GRANT_MAX = 2048,
	LINK_MENDING = 8, /* initial value of link.mending */
	LINK_PAYLOAD_AT = 128, /* offset of a frame's body in its first chunk */
	LINK_ETHERNET_BYTES = 14,
};

/* Messages of the control socket, and quotes in ICMP errors. All begin with version and type. */
union link_message {
	struct careful_ctrl ctrl;
	struct careful_keyed keyed;
	struct careful_proved proved;
	struct careful_hdr hdr;
	struct careful_ping_answer answer;
};

/* Returns the buffers that the largest frame fills. */
static inline uint32_t link_frame_cost(const struct queue *queue)
{
	return link_buffers(queue_frame_bytes(queue), queue->buffer_bytes);
}

/* Begins to wait until the RX ring's present frames are taken. */
static inline struct link_drain link_drain_begin(const struct link *link)
{
	return (struct link_drain){ link->rx_drains + 1, link->rx_taken + link->queue->rx_chunks };
}

static inline bool link_drain_begun(const struct link_drain *drain)
{
	return drain->empties != 0;
}

static inline bool link_drain_over(const struct link *link, const struct link_drain *drain)
{
	return link->rx_drains >= drain->empties || link->rx_taken >= drain->taken;
}

static inline enum careful_protocol link_protocol(const struct link *link)
{
	return link->traditional ? CAREFUL_PROTOCOL_TRADITIONAL : CAREFUL_PROTOCOL_CAREFUL;
}

/* Notes that the peer may need an update at the end of the round. */
static inline void link_dirty(struct link_peer *peer)
{
	struct link *link = peer->link;

	if (peer->dirty)
		return;
	peer->dirty = true;
	link->dirty[link->dirty_count++] = peer;
}

static inline bool link_wants_any(const struct link_peer *peer)
{
	return peer->repair.wanted != 0;
}

/* Returns the buffers that the peer's largest frame fills. */
static inline uint32_t link_taken_cost(const struct link_peer *peer)
{
	return link_buffers(peer->session->taken_bytes, peer->link->queue->buffer_bytes);
}

/* Reports whether both ends have agreed on an epoch; data may still wait for trains. */
static inline bool link_has_epoch(const struct link_peer *peer)
{
	return peer->phase >= LINK_OPEN;
}

/* Returns the peer of an unsealed frame, or NULL. */
static inline struct link_peer *link_peer_of(struct link *link, const struct careful_hdr *hdr)
{
	uint32_t slot = be16toh(hdr->src_node);
	struct link_peer *peer = &link->peers[slot];

	if (slot >= link->peers_max || !peer->cookie_plain ||
	    peer->cookie_plain != be64toh(hdr->cookie))
		return NULL;
	return peer;
}

/* Computes peer->beside after a change of the route or the sealing. */
static inline void link_set_beside(struct link_peer *peer)
{
	peer->beside = (uint16_t)(peer->llhdr.bytes + LINK_HDR_BYTES + peer->trailer);
}

/* Reports whether any frame of the peer arrived in this epoch. */
static inline bool link_used(const struct link_peer *peer)
{
	return peer->trailer ? flow_received(&peer->flow) : flow_used(&peer->flow);
}

/* rx.c */
void link_drop(struct link *link, const struct link_rxframe *frame);
void link_received(struct link *link, const struct link_rxframe *frame);

/* credit_return.c */
void link_release_addrs(struct link *link, struct link_peer *peer, uint64_t epoch, uint32_t cost,
			const uint64_t *addrs, uint32_t n);

/* update.c */
bool link_send_update(struct link_peer *peer);

/* tx.c */
bool link_tx_get_own(struct link_peer *peer, struct link_txframe *frame);
void link_send_own(struct link_txframe *frame, const struct link_send_args *args,
		   uint32_t body_bytes);
void link_send_again(struct link_txframe *frame, uint32_t bytes);
void link_send_outside(struct link_txframe *frame, const struct link_send_args *args, uint8_t ttl);

/* rx_hold.c */
void link_copy_out_old(struct link_peer *peer);

/* app_buffers.c */
int link_lend_init(struct link *link);

/* control.c */
bool link_quotes(const struct link_peer *peer, const union link_message *quoted);
