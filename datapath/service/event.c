// SPDX-License-Identifier: BSD-2-Clause
/*
 * A group of nodes (P2 section 5.1): its life, who takes part, and how a failure reaches every
 * node. Each session is watched from the beginning, whether something is to come from there
 * or not, so that each node learns by itself of a peer that died; and who fails, for whatever
 * reason, tells the others, so that those who lost nothing do not wait for ever.
 *
 * Nothing here is parked: what cannot leave now is said again in a later round. Calls
 * event_in.c, event_out.c, event_group.c, event_requests.c, event_trace.c, instance.c to wait,
 * message's small.c.
 */
#include "service/event_private.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/random.h>
#include <time.h>

enum { JOIN_AGAIN_NS = 5 * 1000 * 1000 };

static void watch(struct event_node *node, bool on)
{
	if (node->awaited == on || !node->peer)
		return;
	node->awaited = on;
	if (on)
		link_await(node->peer);
	else
		link_awaited(node->peer);
}

uint64_t event_now_ns(const struct careful_events *ev)
{
	struct timespec now;

	if (!ev->c->attached)
		return ev->c->link.now_ns;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

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

static uint32_t new_part(const struct careful_events *ev)
{
	uint32_t part = 0;

	if (!ev->c->attached)
		return (uint32_t)link_random(&ev->c->link);
	if (getrandom(&part, sizeof(part), 0) < 0)
		part = (uint32_t)event_now_ns(ev);
	return part;
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
	if (!c->attached && nodes - 1 + LINK_CHUNKS_FREE_MIN > c->queue->tx_chunks)
		return -ENOBUFS;
	ev = create(c, nodes, c->attached || options->requests);
	if (!ev)
		return -ENOMEM;
	ev->number = options->group;
	ev->nodes = nodes;
	ev->rank = options->rank;
	ev->part = new_part(ev) | 1;
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
			watch(&ev->node[rank], true);
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

/* Says something to a node, now; false: not now. */
bool event_tell(struct careful_events *ev, struct event_node *node, const struct careful_am *what)
{
	struct careful_am am = *what;

	am.kind = CAREFUL_AM_EVENT;
	am.region = htobe32(ev->number);
	return ev->requests ? event_requests_tell(ev, node, &am) :
			      message_small_now(&ev->c->messages, node->peer, &am, NULL, 0);
}

static bool say_join(struct careful_events *ev, struct event_node *node)
{
	struct careful_am am = {
		.handler = htobe16(CAREFUL_EVENT_JOIN),
		.args = { htobe32(ev->rank), htobe32(ev->nodes), htobe32(node->part) },
		.bytes = htobe32(ev->part),
	};

	event_group_join(ev, &am);
	return event_tell(ev, node, &am);
}

static bool say_fail(struct careful_events *ev, struct event_node *node)
{
	const struct careful_am am = {
		.handler = htobe16(CAREFUL_EVENT_FAIL),
		.args = { htobe32(ev->error_rank), htobe32((uint32_t)-ev->error),
			  htobe32(node->owes_leave) },
	};

	return event_tell(ev, node, &am);
}

static bool say_leave(struct careful_events *ev, struct event_node *node)
{
	const struct careful_am am = { .handler = htobe16(CAREFUL_EVENT_LEAVE) };

	return event_tell(ev, node, &am);
}

/* Whether it is to hear what becomes of us here: our JOIN may have found it. Who has left and did
 * not name our part left with an earlier one of its own, and a later one may rely on us. */
static bool is_to_hear(const struct event_node *node)
{
	return node->asked && !(node->left && node->aware);
}

/* The group has failed here; every node that takes part is to hear of it, but the one whose
 * session is over. What nobody will consume gives its buffers back. */
void event_fail(struct careful_events *ev, uint32_t rank, int error)
{
	if (ev->error)
		return;
	ev->error = error;
	ev->error_rank = rank;
	event_group_off(ev, error);
	ev->c->told++; /* who waits is to look */
	for (uint32_t i = 0; i < ev->nodes; i++) {
		struct event_node *node = &ev->node[i];

		if (i == ev->rank)
			continue;
		event_drop(ev, node);
		event_give_up(ev, node);
		node->owes_fail |= is_to_hear(node);
	}
}

static bool is_ours(const struct careful_events *ev, uint32_t rank, const struct careful_am *am)
{
	return be32toh(am->args[0]) == rank && be32toh(am->args[1]) == ev->nodes;
}

static void on_join(struct careful_events *ev, uint32_t rank, const struct careful_am *am)
{
	uint32_t part = be32toh(am->bytes), ours = be32toh(am->args[2]);
	struct event_node *node = &ev->node[rank];
	bool right = is_ours(ev, rank, am);

	/* Who has left and is back waits until we have, too. */
	if (node->left)
		return;
	if (right && node->joined && node->part != part) { /* that it has left did not get here */
		event_fail(ev, rank, -ECONNRESET);
		return;
	}
	if (right && ours && ours != ev->part) { /* it is in a group with an earlier part of ours */
		node->ask_ns = 0;
		return;
	}
	if (!node->joined) {
		node->joined = true;
		node->part = part;
		ev->joined++;
		ev->c->told++;
	}
	node->aware |= ours != 0;
	node->ask_ns = ours ? UINT64_MAX : 0; /* 0: it waits for ours */
	if (!right)
		event_fail(ev, rank, -EPROTO);
	else if (ev->error)
		node->owes_fail = true;
	else
		event_group_joined(ev, rank, am);
}

/* No more comes from there, and nothing is to be told to it. */
static void on_leave(struct careful_events *ev, uint32_t rank)
{
	struct event_node *node = &ev->node[rank];

	node->left = true;
	node->owes_fail &= is_to_hear(node);
	node->owes_leave = false;
	watch(node, false);
	event_group_off(ev, -EPIPE);
	event_group_say_off(ev, node);
	ev->c->told++;
	if (node->in.open)
		event_fail(ev, rank, -EPROTO);
}

static void on_fail(struct careful_events *ev, uint32_t rank, const struct careful_am *am)
{
	uint32_t failed = be32toh(am->args[0]);
	int error = (int)(be32toh(am->args[1]) & 0xfff);

	/* -EAGAIN would mean that there is something to wait for. */
	if (!error || error == EAGAIN)
		error = EPROTO;
	event_fail(ev, failed < ev->nodes ? failed : rank, -error);
	if (am->args[2])
		on_leave(ev, rank);
}

/* What a node of the group said, beside fragments; what it said in an earlier group, before it
 * joined this one, is over. */
void event_said(struct careful_events *ev, uint32_t rank, const struct careful_am *am)
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
		break; /* event_group_ends() */
	default:
		link_count(&ev->c->link, CAREFUL_C_DROP_MESSAGE);
	}
}

