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

/* Limits of a group by requests. */
enum {
	EVENT_WINDOW = 16, /* most unanswered fragments to one node */
	EVENT_ROOM = 4096, /* kept fragments of all nodes above which answers wait */
	EVENT_ASKED_MS = 200, /* sync_ms of attached instances */
};

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
	uint64_t ahead; /* outgoing: announced bytes that were not sent yet */
	uint32_t offset; /* bytes of the last message so far */
	uint8_t flags;
	bool any; /* there was a message */
	bool open; /* the last message lacks its last fragment */
};

/* Another node. */
struct event_node {
	struct link_peer *peer;
	struct event_direction in, out;
	struct event_fragment *first, *last; /* queue of its fragments */
	/* when to send JOIN again; UINT64_MAX: never (both ends have the other's, or we leave) */
	uint64_t join_ns;
	uint32_t membership; /* random number in its JOIN, new each time that it joins */
	bool owes_fail, owes_leave; /* messages that we must send to it, in this order */
	bool joined; /* its JOIN arrived */
	bool left; /* its LEAVE arrived, or its session is over */
	bool join_sent; /* our JOIN was sent to it */
	bool named_us; /* its JOIN named our membership, so it had our JOIN */
	bool awaited; /* its session is watched for a sign of life */
	bool owes_heard; /* we must report to it whether its broadcasts arrive here */
	int refusal; /* positive errno why its broadcasts do not arrive; 0: they do */
	bool gets_broadcasts; /* our broadcasts arrive there */
	/* plan of the announced message to it; the first node's also cuts messages to all nodes */
	struct plan_cursor plan;
	uint32_t next_bytes; /* size of that message's next fragment; 0: not planned yet */

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
	/* Sends a message. Returns false if there is no room now. */
	bool (*post)(struct careful_events *ev, struct event_node *node,
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
	/* Reports whether messages would be lost if this process ended now. */
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
	uint32_t membership; /* our random number, which is new each time that we join */
	struct event_node *node;
	uint16_t *rank_of; /* rank of each peer */
	struct event_fragment *fragments, *free;

	uint64_t event; /* the event that the application receives */
	bool begun, done; /* the application has consumed some, or all, of it */
	bool crowd; /* all other nodes send to us in this event */
	uint32_t source, messages; /* the event's first sender; its messages that have ended */
	uint32_t turn; /* the first node to examine for an event from any source */

	uint64_t sent; /* the last event sent, if sent_any */
	bool sent_any;
	uint32_t sending; /* nodes to which a message lacks its last fragment */
	/* since when a lack of room stops us and the application has received nothing; 0: not so */
	uint64_t blocked_ns;
	bool waiting; /* a sender waits for room for waiting_bytes to waiting_dst */
	uint32_t waiting_dst, waiting_bytes;

	struct link_held *given; /* the fragment that the application reads; must not move */
	int error;
	uint32_t error_rank;

	uint64_t cookie; /* of our frames to all nodes; 0: we send none */
	struct link_group *group; /* sends frames to all nodes; NULL: not open, or group_error */
	int group_error;
	uint32_t hearers; /* nodes that get frames to all */
	uint64_t probe_ns; /* when the next probe is due */

	const struct event_transport *by; /* the transport */
	uint32_t window, room; /* most fragments under way to a node; most fragments kept here */
	uint16_t handler; /* of a group by requests */
	uint32_t kept; /* fragments kept here */
	uint32_t pending; /* requests under way */
	bool leaving; /* we send LEAVE or FAIL to the other nodes */
	bool over; /* closed; freed when no request is pending */
	struct careful_events *forgotten; /* the next group that is over */

	struct event_record *records;
	uint64_t records_count;
	int trace_fd;
};

/* Reports whether a node has our JOIN. Until then, the node drops our other messages. */
static inline bool event_knows_us(const struct event_node *node)
{
	return node->joined && node->join_ns == UINT64_MAX;
}

/* Reports whether a node needs our LEAVE or FAIL, because it may have our JOIN. A node that has
 * left without a sign of our JOIN may join again, and would then wait for us. */
static inline bool event_needs_end(const struct event_node *node)
{
	return node->join_sent && !(node->left && node->named_us);
}

/* Reports whether a node that has joined needs our first JOIN before our LEAVE or FAIL. */
static inline bool event_needs_join(const struct event_node *node)
{
	return node->joined && !node->join_sent && !node->left;
}

static inline bool event_post(struct careful_events *ev, struct event_node *node,
			      struct careful_am am)
{
	am.kind = CAREFUL_AM_EVENT;
	am.region = htobe32(ev->number);
	return ev->by->post(ev, node, &am);
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
