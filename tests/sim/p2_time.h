/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Programs on the nodes of P2's cluster, in virtual time: what a node does takes it as long as it
 * took P2's (p2_costs.h), on a ring that all share. A node does one thing at a time.
 */
#ifndef SIM_P2_TIME_H
#define SIM_P2_TIME_H

#include "event_world.h"

/* On what time was spent, all nodes together. */
enum p2_spent {
	P2_SPENT_HOP, /* what sending and receiving takes under both protocols */
	P2_SPENT_EXTRA, /* what only this protocol does */
	P2_SPENT_COPIED_OUT, /* of received frames, from the board */
	P2_SPENT_KEPT, /* copies of what was sent */
	P2_SPENT_READ, /* words that arrived, by the program */
	P2_SPENT_COMPUTED,
	P2_SPENTS,
};

/*
 * @began:     what is done is counted
 * @stuck:     a program could neither send nor receive
 * @frames, @own, @kept: sent, of these the protocol's own, fragments copied when they were sent
 * @now_spent: by node: of a call, so far, beside what the device counts
 * @free_ns:  when it is done with that
 * @over_ns:  when its program was
 * @copied:   frames copied out, as far as they were counted
 * @took_frame: its last turn; the program has the next
 * @acked, @sent:    by node and peer: the highest number acknowledged, and sent
 */
struct p2_time {
	struct world *w;
	bool traditional, began, stuck;
	uint64_t spent_ns[P2_SPENTS];
	uint64_t frames, own, kept;
	struct p2_time_node {
		uint64_t now_spent, free_ns, over_ns, copied;
		uint32_t acked[WORLD_NODES_MAX], sent[WORLD_NODES_MAX];
		uint32_t words; /* of a frame, where they are copied */
		bool took_frame, over;
	} node[WORLD_NODES_MAX];
};

/* A node's program continues: 0: it is over; -EAGAIN: it waits; 1: it can continue. It reports what
 * it computed and read with p2_spend(). */
typedef int p2_program(struct p2_time *t, uint32_t rank, void *user);

/* Opens P nodes in a group, with P2's boards and FDDI between them, and this many send buffers. */
void p2_open(struct p2_time *t, struct world *w, uint32_t nodes, bool traditional,
	     uint32_t buffers);
void p2_close(struct p2_time *t);
void p2_spend(struct p2_time *t, uint32_t rank, enum p2_spent what, uint64_t ns);
/* Runs a program on each node until all are over; ns. UINT64_MAX: longer than most_ms, or until
 * one could neither send nor receive (ENOBUFS). */
uint64_t p2_run(struct p2_time *t, p2_program *program, void *user, uint64_t most_ms);

#endif /* SIM_P2_TIME_H */
