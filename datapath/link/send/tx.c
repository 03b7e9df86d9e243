// SPDX-License-Identifier: BSD-2-Clause
/* Sends frames: send buffers, headers, the queue between two kicks, and window updates. A send
 * buffer is free again when its frame has left (P2 section 2.1). */
#include "link/link_private.h"
#include "link/repair/repair.h"
#include "link/operation_timer.h"
#include "link/send/out.h"

#include <assert.h>
#include <endian.h>
#include <string.h>

/* Returns the bytes of all headers before the body. */
static uint32_t prefix_bytes(const struct link_peer *peer)
{
	return peer->llhdr.bytes + LINK_HDR_BYTES;
}

/* Returns the largest body that this end can send, before the peer's limits are known. */
uint32_t link_body_here(const struct link_peer *peer)
{
	uint32_t frame = queue_single_bytes(peer->link->queue);

	return frame - LLHDR_MAX - LINK_HDR_BYTES - peer->trailer;
}

/* Takes send buffers for a frame; false if too few are free. */
bool link_tx_get(struct link_peer *peer, uint32_t body_bytes, struct link_txframe *frame)
{
	struct link *link = peer->link;
	uint32_t chunk = link->queue->chunk_bytes;
	uint32_t first = chunk - LINK_PAYLOAD_AT;
	uint32_t rest = body_bytes + peer->trailer;
	uint32_t segments = rest <= first ? 1 : 1 + (rest - first + chunk - 1) / chunk;
	uint32_t prefix = prefix_bytes(peer);

	if (link->tx_free_count < segments + LINK_CHUNKS_FREE_MIN) {
		link_complete(link);
		if (link->tx_free_count < segments + LINK_CHUNKS_FREE_MIN)
			return false;
	}
	assert(segments <= DEVICE_SEGMENTS_MAX);
	frame->peer = peer;
	frame->built = 0;
	frame->segments = (uint16_t)segments;
	frame->body_total = body_bytes;
	for (uint32_t i = 0; i < segments; i++) {
		uint32_t bytes = i ? chunk : first;

		if (bytes > rest)
			bytes = rest;
		frame->desc[i].addr = link->tx_free[--link->tx_free_count];
		frame->desc[i].bytes = bytes;
		frame->desc[i].options = i + 1 < segments ? DEVICE_DESC_MORE : 0;
		rest -= bytes;
	}
	frame->umem = link->queue->umem;
	frame->body_bytes = frame->desc[0].bytes;
	frame->body = link->queue->umem + frame->desc[0].addr + LINK_PAYLOAD_AT;
	frame->hdr = (struct careful_hdr *)(frame->body - LINK_HDR_BYTES);
	frame->desc[0].addr += LINK_PAYLOAD_AT - prefix;
	frame->desc[0].bytes += prefix;
	return true;
}

/* Reports whether this many frames of one send buffer could be built now. */
bool link_tx_room(struct link *link, uint32_t frames)
{
	if (link->tx_free_count < frames + LINK_CHUNKS_FREE_MIN)
		link_complete(link);
	return link->tx_free_count >= frames + LINK_CHUNKS_FREE_MIN;
}

/* Takes send buffers for a frame that is filled before it is sent. The peer must have room for all
 * such frames, so that none waits in send buffers for a silent peer. */
bool link_tx_build(struct link_peer *peer, uint32_t body_bytes, struct link_txframe *frame)
{
	uint32_t cost;

	if (!link_may_send(peer, body_bytes))
		return false;
	cost = link_cost(peer, body_bytes);
	if (peer->link->traditional ?
		    !peer->link->traditional->ops->may_keep(peer, peer->flow.built) :
		    !flow_may_build(&peer->flow, cost))
		return false;
	if (!link_tx_get(peer, body_bytes, frame))
		return false;
	frame->built = cost;
	peer->flow.built += cost;
	return true;
}

/* Counts a frame from link_tx_get() as built. The room of built frames that it replaces suffices. */
void link_tx_built(struct link_txframe *frame)
{
	frame->built = link_cost(frame->peer, frame->body_total);
	frame->peer->flow.built += frame->built;
}

static void unbuild(struct link_txframe *frame)
{
	frame->peer->flow.built -= frame->built;
	frame->built = 0;
}

/* Frees the buffers of a frame that is not sent. */
void link_tx_put(struct link_txframe *frame)
{
	struct link *link = frame->peer->link;
	uint64_t mask = ~(uint64_t)(link->queue->chunk_bytes - 1);

	for (uint32_t i = 0; i < frame->segments; i++)
		link->tx_free[link->tx_free_count++] = frame->desc[i].addr & mask;
	frame->segments = 0;
	unbuild(frame);
}

