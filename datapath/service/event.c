// SPDX-License-Identifier: BSD-2-Clause
/*
 * A group of nodes (P2 section 5.1): its life. Each session is watched from the beginning, whether
 * something is to come from there or not, so that each node learns by itself of a peer that died.
 * Calls event_member.c, event_in.c, event_out.c, event_group.c, event_requests.c, event_trace.c,
 * instance.c to wait.
 */
#include "service/event_private.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>

void event_destroy(struct careful_events *ev)
{
	free(ev->node);
	free(ev->rank_of);
	free(ev->fragments);
	free(ev->notes);
	free(ev);
}

static struct careful_events *create(struct careful *c, uint32_t nodes, bool requests)
{
	const uint32_t fragments = requests ? EVENT_ROOM + nodes * EVENT_WINDOW : c->deferred_max;
	struct careful_events *ev = calloc(1, sizeof(*ev));

	if (!ev)
		return NULL;
	ev->notes_fd = -1;
	ev->node = calloc(nodes, sizeof(*ev->node));
	ev->rank_of = calloc(c->link.peers_max + 1, sizeof(*ev->rank_of));
	/* Each holds a receive buffer, or a copy. */
	ev->fragments = calloc(fragments, sizeof(*ev->fragments));
	if (!ev->node || !ev->rank_of || !ev->fragments) {
		event_destroy(ev);
		return NULL;
	}
	for (uint32_t i = 0; i < c->link.peers_max; i++)
		ev->rank_of[i] = EVENT_NOBODY;
	for (uint32_t i = 0; i < fragments; i++) {
		ev->fragments[i].next = ev->free;
		ev->free = &ev->fragments[i];
	}
	for (uint32_t i = 0; i < nodes; i++)
		ev->node[i].ev = ev;
	ev->c = c;
	ev->requests = requests;
	return ev;
}

static int set_nodes(struct careful_events *ev, const uint32_t *peers)
{
	for (uint32_t rank = 0; rank < ev->nodes; rank++) {
		struct link_peer *peer;

		if (rank == ev->rank)
			continue;
		peer = engine_peer(ev->c, peers[rank]);
		if (!peer)
			return -ENOENT;
		if (ev->rank_of[peer->slot] != EVENT_NOBODY)
			return -EINVAL;
		ev->rank_of[peer->slot] = (uint16_t)rank;
		ev->node[rank].peer = peer;
	}
	return 0;
}

int careful_events_open(struct careful *c, const struct careful_events_options *options,
			struct careful_events **events)
{
	uint32_t nodes = options->nodes;
	struct careful_events *ev;
	const char *trace;
	int rc;

	if (c->events)
		return -EBUSY;
	if (!nodes || nodes > CAREFUL_EVENT_NODES_MAX || options->rank >= nodes)
		return -EINVAL;
	if (c->queue && nodes - 1 + LINK_CHUNKS_FREE_MIN > c->queue->tx_chunks)
		return -ENOBUFS;
	ev = create(c, nodes, !c->queue || options->requests);
	if (!ev)
		return -ENOMEM;
	ev->number = options->group;
	ev->nodes = nodes;
	ev->rank = options->rank;
	ev->part = (uint32_t)c->ops->random(c) | 1;
	event_group_init(ev, options->replicate || ev->requests);
	rc = ev->requests ? event_requests_open(ev, options->peers) : set_nodes(ev, options->peers);
	trace = getenv("CAREFUL_EVENT_TRACE"); // NOLINT(concurrency-mt-unsafe)
	if (!rc && trace && trace[0])
		rc = careful_events_trace(ev, trace);
	if (rc) {
		event_requests_close(ev);
		event_destroy(ev);
		return rc;
	}
	for (uint32_t rank = 0; rank < nodes; rank++)
		if (rank != ev->rank)
			event_watch(&ev->node[rank], true);
	c->events = ev;
	*events = ev;
	return 0;
}

