/* SPDX-License-Identifier: BSD-2-Clause */
/* Closes clients' descriptors in threads, because on FUSE and NFS close() waits for a server. A
 * client has at most one of these threads, so a hanging file system delays no other client. */
#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "daemon/ipc/ipc_private.h"

static void close_job(struct pool *pool, struct pool_job *job)
{
	(void)pool;
	close(((struct ipc_closing *)job)->fd);
}

static const struct pool_rules close_rules = {
	.workers_max = IPC_CLIENTS,
	.group_max = 1,
	.run = close_job,
};

static void on_closed(struct ipc_event *event, uint32_t events)
{
	struct ipc_closer *closer = (struct ipc_closer *)event;
	struct ipc_closing *closing;

	(void)events;
	while ((closing = (struct ipc_closing *)pool_take(&closer->pool))) {
		struct ipc_client *client = closing->client;

		closer->files--;
		client->closing--;
		if (closing->op)
			ipc_answer(closing->op, 0, NULL, NULL, 0);
		free(closing);
		ipc_arm(client);
	}
}

void ipc_close(struct ipc_client *client, int fd, struct ipc_op *op)
{
	struct ipc_closer *closer = &client->ipc->closer;
	struct ipc_closing *closing = malloc(sizeof(*closing));

	if (!closing) {
		close(fd);
		if (op)
			ipc_answer(op, 0, NULL, NULL, 0);
		return;
	}
	*closing = (struct ipc_closing){ .client = client, .fd = fd, .op = op };
	closer->files++;
	client->closing++;
	pool_put(&closer->pool, &client->closes, &closing->job);
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
