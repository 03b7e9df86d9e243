// SPDX-License-Identifier: BSD-2-Clause
/*
 * careful_attach(): an instance that is a carefuld's, and what it asks through the socket, an
 * answer at a time. What goes through the shared area is attach_ring.c's, which this calls.
 */
#include "service/attach.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum {
	ANSWER_MS = 10000, /* carefuld answers within a round; it may be measuring something */
	LOOK_MS = 10, /* between two looks for room among those that wait to be taken */
	MEMORY_BYTES = 16 << 20,
	PASSED = 1,
};

__attribute__((format(printf, 3, 4))) static int refused(struct careful_error *error, int rc,
							 const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(error->text, sizeof(error->text), format, args);
	va_end(args);
	return rc;
}

/* carefuld has ended, or has ended us: nothing is asked any more. */
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

/* Descriptors that came with a packet; more than are wanted are closed. */
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
		rc = poll(&pfd, 1, ANSWER_MS);
	} while (rc < 0 && errno == EINTR);
	return rc < 0 ? -errno : rc ? 0 : -ETIMEDOUT;
}

/* Wakes carefuld; a socket that is full does so, too. With flags it wakes us. */
void attached_ring(struct attached *a, uint32_t flags)
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

/* The next answer to a question with head's id, and descriptors with it. Of a connection that was
 * closed with our question unread we hear that first, and then the answer. */
static int receive_answer(struct attached *a, struct careful_ipc *head, void *answer,
			  uint32_t bytes, int *fds)
{
	const uint64_t id = head->id;
	const int fd = a->socket_fd;
	union {
		char buf[CMSG_SPACE(sizeof(int) * PASSED)];
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
		take_fds(&msg, fds, fds ? PASSED : 0);
		if (n >= (ssize_t)sizeof(head->version) && head->version != CAREFUL_IPC_VERSION)
			return -EPROTO;
		if (n < (ssize_t)sizeof(*head))
			return -EPROTO;
		if (!head->id) /* why we are not served */
			return head->status ? head->status : -EPROTO;
		if (head->id == id)
			return 0;
		a->rung = true;
	}
}

static int ask(struct careful *c, struct careful_ipc *head, const void *payload, uint32_t bytes,
	       void *answer, uint32_t answer_bytes, int passed, int *fds)
{
	struct attached *a = c->attached;
	int rc;

	if (a->socket_fd < 0)
		return -ENOTCONN;
	head->id = ++a->ids;
	rc = send_question(a->socket_fd, head, payload, bytes, passed);
	if (!rc || rc == -EPIPE || rc == -ECONNRESET) /* it may have said why */
		rc = receive_answer(a, head, answer, answer_bytes, fds);
	return rc;
}

/* As attached_ask(), with a descriptor; -1: none. */
int attached_pass(struct careful *c, struct careful_ipc *head, const void *payload, uint32_t bytes,
		  void *answer, uint32_t answer_bytes, int passed)
{
	int rc = ask(c, head, payload, bytes, answer, answer_bytes, passed, NULL);

	if (!rc) {
		/* What was to wake us is not in the socket any more. */
		if (c->attached->rung && c->attached->armed)
			attached_ring(c->attached, 1);
		c->attached->rung = false;
		return head->status;
	}
	attached_lost(c);
	return -ENOTCONN;
}

/* Asks carefuld and waits for its answer, which head becomes; its status, or -ENOTCONN. */
int attached_ask(struct careful *c, struct careful_ipc *head, const void *payload, uint32_t bytes,
		 void *answer, uint32_t answer_bytes)
{
	return attached_pass(c, head, payload, bytes, answer, answer_bytes, -1);
}

/* -EAGAIN: it has as many of ours as it takes. */
int attached_file_add(struct careful *c, int fd, uint32_t *file)
{
	struct careful_ipc head = { .op = CAREFUL_IPC_FILE_ADD };
	int rc = fd < 0 ? -EBADF : attached_pass(c, &head, NULL, 0, NULL, 0, fd);

	*file = head.file;
	return rc == -EMFILE ? -EAGAIN : rc;
}

void attached_file_remove(struct careful *c, uint32_t file)
{
	struct careful_ipc head = { .op = CAREFUL_IPC_FILE_REMOVE, .file = file };

	attached_ask(c, &head, NULL, 0, NULL, 0);
}

