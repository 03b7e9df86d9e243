// SPDX-License-Identifier: BSD-2-Clause
/*
 * Events among all nodes of a cluster, if the scenario has them. A program has a few events: all to
 * all, one to all, or each to the next, in pieces of a frame. A member starts again if its group
 * fails, its process ends, or another member waits for it. Every node must hear of a failure. Calls
 * the event interface, and its private header for pending messages.
 */
#include <errno.h>
#include <string.h>

#include "cluster.h"
#include "events/private.h"

enum {
	STREAM_KIND = 0x800,
	STREAM_BYTES,
	STREAM_AGAIN,
	EVENTS = 12,
	BYTES_MAX = 5000,
	GROUP = 9,
	AGAIN_NS = 1000 * 1000, /* least wait before a member restarts; at most 4 times as long */
	CLOSE_NS = 5u * 1000 * 1000 * 1000u / 2, /* most wait of a closing member */
};

enum kind { TO_ALL, FROM_ONE, TO_NEXT, KINDS };

static uint64_t roll(const struct node *node, uint64_t stream, uint64_t event, uint32_t rank)
{
	return cluster_random(&node->cluster->scenario, stream, event * NODES_DRAWN + rank);
}

static enum kind kind_of(const struct node *node, uint64_t event)
{
	return (enum kind)(roll(node, STREAM_KIND, event, 0) % KINDS);
}

/* Reports whether a node sends in an event. */
static bool sends(const struct node *node, uint64_t event, uint32_t rank)
{
	return kind_of(node, event) != FROM_ONE ||
	       rank == roll(node, STREAM_KIND, event, 1) % node->cluster->scenario.nodes;
}

static bool hears(const struct node *node, uint64_t event)
{
	return kind_of(node, event) != FROM_ONE || !sends(node, event, node->port);
}

/* Returns the payload's size, which is mostly small. */
static uint32_t bytes_of(const struct node *node, uint64_t event, uint32_t rank)
{
	uint64_t random = roll(node, STREAM_BYTES, event, rank);

	return (uint32_t)(random >> 8) % (random % 4 ? 64 : BYTES_MAX);
}

static uint8_t byte_at(uint64_t event, uint32_t rank, uint32_t at)
{
	return (uint8_t)(event * 31 + rank * 7 + at * 13 + at / 251);
}

static int send_part(struct node *node)
{
	struct group_part *part = &node->part;
	const uint32_t whole = bytes_of(node, part->event, node->port);
	const enum kind kind = kind_of(node, part->event);
	uint32_t dst = kind == TO_NEXT ? (node->port + 1) % node->cluster->scenario.nodes :
					 CAREFUL_EVENT_ALL;
	uint8_t data[BYTES_MAX];
	uint32_t n = whole - part->at, flags;
	int most, rc;

	if (!part->at)
		careful_event_ahead(part->ev, dst, whole);
	most = careful_event_next(part->ev, dst);
	if (most <= 0)
		return most ? most : -EMSGSIZE;
	n = n < (uint32_t)most ? n : (uint32_t)most;
	if (!part->at)
		part->large = n < whole;
	flags = (kind == TO_ALL ? CAREFUL_EVENT_F_CROWD : 0) |
		(part->large ? CAREFUL_EVENT_F_LARGE : 0) |
		(part->at + n == whole ? CAREFUL_EVENT_F_LAST : 0);
	for (uint32_t i = 0; i < n; i++)
		data[i] = byte_at(part->event, node->port, part->at + i);
	rc = careful_event_send(part->ev, dst, part->event, data, n, flags, 0);
	if (rc)
		return rc;
	part->at += n;
	part->said = part->at == whole;
	return 0;
}

static void wrong(struct node *node, const char *what, uint32_t source)
{
	sim_fail(node->cluster->world, "node %u, event %llu: %s of node %u", node->port,
		 (unsigned long long)node->part.event, what, source);
}

static int take_part(struct node *node)
{
	struct group_part *part = &node->part;
	struct careful_event_fragment got;
	int rc = careful_event_receive(part->ev, CAREFUL_EVENT_ALL, part->event, &got, 0);
	uint32_t whole;

	if (rc)
		return rc;
	whole = bytes_of(node, part->event, got.source);
	if (!sends(node, part->event, got.source) || got.offset != part->got[got.source])
		wrong(node, "a fragment out of order", got.source);
	for (uint32_t i = 0; i < got.bytes; i++)
		if (((const uint8_t *)got.data)[i] !=
		    byte_at(part->event, got.source, got.offset + i)) {
			wrong(node, "wrong bytes", got.source);
			break;
		}
	part->got[got.source] += got.bytes;
	if ((got.status != CAREFUL_EVENT_MORE) != (part->got[got.source] == whole))
		wrong(node, "a message that is not as long as it was", got.source);
	part->heard = got.status == CAREFUL_EVENT_EVENT_DONE;
	return 0;
}

static void begin_event(struct node *node, uint64_t event)
{
	struct group_part *part = &node->part;

	part->event = event;
	part->at = 0;
	memset(part->got, 0, sizeof(part->got));
	part->said = event < EVENTS && !sends(node, event, node->port);
	part->heard = event < EVENTS && !hears(node, event);
}

