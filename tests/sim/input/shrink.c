// SPDX-License-Identifier: BSD-2-Clause
/* Shortens a failing schedule: leaves out faults, operations and single hits while it fails in the
 * same way. */
#include <ctype.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "run.h"

enum { ENDLESS_MAX = 8 }; /* most trials that may end by the limit */

/* A trial's report to its parent. */
struct told {
	char why[SIM_TEXT_BYTES];
	struct cut seen;
};

/* A failure that is being cut short. */
struct hunt {
	struct cluster *cluster;
	const struct range *range;
	uint64_t seed;
	const char *why;
	uint32_t endless; /* such trials so far */
};

const char *run_cut(struct cluster *cluster, uint64_t seed, bool faults, const struct cut *cut)
{
	scenario_make(&cluster->scenario, seed, faults, cluster->hostile, cluster->unpacked);
	cluster->scenario.options.protocol = cluster->protocol;
	scenario_cut(&cluster->scenario, cut);
	return cluster_run(cluster);
}

const char *run_end(int status, uint32_t limit_ms, char text[SIM_TEXT_BYTES])
{
	if (WIFEXITED(status) && !WEXITSTATUS(status))
		return NULL;
	if (WIFSIGNALED(status) && WTERMSIG(status) == SIGPROF)
		snprintf(text, SIM_TEXT_BYTES, "it takes more than %u ms of processor time",
			 limit_ms);
	else if (WIFSIGNALED(status))
		snprintf(text, SIM_TEXT_BYTES, "it crashes: SIG%s", sigabbrev_np(WTERMSIG(status)));
	else
		snprintf(text, SIM_TEXT_BYTES, "it ends the process with status %d",
			 WEXITSTATUS(status));
	return text;
}

/* Runs in the child process, without output: the first failure was already printed. */
static void run_told(struct cluster *cluster, const struct range *range, uint64_t seed,
		     const struct cut *cut, struct told *told)
{
	int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
	const char *why;

	if (nowhere >= 0)
		dup2(nowhere, STDERR_FILENO);
	run_limit(range->limit_ms);
	why = range->run(cluster, seed, range->faults, cut);
	if (why)
		snprintf(told->why, sizeof(told->why), "%s", why);
	told->seen = cluster->seen;
	_exit(0);
}

const char *run_apart(struct cluster *cluster, const struct range *range, uint64_t seed,
		      const struct cut *cut)
{
	static char why[SIM_TEXT_BYTES];
	struct told *told = mmap(NULL, sizeof(*told), PROT_READ | PROT_WRITE,
				 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int status = 0;
	pid_t pid;

	if (told == MAP_FAILED)
		return NULL;
	fflush(NULL);
	pid = fork();
	if (!pid)
		run_told(cluster, range, seed, cut, told);
	if (pid > 0)
		waitpid(pid, &status, 0);
	memcpy(why, told->why, sizeof(why));
	cluster->seen = told->seen;
	munmap(told, sizeof(*told));
	if (pid < 0)
		return NULL;
	run_end(status, range->limit_ms, why);
	return why[0] ? why : NULL;
}

/* Reports whether two failures differ only in numbers. */
static bool alike(const char *a, const char *b)
{
	for (;; a++, b++) {
		while (isdigit((unsigned char)*a))
			a++;
		while (isdigit((unsigned char)*b))
			b++;
		if (*a != *b)
			return false;
		if (!*a)
			return true;
	}
}

/* Reports whether the seed fails in the same way with this cut. */
static bool fails(struct hunt *hunt, const struct cut *cut)
{
	const char *why;

	if (hunt->endless > ENDLESS_MAX)
		return false;
	why = run_apart(hunt->cluster, hunt->range, hunt->seed, cut);
	hunt->endless += why && strstr(why, "of processor time");
	return why && alike(why, hunt->why);
}

/* Sets each of n bits of a cut's mask without whose part the seed still fails in the same way.
 * Reports whether it set any. */
static bool leave_out(struct hunt *hunt, struct cut *cut, uint32_t *mask, uint32_t n)
{
	bool shorter = false;

	for (uint32_t i = 0; i < n; i++) {
		if (*mask >> i & 1)
			continue;
		*mask |= 1u << i;
		if (fails(hunt, cut))
			shorter = true;
		else
			*mask &= ~(1u << i);
	}
	return shorter;
}

/* Leaves out hits of one fault, by halves, quarters … single ones. */
static void leave_out_hits(struct hunt *hunt, struct cut *cut, uint32_t fault)
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
			if (fails(hunt, &trial))
				*cut = trial;
			else
				at += n;
		}
	}
}

void shrink(struct cluster *cluster, const struct range *range, uint64_t seed, const char *why,
	    struct cut *cut)
{
	struct hunt hunt = { .cluster = cluster, .range = range, .seed = seed, .why = why };
	static struct cut trial;
	uint32_t faults_count, ops_count;
	bool shorter = true;

	scenario_make(&cluster->scenario, seed, range->faults, cluster->hostile, cluster->unpacked);
	faults_count = cluster->scenario.faults_count;
	ops_count = cluster->scenario.ops_count;
	if (!fails(&hunt, cut))
		return;
	while (shorter) {
		shorter = leave_out(&hunt, cut, &cut->faults_left_out, faults_count);
		shorter |= leave_out(&hunt, cut, &cut->ops_left_out, ops_count);
	}
	fails(&hunt, cut);
	for (uint32_t i = 0; i < faults_count; i++) {
		trial = *cut;
		trial.hits_count[i] = cluster->seen.hits_count[i];
		if ((cut->faults_left_out >> i & 1) || !trial.hits_count[i] ||
		    trial.hits_count[i] > HITS_MAX)
			continue;
		trial.only_hits[i] = true;
		memcpy(trial.hits[i], cluster->seen.hits[i], sizeof(trial.hits[i]));
		if (fails(&hunt, &trial)) {
			*cut = trial;
			leave_out_hits(&hunt, cut, i);
		}
		fails(&hunt, cut);
	}
}
