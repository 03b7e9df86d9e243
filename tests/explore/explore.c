// SPDX-License-Identifier: BSD-2-Clause
/*
 * Explores the window code: every state of two and three nodes that send, to one or to all,
 * deliver, consume, keep, release, publish, update and copy out. Sound settings must show
 * nothing wrong; where the rule is broken on purpose, that must be found.
 *
 * Usage: explore [--quick] [--show]     (--show: the shortest way to each thing found)
 */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "search.h"

struct experiment {
	const char *what;
	const char *expected; /* NULL: nothing wrong */
	struct setting setting;
	bool slow; /* not with --quick */
};

/* Frames are as large as W - T: 2, 3 and 3 buffers for W = 4, 5 and 6. The code leaves room for
 * one less, so that none waits long; nor may any wait for ever. */
#define SETTING(n, w, min, max, copies, tx, kept, ...)                              \
	{                                                                           \
		.nodes = (n), .window = (w), .cost_min = (min), .cost_max = (max),  \
		.pool = (copies), .tx_chunks = (tx), .keeps = (kept), ##__VA_ARGS__ \
	}

static const struct experiment experiments[] = {
	{ "two nodes, any step at any time", NULL, SETTING(2, 4, 1, 2, 0, 16, 0), false },
	{ "", NULL, SETTING(2, 5, 1, 3, 0, 16, 0), false },
	{ "", NULL, SETTING(2, 6, 1, 3, 0, 16, 0), true },
	{ "and applications that keep frames", NULL, SETTING(2, 4, 1, 2, 1, 16, 2), true },
	{ "", NULL, SETTING(2, 5, 1, 3, 1, 16, 1), true },
	{ "", NULL, SETTING(2, 6, 1, 3, 1, 16, 1), true },
	{ "", NULL, SETTING(2, 4, 1, 1, 1, 16, 5, .rounds = true), false },
	{ "and few send buffers", NULL, SETTING(2, 4, 1, 2, 1, 3, 1), false },
	{ "", NULL, SETTING(2, 6, 1, 3, 0, 4, 0), false },
	{ "three nodes, by rounds", NULL,
	  SETTING(3, 4, 1, 2, 1, 16, 1, .pattern = PATTERN_RING, .rounds = true), false },
	{ "", NULL, SETTING(3, 5, 1, 3, 1, 16, 0, .pattern = PATTERN_RING, .rounds = true), true },
	{ "", NULL, SETTING(3, 6, 2, 3, 1, 16, 1, .pattern = PATTERN_RING, .rounds = true), true },
	{ "", NULL, SETTING(3, 4, 1, 2, 1, 16, 0, .pattern = PATTERN_STAR, .rounds = true), true },
	{ "", NULL, SETTING(3, 4, 1, 1, 1, 3, 0, .pattern = PATTERN_STAR, .rounds = true), false },
	{ "", NULL, SETTING(3, 4, 2, 2, 1, 16, 1, .rounds = true), true },
	{ "", NULL, SETTING(3, 6, 3, 3, 1, 16, 1, .rounds = true), true },
	{ "three nodes, any step at any time", NULL,
	  SETTING(3, 4, 2, 2, 1, 16, 1, .pattern = PATTERN_STAR), true },
	{ "", NULL, SETTING(3, 5, 3, 3, 0, 16, 0, .pattern = PATTERN_STAR), true },
	{ "", NULL, SETTING(3, 6, 3, 3, 0, 16, 0, .pattern = PATTERN_STAR), true },
	{ "two nodes, large messages and a reserve", NULL,
	  SETTING(2, 4, 1, 1, 0, 16, 0, .reserve = 2, .large = 5, .pattern = PATTERN_RING), false },
	{ "", NULL,
	  SETTING(2, 4, 1, 1, 0, 16, 0, .reserve = 4, .large = 6, .pattern = PATTERN_RING), true },
	{ "", NULL,
	  SETTING(2, 5, 1, 2, 0, 16, 1, .reserve = 4, .large = 4, .pattern = PATTERN_RING,
		  .rounds = true),
	  true },
	{ "two nodes share the reserve of a third, by rounds", NULL,
	  SETTING(3, 4, 1, 1, 0, 16, 0, .reserve = 3, .large = 5, .pattern = PATTERN_SINK,
		  .rounds = true),
	  true },
	{ "who asks for more than it sends", FOUND_UNPAID,
	  SETTING(2, 4, 1, 1, 0, 16, 0, .reserve = 4, .large = 6, .pattern = PATTERN_RING,
		  .asks_on = true),
	  false },
	{ "each sends more than a window before it consumes, and copies out", NULL,
	  SETTING(2, 4, 1, 1, 5, 16, 16, .hoard = 6, .rounds = true), false },
	{ "", NULL, SETTING(2, 4, 1, 1, 5, 16, 16, .hoard = 6), true },
	{ "", NULL,
	  SETTING(3, 4, 1, 1, 5, 16, 16, .hoard = 5, .pattern = PATTERN_RING, .rounds = true),
	  true },
	{ "and has too little room for that", FOUND_NAMED,
	  SETTING(2, 4, 1, 1, 1, 16, 16, .hoard = 6, .rounds = true), false },
	{ "", FOUND_NAMED, SETTING(2, 4, 1, 1, 1, 16, 16, .hoard = 6), true },
	{ "one of three sends to both others at once, by rounds", NULL,
	  SETTING(3, 4, 2, 2, 0, 16, 0, .casters = 1, .rounds = true), false },
	{ "", NULL, SETTING(3, 4, 1, 1, 0, 16, 0, .casters = 1, .rounds = true), true },
	{ "and applications that keep frames", NULL,
	  SETTING(3, 4, 2, 2, 0, 16, 1, .casters = 1, .rounds = true), true },
	{ "all three do", NULL, SETTING(3, 4, 2, 2, 0, 16, 0, .casters = 3, .rounds = true),
	  false },
	{ "", NULL, SETTING(3, 6, 3, 3, 0, 16, 0, .casters = 3, .rounds = true), true },
	{ "a frame to all takes the last credit too", FOUND_DEADLOCK,
	  SETTING(3, 4, 2, 2, 0, 16, 0, .casters = 1, .rounds = true, .spend_last = true,
		  .standstill = true),
	  false },
	{ "a frame of W - T + 1 buffers", FOUND_DEADLOCK,
	  SETTING(2, 4, 1, 3, 0, 16, 0, .standstill = true), false },
	{ "", FOUND_DEADLOCK, SETTING(2, 5, 1, 4, 0, 16, 0, .standstill = true), false },
	{ "", FOUND_DEADLOCK, SETTING(2, 6, 1, 4, 0, 16, 0, .standstill = true), false },
	{ "", FOUND_STUCK, SETTING(2, 4, 1, 3, 0, 16, 0), false },
	{ "", FOUND_DEADLOCK, SETTING(3, 4, 3, 3, 0, 16, 0, .rounds = true, .standstill = true),
	  true },
	{ "data takes the last credit too", FOUND_DEADLOCK,
	  SETTING(2, 4, 1, 1, 0, 16, 0, .spend_last = true, .standstill = true), false },
	{ "", FOUND_DEADLOCK, SETTING(2, 5, 1, 1, 0, 16, 0, .spend_last = true, .standstill = true),
	  false },
	{ "", FOUND_DEADLOCK, SETTING(2, 6, 1, 1, 0, 16, 0, .spend_last = true, .standstill = true),
	  true },
	{ "one owed buffer is enough for an update", FOUND_ENDLESS,
	  SETTING(2, 4, 1, 1, 0, 16, 0, .threshold = 1), false },
};

