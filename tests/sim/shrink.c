// SPDX-License-Identifier: BSD-2-Clause
/* From a seed that fails to a shorter schedule that still does: faults, operations and
 * single hits are left out while it fails. */
#include "cluster.h"

#include <string.h>

const char *run_cut(struct cluster *cluster, uint64_t seed, bool faults, const struct cut *cut)
{
	scenario_make(&cluster->scenario, seed, faults);
	scenario_cut(&cluster->scenario, cut);
	return cluster_run(cluster);
}

/* Leaves out each bit of a mask that can be; whether any could. */
static bool leave_out(struct cluster *cluster, uint64_t seed, bool faults, struct cut *cut,
		      uint32_t *mask, uint32_t n)
{
	bool shorter = false;

	for (uint32_t i = 0; i < n; i++) {
		if (*mask >> i & 1)
			continue;
		*mask |= 1u << i;
		if (run_cut(cluster, seed, faults, cut))
			shorter = true;
		else
			*mask &= ~(1u << i);
	}
	return shorter;
}

/* Leaves out hits of one fault, by halves, quarters … single ones. */
static void leave_out_hits(struct cluster *cluster, uint64_t seed, bool faults, struct cut *cut,
			   uint32_t fault)
{
	static struct cut trial;
	uint32_t size = cut->hits_count[fault];

	while (size > 1) {
		size = (size + 1) / 2;
		for (uint32_t at = 0; at < cut->hits_count[fault];) {
			uint32_t rest = cut->hits_count[fault] - at;
			uint32_t n = size < rest ? size : rest;

			trial = *cut;
			memmove(trial.hits[fault] + at, trial.hits[fault] + at + n,
				(rest - n) * sizeof(trial.hits[0][0]));
			trial.hits_count[fault] -= n;
			if (run_cut(cluster, seed, faults, &trial))
				*cut = trial;
			else
				at += n;
		}
	}
}

void shrink(struct cluster *cluster, uint64_t seed, bool faults, struct cut *cut)
{
	static struct cut trial;
	uint32_t faults_count, ops_count;
	bool shorter = true;

	if (!run_cut(cluster, seed, faults, cut))
		return;
	scenario_make(&cluster->scenario, seed, faults);
	faults_count = cluster->scenario.faults_count;
	ops_count = cluster->scenario.ops_count;
	while (shorter) {
		shorter =
			leave_out(cluster, seed, faults, cut, &cut->faults_left_out, faults_count);
		shorter |= leave_out(cluster, seed, faults, cut, &cut->ops_left_out, ops_count);
	}
	run_cut(cluster, seed, faults, cut);
	for (uint32_t i = 0; i < faults_count; i++) {
		trial = *cut;
		trial.hits_count[i] = cluster->seen.hits_count[i];
		if ((cut->faults_left_out >> i & 1) || !trial.hits_count[i] ||
		    trial.hits_count[i] > HITS_MAX)
			continue;
		trial.only_hits[i] = true;
		memcpy(trial.hits[i], cluster->seen.hits[i], sizeof(trial.hits[i]));
		if (run_cut(cluster, seed, faults, &trial)) {
			*cut = trial;
			leave_out_hits(cluster, seed, faults, cut, i);
		}
		run_cut(cluster, seed, faults, cut);
	}
}
