// SPDX-License-Identifier: BSD-2-Clause
/* The window of a peer: its share of the burst that its path takes (train.c), less what held buffers
 * and forged frames may fill. */
#include "link/link_private.h"

/* Returns the least window in which the largest frame fits. */
static uint32_t window_least(const struct link *link)
{
	uint32_t cost = link_frame_cost(link->queue);
	uint32_t window = WINDOW_MIN;

	while (window_cost_max(window) < cost)
		window++;
	return window < link->window ? window : link->window;
}

/* Returns the peer's share of its path's burst, at most the window. With repairs, a peer gets the
 * whole burst if no other session was open during the measurement. If one was, the result is too
 * low, and the peer gets the window: w divides the path (congestion.c). */
static uint32_t share_of(const struct link_peer *peer)
{
	const struct link_train *train = &peer->session->train;
	const struct link *link = peer->link;
	uint32_t share = link->repairs ? train->burst : train->burst / link->peers_max;
	uint32_t least = window_least(link);

	if (train->verdict != CAREFUL_BURST_SHORT || (link->repairs && train->shared) ||
	    share >= link->window)
		return link->window;
	return share > least ? share : least;
}

/* Returns the part of the peer's share that forged frames may fill until they are detected
 * (seal.h): a quarter if frames are sealed, as long as the largest frame fits into the rest. */
uint32_t link_peer_room(const struct link_peer *peer)
{
	uint32_t share = share_of(peer), least = window_least(peer->link);
	uint32_t room_max = share > least ? share - least : 0;

	if (!peer->trailer || peer->link->traditional)
		return 0;
	return share / 4 < room_max ? share / 4 : room_max;
}

/* Returns the part of W that held buffers of an earlier epoch may occupy in a new epoch. */
static uint32_t window_spare(const struct link_peer *peer, uint32_t window)
{
	uint32_t least = window_least(peer->link);

	if (least < window / 4)
		least = window / 4;
	return peer->link->traditional || window < least ? 0 : window - least;
}

/* Returns W for this peer, less the buffers that a disk still holds for an earlier epoch. */
uint32_t link_peer_window(const struct link_peer *peer)
{
	uint32_t window = share_of(peer) - link_peer_room(peer);
	uint32_t spare = window_spare(peer, window);

	return window - (peer->kept_old < spare ? peer->kept_old : spare);
}

/* Reports whether an epoch can begin with the rest of W. */
bool link_peer_spares(const struct link_peer *peer)
{
	return peer->kept_old <= window_spare(peer, share_of(peer) - link_peer_room(peer));
}