/* Nothing comes from a node any more, and nothing is told to it. */
void event_gone(struct careful_events *ev, uint32_t rank, int error)
{
	struct event_node *node = &ev->node[rank];

	watch(node, false);
	event_give_up(ev, node);
	if (!node->left)
		event_fail(ev, rank, error);
	node->left = true; /* its slot may be another's from now on */
	node->asked = node->owes_fail = node->owes_leave = false;
}

/* An epoch of a peer's session is over: what was on its way may be lost. */
void event_epoch_over(struct careful *c, struct link_peer *peer)
{
	struct careful_events *ev = c->events;
	uint32_t rank = ev->rank_of[peer->slot];

	if (rank == EVENT_NOBODY)
		return;
	event_gone(ev, rank, operation_over_status(peer));
	ev->rank_of[peer->slot] = EVENT_NOBODY;
}

/* In this order: who has not heard JOIN yet takes nothing else. */
static void say_all(struct careful_events *ev, struct event_node *node)
{
	uint64_t now_ns = event_now_ns(ev);

	if (!node->left && now_ns >= node->ask_ns) {
		if (!say_join(ev, node))
			return;
		node->asked = true;
		node->ask_ns = node->joined ? UINT64_MAX : now_ns + JOIN_AGAIN_NS;
	}
	if (!node->asked)
		return;
	if (node->owes_fail ? say_fail(ev, node) : node->owes_leave && say_leave(ev, node))
		node->owes_fail = node->owes_leave = false;
}

/* Once a round: what is to be said, and whether who waits for room has some. */
void event_round(struct careful *c)
{
	struct careful_events *ev = c->events;

	for (uint32_t i = 0; i < ev->nodes; i++)
		if (i != ev->rank)
			say_all(ev, &ev->node[i]);
	if (ev->requests)
		event_requests_round(ev);
	else
		event_group_round(ev);
	if (ev->waiting && event_may_send(ev, ev->waiting_dst, ev->waiting_bytes)) {
		ev->waiting = false;
		c->told++;
	}
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
	now_ns = c->attached ? event_now_ns(ev) : c->port->ops->now_ns(c->port);
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

		node->owes_leave = i != ev->rank && is_to_hear(node);
		node->owes_fail |= node->owes_leave && ev->error; /* who was asked since, too */
	}
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
		watch(&ev->node[i], false);
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
