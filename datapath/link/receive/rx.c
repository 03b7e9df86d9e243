// SPDX-License-Identifier: BSD-2-Clause
/* Receives frames: finds the peer, checks the sequence number, takes the credits. */
#include "link/send/group.h"
#include "link/link_private.h"
#include "link/repair/repair.h"
#include "link/operation_timer.h"
#include "link/session/session.h"

#include <assert.h>
#include <endian.h>
#include <string.h>

#include <careful/frame.h>

enum {
	PREFETCH_AHEAD = 4, /* frames */
	PREFETCH_LINES = 4, /* cache lines of each frame */
};

/* Results for a frame that traditional took and counted, and for one that waits: it is neither handed
 * on nor dropped. */
#define TAKEN ((enum careful_counter)(CAREFUL_COUNTERS + 1))
#define WAITS ((enum careful_counter)(CAREFUL_COUNTERS + 2))

#define PER_FRAME static inline __attribute__((always_inline))

/* Gathers the descriptors of one frame and returns their number. *bytes is 0 for a frame with too
 * many segments, which is then dropped. */
static uint32_t gather(struct link *link, const struct device_desc *descs, uint32_t n,
		       struct link_rxframe *frame, uint32_t *bytes)
{
	uint32_t i = 0;
	uint32_t last;

