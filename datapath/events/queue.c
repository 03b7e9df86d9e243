// SPDX-License-Identifier: BSD-2-Clause
/* Queues of fragments, announced bytes, and waits. */
#include "events/private.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

void event_destroy(struct careful_events *ev)
{
	free(ev->node);
	free(ev->rank_of);
	free(ev->fragments);
	free(ev->records);
	free(ev);
}

/* Polls for a while. Returns 0 to try again. *until_ns is 0 before the first call. */
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

void event_drop(struct careful_events *ev, struct event_node *node)
{
	struct event_fragment *fragment;

	while ((fragment = node->first)) {
		node->first = fragment->next;
		ev->by->let_go(ev, fragment->kept);
		fragment->next = ev->free;
		ev->free = fragment;
	}
	node->last = NULL;
}

void event_add(struct careful_events *ev, struct event_node *node, const struct event_fragment *new)
{
	struct event_fragment *fragment = ev->free;
	struct event_direction *way = &node->in;

	assert(fragment); /* one for each buffer and each copy */
	ev->free = fragment->next;
	*fragment = *new;
	fragment->next = NULL;
	if (node->last)
		node->last->next = fragment;
	else
		node->first = fragment;
	node->last = fragment;
	way->any = true;
	way->event = new->event;
	way->flags = new->flags;
	way->open = !(new->flags &CAREFUL_EVENT_F_LAST);
	way->offset = way->open ? new->offset + new->bytes : 0;
}

/* Subtracts sent bytes from those announced to a node. */
void event_reduce_announced(struct careful_events *ev, struct event_node *node, uint32_t bytes,
			    uint32_t flags)
{
	struct event_direction *way = &node->out;
	uint64_t less = way->ahead < bytes || flags & CAREFUL_EVENT_F_LAST ? way->ahead : bytes;

	if (!less)
		return;
	way->ahead -= less;
	message_ahead(&ev->c->messages, node->peer, 0, less);
}

void event_drop_announced(struct careful_events *ev, struct event_node *node)
{
	event_reduce_announced(ev, node, 0, CAREFUL_EVENT_F_LAST);
}