/* Gets the pieces that hold bytes [offset, offset + bytes) of the body; returns their number. */
uint32_t link_tx_iov(const struct link_txframe *frame, uint32_t offset, uint32_t bytes,
		     struct iovec *iov)
{
	uint8_t *segment = frame->body;
	uint32_t segment_bytes = frame->body_bytes;
	uint32_t n = 0;

	for (uint32_t i = 0; bytes; i++) {
		if (i) {
			segment = frame->umem + frame->desc[i].addr;
			segment_bytes = frame->desc[i].bytes;
		}
		if (offset >= segment_bytes) {
			offset -= segment_bytes;
			continue;
		}
		uint32_t piece = segment_bytes - offset < bytes ? segment_bytes - offset : bytes;

		iov[n++] = (struct iovec){ segment + offset, piece };
		bytes -= piece;
		offset = 0;
	}
	return n;
}

void link_tx_write(struct link_txframe *frame, uint32_t offset, const void *data, uint32_t bytes)
{
	struct iovec iov[DEVICE_SEGMENTS_MAX];
	const uint8_t *from = data;
	uint32_t n;

	if (offset + bytes <= frame->body_bytes) {
		memcpy(frame->body + offset, data, bytes);
		return;
	}
	n = link_tx_iov(frame, offset, bytes, iov);
	for (uint32_t i = 0; i < n; i++) {
		memcpy(iov[i].iov_base, from, iov[i].iov_len);
		from += iov[i].iov_len;
	}
}

/* Writes the headers, except the fields of write_number() and out_finish(). */
static void write_hdr(struct link_txframe *frame, const struct link_send_args *args)
{
	const struct link_peer *peer = frame->peer;
	struct careful_hdr *hdr = frame->hdr;

	out_llhdr(&peer->llhdr, hdr, frame->body_total);
	*hdr = (struct careful_hdr){
		.version = CAREFUL_WIRE_VERSION,
		.type = args->type,
		.flags = args->flags,
		.stage_limit = args->stage_limit,
		.src_node = htobe16(peer->slot_out),
		.queue = htobe16(peer->queue_out),
		.cookie = htobe64(peer->cookie_out),
		.msg_id = htobe32(args->msg_id),
		.msg_bytes = htobe32(args->msg_bytes),
		.frag_off = htobe32(args->frag_off),
		.frag_bytes = htobe16(args->frag_bytes),
	};
}

/* Writes sequence number and credits into the header. */
static inline void write_number(struct link_txframe *frame,
				const struct traditional_link *traditional)
{
	struct link_peer *peer = frame->peer;
	struct careful_hdr *hdr = frame->hdr;
	struct flow_stamp stamp;

	OPERATION(OPERATION_SEND);
	if (traditional)
		stamp = traditional->ops->number_frame(peer, frame->desc, frame->segments,
						       (enum careful_type)hdr->type, &hdr->flags);
	else
		stamp = flow_stamp(&peer->flow, link_cost(peer, frame->body_total));
	hdr->seq = htobe32(stamp.seq);
	hdr->credits = htobe32(stamp.credits);
	hdr->extra = htobe16(stamp.extra);
}

/* Writes a sealed frame's length, tag included, into the IP and UDP headers. */
static void write_length(struct link_txframe *frame)
{
	const struct link_peer *peer = frame->peer;
	struct careful_hdr hdr = *frame->hdr;

	/* link_tx_get_own() reserves no room for the tag. */
	if (frame->segments == 1 &&
	    frame->desc[0].bytes == prefix_bytes(peer) + frame->body_total) {
		frame->desc[0].bytes += peer->trailer;
		frame->body_bytes += peer->trailer;
	}
	out_llhdr(&peer->llhdr, frame->hdr, frame->body_total + peer->trailer);
	*frame->hdr = hdr;
}

/* Seals a complete frame, whose tag also protects the payload. */
static void finish_sealed(struct link_txframe *frame)
{
	frame->hdr->version = CAREFUL_WIRE_SEALED;
	out_finish(frame, 0);
	seal_frame(frame);
}

static __attribute__((noinline)) void send_sealed(struct link_txframe *frame,
						  const struct link_send_args *args)
{
	struct link_peer *peer = frame->peer;

	write_length(frame);
	write_number(frame, peer->link->traditional);
	if (peer->repair.log)
		link_log_keep(peer, args, frame->body, frame->body_total);
	finish_sealed(frame);
}

