/* SPDX-License-Identifier: BSD-2-Clause */
/* Worker threads for jobs that may wait for long: a file system can hang for ever. The owner's
 * thread puts jobs and takes the finished ones back. Groups take turns, and the jobs of a group
 * begin in order. The owner limits how many jobs of a group run at a time, so a group whose jobs
 * hang cannot hold all workers. */
#pragma once

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct pool;

/* Belongs to the pool from pool_put() until pool_take(). */
struct pool_job {
	struct pool_job *next;
	struct pool_group *group;
	bool waits;
};

/* Jobs that are limited together. Zeroed by the owner, who keeps it while it has jobs. Guarded by
 * the pool's lock.
 *
 * @head, @tail: jobs that wait
 * @next: the next group with jobs that wait */
struct pool_group {
	struct pool_group *next;
	struct pool_job *head, *tail;
	uint32_t running;
};

/* @workers_max: most threads; a thread starts when a job may run and no thread is idle
 * @group_max: jobs of a group that may run at a time
 * @quiet: pool_take() does not return finished jobs; run() may put its job again
 * @may_run: further limits, or NULL; called with the lock
 * @count: called with the lock, by = 1 before run() and -1 after it; or NULL
 * @run: called by a worker */
struct pool_rules {
	uint32_t workers_max, group_max;
	bool quiet;
	bool (*may_run)(const struct pool *pool, const struct pool_job *job);
	void (*count)(struct pool *pool, const struct pool_job *job, int by);
	void (*run)(struct pool *pool, struct pool_job *job);
};

/* The lock protects `groups` to `done_tail`.
 *
 * @cpus: CPUs of the thread that opened the pool; all workers use these
 * @wake: a job may run
 * @job_ended: signalled only while stopping
 * @event_fd: readable while pool_take() has a job; -1 if quiet
 * @stop: long jobs read it, too
 * @ready: `done` is not NULL
 * @groups: groups with jobs that wait, in turn
 * @running: number of running jobs
 * @idle: workers that wait for a job; `woken` of them were signalled */
struct pool {
	const struct pool_rules *rules;
	void *user;
	cpu_set_t cpus;
	pthread_mutex_t lock;
	pthread_cond_t wake, job_ended;
	pthread_t *workers;
	int event_fd;
	atomic_bool stop, ready;
	struct pool_group *groups, *groups_tail;
	uint32_t workers_count, running, idle, woken;
	struct pool_job *done, *done_tail;
};

/* Starts the first worker. Returns 0 or -errno. */
int pool_open(struct pool *pool, const struct pool_rules *rules, void *user);
/* Queues a job; does nothing if it waits already. */
void pool_put(struct pool *pool, struct pool_group *group, struct pool_job *job);
/* Returns a finished job, or NULL. */
struct pool_job *pool_take(struct pool *pool);
/* Waits up to patience_ms for running jobs. With `finish` the workers also run the jobs that wait;
 * jobs not begun by then never run. Returns how many jobs still run: they use their memory and the
 * pool until they end. */
uint32_t pool_stop(struct pool *pool, uint32_t patience_ms, bool finish);
/* Joins the workers of a stopped pool, however long their jobs run. */
void pool_free(struct pool *pool);
