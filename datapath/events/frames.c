// SPDX-License-Identifier: BSD-2-Clause
/* The event service over frames: each fragment is a frame. A fragment waits in its receive buffer;
 * link/ copies it out when buffers run short (P2 section 5.3). Credits bound the sender. */
#include "events/private.h"

#include <endian.h>
#include <errno.h>

static bool frames_post(struct careful_events *ev, struct event_node *node,
			const struct careful_am *am)
{
	return message_small_now(&ev->c->messages, node->peer, am, NULL, 0);
}

static bool frames_send(struct careful_events *ev, uint32_t rank, const struct careful_am *am,
			const void *data, uint32_t bytes)
{
	return message_small_now(&ev->c->messages, ev->node[rank].peer, am, data, bytes);
}

static bool frames_may_send(const struct event_node *node, uint32_t bytes)
{
	return message_small_may(&node->ev->c->messages, node->peer, bytes);
}

static bool frames_room(const struct careful_events *ev, uint32_t frames)
{
	return link_tx_room(&ev->c->link, frames);
}

static int frames_bytes(struct event_node *node)
{
	uint32_t extra = MESSAGE_AM_BYTES;

	if (!node->ev->group_error)
		extra += link_group_bytes(node->ev->nodes - 1);
	return link_knows_size(node->peer) ? (int)(link_body_single(node->peer) - extra) : -EAGAIN;
}

static bool frames_withholds(const struct careful_events *ev)
{
	for (uint32_t i = 0; i < ev->nodes; i++) {
		struct link_peer *peer = ev->node[i].peer;

		if (i == ev->rank || ev->node[i].left)
			continue;
		link_relieve(peer);
		if (peer->withholding)
			return true;
	}
	return false;
}

static void frames_let_go(struct careful_events *ev, struct link_held *held)
{
	link_unhold(&ev->c->link, held);
}

/* Frees copies, which makes room for peers whose credits were withheld. */
static void frames_consumed(struct careful_events *ev)
{
	if (!ev->c->link.counters[CAREFUL_C_CREDITS_WITHHELD])
		return;
	for (uint32_t i = 0; i < ev->nodes; i++)
		if (i != ev->rank && ev->node[i].peer->withholding)
			link_relieve(ev->node[i].peer);
}

static int frames_open(struct careful_events *ev, const uint32_t *peers)
{
	ev->window = ev->c->link.window;
	ev->room = ev->c->queue->info.receive_buffers;
	for (uint32_t rank = 0; rank < ev->nodes; rank++) {
		struct link_peer *peer;

		if (rank == ev->rank)
			continue;
		peer = engine_peer(ev->c, peers[rank]);
		if (!peer)
			return -ENOENT;
		if (ev->rank_of[peer->slot] != EVENT_NOBODY)
			return -EINVAL;
		ev->rank_of[peer->slot] = (uint16_t)rank;
		ev->node[rank].peer = peer;
	}
	return 0;
}

const struct event_transport event_by_frames = {
	.open = frames_open,
	.post = frames_post,
	.send = frames_send,
	.may_send = frames_may_send,
	.room = frames_room,
	.bytes = frames_bytes,
	.withholds = frames_withholds,
	.round = event_group_round,
	.let_go = frames_let_go,
	.give = link_hold_pin,
	.consumed = frames_consumed,
};

/* Stops receiving the peer's broadcasts if the message announces their end. */
static void end_broadcasts(struct link_peer *peer, const struct careful_am *am)
{
	uint16_t kind = be16toh(am->handler);

	if (kind == CAREFUL_EVENT_LEAVE || kind == CAREFUL_EVENT_ONE_BY_ONE ||
	    (kind == CAREFUL_EVENT_FAIL && am->args[2]))
		link_group_admit(peer, 0, 0);
}

/* Queues the fragment of a frame. Returns false if the group refuses the fragment. */
static bool queue_fragment(struct careful_events *ev, uint32_t rank, struct link_rxframe *frame,
			   const struct careful_am *am)
{
	struct event_fragment new;

	if (!event_may_take(ev, rank, am, be16toh(frame->hdr.frag_bytes), &new))
		return false;
	new.kept = link_hold(&ev->c->link, frame, true);
	event_add(ev, &ev->node[rank], &new);
	return true;
}

void event_arrived(struct careful *c, struct link_rxframe *frame, const struct careful_am *am)
{
	struct careful_events *ev = c->events;
	uint32_t rank = ev ? ev->rank_of[frame->peer->slot] : EVENT_NOBODY;
	bool ours = rank != EVENT_NOBODY && be32toh(am->region) == ev->number;

	end_broadcasts(frame->peer, am);
	if (ours && be16toh(am->handler) != CAREFUL_EVENT_FRAGMENT)
		event_on_message(ev, rank, am);
	else if (ours && queue_fragment(ev, rank, frame, am))
		return;
	else if (be16toh(am->handler) == CAREFUL_EVENT_FRAGMENT)
		link_count(&c->link, CAREFUL_C_DROP_MESSAGE);
	link_release(&c->link, frame);
}
