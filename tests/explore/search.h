/* SPDX-License-Identifier: BSD-2-Clause */
/* A breadth-first search through all states of a setting. */
#ifndef EXPLORE_SEARCH_H
#define EXPLORE_SEARCH_H

#include "steps.h"

/* The faults that a search can find (struct found.violated). */
#define FOUND_DEADLOCK "deadlock: everybody waits for credits, for ever"
#define FOUND_STUCK "stuck: all else is done, and a node cannot send"
#define FOUND_NAMED "the bound: a node with more to send has no room to copy out, and is told so"
#define FOUND_ENDLESS "endless: a step that sends no data leads no nearer to rest"

/*
 * The result of a search.
 *
 * @steps: steps that changed something
 * @depth: steps to the farthest state
 * @rests: states in which only a send is possible
 * @way: steps to the violation
 * @violated: the violation, or NULL
 */
struct found {
	uint64_t states, steps;
	uint32_t depth, rests, way;
	const char *violated;
};

/* @show: print the way to the violation. */
void search(const struct setting *setting, bool show, struct found *found);

#endif /* EXPLORE_SEARCH_H */