/* A connect() that blocks would wait for ever where nobody takes those that wait already. */
static int connect_to(struct attached *a, const char *path, struct careful_error *error)
{
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	int rc;

	if (strlen(path) >= sizeof(un.sun_path))
		return refused(error, -ENAMETOOLONG, "%s: too long for a socket's name", path);
	memcpy(un.sun_path, path, strlen(path));
	a->socket_fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (a->socket_fd < 0)
		return refused(error, -errno, "a socket: %s", strerror(errno));
	for (int ms = 0;; ms += LOOK_MS) {
		rc = connect(a->socket_fd, (struct sockaddr *)&un, sizeof(un)) ? -errno : 0;
		if (rc != -EAGAIN || ms >= ANSWER_MS)
			break;
		poll(NULL, 0, LOOK_MS);
	}
	if (!rc)
		return 0;
	if (rc == -EAGAIN)
		return refused(error, -ETIMEDOUT, "%s: no answer, and many wait for one already",
			       path);
	if (rc == -EACCES || rc == -EPERM)
		return refused(error, rc,
			       "%s: only root may connect (sudo), or the group of up --group",
			       path);
	if (rc == -ENOENT || rc == -ECONNREFUSED)
		return refused(error, rc, "%s: carefuld is not running (carefulctl up)", path);
	return refused(error, rc, "%s: %s", path, strerror(-rc));
}

