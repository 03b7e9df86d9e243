/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The daemon's local socket over an instance without a network: requests of clients, clients that
 * leave, and malformed packets. Needs no privilege.
 */
#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <careful/block.h>
#include <careful/ipc.h>
#include <careful/wire.h>

#include "daemon/ipc/ipc.c" /* NOLINT(bugprone-suspicious-include) */
#include "daemon/ipc/ipc_answer.c" /* NOLINT(bugprone-suspicious-include) */
#include "daemon/ipc/ipc_close.c" /* NOLINT(bugprone-suspicious-include) */
#include "daemon/ipc/ipc_file.c" /* NOLINT(bugprone-suspicious-include) */
#include "daemon/ipc/ipc_gets.c" /* NOLINT(bugprone-suspicious-include) */
#include "daemon/ipc/ipc_handles.c" /* NOLINT(bugprone-suspicious-include) */
#include "daemon/ipc/ipc_measure.c" /* NOLINT(bugprone-suspicious-include) */
#include "daemon/ipc/ipc_name.c" /* NOLINT(bugprone-suspicious-include) */
#include "daemon/ipc/ipc_news.c" /* NOLINT(bugprone-suspicious-include) */
#include "daemon/ipc/ipc_op.c" /* NOLINT(bugprone-suspicious-include) */
#include "daemon/ipc/ipc_peer.c" /* NOLINT(bugprone-suspicious-include) */
#include "daemon/ipc/ipc_program.c" /* NOLINT(bugprone-suspicious-include) */
#include "daemon/ipc/ipc_region.c" /* NOLINT(bugprone-suspicious-include) */
#include "daemon/ipc/ipc_request.c" /* NOLINT(bugprone-suspicious-include) */
#include "daemon/ipc/ipc_ring.c" /* NOLINT(bugprone-suspicious-include) */
#include "daemon/ipc/ipc_signature.c" /* NOLINT(bugprone-suspicious-include) */
#include "daemon/ipc/ipc_user.c" /* NOLINT(bugprone-suspicious-include) */
#include "daemon/log.c" /* NOLINT(bugprone-suspicious-include) */
#include "files/block.h"
#include "fake_careful.c" /* NOLINT(bugprone-suspicious-include) */

static struct careful *c;
static struct ipc *server;
static int listen_fd, epoll_fd;
static struct sockaddr_un address = { .sun_family = AF_UNIX };

/* Reports two exports, like the block server. */
uint32_t block_use(const struct block_server *block, struct careful_export_use *uses)
{
	assert(block);
	uses[0] = (struct careful_export_use){ .requests = 7, .failed = 3, .denied = 2 };
	uses[1] = (struct careful_export_use){ .read_bytes = 1ull << 40, .written_bytes = 5 };
	return 2;
}

struct answer {
	struct careful_ipc head;
	unsigned char payload[CAREFUL_IPC_PAYLOAD_BYTES];
};

static void changed(struct careful *instance, uint32_t peer, uint32_t state, void *user)
{
	(void)instance;
	ipc_peer_changed(user, peer, state);
}

static ino_t hanging; /* file whose close() waits for `may_close`; 0: none */
static sem_t may_close;

/* In place of libc's. */
int close(int fd)
{
	struct stat st;

	if (hanging && !fstat(fd, &st) && st.st_ino == hanging)
		sem_wait(&may_close);
	return (int)syscall(SYS_close, fd);
}

static uid_t user; /* user of new connections */

/* In place of libc's. */
int getsockopt(int fd, int level, int option, void *value, socklen_t *bytes)
{
	const struct ucred who = { .uid = user };

	if (level != SOL_SOCKET || option != SO_PEERCRED)
		return (int)syscall(SYS_getsockopt, fd, level, option, value, bytes);
	memcpy(value, &who, sizeof(who));
	return 0;
}

/* Reports whether files wait to be closed. */
static bool closes(void)
{
	return server->closer.files && !hanging;
}

/* Runs one round of the daemon's loop. Returns the number of events. */
static int loop_once(void)
{
	struct epoll_event events[16];
	int n = epoll_wait(epoll_fd, events, 16, closes() ? -1 : 0);

	for (int i = 0; i < n; i++) {
		struct ipc_event *event = events[i].data.ptr;

		event->handle(event, events[i].events);
	}
	ipc_poll(server);
	return n;
}

/* Runs the daemon's loop until it has nothing to do. */
static void turn(void)
{
	while (loop_once() > 0 || closes())
		;
}

static int client(void)
{
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	socklen_t length = sizeof(sa_family_t) + 1 + (socklen_t)strlen(address.sun_path + 1);

	assert(connect(fd, (struct sockaddr *)&address, length) == 0);
	turn();
	return fd;
}

static int send_raw(int fd, const void *buf, size_t bytes, const int *fds, size_t n)
{
	char control[CMSG_SPACE(sizeof(int) * 8)] __attribute__((aligned(8))) = { 0 };
	struct iovec iov = { (void *)buf, bytes };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };

	if (n) {
		struct cmsghdr *cmsg = (struct cmsghdr *)control;

		msg.msg_control = control;
		msg.msg_controllen = CMSG_SPACE(sizeof(int) * n);
		cmsg->cmsg_level = SOL_SOCKET;
		cmsg->cmsg_type = SCM_RIGHTS;
		cmsg->cmsg_len = CMSG_LEN(sizeof(int) * n);
		memcpy(CMSG_DATA(cmsg), fds, sizeof(int) * n);
	}
	return sendmsg(fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? -errno : 0;
}

static int ask(int fd, struct careful_ipc head, const void *payload, uint32_t bytes)
{
	static unsigned char buf[sizeof(head) + CAREFUL_IPC_PAYLOAD_BYTES + 1];

	head.version = head.version ? head.version : CAREFUL_IPC_VERSION;
	head.payload_bytes = bytes;
	memcpy(buf, &head, sizeof(head));
	if (bytes)
		memcpy(buf + sizeof(head), payload, bytes);
	return send_raw(fd, buf, sizeof(head) + bytes, NULL, 0);
}

/* Returns the next answer, or NULL. */
static struct answer *next_answer(int fd)
{
	static struct answer a;
	ssize_t n;

	turn();
	n = recv(fd, &a, sizeof(a), MSG_DONTWAIT);
	if (n <= 0)
		return NULL;
	assert(n == (ssize_t)(sizeof(a.head) + a.head.payload_bytes));
	assert(a.head.version == CAREFUL_IPC_VERSION);
	turn();
	return &a;
}

static struct answer *answered(int fd, uint64_t id)
{
	struct answer *a = next_answer(fd);

	assert(a && a->head.id == id);
	return a;
}

static bool closed(int fd)
{
	char byte;

	turn();
	return recv(fd, &byte, 1, MSG_DONTWAIT) == 0;
}

static struct fake_operation *operation(char kind)
{
	for (int i = 0; i < 512; i++) {
		if (c->operations[i].kind == kind)
			return &c->operations[i];
	}
	return NULL;
}

static int operations(void)
{
	int n = 0;

	for (int i = 0; i < 512; i++)
		n += !!c->operations[i].kind;
	return n;
}

/* Ends an operation, as the engine does. */
static void end(struct fake_operation *op, int status, uint32_t arg0, const void *payload,
		uint32_t bytes)
{
	struct careful_result result = {
		.status = status, .args = { arg0 }, .payload = payload, .bytes = bytes, .digest = 77
	};
	careful_done_fn *done = op->done;

	op->kind = 0;
	done(&result, op->user);
}

static uint32_t connect_peer(int fd, uint32_t host)
{
	struct sockaddr_storage sa = { 0 };
	struct sockaddr_in *in = (struct sockaddr_in *)&sa;
	struct answer *a;

	in->sin_family = AF_INET;
	in->sin_addr.s_addr = htonl(host);
	assert(ask(fd, (struct careful_ipc){ .op = CAREFUL_IPC_CONNECT, .id = 900 }, &sa,
		   sizeof(sa)) == 0);
	turn();
	for (int i = 0; i < FAKE_PEERS; i++) {
		if (c->peers[i].state == CAREFUL_PEER_CONNECTING)
			c->peers[i].state = CAREFUL_PEER_UP;
	}
	a = answered(fd, 900);
	assert(a->head.status == 0);
	return a->head.peer;
}

static uint32_t add_file(int fd, int file)
{
	struct careful_ipc head = { .version = CAREFUL_IPC_VERSION,
				    .op = CAREFUL_IPC_FILE_ADD,
				    .id = 1 };
	struct answer *a;

	assert(send_raw(fd, &head, sizeof(head), &file, 1) == 0);
	a = answered(fd, 1);
	assert(a->head.status == 0);
	return a->head.file;
}

