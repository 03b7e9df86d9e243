// SPDX-License-Identifier: BSD-2-Clause
/* Joining and leaving a group, and the spread of failures: a failing node notifies all others, so
 * that no node waits for ever. A message without room is sent in a later round. */
#include "events/private.h"

#include <endian.h>
#include <errno.h>

enum { JOIN_AGAIN_NS = 5 * 1000 * 1000 };

void event_watch(struct event_node *node, bool on)
{
	if (node->awaited == on || !node->peer)
		return;
	node->awaited = on;
	if (on)
		link_await(node->peer);
	else
		link_awaited(node->peer);
}

static bool send_join(struct careful_events *ev, struct event_node *node)
{
	struct careful_am am = {
		.handler = htobe16(CAREFUL_EVENT_JOIN),
		.args = { htobe32(ev->rank), htobe32(ev->nodes), htobe32(node->membership) },
		.bytes = htobe32(ev->membership),
	};

	event_group_join(ev, &am);
	return event_post(ev, node, am);
}

static bool send_fail(struct careful_events *ev, struct event_node *node)
{
	const struct careful_am am = {
		.handler = htobe16(CAREFUL_EVENT_FAIL),
		.args = { htobe32(ev->error_rank), htobe32((uint32_t)-ev->error),
			  htobe32(node->owes_leave) },
	};

	return event_post(ev, node, am);
}

/* Fails the group at this node. Frees the buffers of fragments that the application has not
 * received, and notifies every node that still needs our LEAVE or FAIL. */
void event_fail(struct careful_events *ev, uint32_t rank, int error)
{
	if (ev->error)
		return;
	ev->error = error;
	ev->error_rank = rank;
	event_group_off(ev, error);
	ev->c->callbacks++; /* ends the application's wait */
	for (uint32_t i = 0; i < ev->nodes; i++) {
		struct event_node *node = &ev->node[i];

		if (i == ev->rank)
			continue;
		event_drop(ev, node);
		event_drop_announced(ev, node);
		node->owes_fail |= event_needs_end(node);
	}
}

static void on_join(struct careful_events *ev, uint32_t rank, const struct careful_am *am)
{
	uint32_t membership = be32toh(am->bytes), ours = be32toh(am->args[2]);
	struct event_node *node = &ev->node[rank];
	bool matches = be32toh(am->args[0]) == rank && be32toh(am->args[1]) == ev->nodes;

	/* A node that left can join again only after we have left, too. */
	if (node->left)
		return;
	if (matches && node->joined && node->membership != membership) { /* its LEAVE was lost */
		event_fail(ev, rank, -ECONNRESET);
		return;
	}
	/* A node that lacks our JOIN gets both JOIN and LEAVE while we leave. */
	node->owes_leave |= ev->leaving && ours != ev->membership;
	if (matches && ours && ours != ev->membership) { /* it has an earlier JOIN of ours */
		node->join_ns = 0;
		return;
	}
	if (!node->joined) {
		node->joined = true;
		node->membership = membership;
		ev->joined++;
		ev->c->callbacks++;
	}
	node->named_us |= ours != 0;
	node->join_ns = ours && node->join_sent ? UINT64_MAX : 0; /* 0: it waits for our JOIN */
	if (!matches)
		event_fail(ev, rank, -EPROTO);
	else if (ev->error)
		node->owes_fail = true;
	else
		event_group_joined(ev, rank, am);
}

/* Handles LEAVE, a node's last message. Nothing more is sent to this node. */
static void on_leave(struct careful_events *ev, uint32_t rank)
{
	struct event_node *node = &ev->node[rank];

	node->left = true;
	node->owes_fail &= event_needs_end(node);
	node->owes_leave = false;
	event_watch(node, false);
	event_group_off(ev, -EPIPE);
	event_group_report_off(ev, node);
	ev->c->callbacks++;
	if (node->in.open)
		event_fail(ev, rank, -EPROTO);
}

static void on_fail(struct careful_events *ev, uint32_t rank, const struct careful_am *am)
{
	uint32_t failed = be32toh(am->args[0]);
	int error = (int)(be32toh(am->args[1]) & 0xfff);

	/* The application would take EAGAIN as a reason to wait. */
	if (!error || error == EAGAIN)
		error = EPROTO;
	event_fail(ev, failed < ev->nodes ? failed : rank, -error);
	if (am->args[2])
		on_leave(ev, rank);
}

/* Handles all messages of a node except fragments. Ignores messages from before the node's JOIN,
 * which belong to an earlier group. */
void event_on_message(struct careful_events *ev, uint32_t rank, const struct careful_am *am)
{
	bool takes_part = ev->node[rank].joined && !ev->node[rank].left;

	switch (be16toh(am->handler)) {
	case CAREFUL_EVENT_JOIN:
		on_join(ev, rank, am);
		break;
	case CAREFUL_EVENT_LEAVE:
		if (takes_part)
			on_leave(ev, rank);
		break;
	case CAREFUL_EVENT_FAIL:
		if (takes_part)
			on_fail(ev, rank, am);
		break;
	case CAREFUL_EVENT_HEARD:
		if (takes_part)
			event_group_heard(ev, rank, am);
		break;
	case CAREFUL_EVENT_ONE_BY_ONE:
		break; /* end_broadcasts() has handled it */
	default:
		link_count(&ev->c->link, CAREFUL_C_DROP_MESSAGE);
	}
}

void event_session_over(struct careful_events *ev, uint32_t rank, int error)
{
	struct event_node *node = &ev->node[rank];

	event_watch(node, false);
	event_drop_announced(ev, node);
	if (!node->left)
		event_fail(ev, rank, error);
	node->left = true; /* the slot may belong to another peer */
	node->join_sent = node->owes_fail = node->owes_leave = false;
}

/* Sends the messages that a node must get. JOIN is first: before it, a node ignores all others. */
void event_send_owed(struct careful_events *ev, struct event_node *node)
{
	const struct careful_am leave = { .handler = htobe16(CAREFUL_EVENT_LEAVE) };
	uint64_t now_ns = ev->c->link.now_ns;

	if (!node->left && now_ns >= node->join_ns) {
		if (!send_join(ev, node))
			return;
		node->join_sent = true;
		node->join_ns = node->joined ? UINT64_MAX : now_ns + JOIN_AGAIN_NS;
	}
	if (!node->join_sent)
		return;
	if (node->owes_fail ? send_fail(ev, node) : node->owes_leave && event_post(ev, node, leave))
		node->owes_fail = node->owes_leave = false;
}
