// SPDX-License-Identifier: BSD-2-Clause
/* Converts the world to a state and back, field by field. */
#include "state.h"

#include <assert.h>
#include <endian.h>
#include <string.h>

uint32_t state_flows(const struct world *world, uint8_t (*ends)[2])
{
	uint32_t n = 0;

	for (int i = 0; i < world->setting.nodes; i++)
		for (int j = 0; j < world->setting.nodes; j++)
			if (world_linked(world, i, j)) {
				ends[n][0] = (uint8_t)i;
				ends[n++][1] = (uint8_t)j;
			}
	return n;
}

/* Returns a counter relative to its base. No window lets it exceed W; with a grant it can be
 * negative. */
static int8_t beyond(struct world *world, uint32_t counter, uint32_t base)
{
	uint32_t behind = world->setting.reserve;

	if (counter + behind - base > world->setting.window + 2 * behind)
		violation(world, "a counter is further on than the window allows");
	return (int8_t)(counter - base);
}

static void get_kept(struct node *node, const struct link_peer *peer, struct direction *flow)
{
	for (uint32_t i = 0; i < node->kept_count; i++) {
		const struct link_held *kept = node->kept[i];

		if (kept->peer != peer)
			continue;
		if (kept->pool >= 0)
			flow->copied++;
		else if (kept->next)
			flow->held++;
		else
			flow->fixed[kept->cost - 1]++;
	}
}

static void get_wire(struct world *world, int from, int to, struct direction *flow)
{
	const struct link_peer *in = world_peer(world, to, from);
	const struct link_member *member = world_member(world, from, to);
	const struct wire *wire = &world->wire[from][to];
	uint32_t cast_credits = world_heard(world, to, from)->credits;

	flow->cast_held = member ? (uint8_t)member->held : 0;
	flow->frames = (uint8_t)wire->count;
	for (uint32_t i = 0; i < wire->count; i++) {
		const struct flight *flight = &wire->flight[i];
		const uint32_t base = flight->cast ? cast_credits : in->flow.tx.credits;

		flow->frame[i] = flight->cost | (flight->update ? FLIGHT_UPDATE : 0) |
				 (flight->cast || flight->again ? FLIGHT_CAST : 0) |
				 (flight->again ? FLIGHT_AGAIN : 0);
		if (flight->cast && world_loses(world))
			continue; /* the number has its credits */
		flow->credits[i] = (int32_t)(flight->credits - base) < 0 && world_loses(world) ?
					   0 : /* repeated, so it changes nothing */
					   beyond(world, flight->credits, base);
		if (flight->cast)
			cast_credits = flight->credits;
		flow->ask[i] = (uint8_t)flight->ask;
	}
}

static void get_flow(struct world *world, int from, int to, struct direction *flow)
{
	const struct link_peer *out = world_peer(world, from, to);
	const struct link_peer *in = world_peer(world, to, from);
	struct node *receiver = &world->node[to];
	const struct reserve *reserve = &receiver->link.reserve;
	const uint32_t base = out->flow.tx.credits;

	flow->sent = beyond(world, out->flow.tx.sent, base);
	flow->received = beyond(world, in->flow.rx.received, base);
	flow->returned = beyond(world, in->flow.rx.returned, base);
	flow->announced = beyond(world, in->flow.rx.announced, base);
	flow->asked = (uint8_t)be16toh(in->flow.asked);
	flow->granted = (uint8_t)in->session->granted;
	flow->left = world->left[from][to];
	for (uint32_t i = 0; i < reserve->asking_count; i++)
		if (reserve->asking[i] == in)
			flow->asking = (uint8_t)(i + 1);
	if (in->asking != (flow->asking != 0))
		violation(world, "a peer's mark and the list of those that ask disagree");
	flow->freeing = (uint8_t)in->flow.freeing;
	flow->withholding = in->withholding;
	flow->withheld = (uint8_t)in->flow.rx.withheld;
	for (uint32_t i = 0; i < receiver->link.dirty_count; i++)
		if (receiver->link.dirty[i] == in)
			flow->dirty = (uint8_t)(i + 1);
	if (in->dirty != (flow->dirty != 0))
		violation(world, "a peer's dirty mark and the dirty list disagree");
	flow->said = world->said[from][to];
	get_wire(world, from, to, flow);
	get_kept(receiver, in, flow);
}

/* Reports whether no flow before this one ends at the same node. */
static bool is_first(uint8_t (*ends)[2], uint32_t at)
{
	for (uint32_t i = 0; i < at; i++)
		if (ends[i][1] == ends[at][1])
			return false;
	return true;
}

