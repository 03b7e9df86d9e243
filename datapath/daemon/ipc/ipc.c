/* SPDX-License-Identifier: BSD-2-Clause */
/* The connections of the local socket. ipc_op.c dispatches their questions. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "daemon/ipc/ipc_program.h"
#include "daemon/log.h"
#include "engine/sharing.h"
#include "local/packet.h"

enum { SPARE_MS = 100 }; /* between attempts to open a spare descriptor */

static void unpark(struct ipc_client *client)
{
	if (!client->parked)
		return;
	if (client->parked->fd >= 0)
		ipc_close(client, client->parked->fd, NULL);
	free(client->parked);
	client->parked = NULL;
	client->waits = false;
	client->ipc->poll_reasons--;
}

/* Reports whether an operation of a client that has gone must end at once. Requests must, because
 * an answer may never arrive; pings must, because they delay other pings. An OPEN without an
 * attempt's name continues: only its answer names the handle to close. */
static bool is_abandoned(const void *user, const void *of)
{
	const struct ipc_client *client = of;
	const struct ipc_op *op = user;

	if (client->measure && user == client->measure)
		return true;
	if (client->program && ipc_program_op_of(user, client->program))
		return true;
	return op >= client->ops && op < client->ops + CAREFUL_IPC_INFLIGHT &&
	       (op->op == CAREFUL_IPC_PING ||
		(op->op == CAREFUL_IPC_REQUEST && (!op->opens_kind || op->attempt)));
}

static void abandon_operations(struct ipc_client *client)
{
	if (client->ipc->instance &&
	    (client->ops_used || (client->program && client->program->ops_used)))
		engine_forget(client->ipc->instance, is_abandoned, client);
}

/* Ends a connection. Its operations continue; ipc_poll() frees the client after them. */
static void disconnect(struct ipc_client *client)
{
	struct ipc_answer *answer;

	if (client->fd < 0)
		return;
	close(client->fd);
	client->fd = -1;
	client->leave_ns = clock_in_ms(IPC_LEAVE_MS);
	unpark(client);
	ipc_requests_drop(client);
	ipc_program_leave(client);
	abandon_operations(client);
	while ((answer = client->answers)) {
		client->answers = answer->next;
		ipc_op_free(answer->op);
		free(answer);
	}
	client->ipc->poll_reasons++;
}

/* Refuses a client of another release, and logs the reason. */
static int refuse_version(const struct ipc_client *client, uint32_t version)
{
	const struct careful_ipc head = { .version = CAREFUL_IPC_VERSION, .status = -EPROTO };
	static struct log_limit limit;

	packet_send(client->fd, &head, NULL, -1);
	if (log_allowed(&limit))
		log_line("a client speaks version %u of the local socket, and carefuld version %u: "
			 "install both from one release (carefulctl --version)",
			 version, CAREFUL_IPC_VERSION);
	return -EPROTO;
}

/* Reads a packet into the shared buffer. Returns 1; 0: no packet; -errno: end the connection. */
static int receive(struct ipc_client *client, struct ipc_question *q)
{
	const size_t room = sizeof(client->ipc->buffer);
	ssize_t n = packet_receive(client->fd, &q->head, client->ipc->buffer, room, &q->fd);
	size_t bytes = (size_t)n - sizeof(q->head);
	int rc = 1;

	if (n <= 0)
		return n == -EAGAIN ? 0 : n ? (int)n : -EPIPE;
	q->payload = client->ipc->buffer;
	if (n >= (ssize_t)sizeof(q->head.version) && q->head.version != CAREFUL_IPC_VERSION)
		rc = refuse_version(client, q->head.version);
	else if (n < (ssize_t)sizeof(q->head) || bytes > room || q->head.payload_bytes != bytes)
		rc = -EPROTO;
	if (rc < 0 && q->fd >= 0)
		ipc_close(client, q->fd, NULL);
	return rc;
}

static int park(struct ipc_client *client, const struct ipc_question *q)
{
	struct ipc_question *copy = malloc(sizeof(*copy) + q->head.payload_bytes);

	if (!copy)
		return -ENOMEM;
	*copy = *q;
	copy->payload = copy + 1;
	memcpy(copy + 1, q->payload, q->head.payload_bytes);
	client->parked = copy;
	client->ipc->poll_reasons++;
	return 0;
}

/* Reports whether a question must wait because another client's question to the same peer waits for
 * room. A STORE waits only for STOREs, others only for others. Without this rule, the client that
 * was served last could take each freed place first. */
static bool must_wait(const struct ipc *ipc, const struct careful_ipc *head)
{
	if (!ipc->poll_reasons || !ipc_shares_room(head->op))
		return false;
	for (const struct ipc_client *other = ipc->clients; other; other = other->next)
		if (other->waits && other->parked->head.peer == head->peer &&
		    (other->parked->head.op == CAREFUL_IPC_STORE) ==
			    (head->op == CAREFUL_IPC_STORE))
			return true;
	return false;
}

