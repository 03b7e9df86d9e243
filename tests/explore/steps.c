// SPDX-License-Identifier: BSD-2-Clause
/* The steps, with the calls of message/ and engine/. */
#include "steps.h"

#include <stdio.h>
#include <string.h>

#include "loss.h"
#include "state.h"

enum { LARGE = 0x40 }; /* with a frame's cost: of a large message */

static struct step *add(struct step *at, enum act act, int node, int other, uint32_t arg)
{
	*at = (struct step){ (uint8_t)act, (uint8_t)node, (uint8_t)other, (uint8_t)arg };
	return at + 1;
}

/* Lists the possible fates of an arriving frame. */
static struct step *add_arrivals(const struct world *world, struct step *at, int from, int to)
{
	const struct flight *first = world->wire[from][to].flight;

	if (!world->wire[from][to].count)
		return at;
	if (world_hoards(world, to) && !first->update)
		return add(at, ACT_ARRIVE, to, from, FATE_KEEP);
	at = add(at, ACT_ARRIVE, to, from, FATE_CONSUME);
	if (first->update || world->setting.hoard ||
	    world->node[to].kept_count >= world->setting.keeps)
		return at;
	if (first->cost == 1)
		at = add(at, ACT_ARRIVE, to, from, FATE_KEEP);
	return add(at, ACT_ARRIVE, to, from, FATE_HOLD);
}

/* Lists the frames that a node can send: a message of one frame, or the first or next frame of a
 * large one. */
static struct step *add_sends(const struct world *world, struct step *at, int from, int to)
{
	const struct setting *setting = &world->setting;

	if (setting->hoard && world->said[from][to] == setting->hoard)
		return at;
	for (uint32_t c = setting->cost_min; !world->left[from][to] && c <= setting->cost_max; c++)
		at = add(at, ACT_SEND, from, to, c);
	if (setting->large)
		at = add(at, ACT_SEND, from, to, setting->cost_max | LARGE);
	return at;
}

uint32_t steps_list(struct world *world, struct step *steps)
{
	const struct setting *setting = &world->setting;
	struct step *at = steps;

	for (int i = 0; i < setting->nodes; i++) {
		for (int j = 0; j < setting->nodes; j++) {
			if (!world_linked(world, i, j))
				continue;
			at = world_loses(world) ? loss_list(world, at, j, i) :
						  add_arrivals(world, at, j, i);
			if (world_sends(world, i, j))
				at = add_sends(world, at, i, j);
			for (uint32_t n = 0; n <= setting->withholds; n++)
				if (n != world_peer(world, i, j)->flow.rx.withheld)
					at = add(at, ACT_WITHHOLD, i, j, n);
			if (!setting->rounds && setting->keeps)
				at = add(at, ACT_COPY_OUT, i, j, 0);
		}
		for (uint32_t c = setting->cost_min; i < setting->casters && c <= setting->cost_max;
		     c++)
			at = add(at, ACT_CAST, i, (i + 1) % setting->nodes, c);
		for (uint32_t k = 0; k < world->node[i].kept_count && !world_hoards(world, i); k++)
			at = add(at, ACT_RELEASE, i, i, k);
		if (setting->rounds) {
			at = add(at, ACT_ROUND, i, i, 0);
		} else {
			at = add(at, ACT_PUBLISH, i, i, 0);
			at = add(at, ACT_UPDATE, i, i, 0);
		}
	}
	return (uint32_t)(at - steps);
}

/* Sends a probe that ends at XDP if a send buffer is free: no credit, nothing on the wire. */
static void send_outside(struct link_peer *peer)
{
	const struct link_send_args args = {
		.type = CAREFUL_PING,
		.stage_limit = CAREFUL_STAGE_NET_RX,
		.frag_bytes = 1,
	};
	struct link_txframe frame;

	if (!link_tx_get(peer, 1, &frame))
		return;
	link_send_outside(&frame, &args, 1);
	link_kick(peer->link);
}

/* Returns how many frames of a large message follow this one. */
static uint8_t left_after(const struct world *world, int node, int other)
{
	uint8_t left = world->left[node][other];

	return left ? left - 1 : world->setting.large - 1;
}

