/* SPDX-License-Identifier: BSD-2-Clause */
/* Possible next steps, the invariants of every state, and a state's distance from rest. */
#ifndef EXPLORE_STEPS_H
#define EXPLORE_STEPS_H

#include "world.h"

enum {
	STEPS_MAX = 128, /* that one state can offer */
};

enum act {
	ACT_SEND, /* arg: cost */
	ACT_CAST, /* to all others: sets aside the credits that there are, and leaves with all */
	ACT_ARRIVE, /* arg: enum fate */
	ACT_RELEASE, /* arg: index among the node's kept frames */
	ACT_COPY_OUT,
	ACT_PUBLISH,
	ACT_UPDATE,
	ACT_ROUND, /* all of the node's own steps, in careful_poll()'s order */
};

/* The application's treatment of a data frame. */
enum fate {
	FATE_CONSUME,
	FATE_KEEP, /* its buffer may be copied out */
	FATE_HOLD, /* its buffers may not: a file is written from them */
	FATES,
};

/* @node acts; @other is the peer concerned (ACT_ARRIVE: the frame's sender). */
struct step {
	uint8_t act, node, other, arg;
};

/* The steps to try in this state. Not all of it changes the state. */
uint32_t steps_list(const struct world *world, struct step *steps);
/* Does it; false: it cannot be done now. */
bool steps_do(struct world *world, const struct step *step);
/* A send or a cast; false: nothing leaves. */
bool steps_leaves(struct world *world, const struct step *step);
/* Counts that must agree in every state. */
void steps_check(struct world *world);
static inline bool steps_sends(const struct step *step)
{
	return step->act == ACT_SEND || step->act == ACT_CAST;
}

/* Falls with every step but those that send: without new data the world comes to rest. */
uint32_t steps_rank(struct world *world);
/* Says a step in words. */
void steps_print(const struct step *step);

#endif /* EXPLORE_STEPS_H */
