/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A state of the world in few bytes: all that the rule, the wires and the applications can
 * distinguish. Counters start from the sender's credits, since the code uses only differences.
 * Buffers are counted by place, not named.
 */
#ifndef EXPLORE_STATE_H
#define EXPLORE_STATE_H

#include "world.h"

enum {
	FLOWS_MAX = NODES_MAX * (NODES_MAX - 1),
};

/*
 * The frames that one node sends to another, and their buffers.
 *
 * @sent: buffers sent; like all counters, beyond those known to be returned
 * @received, @returned, @announced, @withheld: as in struct window_rx, at the receiver
 * @freeing: released there, not yet published
 * @dirty: place in the receiver's dirty list + 1; 0: not in it
 * @frames, @frame, @credits: under way, oldest first: cost, and the credits for the flow that runs
 * the other way; a frame to all carries what it adds to earlier such frames
 * @cast_held: credits that are set aside for the sender's next broadcast
 * @said: frames sent by a hoarder so far
 * @ask: buffers that each frame under way asks for
 * @asked, @granted: buffers that the last arrived frame asks for; buffers granted to the sender
 * @asking: place in the receiver's list of asking peers + 1; 0: not in it
 * @left: unsent frames of the sender's message
 * @held: kept frames of one buffer that may be copied out
 * @copied: of these, copied ones
 * @fixed: kept frames that may not be copied out, by cost - 1
 * If frames are lost (loss.c), numbers count from the last one that was taken in order:
 * @seq: of the frames under way, sorted
 * @numbers, @number: sent numbers that are not taken yet: cost, FLIGHT_*, NUMBER_WAITS,
 *   NUMBER_WANTED
 * @gives, @more: credits that a broadcast gives to all, and more to this node
 * @logged: in groups: what the log notes as sent up to a number, back from what is sent now
 * @waits_ask: buffers that waiting frames ask for
 * @untaken: taken numbers that XDP was not told
 * @highest: the last sent number that the receiver knows
 * @named: requested numbers, if it asks once
 * @lost: buffers that XDP charged for frames that the ring lost
 * @untold: returned charges that XDP was not told
 * @dropped:   buffers of second copies in the fill batch of the receiver; the first flow has all
 */
struct direction {
	int8_t sent, received, returned, announced;
	uint8_t freeing, dirty, withholding, withheld, frames;
	uint8_t frame[FRAMES_MAX];
	int8_t credits[FRAMES_MAX];
	uint8_t ask[FRAMES_MAX];
	uint8_t asked, granted, asking, left;
	uint8_t cast_held, said;
	uint8_t held, copied;
	uint8_t fixed[WINDOW_MAX];
	int8_t seq[FRAMES_MAX];
	uint8_t numbers;
	uint8_t number[FRAMES_MAX], waits_ask[FRAMES_MAX];
	uint8_t gives[FRAMES_MAX], more[FRAMES_MAX];
	int8_t logged[FRAMES_MAX];
	uint8_t untaken, highest, named, lost, untold, dropped;
};

struct state {
	struct direction flow[FLOWS_MAX];
};

/* Counters start in every state just before they wrap. SEQ_BASE: the last number that was taken in
 * order. */
static const uint32_t SENT_BASE = UINT32_MAX - 1, SEQ_BASE = UINT32_MAX;

/* Returns the number of flows and the ends of each. */
uint32_t state_flows(const struct world *world, uint8_t (*ends)[2]);
/* Reads the world's state; puts the world into a state. */
void state_get(struct world *world, struct state *state);
void state_put(struct world *world, const struct state *state);

/* loss.c: the part of a flow for losses; `first`: this is the receiver's first flow. */
void loss_get(struct world *world, int from, int to, struct direction *flow, bool first);
void loss_put(struct world *world, int from, int to, const struct direction *flow);
/* Takes receive buffers out of the fill ring (state.c). */
void state_take_buffers(struct node *node, uint32_t n, uint64_t *addrs);

#endif /* EXPLORE_STATE_H */
