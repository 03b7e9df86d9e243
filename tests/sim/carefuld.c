// SPDX-License-Identifier: BSD-2-Clause
/*
 * Runs carefuld's local socket at one node and the block server at another in virtual time, both
 * with the real code. A local socket in one thread is deterministic. The clock, the connecting
 * users, the threads that close files, and the block server's workers are replaced.
 */
#include <time.h>

/* The functions of base/clock.h read virtual time here. */
static int virtual_time(clockid_t clock, struct timespec *now);
#define clock_gettime virtual_time
#include "base/clock.h"
#undef clock_gettime

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "clients.h"
#include "files/private.h"

/* @work: the block server's jobs
 * @work_ns: when the next job is done */
static struct {
	struct cluster *cluster;
	struct ipc *ipc;
	struct block_server *server;
	struct block_queue work;
	int listen_fd, epoll_fd;
	uid_t user; /* the user who connects now */
	uint64_t work_ns;
	char base[32];
} carefuld;

static int virtual_time(clockid_t clock, struct timespec *now)
{
	const uint64_t now_ns = sim_now_ns(carefuld.cluster->world);

	(void)clock;
	*now = (struct timespec){ .tv_sec = (time_t)(now_ns / 1000000000),
				  .tv_nsec = (long)(now_ns % 1000000000) };
	return 0;
}

static int socket_user(int fd, int level, int option, void *value, const socklen_t *bytes)
{
	const struct ucred who = { .uid = carefuld.user };

	(void)fd, (void)level, (void)option;
	memcpy(value, &who, *bytes);
	return 0;
}

/* NOLINTBEGIN(bugprone-suspicious-include) */
#include "daemon/ipc/ipc_private.h"
#include "daemon/ipc/ipc_answer.c"
#include "daemon/ipc/ipc_file.c"
#include "daemon/ipc/ipc_gets.c"
#define ipc_handles_room bounded_room
#include "daemon/ipc/ipc_handles.c"
#undef ipc_handles_room
#include "daemon/ipc/ipc.c"
#include "daemon/ipc/ipc_measure.c"
#include "daemon/ipc/ipc_name.c"
#include "daemon/ipc/ipc_news.c"
#include "daemon/ipc/ipc_op.c"
#include "daemon/ipc/ipc_peer.c"
#include "daemon/ipc/ipc_program.c"
#include "daemon/ipc/ipc_region.c"
#define ipc_requests_close_left close_left_open
#include "daemon/ipc/ipc_request.c"
#undef ipc_requests_close_left
#include "daemon/ipc/ipc_ring.c"
#include "daemon/ipc/ipc_signature.c"
#define getsockopt socket_user
#include "daemon/ipc/ipc_user.c"
#undef getsockopt
#include "daemon/log.c"
/* NOLINTEND(bugprone-suspicious-include) */

int ipc_handles_room(const struct ipc_client *client, uint32_t peer)
{
	return carefuld.cluster->scenario.clients & CLIENTS_UNBOUNDED ? 0 :
									bounded_room(client, peer);
}

bool ipc_requests_close_left(struct ipc_client *client)
{
	return carefuld.cluster->scenario.clients & CLIENTS_LEFT_OPEN || close_left_open(client);
}

/* Replaces daemon/ipc/ipc_close.c. */
int ipc_closer_init(struct ipc_closer *closer, int epoll_fd)
{
	(void)closer, (void)epoll_fd;
	return 0;
}

uint32_t ipc_closer_stop(struct ipc_closer *closer)
{
	(void)closer;
	return 0;
}

void ipc_close(struct ipc_client *client, int fd, struct ipc_op *op)
{
	(void)client;
	close(fd);
	if (op)
		ipc_answer(op, 0, NULL, "", 0);
}

static struct block_job *queue_take(struct block_queue *q)
{
	struct block_job *job = q->head;

	if (job) {
		q->head = job->next;
		if (!q->head)
			q->tail = &q->head;
	}
	return job;
}

/* Replaces files/work.c: runs one job at a time, each as long as a file operation. */
int block_work_init(struct block_server *server)
{
	(void)server;
	block_queue_init(&carefuld.work);
	return 0;
}

static uint64_t work_end_ns(void)
{
	return clock_now_ns() + 1000 + carefuld.cluster->scenario.files_delay_ns / 16;
}

void block_work_put(struct block_server *server, struct block_job *job)
{
	(void)server;
	if (!carefuld.work.head)
		carefuld.work_ns = work_end_ns();
	block_queue_put(&carefuld.work, job);
}

struct block_job *block_work_take(struct block_server *server)
{
	struct block_job *job;

	if (!carefuld.work.head || clock_now_ns() < carefuld.work_ns)
		return NULL;
	job = queue_take(&carefuld.work);
	carefuld.work_ns = work_end_ns();
	block_run(server, job);
	/* These differ between two runs of a seed. */
	job->attr.inode = job->attr.device = job->attr.allocated = 0;
	job->attr.ctime_ns = job->attr.mtime_ns = 0;
	return job;
}

