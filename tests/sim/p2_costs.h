/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What P2's operations cost: appendix A, and what its tables say besides it, in cycles of 20 ns.
 * Two numbers are fitted, both to the careful column of Table 1: the part of a hop that both
 * protocols have, and how long a token takes past a station. No number is fitted to the traditional
 * protocol.
 */
#ifndef SIM_P2_COSTS_H
#define SIM_P2_COSTS_H

#include <stdbool.h>
#include <stdint.h>

/* How often an operation occurs. */
enum p2_per {
	P2_PER_DATA, /* once for each frame that carries data */
	P2_PER_FRAME, /* for each frame, also one of the protocol's own */
	P2_PER_LET_GO, /* for each fragment that is known to have come; in the appendix: one */
};

/* Something that one protocol does and the other need not. */
struct p2_cost {
	const char *what;
	bool traditional, interrupt;
	enum p2_per per;
	uint32_t cycles;
};

/* Appendix A, in its order. Its "handle implicit ACK", 779, deallocates one fragment: 256. */
static const struct p2_cost p2_costs[] = {
	{ "decide not to set ACK flag", true, false, P2_PER_DATA, 7 },
	{ "allocate and fill fragment descriptor", true, false, P2_PER_DATA, 109 },
	{ "set ACK mask", true, false, P2_PER_DATA, 24 },
	{ "get TX event slot pointer", true, false, P2_PER_DATA, 32 },
	{ "push fragment descriptor on stack", true, false, P2_PER_DATA, 58 },
	{ "collect TX buffers", true, false, P2_PER_FRAME, 62 },
	{ "check and update bit set", true, false, P2_PER_FRAME, 26 },
	{ "maintain on-board buffer counter", true, true, P2_PER_FRAME, 14 },
	{ "determine fragment priority", true, true, P2_PER_FRAME, 69 },
	{ "check for having to copy out fragment", true, true, P2_PER_DATA, 32 },
	{ "handle implicit ACK", true, true, P2_PER_FRAME, 779 - 256 },
	{ "deallocate an acknowledged fragment", true, true, P2_PER_LET_GO, 256 },
	{ "check and update fragment number", true, true, P2_PER_DATA, 66 },
	{ "check for explicit ACK", true, true, P2_PER_FRAME, 6 },
	{ "check for retransmission", true, true, P2_PER_FRAME, 36 },
	{ "check for all-to-all event", true, true, P2_PER_DATA, 9 },
	{ "check if complete", true, true, P2_PER_DATA, 89 },
	{ "shrink window", false, false, P2_PER_FRAME, 21 },
	{ "fill in window update", false, false, P2_PER_FRAME, 21 },
	{ "process window update", false, true, P2_PER_FRAME, 52 },
	{ "track last event number", false, true, P2_PER_FRAME, 24 },
	{ "decrement sender's window", false, true, P2_PER_FRAME, 29 },
	{ "skip copy-out", false, true, P2_PER_FRAME, 4 },
};

enum {
	P2_COSTS = sizeof(p2_costs) / sizeof(p2_costs[0]),
	P2_CYCLE_NS = 20,
	P2_BYTE_PS = 80000, /* FDDI's 100 Mbit/s */
	P2_HEADER_BYTES = 52, /* section 6.1 */
	P2_BUFFERS = 128, /* of the Medusa board, section 5.3 */
	/* Table 1, with processing less without, for 1000 words more: a word is read across the
	 * bus, 33 cycles. Table 2 has the same for two nodes at once, so writing is next to none. */
	P2_READ_CYCLES = 33,
	/* Table 1, traditional, from two nodes to four, for 1000 words more: a word is copied from
	 * memory to memory, and no dearer to read there. */
	P2_COPY_CYCLES = 6,
	/* Sent and not known to have come: with more, their buffers are copied (section 6.1: "it
	 * has to buffer and therefore copy more often"). P2 has no number: 4 is assumed. */
	P2_ON_BOARD = 4,
	/* Fitted: Table 1, careful, one word on 2 nodes, and how much more it is on 8. */
	P2_HOP_NS = 73700,
	P2_TOKEN_NS = 3600,
};

/* Cost of a frame; let_go: fragments that it acknowledges. */
static inline uint32_t p2_cycles(const struct p2_cost *cost, bool data, uint32_t let_go)
{
	switch (cost->per) {
	case P2_PER_DATA:
		return data ? cost->cycles : 0;
	case P2_PER_LET_GO:
		return let_go * cost->cycles;
	default:
		return cost->cycles;
	}
}

#endif /* SIM_P2_COSTS_H */
