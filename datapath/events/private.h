/* SPDX-License-Identifier: BSD-2-Clause */
/* The inside of the event service (P2 section 5.1): a group, its nodes, and the fragments that are
 * not consumed yet. */
#pragma once

#include <careful/event.h>

#include "link/group.h"
#include "engine/engine.h"

enum {
	EVENT_NOBODY = 0xffff, /* rank of a peer outside the group */
	EVENT_FLAGS = CAREFUL_EVENT_F_LAST | CAREFUL_EVENT_F_CROWD | CAREFUL_EVENT_F_LARGE,
};

/* For a group by requests: most unanswered fragments to one node; fragments kept here from all
 * nodes before answers are delayed; sync_ms of an attached instance, which has none. */
enum { EVENT_WINDOW = 16, EVENT_ROOM = 4096, EVENT_ASKED_MS = 200 };

/* A received fragment, in its receive buffer or copied out. */
struct event_fragment {
	struct event_fragment *next; /* in its source's queue or the free list */
	struct link_held *kept;
	uint64_t event;
	uint32_t offset;
	uint32_t bytes;
	uint8_t flags; /* CAREFUL_EVENT_F_* */
};

/*
 * One direction between two nodes, which carries one message after the other.
 *
 * @event:   event of the last message; not valid before the first (any)
 * @open:    that message lacks its last fragment
 * @offset:  its bytes so far
 * @ahead:   out: bytes that were announced and have not left
 */
struct event_way {
	uint64_t event;
	uint64_t ahead;
	uint32_t offset;
	uint8_t flags;
	bool any, open;
};

/*
 * Another node.
 *
 * @joined:    it takes part; @part: the number of its part
 * @left:      it has told us that it is done
 * @asked:     JOIN was sent to it; @aware: its own JOIN named our part
 * @owes_fail, @owes_leave: what we still have to send to it, in this order
 * @awaited:   its session is watched for a sign of life
 * @ask_ns:    when to send JOIN again; UINT64_MAX: both ends know of each other
 * @owes_heard: it must be told whether its frames to all arrive
 * @refusal:   the positive errno why they will not; 0: they do
 * @hears:     it gets our frames to all
 * @first, @last: queue of its fragments
 *
 * In a group by requests (requests.c):
 * @index:     its index at the instance
 * @body_most: largest payload of a request to it; 0: unknown
 * @under_way: unanswered fragments to it
 * @joining, @staying: JOIN and STAY are unanswered
 * @stays, @stay: its STAY, which we must answer
 * @owed, @owed_at, @owed_count: its fragments to be answered, oldest first
 */
struct event_node {
	struct link_peer *peer;
	struct event_way in, out;
	struct event_fragment *first, *last;
	uint64_t ask_ns;
	uint32_t part;
	bool owes_fail, owes_leave;
	bool joined, left, asked, aware, awaited;
	bool owes_heard, hears;
	int refusal;

	struct careful_events *ev;
	uint32_t index, body_most, under_way;
	bool joining, staying, stays;
	struct careful_reply_to stay;
	struct careful_reply_to owed[EVENT_WINDOW];
	uint32_t owed_at, owed_count;
};

/*
 * How fragments and the nodes' other messages travel.
 *
 * @tell:      sends a message; false: not now
 * @may_send:  reports whether a node has room for this many bytes
 * @room:      reports whether this end can send this many frames
 * @bytes:     returns the largest payload of a fragment, or -EAGAIN
 * @withholds: reports whether this node keeps others from sending
 * @close, @owes, @give: may be NULL
 * @owes:      reports whether something would be lost with this process
 * @give:      gives a fragment to the application; the fragment stays in its place
 * @let_go:    releases a fragment; @consumed: called after that
 */
struct event_transport {
	int (*open)(struct careful_events *ev, const uint32_t *peers);
	void (*close)(struct careful_events *ev);
	bool (*tell)(struct careful_events *ev, struct event_node *node,
		     const struct careful_am *am);
	bool (*send)(struct careful_events *ev, uint32_t rank, const struct careful_am *am,
		     const void *data, uint32_t bytes);
	bool (*may_send)(const struct event_node *node, uint32_t bytes);
	bool (*room)(const struct careful_events *ev, uint32_t frames);
	int (*bytes)(struct event_node *node);
	bool (*withholds)(const struct careful_events *ev);
	bool (*owes)(const struct careful_events *ev);
	void (*round)(struct careful_events *ev);
	void (*let_go)(struct careful_events *ev, struct link_held *held);
	void (*give)(struct link_held *held);
	void (*consumed)(struct careful_events *ev);
};

extern const struct event_transport event_by_frames; /* frames.c */
extern const struct event_transport event_by_requests; /* requests.c */

