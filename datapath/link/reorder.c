// SPDX-License-Identifier: BSD-2-Clause
/*
 * Frames that arrive ahead of a missing one. They wait in their receive buffers, for which their
 * sender had credits, and are handed on in order. The missing frame has credits too, so its repair
 * always finds a buffer. The peer is asked for it at the end of the round, and again until it
 * comes, by a control message, which needs no credit. If we ask too early, the second copy is
 * dropped.
 */
#include "link/group.h"
#include "link/link.h"
#include "link/repair.h"

#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <stdlib.h>

enum {
	WAIT_MIN_NS = 1000 * 1000, /* the least time between two requests for a frame; */
	WAIT_MAX_NS = 8 * 1000 * 1000, /* the most, unless an answer takes longer */
	ROUNDS = 1, /* to wait for an answer: an answer waits for the ring, a repair does not */
	SETTLE_TRIES = 2, /* requests, after which XDP's account is checked */
	GIVE_UP_NS = 1000 * 1000 * 1000, /* without the frame: the epoch ends */
};

int reorder_init(struct link *link)
{
	uint32_t chunks = link->queue->rx_chunks, numbers = 8;

	if (!link->repairs)
		return 0;
	while (numbers <= chunks)
		numbers *= 2;
	link->early_mask = numbers - 1;
	link->early = calloc(chunks, sizeof(*link->early));
	link->early_free = calloc(chunks, sizeof(*link->early_free));
	link->early_at = calloc((size_t)link->peers_max * numbers, sizeof(*link->early_at));
	if (!link->early || !link->early_free || !link->early_at)
		return -ENOMEM;
	for (uint32_t i = 0; i < chunks; i++)
		link->early_free[link->early_free_count++] = i;
	for (uint32_t i = 0; i < link->peers_max; i++)
		link->peers[i].repair.early = link->early_at + (size_t)i * numbers;
	return 0;
}

void reorder_deinit(struct link *link)
{
	for (uint32_t i = 0; link->peers && i < link->peers_max; i++)
		link_log_free(&link->peers[i].repair);
	free(link->early);
	free(link->early_free);
	free(link->early_at);
}

static uint32_t *at(const struct link_peer *peer, uint32_t seq)
{
	return &peer->repair.early[seq & peer->link->early_mask];
}

void reorder_open(struct link_peer *peer)
{
	struct link_missing *missing = &peer->session->missing;

	peer->repair.highest = peer->repair.asked = 0;
	*missing = (struct link_missing){
		.round_ns = missing->round_ns,
		.most_before = peer->flow.most,
	};
}

/* A number came twice. XDP charged the second frame's buffers, but the peer used no credits for
 * them. */
void reorder_duplicate(struct link_rxframe *frame)
{
	frame->peer->flow.most += frame->segments;
	link_dirty(frame->peer);
}

/* Takes a frame that is `ahead` of the last one in order. Returns CAREFUL_COUNTERS if the frame
 * waits, CAREFUL_C_BAD_CREDITS if it ends the epoch, else the counter of the drop. */
enum careful_counter reorder_take(struct link_rxframe *frame, uint32_t ahead)
{
	struct link_peer *peer = frame->peer;
	struct link_repair *repair = &peer->repair;
	struct link *link = peer->link;
	uint32_t seq = peer->flow.seq_in + ahead, index;

	peer->heard = true;
	if (*at(peer, seq)) {
		reorder_duplicate(frame);
		return CAREFUL_C_DROP_TWICE;
	}
	if (window_rx_receive(&peer->flow.rx, frame->cost) ||
	    (!link_group_is(frame) && !flow_heed(&peer->flow, be32toh(frame->hdr.credits))))
		return CAREFUL_C_BAD_CREDITS;
	assert(link->early_free_count); /* one for each receive buffer */
	index = link->early_free[--link->early_free_count];
	link->early[index] = *frame;
	link->early[index].began_ns = 0;
	*at(peer, seq) = index + 1;
	repair->early_count++;
	reorder_sent(peer, seq);
	return CAREFUL_COUNTERS;
}

