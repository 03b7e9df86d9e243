/* SPDX-License-Identifier: BSD-2-Clause */
#include "storage/lanes.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "device/thread.h"

enum {
	LANES = 16,
	LANE_THREADS = 4,
	STACK_BYTES = 256 << 10,
};

/* @dev: the file system that the lane serves while it has operations
 * @ops: operations that have not ended
 * @head: operations that wait */
struct lane {
	struct lanes *lanes;
	uint64_t dev;
	uint32_t ops;
	struct op *head, **tail;
	uint32_t threads, idle;
	pthread_cond_t wake;
};

/* @running: operations being moved by threads
 * @over: signalled when `running` falls while closing */
struct lanes {
	pthread_mutex_t lock;
	pthread_cond_t over;
	struct op *done;
	uint64_t calls;
	uint32_t running;
	bool stop;
	int event_fd;
	uint32_t threads_count;
	pthread_t threads[LANES * LANE_THREADS];
	struct lane lane[LANES];
};

/* Moves the first waiting operation; drops the lock meanwhile. */
static void move_first(struct lane *lane)
{
	struct lanes *lanes = lane->lanes;
	struct op *op = lane->head;
	uint64_t calls = 0, one = 1;
	ssize_t n;

	lane->head = op->next;
	if (!lane->head)
		lane->tail = &lane->head;
	lanes->running++;
	pthread_mutex_unlock(&lanes->lock);
	op_inline(op, 0, &calls);
	pthread_mutex_lock(&lanes->lock);
	lanes->running--;
	lane->ops--;
	lanes->calls += calls;
	op->next = lanes->done;
	lanes->done = op;
	n = write(lanes->event_fd, &one, sizeof(one));
	assert(n == sizeof(one));
	(void)n;
	if (lanes->stop)
		pthread_cond_signal(&lanes->over);
}

static void *lane_run(void *arg)
{
	struct lane *lane = arg;
	struct lanes *lanes = lane->lanes;

	pthread_mutex_lock(&lanes->lock);
	while (!lanes->stop) {
		if (lane->head) {
			move_first(lane);
			continue;
		}
		lane->idle++;
		pthread_cond_wait(&lane->wake, &lanes->lock);
		lane->idle--;
	}
	pthread_mutex_unlock(&lanes->lock);
	return NULL;
}

/* Returns a file system's lane, or an idle lane, or NULL. */
static struct lane *lane_of(struct lanes *lanes, uint64_t dev)
{
	struct lane *found = NULL;

	for (uint32_t i = 0; i < LANES; i++) {
		struct lane *lane = &lanes->lane[i];

		if (lane->ops && lane->dev == dev)
			return lane;
		/* An idle lane with threads is preferred. */
		if (!lane->ops && (!found || lane->threads > found->threads))
			found = lane;
	}
	return found;
}

/* Starts one more thread if all are busy; false: the lane has none. With the lock. */
static bool has_thread(struct lanes *lanes, struct lane *lane)
{
	pthread_t *thread = &lanes->threads[lanes->threads_count];

	if (lane->idle <= (lane->head != NULL) && lane->threads < LANE_THREADS &&
	    !thread_start(thread, STACK_BYTES, lane_run, lane)) {
		lanes->threads_count++;
		lane->threads++;
	}
	return lane->threads > 0;
}

int lanes_put(struct lanes *lanes, struct op *op)
{
	struct lane *lane;
	int rc = -EBUSY;

	pthread_mutex_lock(&lanes->lock);
	lane = lane_of(lanes, op->io->dev);
	if (lane && has_thread(lanes, lane)) {
		lane->dev = op->io->dev;
		lane->ops++;
		op->next = NULL;
		*lane->tail = op;
		lane->tail = &op->next;
		pthread_cond_signal(&lane->wake);
		rc = 0;
	}
	pthread_mutex_unlock(&lanes->lock);
	return rc;
}

int lanes_fd(const struct lanes *lanes)
{
	return lanes->event_fd;
}

struct op *lanes_take(struct lanes *lanes, uint64_t *calls)
{
	struct op *done;
	uint64_t count;

	pthread_mutex_lock(&lanes->lock);
	done = lanes->done;
	if (done && read(lanes->event_fd, &count, sizeof(count)) < 0)
		assert(!"an operation that is done was counted");
	lanes->done = NULL;
	*calls += lanes->calls;
	lanes->calls = 0;
	pthread_mutex_unlock(&lanes->lock);
	return done;
}

int lanes_open(struct lanes **lanes)
{
	struct lanes *made = calloc(1, sizeof(*made));
	pthread_condattr_t attr;

	if (!made)
		return -ENOMEM;
	made->event_fd = eventfd(0, EFD_CLOEXEC);
	if (made->event_fd < 0) {
		int rc = -errno;

		free(made);
		return rc;
	}
	pthread_mutex_init(&made->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&made->over, &attr);
	pthread_condattr_destroy(&attr);
	for (uint32_t i = 0; i < LANES; i++) {
		made->lane[i].lanes = made;
		made->lane[i].tail = &made->lane[i].head;
		pthread_cond_init(&made->lane[i].wake, NULL);
	}
	*lanes = made;
	return 0;
}

uint32_t lanes_close(struct lanes *lanes, uint32_t patience_ms)
{
	struct timespec until;
	uint32_t left;
	int rc = 0;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_nsec += (long)patience_ms * 1000000;
	until.tv_sec += until.tv_nsec / 1000000000;
	until.tv_nsec %= 1000000000;
	pthread_mutex_lock(&lanes->lock);
	lanes->stop = true;
	for (uint32_t i = 0; i < LANES; i++)
		pthread_cond_broadcast(&lanes->lane[i].wake);
	while (lanes->running && rc != ETIMEDOUT)
		rc = pthread_cond_timedwait(&lanes->over, &lanes->lock, &until);
	left = lanes->running;
	pthread_mutex_unlock(&lanes->lock);
	if (left)
		return left;
	for (uint32_t i = 0; i < lanes->threads_count; i++)
		pthread_join(lanes->threads[i], NULL);
	for (uint32_t i = 0; i < LANES; i++)
		pthread_cond_destroy(&lanes->lane[i].wake);
	pthread_cond_destroy(&lanes->over);
	pthread_mutex_destroy(&lanes->lock);
	close(lanes->event_fd);
	free(lanes);
	return 0;
}