/* Frames of cost 1 are pings, which are data to the window. */
static struct link_send_args ping_args(uint32_t cost)
{
	return (struct link_send_args){
		.type = cost == 1 ? CAREFUL_PING : CAREFUL_DATA,
		.stage_limit = cost == 1 ? CAREFUL_STAGE_HOST_RX : 0,
		.msg_bytes = body_of(cost),
		.frag_bytes = (uint16_t)body_of(cost),
		.source = cost > 1, /* so that the log copies nothing */
	};
}

static bool send_data(struct world *world, int node, int other, uint32_t arg)
{
	const uint32_t cost = arg & ~(uint32_t)LARGE;
	struct link_peer *peer = world_peer(world, node, other);
	const uint32_t body = body_of(cost);
	const struct link_send_args args = world_loses(world) ? loss_args(cost) : ping_args(cost);
	struct link_txframe frame;
	bool may = world->setting.spend_last ? window_tx_free(&peer->flow.tx) >= cost :
					       link_may_send(peer, body);

	if (!world_loses(world))
		send_outside(peer);
	if (!may || !link_tx_get(peer, body, &frame))
		return false;
	if (link_cost(peer, body) != cost)
		violation(world, "a frame does not cost what it fills");
	if (arg & LARGE)
		world_ask(world, node, other, left_after(world, node, other));
	if (world_loses(world))
		memset(frame.body, (uint8_t)(peer->flow.seq_out + 1), frame.body_bytes);
	link_send(&frame, &args);
	link_kick(peer->link);
	world->said[node][other] += world->setting.hoard ? 1 : 0;
	return true;
}

/* Describes a broadcast that fills `cost` buffers. */
static struct link_send_args cast_args(const struct world *world, const struct link_group *group,
				       uint32_t cost)
{
	const uint32_t numbers = link_group_bytes(group->count);

	if (world_loses(world))
		return loss_cast_args(cost, numbers);
	return (struct link_send_args){
		.type = CAREFUL_DATA,
		.msg_bytes = body_of(cost) - numbers,
		.frag_bytes = (uint16_t)(body_of(cost) - numbers),
	};
}

/* Sets aside one member's credits for a broadcast. */
static bool set_aside(struct world *world, struct link_group *group, uint32_t at, uint32_t cost)
{
	struct link_member *member = &group->members[at];

	if (!world->setting.spend_last)
		return link_group_hold(group, at, cast_args(world, group, cost).frag_bytes);
	if (member->held || window_tx_free(&member->peer->flow.tx) < cost)
		return member->held;
	member->held = cost;
	flow_hold(&member->peer->flow, cost);
	return true;
}

/* Sends like the event service (events/group.c): sets each member's credits aside as soon as
 * possible, and sends the frame with all of them. */
static bool cast(struct world *world, int node, uint32_t cost)
{
	struct link_group *group = world->node[node].group;
	const struct link_send_args args = cast_args(world, group, cost);
	struct link_txframe frame;
	uint32_t held = 0;

	for (uint32_t m = 0; m < group->count; m++)
		held += set_aside(world, group, m, cost);
	if (held < group->count || !link_group_get(group, args.frag_bytes, &frame))
		return false;
	link_group_send(group, &frame, &args);
	link_kick(&world->node[node].link);
	return true;
}

static bool copy_out_due(const struct link_peer *peer)
{
	return peer->kept >= peer->flow.rx.threshold || peer->withholding;
}

/* Copies out, and checks that the bytes of all kept frames are unchanged, also in copies. */
static void copy_out(struct world *world, struct node *node, struct link_peer *peer)
{
	link_copy_out(peer);
	for (uint32_t i = 0; i < node->kept_count; i++) {
		const struct link_held *kept = node->kept[i];

		if (kept->body[0] != i || kept->body[kept->body_bytes - 1] != i)
			violation(world, "a kept frame is not what it was before the copy-out");
	}
}

static bool arrive(struct world *world, int node, int other, enum fate fate)
{
	struct link *link = &world->node[node].link;
	struct node *here = &world->node[node];
	struct link_rxframe frame;
	bool update = world->wire[other][node].flight[0].update;
	uint32_t cost = world_deliver(world, other, node, 0);
	bool came;

	if (world->violated)
		return false;
	link_rx(link);
	came = link_rx_next(link, &frame);
	if (came == update || (came && (frame.cost != cost || frame.segments != cost ||
					frame.peer != world_peer(world, node, other)))) {
		violation(world, "a frame was not taken as it was sent");
		return false;
	}
	if (update)
		return true;
	if (fate == FATE_CONSUME) {
		link_release(link, &frame);
		return true;
	}
	here->kept[here->kept_count] = link_hold(link, &frame, fate == FATE_KEEP);
	memset((uint8_t *)here->kept[here->kept_count]->body, (int)here->kept_count, body_of(1));
	here->kept_count++;
	return true;
}

