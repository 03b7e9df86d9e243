// SPDX-License-Identifier: BSD-2-Clause
/* The event service over requests, for programs of careful_attach(), which have no receive buffers
 * for fragments. A request's payload is what a frame would carry: a careful_am and the data. All
 * nodes use the same handler.
 *
 * A fragment is copied and answered on arrival. Above EVENT_ROOM kept fragments, the answer waits
 * until the application has received some. A sender waits at EVENT_WINDOW unanswered fragments to a
 * node. One more request, STAY, is answered when a node leaves, and fails when its program dies.
 *
 * All programs of a host have its address. So every message except JOIN carries the receiver's
 * membership number, which only members of the group know. */
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <careful/ipc.h>

#include "events/private.h"

static uint32_t rank_of(const struct event_node *node)
{
	return (uint32_t)(node - node->ev->node);
}

/* Called when a request has ended. Frees a closed group after its last request. */
static void request_ended(struct careful_events *ev)
{
	struct careful_events **at = &ev->c->events_forgotten;

	if (--ev->pending || !ev->over)
		return;
	while (*at != ev)
		at = &(*at)->forgotten;
	*at = ev->forgotten;
	event_destroy(ev);
}

/* Handles a request's status. -ENOSYS means that the node has not joined yet, or has left. */
static void handle_status(struct event_node *node, int status, bool may_be_absent)
{
	struct careful_events *ev = node->ev;

	if (!ev->over && status && !(status == -ENOSYS && may_be_absent))
		event_session_over(ev, rank_of(node), status == -ENOSYS ? -ECONNRESET : status);
	request_ended(ev);
}

static void on_joined(const struct careful_result *result, void *user)
{
	struct event_node *node = user;

	node->joining = false;
	handle_status(node, result->status == -EBUSY ? 0 : result->status, true);
}

static void on_stayed(const struct careful_result *result, void *user)
{
	struct event_node *node = user;

	node->staying = false;
	/* A node that leaves sends LEAVE first. */
	handle_status(node, result->status || node->left ? result->status : -ECONNRESET, false);
}

static void on_posted(const struct careful_result *result, void *user)
{
	struct event_node *node = user;

	handle_status(node, result->status, true);
}

static void on_sent(const struct careful_result *result, void *user)
{
	struct event_node *node = user;

	node->under_way--;
	handle_status(node, result->status, false);
}

static bool ask(struct event_node *node, const struct careful_am *am, const void *data,
		uint32_t bytes, careful_done_fn *done)
{
	struct careful_events *ev = node->ev;
	uint8_t body[CAREFUL_RING_PAYLOAD_BYTES];
	struct careful_am own = *am;
	int rc;

	if (be16toh(am->handler) != CAREFUL_EVENT_JOIN)
		own.args[3] = htobe32(node->membership);
	memcpy(body, &own, sizeof(own));
	if (bytes)
		memcpy(body + sizeof(*am), data, bytes);
	rc = careful_request(ev->c, node->index, ev->handler, NULL, body,
			     (uint32_t)sizeof(*am) + bytes, done, node);
	if (!rc)
		ev->pending++;
	else if (rc != -EAGAIN)
		event_session_over(ev, rank_of(node), rc);
	return !rc;
}

/* Reports whether a request can be sent at once: the instance may end before a later round. */
static bool may_send_now(struct careful *c, const struct event_node *node, uint32_t bytes)
{
	return !c->ops->may_ask || c->ops->may_ask(c, node->index, bytes);
}

static bool requests_post(struct careful_events *ev, struct event_node *node,
			  const struct careful_am *am)
{
	const bool join = be16toh(am->handler) == CAREFUL_EVENT_JOIN;

	if ((join && node->joining) || !may_send_now(ev->c, node, 0))
		return false;
	if (!ask(node, am, NULL, 0, join ? on_joined : on_posted))
		return false;
	node->joining |= join;
	return true;
}

