// SPDX-License-Identifier: BSD-2-Clause
/*
 * Explores the window code: every state of two and three nodes that send, to one or to all,
 * deliver, consume, keep, release, publish, update and copy out. Sound settings must show no
 * violation; a rule that is broken on purpose must be found.
 *
 * Usage: explore [--quick | --long] [--loss] [--show]
 * --quick: only small settings; --long: only those that need minutes; --loss: only those with
 * losses; --show: prints the shortest way to each violation
 */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "loss.h"
#include "search.h"

struct experiment {
	const char *what;
	const char *expected; /* NULL: no violation */
	struct setting setting;
	enum {
		QUICK,
		SLOW, /* not with --quick */
		LONG, /* with --long */
	} length;
};

/* Frames of W - T buffers: 2, 3 and 3 for W = 4, 5 and 6. The code allows W - T - 1, so that no
 * frame waits long. A frame of W - T may wait long, but not for ever. */
#define SETTING(n, w, min, max, copies, tx, kept, ...)                              \
	{                                                                           \
		.nodes = (n), .window = (w), .cost_min = (min), .cost_max = (max),  \
		.pool = (copies), .tx_chunks = (tx), .keeps = (kept), ##__VA_ARGS__ \
	}

static const struct experiment experiments[] = {
	{ "two nodes, any step at any time", NULL, SETTING(2, 4, 1, 2, 0, 16, 0), QUICK },
	{ "", NULL, SETTING(2, 5, 1, 3, 0, 16, 0), QUICK },
	{ "", NULL, SETTING(2, 6, 1, 3, 0, 16, 0), SLOW },
	{ "and applications that keep frames", NULL, SETTING(2, 4, 1, 2, 1, 16, 2), SLOW },
	{ "", NULL, SETTING(2, 5, 1, 3, 1, 16, 1), SLOW },
	{ "", NULL, SETTING(2, 6, 1, 3, 1, 16, 1), LONG },
	{ "", NULL, SETTING(2, 4, 1, 1, 1, 16, 5, .rounds = true), QUICK },
	{ "and few send buffers", NULL, SETTING(2, 4, 1, 2, 1, 3, 1), QUICK },
	{ "", NULL, SETTING(2, 6, 1, 3, 0, 4, 0), QUICK },
	{ "three nodes, by rounds", NULL,
	  SETTING(3, 4, 1, 2, 1, 16, 1, .pattern = PATTERN_RING, .rounds = true), SLOW },
	{ "", NULL, SETTING(3, 5, 1, 3, 1, 16, 0, .pattern = PATTERN_RING, .rounds = true), LONG },
	{ "", NULL, SETTING(3, 6, 2, 3, 1, 16, 1, .pattern = PATTERN_RING, .rounds = true), SLOW },
	{ "", NULL, SETTING(3, 4, 1, 2, 1, 16, 0, .pattern = PATTERN_STAR, .rounds = true), SLOW },
	{ "", NULL, SETTING(3, 4, 1, 1, 1, 3, 0, .pattern = PATTERN_STAR, .rounds = true), QUICK },
	{ "", NULL, SETTING(3, 4, 2, 2, 1, 16, 1, .rounds = true), SLOW },
	{ "", NULL, SETTING(3, 6, 3, 3, 1, 16, 1, .rounds = true), LONG },
	{ "three nodes, any step at any time", NULL,
	  SETTING(3, 4, 2, 2, 1, 16, 1, .pattern = PATTERN_STAR), LONG },
	{ "", NULL, SETTING(3, 5, 3, 3, 0, 16, 0, .pattern = PATTERN_STAR), SLOW },
	{ "", NULL, SETTING(3, 6, 3, 3, 0, 16, 0, .pattern = PATTERN_STAR), LONG },
	{ "two nodes, large messages and a reserve", NULL,
	  SETTING(2, 4, 1, 1, 0, 16, 0, .reserve = 2, .large = 5, .pattern = PATTERN_RING), QUICK },
	{ "", NULL,
	  SETTING(2, 4, 1, 1, 0, 16, 0, .reserve = 4, .large = 6, .pattern = PATTERN_RING), SLOW },
	{ "", NULL,
	  SETTING(2, 5, 1, 2, 0, 16, 1, .reserve = 4, .large = 4, .pattern = PATTERN_RING,
		  .rounds = true),
	  SLOW },
	{ "two nodes share the reserve of a third, by rounds", NULL,
	  SETTING(3, 4, 1, 1, 0, 16, 0, .reserve = 3, .large = 5, .pattern = PATTERN_SINK,
		  .rounds = true),
	  SLOW },
	{ "who asks for more than it sends", FOUND_UNPAID,
	  SETTING(2, 4, 1, 1, 0, 16, 0, .reserve = 4, .large = 6, .pattern = PATTERN_RING,
		  .asks_on = true),
	  QUICK },
	{ "each sends more than a window before it consumes, and copies out", NULL,
	  SETTING(2, 4, 1, 1, 5, 16, 16, .hoard = 6, .rounds = true), QUICK },
	{ "", NULL, SETTING(2, 4, 1, 1, 5, 16, 16, .hoard = 6), SLOW },
	{ "", NULL,
	  SETTING(3, 4, 1, 1, 5, 16, 16, .hoard = 5, .pattern = PATTERN_RING, .rounds = true),
	  SLOW },
	{ "and has too little room for that", FOUND_NAMED,
	  SETTING(2, 4, 1, 1, 1, 16, 16, .hoard = 6, .rounds = true), QUICK },
	{ "", FOUND_NAMED, SETTING(2, 4, 1, 1, 1, 16, 16, .hoard = 6), SLOW },
	{ "receivers withhold credits, more or fewer at any time", NULL,
	  SETTING(2, 6, 1, 1, 0, 16, 0, .withholds = 2), SLOW },
	{ "", NULL, SETTING(2, 5, 1, 1, 0, 16, 0, .withholds = 1), QUICK },
	{ "", NULL, SETTING(2, 6, 1, 1, 1, 16, 2, .withholds = 2, .rounds = true), LONG },
	{ "", NULL,
	  SETTING(2, 6, 1, 1, 0, 16, 0, .withholds = 2, .reserve = 2, .large = 8,
		  .pattern = PATTERN_RING, .rounds = true),
	  LONG },
	{ "after losses, which halve T", NULL, SETTING(2, 8, 1, 1, 0, 16, 0, .threshold = 2),
	  QUICK },
	{ "", NULL, SETTING(2, 6, 1, 1, 0, 16, 0, .withholds = 2, .threshold = 2), SLOW },
	{ "T is made from W, not from w", FOUND_STUCK,
	  SETTING(2, 6, 1, 1, 0, 16, 0, .withholds = 3, .threshold = 3), QUICK },
	{ "less than a frame and an update are left of w", FOUND_STUCK,
	  SETTING(2, 6, 2, 2, 0, 16, 0, .withholds = 3), QUICK },
	{ "one of three sends to both others at once, by rounds", NULL,
	  SETTING(3, 4, 2, 2, 0, 16, 0, .casters = 1, .rounds = true), QUICK },
	{ "", NULL, SETTING(3, 4, 1, 1, 0, 16, 0, .casters = 1, .rounds = true), SLOW },
	{ "and applications that keep frames", NULL,
	  SETTING(3, 4, 2, 2, 0, 16, 1, .casters = 1, .rounds = true), SLOW },
	{ "all three do", NULL, SETTING(3, 4, 2, 2, 0, 16, 0, .casters = 3, .rounds = true), SLOW },
	{ "", NULL, SETTING(3, 6, 3, 3, 0, 16, 0, .casters = 3, .rounds = true), LONG },
	{ "a frame to all takes the last credit too", FOUND_DEADLOCK,
	  SETTING(3, 4, 2, 2, 0, 16, 0, .casters = 1, .rounds = true, .spend_last = true,
		  .standstill = true),
	  QUICK },
	{ "a frame of W - T + 1 buffers", FOUND_DEADLOCK,
	  SETTING(2, 4, 1, 3, 0, 16, 0, .standstill = true), QUICK },
	{ "", FOUND_DEADLOCK, SETTING(2, 5, 1, 4, 0, 16, 0, .standstill = true), QUICK },
	{ "", FOUND_DEADLOCK, SETTING(2, 6, 1, 4, 0, 16, 0, .standstill = true), QUICK },
	{ "", FOUND_STUCK, SETTING(2, 4, 1, 3, 0, 16, 0), QUICK },
	{ "", FOUND_DEADLOCK, SETTING(3, 4, 3, 3, 0, 16, 0, .rounds = true, .standstill = true),
	  SLOW },
	{ "data takes the last credit too", FOUND_DEADLOCK,
	  SETTING(2, 4, 1, 1, 0, 16, 0, .spend_last = true, .standstill = true), QUICK },
	{ "", FOUND_DEADLOCK, SETTING(2, 5, 1, 1, 0, 16, 0, .spend_last = true, .standstill = true),
	  QUICK },
	{ "", FOUND_DEADLOCK, SETTING(2, 6, 1, 1, 0, 16, 0, .spend_last = true, .standstill = true),
	  LONG },
	{ "one owed buffer is enough for an update", FOUND_ENDLESS,
	  SETTING(2, 4, 1, 1, 0, 16, 0, .threshold = 1), QUICK },
};

