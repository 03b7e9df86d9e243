/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Seeds by the thousand. Each runs in a process of its own, so that a seed which crashes or hangs
 * is named like one that fails (jobs.c). Failing seeds are cut short (shrink.c), and printed and
 * summed up (report.c).
 */
#ifndef SIM_RUN_H
#define SIM_RUN_H

#include <stdio.h>

#include "cluster.h"

/* Runs what is left of a seed. NULL: all is well; else what was violated. */
typedef const char *run_fn(struct cluster *cluster, uint64_t seed, bool faults,
			   const struct cut *cut);

/*
 * Seeds to run.
 *
 * @limit_ms: processor time of one seed, after which it counts as endless
 * @protocol: enum careful_protocol
 * @program:  that replays one, as users call it
 */
struct range {
	uint64_t from, count;
	uint32_t jobs;
	uint32_t limit_ms;
	bool faults, hostile, unpacked;
	uint32_t protocol;
	run_fn *run;
	const char *program;
	FILE *out;
};

struct totals {
	uint64_t seeds, with_fault[FAULT_KINDS], hits[FAULT_KINDS];
	uint64_t with_special[SPECIALS], special_hits[SPECIALS];
	uint64_t ops, attempts, polls;
	uint64_t counters[CAREFUL_COUNTERS];
	uint64_t lies, lies_proved, misdeeds[MISDEEDS];
	uint64_t with_clients, clients[CLIENTS_COUNTS];
	double took_s; /* of processor time */
};

/* jobs.c: 0, or 1 if a seed failed; that seed was cut short and printed. */
int run_range(struct cluster *cluster, const struct range *range);
/* From now on: SIGPROF after so much processor time. */
void run_limit(uint32_t ms);

/* shrink.c */
const char *run_cut(struct cluster *cluster, uint64_t seed, bool faults, const struct cut *cut);
/* Runs a cut in a process of its own; what ended that one, in text, is a failure too. */
const char *run_apart(struct cluster *cluster, const struct range *range, uint64_t seed,
		      const struct cut *cut);
/* How a process ended, in words; NULL: well. */
const char *run_end(int status, uint32_t limit_ms, char text[SIM_TEXT_BYTES]);
/* Cuts a seed short as long as it fails in the same way: `why` without its numbers. */
void shrink(struct cluster *cluster, const struct range *range, uint64_t seed, const char *why,
	    struct cut *cut);

/* report.c */
void totals_add(struct totals *totals, const struct cluster *cluster);
void totals_sum(struct totals *all, const struct totals *one);
void totals_report(FILE *out, const struct totals *totals);
void report_command(const struct range *range, uint64_t seed, const struct cut *cut);
void report_scenario(FILE *out, const struct scenario *s);
/* Reads FAULT:HIT,HIT… as report_command() writes it, maybe without a hit; false: it is not. */
bool parse_hits(struct cut *cut, const char *text);

#endif /* SIM_RUN_H */