void state_get(struct world *world, struct state *state)
{
	uint8_t ends[FLOWS_MAX][2];
	uint32_t n = state_flows(world, ends);

	memset(state, 0, sizeof(*state));
	for (uint32_t i = 0; i < n; i++) {
		get_flow(world, ends[i][0], ends[i][1], &state->flow[i]);
		if (world_loses(world))
			loss_get(world, ends[i][0], ends[i][1], &state->flow[i], is_first(ends, i));
	}
}

/* Takes receive buffers out of the fill ring. */
void state_take_buffers(struct node *node, uint32_t n, uint64_t *addrs)
{
	assert(n <= node->fill_count);
	node->fill_count -= n;
	memcpy(addrs, node->fill_ring + node->fill_count, n * sizeof(*addrs));
}

/* Restores a frame that the application keeps, in receive buffers or as a copy. */
static void put_kept(struct node *node, struct link_peer *peer, uint32_t cost, bool may_copy)
{
	struct link *link = &node->link;
	struct link_held *kept = link->kept_free[--link->kept_free_count];
	const uint8_t tag = (uint8_t)node->kept_count;

	*kept = (struct link_held){
		.uses = 1,
		.peer = peer,
		.epoch = peer->epoch,
		.body_bytes = body_of(1),
		.cost = cost,
		.pool = -1,
		.segments = (uint16_t)cost,
	};
	if (cost) {
		state_take_buffers(node, cost, kept->addr);
		kept->body = node->umem + kept->addr[0] + LL_BYTES + LINK_HDR_BYTES;
		peer->kept += cost;
	} else {
		kept->pool = link->pool_free[link->pool_share.free - 1];
		share_take(&link->pool_share, &peer->session->copied);
		kept->body = link->pool + (size_t)kept->pool * link->pool_buffer_bytes;
	}
	memset((uint8_t *)kept->body, tag, kept->body_bytes);
	if (cost && may_copy) {
		struct link_held *end = &link->kept_lists[peer->slot];

		kept->prev = end->prev;
		kept->next = end;
		end->prev->next = kept;
		end->prev = kept;
	}
	node->kept[node->kept_count++] = kept;
}

/* Resets the node: all receive buffers are in the fill ring, all send buffers are sent and not yet
 * taken back, so that the code must fetch them. */
static void put_rest(struct world *world, struct node *node)
{
	struct link *link = &node->link;

	node->fill_count = node->queue.rx_chunks;
	for (uint32_t i = 0; i < node->fill_count; i++)
		node->fill_ring[i] = (uint64_t)i * CHUNK_BYTES;
	node->sent_count = node->queue.tx_chunks;
	for (uint32_t i = 0; i < node->sent_count; i++)
		node->sent[i] = (uint64_t)(node->queue.rx_chunks + i) * CHUNK_BYTES;
	node->arrived_count = 0;
	node->kept_count = 0;
	link->tx_free_count = link->tx_queued = 0;
	link->net_tx = (struct sink){ 0 };
	link->fill_count = 0;
	link->dirty_count = 0;
	link->reserve.asking_count = 0;
	link->reserve.free = link->reserve.count;
	link->early_free_count = node->queue.rx_chunks;
	for (uint32_t i = 0; i < link->early_free_count; i++)
		link->early_free[i] = i;
	link->kept_free_count = node->queue.rx_chunks + link->pool_count;
	for (uint32_t i = 0; i < link->kept_free_count; i++)
		link->kept_free[i] = &link->kept[i];
	share_init(&link->pool_share, link->pool_count, link->peers_max);
	for (uint32_t i = 0; i < link->peers_max; i++) {
		link->peers[i].session->copied = 0;
		link->kept_lists[i].next = link->kept_lists[i].prev = &link->kept_lists[i];
	}
	for (uint32_t i = 0; i < link->pool_count; i++)
		link->pool_free[i] = (int32_t)i;
	for (int j = 0; j < world->setting.nodes; j++)
		world->wire[node->index][j].count = 0;
}

/* Restores the account of the sender's broadcasts at both ends. Returns the credits of the last one
 * received here. */
static uint32_t put_casts(struct world *world, int from, int to, const struct direction *flow)
{
	struct link_group *group = world->node[from].group;
	struct link_heard *heard = world_heard(world, to, from);
	uint32_t credits = 0;

	if (!group)
		return 0;
	for (uint32_t i = 0; i < flow->frames && !world_loses(world); i++)
		credits += flow->frame[i] & FLIGHT_CAST ? (uint32_t)flow->credits[i] : 0;
	for (uint32_t i = 0; i < flow->numbers; i++)
		credits += flow->gives[i];
	group->credits = SENT_BASE;
	heard->credits = SENT_BASE - credits;
	world_member(world, from, to)->held = flow->cast_held;
	return heard->credits;
}

