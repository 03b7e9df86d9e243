/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Events: how the nodes of a parallel program talk (P2 section 5.1). P nodes, each with a
 * rank, share one channel. An event is a step of the program and has a number; events are
 * totally ordered: each node sends, and each node receives, in ascending order, and may leave
 * numbers out. Within an event a node may send one message to each of the others; a message is
 * one or more fragments, each in one frame. A node receives one message per event, or, of a
 * crowd event, one from every other node.
 *
 * What was sent is not kept here (P2 section 2.1): the peer has a buffer for it. What came and
 * is not consumed yet stays in its receive buffer, and is copied out when these run short (P2
 * section 5.3), so a program may send more than a window before it consumes, up to the
 * instance's copyout_buffers. A broadcast is one frame where one reaches all nodes; else the
 * sender replicates it (careful_events_broadcast()).
 */
#ifndef CAREFUL_EVENT_H
#define CAREFUL_EVENT_H

#ifndef CAREFUL_CDEF
#include <careful/careful.h>
#ifdef __cplusplus
extern "C" {
#endif
#endif

struct careful_events; /* this node's part in a group; one at a time in an instance */

enum {
	CAREFUL_EVENT_NODES_MAX = 256,
	CAREFUL_EVENT_ALL = 0xffffffff, /* destination: all others. Source: any of them */
};

/* Flags of careful_event_send(). */
enum {
	CAREFUL_EVENT_F_LAST = 0x02, /* this node's last fragment to dst in this event */
	CAREFUL_EVENT_F_CROWD =
		0x04, /* all others send to dst in this event, too (P2: BCAST_Event) */
	CAREFUL_EVENT_F_LARGE = 0x08, /* the message has several fragments; set on each of them */
};

/* What careful_event_receive() says of what comes after a fragment. */
enum careful_event_status {
	CAREFUL_EVENT_MORE = 1, /* there are, or will be, more of its source's message */
	CAREFUL_EVENT_NODE_DONE = 2, /* this was its source's last one */
	CAREFUL_EVENT_EVENT_DONE = 3, /* this was the last one of the event */
};

/*
 * A group of nodes.
 *
 * @group:   a number that all of its nodes give, so that none takes another program's
 * @nodes:   P, 1 to CAREFUL_EVENT_NODES_MAX
 * @rank:    this node's, from 0
 * @replicate: not 0: this node's broadcasts are a frame for each node, even where one reaches all
 * @peers:   of each rank its index (careful_peer()); this node's own does not count
 * @requests: not 0: what this group's nodes send one another are requests, since some of them are
 *           careful_attach()ed; these need not say so, all others must. The handler
 *           CAREFUL_HANDLERS_APP - 1 - group % CAREFUL_HANDLERS_APP is the group's, then
 */
struct careful_events_options {
	uint32_t group;
	uint32_t nodes;
	uint32_t rank;
	uint32_t replicate;
	const uint32_t *peers;
	uint32_t requests;
};

/*
 * A fragment that was received.
 *
 * @data:    its bytes, where the frame put them (not aligned), until the next
 *           careful_event_receive() or careful_events_close()
 * @offset:  where it stands in its message, bytes
 * @source:  rank of the node that sent it
 * @status:  enum careful_event_status
 */
struct careful_event_fragment {
	const void *data;
	uint32_t bytes;
	uint32_t offset;
	uint32_t source;
	uint32_t status;
};

/*
 * Takes part in a group: returns at once; nodes find each other while they send or receive.
 * -EBUSY: the instance is in one already, or the handler is taken; -EINVAL: rank or number of
 * nodes; -ENOENT: no such peer; -ENOBUFS: too few send buffers for a broadcast.
 */
int careful_events_open(struct careful *instance, const struct careful_events_options *options,
			struct careful_events **events);
/*
 * Ends it. status 0: this node is done; else (-errno) it has failed, which every other node
 * is told: so it is where a message of this node's lacks its last fragment. Polls until that has
 * left, timeout_ms at most (-1: no limit), then -ETIMEDOUT; it is closed in any case.
 */
int careful_events_close(struct careful_events *events, int status, int timeout_ms);

/* Most bytes that a fragment can have; -EAGAIN while some node is not there yet. */
int careful_event_bytes(struct careful_events *events);

/*
 * Sends a fragment to one node, or to all; what lies at `data` is copied into the frame, and a
 * message leaves with its last fragment. Polls until there is room for it, timeout_ms at most
 * (0: does not poll, -1: no limit).
 * -EAGAIN, with timeout_ms 0, or -ETIMEDOUT: a node is not there yet, or has no buffer free;
 * nothing was sent, to nobody.
 * -ENOBUFS: nothing could be sent for 3 * sync_ms while all room to copy out is taken by what this
 * node has not consumed: receive, then send again, or raise copyout_buffers.
 * -ENOENT: no such node; -EINVAL: unknown flags, others than before in this event, or fragments
 * but the last without CAREFUL_EVENT_F_LARGE; -EILSEQ: an earlier event, one whose message has
 * ended, or another while one lacks its last fragment; -EMSGSIZE; -EPIPE: that node has left;
 * -EDEADLK: would poll in a callback.
 * Any other: the group has failed (careful_events_failed()), and so does each further call.
 */
int careful_event_send(struct careful_events *events, uint32_t dst, uint64_t event,
		       const void *data, uint32_t bytes, uint32_t flags, int timeout_ms);

/*
 * Says, before a large message's first fragment, how many bytes it will have to one node or to
 * all: a node with a reserve (careful_options) may grant buffers beside the window for it (P2
 * section 7). What has been said is over with the last fragment. Frames to all in one ask for
 * nothing. -ENOENT: no such node; any other: the group has failed.
 */
int careful_event_ahead(struct careful_events *events, uint32_t dst, uint64_t bytes);

/*
 * Receives a fragment of an event, from one node or from any, waiting as careful_event_send()
 * does. Fragments of one source come in the order in which they were sent.
 * -EAGAIN, -ETIMEDOUT: there is none yet; -ENOMSG: none will come: who could send one has
 * left or is past this event;
 * -ENOENT: no such node; -EILSEQ: an event that is done, or another while one is not, or one
 * after fragments that nobody consumed; -EDEADLK.
 * Any other: the group has failed. -EPROTO: a node broke the rules above.
 */
int careful_event_receive(struct careful_events *events, uint32_t src, uint64_t event,
			  struct careful_event_fragment *fragment, int timeout_ms);

/*
 * Why the group failed: -errno, and in *rank the node that did; 0: it has not. A session
 * that broke (-ECONNRESET: also where the network lost a frame), ended or fell silent for stall_ms
 * fails the group here; every other node is told, and finds out by itself if it is that node's
 * peer. A node that fails fails the group for all, within stall_ms at most.
 */
int careful_events_failed(const struct careful_events *events, uint32_t *rank);

/*
 * How this node's broadcasts leave. 0: each fragment in one frame to all; -EAGAIN: not yet, it is
 * being found out. Else they are replicated, for this reason: -EOPNOTSUPP: the device or the
 * protocol has no frames to all, the group goes by requests, there are fewer than three nodes, or
 * it is to replicate; -EAFNOSUPPORT: a node has none by IPv6; -EHOSTUNREACH: such frames do not
 * reach each node; or what a node refused them with.
 */
int careful_events_broadcast(const struct careful_events *events);

/*
 * From now on notes what is sent and received, for `carefulctl trace events`; written to
 * a file in this directory at the end. careful_events_open() calls it where the environment has
 * CAREFUL_EVENT_TRACE. -ENOMEM, -ENAMETOOLONG, or what opening the file fails with.
 */
int careful_events_trace(struct careful_events *events, const char *directory);

#ifndef CAREFUL_CDEF
#ifdef __cplusplus
}
#endif
#endif
#endif /* CAREFUL_EVENT_H */