static void release(struct node *node, uint32_t index)
{
	link_unhold(&node->link, node->kept[index]);
	node->kept[index] = node->kept[--node->kept_count];
}

static void update(struct link *link)
{
	link_updates(link);
	link_kick(link);
}

/* Does a round of careful_poll() from the received frames on, without sending data. */
static void round_of(struct link *link)
{
	link_publish(link);
	update(link);
	link_publish(link);
}

static bool do_step(struct world *world, const struct step *step)
{
	struct node *node = &world->node[step->node];
	struct link_peer *peer = world_peer(world, step->node, step->other);

	switch ((enum act)step->act) {
	case ACT_SEND:
		return send_data(world, step->node, step->other, step->arg);
	case ACT_CAST:
		cast(world, step->node, step->arg);
		return true; /* this may set credits aside without a frame */
	case ACT_ARRIVE:
		if (world_loses(world) ?
			    !loss_arrive(world, step) :
			    !arrive(world, step->node, step->other, (enum fate)step->arg))
			return false;
		if (world->setting.rounds && copy_out_due(peer))
			copy_out(world, node, peer);
		break;
	case ACT_RELEASE:
		release(node, step->arg);
		break;
	case ACT_COPY_OUT:
		if (!copy_out_due(peer))
			return false;
		copy_out(world, node, peer);
		break;
	case ACT_PUBLISH:
		link_publish(&node->link);
		break;
	case ACT_UPDATE:
		if (world_loses(world) && !loss_told(node))
			return false;
		update(&node->link);
		break;
	case ACT_WITHHOLD:
		world_withhold(world, step->other, step->node, step->arg);
		link_dirty(peer);
		if (world->setting.rounds && copy_out_due(peer))
			copy_out(world, node, peer);
		break;
	case ACT_ROUND:
		break;
	default:
		if (!loss_do(world, step))
			return false;
		if (step->act <= ACT_COPY)
			return true;
		break;
	}
	if (world->setting.rounds)
		round_of(&node->link);
	return true;
}

bool steps_do(struct world *world, const struct step *step)
{
	struct node *node = &world->node[step->node];
	uint32_t taken[NODES_MAX];
	bool done;

	for (uint32_t slot = 0; slot < NODES_MAX; slot++)
		taken[slot] = node->entry[slot].seq_taken;
	world->refused = false;
	done = do_step(world, step);
	for (uint32_t slot = 0; world->setting.fault == FAULT_NO_FLOOR && slot < NODES_MAX; slot++)
		node->entry[slot].seq_taken = taken[slot];
	return done;
}

bool steps_leaves(struct world *world, const struct step *step)
{
	return step->act == ACT_CAST ? cast(world, step->node, step->arg) : steps_do(world, step);
}

void steps_print(const struct step *step)
{
	static const char *const fates[FATES] = { "consumed", "kept", "held for a file" };

	switch ((enum act)step->act) {
	case ACT_SEND:
		printf("node %d sends %d to node %d%s\n", step->node, step->arg & ~LARGE,
		       step->other, step->arg & LARGE ? ", of a large message" : "");
		break;
	case ACT_CAST:
		printf("node %d sends %d to all, or sets credits aside\n", step->node, step->arg);
		break;
	case ACT_ARRIVE:
		printf("node %d takes frame %d of those from node %d; data is %s\n", step->node,
		       1 + step->arg / ARRIVE_INDEX, step->other, fates[step->arg % ARRIVE_INDEX]);
		break;
	case ACT_RELEASE:
		printf("node %d releases a kept frame\n", step->node);
		break;
	case ACT_COPY_OUT:
		printf("node %d copies out what it keeps of node %d\n", step->node, step->other);
		break;
	case ACT_PUBLISH:
		printf("node %d publishes its fill batch\n", step->node);
		break;
	case ACT_UPDATE:
		printf("node %d sends the updates that are due\n", step->node);
		break;
	case ACT_WITHHOLD:
		printf("node %d withholds %d buffers from node %d\n", step->node, step->arg,
		       step->other);
		break;
	case ACT_ROUND:
		printf("node %d does a round\n", step->node);
		break;
	default:
		loss_print(step);
	}
}
