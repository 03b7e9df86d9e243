/* SPDX-License-Identifier: BSD-2-Clause */
/* The careful protocol of one peer (P2 section 5.3): frame numbers, credits, window updates, and
 * the meaning of SYNC answers. A repair has the number of the lost frame (log.h), so here it is just
 * a late frame. */
#pragma once

#include <assert.h>
#include <endian.h>

#include <careful/abi.h>
#include <careful/careful.h>
#include <careful/wire.h>

#include "link/window.h"

struct flow {
	struct window_tx tx;
	struct window_rx rx;
	uint32_t seq_out; /* number of the last frame sent */
	uint32_t seq_in; /* number of the last frame received in order */
	uint32_t ahead; /* most by which a frame's number may exceed seq_in */
	uint16_t ask; /* buffers that our frames ask for beyond the window (reservation.c) */
	__be16 asked; /* the peer's last such request */
	uint32_t freeing; /* buffers in the fill batch, until flow_publish() */
	uint32_t built; /* buffers that built but unsent frames will fill */
	uint32_t most; /* buffers that the peer may fill beyond those returned: W, and credits by
			* frames to a group (group.c) */
};

/* Verdict on a frame with the right cookie and check. */
enum flow_verdict {
	FLOW_NEXT, /* the next in order */
	FLOW_OLD, /* seen before, or beyond the window: anyone can repeat a frame */
	FLOW_GAP, /* frames before it are missing */
	FLOW_BAD, /* it had no credit, or its credits are impossible */
};

/* Opens our window, beyond which we may grant `reserve`. The first frame has number 1. */
static inline void flow_open(struct flow *flow, uint32_t window, uint32_t reserve)
{
	flow->seq_in = 0;
	flow->ahead = window + reserve;
	flow->most = window;
	window_rx_init(&flow->rx, window);
}

/* Takes the peer's window and the most that it grants. */
static inline void flow_grant(struct flow *flow, uint32_t window, uint32_t reserve)
{
	flow->seq_out = 0;
	window_tx_init(&flow->tx, window);
	flow->tx.reserve = (uint16_t)reserve;
}

/* Closes both windows. Frames of the next epoch can arrive before WELCOME grants us a window. We
 * have sent nothing yet, so their credits are zero. */
static inline void flow_close(struct flow *flow)
{
	window_tx_init(&flow->tx, 0);
	flow->ask = 0;
	flow->freeing = 0;
}

/* Reports whether any frame arrived in this window; rx.received alone misses traditional frames. */
static inline bool flow_received(const struct flow *flow)
{
	return flow->rx.received != 0 || flow->seq_in != 0;
}

/* Reports whether any frame arrived, or frames to a group gave credits. */
static inline bool flow_used(const struct flow *flow)
{
	return flow_received(flow) || flow->most != flow->rx.size;
}

static inline bool flow_may_send(const struct flow *flow, uint32_t cost)
{
	return window_tx_may_send(&flow->tx, cost);
}

/* Reports whether a frame may be built to be sent later; all built frames have credits. */
static inline bool flow_may_build(const struct flow *flow, uint32_t cost)
{
	return window_tx_may_send(&flow->tx, flow->built + cost);
}

/* An update may take the last credit. */
static inline bool flow_may_update(const struct flow *flow)
{
	return window_tx_may_update(&flow->tx);
}

static inline bool flow_update_due(const struct flow *flow)
{
	return window_rx_update_due(&flow->rx);
}

/* The fields of struct careful_hdr that belong to the protocol. */
struct flow_stamp {
	uint32_t seq;
	uint32_t credits;
	uint16_t extra;
};

/* Numbers a frame that leaves. */
static inline struct flow_stamp flow_stamp(struct flow *flow, uint32_t cost)
{
	assert(window_tx_free(&flow->tx) >= cost);
	window_tx_send(&flow->tx, cost);
	return (struct flow_stamp){ ++flow->seq_out, window_rx_announce(&flow->rx), flow->ask };
}

/* Takes the credits of a frame; false if they are impossible. A late frame has fewer credits than
 * frames that overtook it. */
static inline bool flow_heed(struct flow *flow, uint32_t credits)
{
	return !window_tx_credit(&flow->tx, credits) || (int32_t)(credits - flow->tx.credits) < 0;
}

