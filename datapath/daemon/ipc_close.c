/* SPDX-License-Identifier: BSD-2-Clause */
/* Closes descriptors that clients passed, in threads of its own: on FUSE and NFS close() waits for
 * the file's server. There are as many threads as clients with files to close, and each client has
 * one file closed at a time. So a hanging file system delays only its own client. */
#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "daemon/ipc_private.h"
#include "device/thread.h"

enum { STACK_BYTES = 64 << 10 };

/* Takes the first file whose client has no other file being closed, or NULL. Needs the lock. */
static struct ipc_closing *take_closing(struct ipc_closer *closer)
{
	struct ipc_closing **at = &closer->waiting, *one;

	while ((one = *at) && one->client->closes)
		at = &one->next;
	if (!one)
		return NULL;
	*at = one->next;
	if (!*at)
		closer->waiting_tail = at;
	one->client->closes = true;
	return one;
}

static void *close_all(void *arg)
{
	struct ipc_closer *closer = arg;
	struct ipc_closing *one;

	pthread_mutex_lock(&closer->lock);
	while ((one = take_closing(closer)) || !closer->stop) {
		if (!one) {
			pthread_cond_wait(&closer->wake, &closer->lock);
			continue;
		}
		pthread_mutex_unlock(&closer->lock);
		close(one->fd);
		pthread_mutex_lock(&closer->lock);
		one->client->closes = false;
		one->next = closer->closed;
		closer->closed = one;
		eventfd_write(closer->event_fd, 1);
	}
	closer->living--;
	pthread_cond_signal(&closer->over);
	pthread_mutex_unlock(&closer->lock);
	return NULL;
}

static void on_closed(struct ipc_event *event, uint32_t events)
{
	struct ipc_closer *closer = (struct ipc_closer *)event;
	struct ipc_closing *one, *next;
	eventfd_t count;

	(void)events;
	eventfd_read(closer->event_fd, &count);
	pthread_mutex_lock(&closer->lock);
	one = closer->closed;
	closer->closed = NULL;
	pthread_mutex_unlock(&closer->lock);
	for (; one; one = next) {
		struct ipc_client *client = one->client;

		next = one->next;
		if (!--client->closing)
			closer->clients--;
		if (one->op)
			ipc_answer(one->op, 0, NULL, NULL, 0);
		free(one);
		ipc_arm(client);
	}
}

/* Starts a thread if the client's files need another. Returns false if there is none at all. */
static bool has_thread(struct ipc_closer *closer, const struct ipc_client *client)
{
	pthread_t *thread = &closer->threads[closer->threads_count];

	if (client->closing || closer->clients < closer->threads_count)
		return true;
	if (!thread_start(thread, STACK_BYTES, close_all, closer)) {
		closer->threads_count++;
		closer->living++;
	}
	return closer->threads_count;
}

void ipc_close(struct ipc_client *client, int fd, struct ipc_op *op)
{
	struct ipc_closer *closer = &client->ipc->closer;
	struct ipc_closing *one = malloc(sizeof(*one));

	pthread_mutex_lock(&closer->lock);
	if (!one || !has_thread(closer, client)) {
		pthread_mutex_unlock(&closer->lock);
		free(one);
		close(fd);
		if (op)
			ipc_answer(op, 0, NULL, NULL, 0);
		return;
	}
	*one = (struct ipc_closing){ .client = client, .fd = fd, .op = op };
	*closer->waiting_tail = one;
	closer->waiting_tail = &one->next;
	closer->clients += !client->closing++;
	pthread_cond_signal(&closer->wake);
	pthread_mutex_unlock(&closer->lock);
}

int ipc_closer_init(struct ipc_closer *closer, int epoll_fd)
{
	struct epoll_event ev = { .events = EPOLLIN, .data.ptr = &closer->event };
	pthread_condattr_t attr;

	closer->event.handle = on_closed;
	closer->waiting_tail = &closer->waiting;
	closer->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (closer->event_fd < 0)
		return -errno;
	if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, closer->event_fd, &ev)) {
		int rc = -errno;

		close(closer->event_fd);
		return rc;
	}
	pthread_mutex_init(&closer->lock, NULL);
	pthread_cond_init(&closer->wake, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&closer->over, &attr);
	pthread_condattr_destroy(&attr);
	return 0;
}

uint32_t ipc_closer_stop(struct ipc_closer *closer)
{
	struct timespec until;
	uint32_t left;
	int rc = 0;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += IPC_STOP_MS / 1000;
	pthread_mutex_lock(&closer->lock);
	closer->stop = true;
	pthread_cond_broadcast(&closer->wake);
	while (closer->living && rc != ETIMEDOUT)
		rc = pthread_cond_timedwait(&closer->over, &closer->lock, &until);
	left = closer->living;
	pthread_mutex_unlock(&closer->lock);
	if (left)
		return left;
	for (uint32_t i = 0; i < closer->threads_count; i++)
		pthread_join(closer->threads[i], NULL);
	on_closed(&closer->event, 0);
	pthread_cond_destroy(&closer->wake);
	pthread_cond_destroy(&closer->over);
	pthread_mutex_destroy(&closer->lock);
	close(closer->event_fd);
	return 0;
}
