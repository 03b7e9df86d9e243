/* SPDX-License-Identifier: BSD-2-Clause */
/* The steps from a state, the checks of a state, and how far a state is from rest. */
#ifndef EXPLORE_STEPS_H
#define EXPLORE_STEPS_H

#include "world.h"

enum {
	STEPS_MAX = 512, /* that one state can offer */
};

enum act {
	ACT_SEND, /* arg: cost */
	ACT_CAST, /* a broadcast: sets available credits aside, and leaves with all */
	ACT_ARRIVE, /* arg: enum fate, and ARRIVE_INDEX times the place on the wire */
	ACT_RELEASE, /* arg: index among the node's kept frames */
	ACT_COPY_OUT,
	ACT_PUBLISH,
	ACT_UPDATE,
	ACT_WITHHOLD, /* @node withholds arg buffers of the window of @other, or fewer than before */
	ACT_ROUND, /* all of the node's own steps, in careful_poll()'s order */
	/* Steps of a network that loses frames (loss.h): @node would receive a frame of @other. */
	ACT_LOSE, /* arg: index of the frame on the wire */
	ACT_LOSE_IN_RING, /* after XDP has charged it; arg: the same */
	ACT_COPY, /* arg: the same */
	ACT_SUSPECT, /* @node learns how far @other has sent */
	ACT_ASK, /* @other receives @node's list of missing numbers */
	ACT_AGAIN, /* @node repeats what @other requested */
	ACT_SETTLE, /* @node returns charges without frames from @other */
};

/* The use that the application makes of a data frame. */
enum fate {
	FATE_CONSUME,
	FATE_KEEP, /* its buffer may be copied out */
	FATE_HOLD, /* its buffers may not: a file is written from them */
	FATES,
	ARRIVE_INDEX = 4,
};

/* @node acts; @other is the peer concerned (ACT_ARRIVE: the frame's sender). */
struct step {
	uint8_t act, node, other, arg;
};

/* Lists the steps that may be tried in this state. Not all of them change the state. */
uint32_t steps_list(struct world *world, struct step *steps);
/* Does the step. Returns false if it is impossible now. */
bool steps_do(struct world *world, const struct step *step);
/* Sends or casts. Returns false if nothing leaves. */
bool steps_leaves(struct world *world, const struct step *step);
/* Checks that counts agree. */
void steps_check(struct world *world);
static inline bool steps_sends(const struct step *step)
{
	return step->act == ACT_SEND || step->act == ACT_CAST;
}

/* Reports whether a step is optional: the world can rest without it. */
static inline bool steps_optional(const struct step *step)
{
	return steps_sends(step) || step->act == ACT_WITHHOLD;
}

enum {
	RANK_FRAME = 60, /* of each buffer of a frame under way, */
	RANK_SCALE = 16, /* times this */
};

/* Returns a number that falls with every step that does not send, withhold or lose. So without new
 * data the world comes to rest. */
uint32_t steps_rank(struct world *world);
/* Describes a step in words. */
void steps_print(const struct step *step);

#define FOUND_UNPAID "a message is over and has not paid its grant back"

#endif /* EXPLORE_STEPS_H */
