/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The careful protocol of one peer (P2 section 5.3): the number of each frame, the credits it
 * needs and brings, which window update is due, what an answer to SYNC proves. A frame that the
 * network lost is sent again under its number (log.h), so here it is a frame that comes late.
 * Another protocol under the same message layer offers these functions in a file of its own.
 * Buffers and peers are link's business.
 * Calls: window.h.
 */
#pragma once

#include <assert.h>
#include <endian.h>

#include <careful/abi.h>
#include <careful/careful.h>
#include <careful/wire.h>

#include "link/window.h"

/*
 * @seq_out:  number of the last frame sent
 * @seq_in:   of the last one received
 * @ahead:    most that a frame's number may be beyond seq_in
 * @ask:      what our frames ask for beside the window, @asked: and the peer's last (reserve.c)
 * @freeing:  buffers whose addresses wait in the fill batch; returned when published
 * @built:    buffers that frames will fill which are built and not sent yet
 * @most:     buffers that may be filled beyond those returned: the window, and what frames to a
 *            group gave back (group.c)
 */
struct flow {
	struct window_tx tx;
	struct window_rx rx;
	uint32_t seq_out;
	uint32_t seq_in;
	uint32_t ahead;
	uint16_t ask;
	__be16 asked;
	uint32_t freeing;
	uint32_t built;
	uint32_t most;
};

/* Verdict on a frame with the right cookie and check. */
enum flow_verdict {
	FLOW_NEXT, /* the one that is due */
	FLOW_OLD, /* seen before, or beyond what can be: anyone can send it again */
	FLOW_GAP, /* frames before it are missing */
	FLOW_BAD, /* it had no credit, or brings credits that cannot be */
};

/* Our window opens, beside which so much may be granted: frames are counted from 1. */
static inline void flow_open(struct flow *flow, uint32_t window, uint32_t reserve)
{
	flow->seq_in = 0;
	flow->ahead = window + reserve;
	flow->most = window;
	window_rx_init(&flow->rx, window);
}

/* The peer's window is known, and what it grants beside it. */
static inline void flow_grant(struct flow *flow, uint32_t window, uint32_t reserve)
{
	flow->seq_out = 0;
	window_tx_init(&flow->tx, window);
	flow->tx.reserve = reserve;
}

/* Both are over. Frames of the next may come before its WELCOME says how we may send: the
 * credits that they carry are for the nothing that we sent. */
static inline void flow_close(struct flow *flow)
{
	window_tx_init(&flow->tx, 0);
	flow->ask = 0;
	flow->freeing = 0;
}

/* Reports whether anything was received in it: buffers are counted with careful alone. */
static inline bool flow_received(const struct flow *flow)
{
	return flow->rx.received != 0 || flow->seq_in != 0;
}

/* The same, or given back by frames to a group. */
static inline bool flow_used(const struct flow *flow)
{
	return flow_received(flow) || flow->most != flow->rx.size;
}

static inline bool flow_may_send(const struct flow *flow, uint32_t cost)
{
	return window_tx_may_send(&flow->tx, cost);
}

/* Reports whether a frame may be built that is sent later: with credits for each that is. */
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

/* The protocol's fields of a frame's header (careful_hdr). */
struct flow_stamp {
	uint32_t seq;
	uint32_t credits;
	uint16_t extra;
};

/* A frame leaves. */
static inline struct flow_stamp flow_stamp(struct flow *flow, uint32_t cost)
{
	assert(window_tx_free(&flow->tx) >= cost);
	window_tx_send(&flow->tx, cost);
	return (struct flow_stamp){ ++flow->seq_out, window_rx_announce(&flow->rx), flow->ask };
}

/* Takes the credits of a frame; false: they cannot be. A frame that comes late says less than
 * those that overtook it. */
static inline bool flow_heed(struct flow *flow, uint32_t credits)
{
	return !window_tx_credit(&flow->tx, credits) || (int32_t)(credits - flow->tx.credits) < 0;
}