/* Takes out a frame that need not wait any longer. */
void reorder_unwait(struct link_peer *peer, uint32_t *place, struct link_rxframe *frame)
{
	struct link *link = peer->link;

	*frame = link->early[*place - 1];
	link->early_free[link->early_free_count++] = *place - 1;
	*place = 0;
	peer->repair.early_count--;
}

/* Releases all waiting frames, since the epoch is over. */
void reorder_forget(struct link_peer *peer)
{
	struct link_rxframe frame;

	for (uint32_t i = 0; peer->repair.early_count && i <= peer->link->early_mask; i++)
		if (peer->repair.early[i]) {
			reorder_unwait(peer, &peer->repair.early[i], &frame);
			for (uint32_t k = 0; k < frame.segments; k++)
				peer->link->fill[peer->link->fill_count++] = frame.desc[k].addr;
		}
	peer->repair.highest = 0;
	peer->session->missing.settle = LINK_SETTLED;
}

/* Notes up to which number the peer has sent. Returns for how long this number has not changed and
 * no frame has come in order. */
static uint64_t say(struct link_peer *peer, uint32_t seq)
{
	struct link_missing *missing = &peer->session->missing;

	if (missing->said != seq || missing->said_in != peer->flow.seq_in) {
		missing->said = seq;
		missing->said_in = peer->flow.seq_in;
		missing->said_ns = peer->link->now_ns;
	}
	return peer->link->now_ns - missing->said_ns;
}

/* The peer has sent at least up to this number. Returns false if that is impossible. */
bool reorder_sent(struct link_peer *peer, uint32_t seq)
{
	struct link_repair *repair = &peer->repair;

	if (!peer->link->repairs || !peer->cookie_in || (int32_t)(seq - peer->flow.seq_in) <= 0)
		return true;
	if (seq - peer->flow.seq_in > peer->flow.ahead)
		return false;
	if (!reorder_missing(peer) || (int32_t)(seq - repair->highest) > 0)
		repair->highest = seq;
	peer->link->draining = true;
	return true;
}

/* The peer reports how far it has sent, but the frames may be under way. The report counts if the
 * peer repeats it a round trip later and none has arrived. Returns false if it is impossible. */
bool reorder_said(struct link_peer *peer, uint32_t seq)
{
	if (say(peer, seq) <= peer->session->missing.round_ns)
		return true;
	return reorder_sent(peer, seq);
}

/* Requests the missing numbers beyond `from`, as many as one message takes. Returns the last number
 * that was checked. */
static uint32_t name(struct link_peer *peer, uint32_t from)
{
	struct careful_ctrl ctrl = {
		.cookie = htobe64(peer->cookie_out),
		.seq_rcvd = htobe32(peer->flow.seq_in),
		.window = htobe32(from),
	};
	uint32_t count = peer->repair.highest - from, named = 0;

	count = count < MISSING_NAMED ? count : MISSING_NAMED;
	ctrl.seq_sent = htobe32(from + count);
	for (uint32_t i = 0; i < count; i++)
		if (reorder_holds(peer, from + 1 + i))
			ctrl.name[i / 8] |= (uint8_t)(1u << i % 8);
		else
			named++;
	if (!named)
		return from + count; /* these came, ahead of one that was asked for */
	peer->link->counters[CAREFUL_C_ASKED_AGAIN] += named;
	peer->session->asked_again += named;
	peer->session->missing.asked_ns = peer->link->now_ns;
	link_say(peer, &ctrl, CAREFUL_MISSING);
	return from + count;
}

/* Requests missing frames that were not requested yet. */
void reorder_ask(struct link_peer *peer)
{
	struct link_repair *repair = &peer->repair;
	uint32_t from = repair->asked;

	if (!reorder_missing(peer) || !link_has_epoch(peer))
		return;
	if ((int32_t)(from - peer->flow.seq_in) < 0)
		from = peer->flow.seq_in;
	if ((int32_t)(repair->highest - from) <= 0)
		return;
	repair->asked = name(peer, from);
}

