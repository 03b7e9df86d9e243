// SPDX-License-Identifier: BSD-2-Clause
/* Receives frames by the traditional protocol. Frames may arrive late, twice, damaged or not at
 * all, and are handed on once and in order. Early frames wait in their receive buffers, of which
 * each peer has W. Its handlers and files have T - 1 of these; beyond that, frames are copied out
 * (rx_hold.c). One is for the frame that is due, so a repeated frame always finds a buffer. The
 * rest are for early frames. */
#include "link/traditional/traditional_private.h"
#include "link/operation_timer.h"

#include <assert.h>
#include <endian.h>

static uint32_t *early_at(const struct link_peer *peer, uint32_t seq)
{
	return &traditional_peer(peer)->early[seq & (peer->link->traditional->numbers_in - 1)];
}

static uint16_t *asked_at(const struct link_peer *peer, uint32_t seq)
{
	return &traditional_peer(peer)->asked[seq & (peer->link->traditional->numbers_in - 1)];
}

/* Returns the buffers that are held for all peers. */
static uint32_t held_buffers(const struct link *link)
{
	uint32_t n = link->traditional->early_buffers;

	for (uint32_t i = 0; i < link->peers_max; i++)
		n += link->peers[i].kept;
	return n;
}

/* Reports whether one more frame may be held. The last buffer is for acknowledgements and requests;
 * it is held only if it will soon be copied out. */
static bool one_free(const struct link_peer *peer, uint32_t cost)
{
	const struct link *link = peer->link;

	return share_may(&link->pool_share, peer->session->copied) ||
	       held_buffers(link) + cost < link->queue->info.receive_buffers;
}

/* Reports whether half of all receive buffers stay free. */
static bool many_free(const struct link *link, uint32_t cost)
{
	return held_buffers(link) + cost <= link->queue->info.receive_buffers / 2;
}

/* Reports whether a frame may wait: in the peer's own share, less held frames that could not be
 * copied out; or because other peers leave half of the pool free. */
static bool may_wait(const struct link_peer *peer, uint32_t cost)
{
	const struct traditional_link *all = peer->link->traditional;
	uint32_t own = traditional_peer(peer)->early_buffers + cost,
		 total = all->early_buffers + cost;

	if (own <= all->early_max && peer->kept + own < all->early_max + peer->flow.rx.threshold)
		return total <= all->early_pool;
	return total <= all->early_pool / 2 && many_free(peer->link, cost);
}

/* Reports whether to take the due frame: it fits into the peer's share next to waiting ones, or
 * other peers leave half of all buffers free. */
static bool may_enter(const struct link_peer *peer, uint32_t cost)
{
	uint32_t early = traditional_peer(peer)->early_buffers,
		 most = peer->link->traditional->early_max;

	early = early < most ? early : most;
	return (peer->kept + early + cost <= peer->flow.rx.size && one_free(peer, cost)) ||
	       many_free(peer->link, cost);
}

/* Notes that the peer has sent at least up to this number, so that missing frames are found. */
static void sent_up_to(struct link_peer *peer, uint32_t seq, bool missing)
{
	struct traditional *t = traditional_peer(peer);

	if ((int32_t)(seq - t->highest) <= 0)
		return;
	if (seq - t->highest > 1 || missing) {
		t->question_due = true;
		link_dirty(peer);
	}
	t->highest = seq;
}

/* Returns the counter of a damaged frame, or CAREFUL_COUNTERS. */
static enum careful_counter check_damage(const struct link_rxframe *frame)
{
	const struct careful_hdr *hdr = &frame->hdr;
	uint32_t bytes = hdr->flags & CAREFUL_F_BULK ?
				 hdr->flags & CAREFUL_F_FIRST ? sizeof(struct careful_am) : 0 :
				 frame->body_total;

	OPERATION(OPERATION_CHECK);
	if (bytes > frame->body_bytes)
		return CAREFUL_C_DROP_MALFORMED;
	if (bytes && be32toh(hdr->payload_crc) != link_crc32c(frame->body, bytes) &&
	    !frame->checked) /* sealed frames were checked */
		return CAREFUL_C_DROP_CRC;
	return CAREFUL_COUNTERS;
}

/* Makes a frame wait for those before it. */
static void add_waiting(struct link *link, struct link_rxframe *frame, uint32_t seq)
{
	struct traditional_link *all = link->traditional;
	struct traditional *t = traditional_peer(frame->peer);
	uint32_t index;

	assert(all->early_free_count); /* one for each receive buffer */
	index = all->early_free[--all->early_free_count];
	all->early[index] = *frame;
	all->early[index].began_ns = 0;
	*early_at(frame->peer, seq) = index + 1;
	t->vain = 0;
	t->early_frames++;
	t->early_buffers += frame->cost;
	all->early_buffers += frame->cost;
}

static void take_waiting(struct link *link, struct link_peer *peer, uint32_t seq,
			 struct link_rxframe *frame)
{
	struct traditional_link *all = link->traditional;
	struct traditional *t = traditional_peer(peer);
	uint32_t *entry = early_at(peer, seq);

	*frame = all->early[*entry - 1];
	all->early_free[all->early_free_count++] = *entry - 1;
	*entry = 0;
	t->early_frames--;
	t->early_buffers -= frame->cost;
	all->early_buffers -= frame->cost;
}

