// SPDX-License-Identifier: BSD-2-Clause
/* The worker pool: jobs run until the test opens their gate. */
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <time.h>
#include <unistd.h>

#include "base/pool.h"
#include "check.h"

enum {
	WORKERS = 4,
	GROUP = 2,
	JOBS = 6,
	STOP_MS = 50,
	PATIENCE_MS = 30000,
};

struct job {
	struct pool_job pooled;
	sem_t gate;
	int number;
};

static struct pool pool;
static struct pool_group groups[3];
static struct job jobs[JOBS];
static sem_t begun;
static int order[JOBS * 4];
static atomic_int runs;
static bool closed; /* the last job may not run */

static void run(struct pool *of, struct pool_job *pooled)
{
	struct job *job = (struct job *)pooled;

	CHECK(of->user == &runs);
	order[atomic_fetch_add(&runs, 1)] = job->number;
	sem_post(&begun);
	sem_wait(&job->gate);
}

static bool may_run(const struct pool *of, const struct pool_job *job)
{
	(void)of;
	return !closed || ((const struct job *)job)->number != JOBS - 1;
}

static const struct pool_rules plain = { .workers_max = WORKERS, .group_max = GROUP, .run = run };
static const struct pool_rules more = {
	.workers_max = WORKERS, .group_max = GROUP, .may_run = may_run, .run = run
};
static const struct pool_rules quiet = {
	.workers_max = 1, .group_max = 1, .quiet = true, .run = run
};

static void begin(const struct pool_rules *rules)
{
	CHECK(!sem_init(&begun, 0, 0));
	for (int i = 0; i < JOBS; i++) {
		jobs[i] = (struct job){ .number = i };
		CHECK(!sem_init(&jobs[i].gate, 0, 0));
	}
	for (int i = 0; i < 3; i++)
		groups[i] = (struct pool_group){ 0 };
	runs = 0;
	CHECK_EQ(pool_open(&pool, rules, &runs), 0);
}

static void put(int group, int job)
{
	pool_put(&pool, &groups[group], &jobs[job].pooled);
}

/* Waits until this many more jobs have begun. */
static void await(int count)
{
	struct timespec until;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += PATIENCE_MS / 1000;
	for (; count; count--)
		CHECK(!sem_timedwait(&begun, &until));
}

/* Waits for a finished job, and returns its number. */
static int take(void)
{
	struct pollfd pfd = { .fd = pool.event_fd, .events = POLLIN };
	struct pool_job *job;

	CHECK_EQ(poll(&pfd, 1, PATIENCE_MS), 1);
	job = pool_take(&pool);
	CHECK(job);
	return ((struct job *)job)->number;
}

static void end(void)
{
	for (int i = 0; i < JOBS; i++)
		sem_post(&jobs[i].gate);
	CHECK_EQ(pool_stop(&pool, PATIENCE_MS, true), 0);
	pool_free(&pool);
}

/* A group whose jobs hang leaves threads for the others. */
static void test_pool__a_hanging_group_delays_no_other(void)
{
	begin(&plain);
	for (int i = 0; i < 4; i++)
		put(0, i);
	await(GROUP);
	sem_post(&jobs[4].gate);
	put(1, 4);
	CHECK_EQ(take(), 4);
	CHECK_EQ(runs, GROUP + 1);
	end();
	CHECK_EQ(runs, 5);
}

/* Reports whether all threads wait for a job. */
static bool is_idle(void)
{
	bool idle;

	pthread_mutex_lock(&pool.lock);
	idle = pool.idle == pool.workers_count;
	pthread_mutex_unlock(&pool.lock);
	return idle;
}

/* A thread starts only if none is idle, and at most workers_max start. */
static void test_pool__idle_threads_are_reused(void)
{
	begin(&plain);
	for (int round = 0; round < 4; round++) {
		while (!is_idle())
			usleep(1000);
		sem_post(&jobs[0].gate);
		put(0, 0);
		CHECK_EQ(take(), 0);
		CHECK(!pool_take(&pool));
	}
	while (!is_idle())
		usleep(1000);
	CHECK_EQ(pool.workers_count, 1);
	put(0, 0);
	put(0, 1);
	put(1, 2);
	put(1, 3);
	put(2, 4);
	await(4 + WORKERS);
	CHECK_EQ(pool.workers_count, WORKERS);
	end();
}