/* Completes the header and queues the frame until link_kick(). */
void link_send(struct link_txframe *frame, const struct link_send_args *args)
{
	struct link_peer *peer = frame->peer;
	struct link *link = peer->link;

	unbuild(frame);
	write_hdr(frame, args);
	if (peer->sends == LINK_SENDS_CAREFUL) {
		write_number(frame, NULL);
		if (peer->repair.log)
			link_log_keep(peer, args, frame->body, frame->body_total);
		out_finish(frame, args->crc_bytes);
	} else if (peer->sends == LINK_SENDS_TRADITIONAL) {
		write_number(frame, frame->peer->link->traditional);
		out_finish(frame, args->crc_bytes);
	} else {
		send_sealed(frame, args);
	}
	out_queue(link, frame);
	out_sent(peer, frame->body_total, args->frag_bytes);
}

/* Sends a lost frame, or another of its cost, under its number. Announces no new credits, since the
 * receiver may drop it as a second copy. */
void link_send_repair(struct link_txframe *frame, const struct link_send_args *args, uint32_t seq)
{
	struct link_peer *peer = frame->peer;

	write_hdr(frame, args);
	if (peer->trailer)
		write_length(frame);
	frame->hdr->seq = htobe32(seq);
	frame->hdr->credits = htobe32(peer->flow.rx.announced);
	frame->hdr->extra = htobe16(peer->flow.ask);
	if (peer->trailer)
		finish_sealed(frame);
	else
		out_finish(frame, args->crc_bytes);
	out_queue(peer->link, frame);
	out_sent(peer, frame->body_total, args->frag_bytes);
	link_count(peer->link, CAREFUL_C_SENT_AGAIN);
	peer->session->sent_again++;
	link_again_done(peer, seq);
}

/* Sends an ACK frame of the traditional protocol. It has no number and is not kept. */
void link_send_own(struct link_txframe *frame, const struct link_send_args *args,
		   uint32_t body_bytes)
{
	struct link_peer *peer = frame->peer;

	frame->body_bytes = frame->body_total = body_bytes;
	frame->desc[0].bytes += body_bytes;
	write_hdr(frame, args);
	frame->hdr->seq = htobe32(peer->flow.seq_out);
	peer->link->traditional->ops->write_ack(peer, frame->hdr);
	if (peer->trailer) {
		write_length(frame);
		finish_sealed(frame);
	} else {
		out_finish(frame, args->crc_bytes);
	}
	out_queue(peer->link, frame);
	peer->link->tx_last = peer;
}

/* Repeats a frame of this many bytes with the current route and acknowledgements. */
void link_send_again(struct link_txframe *frame, uint32_t bytes)
{
	struct link_peer *peer = frame->peer;
	struct careful_hdr hdr;

	frame->hdr = (struct careful_hdr *)(peer->link->queue->umem + frame->desc[0].addr +
					    peer->llhdr.bytes);
	if (peer->trailer) {
		frame->umem = peer->link->queue->umem;
		frame->body = (uint8_t *)frame->hdr + LINK_HDR_BYTES;
		frame->body_bytes = frame->desc[0].bytes - prefix_bytes(peer);
		frame->body_total = bytes - peer->beside;
		seal_undo(frame);
	}
	hdr = *frame->hdr;
	out_llhdr(&peer->llhdr, frame->hdr, bytes - prefix_bytes(peer));
	*frame->hdr = hdr;
	frame->hdr->flags &= (uint8_t)~CAREFUL_F_ASK;
	peer->link->traditional->ops->write_ack(peer, frame->hdr);
	if (peer->trailer)
		finish_sealed(frame);
	else
		out_finish(frame, 0);
	out_queue(peer->link, frame);
	peer->link->tx_last = peer;
}

/* Writes the hop limit of an IPv6 header, or the time to live and the checksum of an IPv4 header
 * (RFC 1624). */
static void write_ttl(uint8_t *ip, uint8_t ttl)
{
	uint32_t sum = (uint32_t)(uint8_t)~ip[10] << 8 | (uint8_t)~ip[11];

	if (ip[0] >> 4 == 6) {
		ip[7] = ttl;
		return;
	}
	sum += (uint32_t)(uint8_t)~ip[8] << 8 | (uint8_t)~ip[9];
	sum += (uint32_t)ttl << 8 | ip[9];
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	ip[8] = ttl;
	ip[10] = (uint8_t)(~sum >> 8);
	ip[11] = (uint8_t)~sum;
}

