/* SPDX-License-Identifier: BSD-2-Clause */
/* The inside of the event service (P2 section 5.1): a group, its nodes, and fragments. */
#pragma once

#include <careful/event.h>

#include "link/send/group.h"
#include "engine/engine.h"

enum {
	EVENT_NOBODY = 0xffff, /* rank of a peer outside the group */
	EVENT_FLAGS = CAREFUL_EVENT_F_LAST | CAREFUL_EVENT_F_CROWD | CAREFUL_EVENT_F_LARGE,
};

/* For a group by requests: most unanswered fragments to one node; most fragments kept here from all
 * nodes without delayed answers; and the sync_ms of attached instances. */
enum { EVENT_WINDOW = 16, EVENT_ROOM = 4096, EVENT_ASKED_MS = 200 };

/* A received fragment. */
struct event_fragment {
	struct event_fragment *next; /* in its source's queue or the free list */
	struct link_held *kept; /* its receive buffer or copy */
	uint64_t event;
	uint32_t offset;
	uint32_t bytes;
	uint8_t flags; /* CAREFUL_EVENT_F_* */
};

/* One direction between two nodes, which carries one message at a time. */
struct event_direction {
	uint64_t event; /* event of the last message */
	uint64_t ahead; /* out: announced bytes that have not left */
	uint32_t offset; /* its bytes so far */
	uint8_t flags;
	bool any; /* there was a message */
	bool open; /* the last message lacks its last fragment */
};

/* Another node. */
struct event_node {
	struct link_peer *peer;
	struct event_direction in, out;
	struct event_fragment *first, *last; /* queue of its fragments */
	uint64_t ask_ns; /* when to send JOIN again; UINT64_MAX: each end has the other's JOIN */
	uint32_t part; /* the random number of its part */
	bool owes_fail, owes_leave; /* messages that we must send to it, in this order */
	bool joined; /* its JOIN arrived */
	bool left; /* its LEAVE arrived, or its session is over */
	bool asked; /* our JOIN was sent to it */
	bool aware; /* its own JOIN named our part */
	bool awaited; /* its session is watched for a sign of life */
	bool owes_heard; /* we must report to it whether its broadcasts arrive */
	bool hears; /* it gets our broadcasts */
	int refusal; /* the positive errno why they do not; 0: they do */
	/* of the announced message to it, or to all nodes if it is the first of them */
	struct plan_cursor plan;
	uint32_t next_bytes; /* of that message's next fragment; 0: to be taken from the plan */

	/* In a group by requests (requests.c). */
	struct careful_events *ev;
	uint32_t index; /* its index at the instance */
	uint32_t body_most; /* largest payload of a request to it; 0: unknown */
	uint32_t under_way; /* unanswered fragments to it */
	bool joining, staying; /* JOIN and STAY are unanswered */
	bool stays; /* we must answer its STAY */
	struct careful_reply_to stay;
	struct careful_reply_to owed[EVENT_WINDOW]; /* ring of its unanswered fragments */
	uint32_t owed_at, owed_count;
};

/* The transport of fragments and of the nodes' other messages. close, owes and give may be NULL. */
struct event_transport {
	int (*open)(struct careful_events *ev, const uint32_t *peers);
	void (*close)(struct careful_events *ev);
	/* Sends a message; false: not now. */
	bool (*tell)(struct careful_events *ev, struct event_node *node,
		     const struct careful_am *am);
	bool (*send)(struct careful_events *ev, uint32_t rank, const struct careful_am *am,
		     const void *data, uint32_t bytes);
	/* Reports whether a node has room for this many bytes. */
	bool (*may_send)(const struct event_node *node, uint32_t bytes);
	/* Reports whether this end can send this many frames. */
	bool (*room)(const struct careful_events *ev, uint32_t frames);
	/* Returns the largest payload of a fragment, or -EAGAIN. */
	int (*bytes)(struct event_node *node);
	/* Reports whether this node keeps others from sending. */
	bool (*withholds)(const struct careful_events *ev);
	/* Reports whether the end of this process would lose messages. */
	bool (*owes)(const struct careful_events *ev);
	void (*round)(struct careful_events *ev);
	/* Releases a fragment. */
	void (*let_go)(struct careful_events *ev, struct link_held *held);
	/* Pins a fragment that the application gets. */
	void (*give)(struct link_held *held);
	/* Called after let_go(). */
	void (*consumed)(struct careful_events *ev);
};

extern const struct event_transport event_by_frames; /* frames.c */
extern const struct event_transport event_by_requests; /* requests.c */

/* The record of one send or receive (trace.c). */
struct event_record {
	uint64_t at_ns;
	uint64_t event;
	uint32_t node;
	uint32_t bytes;
	uint8_t flags;
	char kind; /* 's' or 'r' */
};

struct careful_events {
	struct careful *c;
	uint32_t number, nodes, rank; /* number of the group, its size, our rank */
	uint32_t joined; /* nodes that have joined */
	uint32_t part; /* number of our part, unlike any earlier one */
	struct event_node *node;
	uint16_t *rank_of; /* rank of each peer */
	struct event_fragment *fragments, *free;

