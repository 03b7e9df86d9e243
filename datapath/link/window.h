/* SPDX-License-Identifier: BSD-2-Clause */
/* Arithmetic of the static window (P2 section 5.3): what may be sent, when an update is due, which
 * credits are possible. Counters are cumulative modulo 2^32, so no update can be lost or counted
 * twice. All amounts are receive buffers. A grant (P2 section 7) gives credits before as many
 * buffers came back. Then `credits` may exceed `sent`, and `announced` and `returned` may exceed
 * `received`. */
#pragma once

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>

enum {
	WINDOW_MIN = 4, /* the least W for which the rule leaves room for data */
	WINDOW_UPDATE_COST = 1,
};

/* The sender's side.
 *
 * @size:     W at the peer
 * @sent:     buffers that our frames filled there
 * @credits:  buffers that the peer returned or granted
 * @reserve:  the most that it grants
 * @withheld: buffers of W that it withholds, by its last answer to SYNC
 */
struct window_tx {
	uint32_t size;
	uint32_t sent;
	uint32_t credits;
	uint16_t reserve;
	uint16_t withheld;
};

/* The receiver's side.
 *
 * @size:      W granted
 * @withheld:  buffers of W that the peer does not get back while the network is congested; the rest
 *             is w
 * @threshold: T, made from w
 * @received:  buffers that the peer's frames filled
 * @returned:  buffers back in the fill ring, or granted
 * @announced: as the peer was told
 */
struct window_rx {
	uint32_t size;
	uint16_t withheld;
	uint16_t threshold;
	uint32_t received;
	uint32_t returned;
	uint32_t announced;
};

/* Buffers that must be owed before an update is sent in its own frame. One is too few: updates
 * would answer each other for ever, since each fills a buffer itself. */
static inline uint32_t window_threshold(uint32_t size)
{
	return size / 2 > 2 ? size / 2 : 2;
}

/* Returns the most that a frame may cost. A frame above W - T might never fit: the peer may owe us
 * just under T, and then no update is due. A frame of W - T may wait long: the peer keeps just
 * under T and owes one, for which no update leaves either. */
static inline uint32_t window_cost_max(uint32_t size)
{
	return size - window_threshold(size) - 1;
}

static inline void window_tx_init(struct window_tx *w, uint32_t size)
{
	*w = (struct window_tx){ .size = size };
}

static inline void window_rx_init(struct window_rx *w, uint32_t size)
{
	*w = (struct window_rx){ .size = size, .threshold = (uint16_t)window_threshold(size) };
}

/* Returns the outstanding buffers; negative modulo 2^32 if a grant is unused. */
static inline uint32_t window_tx_outstanding(const struct window_tx *w)
{
	return w->sent - w->credits;
}

static inline uint32_t window_tx_free(const struct window_tx *w)
{
	return w->size - window_tx_outstanding(w);
}

/* Data leaves one credit, so that an update can always be sent (P2 theorem 1). */
static inline bool window_tx_may_send(const struct window_tx *w, uint32_t cost)
{
	return window_tx_free(w) > cost;
}

static inline bool window_tx_may_update(const struct window_tx *w)
{
	return window_tx_free(w) >= WINDOW_UPDATE_COST;
}

static inline void window_tx_send(struct window_tx *w, uint32_t cost)
{
	w->sent += cost;
}

/* Returns the unused credits of a grant. */
static inline uint32_t window_tx_unused(const struct window_tx *w)
{
	uint32_t beyond = w->credits - w->sent;

	return beyond <= w->reserve ? beyond : 0;
}

/* Takes the cumulative credits of a frame. -EPROTO if they are more than was sent and can be
 * granted, or fewer than before. */
static inline int window_tx_credit(struct window_tx *w, uint32_t credits)
{
	if (credits - w->credits > window_tx_outstanding(w) + w->reserve)
		return -EPROTO;
	w->credits = credits;
	return 0;
}

/* Counts the buffers of a received frame. -EPROTO if the peer had no credit for them. */
static inline int window_rx_receive(struct window_rx *w, uint32_t cost)
{
	if ((int32_t)(w->received + cost - w->announced) > (int32_t)w->size)
		return -EPROTO;
	w->received += cost;
	return 0;
}

static inline void window_rx_return(struct window_rx *w, uint32_t cost)
{
	w->returned += cost;
}

/* w: the buffers that the peer may have outstanding in the long run. */
static inline uint32_t window_rx_now(const struct window_rx *w)
{
	return w->size - w->withheld;
}

/* Withholds this much of W from now on; announced credits stay. */
static inline void window_rx_withhold(struct window_rx *w, uint32_t withheld)
{
	w->withheld = (uint16_t)withheld;
	w->threshold = (uint16_t)window_threshold(window_rx_now(w));
}

/* Buffers that the next announcement can include. */
static inline uint32_t window_rx_owed(const struct window_rx *w)
{
	uint32_t back = w->returned - w->announced;

	return back > w->withheld ? back - w->withheld : 0;
}

static inline bool window_rx_update_due(const struct window_rx *w)
{
	return window_rx_owed(w) >= w->threshold;
}

/* Reports whether an update is due below the threshold, since kept and owed buffers leave no room
 * for a frame of this cost. Never for one buffer, since an update costs one. */
static inline bool window_rx_update_early(const struct window_rx *w, uint32_t kept, uint32_t cost)
{
	uint32_t owed = window_rx_owed(w);

	return owed > WINDOW_UPDATE_COST && owed + kept + cost >= window_rx_now(w);
}

/* Takes credits that a group's frame announces out of the session's account. Groups have their own
 * account, so that frames of the group and the session may overtake each other. */
static inline void window_rx_settle(struct window_rx *w, uint32_t credits)
{
	w->received -= credits;
	w->returned -= credits;
}

/* Takes credits that came with a group's frame. -EPROTO if there are too many. */
static inline int window_tx_settle(struct window_tx *w, uint32_t credits)
{
	if (credits > window_tx_outstanding(w) + w->reserve)
		return -EPROTO;
	w->sent -= credits;
	return 0;
}

/* Returns the credits for a frame that leaves now. */
static inline uint32_t window_rx_announce(struct window_rx *w)
{
	w->announced += window_rx_owed(w);
	return w->announced;
}
