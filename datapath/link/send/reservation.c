// SPDX-License-Identifier: BSD-2-Clause
/* Gives and takes back grants (reservation.h).
 *
 * The windows and all grants never exceed R. A peer's grant is at most what is left in the pool: one
 * peer gets half of the pool, two peers get a third each, and some buffers are always left. This is
 * Choudhury and Hahne's dynamic threshold (IEEE/ACM Transactions on Networking 6(2), 1998).
 *
 * A sender asks only for what it will send beyond its window, so that the message itself uses up the
 * grant. If the message is given up, the sender uses the grant up with updates. A peer that does
 * neither loses its epoch when others wait, and with it the grant. */
#include "link/link_private.h"

#include <assert.h>
#include <endian.h>
#include <stdlib.h>

enum {
	IDLE_MS = 2000, /* time for which a grant may lie unused while others wait */
	SPEND = 32, /* updates sent at a time to use up a grant */
};

int reservation_init(struct link *link, uint32_t count)
{
	link->reserve = (struct reserve){ .count = count, .free = count };
	if (!count)
		return 0;
	link->reserve.asking = calloc(link->peers_max, sizeof(struct link_peer *));
	return link->reserve.asking ? 0 : -ENOMEM;
}

void reservation_deinit(struct link *link)
{
	free(link->reserve.asking);
}

/* Reports whether the peer may get a larger grant: it asks for one, and its path can hold a
 * window. */
static bool asks(const struct link_peer *peer)
{
	return peer->cookie_in && be16toh(peer->flow.asked) > peer->session->granted &&
	       peer->session->train.verdict != CAREFUL_BURST_SHORT;
}

/* Notes a changed request in the peer's frames. */
void reservation_asked(struct link_peer *peer, __be16 extra)
{
	struct reserve *reserve = &peer->link->reserve;

	if (!reserve->count)
		return;
	peer->flow.asked = extra;
	link_dirty(peer);
	if (peer->asking || !asks(peer))
		return;
	peer->asking = true;
	reserve->asking[reserve->asking_count++] = peer;
}

/* Returns a part of the peer's grant to the pool, as far as its buffers are in the fill batch. A
 * peer repays if it asks for less, or if its grant is larger than what is left in the pool. */
static void repay(struct link_peer *peer)
{
	struct reserve *reserve = &peer->link->reserve;
	uint32_t asked = be16toh(peer->flow.asked);
	uint32_t n = peer->session->granted > asked ? peer->session->granted - asked : 0;

	if (peer->session->granted > reserve->free &&
	    (peer->session->granted - reserve->free + 1) / 2 > n)
		n = (peer->session->granted - reserve->free + 1) / 2;
	if (n > peer->flow.freeing)
		n = peer->flow.freeing;
	peer->flow.freeing -= n;
	peer->session->granted -= n;
	reserve->free += n;
}

/* Gives credits as if buffers had returned. */
static void grant(struct link_peer *peer)
{
	struct reserve *reserve = &peer->link->reserve;
	uint32_t n = be16toh(peer->flow.asked) - peer->session->granted;
	uint32_t grant_max = reserve->free > peer->session->granted ?
				     (reserve->free - peer->session->granted) / 2 :
				     0;

	n = n < grant_max ? n : grant_max;
	if (!n)
		return;
	reserve->free -= n;
	peer->session->granted += n;
	peer->flow.freeing += n;
	peer->link->counters[CAREFUL_C_GRANTED] += n;
	link_dirty(peer);
}

/* Adjusts all grants. Called after released buffers are in the fill ring, and before their peers get
 * the credits. */