static int map_area(struct attached *a, int fd, uint64_t memory_bytes)
{
	const uint64_t before = careful_area_before();
	struct stat st;
	uint8_t *at;

	if (fstat(fd, &st) || (uint64_t)st.st_size < before + memory_bytes)
		return -EPROTO;
	at = mmap(NULL, before + memory_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (at == MAP_FAILED)
		return -errno;
	a->area = (struct careful_area *)at;
	a->area_bytes = before + memory_bytes;
	a->asks = (struct careful_ring_entry *)(at + sizeof(struct careful_area));
	a->told = a->asks + CAREFUL_RING_ASKS;
	a->asks_payload = at + careful_area_payloads();
	a->told_payload = a->asks_payload + CAREFUL_RING_ASKS * CAREFUL_RING_PAYLOAD_BYTES;
	a->built = at + careful_area_built();
	a->memory = at + before;
	a->memory_bytes = memory_bytes;
	a->pages_count = (uint32_t)(memory_bytes / ATTACH_PAGE_BYTES);
	a->pages_used = calloc(a->pages_count ? a->pages_count : 1, 1);
	return a->pages_used ? 0 : -ENOMEM;
}

/* Asks for an area. fds: those that came, or -1. */
static int begin(struct careful *c, const struct careful_attach_options *o, int *fds,
		 struct careful_error *error)
{
	const char *name = o->name && o->name[0] ? o->name : "program";
	struct careful_ipc head = {
		.op = CAREFUL_IPC_ATTACH,
		.bytes = o->memory_bytes ? o->memory_bytes : MEMORY_BYTES,
	};
	int rc = ask(c, &head, name, (uint32_t)strlen(name), NULL, 0, -1, fds);

	if (!rc)
		rc = head.status;
	if (rc == -EPROTO)
		return refused(error, rc, "%s: carefuld is of another release: restart it",
			       o->path);
	if (rc == -EUSERS)
		return refused(error, rc, "%s: carefuld serves as many clients as it can", o->path);
	if (rc == -EINVAL)
		return refused(error, rc, "a name has at most 31 bytes, memory at most 1 GiB");
	if (!rc && fds[0] < 0)
		rc = -EPROTO;
	if (!rc)
		rc = map_area(c->attached, fds[0], head.bytes);
	return rc ? refused(error, rc, "%s: %s", o->path, strerror(-rc)) : 0;
}

int careful_attach(const struct careful_attach_options *options, struct careful **instance,
		   struct careful_error *error)
{
	struct careful *c = calloc(1, sizeof(*c));
	struct attached *a = calloc(1, sizeof(*a));
	int fds[PASSED] = { -1 };
	struct careful_error unused;
	int rc;

	error = error ? error : &unused;
	error->text[0] = 0;
	if (!c || !a || !options->path) {
		rc = c && a ? -EINVAL : -ENOMEM;
		free(c);
		free(a);
		return refused(error, rc, "%s",
			       rc == -EINVAL ? "no socket named" : "out of memory");
	}
	c->attached = a;
	c->owner = getpid();
	c->options.wait_mode = options->wait_mode;
	c->options.spin_us = options->spin_us ? options->spin_us : 50;
	a->socket_fd = a->lost_fd = -1;
	for (uint32_t i = CAREFUL_RING_OPERATIONS; i-- > 0;)
		a->free[a->free_count++] = (uint8_t)i;
	rc = connect_to(a, options->path, error);
	if (!rc)
		rc = begin(c, options, fds, error);
	if (fds[0] >= 0)
		close(fds[0]);
	if (rc) {
		attached_close(c);
		return rc;
	}
	*instance = c;
	return 0;
}

/* In a child of fork(), too: of the memory that the application has nothing is unmapped. */
int attached_close(struct careful *c)
{
	struct attached *a = c->attached;

	if (c->polling)
		return -EDEADLK;
	events_end(c);
	attached_quiet(c);
	if (a->socket_fd >= 0)
		close(a->socket_fd);
	if (a->lost_fd >= 0)
		close(a->lost_fd);
	if (a->area)
		munmap(a->area, a->lent ? a->area_bytes - a->memory_bytes : a->area_bytes);
	free(a->pages_used);
	free(a);
	free(c);
	return 0;
}

int attached_info(struct careful *c, struct careful_info *info)
{
	struct careful_ipc head = { .op = CAREFUL_IPC_INFO };
	int rc = attached_ask(c, &head, NULL, 0, info, sizeof(*info));

	if (rc)
		return rc;
	info->wait_mode = c->options.wait_mode;
	info->spin_us = c->options.spin_us;
	return 0;
}

int attached_peer(struct careful *c, const struct sockaddr *address, uint32_t bytes)
{
	struct careful_ipc head = { .op = CAREFUL_IPC_PEER_BEGIN };
	struct sockaddr_storage sa = { 0 };
	int rc;

	if (bytes > sizeof(sa))
		return -EAFNOSUPPORT;
	memcpy(&sa, address, bytes);
	rc = attached_ask(c, &head, &sa, sizeof(sa), NULL, 0);
	return rc ? rc : (int)head.peer;
}

/* Others may need it: it goes on, without us. */
int attached_peer_close(struct careful *c, uint32_t peer)
{
	struct careful_ipc head = { .op = CAREFUL_IPC_PEER_LEAVE, .peer = peer };
	struct attached *a = c->attached;
	int rc = attached_ask(c, &head, NULL, 0, NULL, 0);

	if (rc)
		return rc;
	for (uint32_t i = 0; i < CAREFUL_RING_OPERATIONS; i++) {
		if (a->ops[i].id && a->ops[i].peer == peer && !a->ops[i].left)
			a->closed = a->ops[i].left = true;
	}
	if (c->watch)
		c->watch(c, peer, CAREFUL_PEER_NONE, c->watch_user);
	return 0;
}

int attached_peer_info(struct careful *c, uint32_t peer, struct careful_ipc_peer *found)
{
	struct careful_ipc head = { .op = CAREFUL_IPC_PEER_INFO, .peer = peer };

	return attached_ask(c, &head, NULL, 0, found, sizeof(*found));
}

int attached_peer_measure(struct careful *c, uint32_t peer)
{
	struct careful_ipc head = { .op = CAREFUL_IPC_BURST, .peer = peer };

	return attached_ask(c, &head, NULL, 0, NULL, 0);
}

int attached_handle(struct careful *c, uint16_t handler, uint32_t of, bool on)
{
	struct careful_ipc head = {
		.op = CAREFUL_IPC_HANDLE,
		.handler = handler,
		.flags = of,
		.bytes = on,
	};

	return attached_ask(c, &head, NULL, 0, NULL, 0);
}

int careful_memory(struct careful *c, uint64_t bytes, void **base)
{
	uint64_t off;
	int rc;

	if (!bytes)
		return -EINVAL;
	if (!c->attached) {
		*base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			     0);
		return *base == MAP_FAILED ? -errno : 0;
	}
	rc = attached_pages(c->attached, bytes, &off);
	if (rc)
		return -ENOMEM;
	c->attached->lent = true;
	*base = c->attached->memory + off;
	memset(*base, 0, bytes);
	return 0;
}
