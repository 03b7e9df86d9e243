// SPDX-License-Identifier: BSD-2-Clause
/*
 * Frames in: find the peer, check the sequence, take the credits, and see every
 * receive buffer back into the fill ring. A credit is given back when its buffer
 * is published there, not earlier. Calls session.c, peer.c, group.c, seal.c, reserve.c,
 * traditional_rx.c.
 */
#include "link/group.h"
#include "link/link.h"
#include "link/timed.h"

#include <assert.h>
#include <endian.h>
#include <string.h>

#include <careful/frame.h>

/* Of what a batch does with each frame: it is there twice, once for each protocol. */
#define PER_FRAME static inline __attribute__((always_inline))

/* Gathers the descriptors of one frame; returns how many it took. A frame of more
 * segments than any of ours gives *bytes 0, so that it is dropped. */
PER_FRAME uint32_t gather(struct link *link, const struct device_desc *descs, uint32_t n,
			  struct link_rxframe *frame, uint32_t *bytes)
{
	uint32_t i = 0;
	uint32_t last;

	*bytes = 0;
	frame->segments = 0;
	frame->checked = false;
	do {
		assert(i < n); /* the device never hands out part of a frame */
		last = i++;
		*bytes += descs[last].bytes;
		if (last < DEVICE_SEGMENTS_MAX)
			frame->desc[frame->segments++] = descs[last];
		else
			link->fill[link->fill_count++] = descs[last].addr;
	} while (descs[last].options & DEVICE_DESC_MORE);
	if (i > DEVICE_SEGMENTS_MAX)
		*bytes = 0;
	return i;
}

/* Points the frame at its header and body; false: not one of ours. */
PER_FRAME bool parse(struct link *link, struct link_rxframe *frame, uint32_t bytes)
{
	const uint8_t *data = link->queue->umem + frame->desc[0].addr;
	const uint8_t *end = data + frame->desc[0].bytes;
	struct careful_datagram datagram;

	if (!careful_frame_find(data, end, bytes, &datagram) ||
	    careful_frame_readable(&datagram) != CAREFUL_XDP_ADMITTED)
		return false;
	memcpy(&frame->hdr, datagram.at, sizeof(frame->hdr));
	frame->body = datagram.at + LINK_HDR_BYTES;
	frame->body_total = datagram.bytes - LINK_HDR_BYTES;
	frame->body_bytes = (uint32_t)(end - frame->body);
	if (frame->body_bytes > frame->body_total)
		frame->body_bytes = frame->body_total;
	/* The cost is that of the bytes which the sender counted: no padding. */
	bytes = (uint32_t)(frame->body - data) + frame->body_total;
	frame->cost = link_buffers(bytes, link->queue->buffer_bytes);
	return true;
}

/* Finds the session that the frame belongs to; returns what to count where it is dropped, or
 * CAREFUL_COUNTERS. */
PER_FRAME enum careful_counter identify(struct link *link, struct link_rxframe *frame)
{
	switch (careful_frame_judge(&frame->hdr, frame->body_total)) {
	case CAREFUL_XDP_ADMITTED:
		break;
	case CAREFUL_XDP_DROP_CHECK:
		return CAREFUL_C_DROP_CHECK;
	default: /* also what ends at XDP: it has no sequence number */
		return CAREFUL_C_DROP_MALFORMED;
	}
	frame->peer = link_peer_of(link, &frame->hdr);
	if (!frame->peer)
		return CAREFUL_C_DROP_COOKIE;
	frame->epoch = frame->peer->epoch;
	return CAREFUL_COUNTERS;
}

/* What comes of a frame of a session, as identify(). A gap ahead and impossible credits break
 * the session. */
static inline enum careful_counter judged(struct link_peer *peer, enum flow_verdict verdict,
					  uint32_t missing)
{
	switch (verdict) {
	case FLOW_OLD:
		return CAREFUL_C_DROP_SEQ;
	case FLOW_GAP:
		peer->heard = true;
		link_lost(peer, missing);
		return CAREFUL_C_DROP_SEQ;
	case FLOW_BAD:
		peer->heard = true;
		link_count(peer->link, CAREFUL_C_BAD_CREDITS);
		link_break(peer);
		return CAREFUL_C_DROP_SEQ;
	case FLOW_NEXT:
		break;
	}
	peer->heard = true;
	return CAREFUL_COUNTERS;
}

