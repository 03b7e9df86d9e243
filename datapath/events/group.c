// SPDX-License-Identifier: BSD-2-Clause
/* Broadcasts of one frame (P2 section 5.1). A node's JOIN names the cookie of its broadcasts. When
 * all have joined, the node sends probes with that cookie. After every node has reported a probe,
 * one frame carries each broadcast. Until then, or if a node refuses, each node gets a copy. */
#include "events/private.h"

#include <endian.h>
#include <errno.h>

enum {
	PROBE_AGAIN_NS = 5 * 1000 * 1000,
	PROBES_SOON = 100, /* probes at intervals of PROBE_AGAIN_NS */
	PROBE_LATER_NS = 95 * 1000 * 1000,
	PROBES_MAX = 200, /* reached after ten seconds */
	NODES_LEAST = 3, /* in a group of two, a frame to all is a frame to one */
};

void event_group_off(struct careful_events *ev, int error)
{
	if (ev->group)
		link_group_close(ev->group);
	ev->group = NULL;
	ev->group_error = error;
}

/* Reports the end of our broadcasts to a node that has left and so gets no LEAVE from us. Without
 * this message, the node's filter would stay open until the session ends, which is harmless. */
void event_group_report_off(struct careful_events *ev, struct event_node *node)
{
	const struct careful_am am = { .handler = htobe16(CAREFUL_EVENT_ONE_BY_ONE) };

	if (ev->cookie)
		event_post(ev, node, am);
}

static void open_group(struct careful_events *ev)
{
	struct link_peer *peers[CAREFUL_EVENT_NODES_MAX];
	uint32_t count = 0;
	int rc;

	for (uint32_t i = 0; i < ev->nodes; i++) {
		if (i == ev->rank)
			continue;
		peers[count] = ev->node[i].peer;
		if (!link_is_open(peers[count]) || !link_knows_size(peers[count]))
			return; /* event_group_round() tries again */
		count++;
	}
	rc = link_group_open(&ev->c->link, ev->cookie, peers, count, &ev->group);
	if (rc && rc != -EAGAIN)
		event_group_off(ev, rc);
}

static bool send_heard(struct careful_events *ev, struct event_node *node)
{
	const struct careful_am am = {
		.handler = htobe16(CAREFUL_EVENT_HEARD),
		.args = { htobe32((uint32_t)node->refusal) },
	};

	return event_post(ev, node, am);
}

/* Chooses the cookie, before any JOIN. */
void event_group_init(struct careful_events *ev, bool replicate)
{
	if (replicate || ev->nodes < NODES_LEAST || !link_group_can(&ev->c->link))
		ev->group_error = -EOPNOTSUPP;
	else
		ev->cookie = link_random(&ev->c->link);
}

void event_group_join(const struct careful_events *ev, struct careful_am *join)
{
	join->args[3] = htobe32((uint32_t)(ev->cookie >> 32));
	join->token = htobe32((uint32_t)ev->cookie);
}

/* Admits the broadcasts of a node that has joined. A group by requests ignores JOIN's cookie. */
void event_group_joined(struct careful_events *ev, uint32_t rank, const struct careful_am *join)
{
	uint64_t cookie = (uint64_t)be32toh(join->args[3]) << 32 | be32toh(join->token);
	struct event_node *node = &ev->node[rank];

	if (!cookie || !node->peer)
		return;
	/* In a broadcast, nodes are numbered by rank, and the sender has no number. */
	node->refusal =
		-link_group_admit(node->peer, cookie, ev->rank < rank ? ev->rank : ev->rank - 1);
	node->owes_heard = node->refusal != 0;
}

/* Handles HEARD: a node gets our broadcasts, or refuses them. */
void event_group_heard(struct careful_events *ev, uint32_t rank, const struct careful_am *am)
{
	struct event_node *node = &ev->node[rank];
	int error = (int)(be32toh(am->args[0]) & 0xfff);

	if (error && !ev->group_error) /* even before the group is open */
		event_group_off(ev, error == EAGAIN ? -EPROTO : -error);
	if (!ev->group || node->gets_broadcasts)
		return;
	node->gets_broadcasts = true;
	ev->hearers++;
}

static void probe(struct careful_events *ev)
{
	uint64_t now_ns = ev->c->link.now_ns;

	if (now_ns < ev->probe_ns)
		return;
	if (ev->group->probes == PROBES_MAX) {
		event_group_off(ev, -EHOSTUNREACH);
		return;
	}
	link_group_probe(ev->group);
	ev->probe_ns = now_ns + (ev->group->probes < PROBES_SOON ? PROBE_AGAIN_NS : PROBE_LATER_NS);
}

void event_group_round(struct careful_events *ev)
{
	if (ev->nodes < NODES_LEAST || ev->error)
		return;
	for (uint32_t i = 0; i < ev->nodes; i++) {
		struct event_node *node = &ev->node[i];

		if (i == ev->rank || !event_knows_us(node) || node->left)
			continue;
		if (link_group_heard(node->peer))
			node->owes_heard = true;
		if (node->owes_heard && send_heard(ev, node))
			node->owes_heard = false;
	}
	if (!ev->group && !ev->group_error && ev->joined + 1 == ev->nodes)
		open_group(ev);
	else if (ev->group && ev->hearers + 1 < ev->nodes)
		probe(ev);
}

/* Reports whether one frame can carry the next fragment: all nodes must expect the same offset. */
bool event_group_is_ready(const struct careful_events *ev)
{
	const struct event_direction *first = &ev->node[!ev->rank].out;

	if (!ev->group || ev->hearers + 1 < ev->nodes)
		return false;
	for (uint32_t i = 0; i < ev->nodes; i++) {
		const struct event_direction *way = &ev->node[i].out;

		if (i != ev->rank &&
		    (way->open ? way->offset : 0) != (first->open ? first->offset : 0))
			return false;
	}
	return true;
}

/* Reports whether all nodes' credits have arrived. Reserves each node's credits as they arrive, so
 * that updates do not use them. Reserves none at a node with waiting messages, which go first. */
bool event_group_may_send(struct careful_events *ev, uint32_t bytes)
{
	struct message_state *state = &ev->c->messages;
	const uint32_t body = MESSAGE_AM_BYTES + bytes;
	uint32_t can = 0;

	for (uint32_t m = 0; m < ev->group->count; m++) {
		struct link_peer *peer = ev->group->members[m].peer;

		can += message_small_may(state, peer, bytes) || ev->group->members[m].held;
		if (state->peers[peer->slot].messages)
			link_group_unhold(ev->group, m);
		else
			link_group_hold(ev->group, m, body);
	}
	if (can < ev->group->count)
		return false;
	can = 0;
	for (uint32_t m = 0; m < ev->group->count; m++)
		can += link_group_hold(ev->group, m, body);
	return can == ev->group->count;
}

void event_group_unhold(struct careful_events *ev)
{
	for (uint32_t m = 0; ev->group && m < ev->group->count; m++)
		link_group_unhold(ev->group, m);
}

int careful_events_broadcast(const struct careful_events *ev)
{
	if (!ev->group)
		return ev->group_error ?: -EAGAIN;
	return ev->hearers + 1 < ev->nodes ? -EAGAIN : 0;
}
