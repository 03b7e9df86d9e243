// SPDX-License-Identifier: BSD-2-Clause
/* The memory client's thread: takes jobs, polls the instance, and keeps time limits. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "memory/private.h"

enum { FDS_MAX = 16 };

/* Starts the jobs that were posted. Returns false if the thread must end. */
static bool take_jobs(struct careful_memory *memory)
{
	struct memory_job *job, *next;
	uint64_t n;
	bool go_on;

	if (read(memory->event_fd, &n, sizeof(n)) < 0 && errno != EAGAIN)
		abort();
	pthread_mutex_lock(&memory->lock);
	job = memory->jobs;
	memory->jobs = NULL;
	memory->jobs_tail = &memory->jobs;
	go_on = !memory->stopping;
	pthread_mutex_unlock(&memory->lock);
	for (; job; job = next) {
		next = job->next;
		if (memory->failed)
			memory_end_job(job, memory->failed);
		else
			job->start(memory, job);
	}
	return go_on;
}

/* Sleeps until there is work. With nothing under way the program should have the CPU;
 * careful_wait() would spin first. */
static void sleep_idle(struct careful_memory *memory, int timeout_ms)
{
	struct pollfd pfds[FDS_MAX + 1];
	int fds[FDS_MAX], most_ms = timeout_ms;
	int n = memory->failed ? 0 : careful_wait_fds(memory->instance, fds, FDS_MAX, &most_ms);

	for (int i = 0; i < n; i++)
		pfds[i] = (struct pollfd){ .fd = fds[i], .events = POLLIN };
	n = n < 0 ? 0 : n;
	pfds[n] = (struct pollfd){ .fd = memory->extra_fd, .events = POLLIN };
	poll(pfds, (nfds_t)n + 1, clock_earlier_ms(timeout_ms, most_ms));
}

static void work(struct careful_memory *memory)
{
	const uint64_t now_ns = clock_now_ns();

	memory_map_poll(memory, now_ns);
	memory_ask_poll(memory, now_ns);
	memory_move_poll(memory, now_ns);
}

static void *run(void *user)
{
	struct careful_memory *memory = user;

	while (take_jobs(memory)) {
		const bool busy = memory->flying || memory->asks || memory->moves;
		int rc = 0;

		work(memory);
		if (memory->failed)
			sleep_idle(memory, MEMORY_TICK_MS);
		else if (memory->flying || memory->asks)
			rc = careful_wait(memory->instance, MEMORY_TICK_MS, memory->extra_fd);
		else if (!(rc = careful_poll(memory->instance)))
			sleep_idle(memory, busy ? MEMORY_TICK_MS : 1000);
		if (rc < 0 && rc != -EINTR && rc != -EAGAIN)
			memory->failed = -ENOTCONN;
	}
	return NULL;
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
	event.data.fd = m->event_fd;
	rc = m->event_fd < 0 || m->extra_fd < 0 ||
			     epoll_ctl(m->extra_fd, EPOLL_CTL_ADD, m->event_fd, &event) ?
		     -errno :
		     -pthread_create(&m->thread, NULL, run, m);
	if (rc) {
		close(m->event_fd);
		close(m->extra_fd);
		free(m);
		return rc;
	}
	*memory = m;
	return 0;
}

int careful_memory_stop(struct careful_memory *memory)
{
	const uint64_t one = 1;
	struct memory_host *next;

	if (memory->owner == getpid()) {
		pthread_mutex_lock(&memory->lock);
		memory->stopping = true;
		pthread_mutex_unlock(&memory->lock);
		if (write(memory->event_fd, &one, sizeof(one)) < 0)
			abort();
		pthread_join(memory->thread, NULL);
	}
	careful_close(memory->instance);
	close(memory->event_fd);
	close(memory->extra_fd);
	for (struct memory_ask *a = memory->asks, *after; a; a = after) {
		after = a->next;
		free(a);
	}
	for (struct memory_host *host = memory->hosts; host; host = next) {
		next = host->next;
		free(host);
	}
	free(memory);
	return 0;
}
