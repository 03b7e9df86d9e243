// SPDX-License-Identifier: BSD-2-Clause
/* Opens and closes a group of nodes (P2 section 5.1). Each node watches its sessions from the
 * start, so that it notices when a peer dies. */
#include "events/private.h"

#include <errno.h>
#include <stdlib.h>

static struct careful_events *create(struct careful *c, uint32_t nodes, bool requests)
{
	/* One for each receive buffer and each copy. */
	const uint32_t fragments = requests ? EVENT_ROOM + nodes * EVENT_WINDOW : c->deferred_max;
	struct careful_events *ev = calloc(1, sizeof(*ev));

	if (!ev)
		return NULL;
	ev->trace_fd = -1;
	ev->node = calloc(nodes, sizeof(*ev->node));
	ev->rank_of = calloc(c->link.peers_max + 1, sizeof(*ev->rank_of));
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
	ev->by = requests ? &event_by_requests : &event_by_frames;
	return ev;
}

int careful_events_failed(const struct careful_events *ev, uint32_t *rank)
{
	if (rank)
		*rank = ev->error_rank;
	return ev->error;
}

/* Sends owed messages. Ends the wait of a sender for which there is room now. */
static void on_round(struct careful *c)
{
	struct careful_events *ev = c->events;

	for (uint32_t i = 0; i < ev->nodes; i++)
		if (i != ev->rank)
			event_send_owed(ev, &ev->node[i]);
	ev->by->round(ev);
	if (ev->waiting && event_may_send(ev, ev->waiting_dst, ev->waiting_bytes)) {
		ev->waiting = false;
		c->callbacks++;
	}
}

static bool owes(const struct careful_events *ev)
{
	for (uint32_t i = 0; i < ev->nodes; i++)
		if (ev->node[i].owes_fail || ev->node[i].owes_leave)
			return true;
	return ev->by->owes && ev->by->owes(ev);
}

static int leave_group(struct careful_events *ev, int status, int timeout_ms)
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
				   (event_needs_end(node) || event_needs_join(node));
		node->owes_fail |= node->owes_leave && ev->error;
		/* After a first JOIN now, the node would wait for our LEAVE. */
		if (!node->join_sent && !node->owes_leave)
			node->join_ns = UINT64_MAX;
	}
	ev->leaving = true;
	on_round(ev->c);
	while (!rc && owes(ev))
		rc = event_wait(ev, &until_ns, timeout_ms);
	return rc == -EAGAIN ? -ETIMEDOUT : rc;
}

static void forget_group(struct careful *c)
{
	struct careful_events *ev = c->events;

	event_return(ev);
	for (uint32_t i = 0; i < ev->nodes; i++) {
		if (i == ev->rank)
			continue;
		event_drop(ev, &ev->node[i]);
		event_drop_announced(ev, &ev->node[i]);
		event_watch(&ev->node[i], false);
	}
	event_group_off(ev, -EPIPE);
	event_trace_end(ev);
	c->events = NULL;
	if (ev->by->close)
		ev->by->close(ev);
	if (!ev->pending) {
		event_destroy(ev);
		return;
	}
	ev->over = true;
	ev->forgotten = c->events_forgotten;
	c->events_forgotten = ev;
}

static void end_instance(struct careful *c)
{
	struct careful_events *ev;

	if (c->events)
		forget_group(c);
	while ((ev = c->events_forgotten)) {
		c->events_forgotten = ev->forgotten;
		event_destroy(ev);
	}
}

int careful_events_close(struct careful_events *ev, int status, int timeout_ms)
{
	int rc = ev->c->polling ? -EDEADLK : leave_group(ev, status, timeout_ms);

	if (rc != -EDEADLK)
		forget_group(ev->c);
	return rc;
}

/* Fails the group when an epoch of a member's session ends, because frames may be lost then. */
static void epoch_over(struct careful *c, struct link_peer *peer)
{
	struct careful_events *ev = c->events;
	uint32_t rank = ev->rank_of[peer->slot];

	if (rank == EVENT_NOBODY)
		return;
	event_session_over(ev, rank, operation_over_status(peer));
	ev->rank_of[peer->slot] = EVENT_NOBODY;
}

static const struct engine_event_hooks hooks = {
	.arrived = event_arrived,
	.epoch_over = epoch_over,
	.round = on_round,
	.end = end_instance,
};

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
	ev->membership = (uint32_t)c->ops->random(c) | 1; /* never 0 */
	event_group_init(ev, options->replicate || ev->by != &event_by_frames);
	rc = ev->by->open(ev, options->peers);
	trace = getenv("CAREFUL_EVENT_TRACE"); // NOLINT(concurrency-mt-unsafe)
	if (!rc && trace && trace[0])
		rc = careful_events_trace(ev, trace);
	if (rc) {
		if (ev->by->close)
			ev->by->close(ev);
		event_destroy(ev);
		return rc;
	}
	for (uint32_t rank = 0; rank < nodes; rank++)
		if (rank != ev->rank)
			event_watch(&ev->node[rank], true);
	c->event_hooks = &hooks;
	c->events = ev;
	*events = ev;
	return 0;
}