static bool requests_send(struct careful_events *ev, uint32_t rank, const struct careful_am *am,
			  const void *data, uint32_t bytes)
{
	struct event_node *node = &ev->node[rank];

	if (!ask(node, am, data, bytes, on_sent))
		return false;
	node->under_way++;
	return true;
}

static bool requests_may_send(const struct event_node *node, uint32_t bytes)
{
	return node->under_way < EVENT_WINDOW && may_send_now(node->ev->c, node, bytes);
}

static bool requests_room(const struct careful_events *ev, uint32_t frames)
{
	return ev->c->ops->may_begin(ev->c, frames);
}

static int requests_bytes(struct event_node *node)
{
	int rc;

	if (!node->body_most) {
		rc = careful_payload_bytes(node->ev->c, node->index);
		if (rc < 0)
			return rc;
		node->body_most = rc < CAREFUL_RING_PAYLOAD_BYTES ? (uint32_t)rc :
								    CAREFUL_RING_PAYLOAD_BYTES;
	}
	return (int)(node->body_most - sizeof(struct careful_am));
}

static bool requests_withholds(const struct careful_events *ev)
{
	for (uint32_t i = 0; i < ev->nodes; i++)
		if (ev->node[i].owed_count)
			return true;
	return false;
}

static bool requests_owes(const struct careful_events *ev)
{
	return ev->c->ops->handed_over && !ev->c->ops->handed_over(ev->c);
}

static bool answer(struct careful_events *ev, const struct careful_reply_to *to)
{
	return careful_reply_late(ev->c, to, 0, NULL, NULL, 0) != -EAGAIN;
}

static void answer_fragments(struct event_node *node)
{
	struct careful_events *ev = node->ev;

	while (node->owed_count && ev->kept < EVENT_ROOM &&
	       answer(ev, &node->owed[node->owed_at])) {
		node->owed_at = (node->owed_at + 1) % EVENT_WINDOW;
		node->owed_count--;
	}
}

static void send_stay(struct event_node *node)
{
	struct careful_events *ev = node->ev;
	const struct careful_am am = {
		.kind = CAREFUL_AM_EVENT,
		.region = htobe32(ev->number),
		.handler = htobe16(CAREFUL_EVENT_STAY),
	};

	node->staying = ask(node, &am, NULL, 0, on_stayed);
}

static void requests_round(struct careful_events *ev)
{
	for (uint32_t i = 0; i < ev->nodes; i++) {
		struct event_node *node = &ev->node[i];

		if (i == ev->rank)
			continue;
		answer_fragments(node);
		if (node->left && node->stays)
			node->stays = !answer(ev, &node->stay);
		if (!node->left && !node->staying && !ev->error && event_knows_us(node))
			send_stay(node);
	}
}

/* Copies a fragment, because its place in the ring is used again. */
static void keep(struct event_node *node, const struct careful_message *message,
		 const struct careful_am *am)
{
	struct careful_events *ev = node->ev;
	struct event_fragment new;
	struct link_held *kept;

	if (!event_may_take(ev, rank_of(node), am, message->bytes - (uint32_t)sizeof(*am), &new)) {
		careful_reply(message, 0, NULL, NULL, 0);
		return;
	}
	if (!ev->free || node->owed_count == EVENT_WINDOW) {
		event_fail(ev, rank_of(node), -EPROTO);
		return;
	}
	kept = calloc(1, sizeof(*kept) + message->bytes);
	if (!kept) {
		event_fail(ev, ev->rank, -ENOMEM);
		return;
	}
	memcpy(kept + 1, message->payload, message->bytes);
	kept->body = (const uint8_t *)(kept + 1);
	kept->body_bytes = message->bytes;
	new.kept = kept;
	event_add(ev, node, &new);
	ev->kept++;
	careful_reply_name(message,
			   &node->owed[(node->owed_at + node->owed_count++) % EVENT_WINDOW]);
	answer_fragments(node);
}

