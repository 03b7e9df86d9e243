// SPDX-License-Identifier: BSD-2-Clause
/* A program's socket to carefuld: bells, and a question at a time. */
#include "local/attach.h"

#include <errno.h>
#include <sys/socket.h>

#include "local/packet.h"

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

/* Asks carefuld, with a payload and a descriptor (-1: none), and waits for the answer, which
 * replaces head. Returns the answer's status or -ENOTCONN. */
int attached_pass(struct careful *c, struct careful_ipc *head, const void *payload, int fd,
		  void *answer, uint32_t bytes)
{
	struct attached *a = c->attached;
	int rc;

	if (a->socket_fd < 0)
		return -ENOTCONN;
	rc = connection_ask(a->connection, head, payload, &fd, answer, bytes);
	if (a->connection->failed) {
		attached_lost(c);
		return -ENOTCONN;
	}
	/* connection_ask() took the BELL that should wake us, so ask for another. */
	if (a->connection->rung && a->armed)
		attached_bell(a, 1);
	a->connection->rung = false;
	return rc;
}

int attached_ask(struct careful *c, struct careful_ipc *head, void *answer, uint32_t bytes)
{
	return attached_pass(c, head, NULL, -1, answer, bytes);
}
