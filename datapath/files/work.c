/* SPDX-License-Identifier: BSD-2-Clause */
/* The block server's worker threads. Peers take turns. No export gets all workers, so a hanging
 * disk stops only its own export. No peer gets all workers of an export, so a busy peer slows only
 * itself. */
#include <errno.h>
#include <stdlib.h>

#include "files/private.h"

/* Reports whether a job may take seconds: a sync, a walk over a tree, a large read. */
static bool is_slow(const struct block_job *job)
{
	return job->op == CAREFUL_BLOCK_LIST || job->op == CAREFUL_BLOCK_DIGEST ||
	       job->op == CAREFUL_BLOCK_BATCH ||
	       (job->op == CAREFUL_BLOCK_OPEN &&
		job->flags & (CAREFUL_BLOCK_SEED | CAREFUL_BLOCK_COPY)) ||
	       (job->op == CAREFUL_BLOCK_COMMIT && !(job->flags & CAREFUL_BLOCK_NOSYNC));
}

static struct block_running *running_of_peer(struct block_work *work, const struct block_job *job)
{
	return &work->running_of_peer[job->peer * BLOCK_PLACES + job->place];
}

/* Reports whether another worker may run in the job's place, and for the job's peer. */
static bool may_run(const struct pool *pool, const struct pool_job *pooled)
{
	const struct block_job *job = (const struct block_job *)pooled;
	struct block_work *work = pool->user;
	const struct block_running *all = &work->running[job->place],
				   *own = running_of_peer(work, job);

	if (all->all >= BLOCK_WORKERS || own->all >= BLOCK_WORKERS_PEER)
		return false;
	return !is_slow(job) ||
	       (all->slow < BLOCK_WORKERS_SLOW && own->slow < BLOCK_WORKERS_PEER_SLOW);
}

static void count_running(struct pool *pool, const struct pool_job *pooled, int by)
{
	const struct block_job *job = (const struct block_job *)pooled;
	struct block_work *work = pool->user;
	struct block_running *running[] = { &work->running[job->place],
					    running_of_peer(work, job) };

	for (int i = 0; i < 2; i++) {
		running[i]->all = (uint8_t)(running[i]->all + by);
		running[i]->slow = (uint8_t)(running[i]->slow + (is_slow(job) ? by : 0));
	}
}

static void run(struct pool *pool, struct pool_job *job)
{
	struct block_work *work = pool->user;

	block_run(work->server, (struct block_job *)job);
}

static const struct pool_rules rules = {
	.workers_max = BLOCK_WORKERS * BLOCK_PLACES,
	.group_max = UINT32_MAX,
	.may_run = may_run,
	.count = count_running,
	.run = run,
};

struct block_job *block_work_take(struct block_server *server)
{
	return (struct block_job *)pool_take(&server->work.pool);
}

void block_work_put(struct block_server *server, struct block_job *job)
{
	pool_put(&server->work.pool, &server->work.peers[job->peer], &job->pooled);
}

int block_work_init(struct block_server *server)
{
	struct block_work *work = &server->work;
	int rc = -ENOMEM;

	work->server = server;
	work->peers = calloc(server->peers_count, sizeof(*work->peers));
	work->running_of_peer =
		calloc((size_t)server->peers_count * BLOCK_PLACES, sizeof(*work->running_of_peer));
	if (work->peers && work->running_of_peer)
		rc = pool_open(&work->pool, &rules, work);
	if (rc) {
		free(work->peers);
		free(work->running_of_peer);
	}
	return rc;
}

/* Ends the workers after all jobs, or after BLOCK_STOP_MS. Returns how many workers still hang in a
 * file system; these use the server's memory until they end. */
uint32_t block_work_stop(struct block_server *server)
{
	return pool_stop(&server->work.pool, BLOCK_STOP_MS, true);
}

/* Reports whether a worker hangs in the place. Call it after block_work_stop(). */
bool block_work_hangs(struct block_server *server, uint8_t place)
{
	bool hangs;

	pthread_mutex_lock(&server->work.pool.lock);
	hangs = server->work.running[place].all;
	pthread_mutex_unlock(&server->work.pool.lock);
	return hangs;
}

void block_work_deinit(struct block_server *server)
{
	pool_free(&server->work.pool);
	free(server->work.peers);
	free(server->work.running_of_peer);
}