uint32_t block_work_stop(struct block_server *server)
{
	struct block_job *job;

	while ((job = queue_take(&carefuld.work)))
		block_run(server, job);
	return 0;
}

bool block_work_hangs(struct block_server *server, uint8_t place)
{
	(void)server, (void)place;
	return false;
}

void block_work_deinit(struct block_server *server)
{
	(void)server;
}

static void on_peer(struct careful *instance, uint32_t peer, uint32_t state, void *user)
{
	const struct node *node = user;

	if (node->port == CLIENTS_HOST)
		ipc_peer_changed(carefuld.ipc, peer, state);
	else
		block_watch(instance, peer, state, carefuld.server);
}

static int listen_anywhere(void)
{
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	const struct sockaddr_un any = { .sun_family = AF_UNIX };

	if (bind(fd, (const struct sockaddr *)&any, sizeof(any.sun_family)) || listen(fd, 8))
		return -1;
	return fd;
}

int carefuld_connect(uid_t user)
{
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct sockaddr_un address;
	socklen_t bytes = sizeof(address);

	if (!carefuld.ipc || getsockname(carefuld.listen_fd, (struct sockaddr *)&address, &bytes) ||
	    connect(fd, (struct sockaddr *)&address, bytes)) {
		close(fd);
		return -1;
	}
	carefuld.user = user;
	on_accept(&carefuld.ipc->event, 0);
	return fd;
}

void carefuld_open(struct node *node)
{
	const struct block_export_options export = { .path = carefuld.base, .writable = true };
	struct careful_error error = { 0 };
	int rc;

	if (!node->cluster->scenario.clients || node->port > CLIENTS_SERVER)
		return;
	if (node->port == CLIENTS_SERVER) {
		rc = block_serve(node->c, &export, 1, &carefuld.server, &error);
	} else {
		carefuld.listen_fd = listen_anywhere();
		carefuld.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
		rc = ipc_create(node->c, carefuld.listen_fd, carefuld.epoll_fd, &carefuld.ipc);
	}
	if (rc || careful_peer_watch(node->c, on_peer, node))
		sim_fail(node->cluster->world, "node %u: no carefuld: %s", node->port, error.text);
}

void carefuld_close(const struct node *node)
{
	if (node->port == CLIENTS_SERVER && carefuld.server) {
		block_stop(carefuld.server);
		carefuld.server = NULL;
	} else if (node->port == CLIENTS_HOST && carefuld.ipc) {
		ipc_destroy(carefuld.ipc);
		carefuld.ipc = NULL;
		close(carefuld.listen_fd);
		close(carefuld.epoll_fd);
	}
}

uint64_t carefuld_run(const struct node *node)
{
	const uint64_t now_ns = sim_now_ns(node->cluster->world);
	struct epoll_event events[16];
	int wait_ms, n = 0;

	if (node->port == CLIENTS_SERVER) {
		n = (int)block_poll(carefuld.server);
		wait_ms = block_timeout_ms(carefuld.server);
	} else {
		n = epoll_wait(carefuld.epoll_fd, events, 16, 0);
		for (int i = 0; i < n; i++) {
			struct ipc_event *event = events[i].data.ptr;

			event->handle(event, events[i].events);
		}
		ipc_poll(carefuld.ipc);
		wait_ms = ipc_timeout_ms(carefuld.ipc);
	}
	if (n > 0)
		return now_ns;
	if (node->port == CLIENTS_SERVER && carefuld.work.head)
		return carefuld.work_ns;
	return wait_ms < 0 ? UINT64_MAX : now_ns + (uint64_t)wait_ms * 1000000;
}

bool carefuld_holds_nothing(void)
{
	uint32_t held = carefuld.server ? carefuld.server->waiters_count : 0;

	for (uint32_t i = 0; carefuld.server && i < carefuld.server->peers_count; i++)
		held += carefuld.server->peers[i].handles_count;
	return !held && (!carefuld.ipc || !carefuld.ipc->clients_count);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st, (void)type, (void)ftw;
	return remove(path);
}

void carefuld_begin(struct cluster *cluster)
{
	static const char bytes[CLIENTS_BYTES];
	char path[64];
	int fd;

	carefuld.cluster = cluster;
	/* Lower numbers are the simulator's files. */
	do
		fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	while (fd >= 0 && fd < FILES_MAX);
	close(fd);
	snprintf(carefuld.base, sizeof(carefuld.base), "%s/careful-sim.XXXXXX",
		 access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm");
	if (!mkdtemp(carefuld.base))
		sim_fail(cluster->world, "no directory %s", carefuld.base);
	snprintf(path, sizeof(path), "%s/d", carefuld.base);
	mkdir(path, 0700);
	snprintf(path, sizeof(path), "%s/read", carefuld.base);
	fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	if (write(fd, bytes, sizeof(bytes)) != sizeof(bytes))
		sim_fail(cluster->world, "no file %s", path);
	close(fd);
}

void carefuld_end(void)
{
	nftw(carefuld.base, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}
