// SPDX-License-Identifier: BSD-2-Clause
/* Congestion control by the receiver, which withholds part of a window. The peer then has at most w
 * buffers outstanding. w grows by one for each w buffers that arrive, and shrinks by the share of
 * lost frames, as in DCTCP (RFC 8257 section 3.3). So random losses cost little: a smaller w would
 * not prevent them. If the share is not small, w shrinks by a sixth at least, so that senders on
 * one link converge to equal shares. A w below the mean of the reduced windows grows by one more,
 * since a full queue may drop one sender's frames for long. Frames that wait here for a missing one
 * have left the network, so they do not count against w. */
#include "link/link_private.h"
#include "link/repair/repair.h"

enum {
	SHARED = 24, /* losses count as random if fewer than one frame in this many is lost */
	LOSES_NS = 100 * 1000 * 1000, /* for which a loss is recent */
};

/* Returns the smallest w. Half of it holds an update and the largest frame, or the buffers that sinks
 * keep: with a smaller T these might wait for frames for which the peer has no credit. */
static uint32_t window_floor(const struct link_peer *peer)
{
	uint32_t cost = link_taken_cost(peer);
	uint32_t twice = 2 * ((cost > peer->kept ? cost : peer->kept) + 1);

	return twice > WINDOW_MIN ? twice : WINDOW_MIN;
}

/* Reports whether the peer's w is below the mean of the reduced windows. */
static bool is_below_mean(const struct link_peer *peer, uint32_t now)
{
	const struct link *link = peer->link;
	uint32_t sum = 0, n = 0;

	for (uint32_t i = 0; i < link->peers_max; i++) {
		const struct link_peer *other = &link->peers[i];

		if (!link_has_epoch(other) || !other->session->missing.withheld)
			continue;
		sum += congestion_now(other);
		n++;
	}
	return n * now < sum;
}

/* Returns the next w, after `lost` of `sent` buffers were lost. */
static uint32_t next_window(uint32_t now, uint32_t lost, uint32_t sent)
{
	uint32_t cut = (uint32_t)(3ull * now * lost / (4ull * sent));

	if (!lost)
		return now + 1;
	if (SHARED * lost >= sent && cut < now / 6)
		cut = now / 6;
	return now - cut;
}

/* Withholds one less for each frame that waits for a missing one (RFC 6675: pipe). T stays. */
void congestion_early(struct link_peer *peer)
{
	uint32_t withheld = peer->session->missing.withheld, early = peer->repair.early_count;

	peer->flow.rx.withheld = (uint16_t)(withheld > early ? withheld - early : 0);
}

/* Applies w and T. A smaller T must exceed what sinks keep, as in window_floor(). */
static void apply(struct link_peer *peer)
{
	struct link_missing *missing = &peer->session->missing;
	bool loses = missing->loses && congestion_now(peer) / 4 > peer->kept;

	window_rx_withhold(&peer->flow.rx, missing->withheld, loses);
	congestion_early(peer);
}

/* Adjusts w once for each w buffers that arrived or were lost. */
void congestion_check(struct link_peer *peer)
{
	struct link_missing *missing = &peer->session->missing;
	struct window_rx *rx = &peer->flow.rx;
	uint32_t now = congestion_now(peer), floor = window_floor(peer);
	uint32_t sent = rx->received - missing->checked + missing->lost;

	if (sent < now || rx->size <= floor)
		return;
	now = next_window(now, missing->lost, sent) + is_below_mean(peer, now);
	now = now > floor ? now : floor;
	missing->withheld = now < rx->size ? rx->size - now : 0;
	apply(peer);
	missing->checked = rx->received;
	missing->lost = 0;
}

/* Counts a request for a number as a loss of its frame, or of its last repair. */
void congestion_lost(struct link_peer *peer)
{
	struct link_missing *missing = &peer->session->missing;

	missing->lost++;
	missing->lost_ns = peer->link->now_ns;
	if (!missing->loses) {
		missing->loses = true;
		apply(peer);
	}
	congestion_check(peer);
}

void congestion_tick(struct link_peer *peer)
{
	struct link_missing *missing = &peer->session->missing;

	if (!missing->loses || peer->link->now_ns - missing->lost_ns < LOSES_NS)
		return;
	missing->loses = false;
	apply(peer);
}

/* Takes back a loss, since the frame was only late. */
void congestion_late(struct link_peer *peer)
{
	peer->session->missing.lost -= peer->session->missing.lost > 0;
}
