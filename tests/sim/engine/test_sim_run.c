// SPDX-License-Identifier: BSD-2-Clause
/*
 * Tests the runner of seeds: it names a seed that fails, crashes or never ends, and shortens its
 * schedule; the same seed gives the same run.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "run.h"
#include "sim.h"

enum { BAD_SEED = 45, OUTPUT = 8192, LIMIT_MS = 30 };

static char output[OUTPUT];

/* Runs seeds with a test's function; the text is in output. */
static int run(run_fn *fn, uint32_t jobs, uint64_t count)
{
	FILE *out = fmemopen(output, sizeof(output), "w");
	const struct range range = {
		.count = count,
		.jobs = jobs,
		.limit_ms = LIMIT_MS,
		.faults = true,
		.run = fn,
		.program = "sim",
		.out = out,
	};
	int rc;

	CHECK(out);
	rc = run_range(cluster, &range);
	fclose(out);
	return rc;
}

static void check_output(const char *words)
{
	if (strstr(output, words))
		return;
	fprintf(stderr, "not in the output: %s\n%s\n", words, output);
	exit(1);
}

/* The bad seed succeeds without operation 1, and fails differently without operation 2. */
static bool bad(uint64_t seed, const struct cut *cut)
{
	return seed == BAD_SEED && !(cut->ops_left_out & 2);
}

static const char *fails(struct cluster *c, uint64_t seed, bool faults, const struct cut *cut)
{
	static char why[SIM_TEXT_BYTES];

	(void)c;
	(void)faults;
	if (!bad(seed, cut))
		return NULL;
	if (cut->ops_left_out & 4)
		return "a failure of another kind";
	snprintf(why, sizeof(why), "at operation %u", cut->ops_left_out & 8 ? 77 : 3);
	return why;
}

static const char *crashes(struct cluster *c, uint64_t seed, bool faults, const struct cut *cut)
{
	(void)c;
	(void)faults;
	if (bad(seed, cut))
		abort();
	return NULL;
}

static const char *hangs(struct cluster *c, uint64_t seed, bool faults, const struct cut *cut)
{
	(void)c;
	(void)faults;
	for (volatile bool forever = bad(seed, cut); forever;)
		;
	return NULL;
}

static void check_command(uint32_t kept)
{
	char words[64];

	check_output("seed 45 fails: ");
	check_output("  sim --seed 45\n");
	for (uint32_t i = 0; i < cluster->scenario.ops_count; i++) {
		snprintf(words, sizeof(words), " --without-op %u", i);
		if (!(kept >> i & 1))
			check_output(words);
		else
			CHECK(!strstr(output, words));
	}
}

static void test_run__a_failing_seed_is_shortened(void)
{
	scenario_make(&cluster->scenario, BAD_SEED, true, false, false);
	CHECK_EQ(cluster->scenario.ops_count, 7);
	CHECK_EQ(run(fails, 1, 100), 1);
	check_output("seed 45 fails: at operation 3\n");
	check_output("cut short, it fails so: at operation 77\n");
	check_command(2 | 4);
}

static void test_run__a_seed_that_crashes_is_named(void)
{
	for (uint32_t jobs = 1; jobs <= 3; jobs += 2) {
		CHECK_EQ(run(crashes, jobs, 100), 1);
		check_output("seed 45 fails: it crashes: SIGABRT\n");
		check_output("cut short, it fails so: it crashes: SIGABRT\n");
		check_command(2);
	}
}

static void test_run__a_seed_without_end_is_named(void)
{
	CHECK_EQ(run(hangs, 2, 100), 1);
	check_output("seed 45 fails: it takes more than 30 ms of processor time\n");
	check_output("cut short, it fails so: it takes more than 30 ms of processor time\n");
}

/* More seeds than could run within the test's time. */
static void test_run__the_first_failure_stops_all_jobs(void)
{
	CHECK_EQ(run(fails, 4, 1ull << 60), 1);
	check_output("seed 45 fails: ");
}

static void test_run__totals_of_good_seeds(void)
{
	CHECK_EQ(run(fails, 2, BAD_SEED), 0);
	check_output("45 seeds, none failed");
}

static void test_hits__are_read_as_they_are_written(void)
{
	static const char *const wrong[] = { "",    "1",   "1:,",  "1:2,", "1:2,,3",
					     "x:1", "1:x", "10:1", "1:2 ", "-1:2" };
	static struct cut cut;

	CHECK(parse_hits(&cut, "3:"));
	CHECK(cut.only_hits[3]);
	CHECK_EQ(cut.hits_count[3], 0);
	CHECK(parse_hits(&cut, "4:0,17,5"));
	CHECK_EQ(cut.hits_count[4], 3);
	CHECK_EQ(cut.hits[4][1], 17);
	for (uint32_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		CHECK(!parse_hits(&cut, wrong[i]));
}

/* The second run is in the opposite order, with a cluster at another address. */
static void test_seed__two_runs_are_identical(void)
{
	enum { SEEDS = 100 };
	static const struct cut none;
	struct cluster *other = cluster_create();
	uint64_t digests[SEEDS];

	CHECK(other);
	cluster->digests = other->digests = true;
	for (uint32_t i = 0; i < SEEDS; i++) {
		EXPECT_WELL(run_cut(cluster, i, true, &none));
		digests[i] = cluster->digest;
		CHECK(digests[i] && (!i || digests[i] != digests[i - 1]));
	}
	for (uint32_t i = SEEDS; i-- > 0;) {
		EXPECT_WELL(run_cut(other, i, true, &none));
		CHECK_EQ(other->digest, digests[i]);
	}
	cluster_destroy(other);
	cluster->digests = false;
}

int main(void)
{
	sim_init();
	RUN(test_run__a_failing_seed_is_shortened);
	RUN(test_run__a_seed_that_crashes_is_named);
	RUN(test_run__a_seed_without_end_is_named);
	RUN(test_run__the_first_failure_stops_all_jobs);
	RUN(test_run__totals_of_good_seeds);
	RUN(test_hits__are_read_as_they_are_written);
	RUN(test_seed__two_runs_are_identical);
	cluster_destroy(cluster);
	return 0;
}
