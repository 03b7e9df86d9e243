/* SPDX-License-Identifier: BSD-2-Clause */
/* Arithmetic of the static window (P2 section 5.3): whether a frame may be sent, when an update is
 * due, which credits are possible. Counters are cumulative modulo 2^32, so no update can be lost or
 * counted twice. All amounts are receive buffers. A grant (P2 section 7) gives credits before
 * buffers return: `credits` may then exceed `sent`, and `announced` and `returned` may exceed
 * `received`. */
#pragma once

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>

enum {
	WINDOW_MIN = 4, /* the least W for which the rule leaves room for data */
	WINDOW_UPDATE_COST = 1,
};

/* The sender's side. */
struct window_tx {
	uint32_t size; /* W of the peer */
	uint32_t sent; /* buffers that our frames filled at the peer */
	uint32_t credits; /* buffers that the peer returned or granted */
	uint16_t reserve; /* the most that the peer grants */
	uint16_t withheld; /* buffers of W that it withholds, by its last answer to SYNC */
};

/* The receiver's side. */
struct window_rx {
	uint32_t size; /* W */
	uint16_t withheld; /* W - w: buffers withheld while the network is congested */
	uint16_t threshold; /* T, made from w */
	uint32_t received; /* buffers that the peer's frames filled */
	uint32_t returned; /* buffers back in the fill ring, or granted */
	uint32_t announced; /* buffers that the peer knows to be returned */
};

/* Returns T: the buffers that must be owed before an update is sent in its own frame. If T were 1,
 * updates would answer each other for ever, since each fills a buffer. */
static inline uint32_t window_threshold(uint32_t size)
{
	return size / 2 > 2 ? size / 2 : 2;
}

/* Returns the most that a frame may cost. A frame above W - T might never fit: the peer may owe just
 * under T, for which it sends no update. A frame of W - T might wait long: the peer may keep just
 * under T and owe one buffer, for which it sends no update either. */
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

/* Returns the outstanding buffers; negative (modulo 2^32) if a grant is unused. */
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

/* Takes the cumulative credits of a frame. -EPROTO: fewer than before, or more than were sent and
 * can be granted. */
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

/* Returns w, the window without the withheld buffers. */
static inline uint32_t window_rx_now(const struct window_rx *w)
{
	return w->size - w->withheld;
}

/* Withholds this much of W from now on. Announced credits stay valid. While frames are lost, T is
 * half as large: the credits of frames behind a gap wait for the repair, so the peer needs others. */
static inline void window_rx_withhold(struct window_rx *w, uint32_t withheld, bool loses)
{
	w->withheld = (uint16_t)withheld;
	w->threshold = (uint16_t)window_threshold(window_rx_now(w) / (loses ? 2 : 1));
}

/* Returns the buffers that the next announcement can include. */
static inline uint32_t window_rx_owed(const struct window_rx *w)
{
	uint32_t back = w->returned - w->announced;

	return back > w->withheld ? back - w->withheld : 0;
}

static inline bool window_rx_update_due(const struct window_rx *w)
{
	return window_rx_owed(w) >= w->threshold;
}

/* Reports whether an update is due below the threshold, because kept and owed buffers leave no room
 * for a frame of this cost. One owed buffer never suffices, since an update costs one. */
static inline bool window_rx_update_early(const struct window_rx *w, uint32_t kept, uint32_t cost)
{
	uint32_t owed = window_rx_owed(w);

	return owed > WINDOW_UPDATE_COST && owed + kept + cost >= window_rx_now(w);
}

/* Takes the credits that a frame to a group announces out of the session's account: such frames and
 * the session's may overtake each other. */
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
