/* SPDX-License-Identifier: BSD-2-Clause */
/* The event service from the inside (P2 section 5.1): a group, its nodes, and the fragments that
 * nobody has consumed yet. */
#ifndef EVENTS_PRIVATE_H
#define EVENTS_PRIVATE_H

#include <careful/event.h>

#include "link/group.h"
#include "engine/engine.h"

enum {
	EVENT_NOBODY = 0xffff, /* a peer that is no node of the group */
	EVENT_FLAGS = CAREFUL_EVENT_F_LAST | CAREFUL_EVENT_F_CROWD | CAREFUL_EVENT_F_LARGE,
};

/* Of a group that goes by requests: to one node without an answer, and kept here of all nodes
 * before who sends waits. */
enum { EVENT_WINDOW = 16, EVENT_ROOM = 4096, EVENT_ASKED_MS = 200 };

/* A fragment that came, in its receive buffer or copied out. */
struct event_fragment {
	struct event_fragment *next; /* of its source's, or among the free ones */
	struct link_held *kept;
	uint64_t event;
	uint32_t offset;
	uint32_t bytes;
	uint8_t flags; /* CAREFUL_EVENT_F_* */
};

/*
 * One direction between two nodes: its messages, one after the other.
 *
 * @event:   of the last message; nothing before the first (any)
 * @open:    it lacks its last fragment
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
 * @joined:    it takes part, @part: with this number
 * @left:      it has said that it is done
 * @asked:     JOIN was said to it, @aware: and its own named our part
 * @owes_fail, @owes_leave: what it still has to be told, in this order
 * @awaited:   its session is watched: service waits for a sign of it
 * @ask_ns:    when JOIN is said again; UINT64_MAX: both have heard
 * @owes_heard: it is to be told whether its frames to all come,
 * @refusal:   a positive errno: they will not
 * @hears:     it gets our frames to all
 * @first, @last: fragments that came, in their order
 *
 * Where the group goes by requests (requests.c):
 * @index:     how the instance calls it
 * @body_most: payload of a request to it; 0: not known yet
 * @under_way: fragments to it without an answer
 * @joining, @staying: JOIN and STAY have none
 * @stays, @stay: its STAY, to be answered
 * @owed, @owed_at, @owed_count: answers to its fragments, the oldest first
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
 * How fragments and what nodes tell each other travel.
 *
 * @tell:      false: not now
 * @may_send:  reports whether a node can take so many bytes, @room: whether this end can send
 *             so many frames
 * @bytes:     returns the most payload of a fragment, or -EAGAIN
 * @withholds: reports whether this node keeps others from sending
 * @close, @owes, @give: may be NULL
 * @owes:      reports whether something would be lost with this process
 * @give:      the application has the fragment, which stays in its place; @let_go: nobody wants
 *             it any more; @consumed: called after that
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

/* A note of what was sent or consumed (trace.c). */
struct event_note {
	uint64_t at_ns;
	uint64_t event;
	uint32_t node;
	uint32_t bytes;
	uint8_t flags;
	char what; /* 's' or 'r' */
};

/*
 * @event, @begun, @done:  the event being received, whether some of it was consumed, and all
 * @crowd, @source, @messages: of it: its kind, who sent the first, how many have ended
 * @turn:      which node is looked at first where the source may be any
 * @sent, @sent_any: the last event sent
 * @sending:   nodes to which a message lacks its last fragment
 * @blocked_ns: since when nothing could be sent and nothing was consumed; 0: that is not so
 * @waiting:   who sends @waiting_bytes to @waiting_dst is to be told when there is room
 * @given:     what the application has; its place is fixed
 * @cookie:    of frames to all; 0: there will be none
 * @group:     to which they go; NULL: there are none, @group_error: for this reason
 * @hear:      nodes that get them
 * @probe_ns:  when the next probe is due
 * @by:        how fragments travel
 * @window, @room: fragments on their way to a node at most, and kept here
 * @handler:   requests: where they go
 * @kept:      fragments that are kept here,
 * @pending:   and requests whose end has not been told
 * @leaving:   this node says that it is done
 * @over:      it waits for that alone; @forgotten: the next that does
 */
struct careful_events {
	struct careful *c;
	uint32_t number, nodes, rank; /* of the group, in it, this one's */
	uint32_t joined; /* nodes that have */
	uint32_t part; /* the number of ours: not that of an earlier one */
	struct event_node *node;
	uint16_t *rank_of; /* of each peer */
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

/* Reports whether a node has been told that we take part: what comes to it before is nobody's there. */
static inline bool event_knows_us(const struct event_node *node)
{
	return node->joined && node->ask_ns == UINT64_MAX;
}

/* Reports whether it is to hear what becomes of us here: our JOIN may have found it. Who has left and did
 * not name our part left with an earlier one of its own, and a later one may rely on us. */
static inline bool event_is_to_hear(const struct event_node *node)
{
	return node->asked && !(node->left && node->aware);
}

/* Reports whether a node has joined that has not heard of us: it is to, and then of our end. */
static inline bool event_is_awaited(const struct event_node *node)
{
	return node->joined && !node->asked && !node->left;
}

/* Says something to a node, now; false: not now. */
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

#endif /* EVENTS_PRIVATE_H */
