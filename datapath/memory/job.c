// SPDX-License-Identifier: BSD-2-Clause
/* Calls of other threads, which the client's thread runs. */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "memory/private.h"

void memory_end_job(struct memory_job *job, int status)
{
	job->status = status;
	sem_post(&job->done);
}

/* Counts before it writes: the thread reads the eventfd until posts_read equals posts. */
void memory_post(struct careful_memory *memory)
{
	const uint64_t one = 1;

	__atomic_add_fetch(&memory->posts, 1, __ATOMIC_RELEASE);
	if (write(memory->event_fd, &one, sizeof(one)) < 0)
		abort(); /* cannot fail: the eventfd is ours */
}

int memory_run(struct careful_memory *memory, struct memory_job *job)
{
	bool stopping;

	if (memory->owner != getpid())
		return -ECHILD;
	sem_init(&job->done, 0, 0);
	job->next = NULL;
	pthread_mutex_lock(&memory->lock);
	stopping = memory->stopping;
	if (!stopping) {
		*memory->jobs_tail = job;
		memory->jobs_tail = &job->next;
	}
	pthread_mutex_unlock(&memory->lock);
	if (stopping)
		return -EBADF;
	memory_post(memory);
	while (sem_wait(&job->done) && errno == EINTR)
		;
	sem_destroy(&job->done);
	return job->status;
}
