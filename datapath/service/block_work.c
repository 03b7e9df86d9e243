/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The block server's worker threads: jobs in by a lock and a condition, out by a
 * list and an eventfd. Calls block_file.c, which does what a job says.
 */
#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "service/block_private.h"

enum { STACK_BYTES = 256 << 10 };

/* Whether a job may take seconds: a sync, a walk over a tree, much to read. */
static bool is_slow(const struct block_job *job)
{
	return job->op == CAREFUL_BLOCK_LIST || job->op == CAREFUL_BLOCK_DIGEST ||
	       job->op == CAREFUL_BLOCK_BATCH ||
	       (job->op == CAREFUL_BLOCK_OPEN && (job->flags & CAREFUL_BLOCK_SEED)) ||
	       (job->op == CAREFUL_BLOCK_COMMIT && !(job->flags & CAREFUL_BLOCK_NOSYNC));
}

/* With the lock held. */
static struct block_job *next_job(struct block_work *work, bool *slow)
{
	*slow = work->slow.head && work->slow_running < BLOCK_WORKERS_SLOW;
	if (*slow)
		work->slow_running++;
	return block_queue_take(*slow ? &work->slow : &work->quick);
}

static void job_done(struct block_work *work, struct block_job *job)
{
	uint64_t one = 1;

	block_queue_put(&work->done, job);
	if (!atomic_exchange(&work->ready, true)) {
		ssize_t n = write(work->event_fd, &one, sizeof(one));

		assert(n == sizeof(one));
		(void)n;
	}
}

static void *worker(void *arg)
{
	struct block_server *server = arg;
	struct block_work *work = &server->work;
	struct block_job *job;
	bool slow;

	pthread_mutex_lock(&work->lock);
	for (;;) {
		job = next_job(work, &slow);
		if (!job && work->stop)
			break;
		if (!job) {
			pthread_cond_wait(&work->wake, &work->lock);
			continue;
		}
		pthread_mutex_unlock(&work->lock);
		block_run(server, job);
		pthread_mutex_lock(&work->lock);
		job_done(work, job);
		/* The loop looks at `slow` again itself: no other worker need wake. */
		work->slow_running -= slow;
	}
	pthread_mutex_unlock(&work->lock);
	return NULL;
}

void block_work_put(struct block_server *server, struct block_job *job)
{
	struct block_work *work = &server->work;

	pthread_mutex_lock(&work->lock);
	block_queue_put(is_slow(job) ? &work->slow : &work->quick, job);
	pthread_mutex_unlock(&work->lock);
	pthread_cond_signal(&work->wake);
}

struct block_job *block_work_take(struct block_server *server)
{
	struct block_work *work = &server->work;
	struct block_job *job;
	uint64_t count;

	if (!atomic_load_explicit(&work->ready, memory_order_relaxed))
		return NULL;
	pthread_mutex_lock(&work->lock);
	job = block_queue_take(&work->done);
	if (!work->done.head) {
		ssize_t n = read(work->event_fd, &count, sizeof(count));

		assert(n == sizeof(count));
		(void)n;
		atomic_store(&work->ready, false);
	}
	pthread_mutex_unlock(&work->lock);
	return job;
}

/* Signals are the main thread's business. */
static int start_threads(struct block_server *server)
{
	struct block_work *work = &server->work;
	pthread_attr_t attr;
	sigset_t all, before;
	int rc = 0;

	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, STACK_BYTES);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	while (!rc && work->threads_count < BLOCK_WORKERS) {
		rc = pthread_create(&work->threads[work->threads_count], &attr, worker, server);
		if (!rc)
			work->threads_count++;
	}
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attr);
	return -rc;
}

int block_work_init(struct block_server *server)
{
	struct block_work *work = &server->work;
	int rc;

	block_queue_init(&work->quick);
	block_queue_init(&work->slow);
	block_queue_init(&work->done);
	work->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (work->event_fd < 0)
		return -errno;
	pthread_mutex_init(&work->lock, NULL);
	pthread_cond_init(&work->wake, NULL);
	rc = start_threads(server);
	if (rc)
		block_work_deinit(server);
	return rc;
}

/* Returns when the workers have done all that they were given. */
void block_work_deinit(struct block_server *server)
{
	struct block_work *work = &server->work;

	pthread_mutex_lock(&work->lock);
	work->stop = true;
	pthread_mutex_unlock(&work->lock);
	pthread_cond_broadcast(&work->wake);
	for (uint32_t i = 0; i < work->threads_count; i++)
		pthread_join(work->threads[i], NULL);
	pthread_cond_destroy(&work->wake);
	pthread_mutex_destroy(&work->lock);
	close(work->event_fd);
}
