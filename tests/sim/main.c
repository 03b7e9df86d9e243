// SPDX-License-Identifier: BSD-2-Clause
/*
 * Runs seeds, or one seed again with the options that a failure printed.
 *
 *   sim [--from N] [--count N] [--jobs N] [--no-faults] [--limit-ms N]
 *       [--protocol careful|traditional] [--hostile] [--unpacked]
 *   sim --seed N [--without-op I]… [--without-fault I]… [--hits FAULT:I,I…]… [--trace]
 *
 * With --hostile, one of three nodes lies. With --unpacked, no two messages share a frame. The first
 * seed that fails, crashes or takes longer than --limit-ms of processor time is cut to a short
 * schedule; the status is then 1.
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "run.h"

enum { LIMIT_MS = 20 * 1000 }; /* a seed takes 0.3 ms, ten times as long with sanitizers */

static int run_one(struct cluster *cluster, const struct range *range, const struct cut *cut)
{
	uint64_t seed = range->from;
	const char *why;

	cluster->digests = true;
	why = run_cut(cluster, seed, range->faults, cut);
	printf("seed %llu: %s, at %.3f ms; digest of what passed the network %016llx\n",
	       (unsigned long long)seed, why ? why : "all is well",
	       (double)sim_now_ns(cluster->world) * 1e-6 - 1000,
	       (unsigned long long)cluster->digest);
	report_scenario(stdout, &cluster->scenario);
	return why ? 1 : 0;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "from", required_argument, NULL, 'f' },
		{ "count", required_argument, NULL, 'c' },
		{ "jobs", required_argument, NULL, 'j' },
		{ "seed", required_argument, NULL, 's' },
		{ "no-faults", no_argument, NULL, 'n' },
		{ "without-op", required_argument, NULL, 'o' },
		{ "without-fault", required_argument, NULL, 'w' },
		{ "hits", required_argument, NULL, 'h' },
		{ "limit-ms", required_argument, NULL, 'l' },
		{ "trace", no_argument, NULL, 't' },
		{ "protocol", required_argument, NULL, 'p' },
		{ "hostile", no_argument, NULL, 'H' },
		{ "unpacked", no_argument, NULL, 'u' },
		{ NULL, 0, NULL, 0 },
	};
	static struct cut cut;
	struct cluster *cluster = cluster_create();
	struct range range = {
		.count = 1000,
		.jobs = 1,
		.limit_ms = LIMIT_MS,
		.faults = true,
		.run = run_cut,
		.program = argv[0],
		.out = stdout,
	};
	bool one = false, trace = false;
	int c, rc;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (c) {
		case 'f':
			range.from = strtoull(optarg, NULL, 10);
			break;
		case 'c':
			range.count = strtoull(optarg, NULL, 10);
			break;
		case 'j':
			range.jobs = (uint32_t)strtoul(optarg, NULL, 10);
			break;
		case 's':
			range.from = strtoull(optarg, NULL, 10);
			one = true;
			break;
		case 'n':
			range.faults = false;
			break;
		case 'o':
			cut.ops_left_out |= 1u << strtoul(optarg, NULL, 10) % OPS_MAX;
			break;
		case 'w':
			cut.faults_left_out |= 1u << strtoul(optarg, NULL, 10) % FAULTS_MAX;
			break;
		case 't':
			trace = true;
			break;
		case 'h':
			if (!parse_hits(&cut, optarg))
				return 2;
			break;
		case 'p':
			if (!strcmp(optarg, "traditional"))
				range.protocol = CAREFUL_PROTOCOL_TRADITIONAL;
			else if (strcmp(optarg, "careful") != 0)
				return 2;
			break;
		case 'H':
			range.hostile = true;
			break;
		case 'u':
			range.unpacked = true;
			break;
		case 'l':
			range.limit_ms = (uint32_t)strtoul(optarg, NULL, 10);
			break;
		default:
			return 2;
		}
	}
	if (!cluster || !range.jobs)
		return 1;
	work_init();
	cluster->trace = trace;
	cluster->protocol = range.protocol;
	cluster->hostile = range.hostile;
	cluster->unpacked = range.unpacked;
	if (one)
		rc = run_one(cluster, &range, &cut);
	else
		rc = run_range(cluster, &range);
	cluster_destroy(cluster);
	return rc;
}
