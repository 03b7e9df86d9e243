// SPDX-License-Identifier: BSD-2-Clause
/* The part of a state that losses add: lost, waiting and requested numbers, the sender's log, and
 * XDP's account. */
#include <endian.h>
#include <string.h>

#include "link/repair/repair.h"
#include "loss.h"
#include "state.h"

enum { LONG_AGO_US = 1000000 }; /* a missing frame is no longer late */

/* Reports whether one frame precedes another in the order of a state. */
static bool before(const struct direction *flow, uint32_t a, uint32_t b)
{
	if (flow->seq[a] != flow->seq[b])
		return flow->seq[a] < flow->seq[b];
	if (flow->frame[a] != flow->frame[b])
		return flow->frame[a] < flow->frame[b];
	if (flow->credits[a] != flow->credits[b])
		return flow->credits[a] < flow->credits[b];
	return flow->ask[a] < flow->ask[b];
}

static void swap(struct direction *flow, uint32_t a, uint32_t b)
{
	struct direction was = *flow;

	flow->frame[a] = was.frame[b], flow->frame[b] = was.frame[a];
	flow->credits[a] = was.credits[b], flow->credits[b] = was.credits[a];
	flow->ask[a] = was.ask[b], flow->ask[b] = was.ask[a];
	flow->seq[a] = was.seq[b], flow->seq[b] = was.seq[a];
}

/* Frames arrive in any order, so the state keeps them sorted. A copy that XDP always refuses equals
 * a lost one. A copy of a received frame only fills buffers. */
static void get_frames(struct world *world, int from, int to, struct direction *flow)
{
	const struct link_peer *in = world_peer(world, to, from);
	uint32_t n = 0;

	for (uint32_t i = 0; i < flow->frames; i++) {
		int32_t at = (int32_t)(world->wire[from][to].flight[i].seq - in->flow.seq_in);

		if (at <= -(int32_t)in->flow.ahead)
			continue;
		flow->seq[n] = (int8_t)at;
		flow->frame[n] = flow->frame[i];
		flow->credits[n] = flow->credits[i];
		flow->ask[n] = flow->ask[i];
		if (at <= 0 || loss_waits(world, from, to, (uint32_t)at))
			flow->credits[n] = 0, flow->ask[n] = 0;
		for (uint32_t k = n++; k && before(flow, k, k - 1); k--)
			swap(flow, k, k - 1);
	}
	for (uint32_t i = n; i < flow->frames; i++)
		flow->seq[i] = 0, flow->frame[i] = 0, flow->credits[i] = 0, flow->ask[i] = 0;
	flow->frames = (uint8_t)n;
}

/* Returns the buffers that a waiting frame asks for, or 0 if none waits under this number. */
static uint32_t waiting_ask(const struct link_peer *in, uint32_t seq)
{
	const uint32_t *early = &in->repair.early[seq & in->link->early_mask];

	return *early ? be16toh(in->link->early[*early - 1].hdr.extra) : 0;
}

static void get_numbers(struct world *world, int from, int to, struct direction *flow)
{
	const struct link_peer *out = world_peer(world, from, to);
	const struct link_peer *in = world_peer(world, to, from);
	const struct open *open = &world->open[from][to];

	flow->numbers = (uint8_t)open->count;
	for (uint32_t i = 0; i < open->count; i++) {
		const uint32_t seq = in->flow.seq_in + 1 + i;
		const bool waits = open->number[i] & NUMBER_WAITS;

		flow->number[i] = open->number[i];
		flow->gives[i] = open->gives[i];
		flow->more[i] = open->more[i];
		if (world->setting.casters)
			flow->logged[i] = (int8_t)(out->flow.tx.sent - loss_logged(out, seq)->sent);
		if (reorder_holds(in, seq) != waits)
			violation(world, FOUND_ORDER);
		else if (waits)
			flow->waits_ask[i] = (uint8_t)waiting_ask(in, seq);
		else if (link_wants(out, seq))
			flow->number[i] |= NUMBER_WANTED;
	}
}

/* Counts the numbers that the receiver has requested, from the due one on. */
static uint8_t asked(const struct link_peer *in)
{
	uint8_t n = 0;

	while (n <= in->link->early_mask &&
	       in->repair.asked[(in->flow.seq_in + 1 + n) & in->link->early_mask].last_us)
		n++;
	return n;
}

