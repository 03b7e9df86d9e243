// SPDX-License-Identifier: BSD-2-Clause
/* Sent frames of the traditional protocol. Their send buffers are kept until the peer acknowledges
 * them, and are sent again on request. A buffer that the device uses is neither changed nor sent
 * again. */
#include "link/traditional/traditional_private.h"

#include <assert.h>
#include <endian.h>

static uint32_t *copy_at(const struct link_peer *peer, uint32_t seq)
{
	return &traditional_peer(peer)->copies[seq & (peer->link->traditional->numbers_out - 1)];
}

static uint32_t chunk_of(const struct link *link, uint64_t addr)
{
	return (uint32_t)(addr >> link->traditional->chunk_shift) - link->queue->rx_chunks;
}

static void set_free(struct link *link, uint32_t chunk)
{
	link->tx_free[link->tx_free_count++] =
		(uint64_t)(link->queue->rx_chunks + chunk) * link->queue->chunk_bytes;
}

/* Reports whether kept frames leave little room, so that an acknowledgement is needed soon. */
bool traditional_short(const struct link_peer *peer)
{
	uint32_t most = peer->link->traditional->copies_max;

	return traditional_peer(peer)->copies_kept + most / 4 >= most;
}

/* Reports whether one frame and `more` buffers may be kept: within the peer's share of the send
 * buffers, or as its only frame. */
bool traditional_may_keep(const struct link_peer *peer, uint32_t more)
{
	const struct traditional_link *all = peer->link->traditional;
	uint32_t numbers = window_tx_outstanding(&peer->flow.tx);

	return numbers + more < all->numbers_out &&
	       (traditional_peer(peer)->copies_kept + more < all->copies_max || !(numbers + more));
}

/* Reports whether this frame asks for an acknowledgement: after half of the frames that may be
 * kept, so that the answer comes before the other half is used. */
static bool asks(const struct link_peer *peer)
{
	uint32_t since = peer->flow.seq_out - traditional_peer(peer)->asked_seq;
	uint32_t kept = window_tx_outstanding(&peer->flow.tx);

	return (since < kept ? since : kept) >= peer->link->traditional->copies_max / 2;
}

/* Returns the header fields that the protocol sets. */
static struct flow_stamp stamp(const struct link_peer *peer)
{
	return (struct flow_stamp){ peer->flow.seq_out, peer->flow.seq_in,
				    traditional_peer(peer)->answered };
}

void traditional_write_ack(const struct link_peer *peer, struct careful_hdr *hdr)
{
	struct flow_stamp ack = stamp(peer);

	hdr->credits = htobe32(ack.credits);
	hdr->extra = htobe16(ack.extra);
}

/* Keeps the buffers of the frame that was numbered last. */
static void keep(struct link_peer *peer, const struct device_desc *desc, uint32_t segments)
{
	struct link *link = peer->link;
	uint32_t next = TRADITIONAL_NONE;

	for (uint32_t i = segments; i-- > 0;) {
		uint32_t chunk = chunk_of(link, desc[i].addr);

		link->traditional->copies[chunk] = (struct traditional_copy){
			.at = desc[i].addr,
			.bytes = desc[i].bytes,
			.next = next,
			.kept = true,
			.away = true,
		};
		next = chunk;
	}
	traditional_peer(peer)->copies_kept += segments;
	*copy_at(peer, peer->flow.seq_out) = next;
}

/* Numbers a frame and keeps its buffers. A data frame may ask for an acknowledgement. */
struct flow_stamp traditional_number_frame(struct link_peer *peer, const struct device_desc *desc,
					   uint32_t segments, enum careful_type type,
					   uint8_t *flags)
{
	peer->flow.tx.sent = ++peer->flow.seq_out;
	if (type == CAREFUL_DATA && asks(peer)) {
		*flags |= CAREFUL_F_ASK;
		traditional_peer(peer)->asked_seq = peer->flow.seq_out;
	}
	keep(peer, desc, segments);
	return stamp(peer);
}

void traditional_sent(struct link *link, uint64_t addr)
{
	uint32_t chunk = chunk_of(link, addr);
	struct traditional_copy *copy = &link->traditional->copies[chunk];

	copy->away = false;
	if (!copy->kept)
		set_free(link, chunk);
}