static bool as_expected(const char *expected, const char *violated)
{
	return expected && violated ? !strcmp(expected, violated) : expected == violated;
}

static double seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Runs one experiment and prints its line. */
static bool run(const struct experiment *e, bool show, struct found *found)
{
	static const char *const patterns[] = { "all", "ring", "star", "sink" };
	const struct setting *s = &e->setting;
	double began = seconds();
	bool right;

	search(s, show && e->expected, found);
	right = as_expected(e->expected, found->violated);
	if (!right)
		search(s, true, found);
	printf("  %u %-4s  %u  %u-%u  %u %2u  %9llu %10llu %4u %5.1f  ", s->nodes,
	       s->casters ? "cast" : patterns[s->pattern], s->window, s->cost_min, s->cost_max,
	       s->keeps, s->tx_chunks, (unsigned long long)found->states,
	       (unsigned long long)found->steps, found->depth, seconds() - began);
	if (found->violated)
		printf("%s (%u steps)%s\n", found->violated, found->way, right ? "" : " WRONG");
	else
		printf("%u rests, nothing wrong%s\n", found->rests, right ? "" : ": WRONG");
	fflush(stdout);
	return right;
}

int main(int argc, char **argv)
{
	const uint32_t count = sizeof(experiments) / sizeof(experiments[0]);
	bool quick = false, show = false, right = true;
	unsigned long long states = 0, steps = 0;
	struct found found;

	for (int i = 1; i < argc; i++) {
		quick |= !strcmp(argv[i], "--quick");
		show |= !strcmp(argv[i], "--show");
	}
	printf("  nodes   W  cost keep, tx  states      steps depth     s  what was found\n");
	for (uint32_t i = 0; i < count; i++) {
		if (*experiments[i].what)
			printf("%s\n", experiments[i].what);
		if (quick && experiments[i].slow)
			continue;
		right &= run(&experiments[i], show, &found);
		states += found.states;
		steps += found.steps;
	}
	printf("%llu states, %llu steps explored: %s\n", states, steps,
	       right ? "all as expected" : "NOT as expected");
	return !right;
}