/* Frames that XDP admitted and the RX ring lost stay charged. If they leave no room for repairs,
 * XDP admits nothing more; then the charge for which the engine saw no frame belongs to lost
 * frames. */
static void settle_tick(struct link_peer *peer)
{
	struct link_missing *missing = &peer->session->missing;
	struct link *link = peer->link;
	struct port *port = link->port;
	uint32_t filled = *(volatile uint32_t *)&peer->entry->filled;

	switch ((enum link_settle)missing->settle) {
	case LINK_SETTLED:
		if (missing->tries < SETTLE_TRIES)
			return;
		missing->filled = filled;
		if (port->ops->settle)
			port->ops->settle(port, peer->slot);
		missing->settle = LINK_SETTLE_ADMITTED;
		return;
	case LINK_SETTLE_ADMITTED:
		if (port->ops->closed && !port->ops->closed(port, peer->slot))
			return;
		missing->drain = link_drain_begin(link);
		missing->settle = LINK_SETTLE_DRAINED;
		link->draining = true;
		return;
	case LINK_SETTLE_DRAINED:
		link->draining = true;
		if (filled != missing->filled)
			missing->settle = LINK_SETTLED;
	}
}

/* After frames were taken from the ring. */
void reorder_drained(struct link_peer *peer)
{
	struct link_missing *missing = &peer->session->missing;
	struct flow *flow = &peer->flow;
	uint32_t filled, lost;

	if (missing->settle != LINK_SETTLE_DRAINED)
		return;
	if (!link_drain_over(peer->link, &missing->drain)) {
		peer->link->draining = true;
		return;
	}
	missing->settle = LINK_SETTLED;
	filled = *(volatile uint32_t *)&peer->entry->filled;
	lost = filled - flow->rx.received - (flow->most - missing->most_before);
	if (filled != missing->filled || (int32_t)lost <= 0)
		return;
	flow->most += lost;
	/* Updates come before the next publication, and would take the peer off the list of peers
	 * with freed buffers. */
	__atomic_store_n(&peer->entry->may_fill, flow->rx.returned + flow->most, __ATOMIC_RELEASE);
}

/* Numbers are compared modulo 2^32: moves old ones along before they would count as ahead. */
static void keep_near(struct link_peer *peer)
{
	struct link_repair *repair = &peer->repair;

	if (!reorder_missing(peer))
		repair->highest = repair->asked = peer->flow.seq_in;
	if (repair->log && peer->flow.seq_out - repair->acked > repair->log_mask + 1)
		repair->acked = peer->flow.seq_out - repair->log_mask - 1;
}

/* Repeats requests. Reports whether the epoch must end, since the frame does not come. */
bool reorder_tick(struct link_peer *peer)
{
	struct link_missing *missing = &peer->session->missing;
	uint64_t now_ns = peer->link->now_ns, most_ns, least_ns;

	if (peer->cookie_in)
		keep_near(peer);
	if (!peer->link->repairs || !peer->cookie_in || !reorder_missing(peer)) {
		missing->since_ns = 0;
		return false;
	}
	least_ns = WAIT_MIN_NS + ROUNDS * missing->round_ns;
	most_ns = least_ns > WAIT_MAX_NS ? least_ns : WAIT_MAX_NS;
	if (!missing->since_ns || missing->first != peer->flow.seq_in + 1) {
		missing->first = peer->flow.seq_in + 1;
		missing->since_ns = now_ns;
		missing->wait_ns = least_ns;
		missing->tries = 0;
	}
	if (now_ns - missing->since_ns >= GIVE_UP_NS)
		return true;
	settle_tick(peer);
	if (now_ns - missing->asked_ns < missing->wait_ns)
		return false;
	missing->wait_ns = 2 * missing->wait_ns < most_ns ? 2 * missing->wait_ns : most_ns;
	missing->tries++;
	peer->repair.asked = peer->flow.seq_in;
	reorder_ask(peer);
	return false;
}
