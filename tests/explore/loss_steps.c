// SPDX-License-Identifier: BSD-2-Clause
/* The steps of a lossy network and of the repair at both ends. Each step makes the calls that
 * control messages and the clock make. */
#include <stdio.h>
#include <string.h>

#include "loss.h"
#include "state.h"
#include "link/session/session.h"

enum { ASKED_BEFORE = 1 }; /* so that owed credits are announced too */

static struct step *add(struct step *at, enum act act, int node, int other, uint32_t arg)
{
	*at = (struct step){ (uint8_t)act, (uint8_t)node, (uint8_t)other, (uint8_t)arg };
	return at + 1;
}

/* Returns a frame's number, counted from the last that was taken in order. */
static uint32_t at_of(struct world *world, int from, int to, uint32_t index)
{
	return world->wire[from][to].flight[index].seq - world_peer(world, to, from)->flow.seq_in;
}

/* Reports whether a frame has arrived, or has another copy under way. */
static bool spare(struct world *world, int from, int to, uint32_t index)
{
	const uint32_t at = at_of(world, from, to, index);

	return (int32_t)at <= 0 || loss_waits(world, from, to, at) ||
	       loss_flights(world, from, to, at) > 1;
}

static struct step *list_frame(struct world *world, struct step *at, int from, int to,
			       uint32_t index)
{
	const struct setting *setting = &world->setting;
	const struct flight *flight = &world->wire[from][to].flight[index];
	const uint32_t arg = ARRIVE_INDEX * index;
	const bool may_go = spare(world, from, to, index) ||
			    loss_all(world, loss_gone) < setting->gone;
	uint32_t charged = flight->cost;

	at = add(at, ACT_ARRIVE, to, from, arg | FATE_CONSUME);
	if (world->node[to].kept_count < setting->keeps) {
		if (setting->cost_max == 1)
			at = add(at, ACT_ARRIVE, to, from, arg | FATE_KEEP);
		at = add(at, ACT_ARRIVE, to, from, arg | FATE_HOLD);
	}
	for (int i = 0; i < setting->nodes; i++)
		for (int j = 0; j < setting->nodes; j++)
			charged += world_linked(world, i, j) ?
					   loss_charged(world_peer(world, j, i)) :
					   0;
	if (may_go)
		at = add(at, ACT_LOSE, to, from, index);
	if (may_go && charged <= setting->ring)
		at = add(at, ACT_LOSE_IN_RING, to, from, index);
	if (loss_all(world, loss_copies) < setting->copies)
		at = add(at, ACT_COPY, to, from, index);
	return at;
}

struct step *loss_list(struct world *world, struct step *at, int from, int to)
{
	const struct wire *wire = &world->wire[from][to];

	for (uint32_t i = 0; i < wire->count; i++)
		if (!i || wire->flight[i].seq != wire->flight[i - 1].seq ||
		    wire->flight[i].cast != wire->flight[i - 1].cast ||
		    wire->flight[i].credits != wire->flight[i - 1].credits ||
		    wire->flight[i].ask != wire->flight[i - 1].ask)
			at = list_frame(world, at, from, to, i);
	at = add(at, ACT_SUSPECT, to, from, 0);
	at = add(at, ACT_ASK, to, from, 0);
	if (world->setting.announces)
		at = add(at, ACT_ASK, to, from, ASKED_BEFORE);
	at = add(at, ACT_AGAIN, from, to, 0);
	return add(at, ACT_SETTLE, to, from, 0);
}

/* Counts the frames that can be handed on: this one, and the waiting ones behind it. */
static uint32_t due(struct world *world, int from, int to, uint32_t at)
{
	struct open *open = &world->open[from][to];
	uint32_t n = 1;

	if ((int32_t)at <= 0 || at > open->count)
		return 0;
	if (at > 1) {
		open->number[at - 1] |= NUMBER_WAITS;
		return 0;
	}
	while (n < open->count && open->number[n] & NUMBER_WAITS)
		n++;
	return n;
}

/* Takes the next frame, which must have this number. */
static void hand_on(struct world *world, struct node *here, struct link_rxframe *frame,
		    uint32_t seq, uint32_t cost, enum fate fate)
{
	struct link *link = &here->link;

	if (!link_rx_next(link, frame) || frame->cost != cost ||
	    (be32toh(frame->hdr.seq) != seq && !link_group_is(frame))) {
		violation(world, FOUND_ORDER);
		return;
	}
	if (fate == FATE_CONSUME || here->kept_count >= world->setting.keeps) {
		link_release(link, frame);
		return;
	}
	here->kept[here->kept_count] = link_hold(link, frame, fate == FATE_KEEP);
	memset((uint8_t *)here->kept[here->kept_count]->body, (int)here->kept_count, body_of(1));
	here->kept_count++;
}