void loss_get(struct world *world, int from, int to, struct direction *flow, bool first)
{
	const struct link_peer *in = world_peer(world, to, from);
	const struct link *link = in->link;
	const struct window_rx *rx = &in->flow.rx;

	get_frames(world, from, to, flow);
	get_numbers(world, from, to, flow);
	flow->untaken = (uint8_t)(in->flow.seq_in - in->entry->seq_taken);
	if (reorder_missing(in))
		flow->highest = (uint8_t)(in->repair.highest - in->flow.seq_in);
	if (world->setting.fault == FAULT_ASKED_ONCE && reorder_missing(in))
		flow->named = asked(in);
	flow->untold = (uint8_t)(rx->returned + in->flow.most - in->entry->may_fill);
	flow->lost = (uint8_t)loss_charged(in);
	if (!first)
		return;
	flow->dropped = (uint8_t)link->fill_count;
	for (uint32_t i = 0; i < link->peers_max; i++)
		flow->dropped -= (uint8_t)link->peers[i].flow.freeing;
}

/* Restores a frame that waits for an earlier one. */
static void put_waiting(struct node *node, struct link_peer *in, uint32_t seq, uint8_t number,
			uint8_t ask)
{
	struct link *link = in->link;
	const uint32_t cost = number & COST_MASK,
		       index = link->early_free[--link->early_free_count];
	const uint32_t body = number & FLIGHT_UPDATE ? 0 : body_of(cost);
	struct link_rxframe *frame = &link->early[index];
	uint64_t addrs[WINDOW_MAX];

	state_take_buffers(node, cost, addrs);
	*frame = (struct link_rxframe){
		.peer = in,
		.epoch = in->epoch,
		.hdr = { .type = body ? CAREFUL_DATA : CAREFUL_UPDATE,
			 .seq = htobe32(seq),
			 .extra = htobe16(ask),
			 .frag_bytes = htobe16((uint16_t)body) },
		.body = node->umem + addrs[0] + LL_BYTES + LINK_HDR_BYTES,
		.body_bytes = body < body_of(1) ? body : body_of(1),
		.body_total = body,
		.cost = cost,
		.segments = (uint16_t)cost,
	};
	for (uint32_t i = 0; i < cost; i++)
		frame->desc[i] = (struct device_desc){ .addr = addrs[i], .bytes = BUFFER_BYTES };
	in->repair.early[seq & link->early_mask] = index + 1;
	in->repair.early_count++;
}

/* Restores the sender's log entry of a frame. */
static void put_logged(struct link_peer *out, uint32_t seq, uint8_t number, uint32_t sent)
{
	struct log_entry *entry = loss_logged(out, seq);
	const uint32_t cost = number & COST_MASK;
	const uint32_t body = number & FLIGHT_UPDATE ? 0 : body_of(cost);

	entry->sent = sent;
	entry->bytes_flags = body | (number & NUMBER_WANTED ? LOG_WANTED : 0);
	entry->args = body ? loss_args(cost) : (struct link_send_args){ .type = CAREFUL_UPDATE };
	if (body && !entry->args.source)
		memset(link_log_copy(out, seq), (uint8_t)seq, body);
	out->repair.wanted += number & NUMBER_WANTED ? 1 : 0;
}

static void put_rest(struct link_peer *out, struct link_peer *in)
{
	struct link *link = in->link;

	out->repair.wanted = 0;
	out->repair.wanted_from = SEQ_BASE;
	out->repair.may_repeat = UINT32_MAX; /* no time passes */
	for (uint32_t i = 0; i <= out->repair.log_mask; i++)
		out->repair.log[i].bytes_flags = 0;
	memset(in->repair.early, 0, (link->early_mask + 1) * sizeof(*in->repair.early));
	in->repair.early_count = 0;
}

