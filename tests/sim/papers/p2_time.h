/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Programs on P2's cluster in virtual time. Operations cost the same as on P2's nodes (p2_costs.h);
 * all nodes share a ring. A node does one thing at a time.
 */
#ifndef SIM_P2_TIME_H
#define SIM_P2_TIME_H

#include "event_world.h"

/* CPU time of all nodes by purpose. */
enum p2_spent {
	P2_SPENT_HOP, /* sending and receiving, with both protocols */
	P2_SPENT_EXTRA, /* operations of this protocol alone */
	P2_SPENT_COPIED_OUT, /* reads of received frames from the board */
	P2_SPENT_KEPT, /* copies of sent fragments */
	P2_SPENT_READ, /* the program's reads of received words */
	P2_SPENT_COMPUTED,
	P2_SPENTS,
};

/*
 * @began: counting has begun
 * @stuck: a program could neither send nor receive
 * @frames, @own, @kept: frames sent, protocol frames among them, fragments copied when sent
 * @now_spent: by node: CPU time of the call so far, without the device's; @free_ns: when it ends
 * @over_ns: when its program ended
 * @copied: frames copied out and counted
 * @took_frame: it received last; the program is next
 * @acked, @sent: by node and peer: highest number acknowledged, sent
 */
struct p2_time {
	struct world *w;
	bool traditional, began, stuck;
	uint64_t spent_ns[P2_SPENTS];
	uint64_t frames, own, kept;
	struct p2_time_node {
		uint64_t now_spent, free_ns, over_ns, copied;
		uint32_t acked[WORLD_NODES_MAX], sent[WORLD_NODES_MAX];
		uint32_t words; /* of its last data frame */
		bool took_frame, over;
	} node[WORLD_NODES_MAX];
};

/* Continues a node's program. 0: it has ended; -EAGAIN: it waits; 1: it can continue. It reports
 * its computing and reading by p2_spend(). */
typedef int p2_program(struct p2_time *t, uint32_t rank, void *user);

/* Opens a group of P nodes on FDDI, with P2's boards and this many send buffers. */
void p2_open(struct p2_time *t, struct world *w, uint32_t nodes, bool traditional,
	     uint32_t buffers);
void p2_close(struct p2_time *t);
void p2_spend(struct p2_time *t, uint32_t rank, enum p2_spent what, uint64_t ns);
/* Runs a program on each node. Returns ns until all ended; UINT64_MAX: longer than most_ms, or a
 * program could neither send nor receive (ENOBUFS). */
uint64_t p2_run(struct p2_time *t, p2_program *program, void *user, uint64_t most_ms);

#endif /* SIM_P2_TIME_H */