static void read_questions(struct ipc_client *client)
{
	struct ipc_question q;
	int rc = 1;

	for (int i = 0; i < IPC_ROUND && !client->failed; i++) {
		if (!ipc_may_ask(client))
			break;
		rc = receive(client, &q);
		if (rc <= 0)
			break;
		rc = must_wait(client->ipc, &q.head) ? -EAGAIN : ipc_ask(client, &q);
		if (rc == -EAGAIN) {
			rc = park(client, &q);
			q.fd = rc ? q.fd : -1;
		}
		if (q.fd >= 0)
			ipc_close(client, q.fd, NULL);
		if (rc < 0)
			break;
	}
	client->failed |= rc < 0;
	ipc_arm(client);
}

static void on_client(struct ipc_event *event, uint32_t events)
{
	struct ipc_client *client = (struct ipc_client *)event;

	if (client->fd >= 0 && (events & EPOLLOUT))
		ipc_flush(client);
	if (client->fd >= 0 && (events & EPOLLIN))
		read_questions(client);
	/* A client that only shut down its writing side may still read answers. */
	if (client->failed || (events & (EPOLLERR | EPOLLHUP)))
		disconnect(client);
}

static struct ipc_client *client_create(struct ipc *ipc, int fd)
{
	struct ipc_client *client = calloc(1, sizeof(*client));

	if (!client)
		return NULL;
	client->event.handle = on_client;
	client->ipc = ipc;
	client->fd = fd;
	client->uid = ipc_user(fd);
	client->answers_tail = &client->answers;
	for (uint32_t i = 0; i < CAREFUL_IPC_FILES; i++)
		client->files[i].fd = -1;
	for (uint32_t i = CAREFUL_IPC_INFLIGHT; i-- > 0;) {
		client->ops[i].next = client->ops_free;
		client->ops_free = &client->ops[i];
	}
	return client;
}

static void client_destroy(struct ipc_client *client)
{
	ipc_issuer_leave(client);
	free(client->measure);
	free(client->handles);
	free(client);
}

/* Sends the reason why a connection is not served, and closes it. */
static void refuse_client(int fd, int status, uint32_t clients)
{
	struct careful_ipc head = {
		.version = CAREFUL_IPC_VERSION,
		.status = status,
		.args = { clients, clients < IPC_CLIENTS },
	};

	packet_send(fd, &head, NULL, -1);
	close(fd);
}

/* Opens the spare descriptor of accept_connection(). While there is none, new connections wait:
 * events of a connection that cannot be accepted would wake the loop for ever. */
static void arm_listener(struct ipc *ipc)
{
	struct epoll_event ev = { .data.ptr = &ipc->event };

	if (ipc->spare_fd < 0)
		ipc->spare_fd = fcntl(ipc->epoll_fd, F_DUPFD_CLOEXEC, 3);
	if (ipc->spare_fd >= 0)
		ev.events = EPOLLIN;
	epoll_ctl(ipc->epoll_fd, EPOLL_CTL_MOD, ipc->listen_fd, &ev);
}

