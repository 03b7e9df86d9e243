// SPDX-License-Identifier: BSD-2-Clause
/* Receive buffers that outlive their batch, for handlers and writes to files. When a peer's kept
 * buffers reach T, the oldest are copied to ordinary memory (P2 section 5.3), up to the peer's
 * share of the pool. Beyond that share, credits are withheld, which stalls only that peer. */
#include "link/link_private.h"

#include <assert.h>
#include <string.h>

static void list_add_tail(struct link_held *head, struct link_held *kept)
{
	kept->prev = head->prev;
	kept->next = head;
	head->prev->next = kept;
	head->prev = kept;
}

static void list_remove(struct link_held *kept)
{
	if (!kept->next)
		return;
	kept->prev->next = kept->next;
	kept->next->prev = kept->prev;
	kept->next = kept->prev = NULL;
}

/* Keeps a frame's buffers. may_copy: the body is in one piece, and the holder reads held->body each
 * time, so the body may move. */
struct link_held *link_hold(struct link *link, struct link_rxframe *frame, bool may_copy)
{
	struct link_held *kept;

	assert(link->kept_free_count); /* one for each buffer and copy */
	kept = link->kept_free[--link->kept_free_count];
	*kept = (struct link_held){
		.peer = frame->peer,
		.epoch = frame->epoch,
		.body = frame->body,
		.body_bytes = frame->body_bytes,
		.cost = frame->cost,
		.pool = -1,
		.segments = frame->segments,
		.uses = 1,
	};
	for (uint32_t i = 0; i < frame->segments; i++)
		kept->addr[i] = frame->desc[i].addr;
	if (frame->epoch == frame->peer->epoch) {
		frame->peer->kept += frame->cost;
		link_dirty(frame->peer); /* this may make an update due */
	} else {
		frame->peer->kept_old += frame->cost;
	}
	if (may_copy)
		list_add_tail(&link->kept_lists[frame->peer->slot], kept);
	return kept;
}

struct careful_kept *link_keep(struct link_held *held, struct careful_kept message)
{
	struct careful_kept *kept = &held->messages[message.nth];

	held->uses++;
	*kept = message;
	return kept;
}

/* Pins the body, so that it is no longer copied out. */
void link_hold_pin(struct link_held *kept)
{
	list_remove(kept);
}

/* Returns the receive buffers, if they are not returned yet. */
static void release_buffers(struct link *link, struct link_held *kept)
{
	struct link_peer *peer = kept->peer;

	if (!kept->cost)
		return;
	if (kept->epoch == peer->epoch)
		peer->kept -= kept->cost;
	else
		peer->kept_old -= kept->cost;
	link_release_addrs(link, peer, kept->epoch, kept->cost, kept->addr, kept->segments);
	kept->cost = 0;
	list_remove(kept);
}

void link_unhold(struct link *link, struct link_held *kept)
{
	if (--kept->uses)
		return;
	release_buffers(link, kept);
	if (kept->pool >= 0) {
		link->pool_free[link->pool_share.free] = kept->pool;
		share_put(&link->pool_share, &kept->peer->session->copied);
	}
	kept->pool = -1;
	link->kept_free[link->kept_free_count++] = kept;
}

static void copy_out(struct link *link, struct link_held *kept)
{
	int32_t index = link->pool_free[link->pool_share.free - 1];
	uint8_t *copy = link->pool + (size_t)index * link->pool_buffer_bytes;

	share_take(&link->pool_share, &kept->peer->session->copied);
	assert(kept->body_bytes <= link->pool_buffer_bytes);
	memcpy(copy, kept->body, kept->body_bytes);
	kept->body = copy;
	kept->pool = index;
	release_buffers(link, kept);
	link_count(link, CAREFUL_C_COPIED_OUT);
}

/* Copies out buffers of old epochs, for which the next epoch waits. */
void link_copy_out_old(struct link_peer *peer)
{
	struct link *link = peer->link;
	const struct link_held *end = &link->kept_lists[peer->slot];
	struct link_held *kept = end->next, *next;

	for (; kept != end && share_may(&link->pool_share, peer->session->copied); kept = next) {
		next = kept->next;
		if (kept->epoch != peer->epoch)
			copy_out(link, kept);
	}
}

/* Copies out the oldest buffers of a peer until it holds fewer than T. */
void link_copy_out(struct link_peer *peer)
{
	struct link *link = peer->link;
	const struct link_held *end = &link->kept_lists[peer->slot];
	struct link_held *kept = end->next, *next;
	bool withholding = false;

	for (; kept != end && link_holds_many(peer); kept = next) {
		next = kept->next;
		if (kept->epoch != peer->epoch)
			continue;
		if (!share_may(&link->pool_share, peer->session->copied)) {
			withholding = true;
			break;
		}
		copy_out(link, kept);
	}
	if (withholding && !peer->withholding)
		link_count(link, CAREFUL_C_CREDITS_WITHHELD);
	peer->withholding = withholding;
}