void reservation_settle(struct link *link)
{
	struct reserve *reserve = &link->reserve;
	uint32_t still_asking = 0;

	for (uint32_t i = 0; i < link->dirty_count; i++)
		repay(link->dirty[i]);
	for (uint32_t i = 0; i < reserve->asking_count; i++) {
		struct link_peer *peer = reserve->asking[i];

		if (asks(peer))
			grant(peer);
		peer->asking = asks(peer);
		if (peer->asking)
			reserve->asking[still_asking++] = peer;
	}
	reserve->asking_count = still_asking;
	assert(reserve->free <= reserve->count);
}

/* Forgets the request of an epoch that ended. Its granted buffers may still be filled. */
void reservation_epoch_over(struct link_peer *peer)
{
	peer->flow.asked = 0;
}

/* Returns the grant to the pool. All buffers of the epoch are back. */
void reservation_return(struct link_peer *peer)
{
	struct reserve *reserve = &peer->link->reserve;

	reserve->free += peer->session->granted;
	peer->session->granted = 0;
	for (uint32_t i = 0; i < reserve->asking_count; i++)
		link_dirty(reserve->asking[i]);
}

/* Reports whether a peer other than this one asks for more. */
static bool others_wait(const struct link_peer *peer)
{
	return peer->link->reserve.asking_count > peer->asking;
}

/* Reports whether the peer leaves a grant unused while others wait. Time does not count while we
 * hold its buffers. */
static bool lies_idle(struct link_peer *peer)
{
	struct session *session = peer->session;
	uint64_t now_ns = peer->link->now_ns;

	if (session->granted_frames != peer->rx_frames || peer->kept || peer->flow.freeing ||
	    !others_wait(peer)) {
		session->granted_frames = peer->rx_frames;
		session->granted_ns = now_ns;
		return false;
	}
	return now_ns - session->granted_ns >= IDLE_MS * 1000000ull;
}

/* Uses up an unused grant with updates. */
static void spend(struct link_peer *peer)
{
	for (uint32_t n = SPEND; n && window_tx_unused(&peer->flow.tx); n--)
		if (!link_send_update(peer))
			return;
}

/* Withdraws our request by an update, unless a frame has done so. */
static void withdraw(struct link_peer *peer)
{
	struct session *session = peer->session;

	if (session->unasked &&
	    (peer->flow.seq_out != session->unasked_seq || link_send_update(peer)))
		session->unasked = false;
}

/* Announces a grant that is too small for an update to be due. Otherwise, a peer that has sent all
 * its data could not use up the grant. */
static void announce_small(struct link_peer *peer)
{
	if (!peer->flow.asked && window_rx_owed(&peer->flow.rx) &&
	    peer->session->granted_frames == peer->rx_frames)
		link_send_update(peer);
}

/* Reports whether the epoch must end, because its grant lies idle while others wait. */
bool reservation_tick(struct link_peer *peer)
{
	bool sends = peer->phase == LINK_OPEN && peer->llhdr.bytes;

	if (sends && !peer->flow.ask) {
		withdraw(peer);
		spend(peer);
	}
	if (!peer->session->granted || !peer->cookie_in)
		return false;
	if (sends)
		announce_small(peer);
	if (!lies_idle(peer))
		return false;
	link_count(peer->link, CAREFUL_C_GRANTS_ENDED);
	return true;
}

/* Asks for buffers beyond the window for `bytes` of large messages behind the next frame. The window
 * has one credit less for data. */
void reservation_ask(struct link_peer *peer, uint64_t bytes, uint32_t beside)
{
	uint32_t body = link_body_max(peer) - beside;
	uint64_t buffers = (bytes + body - 1) / body * link_cost(peer, body) + 1;
	struct flow *flow = &peer->flow;
	uint16_t before = flow->ask;

	flow->ask = 0;
	if (buffers > flow->tx.size)
		flow->ask = buffers - flow->tx.size < flow->tx.reserve ?
				    (uint16_t)(buffers - flow->tx.size) :
				    (uint16_t)flow->tx.reserve;
	if (before && !flow->ask) {
		peer->session->unasked = true;
		peer->session->unasked_seq = flow->seq_out;
	}
}