/* Breaks the chosen rule on the arrival of a frame of this many buffers. */
static void break_arrival(struct world *world, struct link_peer *in, uint32_t at, uint32_t cost,
			  bool waited)
{
	switch (world->setting.fault) {
	case FAULT_WAITING_FREED:
		if ((int32_t)at > 1 && !waited)
			window_rx_return(&in->flow.rx, cost);
		return;
	case FAULT_COPY_KEPT:
		if ((int32_t)at <= 0 || waited)
			in->flow.most -= cost;
		return;
	default:
		return;
	}
}

bool loss_arrive(struct world *world, const struct step *step)
{
	const int from = step->other, to = step->node;
	const uint32_t index = step->arg / ARRIVE_INDEX;
	const uint32_t at = at_of(world, from, to, index);
	const bool waited = loss_waits(world, from, to, at);
	const bool again = world->wire[from][to].flight[index].again;
	struct link_peer *in = world_peer(world, to, from);
	struct open *open = &world->open[from][to];
	const uint32_t before = in->flow.seq_in;
	struct link_rxframe frame;
	uint32_t cost, n;

	if (world->setting.fault == FAULT_OVERTAKES && (int32_t)at > 1)
		in->flow.seq_in += at - 1;
	cost = world_deliver(world, from, to, index);
	if (!cost)
		return true;
	n = due(world, from, to, at);
	if (again && !n && !waited && (int32_t)at > 0)
		open->number[at - 1] |= FLIGHT_AGAIN;
	link_rx(in->link);
	for (uint32_t i = 0; i < n && !world->violated; i++)
		if (!(open->number[i] & FLIGHT_UPDATE))
			hand_on(world, &world->node[to], &frame, before + 1 + i,
				open->number[i] & COST_MASK, (enum fate)(step->arg % ARRIVE_INDEX));
	if (!world->violated && (link_rx_next(in->link, &frame) || in->flow.seq_in != before + n))
		violation(world, FOUND_ORDER);
	open->count -= n;
	memmove(open->number, open->number + n, open->count);
	memmove(open->gives, open->gives + n, open->count);
	memmove(open->more, open->more + n, open->count);
	break_arrival(world, in, at, cost, waited);
	return true;
}

/* Loses a frame before or after XDP has charged it. */
static bool lose(struct world *world, const struct step *step, bool in_ring)
{
	const struct flight flight = world_take_off(world, step->other, step->node, step->arg);

	return !in_ring || world_admits(world, step->other, step->node, &flight);
}

static bool copy(struct world *world, const struct step *step)
{
	struct wire *wire = &world->wire[step->other][step->node];

	if (wire->count == FRAMES_MAX)
		return false;
	wire->flight[wire->count] = wire->flight[step->arg];
	wire->flight[wire->count++].segments = 0;
	return true;
}

/* Reports whether all that the sender may send is lost, and the receiver knows of nothing. */
static bool window_lost(struct world *world, int from, int to)
{
	const struct open *open = &world->open[from][to];

	return loss_gone(world, from, to) == open->count &&
	       !reorder_missing(world_peer(world, to, from)) &&
	       !window_tx_may_send(&world_peer(world, from, to)->flow.tx, world->setting.cost_min);
}

/* Delivers the answer to "how far have you sent?". */
static bool suspect(struct world *world, const struct step *step)
{
	struct link_peer *in = world_peer(world, step->node, step->other);
	struct link_peer *out = world_peer(world, step->other, step->node);

	if (world->setting.fault == FAULT_NO_WINDOW && window_lost(world, step->other, step->node))
		return false;
	if (world->setting.fault == FAULT_NO_TAIL || !(link_awaits(in) || link_awaits(out)))
		return false;
	if (!reorder_sent(in, out->flow.seq_out))
		violation(world, FOUND_UNKNOWN);
	return true;
}

static bool ask(struct world *world, const struct step *step)
{
	struct link_peer *in = world_peer(world, step->node, step->other);
	struct link_peer *out = world_peer(world, step->other, step->node);
	struct node *there = &world->node[step->other];

	if (!reorder_missing(in))
		return false;
	/* The clock stands still between steps: a missing frame is late at any time. */
	in->session->missing.first = in->flow.seq_in + 1;
	in->session->missing.since_ns = 1;
	if (step->arg == ASKED_BEFORE)
		in->repair.asked[in->session->missing.first & in->link->early_mask].first_us = 1;
	missing_ask(in);
	link_kick(in->link);
	if (!there->ctrl_count)
		return false;
	if (!link_log_on_missing(out, &there->ctrl[--there->ctrl_count].ctrl))
		violation(world, FOUND_UNKNOWN);
	return true;
}

/* Returns the buffers of the numbers that a node is asked for; *extra: how many of these numbers
 * are under way or received. */
