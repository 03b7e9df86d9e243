// SPDX-License-Identifier: BSD-2-Clause
/* The traditional protocol of a link: set-up, clock and statistics. An end that waits for its peer
 * asks after a silence of two round trips. An end that only keeps sent frames asks later, if it has
 * spare buffers. */
#include "link/traditional/traditional_private.h"
#include "link/operation_timer.h"

#include <errno.h>
#include <stdlib.h>

enum {
	WAIT_NS = 2 * 1000 * 1000, /* least time without progress before a question */
	ROUNDS = 2, /* round trips to wait in addition */
	LAZY = 4, /* least wait for acknowledgements, if buffers are spare: sync_ms / LAZY */
};

static uint32_t power_above(uint32_t n)
{
	uint32_t size = 8;

	while (size <= n)
		size *= 2;
	return size;
}

static int init_peer(struct traditional_link *all, struct traditional *t)
{
	t->copies = calloc(all->numbers_out, sizeof(*t->copies));
	t->early = calloc(all->numbers_in, sizeof(*t->early));
	t->asked = calloc(all->numbers_in, sizeof(*t->asked));
	return t->copies && t->early && t->asked ? 0 : -ENOMEM;
}

static void traditional_close(struct link_peer *peer)
{
	struct traditional *t = traditional_peer(peer);

	traditional_forget_sent(peer);
	traditional_forget_received(peer);
	peer->flow.seq_out = 0;
	*t = (struct traditional){
		.copies = t->copies,
		.early = t->early,
		.asked = t->asked,
		.round_ns = t->round_ns,
	};
}

static void traditional_open(struct link_peer *peer)
{
	traditional_peer(peer)->entered_ns = traditional_peer(peer)->come_ns = peer->link->now_ns;
}

static bool unacknowledged(const struct link_peer *peer)
{
	return window_tx_outstanding(&peer->flow.tx) != 0;
}

static bool misses_frames(const struct link_peer *peer)
{
	return traditional_peer(peer)->highest != peer->flow.seq_in;
}

/* Reports whether this end waits for frames of the peer. */
static bool awaits(const struct link_peer *peer)
{
	return misses_frames(peer) || peer->operations;
}

static uint64_t sync_ns(const struct link_peer *peer)
{
	return peer->link->sync_ms * 1000000ull;
}

static uint64_t least_wait_ns(const struct link_peer *peer)
{
	uint64_t wait_ns = WAIT_NS + ROUNDS * traditional_peer(peer)->round_ns;

	return wait_ns < sync_ns(peer) ? wait_ns : sync_ns(peer);
}

/* Returns the wait before we ask for an acknowledgement. It is long if buffers are spare. */
static uint64_t lazy_wait_ns(const struct link_peer *peer)
{
	uint64_t lazy_ns = sync_ns(peer) / LAZY, wait_ns = traditional_peer(peer)->wait_ns;

	return traditional_short(peer) || wait_ns > lazy_ns ? wait_ns : lazy_ns;
}

/* Counts all requests as lost and asks again. The answer also shows whether the peer's last frames
 * are missing. */
static void time_out(struct link_peer *peer)
{
	struct traditional *t = traditional_peer(peer);

	t->heard = t->question;
	t->timed = 0;
	t->question_due = t->out_of_time = true;
	t->asked_ns = peer->link->now_ns;
	t->wait_ns = 2 * t->wait_ns < sync_ns(peer) ? 2 * t->wait_ns : sync_ns(peer);
	link_dirty(peer);
	link_count(peer->link, CAREFUL_C_TIMED_OUT);
}

/* Notes progress since the last tick, or that none was expected. */
static void note_progress(struct link_peer *peer)
{
	struct traditional *t = traditional_peer(peer);
	uint64_t now_ns = peer->link->now_ns;

	if (t->entered || (t->come && !awaits(peer)) || !t->wait_ns)
		t->wait_ns = least_wait_ns(peer);
	/* A frame that found no room here is requested once there is room, however late. */
	if (t->entered || t->refused || !awaits(peer))
		t->entered_ns = now_ns;
	if (t->come || !unacknowledged(peer))
		t->come_ns = now_ns;
	t->entered = t->come = false;
}

static uint64_t later(uint64_t a_ns, uint64_t b_ns)
{
	return a_ns > b_ns ? a_ns : b_ns;
}

