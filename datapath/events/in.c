// SPDX-License-Identifier: BSD-2-Clause
/* Gives incoming fragments to the application in order (P2 section 5.1). */
#include "events/private.h"

#include <endian.h>
#include <errno.h>

void event_return(struct careful_events *ev)
{
	if (!ev->given)
		return;
	ev->by->let_go(ev, ev->given);
	ev->given = NULL;
	ev->blocked_ns = 0;
	ev->by->consumed(ev);
}

/* Reports whether a fragment continues its node's last message or begins the next message. */
static bool follows(const struct careful_events *ev, const struct event_direction *way,
		    const struct event_fragment *new)
{
	uint32_t kind = CAREFUL_EVENT_F_CROWD | CAREFUL_EVENT_F_LARGE;

	if (new->flags & ~EVENT_FLAGS ||
	    !(new->flags &(CAREFUL_EVENT_F_LAST | CAREFUL_EVENT_F_LARGE)))
		return false;
	if (ev->begun && (new->event < ev->event || (new->event == ev->event && ev->done)))
		return false;
	if (way->open)
		return new->event == way->event &&new->offset == way->offset &&
		       !((new->flags ^ way->flags) & kind);
	return !new->offset && (!way->any || new->event > way->event);
}

/* Sets *new. Returns false if the group refuses the fragment; one out of order fails the group. */
bool event_may_take(struct careful_events *ev, uint32_t rank, const struct careful_am *am,
		    uint32_t bytes, struct event_fragment *new)
{
	const struct event_node *node = &ev->node[rank];

	*new = (struct event_fragment){
		.event = be64toh(am->region_off),
		.offset = be32toh(am->bytes),
		.bytes = bytes,
		.flags = am->flags,
	};
	if (!node->joined || node->left || ev->error)
		return false;
	if (follows(ev, &node->in, new))
		return true;
	event_fail(ev, rank, -EPROTO);
	return false;
}

/* Reports whether a node may still send something in this event. */
static bool may_come(const struct event_node *node, uint64_t event)
{
	const struct event_direction *way = &node->in;

	return !node->left &&
	       (!way->any || way->event < event || (way->event == event && way->open));
}

/* Returns the rank of the node whose fragment is next, or `nodes` if there is none. */
static uint32_t next_source(struct careful_events *ev, uint32_t src, uint64_t event)
{
	if (src != CAREFUL_EVENT_ALL) {
		const struct event_fragment *first = ev->node[src].first;

		return first && first->event == event ? src : ev->nodes;
	}
	for (uint32_t i = 0; i < ev->nodes; i++) {
		uint32_t rank = ev->turn + i < ev->nodes ? ev->turn + i : ev->turn + i - ev->nodes;
		const struct event_fragment *first = ev->node[rank].first;

		if (first && first->event == event) {
			ev->turn = rank;
			return rank;
		}
	}
	return ev->nodes;
}

static int none_yet(const struct careful_events *ev, uint32_t src, uint64_t event)
{
	for (uint32_t i = 0; i < ev->nodes; i++)
		if (i != ev->rank && (src == CAREFUL_EVENT_ALL || src == i) &&
		    may_come(&ev->node[i], event))
			return -EAGAIN;
	return -ENOMSG; /* no node can still send in this event */
}

/* Reports whether the program may receive this event now: 0 or -errno. */
static int check_order(const struct careful_events *ev, uint32_t src, uint64_t event)
{
	if (src != CAREFUL_EVENT_ALL && (src >= ev->nodes || src == ev->rank))
		return -ENOENT;
	if (ev->begun && event == ev->event)
		return ev->done ? -EILSEQ : 0;
	if (ev->begun && (event < ev->event || !ev->done))
		return -EILSEQ;
	for (uint32_t i = 0; i < ev->nodes; i++)
		if (ev->node[i].first && ev->node[i].first->event < event)
			return -EILSEQ;
	return 0;
}

/* Accounts for a fragment that the application gets. Its event's first fragment sets the event's
 * kind; later ones must match. Returns the status that the application gets. */
static int account(struct careful_events *ev, uint32_t rank, const struct event_fragment *fragment)
{
	bool crowd = fragment->flags & CAREFUL_EVENT_F_CROWD;

	if (!ev->begun || ev->event != fragment->event) {
		ev->begun = true;
		ev->done = false;
		ev->event = fragment->event;
		ev->crowd = crowd;
		ev->source = rank;
		ev->messages = 0;
	}
	if (crowd != ev->crowd || (!crowd && rank != ev->source)) {
		event_fail(ev, rank, -EPROTO);
		return ev->error;
	}
	if (!(fragment->flags & CAREFUL_EVENT_F_LAST))
		return CAREFUL_EVENT_MORE;
	ev->messages++;
	ev->done = ev->messages == (crowd ? ev->nodes - 1 : 1);
	return ev->done ? CAREFUL_EVENT_EVENT_DONE : CAREFUL_EVENT_NODE_DONE;
}

static int give_fragment(struct careful_events *ev, uint32_t rank,
			 struct careful_event_fragment *out)
{
	struct event_node *node = &ev->node[rank];
	struct event_fragment *fragment = node->first;
	int status = account(ev, rank, fragment);

	if (status < 0)
		return status;
	node->first = fragment->next;
	if (!node->first)
		node->last = NULL;
	if (status != CAREFUL_EVENT_MORE)
		ev->turn = rank + 1 < ev->nodes ? rank + 1 : 0;
	ev->given = fragment->kept;
	if (ev->by->give)
		ev->by->give(ev->given);
	*out = (struct careful_event_fragment){
		.data = ev->given->body + MESSAGE_AM_BYTES,
		.bytes = fragment->bytes,
		.offset = fragment->offset,
		.source = rank,
		.status = (uint32_t)status,
	};
	event_trace(ev, 'r', rank, fragment->event, fragment->bytes, fragment->flags);
	fragment->next = ev->free;
	ev->free = fragment;
	return 0;
}

static int receive(struct careful_events *ev, uint32_t src, uint64_t event,
		   struct careful_event_fragment *out)
{
	uint32_t rank;
	int rc;

	if (ev->error)
		return ev->error;
	rc = check_order(ev, src, event);
	if (rc)
		return rc;
	rank = next_source(ev, src, event);
	return rank < ev->nodes ? give_fragment(ev, rank, out) : none_yet(ev, src, event);
}

int careful_event_receive(struct careful_events *ev, uint32_t src, uint64_t event,
			  struct careful_event_fragment *fragment, int timeout_ms)
{
	uint64_t until_ns = 0;
	int rc;

	event_return(ev);
	do {
		rc = receive(ev, src, event, fragment);
		if (rc != -EAGAIN)
			return rc;
		rc = event_wait(ev, &until_ns, timeout_ms);
	} while (!rc);
	return rc;
}
