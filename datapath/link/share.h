/* SPDX-License-Identifier: BSD-2-Clause */
/* A pool in which each peer has a share of its own; the rest is for all. A peer that takes all it
 * can leaves the others their shares. This file only counts. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum { SHARE_PART = 4 }; /* all shares together are the pool divided by this */

/* @count: in the pool
 * @each:  a peer's own share
 * @free:  not held
 * @owed:  unused own shares, which are part of @free */
struct share {
	uint32_t count;
	uint32_t each;
	uint32_t free;
	uint32_t owed;
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

/* Reports whether a peer that holds `held` may take one so that `own` of its share, or `rest` of
 * the common part, stay free. */
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
	struct share now;

	share_init(&now, share->count, peers);
	for (uint32_t i = 0; i < peers; i++) {
		now.free -= held[i];
		now.owed -= held[i] < now.each ? held[i] : now.each;
	}
	*share = now;
}
