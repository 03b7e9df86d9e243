// SPDX-License-Identifier: BSD-2-Clause
/*
 * Runs seeds: sim [--from N] [--count N] [--jobs N] [--no-faults], or one again as a
 * failure told:
 * sim --seed N [--without-op I]… [--without-fault I]… [--hits FAULT:I,I…]… [--trace]
 * Status 1 at the first seed that fails, after cutting its schedule short.
 */
#include <getopt.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cluster.h"

struct totals {
	uint64_t seeds, with_fault[FAULT_KINDS], hits[FAULT_KINDS];
	uint64_t ops, attempts, polls;
	uint64_t counters[CAREFUL_COUNTERS];
	double took_s; /* of processor time */
};

static double seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void add(struct totals *totals, const struct cluster *cluster)
{
	const struct scenario *s = &cluster->scenario;

	totals->seeds++;
	totals->polls += cluster->polls;
	for (uint32_t i = 0; i < s->faults_count; i++) {
		totals->with_fault[s->faults[i].kind]++;
		totals->hits[s->faults[i].kind] += s->faults[i].hits;
	}
	for (uint32_t i = 0; i < s->ops_count; i++)
		totals->attempts += s->ops[i].attempt;
	totals->ops += s->ops_count;
	for (uint32_t i = 0; i < CAREFUL_COUNTERS; i++)
		totals->counters[i] += cluster->counters[i];
}

static void report(const struct totals *totals)
{
	const uint64_t *n = totals->counters;

	printf("%-34s %10s %14s\n", "fault", "seeds", "times it hit");
	for (uint32_t i = 0; i < FAULT_KINDS; i++)
		if (totals->with_fault[i])
			printf("%-34s %10llu %14llu\n", scenario_fault_name(i),
			       (unsigned long long)totals->with_fault[i],
			       (unsigned long long)totals->hits[i]);
	printf("%llu seeds, none failed: %llu operations in %llu attempts, %llu frames, %llu "
	       "rounds; %llu frames found lost, %llu epochs broken, %llu stalls\n",
	       (unsigned long long)totals->seeds, (unsigned long long)totals->ops,
	       (unsigned long long)totals->attempts, (unsigned long long)n[CAREFUL_C_TX_FRAMES],
	       (unsigned long long)totals->polls, (unsigned long long)n[CAREFUL_C_LOST_FRAMES],
	       (unsigned long long)n[CAREFUL_C_EPOCHS_BROKEN],
	       (unsigned long long)n[CAREFUL_C_STALLS]);
	printf("%.1f s of processor time, %.0f seeds a second and core\n", totals->took_s,
	       (double)totals->seeds / totals->took_s);
}

static void print_command(const char *program, uint64_t seed, bool faults, const struct cut *cut)
{
	printf("  %s --seed %llu%s", program, (unsigned long long)seed,
	       faults ? "" : " --no-faults");
	for (uint32_t i = 0; i < 32; i++)
		if (cut->ops_left_out >> i & 1)
			printf(" --without-op %u", i);
	for (uint32_t i = 0; i < FAULTS_MAX; i++) {
		if (cut->faults_left_out >> i & 1)
			printf(" --without-fault %u", i);
		if (!cut->only_hits[i] || (cut->faults_left_out >> i & 1))
			continue;
		printf(" --hits %u:", i);
		for (uint32_t k = 0; k < cut->hits_count[i]; k++)
			printf("%s%u", k ? "," : "", cut->hits[i][k]);
	}
	printf("\n");
}

static const char *port_name(uint8_t port)
{
	static char names[4][8];
	static uint32_t next;
	char *name = names[next++ % 4];

	if (port == SIM_ANY)
		return "any";
	snprintf(name, sizeof(names[0]), "%u", port);
	return name;
}

static void describe(const struct scenario *s)
{
	static const char *const kinds[OP_KINDS] = { "request", "store", "get" };

	printf("  %u nodes, windows of %u buffers of %u bytes, frames up to %u bytes\n", s->nodes,
	       s->options.rx_buffers / s->options.peers, s->shape.buffer_bytes,
	       s->shape.frame_bytes);
	for (uint32_t i = 0; i < s->ops_count; i++)
		if (!(s->ops_left_out >> i & 1))
			printf("  operation %u: %s of %u bytes from node %u at node %u, at %.3f ms\n",
			       i, kinds[s->ops[i].kind], s->ops[i].bytes, s->ops[i].from,
			       s->ops[i].to, (double)s->ops[i].at_ns * 1e-6 - 1000);
	for (uint32_t i = 0; i < s->faults_count; i++) {
		const struct sim_fault *f = &s->faults[i];

		printf("  fault %u: %s, %s to %s, of kinds %#x, one in %u, amount %llu, %.3f to "
		       "%.3f ms, %u hits\n",
		       f->id, scenario_fault_name(f->kind), port_name(f->from), port_name(f->to),
		       f->what, f->one_in, (unsigned long long)f->amount,
		       (double)f->at_ns * 1e-6 - 1000, (double)f->until_ns * 1e-6 - 1000, f->hits);
	}
}

