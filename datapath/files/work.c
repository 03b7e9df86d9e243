/* SPDX-License-Identifier: BSD-2-Clause */
/* The block server's worker threads. Peers take turns. No export, and no peer in an export, can
 * hold all workers: a hanging disk stops only its own export, a busy peer only itself. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "device/thread.h"
#include "files/private.h"

enum { STACK_BYTES = 256 << 10 };

/* Reports whether a job may take seconds: a sync, a walk over a tree, a large read. */
static bool is_slow(const struct block_job *job)
{
	return job->op == CAREFUL_BLOCK_LIST || job->op == CAREFUL_BLOCK_DIGEST ||
	       job->op == CAREFUL_BLOCK_BATCH || job->op == CAREFUL_BLOCK_ZERO ||
	       (job->op == CAREFUL_BLOCK_OPEN && (job->flags & CAREFUL_BLOCK_SEED)) ||
	       (job->op == CAREFUL_BLOCK_COMMIT && !(job->flags & CAREFUL_BLOCK_NOSYNC));
}

static struct block_running *of_peer(struct block_work *work, const struct block_job *job)
{
	return &work->of_peer[job->peer * BLOCK_PLACES + job->place];
}

/* Reports whether another worker may run in the job's place, and for the job's peer. */
static bool may_run(struct block_work *work, const struct block_job *job)
{
	const struct block_running *all = &work->running[job->place], *own = of_peer(work, job);

	if (all->all >= BLOCK_WORKERS || own->all >= BLOCK_WORKERS_PEER)
		return false;
	return !is_slow(job) ||
	       (all->slow < BLOCK_WORKERS_SLOW && own->slow < BLOCK_WORKERS_PEER_SLOW);
}

static void count_running(struct block_work *work, const struct block_job *job, int by)
{
	struct block_running *running[] = { &work->running[job->place], of_peer(work, job) };

	for (int i = 0; i < 2; i++) {
		running[i]->all = (uint8_t)(running[i]->all + by);
		running[i]->slow = (uint8_t)(running[i]->slow + (is_slow(job) ? by : 0));
	}
}

static struct block_job *take_first(struct block_work *work, struct block_queue *queue)
{
	struct block_job **at = &queue->head, *job;

	while ((job = *at) && !may_run(work, job))
		at = &job->next;
	if (!job)
		return NULL;
	*at = job->next;
	if (!*at)
		queue->tail = at;
	work->queued--;
	return job;
}

/* Takes the next job, peers in turn. Needs the lock. */
static struct block_job *next_job(struct block_server *server)
{
	struct block_work *work = &server->work;
	struct block_job *job = NULL;

	for (uint32_t i = 0; !job && work->queued && i < server->peers_count; i++) {
		uint32_t peer = (work->turn + i) % server->peers_count;

		job = take_first(work, &work->queues[peer]);
		if (job)
			work->turn = peer + 1;
	}
	return job;
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
	struct block_job *job, was;

	pthread_mutex_lock(&work->lock);
	for (;;) {
		job = work->abandoned ? NULL : next_job(server);
		if (!job && work->stop)
			break;
		if (!job) {
			work->idle++;
			pthread_cond_wait(&work->wake, &work->lock);
			work->idle--;
			continue;
		}
		was = *job; /* another request may own the job once it is done */
		count_running(work, &was, 1);
		pthread_mutex_unlock(&work->lock);
		block_run(server, job);
		pthread_mutex_lock(&work->lock);
		job_done(work, job);
		count_running(work, &was, -1);
	}
	work->threads_living--;
	pthread_cond_signal(&work->over);
	pthread_mutex_unlock(&work->lock);
	return NULL;
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

/* Needs the lock. */
static int start_worker(struct block_server *server)
{
	struct block_work *work = &server->work;
	int rc = thread_start(&work->threads[work->threads_count], STACK_BYTES, worker, server);

	work->threads_count += !rc;
	work->threads_living += !rc;
	return rc;
}

void block_work_put(struct block_server *server, struct block_job *job)
{
	struct block_work *work = &server->work;
	uint32_t most = BLOCK_WORKERS * (server->places + 1);

	pthread_mutex_lock(&work->lock);
	block_queue_put(&work->queues[job->peer], job);
	work->queued++;
	/* If no thread starts, the job waits for one that runs. */
	if (work->queued > work->idle && work->threads_count < most && may_run(work, job))
		start_worker(server);
	pthread_mutex_unlock(&work->lock);
	pthread_cond_signal(&work->wake);
}

int block_work_init(struct block_server *server)
{
	struct block_work *work = &server->work;
	pthread_condattr_t attr;
	int rc = 0;

	work->queues = calloc(server->peers_count, sizeof(*work->queues));
	work->of_peer = calloc((size_t)server->peers_count * BLOCK_PLACES, sizeof(*work->of_peer));
	block_queue_init(&work->done);
	work->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (!work->queues || !work->of_peer || work->event_fd < 0) {
		rc = work->event_fd < 0 ? -errno : -ENOMEM;
		free(work->queues);
		free(work->of_peer);
		return rc;
	}
	for (uint32_t i = 0; i < server->peers_count; i++)
		block_queue_init(&work->queues[i]);
	pthread_mutex_init(&work->lock, NULL);
	pthread_cond_init(&work->wake, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&work->over, &attr);
	pthread_condattr_destroy(&attr);
	pthread_mutex_lock(&work->lock);
	while (!rc && work->threads_count < BLOCK_WORKERS)
		rc = start_worker(server);
	pthread_mutex_unlock(&work->lock);
	if (rc && !block_work_stop(server))
		block_work_deinit(server);
	return rc;
}

/* Ends the workers once they have done all jobs. Waits at most BLOCK_STOP_MS; returns how many
 * workers still hang in a file system. These use the server's memory until they end. */
uint32_t block_work_stop(struct block_server *server)
{
	struct block_work *work = &server->work;
	struct timespec until;
	uint32_t left;
	int rc = 0;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += BLOCK_STOP_MS / 1000;
	pthread_mutex_lock(&work->lock);
	work->stop = true;
	pthread_cond_broadcast(&work->wake);
	while (work->threads_living && rc != ETIMEDOUT)
		rc = pthread_cond_timedwait(&work->over, &work->lock, &until);
	left = work->threads_living;
	work->abandoned = left;
	pthread_mutex_unlock(&work->lock);
	return left;
}

/* Reports whether a worker hangs in the place. Call it after block_work_stop(). */
bool block_work_hangs(struct block_server *server, uint8_t place)
{
	bool hangs;

	pthread_mutex_lock(&server->work.lock);
	hangs = server->work.running[place].all;
	pthread_mutex_unlock(&server->work.lock);
	return hangs;
}

void block_work_deinit(struct block_server *server)
{
	struct block_work *work = &server->work;

	for (uint32_t i = 0; i < work->threads_count; i++)
		pthread_join(work->threads[i], NULL);
	pthread_cond_destroy(&work->wake);
	pthread_cond_destroy(&work->over);
	pthread_mutex_destroy(&work->lock);
	free(work->queues);
	free(work->of_peer);
	close(work->event_fd);
}