	uint64_t event; /* being received */
	bool begun, done; /* a part, all of it, was consumed */
	bool crowd; /* its kind */
	uint32_t source, messages; /* its first sender; messages that have ended */
	uint32_t turn; /* the first node to examine if the source may be any */

	uint64_t sent; /* the last event sent, if sent_any */
	bool sent_any;
	uint32_t sending; /* nodes to which a message lacks its last fragment */
	/* when sending became blocked, if nothing was consumed since; 0: not blocked */
	uint64_t blocked_ns;
	bool waiting; /* a sender waits for room for waiting_bytes to waiting_dst */
	uint32_t waiting_dst, waiting_bytes;

	struct link_held *given; /* the fragment that the application has, which must not move */
	int error;
	uint32_t error_rank;

	uint64_t cookie; /* of broadcasts in one frame; 0: there are none */
	/* the link's group of these frames; NULL: none, because of group_error */
	struct link_group *group;
	int group_error;
	uint32_t hearers; /* nodes that get these frames */
	uint64_t probe_ns; /* when the next probe is due */

	const struct event_transport *by; /* the transport */
	uint32_t window, room; /* most fragments under way to a node, and kept here */
	uint16_t handler; /* of a group by requests */
	uint32_t kept; /* fragments kept here */
	uint32_t pending; /* requests under way */
	bool leaving; /* this node sends its end to the others */
	bool over; /* closed, waits only for pending */
	struct careful_events *forgotten; /* the next such group */

	struct event_record *records;
	uint64_t records_count;
	int trace_fd;
};

/* Reports whether a node has our JOIN; before that it drops our messages. */
static inline bool event_knows_us(const struct event_node *node)
{
	return node->joined && node->ask_ns == UINT64_MAX;
}

/* Reports whether a node needs our LEAVE or FAIL, because our JOIN may have reached it. A node that
 * left without naming our part may take part again, and rely on us. */
static inline bool event_needs_end(const struct event_node *node)
{
	return node->asked && !(node->left && node->aware);
}

/* Reports whether a node has joined without our JOIN: it needs our JOIN, then our LEAVE or FAIL. */
static inline bool event_needs_join(const struct event_node *node)
{
	return node->joined && !node->asked && !node->left;
}

/* Sends a message to a node; false: not now. */
static inline bool event_tell(struct careful_events *ev, struct event_node *node,
			      struct careful_am am)
{
	am.kind = CAREFUL_AM_EVENT;
	am.region = htobe32(ev->number);
	return ev->by->tell(ev, node, &am);
}

/* queue.c */
void event_destroy(struct careful_events *ev);
int event_wait(struct careful_events *ev, uint64_t *until_ns, int timeout_ms);
void event_add(struct careful_events *ev, struct event_node *node,
	       const struct event_fragment *fragment);
void event_drop(struct careful_events *ev, struct event_node *node);
void event_reduce_announced(struct careful_events *ev, struct event_node *node, uint32_t bytes,
			    uint32_t flags);
void event_drop_announced(struct careful_events *ev, struct event_node *node);

/* member.c */
void event_watch(struct event_node *node, bool on);
void event_session_over(struct careful_events *ev, uint32_t rank, int error);
void event_fail(struct careful_events *ev, uint32_t rank, int error);
void event_on_message(struct careful_events *ev, uint32_t rank, const struct careful_am *am);
void event_send_owed(struct careful_events *ev, struct event_node *node);

/* frames.c */
void event_arrived(struct careful *c, struct link_rxframe *frame, const struct careful_am *am);

/* in.c */
bool event_may_take(struct careful_events *ev, uint32_t rank, const struct careful_am *am,
		    uint32_t bytes, struct event_fragment *fragment);
void event_return(struct careful_events *ev);

/* out.c */
bool event_may_send(struct careful_events *ev, uint32_t dst, uint32_t bytes);

/* group.c */
void event_group_off(struct careful_events *ev, int error);
void event_group_report_off(struct careful_events *ev, struct event_node *node);
void event_group_init(struct careful_events *ev, bool replicate);
void event_group_join(const struct careful_events *ev, struct careful_am *join);
void event_group_joined(struct careful_events *ev, uint32_t rank, const struct careful_am *join);
void event_group_heard(struct careful_events *ev, uint32_t rank, const struct careful_am *am);
void event_group_round(struct careful_events *ev);
bool event_group_is_ready(const struct careful_events *ev);
bool event_group_may_send(struct careful_events *ev, uint32_t bytes);
void event_group_unhold(struct careful_events *ev);

/* trace.c */
void event_trace_add(struct careful_events *ev, char kind, uint32_t node, uint64_t event,
		     uint32_t bytes, uint32_t flags);
void event_trace_end(struct careful_events *ev);

static inline void event_trace(struct careful_events *ev, char kind, uint32_t node, uint64_t event,
			       uint32_t bytes, uint32_t flags)
{
	if (ev->records)
		event_trace_add(ev, kind, node, event, bytes, flags);
}