/* Sends a frame outside the session: without sequence number and credit, so its loss does not count.
 * ttl: 0: the default */
void link_send_outside(struct link_txframe *frame, const struct link_send_args *args, uint8_t ttl)
{
	struct link_peer *peer = frame->peer;

	if (peer->trailer) { /* not sealed: without room for a tag */
		assert(frame->segments == 1);
		frame->desc[0].bytes -= peer->trailer;
	}
	write_hdr(frame, args);
	out_finish(frame, args->crc_bytes);
	if (ttl)
		write_ttl((uint8_t *)frame->hdr - peer->llhdr.bytes + LINK_ETHERNET_BYTES, ttl);
	out_queue(peer->link, frame);
	peer->link->tx_last = peer;
}

/* again: the previous kick did not send all frames */
TRACE_COLD static void trace_kick(const struct link *link, uint64_t began_ns, bool again)
{
	trace_end((struct careful_trace){
		.stage = CAREFUL_STAGE_NET_TX,
		.begin_ns = began_ns,
		.bytes = link->tx_pulse_payload,
		.frames = link->tx_pulse_frames,
		.peer = link->tx_pulse_frames ? link->tx_last->slot : 0,
		.seq = link->tx_pulse_frames ? link_seq_last(link->tx_last) : 0,
		.flags = again || link->kick_again ? CAREFUL_TRACE_AGAIN : 0,
	});
}

void link_kick_queued(struct link *link)
{
	struct queue *queue = link->queue;
	bool again = link->kick_again;
	uint64_t began_ns;
	int rc;

	began_ns = trace_begin(CAREFUL_STAGE_NET_TX);
	if (link->tx_queued) {
		uint32_t n = queue->ops->tx(queue, link->tx_queue, link->tx_queued);

		assert(n == link->tx_queued); /* the TX ring holds all send buffers */
		link->tx_queued = 0;
		link->tx_leaving += n;
		link->net_tx = (struct sink){ .busy = true };
	}
	rc = queue->ops->kick(queue);
	link->kick_again = rc == -EAGAIN;
	if (began_ns)
		trace_kick(link, began_ns, again);
	link->tx_pulse_payload = link->tx_pulse_frames = 0;
	link->kicks++;
	link_count(link, CAREFUL_C_PULSES);
	link_complete(link);
}

/* Handles send buffers that the device has completed. The traditional protocol may keep them. */
static inline void take_completed(struct link *link, const uint64_t *addrs, uint32_t n)
{
	uint64_t mask = ~(uint64_t)(link->queue->chunk_bytes - 1);

	OPERATION(OPERATION_LEFT);
	link->tx_leaving -= n;
	link->net_tx.busy = link->tx_leaving;
	for (uint32_t i = 0; i < n && !link->traditional; i++)
		link->tx_free[link->tx_free_count++] = addrs[i] & mask;
	for (uint32_t i = 0; i < n && link->traditional; i++)
		link->traditional->ops->sent(link, addrs[i]);
}

/* Takes back the send buffers of frames that have left. */
void link_complete(struct link *link)
{
	uint64_t addrs[LINK_BATCH];
	uint32_t n;

	do {
		n = link->queue->ops->complete(link->queue, addrs, LINK_BATCH);
		take_completed(link, addrs, n);
	} while (n == LINK_BATCH);
	link->counters[CAREFUL_C_TX_BUFFERS_HELD] = link->queue->tx_chunks - link->tx_free_count;
}

/* Takes a send buffer, perhaps the last one, for a frame of the protocol itself. */
bool link_tx_get_own(struct link_peer *peer, struct link_txframe *frame)
{
	struct link *link = peer->link;

	if (!link->tx_free_count)
		link_complete(link);
	if (!link->tx_free_count)
		return false;
	frame->peer = peer;
	frame->built = 0;
	frame->segments = 1;
	frame->body_bytes = frame->body_total = 0;
	frame->desc[0].addr = link->tx_free[--link->tx_free_count];
	frame->desc[0].options = 0;
	frame->umem = link->queue->umem;
	frame->body = frame->umem + frame->desc[0].addr + LINK_PAYLOAD_AT;
	frame->hdr = (struct careful_hdr *)(frame->body - LINK_HDR_BYTES);
	frame->desc[0].addr += LINK_PAYLOAD_AT - prefix_bytes(peer);
	frame->desc[0].bytes = prefix_bytes(peer);
	return true;
}
