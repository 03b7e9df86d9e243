// SPDX-License-Identifier: BSD-2-Clause
/* Requests that wait because there is no room for their answer. A waiting request keeps its receive
 * buffer, so its sender runs out of credits and waits, too. A peer whose requests make no progress
 * for stall_ms loses its session; other peers keep theirs. */
#include "engine/engine.h"

#include <assert.h>

static bool is_waiting(const struct careful *c, uint32_t peer)
{
	return c->waiting[peer].deferred || c->messages.peers[peer].unanswered;
}

static void begin_wait(struct careful *c, const struct link_peer *peer)
{
	if (!is_waiting(c, peer->slot))
		c->waiting[peer->slot].since_ns = c->link.now_ns;
}

void deferred_put(struct careful *c, struct link_held *held)
{
	assert(c->deferred_count < c->deferred_max);
	begin_wait(c, held->peer);
	c->waiting[held->peer->slot].deferred++;
	c->deferred[c->deferred_count++] = held;
}

/* Handles the messages of a held frame that now have room for an answer. Stops when a handler ends
 * the epoch: the next epoch begins only after these buffers are free. */
static void serve(struct careful *c, struct link_held *held)
{
	struct careful_kept place = { 0 };
	struct careful_am am;

	for (uint32_t bytes; held->waits >> place.nth && held->epoch == held->peer->epoch;
	     am_step(&place, bytes)) {
		uint16_t bit = (uint16_t)(1u << place.nth);

		bytes = am_at(held->body, held->body_bytes, place, &am);
		if (!(held->waits & bit) || am_must_wait(c, held->peer, &am))
			continue;
		held->waits &= (uint16_t)~bit;
		c->waiting[held->peer->slot].since_ns = c->link.now_ns;
		c->handled = place;
		am_handle(c, held->peer, &am, held->body + place.at + sizeof(am),
			  bytes - (uint32_t)sizeof(am));
	}
}

/* Serves held frames, oldest first, and releases those of ended epochs. Handlers add none. */
static void serve_all(struct careful *c)
{
	uint32_t n = c->deferred_count;

	_Static_assert(CAREFUL_PACKED_MAX <= 8 * sizeof((*c->deferred)->waits), "a bit each");
	c->deferred_count = 0;
	c->deferred_pass++;
	for (uint32_t i = 0; i < n; i++) {
		struct link_held *held = c->deferred[i];

		c->handled_held = held;
		serve(c, held);
		c->handled_held = NULL;
		if (held->waits && held->epoch == held->peer->epoch) {
			c->deferred[c->deferred_count++] = held;
			continue;
		}
		c->waiting[held->peer->slot].deferred--;
		c->waiting[held->peer->slot].since_ns = c->link.now_ns;
		link_unhold(&c->link, held);
	}
}

/* Ends the sessions of peers that make no progress: both ends may wait for each other's answers. */
static void break_stalled(struct careful *c)
{
	for (uint32_t i = 0; i < c->link.peers_max; i++) {
		if (!is_waiting(c, i) ||
		    c->link.now_ns - c->waiting[i].since_ns < c->link.stall_ms * 1000000ull)
			continue;
		c->waiting[i].since_ns = c->link.now_ns;
		link_count(&c->link, CAREFUL_C_STALLS);
		link_break(&c->link.peers[i]);
	}
}

void deferred_serve(struct careful *c)
{
	serve_all(c);
	if (c->deferred_count || c->messages.unanswered)
		break_stalled(c);
}

/* Reports whether a message is a store whose answer has no room yet. */
static bool lacks_answer_room(const struct careful *c, const struct message_in *in)
{
	return in->am.kind == CAREFUL_AM_STORE && in->am.token && in->epoch == in->peer->epoch &&
	       !message_may_answer(&c->messages, in->peer);
}

/* Ends bulk messages that have arrived. A store waits until there is room for its answer. */
void deferred_stores(struct careful *c)
{
	struct message_state *m = &c->messages;
	struct message_in *in;

	for (uint32_t i = 0; m->unanswered && i < c->link.peers_max; i++) {
		while (m->peers[i].unanswered && !lacks_answer_room(c, m->peers[i].unanswered)) {
			c->waiting[i].since_ns = c->link.now_ns;
			bulk_finished(c, message_in_unanswered(m, &m->peers[i]));
		}
	}
	while ((in = message_in_finished(m))) {
		if (lacks_answer_room(c, in)) {
			begin_wait(c, in->peer);
			message_in_wait(in);
		} else {
			bulk_finished(c, in);
		}
	}
}