/* Classifies a received frame that fills `cost` buffers. *missing: frames in the gap before it. */
static inline enum flow_verdict flow_receive(struct flow *flow, const struct careful_hdr *hdr,
					     uint32_t cost, uint32_t *missing)
{
	uint32_t ahead = careful_seq_ahead(be32toh(hdr->seq), flow->seq_in, flow->ahead);

	if (!ahead)
		return FLOW_OLD;
	if (ahead != 1) {
		*missing = ahead - 1;
		return FLOW_GAP;
	}
	if (window_rx_receive(&flow->rx, cost) || !flow_heed(flow, be32toh(hdr->credits)))
		return FLOW_BAD;
	flow->seq_in++;
	return FLOW_NEXT;
}

/* Reserves credits for a frame to a group, until all members have some. */
static inline void flow_hold(struct flow *flow, uint32_t cost)
{
	window_tx_send(&flow->tx, cost);
}

static inline void flow_unhold(struct flow *flow, uint32_t cost)
{
	flow->tx.sent -= cost;
}

/* Numbers a frame to a group, which returns `credits` buffers. */
static inline uint32_t flow_cast(struct flow *flow, uint32_t credits)
{
	flow->most += credits;
	window_rx_settle(&flow->rx, credits);
	return ++flow->seq_out;
}

/* Counts receive buffers in the fill batch; flow_publish() then makes them owed. */
static inline void flow_free(struct flow *flow, uint32_t cost)
{
	flow->freeing += cost;
}

/* Counts the batch as returned. Returns the total of buffers that the peer's frames may fill. */
static inline uint32_t flow_publish(struct flow *flow)
{
	window_rx_return(&flow->rx, flow->freeing);
	flow->freeing = 0;
	return flow->rx.returned + flow->most;
}

/* Reports whether the peer may soon have no credit, because its buffers are held. */
static inline bool flow_holds_many(const struct flow *flow, uint32_t held)
{
	return held >= flow->rx.threshold;
}

/* Reports whether disks hold their share of the window. With more, an update might never be due. */
static inline bool flow_holds_share(const struct flow *flow, uint32_t held)
{
	return held >= (window_rx_now(&flow->rx) + 7) / 8;
}

/* Reports whether the peer has certainly not handled some frames: more buffers are outstanding than
 * it may owe. */
static inline bool flow_busy(const struct flow *flow)
{
	return window_tx_free(&flow->tx) + flow->tx.withheld <=
	       flow->tx.size - window_threshold(flow->tx.size);
}

/* Reports whether the peer owes more credits than it announced as withheld. */
static inline bool flow_awaits(const struct flow *flow)
{
	return window_tx_outstanding(&flow->tx) > flow->tx.withheld;
}

/* Fills in the counts of SYNC and its answer. */
static inline void flow_describe(const struct flow *flow, struct careful_counts *counts)
{
	counts->seq_sent = htobe32(flow->seq_out);
	counts->seq_rcvd = htobe32(flow->seq_in);
	counts->returned = htobe32(flow->rx.announced + window_rx_owed(&flow->rx));
	counts->withheld = htobe32(flow->rx.withheld);
}

/* Notes that an answer to SYNC has announced the owed credits. */
static inline void flow_announced(struct flow *flow)
{
	window_rx_announce(&flow->rx);
}

/* Reports whether an answer to SYNC agrees; frames under way make it differ. */
static inline bool flow_agrees(const struct flow *flow, const struct careful_counts *ack)
{
	return be32toh(ack->seq_sent) == flow->seq_in && be32toh(ack->seq_rcvd) == flow->seq_out;
}

/* Returns how many frames are missing according to an answer that differs. */
static inline uint32_t flow_missing(const struct flow *flow, const struct careful_counts *ack)
{
	return (flow->seq_out - be32toh(ack->seq_rcvd)) + (be32toh(ack->seq_sent) - flow->seq_in);
}

/* Reports whether so many frames can be missing: each used a credit. */
static inline bool flow_can_miss(const struct flow *flow, uint32_t frames)
{
	return frames <= flow->tx.size + flow->tx.reserve + flow->ahead;
}

/* Takes the credits of an answer; false if they are impossible. */
static inline bool flow_credit(struct flow *flow, const struct careful_counts *ack)
{
	uint32_t withheld = be32toh(ack->withheld);

	flow->tx.withheld = (uint16_t)(withheld < flow->tx.size ? withheld : 0);
	return flow_heed(flow, be32toh(ack->returned));
}

static inline void flow_info(const struct flow *flow, struct careful_peer_info *info)
{
	info->credits_free = window_tx_free(&flow->tx);
	info->credits_window = flow->tx.size;
	info->buffers_owed = window_rx_owed(&flow->rx);
}
