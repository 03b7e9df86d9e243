// SPDX-License-Identifier: BSD-2-Clause
/* Outgoing fragments (P2 section 5.1). A broadcast goes to all nodes or to none. */
#include "events/private.h"

#include <endian.h>
#include <errno.h>

enum { SYNCS_BLOCKED = 3 }; /* syncs to wait for: each brings credits that no update has brought */

static inline bool is_meant(const struct careful_events *ev, uint32_t dst, uint32_t rank)
{
	return rank != ev->rank && (dst == CAREFUL_EVENT_ALL || dst == rank);
}

/* Checks that a fragment continues the last message to a node, or begins another one. */
static int check_direction(const struct event_direction *way, uint64_t event, uint32_t bytes,
			   uint32_t flags)
{
	uint32_t kind = CAREFUL_EVENT_F_CROWD | CAREFUL_EVENT_F_LARGE;

	if (!way->any || way->event != event)
		return 0;
	if (!way->open)
		return -EILSEQ;
	if ((way->flags ^ flags) & kind)
		return -EINVAL;
	return bytes > UINT32_MAX - way->offset ? -EMSGSIZE : 0;
}

static int check_order(const struct careful_events *ev, uint32_t dst, uint64_t event,
		       uint32_t bytes, uint32_t flags)
{
	int rc = 0;

	if (dst != CAREFUL_EVENT_ALL && (dst >= ev->nodes || dst == ev->rank))
		return -ENOENT;
	if (flags & ~(uint32_t)EVENT_FLAGS ||
	    !(flags & (CAREFUL_EVENT_F_LAST | CAREFUL_EVENT_F_LARGE)))
		return -EINVAL;
	if (ev->sent_any && (event < ev->sent || (event > ev->sent && ev->sending)))
		return -EILSEQ;
	for (uint32_t i = 0; !rc && i < ev->nodes; i++) {
		if (!is_meant(ev, dst, i))
			continue;
		rc = ev->node[i].left ? -EPIPE :
					check_direction(&ev->node[i].out, event, bytes, flags);
	}
	return rc;
}

static int check_size(const struct careful_events *ev, uint32_t dst, uint32_t bytes)
{
	for (uint32_t i = 0; i < ev->nodes; i++) {
		int most = is_meant(ev, dst, i) ? ev->by->bytes(&ev->node[i]) : 0;

		if (most > 0 && bytes > (uint32_t)most)
			return -EMSGSIZE;
	}
	return 0;
}

/* Reports whether there is room for a fragment, here and at each destination. */
bool event_may_send(struct careful_events *ev, uint32_t dst, uint32_t bytes)
{
	uint32_t frames = 0;

	if (ev->error || ev->joined + 1 < ev->nodes)
		return false;
	for (uint32_t i = 0; i < ev->nodes; i++)
		if (is_meant(ev, dst, i) && !event_knows_us(&ev->node[i]))
			return false;
	if (dst == CAREFUL_EVENT_ALL && event_group_is_ready(ev))
		return event_group_may_send(ev, bytes) && link_tx_room(&ev->c->link, 1);
	for (uint32_t i = 0; i < ev->nodes; i++) {
		if (!is_meant(ev, dst, i))
			continue;
		if (!ev->by->may_send(&ev->node[i], bytes))
			return false;
		frames++;
	}
	return ev->by->room(ev, frames);
}

static void account(struct careful_events *ev, uint32_t rank, uint64_t event, uint32_t bytes,
		    uint32_t flags)
{
	struct event_node *node = &ev->node[rank];
	struct event_direction *way = &node->out;

	node->next_bytes = 0;
	if (flags & CAREFUL_EVENT_F_LAST)
		node->plan.next_bytes = 0;
	if (!way->open)
		way->offset = 0;
	ev->sending += !(flags & CAREFUL_EVENT_F_LAST);
	ev->sending -= way->open;
	way->open = !(flags & CAREFUL_EVENT_F_LAST);
	way->event = event;
	way->any = true;
	way->flags = (uint8_t)flags;
	way->offset += bytes;
	event_trace(ev, 's', rank, event, bytes, flags);
}

static struct careful_am header(const struct careful_events *ev, uint32_t rank, uint64_t event,
				uint32_t flags)
{
	const struct event_direction *way = &ev->node[rank].out;

	return (struct careful_am){
		.kind = CAREFUL_AM_EVENT,
		.flags = (uint8_t)flags,
		.handler = htobe16(CAREFUL_EVENT_FRAGMENT),
		.region = htobe32(ev->number),
		.region_off = htobe64(event),
		.bytes = htobe32(way->open ? way->offset : 0),
	};
}

int careful_event_bytes(struct careful_events *ev)
{
	int least = INT32_MAX;

	for (uint32_t rank = 0; rank < ev->nodes; rank++) {
		int rc;

		if (rank == ev->rank || ev->node[rank].left)
			continue;
		rc = ev->by->bytes(&ev->node[rank]);
		if (rc < 0)
			return rc;
		least = rc < least ? rc : least;
	}
	return least;
}

/* Returns the node whose plan cuts a message to `dst` into fragments, or NULL. */
static struct event_node *planned(struct careful_events *ev, uint32_t dst)
{
	for (uint32_t i = 0; i < ev->nodes; i++)
		if (is_meant(ev, dst, i) && !ev->node[i].left)
			return ev->node[i].peer ? &ev->node[i] : NULL;
	return NULL;
}

