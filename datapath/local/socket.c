// SPDX-License-Identifier: BSD-2-Clause
/* A program's socket to carefuld: bells, and one question at a time. */
#include "local/attach.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Notes that carefuld has ended or closed the connection; nothing is asked any more. */
void attached_lost(struct careful *c)
{
	struct attached *a = c->attached;

	if (a->socket_fd >= 0) {
		shutdown(a->socket_fd, SHUT_RDWR);
		a->lost_fd = a->socket_fd;
	}
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

static void take_fds(struct msghdr *msg, int *fds, uint32_t n)
{
	uint32_t found = 0;

	for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t i = 0; i < (c->cmsg_len - CMSG_LEN(0)) / sizeof(int); i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(c) + i * sizeof(fd), sizeof(fd));
			if (found < n)
				fds[found++] = fd;
			else
				close(fd);
		}
	}
}

static int ready(int fd, short events)
{
	struct pollfd pfd = { .fd = fd, .events = events };
	int rc;

	do {
		rc = poll(&pfd, 1, ATTACH_ANSWER_MS);
	} while (rc < 0 && errno == EINTR);
	return rc < 0 ? -errno : rc ? 0 : -ETIMEDOUT;
}

/* Wakes carefuld; a full socket does so as well. With flags, carefuld answers with a BELL. */
void attached_bell(struct attached *a, uint32_t flags)
{
	const struct careful_ipc head = {
		.version = CAREFUL_IPC_VERSION,
		.op = CAREFUL_IPC_BELL,
		.id = UINT64_MAX,
		.flags = flags,
	};

	send(a->socket_fd, &head, sizeof(head), MSG_NOSIGNAL | MSG_DONTWAIT);
}

static int send_question(int fd, struct careful_ipc *head, const void *payload, uint32_t bytes,
			 int passed)
{
	char control[CMSG_SPACE(sizeof(int))] __attribute__((aligned(8))) = { 0 };
	struct iovec iov[2] = { { head, sizeof(*head) }, { (void *)payload, bytes } };
	struct msghdr msg = { .msg_iov = iov, .msg_iovlen = bytes ? 2 : 1 };

	if (passed >= 0) {
		struct cmsghdr *cmsg;

		msg.msg_control = control;
		msg.msg_controllen = sizeof(control);
		cmsg = CMSG_FIRSTHDR(&msg);
		cmsg->cmsg_level = SOL_SOCKET;
		cmsg->cmsg_type = SCM_RIGHTS;
		cmsg->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(cmsg), &passed, sizeof(passed));
	}
	head->version = CAREFUL_IPC_VERSION;
	head->payload_bytes = bytes;
	for (;;) {
		int rc;

		if (sendmsg(fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0)
			return 0;
		if (errno == EINTR)
			continue;
		if (errno != EAGAIN)
			return -errno;
		rc = ready(fd, POLLOUT);
		if (rc)
			return rc;
	}
}

/* Receives the answer to the question with head's id, and its descriptors. If carefuld closed the
 * connection with our question unread, that error comes first and then its last answer. */
static int receive_answer(struct attached *a, struct careful_ipc *head, void *answer,
			  uint32_t bytes, int *fds)
{
	const uint64_t id = head->id;
	const int fd = a->socket_fd;
	union {
		char buf[CMSG_SPACE(sizeof(int) * ATTACH_FDS)];
		struct cmsghdr align;
	} control;
	struct iovec iov[2] = { { head, sizeof(*head) }, { answer, bytes } };
	bool reset = false;

	for (;;) {
		struct msghdr msg = {
			.msg_iov = iov,
			.msg_iovlen = bytes ? 2 : 1,
			.msg_control = &control,
			.msg_controllen = sizeof(control),
		};
		int rc = ready(fd, POLLIN);
		ssize_t n;

		if (rc)
			return rc;
		n = recvmsg(fd, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
		if (n < 0 && (errno == EINTR || errno == EAGAIN))
			continue;
		if (n < 0 && errno == ECONNRESET && !reset) {
			reset = true;
			continue;
		}
		if (n <= 0)
			return n ? -errno : -ECONNRESET;
		take_fds(&msg, fds, fds ? ATTACH_FDS : 0);
		if (n >= (ssize_t)sizeof(head->version) && head->version != CAREFUL_IPC_VERSION)
			return -EPROTO;
		if (n < (ssize_t)sizeof(*head))
			return -EPROTO;
		if (!head->id) /* the reason why carefuld does not serve us */
			return head->status ? head->status : -EPROTO;
		if (head->id == id)
			return 0;
		a->rung = true;
	}
}

int attached_question(struct careful *c, struct careful_ipc *head, const void *payload,
		      uint32_t bytes, void *answer, uint32_t answer_bytes, int passed, int *fds)
{
	struct attached *a = c->attached;
	int rc;

	if (a->socket_fd < 0)
		return -ENOTCONN;
	head->id = ++a->ids;
	rc = send_question(a->socket_fd, head, payload, bytes, passed);
	if (!rc || rc == -EPIPE || rc == -ECONNRESET) /* carefuld may have sent the reason */
		rc = receive_answer(a, head, answer, answer_bytes, fds);
	return rc;
}

/* As attached_ask(), with a descriptor; -1: none. */
int attached_pass(struct careful *c, struct careful_ipc *head, const void *payload, uint32_t bytes,
		  void *answer, uint32_t answer_bytes, int passed)
{
	int rc = attached_question(c, head, payload, bytes, answer, answer_bytes, passed, NULL);

	if (!rc) {
		/* The BELL that was to wake us was taken: ask for another. */
		if (c->attached->rung && c->attached->armed)
			attached_bell(c->attached, 1);
		c->attached->rung = false;
		return head->status;
	}
	attached_lost(c);
	return -ENOTCONN;
}

/* Asks carefuld and waits for its answer, which replaces head. Returns its status or -ENOTCONN. */
int attached_ask(struct careful *c, struct careful_ipc *head, const void *payload, uint32_t bytes,
		 void *answer, uint32_t answer_bytes)
{
	return attached_pass(c, head, payload, bytes, answer, answer_bytes, -1);
}
