// SPDX-License-Identifier: BSD-2-Clause
/* Frames that arrive ahead of a missing one wait in their receive buffers, and are handed on in order.
 * The missing frame has credits, too, so its repair always finds a buffer. */
#include "link/send/group.h"
#include "link/link_private.h"
#include "link/repair/repair.h"

#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <stdlib.h>

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
	link->asked = calloc((size_t)link->peers_max * numbers, sizeof(*link->asked));
	if (!link->early || !link->early_free || !link->early_at || !link->asked)
		return -ENOMEM;
	for (uint32_t i = 0; i < chunks; i++)
		link->early_free[link->early_free_count++] = i;
	for (uint32_t i = 0; i < link->peers_max; i++) {
		link->peers[i].repair.early = link->early_at + (size_t)i * numbers;
		link->peers[i].repair.asked = link->asked + (size_t)i * numbers;
	}
	return 0;
}

void reorder_deinit(struct link *link)
{
	for (uint32_t i = 0; link->peers && i < link->peers_max; i++)
		link_log_free(&link->peers[i].repair);
	free(link->early);
	free(link->early_free);
	free(link->early_at);
	free(link->asked);
}

static uint32_t *early_at(const struct link_peer *peer, uint32_t seq)
{
	return &peer->repair.early[seq & peer->link->early_mask];
}

void reorder_open(struct link_peer *peer)
{
	struct link_missing *missing = &peer->session->missing;

	peer->repair.highest = 0;
	*missing = (struct link_missing){
		.round_ns = missing->round_ns,
		.repair_us = missing->repair_us,
		.most_before = peer->flow.most,
	};
}

/* Corrects the account for a sequence number that arrived twice. XDP charged the second frame's
 * buffers, for which the peer used no credits. */
void reorder_duplicate(struct link_rxframe *frame)
{
	frame->peer->flow.most += frame->segments;
	link_dirty(frame->peer);
}

/* Handles a frame that is `ahead` of the last one in order. Returns CAREFUL_COUNTERS if the frame
 * waits, CAREFUL_C_BAD_CREDITS if it ends the epoch, or the counter of a drop. */
enum careful_counter reorder_take(struct link_rxframe *frame, uint32_t ahead)
{
	struct link_peer *peer = frame->peer;
	struct link_repair *repair = &peer->repair;
	struct link *link = peer->link;
	uint32_t seq = peer->flow.seq_in + ahead, index;

	peer->heard = true;
	if (*early_at(peer, seq)) {
		reorder_duplicate(frame);
		return CAREFUL_C_DROP_TWICE;
	}
	if (window_rx_receive(&peer->flow.rx, frame->cost) ||
	    (!link_group_is(frame) && !flow_heed(&peer->flow, be32toh(frame->hdr.credits))))
		return CAREFUL_C_BAD_CREDITS;
	reorder_sent(peer, seq);
	assert(link->early_free_count); /* one for each receive buffer */
	index = link->early_free[--link->early_free_count];
	link->early[index] = *frame;
	link->early[index].began_ns = 0;
	*early_at(peer, seq) = index + 1;
	repair->early_count++;
	if (peer->session->missing.withheld)
		congestion_early(peer);
	if ((int32_t)(seq - peer->session->missing.ahead) > 0)
		peer->session->missing.ahead = seq;
	missing_came(peer, seq);
	return CAREFUL_COUNTERS;
}

/* Notes that a missing frame has arrived. Later frames may have waited for it. */
void reorder_next(struct link_peer *peer)
{
	missing_came(peer, peer->flow.seq_in);
	if (reorder_holds(peer, peer->flow.seq_in + 1))
		peer->link->following = true;
}

/* Removes a waiting frame. entry: of link_repair.early */
void reorder_unwait(struct link_peer *peer, uint32_t *entry, struct link_rxframe *frame)
{
	struct link *link = peer->link;

	*frame = link->early[*entry - 1];
	link->early_free[link->early_free_count++] = *entry - 1;
	*entry = 0;
	peer->repair.early_count--;
	if (peer->session->missing.withheld)
		congestion_early(peer);
}

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

/* Notes the number up to which the peer reports to have sent. Returns for how long neither the number
 * nor flow.seq_in has changed. */
static uint64_t note_report(struct link_peer *peer, uint32_t seq)
{
	struct link_missing *missing = &peer->session->missing;

	if (missing->said != seq || missing->said_in != peer->flow.seq_in) {
		missing->said = seq;
		missing->said_in = peer->flow.seq_in;
		missing->said_ns = peer->link->now_ns;
	}
	return peer->link->now_ns - missing->said_ns;
}

/* Notes that the peer has certainly sent up to this number. Returns false if that is impossible. */
bool reorder_sent(struct link_peer *peer, uint32_t seq)
{
	struct link_repair *repair = &peer->repair;

	if (!peer->link->repairs || !peer->cookie_in || (int32_t)(seq - peer->flow.seq_in) <= 0)
		return true;
	if (seq - peer->flow.seq_in > peer->flow.ahead)
		return false;
	if (!reorder_missing(peer)) {
		repair->highest = peer->flow.seq_in;
		peer->session->missing.came_us = 0;
	}
	if ((int32_t)(seq - repair->highest) > 0) {
		missing_begin(peer, repair->highest, seq);
		repair->highest = seq;
	}
	peer->link->draining = true;
	return true;
}

/* Handles the peer's report of the last number that it has sent. Frames may be under way, so it
 * counts only if it is repeated a round trip later and no frame has arrived meanwhile. Returns false
 * if it is impossible. */
bool reorder_said(struct link_peer *peer, uint32_t seq)
{
	if (note_report(peer, seq) <= peer->session->missing.round_ns)
		return true;
	return reorder_sent(peer, seq);
}
