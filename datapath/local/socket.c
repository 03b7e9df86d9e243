// SPDX-License-Identifier: BSD-2-Clause
/* A program's socket to carefuld: bells, and a question at a time. */
#include "local/attach.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "local/packet.h"

enum {
	ANSWER_MS = 10000, /* carefuld answers within a round, but may be measuring */
	/* while carefuld's queue of connections is full: time between two attempts, and in all */
	RETRY_MS = 10,
	CONNECT_MS = 10000,
};

/* Connects to carefuld. Does not block in connect(), which would wait for ever if carefuld does not
 * accept. Returns 0 or -errno; -ETIMEDOUT: carefuld accepts no connection. */
int attached_connect(struct attached *a, const char *path)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int rc;

	if (strlen(path) >= sizeof(address.sun_path))
		return -ENAMETOOLONG;
	memcpy(address.sun_path, path, strlen(path));
	a->open_fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (a->open_fd < 0)
		return -errno;
	for (int ms = 0;; ms += RETRY_MS) {
		rc = connect(a->open_fd, (struct sockaddr *)&address, sizeof(address)) ? -errno : 0;
		if (rc != -EAGAIN || ms >= CONNECT_MS)
			break;
		poll(NULL, 0, RETRY_MS);
	}
	if (!rc)
		a->socket_fd = a->open_fd;
	return rc == -EAGAIN ? -ETIMEDOUT : rc;
}

/* Ends the use of the connection, because carefuld has ended or closed it. Keeps the descriptor
 * open, because an event loop may still have its number. */
static void attached_lost(struct careful *c)
{
	struct attached *a = c->attached;

	if (a->socket_fd >= 0)
		shutdown(a->socket_fd, SHUT_RDWR);
	a->socket_fd = -1;
	a->closed = true;
}

/* Takes the bells that rang and checks the connection. */
void attached_look(struct careful *c)
{
	struct attached *a = c->attached;
	char byte;
	ssize_t n;

	if (a->socket_fd < 0)
		return;
	do {
		n = recv(a->socket_fd, &byte, 1, MSG_DONTWAIT);
	} while (n > 0 || (n < 0 && errno == EINTR));
	if (n == 0 || errno != EAGAIN)
		attached_lost(c);
}

/* Wakes carefuld; a full socket does so as well. With flags, carefuld answers with a BELL. */
void attached_bell(const struct attached *a, uint32_t flags)
{
	const struct careful_ipc head = {
		.version = CAREFUL_IPC_VERSION,
		.op = CAREFUL_IPC_BELL,
		.id = UINT64_MAX,
		.flags = flags,
	};

	packet_send(a->socket_fd, &head, NULL, -1);
}

static int await_socket(int socket_fd, short events)
{
	struct pollfd pfd = { .fd = socket_fd, .events = events };
	int rc;

	do {
		rc = poll(&pfd, 1, ANSWER_MS);
	} while (rc < 0 && errno == EINTR);
	return rc < 0 ? -errno : rc ? 0 : -ETIMEDOUT;
}

static int send_packet(int socket_fd, const struct careful_ipc *head, const void *payload, int fd)
{
	int rc;

	while ((rc = packet_send(socket_fd, head, payload, fd)) == -EAGAIN) {
		rc = await_socket(socket_fd, POLLOUT);
		if (rc)
			break;
	}
	/* carefuld may have sent the reason before it closed the connection. */
	return rc == -EPIPE || rc == -ECONNRESET ? 0 : rc;
}

/* Reads a packet. If carefuld closed the connection with our question unread, the socket reports
 * that first (ECONNRESET), and then carefuld's last answer. */
static ssize_t receive(int socket_fd, struct careful_ipc *head, void *payload, size_t bytes,
		       int *fd)
{
	bool was_reset = false;
	ssize_t n;

	*fd = -1;
	for (;;) {
		int rc = await_socket(socket_fd, POLLIN);

		if (rc)
			return rc;
		n = packet_receive(socket_fd, head, payload, bytes, fd);
		if (n != -EAGAIN && (n != -ECONNRESET || was_reset))
			return n;
		was_reset |= n == -ECONNRESET;
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

/* Asks carefuld, and waits for the answer, which replaces head.
 *
 * @fd: a descriptor to pass, then one that came with the answer; -1: none
 *
 * Returns the answer's status, or -errno; if the connection has ended, the reason. */
int attached_exchange(struct careful *c, struct careful_ipc *head, const void *payload, int *fd,
		      void *answer, uint32_t bytes)
{
	struct attached *a = c->attached;
	const uint64_t id = ++a->last_id;
	struct careful_ipc received = { 0 };
	bool rang = false;
	uint32_t payload_bytes;
	ssize_t n;
	int rc;

	head->version = CAREFUL_IPC_VERSION;
	head->id = id;
	rc = send_packet(a->socket_fd, head, payload, *fd);
	*fd = -1;
	if (rc == -ETIMEDOUT)
		attached_lost(c);
	if (rc)
		return rc;
	do {
		if (*fd >= 0)
			close(*fd);
		n = receive(a->socket_fd, &received, answer, bytes, fd);
		rc = find_failure(&received, n);
		rang |= received.op == CAREFUL_IPC_BELL;
	} while (!rc && received.id != id);
	if (rc) {
		attached_lost(c);
		return rc;
	}
	/* We took the BELL that should wake us, so ask for another. */
	if (rang && a->armed)
		attached_bell(a, 1);
	payload_bytes = (uint32_t)n - (uint32_t)sizeof(received);
	if (payload_bytes > bytes)
		payload_bytes = bytes;
	if (received.payload_bytes > payload_bytes)
		received.payload_bytes = payload_bytes;
	*head = received;
	return head->status;
}

/* Like attached_exchange(), with a descriptor to pass (-1: none). Returns -ENOTCONN if the
 * connection has ended. */
int attached_pass(struct careful *c, struct careful_ipc *head, const void *payload, int fd,
		  void *answer, uint32_t bytes)
{
	struct attached *a = c->attached;
	int rc;

	if (a->socket_fd < 0)
		return -ENOTCONN;
	rc = attached_exchange(c, head, payload, &fd, answer, bytes);
	if (fd >= 0)
		close(fd);
	return a->socket_fd < 0 ? -ENOTCONN : rc;
}

int attached_ask(struct careful *c, struct careful_ipc *head, void *answer, uint32_t bytes)
{
	return attached_pass(c, head, NULL, -1, answer, bytes);
}