/* A frame came that fills cost buffers. *missing: of a gap, how many frames. */
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

/* Credits for a frame to a group are set aside, before the other members have theirs. */
static inline void flow_hold(struct flow *flow, uint32_t cost)
{
	window_tx_send(&flow->tx, cost);
}

static inline void flow_unhold(struct flow *flow, uint32_t cost)
{
	flow->tx.sent -= cost;
}

/* It leaves under the number that it returns, and gives so many back. */
static inline uint32_t flow_cast(struct flow *flow, uint32_t credits)
{
	flow->most += credits;
	window_rx_settle(&flow->rx, credits);
	return ++flow->seq_out;
}

/* Receive buffers are in the fill batch; then it is published, and they are owed. */
static inline void flow_free(struct flow *flow, uint32_t cost)
{
	flow->freeing += cost;
}

/* Returns how many buffers its frames may have filled in all, as of now. */
static inline uint32_t flow_publish(struct flow *flow)
{
	window_rx_return(&flow->rx, flow->freeing);
	flow->freeing = 0;
	return flow->rx.returned + flow->most;
}

/* Reports whether so many buffers are held that the peer may soon have no credit. */
static inline bool flow_holds_many(const struct flow *flow, uint32_t held)
{
	return held >= flow->rx.threshold;
}

/* Reports whether as many are held as may be while others are to be served: less than would keep an
 * update from being due. */
static inline bool flow_holds_share(const struct flow *flow, uint32_t held)
{
	return held >= (flow->rx.size + 7) / 8;
}

/* Reports whether some of what was sent has certainly not been handled: more than may stay owed. */
static inline bool flow_busy(const struct flow *flow)
{
	return window_tx_free(&flow->tx) <= flow->tx.size - window_threshold(flow->tx.size);
}

/* Reports whether the peer owes an answer to what was sent: credits, beyond those that may stay owed
 * for ever. */
static inline bool flow_awaits(const struct flow *flow)
{
	return window_tx_outstanding(&flow->tx) != 0;
}

/* What SYNC and its answer say. */
static inline void flow_describe(const struct flow *flow, struct careful_ctrl *ctrl)
{
	ctrl->seq_sent = htobe32(flow->seq_out);
	ctrl->seq_rcvd = htobe32(flow->seq_in);
	ctrl->returned = htobe32(flow->rx.returned);
}

/* The answer told what is owed, so it need not be told again. */
static inline void flow_told(struct flow *flow)
{
	window_rx_announce(&flow->rx);
}

/* Reports whether an answer to SYNC knows of the same frames; those under way make it differ. */
static inline bool flow_agrees(const struct flow *flow, const struct careful_ctrl *ack)
{
	return be32toh(ack->seq_sent) == flow->seq_in && be32toh(ack->seq_rcvd) == flow->seq_out;
}

/* Frames that one which differs finds missing. */
static inline uint32_t flow_missing(const struct flow *flow, const struct careful_ctrl *ack)
{
	return (flow->seq_out - be32toh(ack->seq_rcvd)) + (be32toh(ack->seq_sent) - flow->seq_in);
}

/* Reports whether so many can be: each took a credit of one end's. */
static inline bool flow_can_miss(const struct flow *flow, uint32_t frames)
{
	return frames <= flow->tx.size + flow->tx.reserve + flow->ahead;
}

/* Takes the credits of an answer; false: they cannot be. */
static inline bool flow_credit(struct flow *flow, const struct careful_ctrl *ack)
{
	return flow_heed(flow, be32toh(ack->returned));
}

static inline void flow_info(const struct flow *flow, struct careful_peer_info *info)
{
	info->credits_free = window_tx_free(&flow->tx);
	info->credits_window = flow->tx.size;
	info->buffers_owed = window_rx_owed(&flow->rx);
}