/* A worker that starts later uses the CPUs of the thread that opened the pool. */
static void test_pool__workers_use_the_cpus_of_the_opener(void)
{
	cpu_set_t all, one, its;

	CHECK(!sched_getaffinity(0, sizeof(all), &all));
	if (CPU_COUNT(&all) < 2) {
		skip_part("one CPU");
		return;
	}
	begin(&plain);
	CPU_ZERO(&one);
	for (size_t cpu = 0; !CPU_COUNT(&one); cpu++)
		if (CPU_ISSET(cpu, &all))
			CPU_SET(cpu, &one);
	CHECK(!sched_setaffinity(0, sizeof(one), &one));
	for (int i = 0; i < WORKERS; i++)
		put(i / GROUP, i);
	await(WORKERS);
	CHECK_EQ(pool.workers_count, WORKERS);
	for (int i = 0; i < WORKERS; i++) {
		CHECK(!pthread_getaffinity_np(pool.workers[i], sizeof(its), &its));
		CHECK(CPU_EQUAL(&its, &all));
	}
	CHECK(!sched_setaffinity(0, sizeof(all), &all));
	end();
}

/* Groups take turns, and the jobs of a group begin in order. */
static void test_pool__groups_take_turns(void)
{
	static const struct pool_rules one = { .workers_max = 1, .group_max = GROUP, .run = run };
	const int expected[] = { 0, 1, 3, 2 };

	begin(&one);
	put(0, 0);
	await(1);
	put(0, 1);
	put(0, 2);
	put(1, 3);
	end();
	for (int i = 0; i < 4; i++)
		CHECK_EQ(order[i], expected[i]);
}

/* A job that may not run yet delays no other, and runs once it may. */
static void test_pool__may_run_of_the_owner(void)
{
	begin(&more);
	closed = true;
	put(0, 0);
	await(1);
	put(0, JOBS - 1);
	put(0, 1);
	await(1);
	CHECK_EQ(order[1], 1);
	closed = false;
	sem_post(&jobs[1].gate);
	await(1);
	CHECK_EQ(order[2], JOBS - 1);
	end();
}

/* pool_stop() reports the jobs that hang, and those that wait never run. */
static void test_pool__stop_does_not_wait_for_a_hanging_job(void)
{
	begin(&plain);
	for (int i = 0; i < 3; i++)
		put(0, i);
	await(GROUP);
	CHECK_EQ(pool_stop(&pool, STOP_MS, true), GROUP);
	for (int i = 0; i < GROUP; i++)
		sem_post(&jobs[i].gate);
	pool_free(&pool);
	CHECK_EQ(runs, GROUP);
}

static void test_pool__stop_drops_waiting_jobs(void)
{
	begin(&more);
	closed = true;
	put(0, JOBS - 1);
	closed = false;
	CHECK_EQ(pool_stop(&pool, PATIENCE_MS, false), 0);
	pool_free(&pool);
	CHECK_EQ(runs, 0);
}

/* A quiet job that is put again while it runs, even twice, runs once more. */
static void test_pool__quiet_jobs_run_again(void)
{
	begin(&quiet);
	CHECK_EQ(pool.event_fd, -1);
	put(0, 0);
	await(1);
	put(0, 0);
	put(0, 0);
	sem_post(&jobs[0].gate);
	await(1);
	end();
	CHECK_EQ(runs, 2);
}

int main(void)
{
	RUN(test_pool__a_hanging_group_delays_no_other);
	RUN(test_pool__idle_threads_are_reused);
	RUN(test_pool__workers_use_the_cpus_of_the_opener);
	RUN(test_pool__groups_take_turns);
	RUN(test_pool__may_run_of_the_owner);
	RUN(test_pool__stop_does_not_wait_for_a_hanging_job);
	RUN(test_pool__stop_drops_waiting_jobs);
	RUN(test_pool__quiet_jobs_run_again);
	return 0;
}