/* Does all that depends on time. Reports whether the session has ended. */
static bool traditional_tick(struct link_peer *peer)
{
	struct traditional *t = traditional_peer(peer);
	struct link *link = peer->link;
	uint64_t stall_ns = link->stall_ms * 1000000ull;

	OPERATION(OPERATION_TICK);
	if (peer->phase != LINK_OPEN)
		return false;
	note_progress(peer);
	if ((misses_frames(peer) && link->now_ns - t->entered_ns >= stall_ns) ||
	    (unacknowledged(peer) && link->now_ns - t->come_ns >= stall_ns)) {
		link_close(peer, ETIMEDOUT);
		return true;
	}
	if ((awaits(peer) && link->now_ns - later(t->entered_ns, t->asked_ns) >= t->wait_ns) ||
	    (unacknowledged(peer) &&
	     link->now_ns - later(t->come_ns, t->asked_ns) >= lazy_wait_ns(peer)))
		time_out(peer);
	return false;
}

/* Returns the time until a tick is needed, at most most_ms. */
static uint32_t traditional_timeout_ms(const struct link_peer *peer, uint32_t most_ms)
{
	uint64_t wait_ns = UINT64_MAX;

	if (awaits(peer))
		wait_ns = traditional_peer(peer)->wait_ns;
	else if (unacknowledged(peer))
		wait_ns = lazy_wait_ns(peer);
	return wait_ns / 1000000 < most_ms ? (uint32_t)(wait_ns / 1000000) + 1 : most_ms;
}

/* Reports the free part of our share as credits: the peer may drop frames beyond it. */
static void traditional_info(const struct link_peer *peer, struct careful_peer_info *info)
{
	uint32_t kept = window_tx_outstanding(&peer->flow.tx);

	info->credits_free = kept < info->credits_window ? info->credits_window - kept : 0;
	info->buffers_owed = kept;
	info->buffers_kept += traditional_peer(peer)->early_buffers;
}

static const struct traditional_ops ops = {
	.open = traditional_open,
	.close = traditional_close,
	.tick = traditional_tick,
	.timeout_ms = traditional_timeout_ms,
	.info = traditional_info,
	.number_frame = traditional_number_frame,
	.write_ack = traditional_write_ack,
	.sent = traditional_sent,
	.acked = traditional_acked,
	.may_keep = traditional_may_keep,
	.take = traditional_take,
	.next_waiting = traditional_next_waiting,
	.due = traditional_due,
	.send_ack = traditional_send_ack,
};

int traditional_init(struct link *link)
{
	const struct queue *queue = link->queue;
	uint32_t cost = link_frame_cost(queue);
	struct traditional_link *all = calloc(1, sizeof(*all));

	if (!all)
		return -ENOMEM;
	link->traditional = all;
	all->ops = &ops;
	all->numbers_out = power_above(queue->tx_chunks);
	all->numbers_in = power_above(2 * queue->rx_chunks);
	all->chunk_shift = (uint32_t)__builtin_ctz(queue->chunk_bytes);
	all->copies_max = queue->tx_chunks / link->peers_max;
	all->early_max = link->window - window_threshold(link->window) + 1 - cost;
	all->early_pool = link->peers_max * all->early_max;
	all->peers = calloc(link->peers_max, sizeof(*all->peers));
	all->copies = calloc(queue->tx_chunks, sizeof(*all->copies));
	all->early = calloc(queue->rx_chunks, sizeof(*all->early));
	all->early_free = calloc(queue->rx_chunks, sizeof(*all->early_free));
	if (!all->peers || !all->copies || !all->early || !all->early_free)
		return -ENOMEM;
	for (uint32_t i = 0; i < queue->rx_chunks; i++)
		all->early_free[all->early_free_count++] = i;
	for (uint32_t i = 0; i < link->peers_max; i++)
		if (init_peer(all, &all->peers[i]))
			return -ENOMEM;
	return 0;
}

void traditional_deinit(struct link *link)
{
	struct traditional_link *all = link->traditional;

	if (!all)
		return;
	for (uint32_t i = 0; all->peers && i < link->peers_max; i++) {
		free(all->peers[i].copies);
		free(all->peers[i].early);
		free(all->peers[i].asked);
	}
	free(all->peers);
	free(all->copies);
	free(all->early);
	free(all->early_free);
	free(all);
	link->traditional = NULL;
}
