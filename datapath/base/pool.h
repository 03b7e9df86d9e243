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

/* Jobs that are limited together. Zeroed by the owner, who keeps it while it has jobs. Guarded
 * by the pool's lock. */
struct pool_group {
	struct pool_group *next; /* the next group with jobs that wait */
	struct pool_job *head, *tail; /* jobs that wait */
	uint32_t running;
};

struct pool_rules {
	/* most threads; a thread starts when a job may run and no thread is idle */
	uint32_t workers_max;
	uint32_t group_max; /* jobs of a group that may run at a time */
	bool quiet; /* pool_take() does not return finished jobs; run() may put its job again */
	/* Further limits, or NULL; called with the lock held. */
	bool (*may_run)(const struct pool *pool, const struct pool_job *job);
	/* NULL, or called with the lock held: by = 1 before run(), by = -1 after it. */
	void (*count)(struct pool *pool, const struct pool_job *job, int by);
	/* Called by a worker. */
	void (*run)(struct pool *pool, struct pool_job *job);
};

/* The lock protects `groups` to `done_tail`. */
struct pool {
	const struct pool_rules *rules;
	void *user;
	cpu_set_t cpus; /* CPUs of the thread that opened the pool; all workers use these */
	pthread_mutex_t lock;
	pthread_cond_t wake; /* a job may run */
	pthread_cond_t job_ended; /* signalled only while stopping */
	pthread_t *workers;
	int event_fd; /* readable while pool_take() has a job; -1 if quiet */
	atomic_bool stop; /* long jobs read it, too */
	atomic_bool ready; /* `done` is not NULL */
	struct pool_group *groups; /* groups with jobs that wait, in turn */
	struct pool_group *groups_tail;
	uint32_t workers_count;
	uint32_t running; /* number of running jobs */
	uint32_t idle; /* workers that wait for a job; `woken` of them were signalled */
	uint32_t woken;
	struct pool_job *done, *done_tail;
};

/* Starts the first worker. Returns 0 or -errno. */
int pool_open(struct pool *pool, const struct pool_rules *rules, void *user);
/* Queues a job; does nothing if it waits already. */
void pool_put(struct pool *pool, struct pool_group *group, struct pool_job *job);
/* Returns a finished job, or NULL. */
struct pool_job *pool_take(struct pool *pool);
/* Waits up to patience_ms for running jobs. With `finish` the workers also run the waiting jobs;
 * those that have not begun in this time never run. Returns how many jobs still run: these use
 * their memory and the pool until they end. */
uint32_t pool_stop(struct pool *pool, uint32_t patience_ms, bool finish);
/* Joins the workers of a stopped pool, however long their jobs run. */
void pool_free(struct pool *pool);
