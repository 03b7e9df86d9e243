// SPDX-License-Identifier: BSD-2-Clause
/* Returns receive buffers to the fill ring, and then their credits to the peer. */
#include "link/link_private.h"
#include "link/repair/repair.h"

#include <assert.h>

/* Counts buffers in the fill batch for the peer. */
static inline void count_freed(struct link *link, struct link_peer *peer, uint64_t epoch,
			       uint32_t cost)
{
	assert(link->fill_count <= link->queue->rx_chunks);
	if (epoch != peer->epoch)
		return;
	flow_free(&peer->flow, cost);
	link_dirty(peer);
}

void link_release_addrs(struct link *link, struct link_peer *peer, uint64_t epoch, uint32_t cost,
			const uint64_t *addrs, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		link->fill[link->fill_count++] = addrs[i];
	count_freed(link, peer, epoch, cost);
}

void link_release(struct link *link, struct link_rxframe *frame)
{
	for (uint32_t i = 0; i < frame->segments; i++)
		link->fill[link->fill_count++] = frame->desc[i].addr;
	count_freed(link, frame->peer, frame->epoch, frame->cost);
}

void link_publish_freed(struct link *link)
{
	if (link->fill_count) {
		link->queue->ops->fill(link->queue, link->fill, link->fill_count);
		link->fill_count = 0;
	}
	if (link->reserve.count)
		reservation_settle(link);
	for (uint32_t i = 0; i < link->dirty_count; i++) {
		struct link_peer *peer = link->dirty[i];

		if (peer->flow.rx.withheld)
			congestion_check(peer);
		/* before the peer gets the credits */
		__atomic_store_n(&peer->entry->seq_taken, peer->flow.seq_in, __ATOMIC_RELEASE);
		__atomic_store_n(&peer->entry->may_fill, flow_publish(&peer->flow),
				 __ATOMIC_RELEASE);
	}
}
