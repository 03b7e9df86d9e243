// SPDX-License-Identifier: BSD-2-Clause
/* The memory client's thread. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "memory/private.h"

/* Starts posted jobs. Returns false if the thread must end. */
static bool take_jobs(struct careful_memory *memory)
{
	struct memory_job *job, *next;
	uint64_t n;
	bool stopping;

	if (__atomic_load_n(&memory->posts, __ATOMIC_ACQUIRE) == memory->posts_read)
		return true;
	if (read(memory->event_fd, &n, sizeof(n)) == sizeof(n))
		memory->posts_read += n;
	pthread_mutex_lock(&memory->lock);
	job = memory->jobs;
	memory->jobs = NULL;
	memory->jobs_tail = &memory->jobs;
	stopping = memory->stopping;
	pthread_mutex_unlock(&memory->lock);
	for (; job; job = next) {
		next = job->next;
		if (memory->failed)
			memory_end_job(job, memory->failed);
		else
			job->start(memory, job);
	}
	return !stopping;
}

/* Replaces the instance's descriptors in sleep_fd. They rarely change. */
static void watch(struct careful_memory *memory, const int *fds, uint32_t n)
{
	struct epoll_event event = { .events = EPOLLIN };

	if (n == memory->watched_count && !memcmp(fds, memory->watched, n * sizeof(*fds)))
		return;
	for (uint32_t i = 0; i < memory->watched_count; i++)
		epoll_ctl(memory->sleep_fd, EPOLL_CTL_DEL, memory->watched[i], &event);
	for (uint32_t i = 0; i < n; i++)
		epoll_ctl(memory->sleep_fd, EPOLL_CTL_ADD, fds[i], &event);
	memcpy(memory->watched, fds, n * sizeof(*fds));
	memory->watched_count = n;
}

/* Sleeps until there is work; careful_wait() would spin first. */
static void sleep_idle(struct careful_memory *memory, int timeout_ms)
{
	struct epoll_event event;
	int fds[MEMORY_FDS], most_ms = timeout_ms;
	int n = memory->failed ? 0 : careful_wait_fds(memory->instance, fds, MEMORY_FDS, &most_ms);

	watch(memory, fds, n < 0 ? 0 : (uint32_t)n);
	epoll_wait(memory->sleep_fd, &event, 1, clock_earlier_ms(timeout_ms, most_ms));
}

/* Polls the instance and waits for work. Spins only while a thread waits for an answer; otherwise
 * the program needs the CPU. */
static int wait_for_work(struct careful_memory *memory)
{
	const uint32_t flying = memory->flying;
	int rc = 0;

	if (memory->awaited && !memory->failed) {
		if (flying > MEMORY_FLYING_MAX / 4) /* epoll would cost time for each frame */
			watch(memory, memory->watched, 0);
		rc = careful_wait(memory->instance, MEMORY_TICK_MS, memory->extra_fd);
		memory->served = rc > 0 && !memory->awaited;
		return rc;
	}
	if (!memory->failed && (!memory->served || flying || memory->moves))
		rc = careful_poll(memory->instance);
	memory->served = false;
	if (!rc && flying == memory->flying)
		sleep_idle(memory, memory->flying || memory->moves ? MEMORY_TICK_MS : 1000);
	return rc;
}

static void work(struct careful_memory *memory)
{
	const uint64_t now_ns = clock_now_ns();

	memory_map_poll(memory);
	memory_move_poll(memory, now_ns);
	memory_map_evict(memory, now_ns);
}

static void *run(void *user)
{
	struct careful_memory *memory = user;

	while (take_jobs(memory)) {
		int rc;

		work(memory);
		rc = wait_for_work(memory);
		if (rc < 0 && rc != -EINTR && rc != -EAGAIN) {
			memory->failed = -ENOTCONN;
			work(memory); /* ends all moves before the next call */
		}
	}
	return NULL;
}

static void close_fds(const struct careful_memory *memory)
{
	close(memory->event_fd);
	close(memory->extra_fd);
	close(memory->sleep_fd);
}

int careful_memory_start(struct careful *instance, uint32_t patience_ms,
			 struct careful_memory **memory)
{
	struct careful_memory *m = calloc(1, sizeof(*m));
	struct epoll_event event = { .events = EPOLLIN };
	int rc;

	if (!m)
		return -ENOMEM;
	m->instance = instance;
	m->owner = getpid();
	m->patience_ns = patience_ms * UINT64_C(1000000);
	m->jobs_tail = &m->jobs;
	m->moves_tail = &m->moves;
	pthread_mutex_init(&m->lock, NULL);
	m->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	m->extra_fd = epoll_create1(EPOLL_CLOEXEC);
	m->sleep_fd = epoll_create1(EPOLL_CLOEXEC);
	rc = m->event_fd < 0 || m->extra_fd < 0 || m->sleep_fd < 0 ||
			     epoll_ctl(m->extra_fd, EPOLL_CTL_ADD, m->event_fd, &event) ||
			     epoll_ctl(m->sleep_fd, EPOLL_CTL_ADD, m->event_fd, &event) ?
		     -errno :
		     -pthread_create(&m->thread, NULL, run, m);
	if (rc) {
		close_fds(m);
		free(m);
		return rc;
	}
	*memory = m;
	return 0;
}

int careful_memory_stop(struct careful_memory *memory)
{
	struct memory_host *next;

	if (memory->owner == getpid()) {
		pthread_mutex_lock(&memory->lock);
		memory->stopping = true;
		pthread_mutex_unlock(&memory->lock);
		memory_post(memory);
		pthread_join(memory->thread, NULL);
	}
	careful_close(memory->instance);
	close_fds(memory);
	for (struct memory_host *host = memory->hosts; host; host = next) {
		next = host->next;
		free(host);
	}
	free(memory->slots);
	free(memory);
	return 0;
}
