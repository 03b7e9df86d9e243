/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/pool.h"

#include <assert.h>
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/thread.h"

enum { STACK_BYTES = 256 << 10 };

static bool may_run(const struct pool *pool, const struct pool_job *job)
{
	const struct pool_rules *rules = pool->rules;

	return job->group->running < rules->group_max &&
	       (!rules->may_run || rules->may_run(pool, job));
}

static void append_group(struct pool *pool, struct pool_group *group)
{
	group->next = NULL;
	*(pool->groups ? &pool->groups_tail->next : &pool->groups) = group;
	pool->groups_tail = group;
}

/* Returns the next job that may run, and its predecessors in both lists. */
static struct pool_job *find_job(const struct pool *pool, struct pool_group **prev_group,
				 struct pool_job **prev)
{
	*prev_group = NULL;
	for (struct pool_group *group = pool->groups; group; group = group->next) {
		*prev = NULL;
		if (group->running < pool->rules->group_max)
			for (struct pool_job *job = group->head; job; job = job->next) {
				if (may_run(pool, job))
					return job;
				*prev = job;
			}
		*prev_group = group;
	}
	return NULL;
}

/* Removes the next job that may run from its group, which then goes behind the other groups. */
static struct pool_job *next_job(struct pool *pool)
{
	struct pool_group *prev_group, *group;
	struct pool_job *prev, *job = find_job(pool, &prev_group, &prev);

	if (!job)
		return NULL;
	group = job->group;
	*(prev ? &prev->next : &group->head) = job->next;
	if (!job->next)
		group->tail = prev;
	*(prev_group ? &prev_group->next : &pool->groups) = group->next;
	if (!group->next)
		pool->groups_tail = prev_group;
	if (group->head)
		append_group(pool, group);
	job->waits = false;
	return job;
}

static void count_running(struct pool *pool, const struct pool_job *job, struct pool_group *group,
			  int by)
{
	pool->running += (uint32_t)by;
	group->running += (uint32_t)by;
	if (pool->rules->count)
		pool->rules->count(pool, job, by);
}

static void append_done(struct pool *pool, struct pool_job *job)
{
	job->next = NULL;
	*(pool->done ? &pool->done_tail->next : &pool->done) = job;
	pool->done_tail = job;
	if (!atomic_exchange(&pool->ready, true) && eventfd_write(pool->event_fd, 1))
		assert(!"an eventfd whose count is 0 takes a 1");
}

static void *worker(void *user)
{
	struct pool *pool = user;

	sched_setaffinity(0, sizeof(pool->cpus), &pool->cpus);
	pthread_mutex_lock(&pool->lock);
	for (;;) {
		struct pool_job *job = next_job(pool);
		struct pool_group *group;

		if (!job && atomic_load(&pool->stop))
			break;
		if (!job) {
			pool->idle++;
			pthread_cond_wait(&pool->wake, &pool->lock);
			pool->idle--;
			pool->woken -= pool->woken > 0;
			continue;
		}
		group = job->group;
		count_running(pool, job, group, 1);
		pthread_mutex_unlock(&pool->lock);
		pool->rules->run(pool, job);
		pthread_mutex_lock(&pool->lock);
		count_running(pool, job, group, -1);
		if (!pool->rules->quiet)
			append_done(pool, job);
		if (atomic_load(&pool->stop))
			pthread_cond_signal(&pool->job_ended);
	}
	pthread_mutex_unlock(&pool->lock);
	return NULL;
}

static int start_worker(struct pool *pool)
{
	int rc = thread_start(&pool->workers[pool->workers_count], STACK_BYTES, worker, pool);

	pool->workers_count += !rc;
	return rc;
}

void pool_put(struct pool *pool, struct pool_group *group, struct pool_job *job)
{
	pthread_mutex_lock(&pool->lock);
	if (!job->waits) {
		job->waits = true;
		job->group = group;
		job->next = NULL;
		if (!group->head)
			append_group(pool, group);
		*(group->head ? &group->tail->next : &group->head) = job;
		group->tail = job;
		/* If neither is possible, a busy worker takes the job later. */
		if (may_run(pool, job) && pool->idle > pool->woken) {
			pool->woken++;
			pthread_cond_signal(&pool->wake);
		} else if (may_run(pool, job) && pool->workers_count < pool->rules->workers_max) {
			start_worker(pool);
		}
	}
	pthread_mutex_unlock(&pool->lock);
}

struct pool_job *pool_take(struct pool *pool)
{
	struct pool_job *job;
	eventfd_t count;

	if (!atomic_load_explicit(&pool->ready, memory_order_relaxed))
		return NULL;
	pthread_mutex_lock(&pool->lock);
	job = pool->done;
	pool->done = job->next;
	if (!pool->done) {
		if (eventfd_read(pool->event_fd, &count))
			assert(!"the count is 1 while jobs are done");
		atomic_store(&pool->ready, false);
	}
	pthread_mutex_unlock(&pool->lock);
	return job;
}

int pool_open(struct pool *pool, const struct pool_rules *rules, void *user)
{
	int rc;

	*pool = (struct pool){ .rules = rules, .user = user, .event_fd = -1 };
	sched_getaffinity(0, sizeof(pool->cpus), &pool->cpus);
	pool->workers = calloc(rules->workers_max, sizeof(*pool->workers));
	if (!pool->workers)
		return -ENOMEM;
	if (!rules->quiet)
		pool->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (!rules->quiet && pool->event_fd < 0) {
		rc = -errno;
		free(pool->workers);
		return rc;
	}
	pthread_mutex_init(&pool->lock, NULL);
	pthread_cond_init(&pool->wake, NULL);
	pthread_cond_init(&pool->job_ended, NULL);
	rc = start_worker(pool);
	if (rc)
		pool_free(pool);
	return rc;
}

uint32_t pool_stop(struct pool *pool, uint32_t patience_ms, bool finish)
{
	struct pool_group *prev_group;
	struct pool_job *prev;
	struct timespec until;
	uint32_t running;
	int rc = 0;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += patience_ms / 1000;
	until.tv_nsec += (long)(patience_ms % 1000) * 1000000;
	until.tv_sec += until.tv_nsec / 1000000000;
	until.tv_nsec %= 1000000000;
	pthread_mutex_lock(&pool->lock);
	atomic_store(&pool->stop, true);
	if (!finish)
		pool->groups = NULL;
	pthread_cond_broadcast(&pool->wake);
	while ((pool->running || find_job(pool, &prev_group, &prev)) && rc != ETIMEDOUT)
		rc = pthread_cond_clockwait(&pool->job_ended, &pool->lock, CLOCK_MONOTONIC, &until);
	pool->groups = NULL;
	running = pool->running;
	pthread_mutex_unlock(&pool->lock);
	return running;
}

void pool_free(struct pool *pool)
{
	for (uint32_t i = 0; i < pool->workers_count; i++)
		pthread_join(pool->workers[i], NULL);
	pthread_cond_destroy(&pool->wake);
	pthread_cond_destroy(&pool->job_ended);
	pthread_mutex_destroy(&pool->lock);
	if (pool->event_fd >= 0)
		close(pool->event_fd);
	free(pool->workers);
}