enum careful_counter link_judged(struct link_peer *peer, enum flow_verdict verdict,
				 uint32_t missing)
{
	return judged(peer, verdict, missing);
}

/* Checks the frame against its session. */
static enum careful_counter admit(struct link_rxframe *frame)
{
	struct link_peer *peer = frame->peer;
	enum flow_verdict verdict;
	uint32_t missing = 0;

	OPERATION(OPERATION_TAKE);
	verdict = flow_receive(&peer->flow, &frame->hdr, frame->cost, &missing);
	if (verdict == FLOW_NEXT && frame->hdr.extra != peer->flow.asked)
		reserve_asked(peer, frame->hdr.extra);
	return judged(peer, verdict, missing);
}

/* A frame's buffers go back; where it is of no session, nobody is owed them. */
static inline void drop(struct link *link, const struct link_rxframe *frame)
{
	uint32_t n = link->fill_count;

	for (uint32_t i = 0; i < frame->segments; i++)
		link->fill[n++] = frame->desc[i].addr;
	link->fill_count = n;
}

void link_drop(struct link *link, const struct link_rxframe *frame)
{
	drop(link, frame);
}

/* A frame is handed on. */
static inline void received(struct link *link, const struct link_rxframe *frame)
{
	frame->peer->rx_frames++;
	frame->peer->rx_bytes += frame->body_total;
	link_count(link, CAREFUL_C_RX_FRAMES);
	link->counters[CAREFUL_C_RX_BYTES] += frame->body_total;
}

void link_received(struct link *link, const struct link_rxframe *frame)
{
	received(link, frame);
}

/* One frame. true: it is handed on; else its buffers are seen to. `traditional` is a constant
 * where this is called. */
static inline __attribute__((always_inline)) bool
take(struct link *link, struct link_rxframe *frame, uint32_t bytes, bool traditional)
{
	enum careful_counter dropped;

	if (!parse(link, frame, bytes)) {
		link_count(link, CAREFUL_C_DROP_MALFORMED);
		drop(link, frame);
		frame->peer = NULL;
		return false;
	}
	dropped = identify(link, frame);
	if (dropped == CAREFUL_C_DROP_MALFORMED && frame->hdr.version == CAREFUL_WIRE_SEALED)
		dropped = seal_take(link, frame, bytes);
	if (dropped == CAREFUL_COUNTERS) {
		if (traditional)
			return traditional_take(link, frame);
		dropped = admit(frame);
	} else if (frame->hdr.flags & CAREFUL_F_BCAST_EVENT && dropped == CAREFUL_C_DROP_COOKIE &&
		   !traditional) {
		dropped = link_group_take(link, frame);
	}
	if (dropped != CAREFUL_COUNTERS) {
		link_count(link, dropped);
		drop(link, frame);
		frame->peer = NULL;
		return false;
	}
	received(link, frame);
	if (frame->hdr.type == CAREFUL_UPDATE) {
		link_count(link, CAREFUL_C_RX_UPDATES);
		link_release(link, frame);
		return false;
	}
	return true;
}

/* Ends the time that taking a frame from the ring took, and begins the next one's. One
 * that goes no further has been placed. */
TRACE_COLD static void taken(struct link_rxframe *frame, bool further, uint64_t *began_ns)
{
	uint64_t now = trace_now();

	frame->parse_ns = (uint32_t)(now - *began_ns);
	frame->began_ns = now;
	if (!further)
		link_placed(frame);
	*began_ns = trace_now();
}

/* Takes the frames of a batch; how many are handed on. */
static uint32_t take_batch(struct link *link, const struct device_desc *descs, uint32_t got,
			   struct link_rxframe *frames, uint64_t began_ns)
{
	uint32_t count = 0, used, bytes;

	for (uint32_t i = 0; i < got; i += used) {
		used = gather(link, descs + i, got - i, &frames[count], &bytes);
		bool further = take(link, &frames[count], bytes, false);

		frames[count].began_ns = 0;
		if (began_ns)
			taken(&frames[count], further, &began_ns);
		count += further;
	}
	return count;
}

/* The same where frames may be handed on after the one before them: n places. */
static uint32_t take_traditional(struct link *link, const struct device_desc *descs, uint32_t got,
				 struct link_rxframe *frames, uint32_t n, uint64_t began_ns)
{
	uint32_t count = 0, used, bytes;

