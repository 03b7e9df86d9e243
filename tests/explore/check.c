// SPDX-License-Identifier: BSD-2-Clause
/* Checks each state: both ends agree on credits, and every buffer is in one place. */
#include <endian.h>
#include <string.h>

#include "loss.h"
#include "search.h"
#include "state.h"
#include "steps.h"

/* Marks a buffer as seen; it must be the node's and not yet seen. */
static void see(struct world *world, const struct queue *queue, uint64_t addr, bool rx,
		uint64_t *seen)
{
	uint64_t chunk = addr / CHUNK_BYTES;
	uint64_t first = rx ? 0 : queue->rx_chunks;
	uint64_t count = rx ? queue->rx_chunks : queue->tx_chunks;

	if (chunk < first || chunk >= first + count || *seen & 1ull << chunk)
		violation(world, "a buffer is in two places, or is none of the node's");
	*seen |= 1ull << chunk;
}

static void check_rx_buffers(struct world *world, const struct node *node)
{
	const struct queue *queue = &node->queue;
	uint32_t arriving = 0;
	uint64_t seen = 0, waits = ~0ull;

	for (uint32_t i = 0; i < node->fill_count; i++)
		see(world, queue, node->fill_ring[i], true, &seen);
	for (uint32_t i = 0; i < node->link.fill_count; i++)
		see(world, queue, node->link.fill[i], true, &seen);
	for (uint32_t i = 0; world_loses(world) && i < node->link.early_free_count; i++)
		waits &= ~(1ull << node->link.early_free[i]);
	for (uint32_t k = 0; world_loses(world) && k < queue->rx_chunks; k++)
		for (uint32_t i = 0; waits & 1ull << k && i < node->link.early[k].segments; i++)
			see(world, queue, node->link.early[k].desc[i].addr, true, &seen);
	for (uint32_t k = 0; k < node->kept_count; k++)
		for (uint32_t i = 0; node->kept[k]->cost && i < node->kept[k]->segments; i++)
			see(world, queue, node->kept[k]->addr[i], true, &seen);
	if (seen != (1ull << queue->rx_chunks) - 1)
		violation(world, "a receive buffer is lost");
	for (int j = 0; j < world->setting.nodes; j++)
		for (uint32_t i = 0; i < world->wire[j][node->index].count; i++)
			arriving += world->wire[j][node->index].flight[i].cost;
	if (arriving > node->fill_count && !world_loses(world))
		violation(world, "more is under way than there are buffers for");
}

static void check_tx_buffers(struct world *world, const struct node *node)
{
	const struct queue *queue = &node->queue;
	uint64_t seen = 0;

	for (uint32_t i = 0; i < node->link.tx_free_count; i++)
		see(world, queue, node->link.tx_free[i], false, &seen);
	for (uint32_t i = 0; i < node->sent_count; i++)
		see(world, queue, node->sent[i], false, &seen);
	for (int j = 0; j < world->setting.nodes; j++)
		for (uint32_t i = 0; i < world->wire[node->index][j].count; i++) {
			const struct flight *flight = &world->wire[node->index][j].flight[i];

			for (uint32_t k = 0; k < flight->segments; k++)
				see(world, queue, flight->chunk[k], false, &seen);
		}
	if (seen >> queue->rx_chunks != (1ull << queue->tx_chunks) - 1)
		violation(world, "a send buffer is lost");
}

/* Checks the link's tables, and that nothing was dropped or counted as lost. */
static void check_link(struct world *world, const struct node *node)
{
	static const enum careful_counter none[] = {
		CAREFUL_C_DROP_MALFORMED, CAREFUL_C_DROP_CHECK,	 CAREFUL_C_DROP_COOKIE,
		CAREFUL_C_DROP_SEQ,	  CAREFUL_C_LOST_FRAMES, CAREFUL_C_BAD_CREDITS,
		CAREFUL_C_EPOCHS_BROKEN,
	};
	const struct link *link = &node->link;
	uint32_t copied = 0, granted = 0;

	for (uint32_t i = 0; i < node->kept_count; i++)
		copied += node->kept[i]->pool >= 0;
	for (uint32_t i = 0; i < link->peers_max; i++)
		granted += link->sessions[i].granted;
	if (granted + link->reserve.free != link->reserve.count)
		violation(world, "a buffer of the reserve is lost");
	if (link->kept_free_count + node->kept_count != node->queue.rx_chunks + link->pool_count ||
	    link->pool_share.free + copied != link->pool_count)
		violation(world, "an entry of a kept frame, or a copy-out buffer, is lost");
	for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++)
		if (link->counters[none[i]])
			violation(world, "a frame was refused, or a loss seen where none was");
}

