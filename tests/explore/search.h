/* SPDX-License-Identifier: BSD-2-Clause */
/* Breadth first through every state that a setting can reach. */
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
 * @steps:    tried that changed something
 * @depth:    steps to the state farthest away
 * @rests:    states in which nothing but a send can happen
 * @way:      steps to what is wrong
 * @violated: what is; NULL: nothing
 */
struct found {
	uint64_t states, steps;
	uint32_t depth, rests, way;
	const char *violated;
};

/* @show: print the way to what is wrong. */
void search(const struct setting *setting, bool show, struct found *found);

#endif /* EXPLORE_SEARCH_H */
