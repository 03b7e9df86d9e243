/* SPDX-License-Identifier: BSD-2-Clause */
/* Closes descriptors that clients passed, in threads of its own: on FUSE and NFS close() waits for
 * the file's server. Each client has one file closed at a time, so a hanging file system delays
 * only its own client. */
#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "daemon/ipc/ipc_private.h"

static void close_one(struct pool *pool, struct pool_job *job)
{
	(void)pool;
	close(((struct ipc_closing *)job)->fd);
}

static const struct pool_rules close_rules = {
	.workers_max = IPC_CLIENTS,
	.group_max = 1,
	.run = close_one,
};

static void on_closed(struct ipc_event *event, uint32_t events)
{
	struct ipc_closer *closer = (struct ipc_closer *)event;
	struct ipc_closing *one;

	(void)events;
	while ((one = (struct ipc_closing *)pool_take(&closer->pool))) {
		struct ipc_client *client = one->client;

		closer->files--;
		client->closing--;
		if (one->op)
			ipc_answer(one->op, 0, NULL, NULL, 0);
		free(one);
		ipc_arm(client);
	}
}

void ipc_close(struct ipc_client *client, int fd, struct ipc_op *op)
{
	struct ipc_closer *closer = &client->ipc->closer;
	struct ipc_closing *one = malloc(sizeof(*one));

	if (!one) {
		close(fd);
		if (op)
			ipc_answer(op, 0, NULL, NULL, 0);
		return;
	}
	*one = (struct ipc_closing){ .client = client, .fd = fd, .op = op };
	closer->files++;
	client->closing++;
	pool_put(&closer->pool, &client->closes, &one->job);
}

int ipc_closer_init(struct ipc_closer *closer, int epoll_fd)
{
	struct epoll_event ev = { .events = EPOLLIN, .data.ptr = &closer->event };
	int rc = pool_open(&closer->pool, &close_rules, NULL);

	closer->event.handle = on_closed;
	if (!rc && epoll_ctl(epoll_fd, EPOLL_CTL_ADD, closer->pool.event_fd, &ev)) {
		rc = -errno;
		ipc_closer_stop(closer);
	}
	return rc;
}

uint32_t ipc_closer_stop(struct ipc_closer *closer)
{
	uint32_t left = pool_stop(&closer->pool, IPC_STOP_MS, true);

	if (left)
		return left;
	on_closed(&closer->event, 0);
	pool_free(&closer->pool);
	return 0;
}
