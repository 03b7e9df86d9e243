// SPDX-License-Identifier: BSD-2-Clause
/*
 * Runs the seeds of a range in several processes. Each job's position is in shared memory, so that
 * the parent knows the seed of a job that crashed.
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "run.h"

/* @seed: the running or failed seed. @why: its failure. @ended: status of waitpid() */
struct job {
	struct totals totals;
	uint64_t seed;
	bool failed;
	char why[SIM_TEXT_BYTES];
	pid_t pid;
	int ended;
};

struct jobs {
	bool stop; /* a seed failed: no job starts another */
	struct job job[];
};

static double seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

void run_limit(uint32_t ms)
{
	const struct itimerval timer = {
		.it_value = { .tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000 },
	};

	setitimer(ITIMER_PROF, &timer, NULL);
}

/* Runs this job's share of the seeds. */
static void run_job(struct cluster *cluster, const struct range *range, struct jobs *jobs,
		    uint32_t index)
{
	static const struct cut none;
	struct job *job = &jobs->job[index];
	double start_s = seconds();

	for (uint64_t i = index; i < range->count; i += range->jobs) {
		const char *why;

		if (__atomic_load_n(&jobs->stop, __ATOMIC_RELAXED))
			return;
		job->seed = range->from + i;
		run_limit(range->limit_ms);
		why = range->run(cluster, job->seed, range->faults, &none);
		if (why) {
			snprintf(job->why, sizeof(job->why), "%s", why);
			job->failed = true;
			return;
		}
		totals_add(&job->totals, cluster);
		job->totals.took_s = seconds() - start_s;
	}
}

static void progress(const struct range *range, const struct jobs *jobs)
{
	uint64_t done = 0;

	for (uint32_t i = 0; i < range->jobs; i++)
		done += jobs->job[i].totals.seeds;
	fprintf(stderr, "\r%llu of %llu seeds", (unsigned long long)done,
		(unsigned long long)range->count);
}

static void note_end(const struct range *range, struct jobs *jobs, pid_t pid, int status)
{
	for (uint32_t i = 0; i < range->jobs; i++) {
		struct job *job = &jobs->job[i];

		if (job->pid != pid)
			continue;
		job->ended = status;
		if (run_end(status, range->limit_ms, job->why))
			job->failed = true;
		if (job->failed)
			__atomic_store_n(&jobs->stop, true, __ATOMIC_RELAXED);
	}
}

/* Waits for all jobs; on a terminal, prints their progress. */
static void await_jobs(const struct range *range, struct jobs *jobs, uint32_t left)
{
	bool tell = isatty(STDERR_FILENO);

	while (left) {
		int status;
		pid_t pid = waitpid(-1, &status, tell ? WNOHANG : 0);

		if (pid < 0)
			break;
		if (pid) {
			left--;
			note_end(range, jobs, pid, status);
			continue;
		}
		progress(range, jobs);
		usleep(200000);
	}
	if (tell)
		fprintf(stderr, "\r%30s\r", "");
}

/* Starts the jobs. Returns how many could be started. */
static uint32_t start_jobs(struct cluster *cluster, const struct range *range, struct jobs *jobs)
{
	fflush(NULL); /* or each job would print it again */
	for (uint32_t i = 0; i < range->jobs; i++) {
		pid_t pid = fork();

		if (!pid) {
			run_job(cluster, range, jobs, i);
			exit(0);
		}
		if (pid < 0) {
			perror("fork");
			jobs->stop = true;
			return i;
		}
		jobs->job[i].pid = pid;
	}
	return range->jobs;
}

static void tell_failure(struct cluster *cluster, const struct range *range, const struct job *job,
			 bool first)
{
	static struct cut cut;
	const char *why;

	memset(&cut, 0, sizeof(cut));
	fprintf(range->out, "seed %llu fails: %s\nreplay it with\n", (unsigned long long)job->seed,
		job->why);
	report_command(range, job->seed, &cut);
	if (!first)
		return;
	fflush(range->out);
	shrink(cluster, range, job->seed, job->why, &cut);
	why = run_apart(cluster, range, job->seed, &cut);
	fprintf(range->out, "cut short, it fails so: %s\n",
		why ? why : "not at all (it is not deterministic)");
	report_command(range, job->seed, &cut);
	scenario_make(&cluster->scenario, job->seed, range->faults, cluster->hostile,
		      cluster->unpacked);
	scenario_cut(&cluster->scenario, &cut);
	report_scenario(range->out, &cluster->scenario);
}

int run_range(struct cluster *cluster, const struct range *range)
{
	size_t bytes = sizeof(struct jobs) + range->jobs * sizeof(struct job);
	struct totals all = { 0 };
	struct jobs *jobs =
		mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	uint32_t started, failed = 0;

	if (jobs == MAP_FAILED) {
		perror("mmap");
		return 1;
	}
	started = start_jobs(cluster, range, jobs);
	await_jobs(range, jobs, started);
	for (uint32_t i = 0; i < started; i++) {
		totals_sum(&all, &jobs->job[i].totals);
		if (jobs->job[i].failed)
			tell_failure(cluster, range, &jobs->job[i], !failed++);
	}
	if (!failed && started == range->jobs)
		totals_report(range->out, &all);
	munmap(jobs, bytes);
	return failed || started < range->jobs;
}