static void put_wire(struct world *world, int from, int to, const struct direction *flow)
{
	struct wire *wire = &world->wire[from][to];
	struct node *sender = &world->node[from];
	uint32_t cast_credits = put_casts(world, from, to, flow), seq = SEQ_BASE;

	wire->count = flow->frames;
	for (uint32_t i = 0; i < wire->count; i++) {
		struct flight *flight = &wire->flight[i];

		flight->update = flow->frame[i] & FLIGHT_UPDATE;
		flight->again = flow->frame[i] & FLIGHT_AGAIN;
		flight->cast = flow->frame[i] & FLIGHT_CAST && !flight->again;
		flight->cost = flow->frame[i] & COST_MASK;
		flight->ask = flow->ask[i];
		flight->seq = ++seq;
		if (flight->cast && !world_loses(world)) {
			cast_credits += (uint32_t)flow->credits[i];
			flight->credits = cast_credits;
			flight->segments = 0; /* they have left */
			continue;
		}
		flight->credits = SENT_BASE + (uint32_t)flow->credits[i];
		if (world_loses(world)) {
			flight->seq = SEQ_BASE + (uint32_t)flow->seq[i];
			flight->segments = 0; /* they have left */
			continue;
		}
		flight->segments = flight->update ? 1 : world->segments_of[flight->cost];
		sender->sent_count -= flight->segments;
		memcpy(flight->chunk, sender->sent + sender->sent_count,
		       flight->segments * sizeof(flight->chunk[0]));
	}
}

static void put_flow(struct world *world, int from, int to, const struct direction *flow)
{
	struct link_peer *out = world_peer(world, from, to);
	struct link_peer *in = world_peer(world, to, from);
	struct node *receiver = &world->node[to];
	struct reserve *reserve = &receiver->link.reserve;

	out->flow.tx.credits = SENT_BASE;
	out->flow.tx.sent = SENT_BASE + (uint32_t)flow->sent;
	out->flow.seq_out = SEQ_BASE + flow->frames;
	in->flow.most = in->flow.rx.size;
	in->flow.seq_in = in->repair.highest = SEQ_BASE;
	out->repair.acked = SEQ_BASE;
	in->flow.rx.received = SENT_BASE + (uint32_t)flow->received;
	in->flow.rx.returned = SENT_BASE + (uint32_t)flow->returned;
	in->flow.rx.announced = SENT_BASE + (uint32_t)flow->announced;
	world_withhold(world, from, to, flow->withheld);
	in->session->missing.checked = in->flow.rx.received;
	in->session->missing.lost = 0;
	in->flow.asked = htobe16(flow->asked);
	in->session->granted = flow->granted;
	reserve->free -= flow->granted;
	in->asking = flow->asking;
	if (flow->asking) {
		reserve->asking[flow->asking - 1] = in;
		reserve->asking_count++;
	}
	world_ask(world, from, to, flow->left);
	world->said[from][to] = flow->said;
	in->flow.freeing = flow->freeing;
	in->withholding = flow->withholding;
	in->kept = 0;
	in->dirty = flow->dirty;
	if (flow->dirty) {
		receiver->link.dirty[flow->dirty - 1] = in;
		receiver->link.dirty_count++;
	}
	put_wire(world, from, to, flow);
	state_take_buffers(receiver, flow->freeing,
			   receiver->link.fill + receiver->link.fill_count);
	receiver->link.fill_count += flow->freeing;
	for (uint32_t i = 0; i < flow->held; i++)
		put_kept(receiver, in, 1, true);
	for (uint32_t cost = 1; cost <= WINDOW_MAX; cost++)
		for (uint32_t i = 0; i < flow->fixed[cost - 1]; i++)
			put_kept(receiver, in, cost, false);
	for (uint32_t i = 0; i < flow->copied; i++)
		put_kept(receiver, in, 0, true);
}

void state_put(struct world *world, const struct state *state)
{
	uint8_t ends[FLOWS_MAX][2];
	uint32_t n = state_flows(world, ends);

	for (int i = 0; i < world->setting.nodes; i++)
		put_rest(world, &world->node[i]);
	for (uint32_t i = 0; i < n; i++)
		put_flow(world, ends[i][0], ends[i][1], &state->flow[i]);
	for (uint32_t i = 0; i < n && world_loses(world); i++)
		loss_put(world, ends[i][0], ends[i][1], &state->flow[i]);
}