/* All receive buffers of waiting frames are still in the fill ring: put_waiting() takes them. */
void loss_put(struct world *world, int from, int to, const struct direction *flow)
{
	struct link_peer *out = world_peer(world, from, to), *in = world_peer(world, to, from);
	struct node *receiver = &world->node[to];
	struct link *link = in->link;
	uint32_t sent = out->flow.tx.sent;

	put_rest(out, in);
	world->open[from][to].count = flow->numbers;
	out->flow.seq_out = SEQ_BASE + flow->numbers;
	for (uint32_t i = flow->numbers; i--;) {
		const uint32_t seq = SEQ_BASE + 1 + i;

		world->open[from][to].number[i] = flow->number[i] & (uint8_t)~NUMBER_WANTED;
		world->open[from][to].gives[i] = flow->gives[i];
		world->open[from][to].more[i] = flow->more[i];
		if (world->setting.casters)
			sent = out->flow.tx.sent - (uint32_t)flow->logged[i];
		if (flow->numbers - i <= out->repair.log_mask + 1)
			put_logged(out, seq, flow->number[i], sent);
		sent -= flow->number[i] & COST_MASK;
		if (flow->number[i] & NUMBER_WAITS)
			put_waiting(receiver, in, seq, flow->number[i], flow->waits_ask[i]);
	}
	loss_put_casts(world, from, to);
	in->repair.highest = SEQ_BASE + flow->highest;
	for (uint32_t i = 0; i <= link->early_mask; i++)
		in->repair.asked[(SEQ_BASE + 1 + i) & link->early_mask] = (struct link_asked){
			.noticed_us = link_us(link) - LONG_AGO_US,
			.last_us = i < flow->named ? link_us(link) : 0,
		};
	in->flow.most += flow->untold;
	in->session->missing = (struct link_missing){
		.most_before = in->flow.rx.size,
		.checked = in->flow.rx.received,
	};
	in->entry->seq_taken = in->entry->seq_last = SEQ_BASE - flow->untaken;
	in->entry->may_fill = in->flow.rx.returned + in->flow.most - flow->untold;
	in->entry->filled = in->flow.rx.received + flow->untold + flow->lost;
	in->entry->limit = in->entry->may_fill;
	state_take_buffers(receiver, flow->dropped, link->fill + link->fill_count);
	link->fill_count += flow->dropped;
}

bool loss_waits(const struct world *world, int from, int to, uint32_t at)
{
	const struct open *open = &world->open[from][to];

	return at && at <= open->count && open->number[at - 1] & NUMBER_WAITS;
}

uint32_t loss_grants(struct world *world, int from, int to)
{
	const struct link_peer *in = world_peer(world, to, from);
	const struct wire *wire = &world->wire[from][to];
	const struct open *open = &world->open[from][to];
	uint32_t ask = world_peer(world, from, to)->flow.ask, n = 0;

	ask = ask > be16toh(in->flow.asked) ? ask : be16toh(in->flow.asked);
	for (uint32_t i = 0; i < wire->count; i++)
		ask = ask > wire->flight[i].ask ? ask : wire->flight[i].ask;
	for (uint32_t i = 0; i < open->count; i++) {
		const uint32_t waits = waiting_ask(in, in->flow.seq_in + 1 + i);

		ask = ask > waits ? ask : waits;
		n += open->number[i] & FLIGHT_UPDATE ? 0 : world->setting.reserve;
	}
	return ask > in->session->granted ? n + ask - in->session->granted : n;
}

uint32_t loss_charged(const struct link_peer *in)
{
	return in->entry->filled - in->flow.rx.received - (in->flow.most - in->flow.rx.size);
}

bool loss_settles(const struct world *world, const struct link_peer *in)
{
	switch (world->setting.fault) {
	case FAULT_RING_CHARGED:
	case FAULT_COPY_KEPT:
		return false;
	case FAULT_RING_WINDOW: /* the sender keeps a credit for an update */
		return loss_charged(in) + WINDOW_UPDATE_COST < world->setting.window;
	default:
		return true;
	}
}

bool loss_told(const struct node *node)
{
	for (uint32_t i = 0; i < node->link.peers_max; i++) {
		const struct link_peer *peer = &node->link.peers[i];

		if (peer->entry->may_fill != peer->flow.rx.returned + peer->flow.most)
			return false;
	}
	return true;
}

uint32_t loss_flights(const struct world *world, int from, int to, uint32_t at)
{
	const uint32_t seq = world->node[to].link.peers[world->node[to].slot_of[from]].flow.seq_in;
	const struct wire *wire = &world->wire[from][to];
	uint32_t n = 0;

	for (uint32_t i = 0; i < wire->count; i++)
		n += wire->flight[i].seq == seq + at;
	return n;
}

uint32_t loss_gone(const struct world *world, int from, int to)
{
	const struct open *open = &world->open[from][to];
	uint32_t n = 0;

	for (uint32_t at = 1; at <= open->count; at++)
		n += !(open->number[at - 1] & NUMBER_WAITS) && !loss_flights(world, from, to, at);
	return n;
}

uint32_t loss_copies(const struct world *world, int from, int to)
{
	const struct open *open = &world->open[from][to];
	uint32_t n = world->wire[from][to].count;

	for (uint32_t at = 1; at <= open->count; at++)
		n -= !(open->number[at - 1] & NUMBER_WAITS) && loss_flights(world, from, to, at);
	return n;
}

uint32_t loss_all(const struct world *world,
		  uint32_t (*count)(const struct world *world, int from, int to))
{
	uint32_t n = 0;

	for (int i = 0; i < world->setting.nodes; i++)
		for (int j = 0; j < world->setting.nodes; j++)
			n += world_linked(world, i, j) ? count(world, i, j) : 0;
	return n;
}