/* Accepts a connection. If no descriptor is free, closes the spare one, to serve root at least. */
static int accept_connection(struct ipc *ipc)
{
	int fd = accept4(ipc->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	if (fd >= 0 || (errno != EMFILE && errno != ENFILE))
		return fd;
	if (ipc->spare_fd >= 0)
		close(ipc->spare_fd);
	ipc->spare_fd = -1;
	fd = accept4(ipc->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (fd >= 0 && ipc_user(fd)) {
		refuse_client(fd, -ENFILE, 0);
		fd = -1;
	}
	arm_listener(ipc);
	return fd;
}

static void on_accept(struct ipc_event *event, uint32_t events)
{
	struct ipc *ipc = (struct ipc *)event;
	struct ipc_client *client;
	struct epoll_event ev = { .events = EPOLLIN };
	int fd = accept_connection(ipc);
	int bytes = 2 * CAREFUL_IPC_PAYLOAD_BYTES + 4096;
	uint32_t held;

	(void)events;
	if (fd < 0)
		return;
	/* The buffer must hold the largest answer, else that answer could never be sent. */
	setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
	if (!ipc_user_may_connect(ipc, ipc_user(fd), &held)) {
		refuse_client(fd, -EUSERS, ipc->clients_count < IPC_CLIENTS ? held : IPC_CLIENTS);
		return;
	}
	client = client_create(ipc, fd);
	ev.data.ptr = client ? &client->event : NULL;
	if (!client || epoll_ctl(ipc->epoll_fd, EPOLL_CTL_ADD, fd, &ev)) {
		refuse_client(fd, -ENOMEM, 0);
		free(client);
		return;
	}
	client->armed = ev.events;
	client->next = ipc->clients;
	ipc->clients = client;
	ipc->clients_count++;
}

static void retry(struct ipc_client *client)
{
	struct ipc_question *q = client->parked;

	if (!q || ipc_ask(client, q) == -EAGAIN)
		return;
	unpark(client);
	ipc_arm(client);
}

/* Moves the clients that began an operation since the last call to the end of the list. */
static void pass_turns(struct ipc *ipc)
{
	struct ipc_client *served = NULL, **tail = &served, **at = &ipc->clients, *client;

	while ((client = *at)) {
		if (!client->served) {
			at = &client->next;
			continue;
		}
		client->served = false;
		*at = client->next;
		*tail = client;
		tail = &client->next;
	}
	*tail = NULL;
	*at = served;
}

void ipc_poll(struct ipc *ipc)
{
	struct ipc_client **at, *client;

	ipc->has_signed = false;
	if (ipc->spare_fd < 0)
		arm_listener(ipc);
	if (ipc->connects)
		ipc_connects_poll(ipc);
	if (ipc->measures)
		ipc_measure_poll(ipc);
	if (ipc->programs)
		ipc_programs_poll(ipc);
	if (!ipc->poll_reasons)
		return;
	pass_turns(ipc);
	at = &ipc->clients;
	while ((client = *at)) {
		ipc_requests_retry(client);
		if (client->fd >= 0)
			retry(client);
		if (client->failed)
			disconnect(client);
		if (client->fd < 0 && client->leave_ns < clock_now_ns()) {
			client->handles_count = 0; /* the peer does not answer */
			abandon_operations(client);
		}
		if (client->fd >= 0 || !ipc_program_over(client) ||
		    !ipc_requests_close_left(client) || client->ops_used) {
			at = &client->next;
			continue;
		}
		ipc_close_files(client);
		ipc_program_free(client);
		if (client->closing) {
			at = &client->next;
			continue;
		}
		*at = client->next;
		ipc->clients_count--;
		ipc->poll_reasons--;
		client_destroy(client);
	}
	pass_turns(ipc);
}

void ipc_peer_changed(struct ipc *ipc, uint32_t peer, uint32_t state)
{
	if (ipc->programs)
		ipc_programs_peer(ipc, peer, state);
	if (state == CAREFUL_PEER_NONE || state == CAREFUL_PEER_FAILED)
		ipc_handles_over(ipc, peer);
	if (state == CAREFUL_PEER_NONE)
		ipc->generations[peer]++;
}

int ipc_timeout_ms(const struct ipc *ipc)
{
	int poll_ms = ipc->poll_reasons ? 10 : ipc->spare_fd < 0 ? SPARE_MS : -1;

	return clock_earlier_ms(poll_ms, clock_earlier_ms(ipc_connects_timeout_ms(ipc),
							  ipc_measure_timeout_ms(ipc)));
}

int ipc_create(struct careful *instance, int listen_fd, int epoll_fd, struct ipc **ipc)
{
	struct epoll_event ev = { .events = EPOLLIN };
	struct careful_info info;
	struct ipc *new;
	int rc = careful_info(instance, &info);

	if (rc)
		return rc;
	assert(info.peers_max <= CAREFUL_PEERS_MAX);
	new = calloc(1, sizeof(*new));
	if (!new)
		return -ENOMEM;
	new->event.handle = on_accept;
	new->instance = instance;
	new->listen_fd = listen_fd;
	new->epoll_fd = epoll_fd;
	new->peers_max = info.peers_max;
	new->port = (uint16_t)info.port;
	ev.data.ptr = &new->event;
	new->spare_fd = fcntl(epoll_fd, F_DUPFD_CLOEXEC, 3);
	rc = ipc_closer_init(&new->closer, epoll_fd);
	if (!rc && epoll_ctl(epoll_fd, EPOLL_CTL_ADD, listen_fd, &ev)) {
		rc = -errno;
		ipc_closer_stop(&new->closer);
	}
	if (rc) {
		if (new->spare_fd >= 0)
			close(new->spare_fd);
		free(new);
		return rc;
	}
	*ipc = new;
	return 0;
}

void ipc_set_reload(struct ipc *ipc, ipc_reload_fn *fn, void *user)
{
	ipc->reload = fn;
	ipc->reload_user = user;
}

void ipc_set_servers(struct ipc *ipc, const struct block_server *block,
		     const struct lend_server *lend)
{
	ipc->block = block;
	ipc->lend = lend;
}

/* Called after careful_close(), so no operation is under way. */
uint32_t ipc_destroy(struct ipc *ipc)
{
	struct ipc_client *client;
	uint32_t left;

	ipc->instance = NULL;
	for (client = ipc->clients; client; client = client->next) {
		disconnect(client);
		for (uint32_t i = 0; i < CAREFUL_IPC_FILES; i++)
			client->files[i].users = 0;
		ipc_close_files(client);
		ipc_program_free(client);
	}
	left = ipc_closer_stop(&ipc->closer);
	if (left) /* hanging threads still use the server's memory */
		return left;
	while ((client = ipc->clients)) {
		ipc->clients = client->next;
		client_destroy(client);
	}
	if (ipc->spare_fd >= 0)
		close(ipc->spare_fd);
	free(ipc);
	return 0;
}
