/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Costs of P2's operations, in cycles of 20 ns, from appendix A and the tables. Two numbers are
 * fitted to the careful column of Table 1: the common part of a hop, and a token's time per
 * station. No number is fitted to the traditional protocol.
 */
#ifndef SIM_P2_COSTS_H
#define SIM_P2_COSTS_H

#include <stdbool.h>
#include <stdint.h>

/* How often an operation occurs. */
enum p2_per {
	P2_PER_DATA, /* once per data frame */
	P2_PER_FRAME, /* per frame, protocol frames included */
	P2_PER_LET_GO, /* per acknowledged fragment; one in the appendix */
};

/* An operation that only one protocol needs. @interrupt: when it receives, else when it sends */
struct p2_cost {
	const char *what;
	bool traditional, interrupt;
	enum p2_per per;
	uint32_t cycles;
};

/* Appendix A, in its order. "handle implicit ACK", 779, includes 256 to deallocate one fragment. */
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
	/* From Table 1, processing minus no processing, per 1000 words: 33 cycles read a word over
	 * the bus. Table 2 shows the same for two nodes at once, so writing is almost free. */
	P2_READ_CYCLES = 33,
	/* From Table 1, traditional, two to four nodes, per 1000 words: a copy from memory to
	 * memory. */
	P2_COPY_CYCLES = 6,
	/* Unacknowledged fragments before buffers are copied (section 6.1: "it has to buffer and
	 * therefore copy more often"). P2 has no number; 4 is assumed. */
	P2_ON_BOARD = 4,
	/* Fitted to Table 1, careful, one word: 2 nodes, and the increase to 8. */
	P2_HOP_NS = 73700,
	P2_TOKEN_NS = 3600,
};

/* Returns the cost of a frame; let_go: fragments that it acknowledges. */
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
