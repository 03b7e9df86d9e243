/* SPDX-License-Identifier: BSD-2-Clause */
/* Counts a pool in which each peer has a share of its own. The rest is for all peers, so a peer that
 * takes all it can leaves the others their shares. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum { SHARE_PART = 4 }; /* all shares together are 1/SHARE_PART of the pool */

struct share {
	uint32_t count; /* in the pool */
	uint32_t each; /* a peer's own share */
	uint32_t free; /* not held */
	uint32_t owed; /* unused own shares, which are part of free */
};

/* A pool smaller than the number of peers has no own shares. */
static inline void share_init(struct share *share, uint32_t count, uint32_t peers)
{
	uint32_t each = count / (SHARE_PART * peers);

	if (!each && count >= peers)
		each = 1;
	*share =
		(struct share){ .count = count, .each = each, .free = count, .owed = each * peers };
}

/* Reports whether a peer that holds `held` may take one and leave `own` of its share, or `rest` of
 * the common part, free. */
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

/* Divides the pool among `peers` again; each holds `held` buffers. */
static inline void share_divide(struct share *share, const uint32_t *held, uint32_t peers)
{
	share_init(share, share->count, peers);
	for (uint32_t i = 0; i < peers; i++) {
		share->free -= held[i];
		share->owed -= held[i] < share->each ? held[i] : share->each;
	}
}