/* The same with losses: this many lost frames at a time, and this many copies besides the first. */
#define LOSS(n, w, min, max, kept, lost, twice, ...) \
	SETTING(n, w, min, max, 0, 16, kept, .gone = (lost), .copies = (twice), ##__VA_ARGS__)
#define SENDS(w, min, max, kept, lost, twice, ...) \
	LOSS(2, w, min, max, kept, lost, twice, .pattern = PATTERN_SINK, ##__VA_ARGS__)
#define GROUP(min, max, lost, twice, ...)                                  \
	LOSS(3, 4, min, max, 0, lost, twice, .casters = 1, .rounds = true, \
	     .pattern = PATTERN_CAST, ##__VA_ARGS__)
#define BROKEN(what, ...) LOSS(2, 4, 1, 1, 0, 2, 1, .fault = (what), ##__VA_ARGS__)

static const struct experiment losses[] = {
	{ "one sends, by rounds; frames are lost, late, and come twice", NULL,
	  SENDS(4, 1, 1, 0, 4, 2, .rounds = true), QUICK },
	{ "and a question announces credits", NULL,
	  SENDS(4, 1, 1, 0, 4, 2, .rounds = true, .announces = true), QUICK },
	{ "", NULL, SENDS(4, 1, 2, 0, 4, 2, .rounds = true, .announces = true), SLOW },
	{ "", NULL, SENDS(5, 1, 2, 0, 1, 0, .rounds = true), SLOW },
	{ "", NULL, SENDS(6, 1, 2, 0, 2, 1, .rounds = true, .announces = true), LONG },
	{ "", NULL, SENDS(6, 1, 2, 0, 2, 1, .rounds = true), SLOW },
	{ "in a sealed session", NULL, SENDS(4, 1, 2, 0, 4, 2, .rounds = true, .sealed = true),
	  SLOW },
	{ "and the receive ring loses frames", NULL,
	  SENDS(4, 1, 2, 0, 4, 1, .rounds = true, .ring = 2), SLOW },
	{ "", NULL, SENDS(4, 1, 1, 0, 4, 1, .rounds = true, .ring = 4), SLOW },
	{ "and credits are withheld", NULL, SENDS(6, 1, 1, 0, 2, 0, .rounds = true, .withholds = 2),
	  LONG },
	{ "and applications that keep frames", NULL, SENDS(4, 1, 1, 2, 4, 1, .rounds = true),
	  SLOW },
	{ "large messages and a reserve", NULL,
	  SENDS(4, 1, 1, 0, 1, 0, .rounds = true, .reserve = 1, .large = 3), SLOW },
	{ "", NULL, SENDS(4, 1, 1, 0, 1, 0, .rounds = true, .reserve = 2, .large = 5), LONG },
	{ "any step at any time", NULL, SENDS(4, 1, 1, 0, 1, 0), SLOW },
	{ "", NULL, SENDS(4, 1, 2, 0, 1, 0), SLOW },
	{ "", NULL, SENDS(4, 2, 2, 0, 4, 2), SLOW },
	{ "", NULL, SENDS(4, 1, 1, 0, 1, 1), LONG },
	{ "", NULL, SENDS(5, 2, 2, 0, 1, 0), SLOW },
	{ "", NULL, SENDS(5, 1, 1, 0, 1, 0), LONG },
	{ "two nodes that both send, by rounds", NULL, LOSS(2, 4, 1, 1, 0, 1, 0, .rounds = true),
	  SLOW },
	{ "", NULL, LOSS(2, 4, 2, 2, 0, 1, 1, .rounds = true), SLOW },
	{ "one of three sends to both others at once, by rounds; each gets its own repairs", NULL,
	  GROUP(2, 2, 2, 1), QUICK },
	{ "", NULL, GROUP(2, 2, 4, 2), SLOW },
	{ "", NULL, GROUP(1, 1, 2, 0), SLOW },
	{ "nobody suspects that the last frames are lost", FOUND_MISSING, BROKEN(FAULT_NO_TAIL),
	  QUICK },
	{ "the same in a sealed session", FOUND_MISSING, BROKEN(FAULT_NO_TAIL, .sealed = true),
	  QUICK },
	{ "nobody suspects that a whole window is lost", FOUND_MISSING,
	  SENDS(4, 1, 1, 0, 4, 1, .rounds = true, .fault = FAULT_NO_WINDOW), QUICK },
	{ "a missing number is named once", FOUND_MISSING, BROKEN(FAULT_ASKED_ONCE), QUICK },
	{ "XDP does not learn what was taken", FOUND_REFUSED, BROKEN(FAULT_NO_FLOOR), QUICK },
	{ "the same in a sealed session", FOUND_REFUSED, BROKEN(FAULT_NO_FLOOR, .sealed = true),
	  QUICK },
	{ "XDP counts from the last number it has seen", FOUND_REFUSED, BROKEN(FAULT_LAST_SEEN),
	  QUICK },
	{ "XDP admits numbers a window too far", FOUND_WIDE, BROKEN(FAULT_WIDE), QUICK },
	{ "the log has two entries", FOUND_LOG, BROKEN(FAULT_SHORT_LOG), QUICK },
	{ "frames behind a gap give credits back while they wait", FOUND_CREDITS,
	  BROKEN(FAULT_WAITING_FREED), QUICK },
	{ "the sender charges a repair", FOUND_CREDITS, BROKEN(FAULT_CHARGED_AGAIN), QUICK },
	{ "the sender takes the cost of a lost frame back", FOUND_CREDITS, BROKEN(FAULT_TAKEN_BACK),
	  QUICK },
	{ "a second copy keeps its charge", FOUND_REFUSED, BROKEN(FAULT_COPY_KEPT), QUICK },
	{ "a frame behind a gap is handed on at once", FOUND_ORDER, BROKEN(FAULT_OVERTAKES),
	  QUICK },
	{ "a lost frame is sent again under a new number", FOUND_ENDLESS, BROKEN(FAULT_NEW_NUMBER),
	  QUICK },
	{ "a number that was never sent is answered", FOUND_NEVER, BROKEN(FAULT_NEVER_SENT),
	  QUICK },
	{ "a repair has the credits from before", FOUND_UNSAID, BROKEN(FAULT_OLD_CREDITS), QUICK },
	{ "a frame that the ring lost keeps its charge", FOUND_REFUSED,
	  BROKEN(FAULT_RING_CHARGED, .ring = 2), QUICK },
	{ "a whole window that the ring lost keeps its charge", FOUND_REFUSED,
	  SENDS(4, 1, 1, 0, 4, 1, .rounds = true, .ring = 4, .fault = FAULT_RING_WINDOW), QUICK },
	{ "a repair to one of a group lacks the credits of the lost frame", FOUND_REPAIR,
	  GROUP(1, 1, 1, 0, .fault = FAULT_CAST_ALONE), QUICK },
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
	static const char *const patterns[] = { "all", "ring", "star", "sink", "cast" };
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

struct total {
	unsigned long long states, steps;
	bool right;
};

static void run_all(const struct experiment *e, uint32_t count, int length, bool show,
		    struct total *total)
{
	struct found found;

	for (uint32_t i = 0; i < count; i++) {
		if (*e[i].what && length != LONG)
			printf("%s\n", e[i].what);
		if ((int)e[i].length > length || (length == LONG && e[i].length != LONG))
			continue;
		total->right &= run(&e[i], show, &found);
		total->states += found.states;
		total->steps += found.steps;
	}
}

#define COUNT(array) ((uint32_t)(sizeof(array) / sizeof((array)[0])))

int main(int argc, char **argv)
{
	struct total total = { .right = true };
	bool show = false, loss_alone = false;
	int length = SLOW;

	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--quick"))
			length = QUICK;
		else if (!strcmp(argv[i], "--long"))
			length = LONG;
		show |= !strcmp(argv[i], "--show");
		loss_alone |= !strcmp(argv[i], "--loss");
	}
	printf("  nodes   W  cost keep, tx  states      steps depth     s  what was found\n");
	if (!loss_alone)
		run_all(experiments, COUNT(experiments), length, show, &total);
	run_all(losses, COUNT(losses), length, show, &total);
	printf("%llu states, %llu steps explored: %s\n", total.states, total.steps,
	       total.right ? "all as expected" : "NOT as expected");
	return !total.right;
}