/* Advances the program; 0: it has ended. */
static int play(struct node *node)
{
	struct group_part *part = &node->part;

	while (part->event < EVENTS) {
		int sent = part->said ? -EAGAIN : send_part(node);
		int took = part->heard ? -EAGAIN : take_part(node);

		if (sent && sent != -EAGAIN && sent != -ENOBUFS)
			return sent;
		if (took && took != -EAGAIN)
			return took;
		if (part->said && part->heard)
			begin_event(node, part->event + 1);
		else if (sent && took)
			return -EAGAIN;
	}
	return 0;
}

static bool open_part(struct node *node)
{
	struct cluster *cluster = node->cluster;
	struct group_part *part = &node->part;
	uint32_t peers[NODES_MAX] = { 0 };
	const struct careful_events_options options = {
		.group = GROUP,
		.nodes = cluster->scenario.nodes,
		.rank = node->port,
		.peers = peers,
	};
	int rc;

	for (uint32_t i = 0; i < options.nodes; i++) {
		union address address;
		int peer;

		if (i == node->port)
			continue;
		sim_address(cluster->world, i, &address);
		peer = careful_peer(node->c, &address.sa, sizeof(address));
		if (peer < 0)
			return false;
		peers[i] = (uint32_t)peer;
	}
	rc = careful_events_open(node->c, &options, &part->ev);
	if (rc) {
		part->ev = NULL;
		sim_fail(cluster->world, "node %u: no group: %s", node->port, strerrorname_np(-rc));
		return false;
	}
	part->over = part->failed = false;
	begin_event(node, 0);
	return true;
}

/* Reports whether the node can be told now, or needs no message from us. */
static bool may_hear(const struct node *node, const struct event_node *other)
{
	if (event_needs_join(other))
		return false;
	return !event_needs_end(other) ||
	       (!other->owes_fail && message_small_may(&node->c->messages, other->peer, 0));
}

/* Reports whether every node that needs a message from us can get it now. */
static bool may_tell(const struct node *node)
{
	const struct careful_events *ev = node->part.ev;

	for (uint32_t i = 0; i < ev->nodes; i++)
		if (i != ev->rank && !may_hear(node, &ev->node[i]))
			return false;
	return link_tx_room(&node->c->link, ev->nodes);
}

static void over(struct node *node, int rc)
{
	struct cluster *cluster = node->cluster;
	struct group_part *part = &node->part;

	part->over = true;
	part->failed = rc != 0;
	part->again_ns = sim_now_ns(cluster->world) + CLOSE_NS;
	if (!rc)
		return;
	part->status = rc;
	if (!cluster->scenario.excused)
		sim_fail(cluster->world, "node %u, event %llu: the group failed: %s", node->port,
			 (unsigned long long)part->event, strerrorname_np(-rc));
}

/* Reports whether another node has begun and waits for this one. */
static bool is_awaited(const struct node *node)
{
	const struct cluster *cluster = node->cluster;

	for (uint32_t i = 0; i < cluster->scenario.nodes; i++) {
		const struct node *other = &cluster->nodes[i];

		if (other != node && other->c && other->part.ev && !other->part.over &&
		    !other->part.ev->node[node->port].joined)
			return true;
	}
	return false;
}

/* With equal waits, members could make each other's groups fail for ever. */
static uint64_t again_ns(const struct node *node, uint64_t now_ns)
{
	return now_ns + AGAIN_NS + roll(node, STREAM_AGAIN, now_ns, node->port) % (3 * AGAIN_NS);
}

uint64_t groups_run(struct node *node)
{
	struct cluster *cluster = node->cluster;
	struct group_part *part = &node->part;
	uint64_t now_ns = sim_now_ns(cluster->world);
	int rc;

	if (!cluster->scenario.group)
		return UINT64_MAX;
	if (!part->ev) {
		if (groups_over(cluster))
			return UINT64_MAX;
		if (now_ns < part->again_ns)
			return part->again_ns;
		if ((part->done && !is_awaited(node)) || !open_part(node)) {
			part->again_ns = again_ns(node, now_ns);
			return part->again_ns;
		}
	}
	if (!part->over) {
		rc = play(node);
		if (rc == -EAGAIN)
			return UINT64_MAX;
		over(node, rc);
	}
	if (now_ns < part->again_ns && !may_tell(node))
		return part->again_ns;
	careful_events_close(part->ev, part->failed ? part->status : 0, 0);
	part->ev = NULL;
	part->again_ns = again_ns(node, now_ns);
	part->done |= !part->failed;
	return part->again_ns;
}

void groups_open(struct node *node)
{
	node->part = (struct group_part){ 0 };
}

void groups_close(struct node *node)
{
	node->part.ev = NULL;
}

bool groups_over(const struct cluster *cluster)
{
	for (uint32_t i = 0; cluster->scenario.group && i < cluster->scenario.nodes; i++)
		if (cluster->nodes[i].part.ev || !cluster->nodes[i].part.done)
			return false;
	return true;
}