	for (uint32_t i = 0; i < got; i += used) {
		used = gather(link, descs + i, got - i, &frames[count], &bytes);
		bool further = take(link, &frames[count], bytes, true);

		frames[count].began_ns = 0;
		if (began_ns)
			taken(&frames[count], further, &began_ns);
		count += further;
		if (link->traditional->following) /* the rest of the batch has its places, too */
			count += traditional_follow(link, &frames[count],
						    n - count - (got - i - used));
	}
	return count;
}

/*
 * Takes a batch from the device. Returns the data frames in it, at most
 * LINK_BATCH; each must be released or held, then link_publish() called. *more:
 * the device may have further frames.
 */
uint32_t link_rx(struct link *link, struct link_rxframe *frames, uint32_t n, bool *more)
{
	struct device_desc descs[LINK_BATCH];
	uint32_t got, count = 0, most = LINK_BATCH;
	uint64_t began_ns = trace_begin(CAREFUL_STAGE_HOST_RX);

	assert(n >= LINK_BATCH);
	if (link->traditional && link->traditional->following) {
		count = traditional_follow(link, frames, LINK_BATCH);
		most -= count;
		*more = true;
		if (most < DEVICE_SEGMENTS_MAX)
			return count;
	}
	got = link->queue->ops->rx(link->queue, descs, most);
	*more = got == most;
	if (!got) {
		link->rx_drains++;
		return count;
	}
	link->rx_taken += got;
	if (link->traditional)
		return count + take_traditional(link, descs, got, frames + count, most, began_ns);
	return take_batch(link, descs, got, frames, began_ns);
}

static struct careful_trace span_of(const struct link_rxframe *frame)
{
	const struct careful_hdr *hdr = &frame->hdr;
	bool data = frame->peer && hdr->type == CAREFUL_DATA;

	return (struct careful_trace){
		.stage = CAREFUL_STAGE_HOST_RX,
		.begin_ns = frame->began_ns,
		.before_ns = frame->parse_ns,
		.flags = data ? 0 : CAREFUL_TRACE_CONTROL,
		.bytes = data ? be16toh(hdr->frag_bytes) : 0,
		.frames = 1,
		.peer = frame->peer ? frame->peer->slot : 0,
		.seq = frame->peer ? be32toh(hdr->seq) : 0,
		.msg_id = data ? be32toh(hdr->msg_id) : 0,
		.frag_off = data ? be32toh(hdr->frag_off) : 0,
	};
}

/* The end of a traced frame's hostRx. */
TRACE_COLD void link_told(struct link_rxframe *frame)
{
	trace_end(span_of(frame));
	frame->began_ns = 0;
}

/* Its hostRx goes on later: who holds it begins it again, and tells of it. */
TRACE_COLD struct careful_trace link_untold(struct link_rxframe *frame)
{
	struct careful_trace span = span_of(frame);

	span.before_ns += (uint32_t)(trace_now() - frame->began_ns);
	frame->began_ns = 0;
	return span;
}

/* Whether the session that the frame came in on is over. */
bool link_stale(const struct link_rxframe *frame)
{
	return frame->epoch != frame->peer->epoch;
}

/* Buffers are in the fill batch: to the peer's account. */
static void freed(struct link *link, struct link_peer *peer, uint64_t epoch, uint32_t cost)
{
	assert(link->fill_count <= link->queue->rx_chunks);
	if (epoch != peer->epoch)
		return;
	flow_free(&peer->flow, cost);
	link_dirty(peer);
}

/* Gives receive buffers back. */
void link_release_addrs(struct link *link, struct link_peer *peer, uint64_t epoch, uint32_t cost,
			const uint64_t *addrs, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		link->fill[link->fill_count++] = addrs[i];
	freed(link, peer, epoch, cost);
}

void link_release(struct link *link, struct link_rxframe *frame)
{
	drop(link, frame);
	freed(link, frame->peer, frame->epoch, frame->cost);
}

void link_publish_freed(struct link *link)
{
	if (link->fill_count) {
		link->queue->ops->fill(link->queue, link->fill, link->fill_count);
		link->fill_count = 0;
	}
	if (link->reserve.count)
		reserve_settle(link);
	for (uint32_t i = 0; i < link->dirty_count; i++) {
		struct link_peer *peer = link->dirty[i];

		/* Before the peer hears of it. */
		__atomic_store_n(peer->may_fill, flow_publish(&peer->flow), __ATOMIC_RELEASE);
	}
}
