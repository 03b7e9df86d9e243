/* SPDX-License-Identifier: BSD-2-Clause */
#include "storage/fs_workers.h"

#include <errno.h>
#include <stdlib.h>

enum { GROUPS = 16, GROUP_THREADS = 4 };

struct fs_group {
	struct pool_group jobs;
	uint64_t dev; /* the file system that the group serves while it has operations */
	uint32_t ops; /* operations that fs_workers_take() has not returned */
};

struct fs_workers {
	struct pool pool;
	struct fs_group groups[GROUPS];
};

static void run(struct pool *pool, struct pool_job *job)
{
	struct op *op = (struct op *)job;

	(void)pool;
	op_inline(op, 0, &op->calls);
}

static const struct pool_rules rules = {
	.workers_max = GROUPS * GROUP_THREADS,
	.group_max = GROUP_THREADS,
	.run = run,
};

/* Returns a file system's group, or a free group, or NULL. */
static struct fs_group *find_group(struct fs_workers *workers, uint64_t dev)
{
	struct fs_group *free_group = NULL;

	for (uint32_t i = 0; i < GROUPS; i++) {
		struct fs_group *group = &workers->groups[i];

		if (group->ops && group->dev == dev)
			return group;
		if (!group->ops)
			free_group = group;
	}
	return free_group;
}

int fs_workers_put(struct fs_workers *workers, struct op *op)
{
	struct fs_group *group = find_group(workers, op->io->dev);

	if (!group)
		return -EBUSY;
	group->dev = op->io->dev;
	group->ops++;
	pool_put(&workers->pool, &group->jobs, &op->job);
	return 0;
}

int fs_workers_fd(const struct fs_workers *workers)
{
	return workers->pool.event_fd;
}

struct op *fs_workers_take(struct fs_workers *workers)
{
	struct op *op = (struct op *)pool_take(&workers->pool);

	if (op)
		((struct fs_group *)op->job.group)->ops--;
	return op;
}

int fs_workers_open(struct fs_workers **workers)
{
	struct fs_workers *new = calloc(1, sizeof(*new));
	int rc = new ? pool_open(&new->pool, &rules, NULL) : -ENOMEM;

	if (rc)
		free(new);
	else
		*workers = new;
	return rc;
}

uint32_t fs_workers_close(struct fs_workers *workers, uint32_t patience_ms)
{
	uint32_t running = pool_stop(&workers->pool, patience_ms, false);

	if (running)
		return running;
	pool_free(&workers->pool);
	free(workers);
	return 0;
}