static int open_fds(void)
{
	int n = 0;

	for (int fd = 3; fd < 1024; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

static void test_info_and_peers(void)
{
	int fd = client();
	struct answer *a;
	uint32_t peer;

	ask(fd, (struct careful_ipc){ .op = CAREFUL_IPC_INFO, .id = 5 }, NULL, 0);
	a = answered(fd, 5);
	assert(a->head.status == 0 && a->head.payload_bytes == sizeof(struct careful_info));
	assert(((struct careful_info *)a->payload)->peers_max == FAKE_PEERS);
	ask(fd, (struct careful_ipc){ .op = CAREFUL_IPC_PEERS, .id = 6 }, NULL, 0);
	assert(answered(fd, 6)->head.payload_bytes == 0);
	peer = connect_peer(fd, 0x0a000001);
	ask(fd, (struct careful_ipc){ .op = CAREFUL_IPC_PEERS, .id = 7 }, NULL, 0);
	assert(answered(fd, 7)->head.payload_bytes == sizeof(struct careful_peer_info));
	careful_peer_close(c, (uint32_t)ipc_peer_index(server, peer));
	close(fd);
	turn();
	assert(!server->clients);
}

static void test_connect__time_limit_and_errors(void)
{
	enum { LIMIT_MS = 200 }; /* longer than the slowest machine needs for the questions below */
	struct sockaddr_storage sa = { .ss_family = AF_INET };
	struct careful_ipc head = { .op = CAREFUL_IPC_CONNECT, .id = 1, .bytes = LIMIT_MS };
	int fd = client();

	ask(fd, head, &sa, sizeof(sa));
	assert(!next_answer(fd) && ipc_timeout_ms(server) > 0);
	usleep((LIMIT_MS + 10) * 1000);
	assert(answered(fd, 1)->head.status == -ETIMEDOUT);
	/* The peer's slot is free again. */
	assert(c->peers[0].state == CAREFUL_PEER_NONE && ipc_timeout_ms(server) == -1);
	/* The answer has the engine's errno. */
	ask(fd, head, &sa, sizeof(sa));
	turn();
	c->peers[0].state = CAREFUL_PEER_FAILED;
	c->peers[0].last_errno = EPROTO;
	assert(answered(fd, 1)->head.status == -EPROTO);
	/* A repeated CONNECT does not get an old failure; full slots are given up. */
	for (int i = 0; i < FAKE_PEERS; i++) {
		c->peers[i].state = CAREFUL_PEER_FAILED;
		c->peers[i].last_errno = EPROTO;
	}
	ask(fd, head, &sa, sizeof(sa));
	assert(!next_answer(fd));
	usleep((LIMIT_MS + 10) * 1000);
	assert(answered(fd, 1)->head.status == -ETIMEDOUT);
	for (int i = 0; i < FAKE_PEERS; i++)
		c->peers[i].state = CAREFUL_PEER_UP;
	ask(fd, head, &sa, sizeof(sa));
	assert(answered(fd, 1)->head.status == -EADDRINUSE);
	for (uint32_t i = 0; i < FAKE_PEERS; i++)
		careful_peer_close(c, i);
	c->peer_errno = -ENETUNREACH;
	ask(fd, head, &sa, sizeof(sa));
	assert(answered(fd, 1)->head.status == -ENETUNREACH);
	c->peer_errno = 0;
	sa.ss_family = AF_UNIX;
	ask(fd, head, &sa, sizeof(sa));
	assert(answered(fd, 1)->head.status == -EAFNOSUPPORT);
	for (uint32_t n = 0; n < 16; n++) {
		ask(fd, head, &sa, n);
		assert(answered(fd, 1)->head.status < 0);
	}
	/* A client that goes while it waits is not answered. */
	sa.ss_family = AF_INET;
	ask(fd, head, &sa, sizeof(sa));
	turn();
	close(fd);
	turn();
	assert(server->clients);
	usleep((LIMIT_MS + 10) * 1000);
	turn();
	turn();
	assert(!server->clients);
}

static void test_peer__name_of_a_former_peer(void)
{
	int fd = client();
	uint32_t peer = connect_peer(fd, 0x0a000001), other;

	careful_peer_close(c, 0);
	other = connect_peer(fd, 0x0a000002);
	assert(other != peer && (other & 0xffff) == (peer & 0xffff));
	ask(fd, (struct careful_ipc){ .op = CAREFUL_IPC_REQUEST, .id = 3, .peer = peer }, "x", 1);
	assert(answered(fd, 3)->head.status == -ENOTCONN && !operations());
	careful_peer_close(c, 0);
	close(fd);
	turn();
}

static void test_request__and_bulk(void)
{
	int fd = client(), memory = memfd_create("f", MFD_CLOEXEC);
	uint32_t peer = connect_peer(fd, 0x0a000001), file = add_file(fd, memory);
	struct careful_ipc head = { .op = CAREFUL_IPC_REQUEST,
				    .id = 10,
				    .peer = peer,
				    .handler = 3,
				    .args = { 1, 2, 3, 4 } };
	struct fake_operation *op;
	struct answer *a;

	ask(fd, head, "payload", 7);
	turn();
	op = operation('r');
	assert(op && op->handler == 3 && op->args[3] == 4 && op->payload_bytes == 7);
	assert(!memcmp(op->payload, "payload", 7));
	end(op, -EIO, 42, "answer", 6);
	a = answered(fd, 10);
	assert(a->head.status == -EIO && a->head.args[0] == 42 && a->head.payload_bytes == 6);
	assert(!memcmp(a->payload, "answer", 6));

	head = (struct careful_ipc){ .op = CAREFUL_IPC_GET,
				     .id = 11,
				     .peer = peer,
				     .region = 9,
				     .region_off = 1ULL << 40,
				     .bytes = 1 << 20,
				     .file = file,
				     .file_off = 1ULL << 41 };
	ask(fd, head, NULL, 0);
	turn();
	op = operation('g');
	assert(op && op->region == 9 && op->region_off == 1ULL << 40 && op->bytes == 1 << 20);
	assert(!op->span.base && op->span.offset == 1ULL << 41);
	/* FILE_REMOVE waits for operations on the file; no new one may begin meanwhile. */
	ask(fd, (struct careful_ipc){ .op = CAREFUL_IPC_FILE_REMOVE, .id = 12, .file = file }, NULL,
	    0);
	assert(!next_answer(fd));
	ask(fd, head, NULL, 0);
	assert(answered(fd, 11)->head.status == -EBADF);
	end(op, 0, 0, NULL, 1 << 20);
	a = next_answer(fd);
	assert(a->head.id == 12 || a->head.id == 11);
	a = next_answer(fd);
	assert(a->head.id == 12 || (a->head.digest == 77 && a->head.bytes == 1 << 20));

	head.file = add_file(fd, memory);
	head.op = CAREFUL_IPC_STORE;
	head.handler = CAREFUL_HANDLERS;
	ask(fd, head, NULL, 0);
	turn();
	op = operation('s');
	assert(op && op->handler == CAREFUL_HANDLERS);
	end(op, 0, 0, NULL, 1 << 20);
	a = answered(fd, 11);
	assert(a->head.status == 0 && a->head.bytes == 1 << 20 && a->head.digest == 77);
	/* Out of range. */
	head.bytes = 1ULL << 32;
	ask(fd, head, NULL, 0);
	assert(answered(fd, 11)->head.status == -EINVAL);
	head.bytes = 1;
	head.file = CAREFUL_IPC_FILES;
	ask(fd, head, NULL, 0);
	assert(answered(fd, 11)->head.status == -EBADF);
	careful_peer_close(c, 0);
	close(memory);
	close(fd);
	turn();
	assert(!server->clients);
}

static void ask_gets(int fd, uint64_t id, uint32_t peer, uint32_t file, uint32_t count)
{
	struct careful_ipc_range ranges[CAREFUL_IPC_RANGES + 1];

	for (uint32_t i = 0; i < count; i++)
		ranges[i] = (struct careful_ipc_range){ 1000ull * i, 7ull * i, 10 + i, 0 };
	ask(fd,
	    (struct careful_ipc){
		    .op = CAREFUL_IPC_GETS, .id = id, .peer = peer, .region = 9, .file = file },
	    ranges, count * (uint32_t)sizeof(ranges[0]));
}

/* The gets of one question have one answer; a bounded number is under way. */
static void test_gets__one_answer(void)
{
	int fd = client(), memory = memfd_create("f", MFD_CLOEXEC);
	uint32_t peer = connect_peer(fd, 0x0a000001), file = add_file(fd, memory);
	struct fake_operation *op;
	struct answer *a;

	ask_gets(fd, 20, peer, file, 100);
	turn();
	assert(operations() == 32);
	for (uint32_t i = 0; i < 100; i++) {
		assert(!next_answer(fd));
		op = operation('g');
		assert(op && op->region == 9 && op->bytes == 10 + op->region_off / 1000);
		assert(op->span.offset == op->region_off / 1000 * 7);
		end(op, 0, 0, NULL, op->bytes);
		turn();
	}
	a = answered(fd, 20);
	assert(a->head.status == 0 && a->head.bytes == 100 * 10 + 99 * 100 / 2);
	/* After a short or failed get no other begins; those under way end first. */
	for (uint32_t shorter = 0; shorter < 2; shorter++) {
		ask_gets(fd, 21, peer, file, 40);
		turn();
		op = operation('g');
		end(op, shorter ? 0 : -EIO, 0, NULL, op->bytes - 1);
		turn();
		assert(operations() == 31 && !next_answer(fd));
		while ((op = operation('g')))
			end(op, 0, 0, NULL, op->bytes);
		assert(answered(fd, 21)->head.status == (shorter ? -ENODATA : -EIO));
	}
	/* If the engine has no room for the first, the client gets the error. */
	c->begin_errno = -EAGAIN;
	ask_gets(fd, 22, peer, file, 2);
	turn();
	assert(answered(fd, 22)->head.status == -EAGAIN);
	c->begin_errno = 0;
	ask_gets(fd, 23, peer, file, 0);
	assert(answered(fd, 23)->head.status == -EINVAL);
	ask_gets(fd, 24, peer, file, CAREFUL_IPC_RANGES + 1);
	assert(answered(fd, 24)->head.status == -EINVAL);
	ask_gets(fd, 25, peer, file + 1, 2);
	assert(answered(fd, 25)->head.status == -EBADF);
	/* A client leaves: no get begins for it. */
	ask_gets(fd, 26, peer, file, 100);
	turn();
	close(fd);
	turn();
	assert(operations() == 32 && server->clients);
	while ((op = operation('g')))
		end(op, 0, 0, NULL, op->bytes);
	turn();
	assert(!server->clients);
	careful_peer_close(c, 0);
	close(memory);
}

/* Exports that block_use() reports. */
static struct careful_export_use told_exports[2];

static struct careful_ipc_use use_of(int fd, uint32_t exports)
{
	struct careful_ipc_use use;
	struct answer *a;

	ask(fd, (struct careful_ipc){ .op = CAREFUL_IPC_USE, .id = 8 }, NULL, 0);
	a = answered(fd, 8);
	memcpy(&use, a->payload, sizeof(use));
	assert(a->head.status == 0 && use.exports_count == exports);
	assert(a->head.payload_bytes == sizeof(use) + exports * sizeof(told_exports[0]));
	memcpy(told_exports, a->payload + sizeof(use), exports * sizeof(told_exports[0]));
	return use;
}

static int on_reload(const char *words, uint32_t bytes, struct careful_error *error, void *user)
{
	assert(bytes == 4 && !memcmp(words, "a\0b", 4));
	snprintf(error->text, sizeof(error->text), "%s", (const char *)user);
	return *error->text ? -EINVAL : 0;
}

/* Root's options are applied, and an error in them is returned; other users may not reload. */
static void test_reload__words_of_root(void)
{
	struct careful_ipc head = { .op = CAREFUL_IPC_RELOAD, .id = 8 };
	struct answer *a;
	int fd;

	user = 1000;
	fd = client();
	ask(fd, head, "a\0b", 4);
	assert(answered(fd, 8)->head.status == -EPERM);
	close(fd);
	user = 0;
	fd = client();
	ask(fd, head, "a\0b", 4);
	assert(answered(fd, 8)->head.status == -EOPNOTSUPP);
	ipc_set_reload(server, on_reload, (void *)(uintptr_t) "");
	ask(fd, head, "a\0b", 4);
	a = answered(fd, 8);
	assert(!a->head.status && !a->head.payload_bytes);
	ipc_set_reload(server, on_reload, (void *)(uintptr_t) "no b");
	ask(fd, head, "a\0b", 4);
	a = answered(fd, 8);
	assert(!a->head.status && a->head.payload_bytes == 4 && !memcmp(a->payload, "no b", 4));
	ipc_set_reload(server, NULL, NULL);
	close(fd);
	turn();
}

static uint64_t buckets_sum(const struct careful_latency *kind, uint32_t from)
{
	uint64_t sum = 0;

	for (uint32_t i = from; i < CAREFUL_IPC_BUCKETS; i++)
		sum += kind->buckets[i];
	return sum;
}

static void test_use__times_and_exports(void)
{
	int fd = client(), memory = memfd_create("f", MFD_CLOEXEC);
	uint32_t peer = connect_peer(fd, 0x0a000001), file = add_file(fd, memory);
	struct careful_ipc_use before = use_of(fd, 0), after;
	struct careful_ipc head = { .op = CAREFUL_IPC_REQUEST, .id = 10, .peer = peer };

	ask(fd, head, "x", 1);
	turn();
	end(operation('r'), -EIO, 0, NULL, 0);
	answered(fd, 10);
	head = (struct careful_ipc){
		.op = CAREFUL_IPC_GET, .id = 11, .peer = peer, .file = file, .bytes = 1
	};
	ask(fd, head, NULL, 0);
	turn();
	usleep(3000); /* buckets from 11 on count 2.1 ms and more */
	end(operation('g'), 0, 0, NULL, 0);
	answered(fd, 11);
	ipc_set_servers(server, (const void *)&before, NULL);
	after = use_of(fd, 2);
	assert(told_exports[0].requests == 7 && told_exports[0].denied == 2);
	assert(told_exports[1].read_bytes == 1ull << 40 && told_exports[1].written_bytes == 5);
	ipc_set_servers(server, NULL, NULL);
	assert(after.request.failed == before.request.failed + 1);
	assert(buckets_sum(&after.request, 0) == buckets_sum(&before.request, 0));
	assert(after.get.failed == before.get.failed);
	assert(buckets_sum(&after.get, 0) == buckets_sum(&before.get, 0) + 1);
	assert(buckets_sum(&after.get, 11) == buckets_sum(&before.get, 11) + 1);
	assert(after.get.sum_ns >= before.get.sum_ns + 3000000);
	close(fd);
	close(memory);
	turn();
	careful_peer_close(c, (uint32_t)ipc_peer_index(server, peer));
}

static void test_ping__results(void)
{
	int fd = client();
	struct careful_ipc head = { .op = CAREFUL_IPC_PING,
				    .id = 20,
				    .peer = connect_peer(fd, 0x0a000001),
				    .bytes = 1400,
				    .args = { CAREFUL_STAGE_STORE, 0, 500 } };
	struct careful_ping_result result = { .status = -ETIMEDOUT, .net_tx_ns = 7 };
	careful_ping_fn *done;
	struct answer *a;

	for (uint32_t i = 0; i < 2; i++) {
		head.id = 20 + i;
		head.bytes = 1400 + i;
		ask(fd, head, NULL, 0);
	}
	for (uint32_t i = 0; i < 2; i++) {
		turn();
		done = c->ping.done;
		assert(done && c->ping.ask.stage == CAREFUL_STAGE_STORE);
		assert(c->ping.ask.bytes == 1400 + i && c->ping.ask.timeout_ms == 500);
		c->ping.done = NULL;
		done(&result, c->ping.user);
		a = answered(fd, 20 + i);
		assert(a->head.status == -ETIMEDOUT);
		assert(a->head.payload_bytes == sizeof(result));
		assert(!memcmp(a->payload, &result, sizeof(result)));
	}
	head.args[2] = 1u << 30; /* above IPC_PING_MS */
	ask(fd, head, NULL, 0);
	assert(answered(fd, 21)->head.status == -EINVAL);
	head.peer = 3;
	ask(fd, head, NULL, 0);
	assert(answered(fd, 21)->head.status == -ENOTCONN);
	close(fd);
	turn();
}

/* A ping of a client that has gone does not delay another client's. */
static void test_ping__of_a_client_that_has_gone(void)
{
	int gone = client(), fd = client();
	struct careful_ipc head = { .op = CAREFUL_IPC_PING,
				    .id = 22,
				    .peer = connect_peer(fd, 0x0a000001),
				    .bytes = 1400,
				    .args = { CAREFUL_STAGE_NET_RX, 0, IPC_PING_MS } };
	struct careful_ping_result result = { .status = 0 };
	careful_ping_fn *done;

	ask(gone, head, NULL, 0);
	turn();
	head.bytes = 300;
	ask(fd, head, NULL, 0);
	turn();
	assert(c->ping.done && c->ping.ask.bytes == 1400);
	close(gone);
	turn();
	turn();
	assert(server->clients_count == 1);
	done = c->ping.done;
	assert(done && c->ping.ask.bytes == 300);
	c->ping.done = NULL;
	done(&result, c->ping.user);
	assert(answered(fd, 22)->head.status == 0);
	close(fd);
	turn();
	assert(!server->clients);
	careful_peer_close(c, 0);
}

/* BURST is answered when the measurement has begun or has failed. */
static void test_burst__begins_or_is_refused(void)
{
	int fd = client();
	struct careful_ipc head = { .op = CAREFUL_IPC_BURST, .id = 30 };
	uint32_t index;

	head.peer = connect_peer(fd, 0x0a000001);
	index = (uint32_t)ipc_peer_index(server, head.peer);
	ask(fd, head, NULL, 0);
	assert(answered(fd, 30)->head.status == 0);
	assert(c->measured[index] == 1);
	c->begin_errno = -EBUSY;
	ask(fd, head, NULL, 0);
	assert(answered(fd, 30)->head.status == -EBUSY);
	c->begin_errno = 0;
	head.peer = 3;
	ask(fd, head, NULL, 0);
	assert(answered(fd, 30)->head.status == -ENOTCONN);
	assert(c->measured[index] == 1);
	close(fd);
	turn();
}

/* Reports whether descriptors beyond a message's buffer stay open unnoticed, as under QEMU, which
 * reads with a buffer twice as long as the program's. */
static bool excess_stays_open(void)
{
	const int many[3] = { 0, 1, 2 };
	char control[CMSG_SPACE(sizeof(int))] __attribute__((aligned(8))); /* of two */
	char byte;
	struct iovec iov = { &byte, 1 };
	struct msghdr msg = { .msg_iov = &iov,
			      .msg_iovlen = 1,
			      .msg_control = control,
			      .msg_controllen = sizeof(control) };
	int pair[2], before, status;
	pid_t pid = fork();

	if (!pid) {
		assert(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
		before = open_fds();
		assert(send_raw(pair[0], "x", 1, many, 3) == 0);
		assert(recvmsg(pair[1], &msg, 0) == 1);
		_exit(open_fds() > before + 2);
	}
	assert(pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status));
	return WEXITSTATUS(status);
}

static void test_file__kinds(void)
{
	size_t most = excess_stays_open() ? 2 : 3;
	int fd = client(), before = open_fds(), null, pipes[2];
	struct careful_ipc head = { .version = CAREFUL_IPC_VERSION,
				    .op = CAREFUL_IPC_FILE_ADD,
				    .id = 1 };
	struct {
		int fd, status;
	} files[] = {
		{ open("/dev/null", O_RDWR | O_CLOEXEC), 0 },
		{ open("/proc/self/exe", O_RDONLY | O_CLOEXEC), 0 },
		{ open("/tmp", O_RDONLY | O_CLOEXEC), -ENOTSUP },
		{ open("/tmp", O_PATH | O_CLOEXEC), -EINVAL },
		{ memfd_create("append", MFD_CLOEXEC), -EINVAL },
		{ -1, -ENOTSUP },
	};
	int many[3] = { 0, 1, 2 };

	assert(pipe(pipes) == 0);
	files[5].fd = pipes[0];
	assert(fcntl(files[4].fd, F_SETFL, O_APPEND) == 0);
	for (int i = 0; i < 6; i++) {
		assert(send_raw(fd, &head, sizeof(head), &files[i].fd, 1) == 0);
		assert(answered(fd, 1)->head.status == files[i].status);
		close(files[i].fd);
	}
	close(pipes[1]);
	if (most < 3)
		printf("not tried: more descriptors than fit, since they stay open unnoticed here\n");
	/* Without a descriptor, with too many, and with one that the question does not take. */
	ask(fd, head, NULL, 0);
	assert(answered(fd, 1)->head.status == -EBADF);
	assert(open_fds() == before + 2);
	send_raw(fd, &head, sizeof(head), many, most);
	next_answer(fd);
	head.op = CAREFUL_IPC_INFO;
	send_raw(fd, &head, sizeof(head), many, most);
	assert(answered(fd, 1)->head.status == 0);
	send_raw(fd, "x", 1, many, most);
	assert(closed(fd));
	close(fd);
	turn();
	assert(open_fds() == before - 2 && !server->clients);
	/* The number of files is bounded. */
	fd = client();
	head.op = CAREFUL_IPC_FILE_ADD;
	null = open("/dev/null", O_RDONLY | O_CLOEXEC);
	for (uint32_t i = 0; i < CAREFUL_IPC_FILES; i++)
		add_file(fd, null);
	assert(send_raw(fd, &head, sizeof(head), &null, 1) == 0);
	assert(answered(fd, 1)->head.status == -EMFILE);
	close(null);
	close(fd);
	turn();
	assert(open_fds() == before - 2);
}

static struct answer *add_another(int fd, int file)
{
	const struct careful_ipc head = { .version = CAREFUL_IPC_VERSION,
					  .op = CAREFUL_IPC_INFO,
					  .id = 5 };

	assert(send_raw(fd, &head, sizeof(head), &file, 1) == 0);
	return next_answer(fd);
}

/* A file hangs in close(), as on FUSE: only its client waits. */
static void test_file__that_does_not_close(void)
{
	int fd = client(), other = client(), before = open_fds(), answers = 0;
	int file = memfd_create("hanging", MFD_CLOEXEC), null = open("/dev/null", O_RDONLY);
	struct careful_ipc remove = { .op = CAREFUL_IPC_FILE_REMOVE, .id = 3 };
	const struct careful_ipc info = { .op = CAREFUL_IPC_INFO, .id = 4 };
	struct stat st;

	assert(!fstat(file, &st));
	remove.file = add_file(fd, file);
	hanging = st.st_ino;
	ask(fd, remove, NULL, 0);
	assert(!next_answer(fd));
	for (int i = 0; i < 3; i++) {
		ask(other, info, NULL, 0);
		assert(!answered(other, 4)->head.status);
		ask(fd, info, NULL, 0);
		assert(!answered(fd, 4)->head.status);
	}
	/* Another client's file closes, in a thread of that client. */
	remove.file = add_file(other, null);
	ask(other, remove, NULL, 0);
	while (poll(&(struct pollfd){ .fd = other, .events = POLLIN }, 1, 0) == 0)
		turn();
	assert(!answered(other, 3)->head.status);
	/* The client can pass only this many hanging files; then its requests are not read. */
	while (add_another(fd, file))
		answers++;
	assert(answers == CAREFUL_IPC_FILES - 1 && server->clients_count == 2);
	assert(open_fds() == before + 2 + (int)CAREFUL_IPC_FILES);
	/* Its disconnection does not close them either. */
	syscall(SYS_close, fd);
	turn();
	assert(server->clients_count == 2);
	hanging = 0;
	for (uint32_t i = 0; i < 2 * CAREFUL_IPC_FILES; i++)
		sem_post(&may_close);
	turn();
	assert(server->clients_count == 1);
	close(file);
	close(null);
	close(other);
	turn();
	assert(!server->clients && open_fds() == before - 4);
}

static void test_packet__malformed(void)
{
	static unsigned char buf[sizeof(struct careful_ipc) + CAREFUL_IPC_PAYLOAD_BYTES + 1];
	struct careful_ipc head = { .version = CAREFUL_IPC_VERSION,
				    .op = CAREFUL_IPC_INFO,
				    .id = 8 };
	int fd;

	for (size_t n = 0; n < sizeof(head); n += 7) {
		fd = client();
		send_raw(fd, &head, n, NULL, 0);
		assert(closed(fd));
		close(fd);
	}
	memcpy(buf, &head, sizeof(head));
	fd = client();
	send_raw(fd, buf, sizeof(buf), NULL, 0); /* longer than any packet */
	assert(closed(fd));
	close(fd);
	fd = client();
	head.payload_bytes = CAREFUL_IPC_PAYLOAD_BYTES; /* the packet is cut to this */
	memcpy(buf, &head, sizeof(head));
	send_raw(fd, buf, sizeof(buf), NULL, 0);
	assert(closed(fd));
	close(fd);
	head.payload_bytes = 0;
	memcpy(buf, &head, sizeof(head));
	fd = client();
	send_raw(fd, buf, sizeof(head) + 5, NULL, 0); /* unannounced payload */
	assert(closed(fd));
	close(fd);
	fd = client();
	head.op = 77;
	ask(fd, head, NULL, 0);
	assert(answered(fd, 8)->head.status == -EOPNOTSUPP);
	close(fd);
	turn();
	assert(!server->clients && !server->poll_reasons);
}

/* Another release's header may have another size. */
static void test_packet__of_another_version_is_refused_with_a_reason(void)
{
	uint32_t packet[40] = { CAREFUL_IPC_VERSION + 1 };
	struct answer *a;

	for (size_t bytes = sizeof(packet[0]); bytes <= sizeof(packet);
	     bytes += sizeof(packet[0])) {
		int fd = client();

		send_raw(fd, packet, bytes, NULL, 0);
		a = next_answer(fd);
		assert(a && !a->head.id && a->head.status == -EPROTO);
		assert(closed(fd));
		close(fd);
	}
	turn();
	assert(!server->clients && !server->poll_reasons);
}

static void test_packet__random(void)
{
	uint64_t x = 88172645463325252ULL;

	for (int round = 0; round < 3000; round++) {
		unsigned char buf[sizeof(struct careful_ipc) + 64];
		struct careful_ipc *head = (struct careful_ipc *)buf;
		int fd = client();

		for (size_t i = 0; i < sizeof(buf); i++) {
			x ^= x << 13;
			x ^= x >> 7;
			x ^= x << 17;
			buf[i] = (unsigned char)x;
		}
		head->version = CAREFUL_IPC_VERSION;
		head->op = (uint32_t)x % 10;
		head->payload_bytes = 64;
		if (round % 2)
			head->peer = 0;
		send_raw(fd, buf, sizeof(buf), NULL, 0);
		next_answer(fd);
		for (struct fake_operation *op; (op = operation('r'));)
			end(op, 0, 0, NULL, 0);
		close(fd);
		turn();
	}
	for (uint32_t i = 0; i < FAKE_PEERS; i++)
		careful_peer_close(c, i);
}

static void test_client__left_with_work_under_way(void)
{
	int fd = client(), memory = memfd_create("f", MFD_CLOEXEC), before = open_fds();
	uint32_t peer = connect_peer(fd, 0x0a000001), file = add_file(fd, memory);
	struct careful_ipc head = {
		.op = CAREFUL_IPC_GET, .id = 1, .peer = peer, .file = file, .bytes = 9
	};
	struct fake_operation *get, *request;

	ask(fd, head, NULL, 0);
	ask(fd,
	    (struct careful_ipc){ .op = CAREFUL_IPC_REQUEST,
				  .id = 2,
				  .peer = peer,
				  .handler = CAREFUL_BLOCK_OPEN },
	    "open", 4);
	turn();
	close(fd);
	turn();
	get = operation('g');
	request = operation('r');
	assert(server->clients && get && request && fcntl(get->span.fd, F_GETFD) >= 0);
	end(get, 0, 0, NULL, 9);
	/* carefuld closes at the peer what the client opened, and repeats that if need be. */
	end(request, 0, 4711, NULL, 0);
	c->begin_errno = -EAGAIN;
	turn();
	assert(!operations() && server->clients);
	c->begin_errno = 0;
	turn();
	request = operation('r');
	assert(request && request->handler == CAREFUL_BLOCK_CLOSE && request->args[0] == 4711);
	end(request, 0, 0, NULL, 0);
	turn();
	assert(!server->clients && !server->poll_reasons && open_fds() == before - 1 - 1);
	careful_peer_close(c, 0);
	close(memory);
}

/* Sends a request to the block service, which ends with this status and key. */
static void ask_block(int fd, struct careful_ipc head, int status, uint32_t key)
{
	ask(fd, head, NULL, 0);
	turn();
	end(operation('r'), status, key, NULL, 0);
	next_answer(fd);
}

/* Returns carefuld's next CLOSE, which comes after a moment. */
static struct fake_operation *next_close(void)
{
	struct fake_operation *op;

	while (!(op = operation('r')))
		turn();
	assert(op->handler == CAREFUL_BLOCK_CLOSE);
	return op;
}

/* carefuld closes at the peer what the client had open, whichever answers an epoch loses: that of
 * the CLOSE, or that of an OPEN or BATCH of which only the attempt's name is known. */
static void test_client__left_and_answers_are_lost(void)
{
	int fd = client();
	struct careful_ipc head = {
		.op = CAREFUL_IPC_REQUEST,
		.peer = connect_peer(fd, 0x0a000001),
		.handler = CAREFUL_BLOCK_OPEN,
	};
	struct fake_operation *op;
	bool seen[2] = { false };

	ask_block(fd, head, 0, 4711);
	head.handler = CAREFUL_BLOCK_BATCH;
	head.args[2] = 0x12345678;
	head.args[3] = 0x9abcdef0;
	ask_block(fd, head, -ECONNRESET, 0);
	assert(server->clients->handles_count == 2);
	/* A repeated request gets its key. */
	ask_block(fd, head, 0, 4712);
	assert(server->clients->handles_count == 2);
	head.handler = CAREFUL_BLOCK_CLOSE;
	head.args[0] = 4712;
	head.args[2] = head.args[3] = 0;
	ask_block(fd, head, 0, 0);
	assert(server->clients->handles_count == 1);
	head.handler = CAREFUL_BLOCK_OPEN;
	head.args[0] = 0;
	head.args[2] = 0x12345678;
	head.args[3] = 0x9abcdef1;
	ask(fd, head, NULL, 0);
	turn();
	assert(operation('r')->handler == CAREFUL_BLOCK_OPEN);
	close(fd);
	turn();
	for (int i = 0; i < 2; i++) { /* both, whichever is first */
		turn();
		for (int k = 0; k < 512; k++) {
			op = &c->operations[k];
			if (op->kind != 'r')
				continue;
			assert(op->handler == CAREFUL_BLOCK_CLOSE);
			seen[!op->args[0]] = true;
			assert(op->args[0] == 4711 ||
			       (op->args[2] == 0x12345678 && op->args[3] == 0x9abcdef1));
			end(op, i ? -EAGAIN : -ECONNRESET, 0, NULL, 0);
		}
		assert(seen[0] && seen[1]);
		seen[0] = seen[1] = false;
		assert(server->clients && server->clients->handles_count == 2);
		next_close();
	}
	while (server->clients) {
		end(next_close(), 0, 0, NULL, 0);
		turn();
	}
	careful_peer_close(c, 0);
}

static void test_client__closes_its_handles_itself(void)
{
	int fd = client();
	struct careful_ipc head = { .op = CAREFUL_IPC_REQUEST,
				    .peer = connect_peer(fd, 0x0a000001) };

	for (uint32_t key = 1; key <= 5; key++) {
		head.handler = key % 2 ? CAREFUL_BLOCK_OPEN : CAREFUL_BLOCK_LIST;
		ask_block(fd, head, 0, key);
	}
	head.handler = CAREFUL_BLOCK_OPEN;
	ask_block(fd, head, -ENOENT, 0);
	assert(server->clients->handles_count == 5);
	for (uint32_t key = 1; key <= 4; key++) {
		head.handler = key % 2 ? CAREFUL_BLOCK_CLOSE : CAREFUL_BLOCK_COMMIT;
		head.args[0] = key;
		ask_block(fd, head, key == 4 ? -ECONNRESET : 0, 0);
	}
	/* 5 is open; whether 4 is open is unknown. */
	assert(server->clients->handles_count == 2);
	close(fd);
	turn();
	assert(operations() == 2);
	for (struct fake_operation *op; (op = operation('r'));)
		end(op, 0, 0, NULL, 0);
	turn();
	assert(!server->clients);
	careful_peer_close(c, 0);
}

/* The room that ipc_handles_room() grants: the test may be run by any user. */
#define HANDLES (getuid() ? (uint32_t)IPC_HANDLES_USER : (uint32_t)IPC_HANDLES_ROOT)

static void ask_open(int fd, struct careful_ipc head, uint32_t attempt)
{
	head.id = attempt;
	head.handler = CAREFUL_BLOCK_OPEN;
	head.args[3] = attempt;
	ask(fd, head, NULL, 0);
	turn();
}

/* An OPEN can wait at the peer until its own client closes something. So a flood of OPENs delays no
 * CLOSE, and no OPEN outlives its client. */
static void test_client__floods_with_opens(void)
{
	int fd = client(), memory = memfd_create("f", MFD_CLOEXEC);
	struct careful_ipc head = { .op = CAREFUL_IPC_REQUEST,
				    .peer = connect_peer(fd, 0x0a000001) };
	struct careful_ipc get = {
		.op = CAREFUL_IPC_GET, .id = 1, .peer = head.peer, .file = add_file(fd, memory)
	};
	struct careful_ipc closing = head;
	struct fake_operation *op;
	uint32_t i, key;

	for (i = 1; i <= HANDLES; i++)
		ask_open(fd, head, i);
	assert((uint32_t)operations() == HANDLES && !server->clients->parked);
	ask_open(fd, head, i);
	assert(next_answer(fd)->head.status == -EMFILE);
	/* Two are opened: they count, and can be closed, which makes room for one more. */
	for (key = 1; key <= 2; key++) {
		end(operation('r'), 0, key, NULL, 0);
		assert(next_answer(fd)->head.status == 0);
	}
	ask_open(fd, head, i);
	assert(next_answer(fd)->head.status == -EMFILE);
	closing.handler = CAREFUL_BLOCK_CLOSE;
	closing.args[0] = 2;
	ask(fd, closing, NULL, 0);
	turn();
	for (i = 0; i < 512 && c->operations[i].handler != CAREFUL_BLOCK_CLOSE; i++)
		;
	assert(i < 512);
	end(&c->operations[i], 0, 0, NULL, 0);
	assert(next_answer(fd)->head.status == 0);
	ask_open(fd, head, HANDLES + 1);
	assert((uint32_t)operations() == HANDLES - 1);
	ask(fd, get, NULL, 0);
	turn();
	close(fd);
	turn();
	/* The GET continues. A finished OPEN is closed by its key, others by their attempt's name. */
	assert((uint32_t)operations() == HANDLES + 1);
	for (i = 0; (op = operation('r')); i++) {
		assert(op->handler == CAREFUL_BLOCK_CLOSE);
		assert(op->args[0] ? op->args[0] == 1 : op->args[3] > 2);
		end(op, 0, 0, NULL, 0);
	}
	assert(i == HANDLES && server->clients);
	turn();
	end(operation('g'), 0, 0, NULL, 0);
	turn();
	assert(!server->clients && !server->poll_reasons);
	careful_peer_close(c, 0);
	close(memory);
}

/* Answers to OPENs are lost. Each OPEN may have a handle at the peer, so it counts. A repeated OPEN
 * gets that handle, so no limit refuses it. */
static void test_client__repeats_lost_opens(void)
{
	int fd = client();
	struct careful_ipc head = { .op = CAREFUL_IPC_REQUEST,
				    .peer = connect_peer(fd, 0x0a000001) };
	struct fake_operation *op;
	uint32_t i;

	for (i = 1; i <= HANDLES; i++)
		ask_open(fd, head, i);
	while ((op = operation('r'))) {
		end(op, -ECONNRESET, 0, NULL, 0);
		assert(next_answer(fd)->head.status == -ECONNRESET);
	}
	ask_open(fd, head, i);
	assert(next_answer(fd)->head.status == -EMFILE && !operations());
	for (i = 1; i <= HANDLES; i++)
		ask_open(fd, head, i);
	assert((uint32_t)operations() == HANDLES);
	/* EAGAIN of the peer says nothing about the handle. */
	end(operation('r'), -EAGAIN, 0, NULL, 0);
	assert(next_answer(fd)->head.status == -EAGAIN);
	ask_open(fd, head, 1);
	assert((uint32_t)operations() == HANDLES);
	/* Under the same name, something else could have a handle of its own. */
	head.handler = CAREFUL_BLOCK_LIST;
	head.args[3] = 1;
	ask(fd, head, NULL, 0);
	turn();
	assert(next_answer(fd)->head.status == -EINVAL);
	for (i = 1; (op = operation('r')); i++)
		end(op, 0, i, NULL, 0);
	while (next_answer(fd))
		;
	assert(server->clients->handles_count == HANDLES);
	ipc_peer_changed(server, 0, CAREFUL_PEER_FAILED);
	careful_peer_close(c, 0);
	close(fd);
	turn();
	assert(!server->clients && !server->poll_reasons);
}

/* A peer that answers no CLOSE does not keep the place of a client that has gone. */
static void test_client__left_and_the_peer_is_silent(void)
{
	int fd = client();
	struct careful_ipc head = { .op = CAREFUL_IPC_REQUEST,
				    .peer = connect_peer(fd, 0x0a000001),
				    .handler = CAREFUL_BLOCK_OPEN };

	ask_block(fd, head, 0, 4711);
	close(fd);
	turn();
	assert(operations() == 1 && server->clients);
	server->clients->leave_ns = 0;
	turn();
	turn();
	assert(!operations() && !server->clients && !server->poll_reasons);
	careful_peer_close(c, 0);
}

/* The handles at a peer end with the session: the client may open as many in the next one. */
static void test_client__handles_end_with_the_session(void)
{
	int fd = client();
	struct careful_ipc head = { .op = CAREFUL_IPC_REQUEST,
				    .peer = connect_peer(fd, 0x0a000001),
				    .handler = CAREFUL_BLOCK_OPEN };

	for (uint32_t key = 1; key <= HANDLES; key++)
		ask_block(fd, head, 0, key);
	assert(ipc_handles_room(server->clients, head.peer) == -EMFILE);
	ipc_peer_changed(server, 0, CAREFUL_PEER_FAILED);
	assert(!server->clients->handles_count);
	ask_block(fd, head, 0, 1);
	ipc_peer_changed(server, 0, CAREFUL_PEER_FAILED);
	careful_peer_close(c, 0);
	close(fd);
	turn();
	assert(!server->clients);
}

/* A request that waits over the end of a session may open a handle in the next one. */
static void test_client__left_with_a_request_of_the_last_session(void)
{
	int fd = client();
	struct careful_ipc head = { .op = CAREFUL_IPC_REQUEST,
				    .peer = connect_peer(fd, 0x0a000001) };
	struct fake_operation *op;

	ask_open(fd, head, 7);
	ipc_peer_changed(server, 0, CAREFUL_PEER_FAILED);
	close(fd);
	turn();
	op = next_close();
	assert(op->args[3] == 7);
	end(op, 0, 0, NULL, 0);
	turn();
	assert(!server->clients && !server->poll_reasons);
	careful_peer_close(c, 0);
}

static void test_client__asks_too_many_questions(void)
{
	int fd = client(), sent = 0;
	struct careful_ipc head = { .op = CAREFUL_IPC_FILE_REMOVE,
				    .peer = connect_peer(fd, 0x0a000001) };
	unsigned int begun = 0;

	/* Requests with large answers: only as many begin as can be kept. */
	head.op = CAREFUL_IPC_REQUEST;
	while (ask(fd, head, "x", 1) == 0 && sent < 400) {
		head.id = (uint64_t)++sent;
		turn();
	}
	begun = (unsigned int)operations();
	assert(begun == IPC_ANSWER_BYTES / 3700 && server->clients->parked);
	/* Each answer lets another request begin; in the end all are answered, here in order. */
	for (int i = 0; i < sent; i++) {
		struct fake_operation *op = operation('r');

		assert(op);
		end(op, 0, 0, NULL, 0);
		assert(next_answer(fd));
		turn();
	}
	assert(!operations() && !server->clients->parked && !server->poll_reasons);

	/* The engine has no room for now. */
	c->begin_errno = -EAGAIN;
	ask(fd, head, "again", 5);
	turn();
	assert(server->clients->parked && !next_answer(fd));
	c->begin_errno = 0;
	turn();
	assert(operation('r') && operation('r')->payload_bytes == 5);
	end(operation('r'), 0, 0, NULL, 0);
	assert(next_answer(fd));
	careful_peer_close(c, 0);
	close(fd);
	turn();
}

static void test_client__does_not_read(void)
{
	static unsigned char large[3700];
	int fd = client(), other, sent = 0, answers = 0;
	struct careful_ipc head = { .op = CAREFUL_IPC_REQUEST,
				    .peer = connect_peer(fd, 0x0a000001) };

	for (int i = 0; i < 1000; i++) {
		sent += ask(fd, head, "x", 1) == 0;
		turn();
		for (struct fake_operation *op; (op = operation('r'));)
			end(op, 0, 0, large, sizeof(large));
	}
	/* Its requests stay in its own socket; the answers that wait for it are bounded. */
	assert(sent < 1000 && server->clients->answers);
	assert(server->clients->reserved <= IPC_ANSWER_BYTES);
	/* Others are served. */
	other = client();
	ask(other, (struct careful_ipc){ .op = CAREFUL_IPC_INFO, .id = 1 }, NULL, 0);
	assert(answered(other, 1)->head.status == 0);
	close(other);
	/* The client reads at last, and gets all answers. */
	for (struct answer *a; (a = next_answer(fd)); answers++) {
		assert(a->head.payload_bytes == sizeof(large));
		for (struct fake_operation *op; (op = operation('r'));)
			end(op, 0, 0, large, sizeof(large));
	}
	assert(answers == sent);
	/* A client leaves while answers wait. */
	while (!server->clients->answers) {
		ask(fd, head, "x", 1);
		turn();
		for (struct fake_operation *op; (op = operation('r'));)
			end(op, 0, 0, large, sizeof(large));
	}
	close(fd);
	turn();
	for (struct fake_operation *op; (op = operation('r'));)
		end(op, 0, 0, large, sizeof(large));
	turn();
	assert(!server->clients && !server->poll_reasons);
	careful_peer_close(c, 0);
}

static struct careful_ipc measure_of(uint32_t peer, uint32_t frames, uint32_t flags)
{
	return (struct careful_ipc){ .op = CAREFUL_IPC_MEASURE,
				     .id = 40,
				     .peer = peer,
				     .bytes = 1000,
				     .flags = flags,
				     .args = { frames } };
}

static const struct careful_ipc_probe *probes_of(const struct answer *a, uint32_t count)
{
	assert(!a->head.status);
	assert(a->head.payload_bytes == count * sizeof(struct careful_ipc_probe));
	return (const struct careful_ipc_probe *)a->payload;
}

static void test_measure__train_has_one_answer(void)
{
	const __be64 stamps[4] = { htobe64(1ULL << 40), htobe64(7), htobe64(8), htobe64(9) };
	int fd = client(), other = client();
	uint32_t peer = connect_peer(fd, 0x0a000001), before = c->unanswered;
	const struct careful_ipc_probe *probes;
	struct fake_operation *last;

	ask(fd, measure_of(peer, 4, CAREFUL_IPC_TRAIN), NULL, 0);
	assert(!next_answer(fd) && c->unanswered == before + 3 && operations() == 1);
	last = operation('r');
	assert(last->handler == CAREFUL_PROBE && last->args[0] && last->args[1] == 3);
	assert(last->payload_bytes == 1000 && ipc_timeout_ms(server) > 1000);
	/* The same client's next measurement waits for this one; another client's does not. */
	ask(fd, measure_of(peer, 1, 0), NULL, 0);
	assert(!next_answer(fd) && operations() == 1);
	ask(other, measure_of(peer, 1, 0), NULL, 0);
	turn();
	assert(operations() == 2);
	for (int i = 0; i < 512; i++)
		if (c->operations[i].kind && &c->operations[i] != last)
			end(&c->operations[i], 0, 0, NULL, 0);
	probes_of(answered(other, 40), 1);
	end(last, 0, 0, stamps, sizeof(stamps));
	probes = probes_of(answered(fd, 40), 4);
	assert(probes[0].arrived_ns == 1ULL << 40 && probes[3].arrived_ns == 9);
	for (int i = 0; i < 3; i++)
		assert(probes[i].sent_ns <= probes[i + 1].sent_ns && !probes[i].back_ns);
	assert(probes[3].back_ns >= probes[3].sent_ns);
	assert(operations() == 1);
	end(operation('r'), 0, 0, NULL, 0);
	probes_of(answered(fd, 40), 1);
	/* An older peer answers without arrival times. */
	ask(fd, measure_of(peer, 4, CAREFUL_IPC_TRAIN), NULL, 0);
	turn();
	end(operation('r'), 0, 0, NULL, 0);
	assert(answered(fd, 40)->head.status == -EPROTO);
	close(other);
	close(fd);
	turn();
	careful_peer_close(c, 0);
}

static void test_measure__round_trips_one_by_one(void)
{
	int fd = client();
	uint32_t peer = connect_peer(fd, 0x0a000001);
	const struct careful_ipc_probe *probes;

	ask(fd, measure_of(peer, 3, 0), NULL, 0);
	for (int i = 0; i < 3; i++) {
		turn();
		assert(operations() == 1 && operation('r')->args[0] == 0);
		end(operation('r'), 0, (uint32_t)i, NULL, 0);
	}
	probes = probes_of(answered(fd, 40), 3);
	for (int i = 0; i < 3; i++)
		assert(probes[i].arrived_ns >> 32 == (uint64_t)i &&
		       probes[i].back_ns >= probes[i].sent_ns);
	/* A failure ends the measurement; no more probes are sent. */
	ask(fd, measure_of(peer, 3, 0), NULL, 0);
	turn();
	end(operation('r'), -ECONNRESET, 0, NULL, 0);
	assert(answered(fd, 40)->head.status == -ECONNRESET && !operations());
	close(fd);
	turn();
	careful_peer_close(c, 0);
}

static void test_measure__refused_or_put_off(void)
{
	int fd = client();
	uint32_t peer = connect_peer(fd, 0x0a000001);
	struct careful_ipc head = measure_of(peer, 0, 0);

	ask(fd, head, NULL, 0);
	assert(answered(fd, 40)->head.status == -EINVAL);
	ask(fd, measure_of(peer, CAREFUL_PROBE_FRAMES + 1, 0), NULL, 0);
	assert(answered(fd, 40)->head.status == -EINVAL);
	ask(fd, measure_of(peer, 1, 2), NULL, 0);
	assert(answered(fd, 40)->head.status == -EINVAL);
	ask(fd, measure_of(peer + 1, 1, 0), NULL, 0);
	assert(answered(fd, 40)->head.status == -ENOTCONN);
	head = measure_of(peer, 1, 0);
	head.bytes = 3701;
	ask(fd, head, NULL, 0);
	assert(answered(fd, 40)->head.status == -EMSGSIZE);
	c->payload_bytes = 8 * 100 - 1;
	head = measure_of(peer, 100, CAREFUL_IPC_TRAIN);
	head.bytes = 8;
	ask(fd, head, NULL, 0);
	assert(answered(fd, 40)->head.status == -EMSGSIZE && !operations());
	c->payload_bytes = 3700;
	/* If the engine has no room, the probe is sent later. */
	c->begin_errno = -EAGAIN;
	ask(fd, measure_of(peer, 2, CAREFUL_IPC_TRAIN), NULL, 0);
	assert(!next_answer(fd) && !operations() && ipc_timeout_ms(server) == 0);
	c->begin_errno = 0;
	turn();
	assert(operations() == 1);
	/* The measurement ends with its client; no probe begins. */
	close(fd);
	turn();
	turn();
	assert(!server->measures && !server->clients && !operations());
	careful_peer_close(c, 0);
}

/* A peer that answers nothing ends the measurement, and the client is told why. */
static void test_measure__of_a_silent_peer_ends(void)
{
	int fd = client();
	uint32_t peer = connect_peer(fd, 0x0a000001);

	ask(fd, measure_of(peer, 3, 0), NULL, 0);
	turn();
	assert(operations() == 1);
	server->clients->measure->until_ns = 0;
	assert(!ipc_timeout_ms(server));
	assert(answered(fd, 40)->head.status == -ETIMEDOUT);
	assert(!server->measures && !operations());
	close(fd);
	turn();
	careful_peer_close(c, 0);
}

/* Connects as a user until a connection is turned away; returns how many were served. */
static uint32_t connect_all(uid_t uid, int *fds)
{
	uint32_t n = 0;

	user = uid;
	for (; n <= IPC_CLIENTS; n++) {
		struct answer *a;

		fds[n] = client();
		a = next_answer(fds[n]);
		if (!a)
			continue;
		assert(a->head.status == -EUSERS && a->head.args[1] == !!uid);
		assert(!uid || a->head.args[0] == n);
		close(fds[n]);
		break;
	}
	user = 0;
	return n;
}

static void test_clients__one_user_cannot_use_all_places(void)
{
	static const uid_t users[] = { 1000, 1001, 1002, 0 };
	int fds[4][IPC_CLIENTS + 1];
	uint32_t n[4], all = 0;

	for (int i = 0; i < 4; i++) {
		n[i] = connect_all(users[i], fds[i]);
		all += n[i];
		assert(n[i]);
	}
	assert(n[0] > IPC_CLIENTS / 2 && n[3] >= 4 && all == IPC_CLIENTS);
	for (int i = 0; i < 4; i++)
		for (uint32_t k = 0; k < n[i]; k++)
			close(fds[i][k]);
	turn();
	assert(!server->clients);
}

static uint32_t begin_peer(int fd, uint32_t host, uint32_t op, uint64_t id)
{
	struct sockaddr_storage sa = { .ss_family = AF_INET };
	struct careful_ipc head = { .op = op, .id = id, .bytes = 60000 };

	((struct sockaddr_in *)(void *)&sa)->sin_addr.s_addr = htobe32(host);
	return (uint32_t)ask(fd, head, &sa, sizeof(sa));
}

/* Handshakes of one user get no answer. Half of the places stay free; another user and root find
 * some, and need not yield. */
static void test_handshakes__without_an_answer_yield(void)
{
	uint32_t used = 0;
	int member, other, root;

	user = 1000;
	member = client();
	user = 1001;
	other = client();
	user = 0;
	root = client();
	begin_peer(member, 1, CAREFUL_IPC_CONNECT, 1);
	assert(!next_answer(member));
	for (uint32_t host = 2; host <= FAKE_PEERS; host++) {
		begin_peer(member, host, CAREFUL_IPC_PEER_BEGIN, host);
		turn();
		if (host <= FAKE_PEERS / 2)
			assert(!answered(member, host)->head.status);
	}
	for (uint32_t i = 0; i < FAKE_PEERS; i++)
		used += c->peers[i].state != CAREFUL_PEER_NONE;
	assert(used == FAKE_PEERS / 2);
	/* The oldest attempt yields to another user's, and its CONNECT gets an error. */
	begin_peer(other, 11, CAREFUL_IPC_PEER_BEGIN, 11);
	assert(!answered(other, 11)->head.status);
	assert(answered(member, 1)->head.status == -EADDRINUSE);
	/* All places are taken; root's request gets one nevertheless. */
	for (uint32_t i = 0; i < FAKE_PEERS; i++)
		if (c->peers[i].state == CAREFUL_PEER_NONE)
			c->peers[i].state = CAREFUL_PEER_UP;
	begin_peer(root, 21, CAREFUL_IPC_PEER_BEGIN, 21);
	assert(!answered(root, 21)->head.status);
	begin_peer(root, 22, CAREFUL_IPC_PEER_BEGIN, 22);
	assert(!answered(root, 22)->head.status);
	begin_peer(root, 23, CAREFUL_IPC_PEER_BEGIN, 23);
	assert(answered(root, 23)->head.status == -EADDRINUSE);
	close(member);
	close(other);
	close(root);
	for (uint32_t i = 0; i < FAKE_PEERS; i++)
		careful_peer_close(c, i);
	turn();
	assert(!server->clients);
}

/* SIGNATURE delays all traffic, and TRIAL_LOCK acts for the whole host. */
static void test_user__may_not_disturb_the_host(void)
{
	struct careful_ipc lock = { .op = CAREFUL_IPC_REQUEST, .handler = CAREFUL_TRIAL_LOCK };
	struct careful_ipc signature = { .op = CAREFUL_IPC_SIGNATURE, .id = 4 };
	const struct careful_signature s = { .kind = CAREFUL_IPC_REQUEST };
	struct careful_ipc burst = { .op = CAREFUL_IPC_BURST };
	uint32_t before = operations(), *measured, times;
	int fd;

	user = 1000;
	fd = client();
	user = 0;
	lock.peer = connect_peer(fd, 0x0a000001);
	lock.id = 3;
	ask(fd, lock, NULL, 0);
	assert(answered(fd, 3)->head.status == -EPERM);
	ask(fd, signature, &s, sizeof(s));
	assert(answered(fd, 4)->head.status == -EPERM);
	assert((uint32_t)operations() == before);
	burst.peer = lock.peer;
	measured = &c->measured[ipc_peer_index(server, burst.peer)];
	times = *measured;
	memset(server->bursts_ns, 0, sizeof(server->bursts_ns));
	for (burst.id = 5; burst.id < 8; burst.id++) {
		ask(fd, burst, NULL, 0);
		assert(answered(fd, burst.id)->head.status == (burst.id == 5 ? 0 : -EALREADY));
	}
	assert(*measured == times + 1); /* everybody's data waits for its end */
	careful_peer_close(c, (uint32_t)ipc_peer_index(server, lock.peer));
	close(fd);
	turn();
	assert(!server->clients);
}

/* Sends an OPEN. Reports whether the peer got it and opens the file. */
static bool opens_file(int fd, uint32_t peer, uint32_t key, uint32_t flags)
{
	const struct careful_ipc head = {
		.op = CAREFUL_IPC_REQUEST,
		.id = key,
		.peer = peer,
		.handler = CAREFUL_BLOCK_OPEN,
	};
	const struct careful_block_open open = { .flags = htobe32(flags) };
	struct fake_operation *op;

	ask(fd, head, &open, sizeof(open));
	turn();
	op = operation('r');
	if (!op)
		return false;
	end(op, 0, key, NULL, 0);
	assert(!answered(fd, key)->head.status);
	return true;
}

/* One user opens as many files as allowed, by two clients. Another user and root can still open
 * some. An OPEN that may wait does so until the user closes one; it is forgotten with its
 * client. */
static void test_handles__one_user_cannot_use_all(void)
{
	int fds[2], other, root;
	uint32_t peer, n = 0;

	user = 1000;
	fds[0] = client();
	fds[1] = client();
	user = 1001;
	other = client();
	user = 0;
	root = client();
	peer = connect_peer(root, 0x0a000001);
	while (opens_file(fds[n % 2], peer, n + 1, 0))
		n++;
	assert(n > BLOCK_HANDLES / 2 && n < BLOCK_HANDLES * 3 / 4);
	assert(answered(fds[n % 2], n + 1)->head.status == -EMFILE);
	assert(opens_file(other, peer, 2000, 0) && opens_file(root, peer, 3000, 0));
	assert(!opens_file(fds[0], peer, 4000, CAREFUL_BLOCK_WAIT) && !next_answer(fds[0]));
	assert(!opens_file(fds[1], peer, 4001, CAREFUL_BLOCK_WAIT) && !next_answer(fds[1]));
	close(fds[1]);
	turn();
	while (server->clients_count > 3 || operation('r')) {
		struct fake_operation *op = operation('r');

		if (op)
			end(op, 0, op->handler == CAREFUL_BLOCK_OPEN ? 5000 : 0, NULL, 0);
		turn();
	}
	assert(!answered(fds[0], 4000)->head.status);
	close(fds[0]);
	close(other);
	close(root);
	while (server->clients) {
		turn();
		if (operation('r'))
			end(operation('r'), 0, 0, NULL, 0);
	}
	careful_peer_close(c, (uint32_t)ipc_peer_index(server, peer));
}

static void ask_waiting(int fd, uint32_t peer, uint32_t id)
{
	const struct careful_ipc head = {
		.op = CAREFUL_IPC_REQUEST, .id = id, .peer = peer, .handler = CAREFUL_BLOCK_OPEN
	};
	const struct careful_block_open open = { .flags = htobe32(CAREFUL_BLOCK_WAIT) };

	ask(fd, head, &open, sizeof(open));
}

/* Two clients of a user wait for handles. Each closed handle goes to the two in turn, though one
 * client closes all of them. An OPEN that was just asked does not overtake those that wait. */
static void test_handles__clients_take_turns(void)
{
	enum { WAITING = 6, FIRST = 10000 };
	uint32_t peer, n = 0, key;
	int fds[2];

	user = 1000;
	fds[0] = client();
	fds[1] = client();
	user = 0;
	peer = connect_peer(fds[0], 0x0a000001);
	while (opens_file(fds[n % 2], peer, n + 1, 0))
		n++;
	assert(answered(fds[n % 2], n + 1)->head.status == -EMFILE);
	for (uint32_t i = 0; i < 2 * WAITING; i++)
		ask_waiting(fds[i / WAITING], peer, FIRST + i);
	turn();
	assert(!operations());
	for (uint32_t i = 0, last = 0; i < 2 * WAITING; i++) {
		struct careful_ipc head = { .op = CAREFUL_IPC_REQUEST,
					    .id = 1,
					    .peer = peer,
					    .handler = CAREFUL_BLOCK_CLOSE,
					    .args = { 2 * i + 1 } };
		struct fake_operation *op;
		const struct ipc_op *of;
		uint32_t who;

		ask(fds[0], head, NULL, 0);
		turn();
		end(operation('r'), 0, 0, NULL, 0);
		/* carefuld reads this OPEN before it serves those that wait. */
		if (i < WAITING)
			ask_waiting(fds[0], peer, FIRST + 1000 + i);
		assert(answered(fds[0], 1)->head.status == 0);
		op = operation('r');
		assert(op && operations() == 1);
		of = op->user;
		key = (uint32_t)of->id;
		who = key >= FIRST + WAITING && key < FIRST + 2 * WAITING;
		assert(!i || who != last);
		last = who;
		end(op, 0, key, NULL, 0);
		assert(answered(fds[who], key)->head.status == 0);
	}
	close(fds[0]);
	close(fds[1]);
	while (server->clients) {
		turn();
		if (operation('r'))
			end(operation('r'), 0, 0, NULL, 0);
	}
	careful_peer_close(c, (uint32_t)ipc_peer_index(server, peer));
}

/* Ends the stores and counts them for the client that asked. */
static void count_turns(const int *fds, uint32_t *turns, uint32_t clients)
{
	struct fake_operation *op;
	struct careful_ipc head;

	while ((op = operation('s'))) {
		const struct ipc_op *of = op->user;
		const uint64_t id = of->id;

		for (uint32_t i = 0; i < clients; i++)
			turns[i] += id / 1000 == i;
		end(op, 0, 0, NULL, 0);
		assert(recv(fds[id / 1000], &head, sizeof(head), MSG_DONTWAIT) == sizeof(head));
		assert(head.id == id && !head.status);
	}
}

static void ask_stores(int fd, struct careful_ipc head, uint64_t id, uint32_t count)
{
	head.op = CAREFUL_IPC_STORE;
	for (uint32_t i = 0; i < count; i++) {
		head.id = id + i;
		assert(ask(fd, head, NULL, 0) == 0);
	}
	turn();
}

/* Clients ask for more stores than have room. Each freed place goes to the client that has waited
 * longest, not again to the one that was just served, however many places are free at a time. */
static void test_clients__take_turns(void)
{
	enum { CLIENTS = 3, STORES = 40 };
	const int memory = memfd_create("f", MFD_CLOEXEC);
	struct careful_ipc heads[CLIENTS];
	uint32_t peer = 0, turns[CLIENTS], most, least;
	int fds[CLIENTS];

	for (uint32_t i = 0; i < CLIENTS; i++) {
		fds[i] = client();
		peer = i ? peer : connect_peer(fds[i], 0x0a000001);
		heads[i] = (struct careful_ipc){ .peer = peer, .file = add_file(fds[i], memory) };
	}
	for (uint32_t room = 1; room <= 5; room++) {
		memset(turns, 0, sizeof(turns));
		c->begin_errno = -EAGAIN;
		for (uint32_t i = 0; i < CLIENTS; i++)
			ask_stores(fds[i], heads[i], i * 1000ull, STORES);
		assert(!operations());
		for (uint32_t given = 0; given < (CLIENTS - 1) * STORES; given += room) {
			c->room = room;
			loop_once();
			count_turns(fds, turns, CLIENTS);
			most = least = turns[0];
			for (uint32_t i = 1; i < CLIENTS; i++) {
				most = turns[i] > most ? turns[i] : most;
				least = turns[i] < least ? turns[i] : least;
			}
			assert(most - least <= room);
		}
		c->room = 0;
		c->begin_errno = 0;
		for (uint32_t i = 0; i < CLIENTS; i++) {
			turn();
			count_turns(fds, turns, CLIENTS);
		}
		assert(turns[0] == STORES && turns[1] == STORES && turns[2] == STORES);
	}
	for (uint32_t i = 0; i < CLIENTS; i++)
		close(fds[i]);
	close(memory);
	turn();
	careful_peer_close(c, (uint32_t)ipc_peer_index(server, peer));
	assert(!server->clients);
}

/* A question for another peer, or for other room, does not wait for those that found no room. */
static void test_clients__wait_only_for_the_same_room(void)
{
	const int fds[2] = { client(), client() }, memory = memfd_create("f", MFD_CLOEXEC);
	const uint32_t peers[2] = { connect_peer(fds[0], 0x0a000001),
				    connect_peer(fds[1], 0x0a000002) };
	struct careful_ipc head = { .peer = peers[0], .file = add_file(fds[0], memory) };

	c->begin_errno = -EAGAIN;
	ask_stores(fds[0], head, 1, 2);
	assert(server->poll_reasons == 1);
	head.file = add_file(fds[1], memory);
	head.op = CAREFUL_IPC_STORE;
	assert(must_wait(server, &head));
	head.op = CAREFUL_IPC_INFO;
	assert(!must_wait(server, &head));
	head.op = CAREFUL_IPC_GET;
	assert(!must_wait(server, &head));
	head.op = CAREFUL_IPC_STORE;
	head.peer = peers[1];
	assert(!must_wait(server, &head));
	c->begin_errno = 0;
	turn();
	for (uint64_t id = 1; id <= 2; id++) {
		end(operation('s'), 0, 0, NULL, 0);
		answered(fds[0], id);
	}
	assert(!server->poll_reasons);
	for (int i = 0; i < 2; i++) {
		careful_peer_close(c, (uint32_t)ipc_peer_index(server, peers[i]));
		close(fds[i]);
	}
	close(memory);
	turn();
}

static void test_clients__too_many(void)
{
	int fds[IPC_CLIENTS], fd;
	struct answer *a;

	for (int i = 0; i < IPC_CLIENTS; i++)
		fds[i] = client();
	fd = client();
	a = next_answer(fd);
	assert(a && a->head.status == -EUSERS && closed(fd));
	close(fd);
	for (int i = 0; i < IPC_CLIENTS; i++)
		close(fds[i]);
	turn();
	assert(!server->clients && !server->clients_count);
}

/* Twice as many clients as there are places connect again and again. A connected client is answered
 * all the while, and others once these have gone. */
static void test_clients__ten_thousand_delay_no_other(void)
{
	enum { CONNECTIONS = 10000, OPEN = 2 * IPC_CLIENTS };
	int fds[OPEN], first = client();

	for (int i = 0; i < CONNECTIONS; i++) {
		if (i >= OPEN)
			close(fds[i % OPEN]);
		fds[i % OPEN] = client();
		if (i % 10)
			continue;
		ask(first, (struct careful_ipc){ .op = CAREFUL_IPC_INFO, .id = 6 }, NULL, 0);
		assert(!answered(first, 6)->head.status);
	}
	for (int i = 0; i < OPEN; i++)
		close(fds[i]);
	turn();
	assert(server->clients_count == 1);
	close(first);
	turn();
	assert(!server->clients && !server->clients_count);
}

static struct careful_signature signature_to(uint32_t peer, uint32_t kind)
{
	return (struct careful_signature){
		.kind = kind,
		.bytes = 16,
		.bursts = 2,
		.capacity = 4,
		.peers_count = 1,
		.peers = { peer },
		.marks_count = 3,
		.marks = { 1, 2, 9 },
	};
}

static int sign(int fd, const struct careful_signature *s, struct answer **a)
{
	ask(fd, (struct careful_ipc){ .op = CAREFUL_IPC_SIGNATURE, .id = 60, .region = 5 }, s,
	    sizeof(*s));
	*a = answered(fd, 60);
	return (*a)->head.status;
}

static void test_signature__bursts_are_answered_with_their_marks(void)
{
	int fd = client();
	uint32_t peer = connect_peer(fd, 0x0a000001);
	struct answer *a;

	for (uint32_t kind = CAREFUL_IPC_REQUEST; kind <= CAREFUL_IPC_STORE; kind++) {
		struct careful_signature s = signature_to(peer, kind);
		struct careful_burst burst;
		struct careful_mark marks[3];

		assert(sign(fd, &s, &a) == 0);
		assert(a->head.payload_bytes == 2 * (sizeof(burst) + sizeof(marks)));
		memcpy(&burst, a->payload, sizeof(burst));
		memcpy(marks, a->payload + sizeof(burst), sizeof(marks));
		assert(burst.arrived_ns == 7 && burst.done_ns >= marks[2].elapsed_ns);
		assert(marks[0].elapsed_ns <= marks[1].elapsed_ns && !marks[2].computed_ns);
		assert(operations() == 0);
	}
	careful_peer_close(c, (uint32_t)ipc_peer_index(server, peer));
	close(fd);
	turn();
}

static void test_signature__invalid_and_failing(void)
{
	int fd = client();
	uint32_t peer = connect_peer(fd, 0x0a000001);
	struct careful_signature s = signature_to(peer, CAREFUL_IPC_REQUEST);
	struct answer *a;

	s.marks[1] = 1;
	assert(sign(fd, &s, &a) == -EINVAL);
	s = signature_to(peer, CAREFUL_IPC_CONNECT);
	assert(sign(fd, &s, &a) == -EINVAL);
	s = signature_to(peer, CAREFUL_IPC_GET);
	s.bytes = SCRATCH_BYTES + 1;
	assert(sign(fd, &s, &a) == -EINVAL);
	s = signature_to(peer + 1, CAREFUL_IPC_REQUEST);
	assert(sign(fd, &s, &a) == -ENOTCONN);
	s = signature_to(peer, CAREFUL_IPC_REQUEST);
	c->poll_status = -ECONNRESET;
	assert(sign(fd, &s, &a) == -ECONNRESET);
	c->poll_status = 0;
	assert(sign(fd, &s, &a) == 0); /* a new signature begins */
	careful_peer_close(c, (uint32_t)ipc_peer_index(server, peer));
	close(fd);
	turn();
}

/* A signature may last seconds: the loop runs between any two. */
static void test_signature__only_one_in_a_round(void)
{
	enum { EACH = 8 };
	int fds[2] = { client(), client() };
	uint32_t peer = connect_peer(fds[0], 0x0a000001), answers = 0, rounds = 0;
	struct careful_signature s = signature_to(peer, CAREFUL_IPC_REQUEST);
	const struct careful_ipc head = { .op = CAREFUL_IPC_SIGNATURE, .id = 62 };
	struct epoll_event events[16];

	for (int i = 0; i < 2 * EACH; i++)
		assert(!ask(fds[i % 2], head, &s, sizeof(s)));
	for (; answers < 2 * EACH && rounds < 4 * EACH; rounds++) {
		int n = epoll_wait(epoll_fd, events, 16, 0), found = 0;
		char buf[4096];

		for (int i = 0; i < n; i++) {
			struct ipc_event *event = events[i].data.ptr;

			event->handle(event, events[i].events);
		}
		ipc_poll(server);
		for (int i = 0; i < 2; i++)
			while (recv(fds[i], buf, sizeof(buf), MSG_DONTWAIT) > 0)
				found++;
		assert(found <= 2); /* one that was read, one that waited */
		answers += (uint32_t)found;
	}
	assert(answers == 2 * EACH);
	careful_peer_close(c, (uint32_t)ipc_peer_index(server, peer));
	close(fds[0]);
	close(fds[1]);
	turn();
}

/* While a peer holds the trial lock, requests to it wait; requests to another peer do not. */
static void test_hold__questions_to_a_held_peer_wait(void)
{
	int fds[2] = { client(), client() };
	uint32_t peers[2] = { connect_peer(fds[0], 0x0a000001), connect_peer(fds[1], 0x0a000002) };
	struct careful_signature s = signature_to(peers[1], CAREFUL_IPC_REQUEST);
	struct careful_ipc head = { .op = CAREFUL_IPC_REQUEST, .id = 10, .peer = peers[0] };
	uint32_t index = (uint32_t)ipc_peer_index(server, peers[0]);
	struct answer *a;

	ipc_hold(server, index, IPC_HOLD_LOCK, true);
	ipc_hold(server, index, IPC_HOLD_TRIAL, true);
	ipc_hold(server, index, IPC_HOLD_TRIAL, false);
	ask(fds[0], head, "", 0);
	turn();
	assert(operations() == 0 && ipc_timeout_ms(server) >= 0);
	assert(sign(fds[1], &s, &a) == 0);
	s = signature_to(peers[0], CAREFUL_IPC_REQUEST);
	ask(fds[1], (struct careful_ipc){ .op = CAREFUL_IPC_SIGNATURE, .id = 61 }, &s, sizeof(s));
	assert(!next_answer(fds[1]));
	ipc_hold(server, index, IPC_HOLD_LOCK, false);
	turn();
	assert(!server->held_count && operation('r'));
	end(operation('r'), 0, 0, "", 0);
	answered(fds[0], 10);
	assert(answered(fds[1], 61)->head.status == 0);
	for (int i = 0; i < 2; i++) {
		careful_peer_close(c, (uint32_t)ipc_peer_index(server, peers[i]));
		close(fds[i]);
	}
	turn();
}

/* Clients hear of a session only after the epochs of a trial. */
static void test_hold__a_session_is_reported_afterwards(void)
{
	int fd = client();
	struct sockaddr_storage sa = { 0 };
	struct sockaddr_in *in = (struct sockaddr_in *)&sa;

	for (uint32_t i = 0; i < FAKE_PEERS; i++)
		ipc_hold(server, i, IPC_HOLD_TRIAL, true);
	in->sin_family = AF_INET;
	in->sin_addr.s_addr = htonl(0x0a000001);
	ask(fd, (struct careful_ipc){ .op = CAREFUL_IPC_CONNECT, .id = 11 }, &sa, sizeof(sa));
	turn();
	for (int i = 0; i < FAKE_PEERS; i++) {
		if (c->peers[i].state == CAREFUL_PEER_CONNECTING)
			c->peers[i].state = CAREFUL_PEER_UP;
	}
	assert(!next_answer(fd));
	for (uint32_t i = 0; i < FAKE_PEERS; i++)
		ipc_hold(server, i, IPC_HOLD_TRIAL, false);
	assert(answered(fd, 11)->head.status == 0);
	for (uint32_t i = 0; i < FAKE_PEERS; i++)
		careful_peer_close(c, i);
	close(fd);
	turn();
}

static void test_signature__replies_outlive_the_client(void)
{
	int fd = client();
	uint32_t peer = connect_peer(fd, 0x0a000001);
	struct careful_signature s = signature_to(peer, CAREFUL_IPC_REQUEST);
	struct answer *a;

	s.flags = CAREFUL_SIGNATURE_GO_ON;
	s.bursts = 1;
	s.marks_count = 2;
	c->answering = false;
	assert(sign(fd, &s, &a) == 0 && operations() == 2);
	assert(sign(fd, &s, &a) == 0 && operations() == 4);
	close(fd);
	turn();
	assert(!server->clients && operations() == 4);
	c->answering = true;
	assert(careful_poll(c) == 4); /* frees the clients that asked */
	c->answering = false;
	careful_peer_close(c, (uint32_t)ipc_peer_index(server, peer));
}

/* Without free descriptors the loop sleeps, root is served by the spare one, and other clients are
 * refused or wait. */
static void test_clients__out_of_descriptors(void)
{
	const struct careful_ipc head = { .op = CAREFUL_IPC_INFO, .id = 1 };
	int fds[3], before = open_fds(), full[256], fulls = 0;
	const uint32_t served = getuid() ? 0 : 1;
	struct rlimit limit, less;

	for (int i = 0; i < 3; i++)
		fds[i] = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	assert(getrlimit(RLIMIT_NOFILE, &limit) == 0 && server->spare_fd >= 0);
	less = limit;
	less.rlim_cur = 128;
	assert(setrlimit(RLIMIT_NOFILE, &less) == 0);
	while (fulls < 256 && (full[fulls] = dup(fds[0])) >= 0)
		fulls++;
	for (int i = 0; i < 3; i++)
		assert(connect(fds[i], (struct sockaddr *)&address,
			       (socklen_t)(sizeof(sa_family_t) + 1 +
					   strlen(address.sun_path + 1))) == 0);
	turn();
	assert(server->clients_count == served && (server->spare_fd < 0) == served);
	for (uint32_t i = served; !served && i < 3; i++)
		assert(next_answer(fds[i])->head.status == -ENFILE);
	if (served) {
		assert(ipc_timeout_ms(server) == SPARE_MS);
		ask(fds[0], head, NULL, 0);
		turn();
		assert(next_answer(fds[0])->head.status == 0);
	}
	while (fulls > 0)
		close(full[--fulls]);
	assert(setrlimit(RLIMIT_NOFILE, &limit) == 0);
	turn();
	turn();
	assert(server->spare_fd >= 0 && ipc_timeout_ms(server) < 0);
	for (int i = 0; i < 3; i++) {
		if (served) {
			ask(fds[i], head, NULL, 0);
			turn();
			assert(next_answer(fds[i])->head.status == 0);
		}
		close(fds[i]);
	}
	turn();
	assert(!server->clients && open_fds() == before);
}

int main(void)
{
	int before = open_fds();

	snprintf(address.sun_path + 1, sizeof(address.sun_path) - 1, "test_ipc.%d", getpid());
	c = fake_create();
	listen_fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	assert(bind(listen_fd, (struct sockaddr *)&address,
		    sizeof(sa_family_t) + 1 + (socklen_t)strlen(address.sun_path + 1)) == 0);
	assert(listen(listen_fd, 8) == 0);
	assert(ipc_create(c, listen_fd, epoll_fd, &server) == 0);
	careful_peer_watch(c, changed, server);
	test_info_and_peers();
	test_connect__time_limit_and_errors();
	test_peer__name_of_a_former_peer();
	test_request__and_bulk();
	test_gets__one_answer();
	test_reload__words_of_root();
	test_use__times_and_exports();
	test_ping__results();
	test_ping__of_a_client_that_has_gone();
	test_burst__begins_or_is_refused();
	test_file__kinds();
	test_file__that_does_not_close();
	test_packet__malformed();
	test_packet__of_another_version_is_refused_with_a_reason();
	test_packet__random();
	test_client__left_with_work_under_way();
	test_client__left_and_answers_are_lost();
	test_client__closes_its_handles_itself();
	test_client__floods_with_opens();
	test_client__repeats_lost_opens();
	test_client__left_and_the_peer_is_silent();
	test_client__handles_end_with_the_session();
	test_client__left_with_a_request_of_the_last_session();
	test_client__asks_too_many_questions();
	test_client__does_not_read();
	test_measure__train_has_one_answer();
	test_measure__round_trips_one_by_one();
	test_measure__refused_or_put_off();
	test_measure__of_a_silent_peer_ends();
	test_clients__too_many();
	test_clients__out_of_descriptors();
	test_clients__one_user_cannot_use_all_places();
	test_clients__ten_thousand_delay_no_other();
	test_handshakes__without_an_answer_yield();
	test_user__may_not_disturb_the_host();
	test_handles__one_user_cannot_use_all();

	test_handles__clients_take_turns();
	test_clients__take_turns();
	test_clients__wait_only_for_the_same_room();
	c->answering = true;
	test_signature__bursts_are_answered_with_their_marks();
	test_signature__invalid_and_failing();
	test_signature__only_one_in_a_round();
	test_hold__questions_to_a_held_peer_wait();
	test_hold__a_session_is_reported_afterwards();
	test_signature__replies_outlive_the_client();
	/* Ends while a client is connected. */
	assert(client() >= 0);
	ipc_destroy(server);
	fake_destroy(c);
	close(listen_fd);
	close(epoll_fd);
	assert(open_fds() == before + 1);
	printf("test_ipc: ok\n");
	return 0;
}