/* Accounts the due frame, which is handed on. */
static void count_handed_on(struct link *link, struct link_rxframe *frame)
{
	struct link_peer *peer = frame->peer;

	*asked_at(peer, ++peer->flow.seq_in) = 0;
	traditional_peer(peer)->entered = true;
	traditional_peer(peer)->refused = false;
	traditional_peer(peer)->vain = 0;
	if (*early_at(peer, peer->flow.seq_in + 1)) {
		link->following = true;
	} else if (peer->flow.seq_in != traditional_peer(peer)->highest &&
		   traditional_wanted(peer, peer->flow.seq_in + 1)) {
		traditional_peer(peer)->question_due = true;
		link_dirty(peer);
	}
	link_received(link, frame);
}

/* Checks a numbered frame. Returns the counter of a drop, or CAREFUL_COUNTERS. *due: the frame is
 * the next in order; otherwise it must wait. */
static enum careful_counter admit(struct link *link, struct link_rxframe *frame, bool *due)
{
	struct link_peer *peer = frame->peer;
	uint32_t seq = be32toh(frame->hdr.seq);
	uint32_t ahead = seq - peer->flow.seq_in;
	enum careful_counter bad;

	*due = ahead == 1;
	if ((int32_t)ahead <= 0)
		return CAREFUL_C_DROP_TWICE;
	if (ahead >= link->traditional->numbers_in)
		return CAREFUL_C_DROP_SHARE;
	if (*early_at(peer, seq))
		return CAREFUL_C_DROP_TWICE;
	bad = check_damage(frame);
	sent_up_to(peer, seq, bad != CAREFUL_COUNTERS);
	if (bad != CAREFUL_COUNTERS)
		return bad;
	if (*due ? may_enter(peer, frame->cost) : may_wait(peer, frame->cost))
		return CAREFUL_COUNTERS;
	traditional_peer(peer)->refused |= *due;
	return CAREFUL_C_DROP_SHARE;
}

/* Takes the acknowledgement that every frame has. Returns false if it is impossible. */
static bool take_credits(struct link *link, const struct link_rxframe *frame)
{
	struct link_peer *peer = frame->peer;
	const struct careful_hdr *hdr = &frame->hdr;

	OPERATION(OPERATION_HEED);
	peer->heard = true;
	if (!traditional_acked(peer, be32toh(hdr->credits))) {
		link_count(link, CAREFUL_C_BAD_CREDITS);
		link_break(peer);
		return false;
	}
	traditional_on_answered(peer, be16toh(hdr->extra));
	if (hdr->type == CAREFUL_DATA && hdr->flags & CAREFUL_F_ASK) {
		traditional_peer(peer)->answer_due = true;
		link_dirty(peer);
	}
	return true;
}

/* Handles an acknowledgement frame, which has no number. */
static void take_ack(struct link *link, struct link_rxframe *frame)
{
	struct link_peer *peer = frame->peer;

	link_drop(link, frame);
	if (check_damage(frame) != CAREFUL_COUNTERS) {
		link_count(link, CAREFUL_C_DROP_CRC);
		return;
	}
	sent_up_to(peer, be32toh(frame->hdr.seq), true);
	traditional_on_ack(peer, frame);
}

/* Handles a frame of a session. Returns true if the frame goes to the layer above; otherwise the
 * frame waits or its buffers are released. */
bool traditional_take(struct link *link, struct link_rxframe *frame)
{
	enum careful_counter dropped = CAREFUL_C_DROP_MALFORMED;
	bool due = false;

	OPERATION(OPERATION_TAKE);
	if (!take_credits(link, frame)) {
		link_drop(link, frame);
		return false;
	}
	if (frame->hdr.type == CAREFUL_ACK) {
		take_ack(link, frame);
		return false;
	}
	if (frame->hdr.type != CAREFUL_UPDATE)
		dropped = admit(link, frame, &due);
	if (dropped != CAREFUL_COUNTERS) {
		link_count(link, dropped);
		link_drop(link, frame);
		return false;
	}
	if (!due) {
		add_waiting(link, frame, be32toh(frame->hdr.seq));
		return false;
	}
	frame->checked = true;
	count_handed_on(link, frame);
	return true;
}

bool traditional_next_waiting(struct link *link, struct link_rxframe *frame)
{
	struct traditional_link *all = link->traditional;

	for (uint32_t i = 0; i < link->peers_max; i++) {
		struct link_peer *peer = &link->peers[all->follow];

		if (*early_at(peer, peer->flow.seq_in + 1)) {
			take_waiting(link, peer, peer->flow.seq_in + 1, frame);
			frame->checked = true;
			count_handed_on(link, frame);
			return true;
		}
		all->follow = all->follow + 1 < link->peers_max ? all->follow + 1 : 0;
	}
	link->following = false;
	return false;
}

void traditional_forget_received(struct link_peer *peer)
{
	struct link *link = peer->link;
	struct traditional *t = traditional_peer(peer);
	struct link_rxframe frame;

	for (uint32_t i = 0; i < link->traditional->numbers_in; i++) {
		t->asked[i] = 0;
		if (!t->early[i])
			continue;
		take_waiting(link, peer, i, &frame);
		link_drop(link, &frame);
	}
}