int careful_event_bytes(struct careful_events *ev)
{
	uint32_t least = UINT32_MAX;

	for (uint32_t rank = 0; rank < ev->nodes; rank++) {
		const struct link_peer *peer = ev->node[rank].peer;
		uint32_t bytes;
		int rc;

		if (rank == ev->rank || ev->node[rank].left)
			continue;
		if (ev->requests) {
			rc = event_requests_bytes(&ev->node[rank]);
			if (rc < 0)
				return rc;
			least = (uint32_t)rc < least ? (uint32_t)rc : least;
			continue;
		}
		if (!link_knows(peer))
			return -EAGAIN;
		bytes = link_body_single(peer) - MESSAGE_AM_BYTES;
		least = bytes < least ? bytes : least;
	}
	return (int)(least < INT32_MAX ? least : INT32_MAX);
}

int careful_events_failed(const struct careful_events *ev, uint32_t *rank)
{
	if (rank)
		*rank = ev->error_rank;
	return ev->error;
}

/* Polls for a while; 0: look again. *until_ns is 0 before the first time. */
int event_wait(struct careful_events *ev, uint64_t *until_ns, int timeout_ms)
{
	struct careful *c = ev->c;
	uint64_t now_ns, left_ms;
	int rc;

	if (!timeout_ms)
		return -EAGAIN;
	if (c->polling)
		return -EDEADLK;
	now_ns = c->ops->now_ns(c);
	if (!*until_ns)
		*until_ns = timeout_ms < 0 ? UINT64_MAX : now_ns + timeout_ms * 1000000ull;
	if (now_ns >= *until_ns)
		return -ETIMEDOUT;
	left_ms = (*until_ns - now_ns + 999999) / 1000000;
	rc = careful_wait(c, left_ms < 20 ? (int)left_ms : 20, -1);
	return rc < 0 ? rc : 0;
}

static bool owes(const struct careful_events *ev)
{
	for (uint32_t i = 0; i < ev->nodes; i++)
		if (ev->node[i].owes_fail || ev->node[i].owes_leave)
			return true;
	return event_requests_owes(ev);
}

static int say_goodbye(struct careful_events *ev, int status, int timeout_ms)
{
	uint64_t until_ns = 0;
	int rc = 0;

	if (!status && ev->sending)
		status = -ECANCELED;
	if (status)
		event_fail(ev, ev->rank, status);
	for (uint32_t i = 0; i < ev->nodes; i++) {
		struct event_node *node = &ev->node[i];

		node->owes_leave = i != ev->rank &&
				   (event_is_to_hear(node) || event_is_awaited(node));
		node->owes_fail |= node->owes_leave && ev->error; /* who was asked since, too */
		/* The others hear nothing: JOIN might be all that can still be said to them, and
		 * they would wait for our end. */
		if (!node->asked && !node->owes_leave)
			node->ask_ns = UINT64_MAX;
	}
	ev->leaving = true;
	event_round(ev->c);
	while (!rc && owes(ev))
		rc = event_wait(ev, &until_ns, timeout_ms);
	return rc == -EAGAIN ? -ETIMEDOUT : rc;
}

/* Lets go of all that is the instance's. */
void event_forget(struct careful *c)
{
	struct careful_events *ev = c->events;

	event_return(ev);
	for (uint32_t i = 0; i < ev->nodes; i++) {
		if (i == ev->rank)
			continue;
		event_drop(ev, &ev->node[i]);
		event_give_up(ev, &ev->node[i]);
		event_watch(&ev->node[i], false);
	}
	event_group_off(ev, -EPIPE);
	event_trace_end(ev);
	c->events = NULL;
	event_requests_close(ev);
	if (!ev->pending) {
		event_destroy(ev);
		return;
	}
	ev->over = true;
	ev->forgotten = c->events_forgotten;
	c->events_forgotten = ev;
}

/* The instance ends, and with it what they wait for. */
void events_end(struct careful *c)
{
	struct careful_events *ev;

	if (c->events)
		event_forget(c);
	while ((ev = c->events_forgotten)) {
		c->events_forgotten = ev->forgotten;
		event_destroy(ev);
	}
}

int careful_events_close(struct careful_events *ev, int status, int timeout_ms)
{
	int rc = ev->c->polling ? -EDEADLK : say_goodbye(ev, status, timeout_ms);

	if (rc != -EDEADLK)
		event_forget(ev->c);
	return rc;
}