/* A record of one send or receive (trace.c). */
struct event_note {
	uint64_t at_ns;
	uint64_t event;
	uint32_t node;
	uint32_t bytes;
	uint8_t flags;
	char what; /* 's' or 'r' */
};

/*
 * @event, @begun, @done:  the event being received; some of it, and all of it, was consumed
 * @crowd, @source, @messages: its kind, its first sender, and how many messages have ended
 * @turn:      the node to look at first if the source may be any
 * @sent, @sent_any: the last event sent, and whether there is one
 * @sending:   nodes to which a message lacks its last fragment
 * @blocked_ns: since when nothing could be sent and nothing was consumed; 0: not blocked
 * @waiting:   a sender of @waiting_bytes to @waiting_dst wants to know when there is room
 * @given:     the fragment that the application has, which must not move
 * @cookie:    of frames to all; 0: there will be none
 * @group:     the link's group of these frames; NULL: none, because of @group_error
 * @hear:      nodes that get these frames
 * @probe_ns:  when the next probe is due
 * @by:        how fragments travel
 * @window, @room: most fragments under way to a node, and kept here
 * @handler:   of a group by requests
 * @kept:      fragments kept here
 * @pending:   requests whose end has not been told
 * @leaving:   this node is done and tells the others
 * @over:      closed, waits only for @pending; @forgotten: the next such group
 */
struct careful_events {
	struct careful *c;
	uint32_t number, nodes, rank; /* number of the group, its size, our rank */
	uint32_t joined; /* nodes that have joined */
	uint32_t part; /* number of our part, unlike any earlier one */
	struct event_node *node;
	uint16_t *rank_of; /* rank of each peer */
	struct event_fragment *fragments, *free;

	uint64_t event;
	bool begun, done, crowd;
	uint32_t source, messages, turn;

	uint64_t sent;
	bool sent_any;
	uint32_t sending;
	uint64_t blocked_ns;
	bool waiting;
	uint32_t waiting_dst, waiting_bytes;

	struct link_held *given;
	int error;
	uint32_t error_rank;

	uint64_t cookie;
	struct link_group *group;
	int group_error;
	uint32_t hear;
	uint64_t probe_ns;

	const struct event_transport *by;
	uint32_t window, room;
	uint16_t handler;
	uint32_t kept, pending;
	bool leaving, over;
	struct careful_events *forgotten;

	struct event_note *notes;
	uint64_t notes_count;
	int notes_fd;
};

/* Reports whether a node knows that we have joined; before that it drops our messages. */
static inline bool event_knows_us(const struct event_node *node)
{
	return node->joined && node->ask_ns == UINT64_MAX;
}

/* Reports whether a node must hear of our end, because our JOIN may have reached it. A node that
 * left without naming our part may have left with an earlier part, and its later one may rely on
 * us. */
static inline bool event_is_to_hear(const struct event_node *node)
{
	return node->asked && !(node->left && node->aware);
}

/* Reports whether a node has joined but not heard of us: it must get our JOIN, and then our end. */
static inline bool event_is_awaited(const struct event_node *node)
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
void event_less_ahead(struct careful_events *ev, struct event_node *node, uint32_t bytes,
		      uint32_t flags);
void event_give_up(struct careful_events *ev, struct event_node *node);

/* member.c */
void event_watch(struct event_node *node, bool on);
void event_gone(struct careful_events *ev, uint32_t rank, int error);
void event_fail(struct careful_events *ev, uint32_t rank, int error);
void event_said(struct careful_events *ev, uint32_t rank, const struct careful_am *am);
void event_say_all(struct careful_events *ev, struct event_node *node);

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
void event_group_say_off(struct careful_events *ev, struct event_node *node);
void event_group_init(struct careful_events *ev, bool replicate);
void event_group_join(const struct careful_events *ev, struct careful_am *join);
void event_group_joined(struct careful_events *ev, uint32_t rank, const struct careful_am *join);
void event_group_heard(struct careful_events *ev, uint32_t rank, const struct careful_am *am);
void event_group_round(struct careful_events *ev);
bool event_group_can(const struct careful_events *ev);
bool event_group_may_send(struct careful_events *ev, uint32_t bytes);
void event_group_unhold(struct careful_events *ev);

/* trace.c */
void event_note_down(struct careful_events *ev, char what, uint32_t node, uint64_t event,
		     uint32_t bytes, uint32_t flags);
void event_trace_end(struct careful_events *ev);

static inline void event_note(struct careful_events *ev, char what, uint32_t node, uint64_t event,
			      uint32_t bytes, uint32_t flags)
{
	if (ev->notes)
		event_note_down(ev, what, node, event, bytes, flags);
}