static void begin_plan(struct careful_events *ev, uint32_t dst, uint64_t bytes)
{
	struct event_node *node = planned(ev, dst);
	struct port *port = ev->c->link.port;

	if (!node)
		return;
	plan_take(port->ops->tune(port, node->peer->slot),
		  bytes < UINT32_MAX ? (uint32_t)bytes : UINT32_MAX, &node->plan);
	node->next_bytes = 0;
}

int careful_event_next(struct careful_events *ev, uint32_t dst)
{
	struct event_node *node = planned(ev, dst);
	int most = careful_event_bytes(ev);

	if (most < 0 || !node || !node->plan.next_bytes)
		return most;
	if (!node->next_bytes)
		node->next_bytes = plan_next(&node->plan, (uint32_t)most);
	return node->next_bytes < (uint32_t)most ? (int)node->next_bytes : most;
}

int careful_event_ahead(struct careful_events *ev, uint32_t dst, uint64_t bytes)
{
	int most;

	if (ev->error)
		return ev->error;
	if (dst != CAREFUL_EVENT_ALL && (dst >= ev->nodes || dst == ev->rank))
		return -ENOENT;
	most = careful_event_bytes(ev);
	begin_plan(ev, dst, bytes);
	if (most > 0 && bytes <= (uint32_t)most)
		return 0; /* one fragment needs no announcement */
	if (dst == CAREFUL_EVENT_ALL && !ev->group_error)
		return 0; /* frames to all nodes are, or soon will be, possible */
	for (uint32_t i = 0; i < ev->nodes; i++) {
		struct event_node *node = &ev->node[i];

		if (!is_meant(ev, dst, i) || node->left || !node->peer)
			continue; /* in a group by requests each node has its own window */
		event_drop_announced(ev, node);
		node->out.ahead = bytes;
		message_ahead(&ev->c->messages, node->peer, bytes, 0);
	}
	return 0;
}

static void send_to(struct careful_events *ev, uint32_t rank, uint64_t event, const void *data,
		    uint32_t bytes, uint32_t flags)
{
	const struct careful_am am = header(ev, rank, event, flags);

	event_reduce_announced(ev, &ev->node[rank], bytes, flags);
	/* event_may_send() found room at every node. */
	if (ev->by->send(ev, rank, &am, data, bytes))
		account(ev, rank, event, bytes, flags);
	else
		event_fail(ev, rank, -EIO);
}

static void send_group(struct careful_events *ev, uint64_t event, const void *data, uint32_t bytes,
		       uint32_t flags)
{
	const struct careful_am am = header(ev, !ev->rank, event, flags);

	for (uint32_t i = 0; i < ev->nodes; i++)
		if (i != ev->rank)
			event_reduce_announced(ev, &ev->node[i], bytes, flags);
	if (!message_small_group(ev->group, &am, data, bytes)) {
		event_fail(ev, ev->rank, -EIO);
		return;
	}
	for (uint32_t i = 0; i < ev->nodes; i++)
		if (i != ev->rank)
			account(ev, i, event, bytes, flags);
}

/* Records that a fragment found no room. Returns -ENOBUFS if this has lasted long and other nodes
 * wait for credits of this node: all may wait for each other. */
static int note_blocked(struct careful_events *ev, uint32_t dst, uint32_t bytes)
{
	const uint64_t now_ns = ev->c->link.now_ns;
	const uint64_t sync_ms = ev->c->link.sync_ms ?: EVENT_ASKED_MS;

	ev->waiting = true;
	ev->waiting_dst = dst;
	ev->waiting_bytes = bytes;
	if (!ev->blocked_ns)
		ev->blocked_ns = now_ns ?: 1;
	if (now_ns - ev->blocked_ns < SYNCS_BLOCKED * sync_ms * 1000000ull ||
	    !ev->by->withholds(ev))
		return -EAGAIN;
	ev->blocked_ns = 0;
	ev->waiting = false;
	return -ENOBUFS;
}

static int send_fragment(struct careful_events *ev, uint32_t dst, uint64_t event, const void *data,
			 uint32_t bytes, uint32_t flags)
{
	int rc;

	if (ev->error)
		return ev->error;
	rc = check_order(ev, dst, event, bytes, flags);
	if (!rc)
		rc = check_size(ev, dst, bytes);
	if (rc)
		return rc;
	if (dst != CAREFUL_EVENT_ALL)
		event_group_unhold(ev);
	if (!event_may_send(ev, dst, bytes))
		return note_blocked(ev, dst, bytes);
	ev->blocked_ns = 0;
	ev->waiting = false;
	ev->sent = event;
	ev->sent_any = true;
	if (dst == CAREFUL_EVENT_ALL && event_group_is_ready(ev))
		send_group(ev, event, data, bytes, flags);
	else
		for (uint32_t i = 0; i < ev->nodes; i++)
			if (is_meant(ev, dst, i))
				send_to(ev, i, event, data, bytes, flags);
	/* A whole message leaves even if the program does not poll. */
	if (flags & CAREFUL_EVENT_F_LAST && ev->c->queue)
		link_kick(&ev->c->link);
	return ev->error;
}

int careful_event_send(struct careful_events *ev, uint32_t dst, uint64_t event, const void *data,
		       uint32_t bytes, uint32_t flags, int timeout_ms)
{
	uint64_t until_ns = 0;
	int rc;

	do {
		rc = send_fragment(ev, dst, event, data, bytes, flags);
		if (rc == -EAGAIN)
			rc = event_wait(ev, &until_ns, timeout_ms);
		else
			break;
	} while (!rc);
	return rc;
}
