/* SPDX-License-Identifier: BSD-2-Clause */
#include "local/connection.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "local/packet.h"

/* While carefuld's queue of connections is full: time between two attempts, and in all. */
enum { RETRY_MS = 10, CONNECT_MS = 10000 };

struct waiter {
	struct waiter *next;
	uint64_t id;
	struct careful_ipc *packet; /* receives the answer's header */
	void *answer;
	size_t size;
	int *fd;
	bool is_done;
	pthread_cond_t woken; /* signalled when done, or when this thread must read */
};

/* Does not block in connect(), which would wait for ever if carefuld does not accept. */
int connection_open(const char *path, int timeout_ms, struct connection **connection)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd, rc;

	if (strlen(path) >= sizeof(address.sun_path))
		return -ENAMETOOLONG;
	memcpy(address.sun_path, path, strlen(path));
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	for (int ms = 0;; ms += RETRY_MS) {
		rc = connect(fd, (struct sockaddr *)&address, sizeof(address)) ? -errno : 0;
		if (rc != -EAGAIN || ms >= CONNECT_MS)
			break;
		poll(NULL, 0, RETRY_MS);
	}
	*connection = rc ? NULL : calloc(1, sizeof(**connection));
	if (!*connection) {
		close(fd);
		return rc == -EAGAIN ? -ETIMEDOUT : rc ? rc : -ENOMEM;
	}
	(*connection)->fd = fd;
	(*connection)->timeout_ms = timeout_ms;
	pthread_mutex_init(&(*connection)->lock, NULL);
	return 0;
}

void connection_close(struct connection *connection)
{
	assert(!connection->waiters);
	close(connection->fd);
	pthread_mutex_destroy(&connection->lock);
	free(connection);
}

static int await_socket(const struct connection *connection, short events)
{
	struct pollfd pfd = { .fd = connection->fd, .events = events };
	int rc;

	do {
		rc = poll(&pfd, 1, connection->timeout_ms);
	} while (rc < 0 && errno == EINTR);
	return rc < 0 ? -errno : rc ? 0 : -ETIMEDOUT;
}

static int send_packet(const struct connection *connection, const struct careful_ipc *packet,
		       const void *payload, int fd)
{
	int rc;

	while ((rc = packet_send(connection->fd, packet, payload, fd)) == -EAGAIN) {
		rc = await_socket(connection, POLLOUT);
		if (rc)
			break;
	}
	/* carefuld may have sent the reason before it closed the connection. */
	return rc == -EPIPE || rc == -ECONNRESET ? 0 : rc;
}

/* Reads a packet. If carefuld closed the connection with our question unread, the socket reports
 * that first (ECONNRESET), and then carefuld's last answer. */
static ssize_t receive(struct connection *connection, int *fd)
{
	bool was_reset = false;
	ssize_t n;

	*fd = -1;
	for (;;) {
		int rc = await_socket(connection, POLLIN);

		if (rc)
			return rc;
		n = packet_receive(connection->fd, &connection->buffer.head,
				   connection->buffer.payload, sizeof(connection->buffer.payload),
				   fd);
		if (n != -EAGAIN && (n != -ECONNRESET || was_reset))
			return n;
		was_reset |= n == -ECONNRESET;
	}
}

static void fail_locked(struct connection *connection, int rc)
{
	connection->failed = rc;
	for (struct waiter *waiter = connection->waiters; waiter; waiter = waiter->next) {
		waiter->packet->status = rc;
		waiter->is_done = true;
		pthread_cond_signal(&waiter->woken);
	}
}

/* Returns why the connection has ended after receive() returned n, or 0. */
static int find_failure(const struct careful_ipc *head, ssize_t n)
{
	if (n >= (ssize_t)sizeof(head->version) && head->version != CAREFUL_IPC_VERSION)
		return -EPROTO;
	if (n < (ssize_t)sizeof(*head) || n > (ssize_t)sizeof(*head) + CAREFUL_IPC_PAYLOAD_BYTES)
		return n == -ETIMEDOUT ? -ETIMEDOUT : -ENOTCONN;
	if (!head->id)
		return head->status < 0 ? head->status : -EPROTO;
	return 0;
}

/* Gives the packet in the buffer, and its descriptor, to the thread that asked. Needs the lock. */
static void deliver(struct connection *connection, ssize_t nbytes, int fd)
{
	const struct careful_ipc *head = &connection->buffer.head;
	const int rc = find_failure(head, nbytes);
	struct waiter *waiter = rc ? NULL : connection->waiters;
	size_t payload;

	if (rc)
		fail_locked(connection, rc);
	else if (head->op == CAREFUL_IPC_BELL)
		connection->rung = true;
	while (waiter && waiter->id != head->id)
		waiter = waiter->next;
	if (waiter && waiter->fd)
		*waiter->fd = fd;
	else if (fd >= 0)
		close(fd);
	if (!waiter)
		return;
	payload = (size_t)nbytes - sizeof(*head);
	if (payload > head->payload_bytes)
		payload = head->payload_bytes;
	if (payload > waiter->size)
		payload = waiter->size;
	if (payload)
		memcpy(waiter->answer, connection->buffer.payload, payload);
	*waiter->packet = *head;
	waiter->packet->payload_bytes = (uint32_t)payload;
	waiter->is_done = true;
	pthread_cond_signal(&waiter->woken);
}

/* Waits for the answer: reads for all, or sleeps while another thread reads. Needs the lock. */
static void wait_for(struct connection *connection, struct waiter *self)
{
	ssize_t nbytes;
	int fd;

	while (!self->is_done) {
		if (connection->is_read) {
			pthread_cond_wait(&self->woken, &connection->lock);
			continue;
		}
		connection->is_read = true;
		pthread_mutex_unlock(&connection->lock);
		nbytes = receive(connection, &fd);
		pthread_mutex_lock(&connection->lock);
		connection->is_read = false;
		deliver(connection, nbytes, fd);
	}
}

int connection_ask(struct connection *connection, struct careful_ipc *packet, const void *payload,
		   int *fd, /* NOLINT(readability-non-const-parameter): written by deliver() */
		   void *answer, size_t size)
{
	struct waiter self = { .packet = packet, .answer = answer, .size = size, .fd = fd };
	struct waiter **at;
	int rc;

	pthread_cond_init(&self.woken, NULL);
	pthread_mutex_lock(&connection->lock);
	packet->version = CAREFUL_IPC_VERSION;
	packet->id = self.id = ++connection->last_id;
	rc = connection->failed ? connection->failed :
				  send_packet(connection, packet, payload, fd ? *fd : -1);
	if (rc == -ETIMEDOUT)
		fail_locked(connection, rc);
	if (!rc) {
		self.next = connection->waiters;
		connection->waiters = &self;
		wait_for(connection, &self);
		for (at = &connection->waiters; *at && *at != &self; at = &(*at)->next)
			;
		assert(*at);
		*at = self.next;
		/* Another thread takes over the reading. */
		if (connection->waiters && !connection->is_read)
			pthread_cond_signal(&connection->waiters->woken);
		rc = packet->status;
	}
	pthread_mutex_unlock(&connection->lock);
	pthread_cond_destroy(&self.woken);
	return rc;
}