	*bytes = 0;
	frame->segments = 0;
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

/* Returns the datagram of an admitted frame without tags, options or extension headers; NULL for
 * the few other frames. */
PER_FRAME const uint8_t *plain_datagram(const uint8_t *data, uint32_t *bytes)
{
	uint32_t type = careful_frame_be16(data + 12);

	if (type == 0x0800 && data[ETHERNET_BYTES] == 0x45) {
		*bytes = careful_frame_be16(data + LINK_IPV4_BYTES - 4);
		return data + LINK_IPV4_BYTES;
	}
	if (type == 0x86dd && data[ETHERNET_BYTES + 6] == 17) {
		*bytes = careful_frame_be16(data + LINK_IPV4_BYTES + LINK_IPV6_MORE - 4);
		return data + LINK_IPV4_BYTES + LINK_IPV6_MORE;
	}
	return NULL;
}

/* Points the frame at its header and body. Returns false if it is not ours. */
PER_FRAME bool parse(struct link *link, struct link_rxframe *frame, uint32_t bytes)
{
	const uint8_t *data = link->queue->umem + frame->desc[0].addr;
	const uint8_t *end = data + frame->desc[0].bytes;
	const uint8_t *hdr = NULL;
	uint32_t udp_bytes;

	if (link->queue->frames_checked && bytes)
		hdr = plain_datagram(data, &udp_bytes);
	if (!hdr) {
		struct careful_datagram datagram;

		if (!careful_frame_find(data, end, bytes, &datagram) ||
		    careful_frame_readable(&datagram) != CAREFUL_XDP_ADMITTED)
			return false;
		hdr = datagram.at;
		udp_bytes = datagram.bytes + CAREFUL_FRAME_UDP;
	}
	memcpy(&frame->hdr, hdr, sizeof(frame->hdr));
	frame->checked = false;
	frame->body = hdr + LINK_HDR_BYTES;
	frame->body_total = udp_bytes - CAREFUL_FRAME_UDP - LINK_HDR_BYTES;
	frame->body_bytes = (uint32_t)(end - frame->body);
	if (frame->body_bytes > frame->body_total)
		frame->body_bytes = frame->body_total;
	/* The cost counts the sender's bytes, without padding. */
	bytes = (uint32_t)(frame->body - data) + frame->body_total;
	frame->cost = link_buffers(bytes, link->queue->buffer_bytes);
	return true;
}

/* Returns the frame's kind, or a fault. Checks the header, unless XDP has already checked it. */
PER_FRAME uint32_t classify(const struct link *link, const struct link_rxframe *frame)
{
	uint32_t kind;

	if (link->queue->frames_checked)
		return careful_frame_kind(&frame->hdr);
	kind = careful_frame_classify(&frame->hdr, frame->body_total);
	/* Frames without a sequence number must end at XDP. */
	return kind >= CAREFUL_FRAME_PLAIN && careful_frame_ends_at_xdp(&frame->hdr) ?
		       CAREFUL_XDP_DROP_TYPE :
		       kind;
}

/* Returns the counter of a dropped frame, or CAREFUL_COUNTERS. A gap or impossible credits end the
 * epoch. */
static inline enum careful_counter apply_verdict(struct link_peer *peer, enum flow_verdict verdict,
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

/* Handles a frame that is not the next in order. A frame ahead of missing ones waits. */
static enum careful_counter out_of_order(struct link_rxframe *frame, enum flow_verdict verdict,
					 uint32_t missing)
{
	enum careful_counter dropped;

	if (verdict == FLOW_OLD) {
		reorder_duplicate(frame);
		return CAREFUL_C_DROP_TWICE;
	}
	if (verdict != FLOW_GAP || !frame->peer->link->repairs)
		return apply_verdict(frame->peer, verdict, missing);
	dropped = reorder_take(frame, missing + 1);
	if (dropped == CAREFUL_C_BAD_CREDITS)
		return apply_verdict(frame->peer, FLOW_BAD, 0);
	return dropped == CAREFUL_COUNTERS ? WAITS : dropped;
}

/* Handles the next frame in order, which may have been missing. */
static inline enum careful_counter take_next(struct link_peer *peer)
{
	if ((int32_t)(peer->repair.highest - peer->flow.seq_in) >= 0)
		reorder_next(peer);
	peer->heard = true;
	return CAREFUL_COUNTERS;
}

/* Admits a frame of a session; repair: of a frame to a group. */
PER_FRAME enum careful_counter admit_session(struct link *link, struct link_rxframe *frame,
					     bool repair)
{
	struct link_peer *peer = frame->peer;
	enum flow_verdict verdict;
	uint32_t missing = 0;

	frame->epoch = peer->epoch;
	if (link->traditional)
		return link->traditional->ops->take(link, frame) ? TAKEN : WAITS;
	OPERATION(OPERATION_TAKE);
	verdict = flow_receive(&peer->flow, &frame->hdr, frame->cost, &missing);
	if (repair && verdict == FLOW_NEXT && !link_group_settle(frame))
		verdict = FLOW_BAD;
	if (verdict != FLOW_NEXT)
		return out_of_order(frame, verdict, missing);
	if (frame->hdr.extra != peer->flow.asked)
		reservation_asked(peer, frame->hdr.extra);
	return take_next(peer);
}

/* Admits a frame to a group, or its repair: the cookie is the group's or the session's. */
static enum careful_counter admit_group(struct link *link, struct link_rxframe *frame)
{
	enum flow_verdict verdict;
	uint32_t missing;

	frame->peer = link_peer_of(link, &frame->hdr);
	if (frame->peer)
		return admit_session(link, frame, true);
	if (link->traditional || !link_group_take(link, frame, &verdict, &missing))
		return CAREFUL_C_DROP_COOKIE;
	return verdict == FLOW_NEXT ? take_next(frame->peer) :
				      out_of_order(frame, verdict, missing);
}

/* Admits a frame to its session or group. Returns the counter of a drop, TAKEN, WAITS, or
 * CAREFUL_COUNTERS. bytes: of the frame as it arrived. */
PER_FRAME enum careful_counter admit(struct link *link, struct link_rxframe *frame, uint32_t bytes)
{
	enum careful_counter dropped;

	switch (classify(link, frame)) {
	case CAREFUL_FRAME_PLAIN:
		frame->peer = link_peer_of(link, &frame->hdr);
		if (!frame->peer)
			return CAREFUL_C_DROP_COOKIE;
		break;
	case CAREFUL_FRAME_SEALED:
		dropped = seal_take(link, frame, bytes);
		if (dropped != CAREFUL_COUNTERS)
			return dropped;
		break;
	case CAREFUL_FRAME_GROUP:
		return admit_group(link, frame);
	case CAREFUL_XDP_DROP_CHECK:
		return CAREFUL_C_DROP_CHECK;
	default:
		return CAREFUL_C_DROP_MALFORMED;
	}
	return admit_session(link, frame, false);
}

/* Releases a frame's buffers without credits for any peer. */
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

static inline void count_received(struct link *link, const struct link_rxframe *frame)
{
	frame->peer->rx_frames++;
	frame->peer->rx_bytes += frame->body_total;
	link_count(link, CAREFUL_C_RX_FRAMES);
	link->counters[CAREFUL_C_RX_BYTES] += frame->body_total;
}

void link_received(struct link *link, const struct link_rxframe *frame)
{
	count_received(link, frame);
}

/* Handles one frame. Returns true if the frame goes to the layer above; otherwise the frame waits or
 * its buffers are released. */
PER_FRAME bool take(struct link *link, struct link_rxframe *frame, uint32_t bytes)
{
	enum careful_counter dropped = CAREFUL_C_DROP_MALFORMED;

	if (parse(link, frame, bytes))
		dropped = admit(link, frame, bytes);
	if (dropped != CAREFUL_COUNTERS) {
		if (dropped < CAREFUL_COUNTERS) {
			link_count(link, dropped);
			drop(link, frame);
			frame->peer = NULL;
		}
		return dropped == TAKEN;
	}
	count_received(link, frame);
	if (frame->hdr.type == CAREFUL_UPDATE) {
		link_count(link, CAREFUL_C_RX_UPDATES);
		link_release(link, frame);
		return false;
	}
	return true;
}

/* Traces the time to take a frame from the ring. If the frame is not handed on, it counts as
 * placed. */
TRACE_COLD static void trace_taken(struct link_rxframe *frame, bool handed_on, uint64_t began_ns)
{
	uint64_t now = clock_now_ns();

	frame->parse_ns = (uint32_t)(now - began_ns);
	frame->began_ns = now;
	if (!handed_on)
		link_placed(frame);
}

/* Prefetches a frame's headers and a short body. */
static inline void prefetch(const struct link *link, uint32_t at)
{
	const uint8_t *data = link->queue->umem + link->rx_descs[at].addr;

	for (uint32_t i = 0; i < PREFETCH_LINES; i++)
		__builtin_prefetch(data + 64 * i);
}

/* Takes a batch from the device. link_rx_next() must have returned all frames of the last one. */
void link_rx(struct link *link)
{
	assert(link->rx_at == link->rx_got);
	link->rx_began_ns = trace_begin(CAREFUL_STAGE_HOST_RX);
	link->rx_follow = LINK_BATCH;
	link->rx_at = 0;
	link->rx_got = link->queue->ops->rx(link->queue, link->rx_descs, LINK_BATCH);
	if (!link->rx_got)
		link->rx_drains++;
	for (uint32_t i = 1; i < PREFETCH_AHEAD && i < link->rx_got; i++)
		prefetch(link, i);
}

/* Hands on a waiting frame that is now the next in order. Returns false if there is none. */
static bool hand_on_waiting(struct link *link, struct link_rxframe *frame)
{
	for (uint32_t i = 0; i < link->peers_max; i++) {
		struct link_peer *peer = &link->peers[link->follow];

		while (reorder_holds(peer, peer->flow.seq_in + 1)) {
			reorder_unwait(peer,
				       &peer->repair.early[++peer->flow.seq_in & link->early_mask],
				       frame);
			if (frame->hdr.flags & CAREFUL_F_BCAST_EVENT && !link_group_settle(frame)) {
				apply_verdict(peer, FLOW_BAD, 0);
				drop(link, frame);
				break;
			}
			if (!link_group_is(frame) && frame->hdr.extra != peer->flow.asked)
				reservation_asked(peer, frame->hdr.extra);
			link_received(link, frame);
			if (frame->hdr.type != CAREFUL_UPDATE)
				return true;
			link_count(link, CAREFUL_C_RX_UPDATES);
			link_release(link, frame);
		}
		link->follow = link->follow + 1 < link->peers_max ? link->follow + 1 : 0;
	}
	link->following = false;
	return false;
}

/* Returns the next frame; false if there is none. The caller must release or hold each frame before
 * the next call, and call link_publish() at the end. Each frame is checked after the one before was
 * handled, so that the effects of that one apply. */
bool link_rx_take(struct link *link, struct link_rxframe *frame)
{
	while (true) {
		uint64_t began_ns = link->rx_began_ns;
		uint32_t used, bytes;
		bool handed_on;

		if (link->following && link->rx_follow) {
			link->rx_follow--;
			if (link->traditional ? link->traditional->ops->next_waiting(link, frame) :
						hand_on_waiting(link, frame))
				return true;
		}
		if (link->rx_at == link->rx_got)
			return false;
		if (began_ns && link->rx_at)
			began_ns = clock_now_ns();
		if (link->rx_at + PREFETCH_AHEAD < link->rx_got)
			prefetch(link, link->rx_at + PREFETCH_AHEAD);
		used = gather(link, link->rx_descs + link->rx_at, link->rx_got - link->rx_at, frame,
			      &bytes);
		link->rx_at += used;
		link->rx_taken += used;
		handed_on = take(link, frame, bytes);
		frame->began_ns = 0;
		if (began_ns)
			trace_taken(frame, handed_on, began_ns);
		if (handed_on)
			return true;
	}
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

/* Ends a traced frame's hostRx. */
TRACE_COLD void link_trace_placed(struct link_rxframe *frame)
{
	trace_end(span_of(frame));
	frame->began_ns = 0;
}

/* Interrupts a traced frame's hostRx, which the holder of the frame will end. */
TRACE_COLD struct careful_trace link_trace_held(struct link_rxframe *frame)
{
	struct careful_trace span = span_of(frame);

	span.before_ns += (uint32_t)(clock_now_ns() - frame->began_ns);
	frame->began_ns = 0;
	return span;
}

bool link_stale(const struct link_rxframe *frame)
{
	return frame->epoch != frame->peer->epoch;
}