static uint32_t wanted(struct world *world, int from, int to, uint32_t *extra)
{
	const struct open *open = &world->open[from][to];
	const struct link_peer *out = world_peer(world, from, to);
	const uint32_t seq_in = world_peer(world, to, from)->flow.seq_in;
	uint32_t buffers = 0;

	*extra = 0;
	for (uint32_t at = 1; at <= open->count; at++) {
		if (!link_wants(out, seq_in + at))
			continue;
		buffers += open->number[at - 1] & COST_MASK;
		*extra += loss_waits(world, from, to, at) || loss_flights(world, from, to, at);
	}
	return buffers;
}

/* Repeats a frame like message/, if the log has no copy. */
static bool repair(struct link_peer *out, const struct link_send_args *args, uint32_t seq,
		   uint32_t body, bool again)
{
	struct link_txframe frame;

	if (!link_tx_get(out, body, &frame))
		return false;
	memset(frame.body, (uint8_t)seq, frame.body_bytes);
	if (again)
		link_send_repair(&frame, args, seq);
	else
		link_send(&frame, args);
	return true;
}

/* Sends the requested frame under the next number. */
static bool send_anew(struct world *world, int from, int to)
{
	const struct open *open = &world->open[from][to];
	struct link_peer *out = world_peer(world, from, to);
	const uint32_t seq_in = world_peer(world, to, from)->flow.seq_in;

	for (uint32_t at = 1; at <= open->count; at++) {
		const uint32_t cost = open->number[at - 1] & COST_MASK;
		const struct link_send_args args = loss_args(cost);

		if (!link_wants(out, seq_in + at) || !link_may_send(out, body_of(cost)))
			continue;
		link_again_done(out, seq_in + at);
		repair(out, &args, out->flow.seq_out + 1, body_of(cost), false);
		link_kick(out->link);
		return true;
	}
	return false;
}

static void break_repair(struct world *world, int from, int to, uint32_t buffers, uint32_t first)
{
	struct link_peer *out = world_peer(world, from, to), *in = world_peer(world, to, from);
	const struct link_send_args args = loss_args(1);
	struct wire *wire = &world->wire[from][to];

	switch (world->setting.fault) {
	case FAULT_CHARGED_AGAIN:
		out->flow.tx.sent += buffers;
		return;
	case FAULT_TAKEN_BACK:
		out->flow.tx.sent -= buffers;
		return;
	case FAULT_NEVER_SENT:
		repair(out, &args, out->flow.seq_out + 1, body_of(1), true);
		link_kick(out->link);
		return;
	case FAULT_OLD_CREDITS:
		for (uint32_t i = first; i < wire->count; i++)
			wire->flight[i].credits = in->flow.tx.credits;
		return;
	default:
		return;
	}
}

static bool again(struct world *world, const struct step *step)
{
	const int from = step->node, to = step->other;
	struct link_peer *out = world_peer(world, from, to);
	const uint32_t first = world->wire[from][to].count;
	const uint32_t others = loss_to_others(world, from, to);
	uint32_t extra, buffers = wanted(world, from, to, &extra), seq, body;
	struct link_send_args args;

	if (!link_wants_any(out) || loss_all(world, loss_copies) + extra > world->setting.copies)
		return false;
	if (world->setting.fault == FAULT_NEW_NUMBER)
		return send_anew(world, from, to);
	while (link_again(out, &args, &seq, &body) && repair(out, &args, seq, body, true))
		;
	link_kick(out->link);
	if (loss_to_others(world, from, to) != others)
		violation(world, FOUND_REPAIR);
	break_repair(world, from, to, buffers, first);
	return true;
}

/* Does the clock's work after two questions (reorder.c): the RX ring is empty here between
 * steps. */
static bool settle(struct world *world, const struct step *step)
{
	struct link_peer *in = world_peer(world, step->node, step->other);
	struct link_missing *missing = &in->session->missing;

	if (!reorder_missing(in) || !loss_charged(in) || !loss_settles(world, in))
		return false;
	missing->settle = LINK_SETTLE_DRAINED;
	missing->filled = in->entry->filled;
	missing->drain = link_drain_begin(in->link);
	in->link->rx_drains++;
	missing_drained(in);
	return true;
}

bool loss_do(struct world *world, const struct step *step)
{
	switch ((enum act)step->act) {
	case ACT_LOSE:
	case ACT_LOSE_IN_RING:
		return lose(world, step, step->act == ACT_LOSE_IN_RING);
	case ACT_COPY:
		return copy(world, step);
	case ACT_SUSPECT:
		return suspect(world, step);
	case ACT_ASK:
		return ask(world, step);
	case ACT_AGAIN:
		return again(world, step);
	default:
		return settle(world, step);
	}
}

void loss_print(const struct step *step)
{
	static const char *const what[] = {
		"does not get",
		"loses in its ring",
		"will get twice",
		"hears how far the other has sent:",
		"asks for what it misses of",
		"sends again what it is asked for by",
		"gives charges back to",
	};

	printf("node %d %s ", step->node, what[step->act - ACT_LOSE]);
	if (step->act <= ACT_COPY)
		printf("frame %d of those from ", 1 + step->arg);
	printf("node %d\n", step->other);
}
