/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A pool that peers have shares of: some of it each may always take, the rest is whoever's comes
 * first. A peer that takes all that it can keeps nobody else from its own share. Counts alone;
 * where the things are is their owner's business.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum { SHARE_PART = 4 }; /* of a pool, what the shares are together: one in so many */

/*
 * @count: in the pool
 * @each:  what a peer may hold whatever the others do
 * @free:  not held
 * @owed:  of these, what peers have not taken yet of their own
 */
struct share {
	uint32_t count;
	uint32_t each;
	uint32_t free;
	uint32_t owed;
};

/* If there are fewer than one for each peer, none is anybody's own. */
static inline void share_init(struct share *share, uint32_t count, uint32_t peers)
{
	uint32_t each = count / (SHARE_PART * peers);

	if (!each && count >= peers)
		each = 1;
	*share =
		(struct share){ .count = count, .each = each, .free = count, .owed = each * peers };
}

/* Reports whether a peer that holds so many may take one, so that `own` more stay of its own, or `rest`
 * of what is anybody's. */
static inline bool share_leaves(const struct share *share, uint32_t held, uint32_t own,
				uint32_t rest)
{
	return held + own < share->each || share->free > share->owed + rest;
}

static inline bool share_may(const struct share *share, uint32_t held)
{
	return share_leaves(share, held, 0, 0);
}

static inline void share_take(struct share *share, uint32_t *held)
{
	share->owed -= *held < share->each;
	share->free--;
	++*held;
}

static inline void share_put(struct share *share, uint32_t *held)
{
	--*held;
	share->free++;
	share->owed += *held < share->each;
}

/* Divides it among others: all who hold any are among them, with how many. */
static inline void share_divide(struct share *share, const uint32_t *held, uint32_t peers)
{
	struct share now;

	share_init(&now, share->count, peers);
	for (uint32_t i = 0; i < peers; i++) {
		now.free -= held[i];
		now.owed -= held[i] < now.each ? held[i] : now.each;
	}
	*share = now;
}
