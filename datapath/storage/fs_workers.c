/* SPDX-License-Identifier: BSD-2-Clause */
#include "storage/fs_workers.h"

#include <errno.h>
#include <stdlib.h>

enum {
	LANES = 16,
	LANE_THREADS = 4,
};

/* @dev: the file system that the lane serves while it has operations
 * @ops: operations that fs_workers_take() has not returned */
struct lane {
	struct pool_group group;
	uint64_t dev;
	uint32_t ops;
};

struct lanes {
	struct pool pool;
	struct lane lane[LANES];
};

static void run(struct pool *pool, struct pool_job *job)
{
	struct op *op = (struct op *)job;

	(void)pool;
	op_inline(op, 0, &op->calls);
}

static const struct pool_rules rules = {
	.workers_max = LANES * LANE_THREADS,
	.group_max = LANE_THREADS,
	.run = run,
};

/* Returns a file system's lane, or a free lane, or NULL. */
static struct lane *lane_of(struct lanes *lanes, uint64_t dev)
{
	struct lane *found = NULL;

	for (uint32_t i = 0; i < LANES; i++) {
		struct lane *lane = &lanes->lane[i];

		if (lane->ops && lane->dev == dev)
			return lane;
		if (!lane->ops)
			found = lane;
	}
	return found;
}

int fs_workers_put(struct lanes *lanes, struct op *op)
{
	struct lane *lane = lane_of(lanes, op->io->dev);

	if (!lane)
		return -EBUSY;
	lane->dev = op->io->dev;
	lane->ops++;
	pool_put(&lanes->pool, &lane->group, &op->job);
	return 0;
}

int fs_workers_fd(const struct lanes *lanes)
{
	return lanes->pool.event_fd;
}

struct op *fs_workers_take(struct lanes *lanes)
{
	struct op *op = (struct op *)pool_take(&lanes->pool);

	if (op)
		((struct lane *)op->job.group)->ops--;
	return op;
}

int fs_workers_open(struct lanes **lanes)
{
	struct lanes *made = calloc(1, sizeof(*made));
	int rc = made ? pool_open(&made->pool, &rules, NULL) : -ENOMEM;

	if (rc)
		free(made);
	else
		*lanes = made;
	return rc;
}

uint32_t fs_workers_close(struct lanes *lanes, uint32_t patience_ms)
{
	uint32_t left = pool_stop(&lanes->pool, patience_ms, false);

	if (left)
		return left;
	pool_free(&lanes->pool);
	free(lanes);
	return 0;
}
