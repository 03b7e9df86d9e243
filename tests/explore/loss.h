/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Frames that are lost, overtake each other, come twice, and are sent again. The world itself notes
 * which numbers have come (world.h, struct open), and compares that with what the code believes.
 * Functions count numbers from the last one that the receiver has taken in order: 1 is due.
 */
#ifndef EXPLORE_LOSS_H
#define EXPLORE_LOSS_H

#include "link/repair.h"
#include "steps.h"

/* The faults of the repair that a search can find (struct found.violated). */
#define FOUND_ORDER "order: a frame is handed on before an earlier one, or is held back"
#define FOUND_REFUSED "refused: XDP drops a frame that may come, and nothing will change that"
#define FOUND_WIDE "wide: XDP admits a number beyond the window"
#define FOUND_LOG "log: it does not have a frame that may be lost"
#define FOUND_REPAIR "repair: it is not the frame that was lost"
#define FOUND_NEVER "never: a frame leaves under a number that was not sent"
#define FOUND_UNKNOWN "unknown: a number that was not sent counts as asked for"
#define FOUND_MISSING "missing: all else is done, and a lost frame is not sent again"
#define FOUND_CREDITS "credits are not conserved"
#define FOUND_UNSAID "credits were announced and are on no frame"

/* How a data frame of this many buffers is sent: the log copies what is in one send buffer. */
static inline struct link_send_args loss_args(uint32_t cost)
{
	return (struct link_send_args){
		.type = CAREFUL_DATA,
		.msg_bytes = body_of(cost),
		.frag_bytes = (uint16_t)body_of(cost),
		.source = cost > 1,
	};
}

/* Reports whether a number has come and waits for one before it. */
bool loss_waits(const struct world *world, int from, int to, uint32_t at);
/* Buffers that XDP has charged for frames which the ring lost. */
uint32_t loss_charged(const struct link_peer *in);
/* Reports whether XDP knows all charges that were given back. A round publishes them at the end of its
 * batch, before updates. */
bool loss_told(const struct node *node);
/* Reports whether charges that the ring has lost are given back. */
static inline bool loss_settles(const struct world *world)
{
	return world->setting.fault != FAULT_RING_CHARGED &&
	       world->setting.fault != FAULT_COPY_KEPT;
}

/* Copies of a number on a wire. */
uint32_t loss_flights(const struct world *world, int from, int to, uint32_t at);
/* Numbers that have not come and have no copy on the wire; and frames there besides the first copy
 * of each number that has not come. */
uint32_t loss_gone(const struct world *world, int from, int to);
uint32_t loss_copies(const struct world *world, int from, int to);
/* The most buffers that a peer may still be granted: each number may ask for more than the one
 * before, and a lost one asks for something else when it is sent again. */
uint32_t loss_grants(struct world *world, int from, int to);
/* Adds up one of these for all flows. */
uint32_t loss_all(const struct world *world,
		  uint32_t (*count)(const struct world *world, int from, int to));

/* loss_steps.c */
struct step *loss_list(struct world *world, struct step *at, int from, int to);
bool loss_do(struct world *world, const struct step *step);
/* Takes a frame from its wire; false: the step cannot be done now. */
bool loss_arrive(struct world *world, const struct step *step);
void loss_print(const struct step *step);

/* loss_check.c */
void loss_check(struct world *world, int from, int to);
uint32_t loss_rank(struct world *world, int from, int to);
/* Reports whether a step repairs what need not be lost: it leads no nearer to rest. */
bool loss_needless(const struct world *world, const struct step *step);

#endif /* EXPLORE_LOSS_H */
