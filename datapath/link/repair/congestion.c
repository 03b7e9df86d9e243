// SPDX-License-Identifier: BSD-2-Clause
/* The answer to congestion. The receiver withholds part of a window, so that the peer has at most w
 * buffers outstanding. w grows by one for each w buffers that arrive. It shrinks by the share of
 * frames that the network lost, as in DCTCP (RFC 8257 section 3.3). If that share is not small, w
 * shrinks at least by a sixth, so that senders who share a link come to equal shares. Losses at
 * random, which a smaller w does not prevent, then cost little. A w below the mean of the peers with
 * a reduced window grows by one more, since a full queue may drop one sender's frames for long.
 * Frames that wait here for a missing one have left the network, so they do not count against w. */
#include "link/link.h"
#include "link/repair/repair.h"

enum { SHARED = 24 }; /* a smaller share of losses, one in this many, counts as random */

/* Returns the smallest w: a frame of the largest cost and an update fit into half of it, and so do
 * the buffers that sinks keep. If T fell to their number, they might wait for frames for which the
 * peer has no credit. */
static uint32_t least(const struct link_peer *peer)
{
	uint32_t cost = link_taken_cost(peer);
	uint32_t twice = 2 * ((cost > peer->kept ? cost : peer->kept) + 1);

	return twice > WINDOW_MIN ? twice : WINDOW_MIN;
}

/* Reports whether the peer has less than the mean of the peers with reduced windows. */
static bool is_behind(const struct link_peer *peer, uint32_t now)
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

/* Returns the next w. @lost of the @sent buffers under this w were lost. */
static uint32_t next(uint32_t now, uint32_t lost, uint32_t sent)
{
	uint32_t cut = (uint32_t)(3ull * now * lost / (4ull * sent));

	if (!lost)
		return now + 1;
	if (SHARED * lost >= sent && cut < now / 6)
		cut = now / 6;
	return now - cut;
}

/* Withholds the less the more frames wait for a missing one, like TCP's pipe (RFC 6675). T stays. */
void congestion_early(struct link_peer *peer)
{
	uint32_t withheld = peer->session->missing.withheld, early = peer->repair.early_count;

	peer->flow.rx.withheld = (uint16_t)(withheld > early ? withheld - early : 0);
}

/* Adjusts w once for each w buffers that arrived or were lost. */
void congestion_check(struct link_peer *peer)
{
	struct link_missing *missing = &peer->session->missing;
	struct window_rx *rx = &peer->flow.rx;
	uint32_t now = congestion_now(peer), floor = least(peer);
	uint32_t sent = rx->received - missing->checked + missing->lost;

	if (sent < now || rx->size <= floor)
		return;
	now = next(now, missing->lost, sent) + is_behind(peer, now);
	now = now > floor ? now : floor;
	missing->withheld = now < rx->size ? rx->size - now : 0;
	window_rx_withhold(rx, missing->withheld);
	congestion_early(peer);
	missing->checked = rx->received;
	missing->lost = 0;
}

/* Counts a request for a number as a loss: its frame, or its last repair, is lost. */
void congestion_lost(struct link_peer *peer)
{
	peer->session->missing.lost++;
	congestion_check(peer);
}

/* Takes back a loss: the requested frame was only late. */
void congestion_late(struct link_peer *peer)
{
	peer->session->missing.lost -= peer->session->missing.lost > 0;
}