/* Credits: each of the W is with the sender, under way, in use, owed or under way back. */
static void check_flow(struct world *world, int from, int to)
{
	const struct link_peer *out = world_peer(world, from, to);
	const struct link_peer *in = world_peer(world, to, from);
	const struct wire *wire = &world->wire[from][to], *back = &world->wire[to][from];
	const struct link_member *member = world_member(world, from, to);
	uint32_t flying = member ? member->held : 0, told = out->flow.tx.credits;
	uint32_t cast_told = world_heard(world, from, to)->credits;
	const uint32_t most = out->flow.tx.size + world->setting.reserve;
	const uint32_t granted = in->session->granted;

	for (uint32_t i = 0; i < wire->count; i++)
		flying += wire->flight[i].cost;
	for (uint32_t i = 0; i < back->count; i++) {
		if (back->flight[i].cast) { /* its credits are already back here */
			flying += back->flight[i].credits - cast_told + back->flight[i].ask;
			cast_told = back->flight[i].credits;
			continue;
		}
		if (back->flight[i].credits - told > most)
			violation(world, "credits run backwards");
		told = back->flight[i].credits;
	}
	if (out->flow.seq_out - in->flow.seq_in != wire->count)
		violation(world, "frames are not numbered one by one");
	if (told != in->flow.rx.announced)
		violation(world, "credits were announced and are on no frame");
	if (window_tx_free(&out->flow.tx) > most ||
	    out->flow.tx.sent - in->flow.rx.received != flying ||
	    in->flow.rx.received + granted - in->flow.rx.returned != in->kept + in->flow.freeing ||
	    in->flow.rx.returned - in->flow.rx.announced > most)
		violation(world, "credits are not conserved");
	if (granted && !wire->count && !in->kept && !in->flow.freeing && !world->left[from][to])
		violation(world, FOUND_UNPAID);
	if (out->phase != LINK_OPEN || in->phase != LINK_OPEN)
		violation(world, "a session broke");
}

void steps_check(struct world *world)
{
	for (int i = 0; i < world->setting.nodes; i++) {
		const struct node *node = &world->node[i];

		check_rx_buffers(world, node);
		check_tx_buffers(world, node);
		check_link(world, node);
		for (int j = 0; j < world->setting.nodes; j++)
			if (world_linked(world, i, j))
				(world_loses(world) ? loss_check : check_flow)(world, i, j);
	}
}

/* Returns the buffers that a peer may still be granted. Each frame under way counts for the buffers
 * that it requests beyond the previous frame. A repair may request another number, so with losses
 * each frame counts for the whole reserve. */
static uint32_t grants_to_come(struct world *world, int from, int to)
{
	const struct wire *wire = &world->wire[from][to];
	const struct link_peer *in = world_peer(world, to, from);
	uint32_t asked = be16toh(in->flow.asked), granted = in->session->granted;
	uint32_t n = asked > granted ? asked - granted : 0;

	if (world_loses(world))
		return loss_grants(world, from, to);
	for (uint32_t i = 0; i < wire->count; i++) {
		if (wire->flight[i].ask > asked)
			n += wire->flight[i].ask - asked;
		asked = wire->flight[i].ask;
	}
	return world->setting.reserve ? n : 0;
}

/*
 * A buffer's distance from rest, by its place: a frame under way 15, kept 14, released 11,
 * published and owed 10, announced 0, a copy 1. An update turns two owed buffers or more into one
 * under way, and so goes down; one owed buffer would go up. A buffer that may still be granted
 * counts 10.5, since it is owed afterwards; a buffer that pays back, after which it may be granted,
 * was released before. Marks that a step may only clear count 1/64.
 */
uint32_t steps_rank(struct world *world)
{
	uint32_t rank = 0;

	for (int i = 0; i < world->setting.nodes; i++) {
		const struct node *node = &world->node[i];

		for (uint32_t k = 0; k < node->kept_count; k++)
			rank += node->kept[k]->pool >= 0 ? 4 * RANK_SCALE : 0;
		for (int j = 0; j < world->setting.nodes; j++) {
			const struct link_peer *in;
			bool withhold;

			if (!world_linked(world, i, j))
				continue;
			in = world_peer(world, i, j);
			withhold = in->kept >= in->flow.rx.threshold;
			for (uint32_t f = 0; !world_loses(world) && f < world->wire[j][i].count;
			     f++)
				rank += RANK_FRAME * RANK_SCALE * world->wire[j][i].flight[f].cost;
			if (world_loses(world))
				rank += loss_rank(world, j, i);
			rank += RANK_SCALE * (56 * in->kept + 44 * in->flow.freeing +
					      40 * (in->flow.rx.returned - in->flow.rx.announced) +
					      42 * grants_to_come(world, j, i));
			rank += in->dirty + (withhold != in->withholding);
		}
	}
	return rank;
}