static int fail(struct cluster *cluster, const char *program, uint64_t seed, bool faults,
		const char *why)
{
	static struct cut cut;

	printf("seed %llu fails: %s\nreplay it with\n", (unsigned long long)seed, why);
	print_command(program, seed, faults, &cut);
	shrink(cluster, seed, faults, &cut);
	why = run_cut(cluster, seed, faults, &cut);
	printf("cut short, it fails so: %s\n", why ? why : "not at all (it is not deterministic)");
	print_command(program, seed, faults, &cut);
	describe(&cluster->scenario);
	return 1;
}

static void parse_hits(struct cut *cut, char *text)
{
	uint32_t fault = (uint32_t)strtoul(text, &text, 10) % FAULTS_MAX;

	cut->only_hits[fault] = true;
	while (*text && cut->hits_count[fault] < HITS_MAX) {
		if (*text != ':' && *text != ',')
			break;
		cut->hits[fault][cut->hits_count[fault]++] = (uint32_t)strtoul(text + 1, &text, 10);
	}
}

static int run_one(struct cluster *cluster, uint64_t seed, bool faults, const struct cut *cut)
{
	const char *why = run_cut(cluster, seed, faults, cut);

	printf("seed %llu: %s, at %.3f ms\n", (unsigned long long)seed, why ? why : "all is well",
	       (double)sim_now_ns(cluster->world) * 1e-6 - 1000);
	describe(&cluster->scenario);
	return why ? 1 : 0;
}

struct range {
	uint64_t from, count;
	uint32_t jobs;
	bool faults;
};

/* Every seed of the range that falls to this job. */
static int run_job(struct cluster *cluster, const char *program, const struct range *range,
		   uint32_t job, struct totals *totals)
{
	static const struct cut none;
	double start_s = seconds();

	for (uint64_t i = job; i < range->count; i += range->jobs) {
		const char *why = run_cut(cluster, range->from + i, range->faults, &none);

		if (why) {
			static char text[SIM_TEXT_BYTES];

			snprintf(text, sizeof(text), "%s", why);
			return fail(cluster, program, range->from + i, range->faults, text);
		}
		add(totals, cluster);
		totals->took_s = seconds() - start_s;
	}
	return 0;
}

static void sum(struct totals *all, const struct totals *one)
{
	uint64_t *to = (uint64_t *)all;
	const uint64_t *from = (const uint64_t *)one;

	for (size_t i = 0; i < offsetof(struct totals, took_s) / sizeof(*to); i++)
		to[i] += from[i];
	all->took_s += one->took_s;
}

/* Waits for the jobs; for people, says how far they are. */
static int await_jobs(const struct range *range, const struct totals *totals)
{
	int status, rc = 0;

	for (uint32_t left = range->jobs; left;) {
		uint64_t done = 0;
		pid_t pid = waitpid(-1, &status, isatty(STDERR_FILENO) ? WNOHANG : 0);

		if (pid > 0) {
			left--;
			rc |= !WIFEXITED(status) || WEXITSTATUS(status);
			continue;
		}
		for (uint32_t i = 0; i < range->jobs; i++)
			done += totals[i].seeds;
		fprintf(stderr, "\r%llu of %llu seeds", (unsigned long long)done,
			(unsigned long long)range->count);
		usleep(200000);
	}
	if (isatty(STDERR_FILENO))
		fprintf(stderr, "\r%30s\r", "");
	return rc;
}

static int run_many(struct cluster *cluster, const char *program, const struct range *range)
{
	static struct totals all;
	struct totals *totals = mmap(NULL, range->jobs * sizeof(*totals), PROT_READ | PROT_WRITE,
				     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int rc;

	if (totals == MAP_FAILED)
		return 1;
	if (range->jobs == 1) {
		rc = run_job(cluster, program, range, 0, totals);
	} else {
		for (uint32_t i = 0; i < range->jobs; i++)
			if (!fork()) {
				rc = run_job(cluster, program, range, i, &totals[i]);
				fflush(stdout);
				_exit(rc);
			}
		rc = await_jobs(range, totals);
	}
	for (uint32_t i = 0; i < range->jobs; i++)
		sum(&all, &totals[i]);
	if (!rc)
		report(&all);
	return rc;
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
		{ "trace", no_argument, NULL, 't' },
		{ NULL, 0, NULL, 0 },
	};
	static struct cut cut;
	struct cluster *cluster = cluster_create();
	struct range range = { .count = 1000, .jobs = 1, .faults = true };
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
			parse_hits(&cut, optarg);
			break;
		default:
			return 2;
		}
	}
	if (!cluster || !range.jobs)
		return 1;
	work_init();
	cluster->trace = trace;
	if (one)
		rc = run_one(cluster, range.from, range.faults, &cut);
	else
		rc = run_many(cluster, argv[0], &range);
	cluster_destroy(cluster);
	return rc;
}
