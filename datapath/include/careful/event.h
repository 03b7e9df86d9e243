/* SPDX-License-Identifier: BSD-2-Clause */
/* Events: communication between the nodes of a parallel program (P2 section 5.1). P nodes, each
 * with a rank, share one channel. An event is a numbered step of the program. Events are totally
 * ordered: each node sends and receives in ascending order and may skip numbers. Within an event a
 * node may send one message to each other node. A message is one or more fragments, each in one
 * frame. A node receives one message per event; in a crowd event it receives one from every other
 * node.
 *
 * The sender keeps no copy (P2 section 2.1), because the peer has a buffer for each frame. A
 * received fragment stays in its receive buffer until it is consumed; if buffers run short, it is
 * copied out (P2 section 5.3). So a program can send more than a window before it consumes, up to
 * copyout_buffers of the instance. A broadcast is one frame if one frame reaches all nodes;
 * otherwise the sender replicates it (careful_events_broadcast()). */
#ifndef CAREFUL_EVENT_H
#define CAREFUL_EVENT_H

#ifndef CAREFUL_CDEF
#include <careful/careful.h>
#ifdef __cplusplus
extern "C" {
#endif
#endif

struct careful_events; /* this node's part in a group; an instance has at most one */

enum {
	CAREFUL_EVENT_NODES_MAX = 256,
	/* as destination: all other nodes; as source: any of them */
	CAREFUL_EVENT_ALL = 0xffffffff,
};

/* Flags of careful_event_send(). */
enum {
	CAREFUL_EVENT_F_LAST = 0x02, /* this node's last fragment to dst in this event */
	CAREFUL_EVENT_F_CROWD =
		0x04, /* all others send to dst in this event, too (P2: BCAST_Event) */
	CAREFUL_EVENT_F_LARGE = 0x08, /* the message has several fragments; set on each of them */
};

/* Status of a received fragment: which fragments follow. */
enum careful_event_status {
	CAREFUL_EVENT_MORE = 1, /* more of this source's message follows */
	CAREFUL_EVENT_NODE_DONE = 2, /* last fragment of this source; other sources follow */
	CAREFUL_EVENT_EVENT_DONE = 3, /* last fragment of the event */
};

/* A group of nodes.
 *
 * @group:   a number that all its nodes use and no other program does
 * @nodes:   P, 1 to CAREFUL_EVENT_NODES_MAX
 * @rank:    this node's rank, from 0
 * @replicate: not 0: broadcast one frame per node, even if one frame would reach all
 * @peers:   index of each rank (careful_peer()); this node's own entry is ignored
 * @requests: not 0: the group uses requests. Set it on every node if some nodes are
 *           careful_attach()ed; attached nodes need not set it. The group then occupies the handler
 *           CAREFUL_HANDLERS_APP - 1 - group % CAREFUL_HANDLERS_APP */
struct careful_events_options {
	uint32_t group;
	uint32_t nodes;
	uint32_t rank;
	uint32_t replicate;
	const uint32_t *peers;
	uint32_t requests;
};

/* A received fragment.
 *
 * @data:    the bytes, unaligned, valid until the next careful_event_receive() or
 *           careful_events_close()
 * @offset:  offset in the message, bytes
 * @source:  rank of the sender
 * @status:  enum careful_event_status */
struct careful_event_fragment {
	const void *data;
	uint32_t bytes;
	uint32_t offset;
	uint32_t source;
	uint32_t status;
};

/* Joins a group and returns at once; the nodes find each other while they send or receive.
 * -EBUSY (the instance is in a group already, or the handler is taken), -EINVAL (rank or number of
 * nodes), -ENOENT (no such peer), -ENOBUFS (too few send buffers for a broadcast). */
int careful_events_open(struct careful *instance, const struct careful_events_options *options,
			struct careful_events **events);
/* Leaves the group. Status 0: this node is done. With another status (-errno), or if a message
 * lacks its last fragment, this node counts as failed at all others. Polls until that has left, for
 * at most timeout_ms (-1: no limit), then returns -ETIMEDOUT. The group is closed in any case. */
int careful_events_close(struct careful_events *events, int status, int timeout_ms);

/* Returns the largest fragment in bytes, or -EAGAIN while a node is missing. */
int careful_event_bytes(struct careful_events *events);

/* Sends a fragment to one node or to all. The data is copied, and a message leaves with its last
 * fragment. Polls until there is room, for at most timeout_ms (0: does not poll; -1: no limit).
 * -EAGAIN (with timeout_ms 0) or -ETIMEDOUT: a node is missing or has no free buffer; nothing was
 * sent to any node.
 * -ENOBUFS: nothing could be sent for 3 * sync_ms because unconsumed fragments fill the copy-out
 * pool. Receive, then send again, or raise copyout_buffers.
 * -ENOENT: no such node.
 * -EINVAL: unknown flags, flags that differ from earlier ones in this event, or a fragment before
 * the last without CAREFUL_EVENT_F_LARGE.
 * -EILSEQ: an earlier event, a message that has ended, or another event while a message lacks its
 * last fragment.
 * -EMSGSIZE; -EPIPE: that node has left; -EDEADLK: would poll in a callback. Other errors: the
 * group has failed (careful_events_failed()), and every further call fails. */
int careful_event_send(struct careful_events *events, uint32_t dst, uint64_t event,
		       const void *data, uint32_t bytes, uint32_t flags, int timeout_ms);

/* Announces, before a message's first fragment, its bytes to one node or to all. A node with
 * a reserve (careful_options) may then grant buffers beyond the window (P2 section 7). The
 * announcement ends with the last fragment. Frames that reach all nodes at once get no grants.
 * -ENOENT: no such node; other errors: the group has failed. */
int careful_event_ahead(struct careful_events *events, uint32_t dst, uint64_t bytes);

/* Returns the bytes of the next fragment to one node or to all. The fragments of an announced
 * message follow the plan of its size (P1) for the path to the node; to all, for the path to the
 * first node. Without an announcement, or over requests, it returns careful_event_bytes(). */
int careful_event_next(struct careful_events *events, uint32_t dst);

/* Receives a fragment of an event, from one node or from any; waits as careful_event_send() does.
 * Fragments of one source arrive in the order in which they were sent.
 * -EAGAIN, -ETIMEDOUT: none yet.
 * -ENOMSG: none will come, because every possible sender has left or is past this event.
 * -ENOENT: no such node.
 * -EILSEQ: an event that is done, another event before this one is done, or an event after
 * unconsumed fragments. -EDEADLK. Other errors: the group has failed. -EPROTO: a node broke the
 * rules above. */
int careful_event_receive(struct careful_events *events, uint32_t src, uint64_t event,
			  struct careful_event_fragment *fragment, int timeout_ms);

/* Returns why the group failed (-errno) and, in *rank, the node that failed; 0: it has not failed.
 * The group fails here if a session breaks (-ECONNRESET), ends, or is
 * silent for stall_ms. Each failure is known to all nodes within stall_ms: this node notifies them,
 * and peers of the failed node notice by themselves. */
int careful_events_failed(const struct careful_events *events, uint32_t *rank);

/* Reports how this node broadcasts: 0: one frame to all; -EAGAIN: not yet known. Other values say
 * why broadcasts are replicated:
 * -EOPNOTSUPP: the device or protocol has no frames to all, frames are sealed, or the group uses
 * requests, has fewer than three nodes, or has `replicate` set.
 * -EHOSTUNREACH: such frames do not reach every node, or some nodes are reached by IPv4 and some by
 * IPv6. Another error: a node refused with it. */
int careful_events_broadcast(const struct careful_events *events);

/* Records all later sends and receives for `carefulctl trace events`. The file is written in this
 * directory at the end. careful_events_open() calls this function if the environment has
 * CAREFUL_EVENT_TRACE. -ENOMEM, -ENAMETOOLONG, or the error of opening the file. */
int careful_events_trace(struct careful_events *events, const char *directory);

#ifndef CAREFUL_CDEF
#ifdef __cplusplus
}
#endif
#endif
#endif /* CAREFUL_EVENT_H */
