/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Runs thousands of seeds. A seed that crashes or hangs is named like one that fails (jobs.c).
 * Failing schedules are shortened (shrink.c) and printed (report.c).
 */
#ifndef SIM_RUN_H
#define SIM_RUN_H

#include <stdio.h>

#include "cluster.h"

/* Runs a seed's scenario without the parts in the cut. Returns NULL or the violated rule. */
typedef const char *run_fn(struct cluster *cluster, uint64_t seed, bool faults,
			   const struct cut *cut);

/*
 * Seeds to run.
 *
 * @limit_ms: most processor time of one seed
 * @protocol: enum careful_protocol
 * @program: the command that replays a seed
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

/* jobs.c: returns 1 if a seed failed, after its shortened schedule was printed, else 0. */
int run_range(struct cluster *cluster, const struct range *range);
/* Requests SIGPROF after this much more processor time. */
void run_limit(uint32_t ms);

/* shrink.c */
const char *run_cut(struct cluster *cluster, uint64_t seed, bool faults, const struct cut *cut);
/* Runs a cut in another process, whose crash is a failure too. */
const char *run_apart(struct cluster *cluster, const struct range *range, uint64_t seed,
		      const struct cut *cut);
/* Describes a process's failure; NULL: it succeeded. */
const char *run_end(int status, uint32_t limit_ms, char text[SIM_TEXT_BYTES]);
/* Shortens a seed's schedule while it fails in the same way (the text `why` without numbers). */
void shrink(struct cluster *cluster, const struct range *range, uint64_t seed, const char *why,
	    struct cut *cut);

/* report.c */
void totals_add(struct totals *totals, const struct cluster *cluster);
void totals_sum(struct totals *all, const struct totals *one);
void totals_report(FILE *out, const struct totals *totals);
void report_command(const struct range *range, uint64_t seed, const struct cut *cut);
void report_scenario(FILE *out, const struct scenario *s);
/* Parses FAULT:HIT,HIT…, with or without hits, as report_command() writes it. Returns false if it
 * cannot. */
bool parse_hits(struct cut *cut, const char *text);

#endif /* SIM_RUN_H */