static void stay(struct event_node *node, const struct careful_message *message)
{
	if (node->stays || !node->joined || node->left) {
		careful_reply(message, ECONNRESET, NULL, NULL, 0);
		return;
	}
	careful_reply_name(message, &node->stay);
	node->stays = true;
}

static void on_request(const struct careful_message *message, void *user)
{
	struct careful_events *ev = user;
	struct event_node *node = NULL;
	struct careful_am am;

	for (uint32_t i = 0; i < ev->nodes && !node; i++)
		if (i != ev->rank && ev->node[i].index == message->peer)
			node = &ev->node[i];
	if (node && message->bytes >= sizeof(am))
		memcpy(&am, message->payload, sizeof(am));
	else
		node = NULL;
	if (!node || am.kind != CAREFUL_AM_EVENT || be32toh(am.region) != ev->number ||
	    (be16toh(am.handler) != CAREFUL_EVENT_JOIN && be32toh(am.args[3]) != ev->membership)) {
		careful_reply(message, ENOSYS, NULL, NULL, 0);
		return;
	}
	switch (be16toh(am.handler)) {
	case CAREFUL_EVENT_FRAGMENT:
		keep(node, message, &am);
		break;
	case CAREFUL_EVENT_STAY:
		stay(node, message);
		break;
	case CAREFUL_EVENT_JOIN:
	case CAREFUL_EVENT_LEAVE:
	case CAREFUL_EVENT_FAIL:
		event_on_message(ev, rank_of(node), &am);
		careful_reply(message, 0, NULL, NULL, 0);
		break;
	default:
		careful_reply(message, EINVAL, NULL, NULL, 0);
	}
}

static int claim_handler(struct careful_events *ev)
{
	const uint32_t number = CAREFUL_HANDLERS_APP - 1 - ev->number % CAREFUL_HANDLERS_APP;
	int rc = -EBUSY;

	if (!ev->c->handlers[number].fn)
		rc = careful_handle(ev->c, (uint16_t)number, on_request, ev);
	if (!rc)
		ev->handler = (uint16_t)number;
	return rc;
}

static int requests_open(struct careful_events *ev, const uint32_t *peers)
{
	ev->window = EVENT_WINDOW;
	ev->room = EVENT_ROOM;
	for (uint32_t rank = 0; rank < ev->nodes; rank++) {
		if (rank == ev->rank)
			continue;
		for (uint32_t i = 0; i < rank; i++)
			if (i != ev->rank && peers[i] == peers[rank])
				return -EINVAL;
		if (ev->c->queue && !engine_peer(ev->c, peers[rank]))
			return -ENOENT;
		ev->node[rank].index = peers[rank];
	}
	return claim_handler(ev);
}

/* Answers nodes' requests. Does nothing in a child of fork(), which has a copy of the group. */
static void requests_close(struct careful_events *ev)
{
	const struct handler *handler = &ev->c->handlers[ev->handler];

	if (ev->c->owner != getpid())
		return;
	for (uint32_t i = 0; i < ev->nodes; i++) {
		struct event_node *node = &ev->node[i];

		for (; node->owed_count; node->owed_count--) {
			answer(ev, &node->owed[node->owed_at]);
			node->owed_at = (node->owed_at + 1) % EVENT_WINDOW;
		}
		if (node->stays)
			answer(ev, &node->stay);
	}
	if (handler->fn == on_request && handler->user == ev)
		careful_handle(ev->c, ev->handler, NULL, NULL);
}

static void requests_let_go(struct careful_events *ev, struct link_held *held)
{
	ev->kept--;
	free(held);
}

const struct event_transport event_by_requests = {
	.open = requests_open,
	.close = requests_close,
	.post = requests_post,
	.send = requests_send,
	.may_send = requests_may_send,
	.room = requests_room,
	.bytes = requests_bytes,
	.withholds = requests_withholds,
	.owes = requests_owes,
	.round = requests_round,
	.let_go = requests_let_go,
	.consumed = requests_round,
};