/* Frees the buffers of an acknowledged frame, or lets traditional_sent() free them. */
static void free_copy(struct link_peer *peer, uint32_t seq)
{
	struct link *link = peer->link;
	uint32_t *first = copy_at(peer, seq);

	for (uint32_t chunk = *first; chunk != TRADITIONAL_NONE;) {
		struct traditional_copy *copy = &link->traditional->copies[chunk];
		uint32_t next = copy->next;

		copy->kept = false;
		traditional_peer(peer)->copies_kept--;
		if (!copy->away)
			set_free(link, chunk);
		chunk = next;
	}
	*first = TRADITIONAL_NONE;
}

/* Takes the acknowledgement of all numbers up to this one. Returns false if it was never sent. */
bool traditional_acked(struct link_peer *peer, uint32_t seq)
{
	struct flow *flow = &peer->flow;

	if ((int32_t)(seq - flow->tx.credits) <= 0)
		return true; /* nothing new, or a late frame */
	if (seq - flow->tx.credits > flow->tx.sent - flow->tx.credits)
		return false;
	while (flow->tx.credits != seq)
		free_copy(peer, ++flow->tx.credits);
	traditional_peer(peer)->come = true;
	return true;
}

/* Calls fn for each kept number whose bit is set. */
static void for_each(struct link_peer *peer, uint32_t after, const uint8_t *bits, uint32_t bytes,
		     void (*fn)(struct link_peer *peer, uint32_t seq))
{
	for (uint32_t i = 0; i < bytes * 8; i++) {
		uint32_t seq = after + 1 + i;
		const struct flow *flow = &peer->flow;

		if (!(bits[i / 8] >> i % 8 & 1))
			continue;
		if (seq - flow->tx.credits - 1 >= flow->tx.sent - flow->tx.credits)
			continue; /* not sent, or acknowledged */
		if (*copy_at(peer, seq) != TRADITIONAL_NONE)
			fn(peer, seq);
	}
}

static void acknowledge(struct link_peer *peer, uint32_t seq)
{
	free_copy(peer, seq);
	traditional_peer(peer)->come = true;
}

/* Takes the acknowledgement of those numbers after this one whose bits are set. */
void traditional_acked_selected(struct link_peer *peer, uint32_t after, const uint8_t *bits,
				uint32_t bytes)
{
	for_each(peer, after, bits, bytes, acknowledge);
}

/* Repeats a frame, unless the device still uses it. */
static void send_again(struct link_peer *peer, uint32_t seq)
{
	struct link *link = peer->link;
	struct traditional_copy *copies = link->traditional->copies;
	struct link_txframe frame = { .peer = peer };
	uint32_t total = 0;

	for (uint32_t chunk = *copy_at(peer, seq); chunk != TRADITIONAL_NONE;
	     chunk = copies[chunk].next) {
		const struct traditional_copy *copy = &copies[chunk];

		if (copy->away)
			return;
		frame.desc[frame.segments] = (struct device_desc){
			.addr = copy->at,
			.bytes = copy->bytes,
			.options = copy->next == TRADITIONAL_NONE ? 0 : DEVICE_DESC_MORE,
		};
		frame.segments++;
		total += copy->bytes;
	}
	assert(frame.segments);
	for (uint32_t i = 0; i < frame.segments; i++)
		copies[chunk_of(link, frame.desc[i].addr)].away = true;
	link_send_again(&frame, total);
	link_count(link, CAREFUL_C_SENT_AGAIN);
	peer->session->sent_again++;
}

void traditional_send_again(struct link_peer *peer, uint32_t after, const uint8_t *bits,
			    uint32_t bytes)
{
	if (peer->phase != LINK_OPEN || !peer->llhdr.bytes)
		return;
	link_complete(peer->link); /* so that sent buffers can be sent again */
	for_each(peer, after, bits, bytes, send_again);
}

void traditional_forget_sent(struct link_peer *peer)
{
	struct flow *flow = &peer->flow;

	while (flow->tx.credits != flow->tx.sent)
		free_copy(peer, ++flow->tx.credits);
}
