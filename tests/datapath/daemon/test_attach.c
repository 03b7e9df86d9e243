/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Programs that share an instance. A thread runs the daemon's socket and rings over two engines
 * joined in memory. Tests the calls of attached programs, and that programs that die, stall or
 * write garbage into their area do not harm others. Needs no privilege.
 */
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <careful/careful.h>
#include <careful/event.h>
#include <careful/ipc.h>

#include "check.h"
#include "base/clock.h"
#include "daemon/ipc/ipc_program.h"
#include "memory_device.h"
#include "local/attach.h"
#include "engine/engine.h"

enum {
	ECHO = 1,
	OURS = 7, /* a handler of a program */
	LATE = 8,
	TABLE_BYTES = 1 << 20,
	PATIENCE_MS = 20000,
};

static struct memory ends[2];
static struct careful *node[2]; /* carefuld's, and the other host */
static struct ipc *server;
static int listen_fd, epoll_fd;
static struct sockaddr_un address = { .sun_family = AF_UNIX };
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* for all variables above */
static pthread_t thread;
static bool stop;
static bool silent; /* the other host sends nothing */
static uint8_t table[TABLE_BYTES]; /* the other host's region */
static uint32_t table_key;

static void on_peer(struct careful *instance, uint32_t peer, uint32_t state, void *user)
{
	(void)instance;
	ipc_peer_changed(user, peer, state);
}

static void turn(void)
{
	struct epoll_event events[16];
	int n = epoll_wait(epoll_fd, events, 16, 0);

	for (int i = 0; i < n; i++) {
		struct ipc_event *event = events[i].data.ptr;

		event->handle(event, events[i].events);
	}
	ipc_poll(server);
	for (int side = 0; side < (silent ? 1 : 2); side++) {
		ends[side].now_ns = clock_now_ns();
		CHECK(careful_poll(node[side]) >= 0);
	}
}

static void *run(void *unused)
{
	(void)unused;
	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		pthread_mutex_lock(&lock);
		turn();
		pthread_mutex_unlock(&lock);
		sched_yield();
	}
	return NULL;
}

static void echo(const struct careful_message *message, void *user)
{
	(void)user;
	CHECK_EQ(careful_reply(message, 0, message->args, message->payload, message->bytes), 0);
}

static void open_all(void)
{
	const struct careful_options options = { .ifname = "memory" };
	struct careful_region region = {
		.span = { .base = table, .fd = -1 },
		.bytes = TABLE_BYTES,
		.access = CAREFUL_REGION_READ | CAREFUL_REGION_WRITE,
		.peer = CAREFUL_ANY_PEER,
	};
	struct careful_error error;

	memory_init(ends, MEMORY_RX);
	for (int side = 0; side < 2; side++) {
		struct engine_base base = {
			.queue = &ends[side].queue,
			.storage = &ends[side].storage,
			.limits = { .operations = 256,
				    .regions = 256,
				    .messages = { .outs = 32, .parked = 512, .copies = 64 } },
		};

		ends[side].now_ns = clock_now_ns();
		CHECK_EQ(engine_open(&options, &base, &node[side], &error), 0);
	}
	CHECK_EQ(careful_handle(node[1], ECHO, echo, NULL), 0);
	CHECK_EQ(careful_region_add(node[1], &region, &table_key), 0);
	snprintf(address.sun_path, sizeof(address.sun_path), "/tmp/test_attach.%d", getpid());
	listen_fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	CHECK(!bind(listen_fd, (struct sockaddr *)&address, sizeof(address)));
	CHECK(!listen(listen_fd, 8));
	CHECK_EQ(ipc_create(node[0], listen_fd, epoll_fd, &server), 0);
	CHECK_EQ(careful_peer_watch(node[0], on_peer, server), 0);
	CHECK(!pthread_create(&thread, NULL, run, NULL));
}

/* carefuld's end. */
static void close_server(void)
{
	__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
	pthread_join(thread, NULL);
	careful_close(node[0]);
	ipc_destroy(server);
}

static void close_all(void)
{
	careful_close(node[1]);
	memory_deinit(ends);
	close(listen_fd);
	close(epoll_fd);
	unlink(address.sun_path);
}

static struct careful *attached(const char *name)
{
	const struct careful_attach_options options = {
		.path = address.sun_path,
		.name = name,
		.memory_bytes = 4 << 20,
	};
	struct careful_error error;
	struct careful *c = NULL;
	int rc = careful_attach(&options, &c, &error);

	if (rc)
		fprintf(stderr, "%s\n", error.text);
	CHECK_EQ(rc, 0);
	return c;
}

static uint32_t peer_of(struct careful *c)
{
	union address to = memory_address(1, 0);
	int peer = careful_peer(c, &to.sa, sizeof(to.in));
	struct careful_peer_info info = { 0 };

	CHECK(peer >= 0);
	for (int i = 0; i < PATIENCE_MS && info.state != CAREFUL_PEER_UP; i++) {
		CHECK(careful_wait(c, 1, -1) >= 0);
		CHECK_EQ(careful_peer_info(c, (uint32_t)peer, &info), 0);
	}
	CHECK_EQ(info.state, CAREFUL_PEER_UP);
	return (uint32_t)peer;
}

struct outcome {
	int done;
	struct careful_result result;
	uint8_t payload[CAREFUL_RING_PAYLOAD_BYTES];
};

static void on_done(const struct careful_result *result, void *user)
{
	struct outcome *outcome = user;

	outcome->result = *result;
	if (result->payload)
		memcpy(outcome->payload, result->payload, result->bytes);
	/* This store comes last, since another thread may wait for it. */
	__atomic_fetch_add(&outcome->done, 1, __ATOMIC_RELEASE);
}

static void await(struct careful *c, const struct outcome *outcome)
{
	for (int i = 0; i < PATIENCE_MS && !__atomic_load_n(&outcome->done, __ATOMIC_ACQUIRE); i++)
		CHECK(careful_wait(c, 1, -1) >= 0);
	CHECK_EQ(outcome->done, 1);
}

/* Asks the other host to echo the text. */
static int asked(struct careful *c, uint32_t peer, const char *what)
{
	const uint32_t args[4] = { 1, 2, 3, 4 };
	static struct outcome outcome;

	outcome = (struct outcome){ 0 };
	CHECK_EQ(careful_request(c, peer, ECHO, args, what, (uint32_t)strlen(what), on_done,
				 &outcome),
		 0);
	await(c, &outcome);
	if (outcome.result.status)
		return outcome.result.status;
	CHECK_EQ(outcome.result.bytes, strlen(what));
	CHECK(!memcmp(outcome.payload, what, strlen(what)));
	CHECK_EQ(outcome.result.args[3], 4);
	return 0;
}

/* The other host sends a request to a program here; its first peer is this host. */
static void ask_program(uint16_t handler, struct outcome *outcome)
{
	pthread_mutex_lock(&lock);
	CHECK_EQ(careful_request(node[1], 0, handler, NULL, "hello", 5, on_done, outcome), 0);
	pthread_mutex_unlock(&lock);
}

static struct ipc_program *program(const char *name)
{
	for (struct ipc_program *p = server->programs; p; p = p->next)
		if (!strcmp(p->info.name, name))
			return p;
	return NULL;
}

static void await_programs(int count)
{
	int n = -1;

	for (int i = 0; i < 5 * PATIENCE_MS && n != count; i++) {
		n = 0;
		pthread_mutex_lock(&lock);
		for (struct ipc_client *one = server->clients; one; one = one->next)
			n++;
		pthread_mutex_unlock(&lock);
		usleep(200);
	}
	CHECK_EQ(n, count);
}

static void test_attach__impossible_requests(void)
{
	struct careful_attach_options options = { .path = "/tmp/test_attach.none" };
	struct careful_error error;
	struct careful *c = NULL;
	char name[64];

	CHECK_EQ(careful_attach(&options, &c, &error), -ENOENT);
	CHECK(strstr(error.text, "not running"));
	options.path = NULL;
	CHECK_EQ(careful_attach(&options, &c, NULL), -EINVAL);
	memset(name, 'n', sizeof(name));
	name[63] = 0;
	options.path = address.sun_path;
	options.name = name;
	CHECK_EQ(careful_attach(&options, &c, &error), -EINVAL);
	options.name = "n";
	options.memory_bytes = 1ull << 40;
	CHECK_EQ(careful_attach(&options, &c, &error), -EINVAL);
	CHECK(strstr(error.text, "memory at most 1 GiB"));
	CHECK(!c);
	await_programs(0);
}

/* Refuses a connection with a reason, like carefuld, before or after the question arrives. */
static void *turn_away(void *arg)
{
	const struct careful_ipc head = { .version = CAREFUL_IPC_VERSION, .status = -EUSERS };
	const int listener = *(int *)arg;

	for (int late = 0; late < 2; late++) {
		int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
		struct pollfd pfd = { .fd = fd, .events = POLLIN };

		CHECK(fd >= 0);
		if (late)
			CHECK_EQ(poll(&pfd, 1, PATIENCE_MS), 1);
		CHECK_EQ(send(fd, &head, sizeof(head), MSG_NOSIGNAL), sizeof(head));
		close(fd); /* with the question unread */
	}
	return NULL;
}

static void test_attach__reports_why_carefuld_refuses(void)
{
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	const struct careful_attach_options options = { .path = un.sun_path };
	int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	struct careful_error error;
	struct careful *c = NULL;
	pthread_t other;

	snprintf(un.sun_path, sizeof(un.sun_path), "/tmp/test_attach.%d.full", getpid());
	CHECK(!bind(listener, (struct sockaddr *)&un, sizeof(un)));
	CHECK(!listen(listener, 8));
	CHECK(!pthread_create(&other, NULL, turn_away, &listener));
	for (int i = 0; i < 2; i++) {
		CHECK_EQ(careful_attach(&options, &c, &error), -EUSERS);
		CHECK(strstr(error.text, "as many clients as it can"));
	}
	pthread_join(other, NULL);
	close(listener);
	unlink(un.sun_path);
}

/* Regression: a client behind a full backlog waited for ever. */
static void test_attach__waits_in_a_full_line_for_a_time(void)
{
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	const struct careful_attach_options options = { .path = un.sun_path };
	int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	int first = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	struct careful_error error;
	struct careful *c = NULL;
	pthread_t other;

	snprintf(un.sun_path, sizeof(un.sun_path), "/tmp/test_attach.%d.line", getpid());
	CHECK(!bind(listener, (struct sockaddr *)&un, sizeof(un)));
	CHECK(!listen(listener, 0));
	CHECK(!connect(first, (struct sockaddr *)&un, sizeof(un)));
	alarm(60); /* ends the test program if it hangs */
	CHECK_EQ(careful_attach(&options, &c, &error), -ETIMEDOUT);
	alarm(0);
	CHECK(strstr(error.text, "too many clients are waiting"));
	CHECK(!pthread_create(&other, NULL, turn_away, &listener));
	CHECK_EQ(careful_attach(&options, &c, &error), -EUSERS); /* after the first one */
	pthread_join(other, NULL);
	close(first);
	close(listener);
	unlink(un.sun_path);
}

static void test_request__answers_and_failures(void)
{
	static uint8_t large[CAREFUL_RING_PAYLOAD_BYTES + 1];
	struct outcome outcomes[CAREFUL_RING_OPERATIONS] = { 0 };
	struct careful *c = attached("asks");
	uint32_t peer = peer_of(c);
	struct careful_info info;
	struct outcome o = { 0 };

	CHECK_EQ(asked(c, peer, "hello"), 0);
	CHECK_EQ(careful_info(c, &info), 0);
	CHECK_EQ(info.peers_max, 8);
	CHECK(careful_payload_bytes(c, peer) > 1000);
	CHECK_EQ(careful_request(c, peer, ECHO, NULL, large, sizeof(large), on_done, &o),
		 -EMSGSIZE);
	CHECK_EQ(careful_request(c, peer, OURS, NULL, NULL, 0, on_done, &o), 0);
	await(c, &o);
	CHECK_EQ(o.result.status, -ENOSYS);
	/* Programs cannot use the messages that carefulds send each other. */
	o.done = 0;
	CHECK_EQ(careful_request(c, peer, CAREFUL_HANDLERS_APP, NULL, NULL, 0, on_done, &o), 0);
	await(c, &o);
	CHECK_EQ(o.result.status, -EINVAL);
	/* An unknown peer. */
	o.done = 0;
	CHECK_EQ(careful_request(c, peer + (1u << 16), ECHO, NULL, NULL, 0, on_done, &o), 0);
	await(c, &o);
	CHECK_EQ(o.result.status, -ENOTCONN);
	CHECK_EQ(careful_request(c, peer, ECHO, NULL, "x", 1, NULL, NULL), 0);
	/* The program's whole share at once; one more is refused. */
	for (uint32_t i = 0; i < CAREFUL_RING_OPERATIONS; i++)
		CHECK_EQ(careful_request(c, peer, ECHO, NULL, NULL, 0, on_done, &outcomes[i]), 0);
	CHECK_EQ(careful_request(c, peer, ECHO, NULL, NULL, 0, on_done, &o), -EAGAIN);
	for (uint32_t i = 0; i < CAREFUL_RING_OPERATIONS; i++) {
		await(c, &outcomes[i]);
		CHECK_EQ(outcomes[i].result.status, 0);
	}
	/* Other calls. */
	CHECK_EQ(careful_peer_measure(c, peer + (1u << 16)), -ENOTCONN);
	CHECK_EQ(careful_keys_refresh(c, NULL), -EOPNOTSUPP);
	CHECK_EQ(careful_peer_info(c, peer + (1u << 16), &(struct careful_peer_info){ 0 }),
		 -ENOENT);
	/* After a close here, the session still belongs to other programs. */
	o.done = 0;
	CHECK_EQ(careful_request(c, peer, ECHO, NULL, NULL, 0, on_done, &o), 0);
	CHECK_EQ(careful_peer_close(c, peer), 0);
	await(c, &o);
	CHECK_EQ(asked(c, peer, "again"), 0);
	CHECK_EQ(careful_close(c), 0);
	await_programs(0);
}

/* Payloads in buffers of careful_alloc(): one at a time, all at once, and in foreign buffers. */
static void test_send__a_built_message(void)
{
	static struct outcome outcomes[CAREFUL_RING_BUILT];
	uint8_t *built[CAREFUL_RING_BUILT];
	struct careful *c = attached("builds");
	uint32_t peer = peer_of(c);
	struct outcome o = { 0 };
	void *none;

	for (int i = 1; i <= 3 * CAREFUL_RING_ASKS; i++) {
		CHECK(careful_alloc(c, (void **)&built[0]) >= careful_payload_bytes(c, peer));
		memset(built[0], i, 1000);
		o.done = 0;
		CHECK_EQ(careful_send(c, peer, ECHO, NULL, built[0], 1000, on_done, &o), 0);
		CHECK_EQ(careful_send(c, peer, ECHO, NULL, built[0], 1000, on_done, &o), -EINVAL);
		CHECK_EQ(careful_free(c, built[0]), -EINVAL);
		await(c, &o);
		CHECK_EQ(o.result.status, 0);
		CHECK_EQ(o.result.bytes, 1000);
		for (int k = 0; k < 1000; k++)
			CHECK_EQ(o.payload[k], (uint8_t)i);
	}
	for (int round = 0; round < 3; round++) {
		memset(outcomes, 0, sizeof(outcomes));
		for (int i = 0; i < CAREFUL_RING_BUILT; i++)
			CHECK_EQ(careful_alloc(c, (void **)&built[i]), CAREFUL_RING_PAYLOAD_BYTES);
		CHECK_EQ(careful_alloc(c, &none), -EAGAIN);
		CHECK_EQ(asked(c, peer, "beside them"), 0);
		for (int i = 0; i < CAREFUL_RING_BUILT; i++) {
			memset(built[i], i, 100);
			CHECK_EQ(careful_send(c, peer, ECHO, NULL, built[i], 100, on_done,
					      &outcomes[i]),
				 0);
		}
		for (int i = 0; i < CAREFUL_RING_BUILT; i++) {
			await(c, &outcomes[i]);
			CHECK_EQ(outcomes[i].result.status, 0);
			CHECK_EQ(outcomes[i].payload[99], i);
		}
	}
	CHECK_EQ(careful_alloc(c, &none), CAREFUL_RING_PAYLOAD_BYTES);
	CHECK_EQ(careful_send(c, peer, ECHO, NULL, NULL, 1, NULL, NULL), -EINVAL);
	CHECK_EQ(careful_send(c, peer, ECHO, NULL, &o, 1, NULL, NULL), -EINVAL);
	CHECK_EQ(careful_free(c, (uint8_t *)none + 1), -EINVAL);
	/* A refused payload stays the program's; done() reports that the peer cannot take it. */
	CHECK_EQ(careful_send(c, peer, ECHO, NULL, none, CAREFUL_RING_PAYLOAD_BYTES + 1, NULL,
			      NULL),
		 -EMSGSIZE);
	CHECK_EQ(careful_free(c, none), 0);
	CHECK_EQ(careful_free(c, none), -EINVAL);
	CHECK_EQ(careful_alloc(c, &none), CAREFUL_RING_PAYLOAD_BYTES);
	o.done = 0;
	CHECK_EQ(careful_send(c, peer, ECHO, NULL, none, CAREFUL_RING_PAYLOAD_BYTES, on_done, &o),
		 0);
	await(c, &o);
	CHECK_EQ(o.result.status, -EMSGSIZE);
	CHECK_EQ(careful_close(c), 0);
	await_programs(0);
}

static void test_move__memory_of_its_own_and_other(void)
{
	struct careful *c = attached("moves");
	uint32_t peer = peer_of(c);
	uint8_t *shared, *other = malloc(8 << 20);
	struct careful_span spans[2];
	int pipes[2];
	uint32_t key;
	void *base;

	CHECK(other);
	CHECK_EQ(careful_memory(c, 100000, &base), 0);
	shared = base;
	spans[0] = (struct careful_span){ .base = shared, .fd = -1 };
	spans[1] = (struct careful_span){ .base = other, .fd = -1 };
	for (int i = 0; i < 2; i++) {
		uint8_t *at = spans[i].base;
		struct outcome o = { 0 };

		for (int k = 0; k < 100000; k++)
			at[k] = (uint8_t)(k * 7 + i);
		CHECK_EQ(careful_store(c, peer, table_key, 5000, &spans[i], 100000,
				       CAREFUL_HANDLERS, NULL, 0, on_done, &o),
			 0);
		await(c, &o);
		CHECK_EQ(o.result.status, 0);
		CHECK_EQ(o.result.bytes, 100000);
		CHECK(!memcmp(table + 5000, at, 100000));
		memset(at, 0, 100000);
		o.done = 0;
		CHECK_EQ(careful_get(c, peer, table_key, 5000, &spans[i], 100000, 0, on_done, &o),
			 0);
		await(c, &o);
		CHECK_EQ(o.result.status, 0);
		CHECK(!memcmp(table + 5000, at, 100000));
		o.done = 0;
		CHECK_EQ(careful_get(c, peer, table_key, TABLE_BYTES, &spans[i], 1, 0, on_done, &o),
			 0);
		await(c, &o);
		CHECK_EQ(o.result.status, -ERANGE);
	}
	/* Too much memory, and descriptors that are not files. */
	CHECK_EQ(careful_memory(c, 5 << 20, &base), -ENOMEM);
	CHECK_EQ(careful_memory(c, UINT64_MAX - 10, &base), -ENOMEM);
	CHECK_EQ(careful_get(c, peer, table_key, 0, &(struct careful_span){ .fd = -1 }, 1, 0,
			     on_done, NULL),
		 -EBADF);
	CHECK(!pipe(pipes));
	for (uint32_t i = 0; i < 2 * CAREFUL_IPC_FILES; i++)
		CHECK_EQ(careful_get(c, peer, table_key, 0,
				     &(struct careful_span){ .fd = pipes[0] }, 1, 0, on_done, NULL),
			 -ENOTSUP);
	CHECK_EQ(careful_region_add(c,
				    &(struct careful_region){ .span = { .fd = pipes[0] },
							      .bytes = 1,
							      .access = CAREFUL_REGION_READ,
							      .peer = CAREFUL_ANY_PEER },
				    &key),
		 -ENOTSUP);
	close(pipes[0]);
	close(pipes[1]);
	free(other);
	CHECK_EQ(careful_close(c), 0);
	shared[0] = 1; /* the memory stays */
	await_programs(0);
}

struct service {
	struct careful_reply_to late;
	int asked, stored;
	struct careful_message last;
};

static void on_ours(const struct careful_message *message, void *user)
{
	struct service *s = user;

	s->asked++;
	CHECK_EQ(message->bytes, 5);
	CHECK(!memcmp(message->payload, "hello", 5));
	if (message->handler == LATE)
		careful_reply_name(message, &s->late);
	else
		CHECK_EQ(careful_reply(message, 0, NULL, "HELLO", 5), 0);
}

static void on_stored(const struct careful_message *message, void *user)
{
	struct service *s = user;

	s->stored++;
	s->last = *message;
}

static void await_count(struct careful *c, const int *count, int wanted)
{
	for (int i = 0; i < PATIENCE_MS && *count < wanted; i++)
		CHECK(careful_wait(c, 1, -1) >= 0);
	CHECK_EQ(*count, wanted);
}

static void test_handle__requests_of_peers(void)
{
	struct careful *c = attached("serves"), *second = attached("second");
	struct service s = { 0 };
	static struct outcome o, late;

	o = late = (struct outcome){ 0 };
	peer_of(c);
	CHECK_EQ(careful_handle(c, OURS, on_ours, &s), 0);
	CHECK_EQ(careful_handle(c, LATE, on_ours, &s), 0);
	CHECK_EQ(careful_handle(second, OURS, on_ours, &s), -EBUSY);
	CHECK_EQ(careful_handle(c, CAREFUL_HANDLERS_APP, on_ours, &s), -EINVAL);
	ask_program(OURS, &o);
	await(c, &o);
	CHECK_EQ(o.result.status, 0);
	CHECK(!memcmp(o.payload, "HELLO", 5));
	ask_program(LATE, &late);
	await_count(c, &s.asked, 2);
	CHECK(!late.done);
	CHECK_EQ(careful_reply_late(c, &s.late, ENOENT, NULL, NULL, 0), 0);
	await(c, &late);
	CHECK_EQ(late.result.status, -ENOENT);
	/* A second answer has no effect. */
	CHECK_EQ(careful_reply_late(c, &s.late, 0, NULL, NULL, 0), 0);
	/* Another program can use a number that was freed. */
	CHECK_EQ(careful_handle(c, OURS, NULL, NULL), 0);
	CHECK_EQ(careful_handle(second, OURS, on_ours, &s), 0);
	o.done = 0;
	ask_program(OURS, &o);
	await(second, &o);
	CHECK_EQ(o.result.status, 0);
	/* A program that leaves ends its requests, and frees their numbers. */
	late.done = 0;
	ask_program(LATE, &late);
	await_count(c, &s.asked, 4);
	CHECK_EQ(careful_close(c), 0);
	await(second, &late);
	CHECK_EQ(late.result.status, -ECONNRESET);
	o.done = 0;
	ask_program(LATE, &o);
	await(second, &o);
	CHECK_EQ(o.result.status, -ENOSYS);
	CHECK_EQ(careful_close(second), 0);
	await_programs(0);
}

static void store_to(uint32_t key, uint64_t off, uint16_t handler, struct outcome *o)
{
	const struct careful_span span = { .base = table, .fd = -1 };

	o->done = 0;
	pthread_mutex_lock(&lock);
	CHECK_EQ(careful_store(node[1], 0, key, off, &span, 3000, handler, NULL, 0, on_done, o), 0);
	pthread_mutex_unlock(&lock);
}

static struct careful_kept *kept;

static void on_kept(const struct careful_message *message, void *user)
{
	(void)user;
	CHECK_EQ(message->keepable, 1);
	kept = careful_keep(message);
	CHECK(kept);
	CHECK_EQ(careful_reply(message, 0, NULL, NULL, 0), 0);
}

/* Memory that a program keeps does not change, whatever enters its ring afterwards. */
static void test_keep__outlives_its_place_in_the_ring(void)
{
	struct careful *c = attached("keeps");
	static struct outcome outcome;

	peer_of(c);
	CHECK_EQ(careful_handle(c, OURS, on_kept, NULL), 0);
	outcome = (struct outcome){ 0 };
	ask_program(OURS, &outcome);
	await(c, &outcome);
	CHECK_EQ(outcome.result.status, 0);
	memset(c->attached->told_payload, 0xff, CAREFUL_RING_NOTES * CAREFUL_RING_PAYLOAD_BYTES);
	CHECK(!memcmp(careful_kept_payload(kept), "hello", 5));
	careful_release(c, kept);
	CHECK_EQ(careful_close(c), 0);
	await_programs(0);
}

struct pinged {
	int done;
	struct careful_ping_result result;
};

static void on_pinged(const struct careful_ping_result *result, void *user)
{
	struct pinged *pinged = user;

	pinged->done++;
	pinged->result = *result;
}

static struct careful_ping_result ping(struct careful *c, uint32_t peer,
				       const struct careful_ping_ask *ask)
{
	struct pinged pinged = { 0 };

	CHECK_EQ(careful_ping(c, peer, ask, on_pinged, &pinged), 0);
	for (int i = 0; i < PATIENCE_MS && !pinged.done; i++)
		CHECK(careful_wait(c, 1, -1) >= 0);
	CHECK_EQ(pinged.done, 1);
	return pinged.result;
}

static void test_ping__all_stages_and_impossible_ones(void)
{
	struct careful_ping_ask ask = { .stage = CAREFUL_STAGE_NET_RX, .bytes = 300 };
	struct careful *c = attached("pings");
	uint32_t peer = peer_of(c);
	struct careful_ping_result found;
	struct pinged lost = { 0 };

	ask.timeout_ms = 50; /* no XDP program answers here */
	found = ping(c, peer, &ask);
	CHECK_EQ(found.status, -ETIMEDOUT);
	CHECK(found.sent_ns); /* the whole result came, not only its status */
	ask.timeout_ms = 60001;
	CHECK_EQ(ping(c, peer, &ask).status, -EINVAL);
	ask = (struct careful_ping_ask){ .stage = 99, .bytes = 300, .timeout_ms = 50 };
	CHECK_EQ(ping(c, peer, &ask).status, -EINVAL);
	ask = (struct careful_ping_ask){ .bytes = UINT32_MAX, .timeout_ms = UINT32_MAX };
	CHECK(ping(c, peer, &ask).status < 0);
	ask = (struct careful_ping_ask){ .stage = CAREFUL_STAGE_HOST_RX,
					 .bytes = 300,
					 .timeout_ms = 10000 };
	CHECK_EQ(ping(c, peer, &ask).status, -ENOTSUP);
	CHECK(ping(c, 77, &ask).status < 0);
	/* A ping that is under way when the program ends: nothing waits for it. */
	ask = (struct careful_ping_ask){ .stage = CAREFUL_STAGE_NET_RX,
					 .bytes = 300,
					 .timeout_ms = 60000 };
	CHECK_EQ(careful_ping(c, peer, &ask, on_pinged, &lost), 0);
	CHECK_EQ(asked(c, peer, "still"), 0);
	CHECK_EQ(careful_close(c), 0);
	CHECK_EQ(lost.done, 0);
	await_programs(0);
	c = attached("pings");
	ask.timeout_ms = 50;
	CHECK_EQ(ping(c, peer_of(c), &ask).status, -ETIMEDOUT);
	CHECK_EQ(careful_close(c), 0);
	await_programs(0);
}

static void test_region__is_served_and_goes_with_the_program(void)
{
	struct careful *c = attached("lends");
	struct careful_region region = {
		.bytes = 10000,
		.access = CAREFUL_REGION_WRITE,
		.peer = CAREFUL_ANY_PEER,
		.span = { .base = table, .fd = -1 },
	};
	static uint8_t local[10000];
	struct service s = { 0 };
	static struct outcome o;
	uint32_t key = 0, own = 0;
	void *base;

	peer_of(c);
	CHECK_EQ(careful_memory(c, 10000, &base), 0);
	region.span.base = base;
	CHECK_EQ(careful_region_add(c, &region, &key), 0);
	memset(table, 0x5a, 3000);
	store_to(key, 100, CAREFUL_HANDLERS, &o);
	await(c, &o);
	CHECK_EQ(o.result.status, 0);
	CHECK(!memcmp((uint8_t *)base + 100, table, 3000));
	/* With a handler. */
	store_to(key, 100, OURS, &o);
	await(c, &o);
	CHECK_EQ(o.result.status, -ENOSYS);
	CHECK_EQ(careful_handle_store(c, OURS, on_stored, &s), 0);
	store_to(key, 200, OURS, &o);
	await(c, &o);
	CHECK_EQ(o.result.status, 0);
	await_count(c, &s.stored, 1);
	CHECK_EQ(s.last.region, key);
	CHECK_EQ(s.last.region_off, 200);
	CHECK(s.last.payload == (uint8_t *)base + 200);
	/* The region of a file has no bytes in this memory. */
	region.span = (struct careful_span){ .fd = memfd_create("region", MFD_CLOEXEC) };
	CHECK(!ftruncate(region.span.fd, (off_t)region.bytes));
	CHECK_EQ(careful_region_add(c, &region, &key), 0);
	close(region.span.fd);
	o.done = 0;
	pthread_mutex_lock(&lock);
	CHECK_EQ(careful_store(node[1], 0, key, 300, &(struct careful_span){ .base = table }, 0,
			       OURS, NULL, 0, on_done, &o),
		 0);
	pthread_mutex_unlock(&lock);
	await(c, &o);
	CHECK_EQ(o.result.status, 0);
	await_count(c, &s.stored, 2);
	CHECK_EQ(s.last.region_off, 300);
	CHECK(!s.last.payload);
	CHECK_EQ(careful_region_remove(c, key + 1), -ENOENT);
	/* Memory that is not shared is a file to carefuld, and memory to the program. */
	region.span = (struct careful_span){ .base = local, .fd = -1 };
	CHECK_EQ(careful_region_add(c, &region, &own), 0);
	o.done = 0;
	pthread_mutex_lock(&lock);
	CHECK_EQ(careful_store(node[1], 0, own, 400, &(struct careful_span){ .base = table }, 0,
			       OURS, NULL, 0, on_done, &o),
		 0);
	pthread_mutex_unlock(&lock);
	await(c, &o);
	CHECK_EQ(o.result.status, 0);
	await_count(c, &s.stored, 3);
	CHECK(s.last.payload == local + 400);
	CHECK_EQ(careful_region_remove(c, own), 0);
	CHECK_EQ(careful_region_remove(c, own), -ENOENT);
	CHECK_EQ(careful_close(c), 0);
	await_programs(0);
	c = attached("after");
	peer_of(c);
	store_to(key, 0, CAREFUL_HANDLERS, &o);
	await(c, &o);
	CHECK_EQ(o.result.status, -ENOENT);
	CHECK_EQ(careful_close(c), 0);
	await_programs(0);
}

struct gets {
	uint32_t key;
	int begun, done, refused;
};

/* Repeats a get of the region until one fails. */
static void get_again(const struct careful_result *result, void *user)
{
	const struct careful_span span = { .base = table, .fd = -1 };
	struct gets *gets = user;

	if (result) {
		gets->done++;
		gets->refused += result->status == -ENOENT;
	}
	if (!result || !result->status)
		gets->begun += !careful_get(node[1], 0, gets->key, 0, &span, 300000,
					    CAREFUL_NO_DIGEST, get_again, gets);
}

/* Waits until some gets have moved bytes, or all were refused. */
static void await_gets(const struct gets *gets, bool refused)
{
	bool there = false;

	for (int i = 0; i < PATIENCE_MS && !there; i++) {
		usleep(200);
		pthread_mutex_lock(&lock);
		there = refused ? gets->refused && gets->begun == gets->done : gets->done >= 16;
		pthread_mutex_unlock(&lock);
	}
	CHECK(there);
}

/* A peer has many gets under way. None begins after the program or the region has gone. */
static void test_region__is_refused_while_it_is_read(void)
{
	for (int dies = 0; dies < 2; dies++) {
		struct careful *c = attached("lends"), *other = attached("lives");
		struct careful_region region = {
			.bytes = 1 << 20,
			.access = CAREFUL_REGION_READ,
			.peer = CAREFUL_ANY_PEER,
			.span = { .fd = -1 },
		};
		struct gets gets = { 0 };

		peer_of(c);
		peer_of(other);
		CHECK_EQ(careful_memory(c, 1 << 20, &region.span.base), 0);
		CHECK_EQ(careful_region_add(c, &region, &gets.key), 0);
		pthread_mutex_lock(&lock);
		for (int i = 0; i < 8; i++)
			get_again(NULL, &gets);
		pthread_mutex_unlock(&lock);
		await_gets(&gets, false);
		if (dies)
			careful_close(c);
		else
			careful_region_remove(c, gets.key); /* -EBUSY, most times */
		await_gets(&gets, true);
		if (!dies)
			careful_close(c);
		await_programs(1);
		careful_close(other);
		await_programs(0);
	}
}

static void test_status__names_each(void)
{
	struct careful *a = attached("first"), *b = attached("other");
	struct careful_program_info infos[IPC_CLIENTS];
	struct careful_ipc head = { .op = CAREFUL_IPC_PROGRAMS };

	CHECK_EQ(asked(a, peer_of(a), "hello"), 0);
	CHECK_EQ(attached_ask(b, &head, infos, sizeof(infos)), 0);
	CHECK_EQ(head.payload_bytes, 2 * sizeof(infos[0]));
	for (int i = 0; i < 2; i++) {
		const bool first = !strcmp(infos[i].name, "first");

		CHECK(first || !strcmp(infos[i].name, "other"));
		CHECK_EQ(infos[i].pid, getpid());
		CHECK_EQ(infos[i].asked, first);
		CHECK(infos[i].told >= (uint64_t)first);
		CHECK_EQ(infos[i].memory_bytes, 4 << 20);
	}
	careful_close(a);
	careful_close(b);
	await_programs(0);
}

/* Makes carefuld's disk writes slow, and counts them. */
static struct {
	bool (*moment)(void);
	struct storage_io *first;
	uint32_t turns;
	uint32_t begun, ended;
} slow;

static int slow_submit(struct storage *storage, struct storage_io *io)
{
	io->next = slow.first;
	slow.first = io;
	storage->pending++;
	slow.begun++;
	return 0;
}

static uint32_t slow_poll(struct storage *storage)
{
	struct storage_io *io = slow.first;

	if (!io || !slow.moment() || ++slow.turns % 2000)
		return 0;
	slow.first = io->next;
	storage->pending--;
	io->result = pwritev(io->fd, io->iov, io->iov_count, (off_t)io->offset);
	slow.ended++;
	io->done(io);
	return 1;
}

/* The operations that slow_down() replaces. */
static const struct storage_ops *quick;

static void slow_down(bool (*moment)(void))
{
	static struct storage_ops ops;

	pthread_mutex_lock(&lock);
	if (!quick)
		quick = ends[0].storage.ops;
	ops = *quick;
	ops.submit = slow_submit;
	ops.poll = slow_poll;
	memset(&slow, 0, sizeof(slow));
	slow.moment = moment;
	ends[0].storage.ops = &ops;
	pthread_mutex_unlock(&lock);
}

static void speed_up(void)
{
	pthread_mutex_lock(&lock);
	ends[0].storage.ops = quick;
	pthread_mutex_unlock(&lock);
}

static void await_slow(void)
{
	bool there = false;

	for (int i = 0; i < PATIENCE_MS && !there; i++) {
		usleep(200);
		pthread_mutex_lock(&lock);
		there = slow.begun;
		pthread_mutex_unlock(&lock);
	}
	CHECK(there);
}

/* Checks that all writes have ended. Returns how many have begun. */
static uint32_t writes_by_now(void)
{
	uint32_t begun;

	pthread_mutex_lock(&lock);
	CHECK_EQ(slow.begun, slow.ended);
	begun = slow.begun;
	pthread_mutex_unlock(&lock);
	return begun;
}

static bool is_closing(void)
{
	const struct ipc_program *p = program("closes");

	return !p || p->quiet;
}

/* After careful_close() no store or get under way writes into private memory. */
static void test_close__nothing_is_written_afterwards(void)
{
	static uint8_t local[300000];
	struct careful_region region = {
		.bytes = sizeof(local),
		.access = CAREFUL_REGION_WRITE,
		.peer = CAREFUL_ANY_PEER,
		.span = { .base = local, .fd = -1 },
	};
	const struct careful_span there = { .base = table, .fd = -1 };
	static struct outcome o;
	uint32_t key, begun;
	void *all;

	for (int get = 0; get < 2; get++) {
		struct careful *c = attached("closes"), *other = attached("lives");
		uint32_t peer = peer_of(c);

		o = (struct outcome){ 0 };
		slow_down(is_closing);
		CHECK_EQ(careful_memory(c, 4 << 20, &all), 0); /* no room for copies */
		if (get) {
			CHECK_EQ(careful_get(c, peer, table_key, 0, &region.span, sizeof(local), 0,
					     on_done, &o),
				 0);
		} else {
			CHECK_EQ(careful_region_add(c, &region, &key), 0);
			pthread_mutex_lock(&lock);
			CHECK_EQ(careful_store(node[1], 0, key, 0, &there, sizeof(local),
					       CAREFUL_HANDLERS, NULL, 0, on_done, &o),
				 0);
			pthread_mutex_unlock(&lock);
		}
		await_slow();
		CHECK_EQ(careful_close(c), 0);
		begun = writes_by_now();
		await_programs(1);
		CHECK_EQ(writes_by_now(), begun);
		if (!get) {
			await(other, &o);
			CHECK_EQ(o.result.status, -ENOENT);
		}
		careful_close(other);
		await_programs(0);
	}
	speed_up();
}

static bool has_left(void)
{
	const struct ipc_program *p = program("closes");

	return !p || !memchr(p->wants, 1, sizeof(p->wants));
}

/* After careful_peer_close() a get into private memory ends when it writes no more. */
static void test_peer_close__ends_a_get_that_gets_nothing(void)
{
	static uint8_t local[300000];
	const struct careful_span span = { .base = local, .fd = -1 };
	static struct outcome o;
	struct careful *c = attached("closes");
	const uint32_t peer = peer_of(c);
	uint32_t begun;
	void *all;

	slow_down(has_left);
	o = (struct outcome){ 0 };
	CHECK_EQ(careful_memory(c, 4 << 20, &all), 0);
	CHECK_EQ(careful_get(c, peer, table_key, 0, &span, sizeof(local), 0, on_done, &o), 0);
	await_slow();
	CHECK_EQ(careful_peer_close(c, peer), 0);
	await(c, &o);
	begun = writes_by_now();
	CHECK_EQ(o.result.status, -ECONNRESET);
	CHECK_EQ(asked(c, peer, "again"), 0);
	CHECK_EQ(writes_by_now(), begun);
	CHECK_EQ(careful_close(c), 0);
	await_programs(0);
	speed_up();
}

/* Returns the peer's state at carefuld. */
static uint32_t state_of_peer(uint32_t peer)
{
	struct careful_peer_info info = { 0 };

	pthread_mutex_lock(&lock);
	careful_peer_info(node[0], peer, &info);
	pthread_mutex_unlock(&lock);
	return info.state;
}

/* Returns the daemon's number of a peer as a program names it. */
static uint32_t index_of(int peer)
{
	int index;

	pthread_mutex_lock(&lock);
	index = ipc_peer_index(server, (uint32_t)peer);
	pthread_mutex_unlock(&lock);
	CHECK(index >= 0);
	return (uint32_t)index;
}

static void set_silent(bool on)
{
	pthread_mutex_lock(&lock);
	silent = on;
	pthread_mutex_unlock(&lock);
}

static void test_close__gives_up_a_handshake_without_other_users(void)
{
	struct careful *first = attached("first"), *second = attached("second");
	const union address nobody = memory_address(1, 5);
	int peer, same;
	uint32_t index;

	set_silent(true);
	/* Only this program uses the peer; the other program does not. */
	peer = careful_peer(first, &nobody.sa, sizeof(nobody.in));
	CHECK(peer >= 0);
	index = index_of(peer);
	CHECK_EQ(state_of_peer(index), CAREFUL_PEER_CONNECTING);
	CHECK_EQ(careful_peer_close(first, (uint32_t)peer), 0);
	CHECK_EQ(state_of_peer(index), CAREFUL_PEER_NONE);
	/* Both programs use the peer: it is closed with the second. */
	peer = careful_peer(first, &nobody.sa, sizeof(nobody.in));
	same = careful_peer(second, &nobody.sa, sizeof(nobody.in));
	CHECK(peer >= 0);
	CHECK_EQ(same, peer);
	index = index_of(peer);
	CHECK_EQ(careful_peer_close(first, (uint32_t)peer), 0);
	CHECK_EQ(state_of_peer(index), CAREFUL_PEER_CONNECTING);
	CHECK_EQ(careful_peer_close(second, (uint32_t)peer), 0);
	CHECK_EQ(state_of_peer(index), CAREFUL_PEER_NONE);
	set_silent(false);
	CHECK_EQ(careful_close(first), 0);
	CHECK_EQ(careful_close(second), 0);
	await_programs(0);
}

/* A program dies while operations are under way; another program is not affected. */
static void test_death__leaves_nothing(void)
{
	struct careful *other = attached("lives");
	uint32_t peer = peer_of(other);

	for (int round = 0; round < 5; round++) {
		struct careful *c = attached("dies");
		struct careful_region region = {
			.bytes = 4096,
			.access = CAREFUL_REGION_WRITE | CAREFUL_REGION_READ,
			.peer = CAREFUL_ANY_PEER,
		};
		static uint8_t bytes[300000];
		const struct careful_span span = { .base = bytes, .fd = -1 };
		struct service s = { 0 };
		static struct outcome o;
		uint32_t key;

		o = (struct outcome){ 0 };
		peer_of(c);
		CHECK_EQ(careful_memory(c, 4096, &region.span.base), 0);
		CHECK_EQ(careful_region_add(c, &region, &key), 0);
		CHECK_EQ(careful_handle(c, LATE, on_ours, &s), 0);
		ask_program(LATE, &o);
		await_count(c, &s.asked, 1);
		for (int i = 0; i < round; i++) {
			careful_store(c, peer, table_key, 0, &span, sizeof(bytes), CAREFUL_HANDLERS,
				      NULL, 0, on_done, NULL);
			careful_request(c, peer, ECHO, NULL, bytes, 1000, on_done, NULL);
			careful_get(c, peer, table_key, 0, &span, sizeof(bytes), 0, on_done, NULL);
		}
		careful_close(c);
		await(other, &o);
		CHECK_EQ(o.result.status, -ECONNRESET);
		CHECK_EQ(asked(other, peer, "still here"), 0);
	}
	await_programs(1);
	pthread_mutex_lock(&lock);
	CHECK_EQ(node[0]->operations_free_count, 256);
	for (uint32_t i = 0; i < node[0]->limits.regions; i++)
		CHECK(!node[0]->regions[i].key);
	pthread_mutex_unlock(&lock);
	careful_close(other);
	await_programs(0);
}

/* Requests that the other host holds without an answer. */
static struct careful_reply_to held[CAREFUL_RING_OPERATIONS];
static uint32_t held_count;

static void hold(const struct careful_message *message, void *user)
{
	(void)user;
	CHECK(held_count < CAREFUL_RING_OPERATIONS);
	careful_reply_name(message, &held[held_count++]);
}

static void handle_there(uint16_t handler, careful_handler_fn *fn)
{
	pthread_mutex_lock(&lock);
	held_count = 0;
	CHECK_EQ(careful_handle(node[1], handler, fn, NULL), 0);
	pthread_mutex_unlock(&lock);
}

/* After a program has died, nothing of it waits for a silent peer. */
static void test_death__before_its_answers(void)
{
	struct careful *c = attached("dies"), *other = attached("lives");
	const uint32_t peer = peer_of(c), same = peer_of(other);
	uint32_t clients = 2, operations = 0;

	handle_there(LATE, hold);
	for (int i = 0; i < CAREFUL_RING_OPERATIONS; i++)
		CHECK_EQ(careful_request(c, peer, LATE, NULL, NULL, 0, on_done, NULL), 0);
	for (int i = 0; i < PATIENCE_MS && operations != CAREFUL_RING_OPERATIONS; i++) {
		CHECK(careful_wait(other, 1, -1) >= 0);
		operations = __atomic_load_n(&held_count, __ATOMIC_RELAXED);
	}
	CHECK_EQ(operations, CAREFUL_RING_OPERATIONS);
	careful_close(c);
	for (int i = 0; i < PATIENCE_MS && clients != 1; i++) {
		CHECK(careful_wait(other, 1, -1) >= 0);
		pthread_mutex_lock(&lock);
		clients = server->clients_count;
		operations = 256 - node[0]->operations_free_count;
		pthread_mutex_unlock(&lock);
	}
	CHECK_EQ(clients, 1);
	CHECK_EQ(operations, 0);
	/* Late answers have no effect. */
	pthread_mutex_lock(&lock);
	for (uint32_t i = 0; i < held_count; i++)
		careful_reply_late(node[1], &held[i], 0, NULL, "late", 4);
	pthread_mutex_unlock(&lock);
	CHECK_EQ(asked(other, same, "still here"), 0);
	handle_there(LATE, NULL);
	careful_close(other);
	await_programs(0);
}

/* All operations that a program may have under way are stores of the largest size. A later request
 * does not wait for them, and another store waits only for its share of them. */
static void test_share__of_stores(void)
{
	enum { EACH = TABLE_BYTES, SHARE = IPC_PROGRAM_BYTES / EACH, FEW = 4 };
	static struct outcome stores[CAREFUL_RING_OPERATIONS - FEW], asks[FEW], own;
	struct careful *c = attached("floods"), *other = attached("lives");
	const uint32_t peer = peer_of(c), same = peer_of(other);
	struct careful_span span = { .fd = -1 };
	struct ipc_program *p, *q;
	uint64_t before, told;

	memset(stores, 0, sizeof(stores));
	memset(asks, 0, sizeof(asks));
	own = (struct outcome){ 0 };
	CHECK_EQ(careful_memory(c, EACH, &span.base), 0);
	pthread_mutex_lock(&lock); /* the turns are ours */
	p = program("floods");
	q = program("lives");
	CHECK(p && q);
	before = p->info.told;
	for (size_t i = 0; i < sizeof(stores) / sizeof(stores[0]); i++)
		CHECK_EQ(careful_store(c, peer, table_key, 0, &span, EACH, CAREFUL_HANDLERS, NULL,
				       0, on_done, &stores[i]),
			 0);
	for (int i = 0; i < FEW; i++)
		CHECK_EQ(careful_request(c, peer, ECHO, NULL, "hello", 5, on_done, &asks[i]), 0);
	for (int i = 0; i < PATIENCE_MS && p->info.told < before + FEW; i++)
		turn();
	CHECK(p->ops_used > CAREFUL_RING_OPERATIONS / 2);
	for (int i = 0; i < PATIENCE_MS && p->info.told < before + 2 * SHARE; i++) {
		turn();
		CHECK(p->moving <= IPC_PROGRAM_BYTES);
	}
	before = p->info.told;
	told = q->info.told;
	CHECK_EQ(careful_store(other, same, table_key, 0, &span, 1, CAREFUL_HANDLERS, NULL, 0,
			       on_done, &own),
		 0);
	for (int i = 0; i < PATIENCE_MS && q->info.told == told; i++)
		turn();
	CHECK(p->info.told - before <= SHARE + 2);
	pthread_mutex_unlock(&lock);
	await(other, &own);
	CHECK_EQ(own.result.status, 0);
	for (size_t i = 0; i < sizeof(stores) / sizeof(stores[0]); i++) {
		await(c, &stores[i]);
		CHECK_EQ(stores[i].result.status, 0);
	}
	for (int i = 0; i < FEW; i++)
		CHECK_EQ(asks[i].done, 1);
	/* Operations under way end; waiting ones go with the program. */
	for (int i = 0; i < FEW; i++)
		CHECK_EQ(careful_store(c, peer, table_key, 0, &span, EACH, CAREFUL_HANDLERS, NULL,
				       0, on_done, &stores[i]),
			 0);
	careful_close(c);
	careful_close(other);
	await_programs(0);
	pthread_mutex_lock(&lock);
	CHECK_EQ(node[0]->operations_free_count, 256);
	pthread_mutex_unlock(&lock);
}

/* A program that sends one-way requests all the time takes few turns from another, and no larger
 * share of the room for waiting requests. */
static void test_share__of_requests(void)
{
	struct careful *c = attached("floods"), *other = attached("lives");
	const uint32_t peer = peer_of(c), same = peer_of(other);
	struct careful_ring_entry *asks = c->attached->asks;
	struct ipc_program *p;
	uint32_t taken, most = 0;

	pthread_mutex_lock(&lock); /* the turns are ours */
	p = program("floods");
	CHECK(p);
	for (uint32_t i = 0; i < CAREFUL_RING_ASKS; i++)
		asks[i] = (struct careful_ring_entry){ .kind = CAREFUL_RING_REQUEST,
						       .peer = peer,
						       .handler = OURS };
	silent = true;
	for (int i = 0; i < 1000; i++) {
		taken = p->asks_taken;
		__atomic_store_n(&c->attached->area->asks_put.value, taken + CAREFUL_RING_ASKS,
				 __ATOMIC_RELEASE);
		turn();
		most = p->asks_taken - taken > most ? p->asks_taken - taken : most;
		CHECK(node[0]->messages.peers[0].parked <= CAREFUL_RING_OPERATIONS);
	}
	CHECK(most && most <= 8);
	silent = false;
	pthread_mutex_unlock(&lock);
	CHECK_EQ(asked(other, same, "hello"), 0);
	careful_close(c);
	careful_close(other);
	await_programs(0);
}

/* Requests for a stalled program are refused until it reads again, also those under way. */
static void test_stall__requests_for_it_end(void)
{
	static struct outcome o, waits, own[CAREFUL_RING_OPERATIONS];
	struct careful *c = attached("sleeps"), *other = attached("wakes");
	const uint32_t peer = peer_of(c);
	struct service s = { 0 };
	struct ipc_program *p;
	uint32_t unread = 0, news = 0;

	o = (struct outcome){ 0 };
	peer_of(other);
	CHECK_EQ(careful_handle(c, OURS, on_ours, &s), 0);
	ask_program(OURS, &o);
	for (int i = 0; i < 20; i++)
		CHECK(careful_wait(other, 1, -1) >= 0);
	CHECK(!o.done);
	pthread_mutex_lock(&lock);
	p = program("sleeps");
	CHECK(p && !p->stalled);
	p->read_ns -= (IPC_STALL_MS + 1000) * 1000000ull;
	pthread_mutex_unlock(&lock);
	await(other, &o);
	CHECK_EQ(o.result.status, -ETIMEDOUT);
	o.done = 0;
	ask_program(OURS, &o);
	await(other, &o);
	CHECK_EQ(o.result.status, -ETIMEDOUT);
	await_count(c, &s.asked, 1); /* reported before; its answer has no effect */
	for (int i = 0; i < 20; i++)
		CHECK(careful_wait(c, 1, -1) >= 0);
	o.done = 0;
	ask_program(OURS, &o);
	await(c, &o);
	CHECK_EQ(o.result.status, 0);
	/* This program reads nothing while many one-way requests arrive. Others still have room. */
	for (int sent = 0; sent < CAREFUL_RING_NOTES;) {
		pthread_mutex_lock(&lock);
		sent += !careful_request(node[1], 0, OURS, NULL, "hello", 5, NULL, NULL);
		pthread_mutex_unlock(&lock);
	}
	waits = (struct outcome){ 0 };
	ask_program(OURS, &waits);
	for (int i = 0; i < PATIENCE_MS && p->answers_used != 1; i++)
		CHECK(careful_wait(other, 1, -1) >= 0);
	CHECK_EQ(p->answers_used, 1);
	/* Its ring is full; nothing is overwritten. */
	pthread_mutex_lock(&lock);
	for (uint32_t room = 0; room != 64; room = ipc_ring_room(p), news++)
		ipc_ring_put(p, &(struct careful_ring_entry){ .kind = CAREFUL_RING_PEER }, NULL);
	pthread_mutex_unlock(&lock);
	o.done = 0;
	ask_program(OURS, &o);
	await(other, &o);
	CHECK_EQ(o.result.status, -EBUSY);
	/* Ends of later operations overwrite nothing either. */
	memset(own, 0, sizeof(own));
	for (int i = 0; i < CAREFUL_RING_OPERATIONS; i++)
		CHECK_EQ(careful_request(c, peer, ECHO, NULL, "hello", 5, on_done, &own[i]), 0);
	for (int i = 0, over = 0; i < PATIENCE_MS && !over; i++) {
		usleep(200);
		pthread_mutex_lock(&lock);
		over = p->asks_taken == c->attached->asks_put && !p->ops_used;
		unread = p->notes_put - c->attached->notes_taken;
		pthread_mutex_unlock(&lock);
	}
	CHECK(unread <= CAREFUL_RING_NOTES);
	s.asked = 0;
	for (int i = 0; i < PATIENCE_MS && careful_wait(c, 1, -1) > 0; i++)
		;
	for (int i = 0; i < CAREFUL_RING_OPERATIONS; i++)
		CHECK_EQ(own[i].done, 1);
	CHECK(s.asked > CAREFUL_RING_NOTES / 2);
	CHECK_EQ(s.asked + CAREFUL_RING_OPERATIONS + news, unread);
	await(c, &waits);
	careful_close(c);
	careful_close(other);
	await_programs(0);
}

/* A program with a full ring can still begin operations before it finishes the first message. */
struct fullest {
	struct careful *c;
	uint32_t peer;
	struct ipc_program *p;
	struct outcome later;
	int done;
};

static uint32_t unread(const struct fullest *f)
{
	return f->p->notes_put - f->c->attached->notes_taken;
}

static void on_first(const struct careful_result *result, void *user)
{
	struct fullest *f = user;
	uint32_t answered = 0;

	CHECK_EQ(careful_request(f->c, f->peer, LATE, NULL, NULL, 0, on_done, &f->later), 0);
	for (int i = 0; i < PATIENCE_MS && unread(f) < CAREFUL_RING_NOTES; i++) {
		pthread_mutex_lock(&lock);
		while (answered < held_count &&
		       !careful_reply_late(node[1], &held[answered], 0, NULL, "other", 5))
			answered++;
		pthread_mutex_unlock(&lock);
		usleep(1000);
	}
	CHECK_EQ(unread(f), CAREFUL_RING_NOTES);
	CHECK_EQ(result->bytes, 5);
	CHECK(!memcmp(result->payload, "first", 5));
	f->done = 1;
}

static void test_rings__full_to_the_last_place(void)
{
	const struct careful_ring_entry news = { .kind = CAREFUL_RING_PEER };
	static struct outcome others;
	static struct fullest f;
	uint32_t room = 1;

	f = (struct fullest){ .c = attached("full") };
	others = (struct outcome){ 0 };
	f.peer = peer_of(f.c);
	f.p = program("full");
	while (attached_poll(f.c) > 0)
		;
	handle_there(LATE, hold);
	CHECK_EQ(careful_request(f.c, f.peer, ECHO, NULL, "first", 5, on_first, &f), 0);
	for (int i = 1; i < CAREFUL_RING_OPERATIONS; i++)
		CHECK_EQ(careful_request(f.c, f.peer, LATE, NULL, NULL, 0, on_done, &others), 0);
	for (int i = 0; i < PATIENCE_MS && !unread(&f); i++)
		usleep(1000);
	pthread_mutex_lock(&lock);
	for (; room; room = ipc_ring_room(f.p))
		ipc_ring_put(f.p, &news, NULL);
	pthread_mutex_unlock(&lock);
	for (int i = 0; i < PATIENCE_MS && !f.later.done; i++)
		CHECK(careful_wait(f.c, 1, -1) >= 0);
	CHECK_EQ(f.done, 1);
	CHECK_EQ(f.later.done, 1);
	CHECK_EQ(others.done, CAREFUL_RING_OPERATIONS - 1);
	handle_there(LATE, NULL);
	CHECK_EQ(careful_close(f.c), 0);
	await_programs(0);
}

struct heard {
	uint32_t peer, failed, all, last;
};

static void on_news(struct careful *c, uint32_t peer, uint32_t state, void *user)
{
	struct heard *heard = user;

	(void)c;
	CHECK_EQ(peer, heard->peer);
	heard->failed += state == CAREFUL_PEER_FAILED;
	heard->last = state;
	heard->all++;
}

/* Sessions come and go while a program pauses. It stays connected, and gets the last state. */
static void test_news__of_a_peer_that_comes_and_goes(void)
{
	struct careful *c = attached("pauses");
	struct heard heard = { .peer = peer_of(c) };
	struct ipc_program *p = program("pauses");
	uint32_t index = heard.peer & 0xffff, unread;

	CHECK_EQ(careful_peer_watch(c, on_news, &heard), 0);
	while (careful_wait(c, 1, -1) > 0)
		;
	heard = (struct heard){ .peer = heard.peer };
	pthread_mutex_lock(&lock);
	for (int i = 0; i < 2 * CAREFUL_RING_NOTES; i++) {
		ipc_programs_peer(server, index, CAREFUL_PEER_FAILED);
		ipc_programs_peer(server, index, CAREFUL_PEER_UP);
		ipc_programs_peer(server, index + 1, CAREFUL_PEER_UP);
		ipc_programs_peer(server, index + 1, CAREFUL_PEER_NONE);
	}
	unread = p->notes_put - c->attached->notes_taken;
	CHECK(!p->client->failed);
	pthread_mutex_unlock(&lock);
	CHECK(unread <= 2);
	for (int i = 0; i < PATIENCE_MS && (heard.last != CAREFUL_PEER_UP || p->news_count); i++)
		CHECK(careful_wait(c, 1, -1) >= 0);
	CHECK_EQ(heard.last, CAREFUL_PEER_UP);
	CHECK(heard.failed && heard.all <= 6);
	CHECK_EQ(careful_close(c), 0);
	await_programs(0);
}

/* Sends one-way requests until there is no room. */
static void fill(struct careful *c, uint32_t peer)
{
	int rc;

	do {
		rc = careful_request(c, peer, ECHO, NULL, "fill", 4, NULL, NULL);
	} while (!rc);
	CHECK_EQ(rc, -EAGAIN);
}

static void answer_briefly(const struct careful_message *message, void *user)
{
	/* Without room for an answer with a payload, the call fails. */
	CHECK_EQ(careful_reply(message, 0, NULL, "HELLO", 5), -EAGAIN);
	CHECK_EQ(careful_reply(message, *(int *)user, NULL, NULL, 0), 0);
	CHECK(!attached_handed_over(message->instance));
}

/* A program can answer a message without room for requests of its own. */
static void test_rings__full_of_requests(void)
{
	enum { ASKED = 3 };
	struct careful *c = attached("asks");
	const uint32_t peer = peer_of(c);
	static struct outcome o[ASKED];
	int status = EDOM;

	memset(o, 0, sizeof(o));
	CHECK_EQ(careful_handle(c, OURS, answer_briefly, &status), 0);
	while (attached_poll(c) > 0)
		;
	for (int i = 0; i < ASKED; i++)
		ask_program(OURS, &o[i]);
	pthread_mutex_lock(&lock); /* the turns are ours */
	for (int i = 0;
	     i < PATIENCE_MS && program("asks")->notes_put - c->attached->notes_taken < ASKED; i++)
		turn();
	fill(c, peer);
	CHECK_EQ(attached_poll(c), ASKED);
	CHECK_EQ(c->attached->owed_count, ASKED);
	pthread_mutex_unlock(&lock);
	for (int i = 0; i < ASKED; i++) {
		await(c, &o[i]);
		CHECK_EQ(o[i].result.status, -EDOM);
	}
	CHECK_EQ(c->attached->owed_count, 0);
	careful_close(c);
	await_programs(0);
}

/* A program that found no room is woken when there is room. */
static void test_rings__tell_of_room(void)
{
	struct careful *c = attached("streams");
	const uint32_t peer = peer_of(c);
	struct pollfd pfd = { .events = POLLIN };
	int timeout_ms;

	while (attached_poll(c) > 0)
		;
	pthread_mutex_lock(&lock); /* carefuld takes nothing */
	fill(c, peer);
	CHECK_EQ(careful_wait_fds(c, &pfd.fd, 1, &timeout_ms), 1);
	CHECK(timeout_ms > 0);
	pthread_mutex_unlock(&lock);
	CHECK_EQ(poll(&pfd, 1, PATIENCE_MS), 1);
	CHECK_EQ(careful_wait(c, -1, -1), 0);
	/* carefuld takes the entries before the program waits: the program is woken once. */
	fill(c, peer);
	for (int i = 0; i < PATIENCE_MS && !attached_handed_over(c); i++)
		usleep(1000);
	CHECK_EQ(careful_wait_fds(c, &pfd.fd, 1, &timeout_ms), 1);
	CHECK_EQ(timeout_ms, 0);
	CHECK_EQ(careful_wait_fds(c, &pfd.fd, 1, &timeout_ms), 1);
	CHECK(timeout_ms > 0);
	for (int i = 0; i < 100; i++) {
		fill(c, peer);
		CHECK_EQ(careful_wait(c, -1, -1), 0);
	}
	careful_close(c);
	await_programs(0);
}

/* A program's area is filled with garbage while carefuld works on it. */
static void test_rings__hold_anything(void)
{
	struct careful *good = attached("good");
	uint32_t peer = peer_of(good);
	uint64_t random = 88172645463325252ull;

	for (int round = 0; round < 20; round++) {
		struct careful *c = attached("bad");
		const size_t rings = careful_area_payloads();
		uint8_t *area = (uint8_t *)c->attached->area;

		for (int k = 0; k < 40; k++) {
			struct careful_ring_entry *e =
				&c->attached->asks[c->attached->asks_put % CAREFUL_RING_ASKS];

			/* An almost valid entry, and random bytes elsewhere. */
			random ^= random << 13, random ^= random >> 7, random ^= random << 17;
			*e = (struct careful_ring_entry){
				.kind = 1 + random % 4,
				.id = random >> 3 & 1 ? random : random & 3,
				.peer = random >> 5 & 3 ? peer : (uint32_t)random,
				.handler = random >> 8 & 0x1ff,
				.region = random >> 17 & 1 ? table_key : (uint32_t)random,
				.bytes = (uint32_t)(random >> (20 + (random & 31))),
				.flags = random >> 9 & 7,
				.status = random >> 12 & 1 ? (int32_t)random : 0,
				.memory_off = random >> (18 + (random >> 7 & 31)),
			};
			if (round % 3) {
				uint64_t at = random % rings;

				area[at] = (uint8_t)(random >> 11);
			}
			if (round % 5 == 0 && k == 20)
				for (size_t i = 0; i < rings; i += 8)
					memcpy(area + i, &random, 8);
			__atomic_store_n(&c->attached->area->asks_put.value,
					 ++c->attached->asks_put, __ATOMIC_RELEASE);
			sched_yield();
		}
		careful_close(c);
		CHECK_EQ(asked(good, peer, "still here"), 0);
	}
	await_programs(1);
	pthread_mutex_lock(&lock);
	CHECK_EQ(node[0]->operations_free_count, 256);
	CHECK_EQ(node[0]->link.counters[CAREFUL_C_EPOCHS_BROKEN], 0);
	pthread_mutex_unlock(&lock);
	careful_close(good);
	await_programs(0);
}

static void test_rings__a_count_beyond_the_ring_ends_the_program(void)
{
	struct careful *c = attached("lies");

	__atomic_store_n(&c->attached->area->asks_put.value, 1u << 31, __ATOMIC_RELEASE);
	await_programs(0);
	for (int i = 0; i < PATIENCE_MS && careful_wait(c, 1, -1) != -ENOTCONN; i++)
		;
	CHECK_EQ(careful_wait(c, 1, -1), -ENOTCONN);
	careful_close(c);
}

/* Joins a group at the other host, which has its own queue. */
static struct careful_events *join_there(uint32_t me)
{
	const struct careful_events_options options = {
		.group = 3, .nodes = 2, .rank = 1, .peers = &me, .requests = 1
	};
	struct careful_events *ev = NULL;

	pthread_mutex_lock(&lock);
	CHECK_EQ(careful_events_open(node[1], &options, &ev), 0);
	pthread_mutex_unlock(&lock);
	return ev;
}

static int join_here(struct careful *c, uint32_t peer, struct careful_events **ev)
{
	const uint32_t peers[2] = { 0, peer };
	const struct careful_events_options options = { .group = 3, .nodes = 2, .peers = peers };

	return careful_events_open(c, &options, ev);
}

static void close_there(struct careful_events *ev)
{
	pthread_mutex_lock(&lock);
	careful_events_close(ev, 0, 0);
	pthread_mutex_unlock(&lock);
}

/* Returns the other end's status of a group when it is no longer -EAGAIN. */
static int received_there(struct careful *c, struct careful_events *ev, uint64_t event,
			  const void *data, uint32_t bytes)
{
	struct careful_event_fragment got;
	int rc = -EAGAIN;

	for (int i = 0; i < PATIENCE_MS && rc == -EAGAIN; i++) {
		CHECK(careful_wait(c, 1, -1) >= 0);
		pthread_mutex_lock(&lock);
		rc = careful_event_receive(ev, CAREFUL_EVENT_ALL, event, &got, 0);
		if (!rc) {
			CHECK_EQ(got.bytes, bytes);
			CHECK(!memcmp(got.data, data, bytes));
		}
		pthread_mutex_unlock(&lock);
	}
	return rc;
}

static int sent_there(struct careful *c, struct careful_events *ev, uint64_t event,
		      const void *data, uint32_t bytes)
{
	int rc = -EAGAIN;

	for (int i = 0; i < PATIENCE_MS && rc == -EAGAIN; i++) {
		CHECK(careful_wait(c, 1, -1) >= 0);
		pthread_mutex_lock(&lock);
		rc = careful_event_send(ev, 0, event, data, bytes, CAREFUL_EVENT_F_LAST, 0);
		pthread_mutex_unlock(&lock);
	}
	return rc;
}

/* Sends 400 messages, more at once than may be under way; each is answered. */
static void play(struct careful *c, struct careful_events *here, struct careful_events *there)
{
	const int most = careful_event_bytes(here);
	static uint8_t data[CAREFUL_RING_PAYLOAD_BYTES];
	struct careful_event_fragment got;

	CHECK(most > 1000 && (size_t)most < sizeof(data));
	CHECK_EQ(careful_event_send(here, 1, 0, data, (uint32_t)most + 1, CAREFUL_EVENT_F_LAST, 0),
		 -EMSGSIZE);
	for (uint64_t event = 1; event <= 400; event++) {
		memset(data, (int)event, sizeof(data));
		CHECK_EQ(careful_event_send(here, CAREFUL_EVENT_ALL, event, data, (uint32_t)most,
					    CAREFUL_EVENT_F_LAST, PATIENCE_MS),
			 0);
	}
	for (uint64_t event = 1; event <= 400; event++) {
		memset(data, (int)event, sizeof(data));
		CHECK_EQ(received_there(c, there, event, data, (uint32_t)most), 0);
		CHECK_EQ(sent_there(c, there, event, data, 100), 0);
	}
	for (uint64_t event = 1; event <= 400; event++) {
		memset(data, (int)event, sizeof(data));
		CHECK_EQ(careful_event_receive(here, 1, event, &got, PATIENCE_MS), 0);
		CHECK_EQ(got.bytes, 100);
		CHECK(!memcmp(got.data, data, 100));
	}
}

/* A group of a program here and a node at the other host with its own queue. */
static void test_events__with_a_node_that_has_a_queue(void)
{
	struct careful *c = attached("first"), *other = attached("other");
	struct careful_events *here, *second, *there;
	uint32_t peer = peer_of(c);
	struct careful_am am = { .kind = CAREFUL_AM_EVENT,
				 .flags = CAREFUL_EVENT_F_LAST,
				 .region = htobe32(3),
				 .region_off = htobe64(1u << 20) };
	struct outcome o = { 0 };
	pid_t pid;

	CHECK_EQ(peer_of(other), peer);
	there = join_there(0);
	CHECK_EQ(join_here(c, peer, &here), 0);
	CHECK_EQ(careful_events_broadcast(here), -EOPNOTSUPP);
	CHECK_EQ(join_here(c, peer, &second), -EBUSY); /* the program is in a group */
	CHECK_EQ(join_here(other, peer, &second), -EBUSY); /* the handler is taken */
	play(c, here, there);
	/* Forged and malformed messages of other programs have no effect. */
	CHECK_EQ(careful_request(other, peer, CAREFUL_HANDLERS_APP - 1 - 3, NULL, &am, sizeof(am),
				 on_done, &o),
		 0);
	await(other, &o);
	CHECK_EQ(o.result.status, -ENOSYS);
	__atomic_store_n(&other->attached->area->asks_put.value, 1u << 31, __ATOMIC_RELEASE);
	await_programs(1);
	careful_close(other);
	CHECK_EQ(careful_event_send(here, 1, 401, "x", 1, CAREFUL_EVENT_F_LAST, PATIENCE_MS), 0);
	CHECK_EQ(received_there(c, there, 401, "x", 1), 0);
	CHECK_EQ(careful_events_failed(there, NULL), 0);
	/* The end of a forked child does not end the program's part. */
	pid = fork();
	if (!pid) {
		careful_close(c);
		_exit(0);
	}
	CHECK_EQ(waitpid(pid, NULL, 0), pid);
	CHECK_EQ(careful_event_send(here, 1, 402, "x", 1, CAREFUL_EVENT_F_LAST, PATIENCE_MS), 0);
	CHECK_EQ(received_there(c, there, 402, "x", 1), 0);
	/* The program dies, and the other node detects it, although nothing was under way. */
	careful_close(c);
	c = attached("second");
	CHECK_EQ(peer_of(c), peer);
	CHECK_EQ(received_there(c, there, 403, "", 0), -ECONNRESET);
	CHECK_EQ(join_here(c, peer, &here), 0);
	close_there(there);
	there = join_there(0);
	play(c, here, there);
	/* The program leaves in the middle of an event, then for good. */
	CHECK_EQ(careful_event_send(here, 1, 500, "x", 1, CAREFUL_EVENT_F_LARGE, PATIENCE_MS), 0);
	CHECK_EQ(careful_events_close(here, 0, PATIENCE_MS), 0);
	CHECK_EQ(received_there(c, there, 501, "", 0), -ECANCELED);
	close_there(there);
	there = join_there(0);
	CHECK_EQ(join_here(c, peer, &here), 0);
	play(c, here, there);
	CHECK_EQ(careful_events_close(here, 0, PATIENCE_MS), 0);
	CHECK_EQ(received_there(c, there, 600, "", 0), -ENOMSG);
	close_there(there);
	CHECK_EQ(careful_close(c), 0);
	await_programs(0);
}

/* If the area shrank, an access of carefuld could fault. */
static void test_area__keeps_its_size(void)
{
	struct careful_ipc head = { .version = CAREFUL_IPC_VERSION,
				    .op = CAREFUL_IPC_ATTACH,
				    .id = 1,
				    .bytes = 4096,
				    .payload_bytes = 1 };
	char control[CMSG_SPACE(sizeof(int))] __attribute__((aligned(8))) = { 0 };
	char byte = 'n';
	struct iovec iov[2] = { { &head, sizeof(head) }, { &byte, 1 } };
	struct msghdr msg = { .msg_iov = iov, .msg_iovlen = 2 };
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), area;

	CHECK(!connect(fd, (struct sockaddr *)&address, sizeof(address)));
	CHECK_EQ(sendmsg(fd, &msg, 0), sizeof(head) + 1);
	msg.msg_control = control;
	msg.msg_controllen = sizeof(control);
	CHECK_EQ(recvmsg(fd, &msg, 0), sizeof(head));
	CHECK_EQ(head.status, 0);
	CHECK(CMSG_FIRSTHDR(&msg));
	memcpy(&area, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof(area));
	CHECK_EQ(ftruncate(area, 4096), -1);
	CHECK_EQ(ftruncate(area, 1 << 30), -1);
	CHECK_EQ(fcntl(area, F_ADD_SEALS, F_SEAL_WRITE), -1);
	close(area);
	/* A second attach on the same connection. */
	head = (struct careful_ipc){ .version = CAREFUL_IPC_VERSION,
				     .op = CAREFUL_IPC_ATTACH,
				     .id = 2,
				     .payload_bytes = 1 };
	CHECK_EQ(sendmsg(fd, &(struct msghdr){ .msg_iov = iov, .msg_iovlen = 2 }, 0),
		 sizeof(head) + 1);
	CHECK_EQ(recv(fd, &head, sizeof(head), 0), sizeof(head));
	CHECK_EQ(head.status, -EALREADY);
	close(fd);
	await_programs(0);
}

static void test_end__of_carefuld(void)
{
	struct careful *c = attached("outlives");
	uint32_t peer = peer_of(c);
	static struct outcome o;
	int fd, other_fd, timeout_ms;

	o = (struct outcome){ 0 };
	CHECK_EQ(careful_wait_fds(c, &fd, 1, &timeout_ms), 1);
	pthread_mutex_lock(&lock);
	CHECK_EQ(careful_request(c, peer, ECHO, NULL, NULL, 0, on_done, &o), 0);
	__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
	pthread_mutex_unlock(&lock);
	close_server();
	for (int i = 0; i < PATIENCE_MS && careful_wait(c, 1, -1) != -ENOTCONN; i++)
		;
	CHECK_EQ(o.done, 1);
	CHECK_EQ(careful_wait(c, 1, -1), -ENOTCONN);
	CHECK_EQ(careful_request(c, peer, ECHO, NULL, NULL, 0, on_done, &o), -ENOTCONN);
	CHECK_EQ(careful_peer_info(c, peer, &(struct careful_peer_info){ 0 }), -ENOTCONN);
	/* An event loop may hold the descriptor, so its number stays taken until
	 * careful_close(). */
	CHECK_EQ(careful_wait_fds(c, &other_fd, 1, &timeout_ms), 0);
	CHECK(fcntl(fd, F_GETFD) >= 0);
	CHECK_EQ(careful_close(c), 0);
	CHECK(fcntl(fd, F_GETFD) < 0 && errno == EBADF);
}

int main(void)
{
	open_all();
	RUN(test_attach__impossible_requests);
	RUN(test_attach__reports_why_carefuld_refuses);
	RUN(test_attach__waits_in_a_full_line_for_a_time);
	RUN(test_request__answers_and_failures);
	RUN(test_send__a_built_message);
	RUN(test_move__memory_of_its_own_and_other);
	RUN(test_handle__requests_of_peers);
	RUN(test_keep__outlives_its_place_in_the_ring);
	RUN(test_ping__all_stages_and_impossible_ones);
	RUN(test_region__is_served_and_goes_with_the_program);
	RUN(test_region__is_refused_while_it_is_read);
	RUN(test_close__nothing_is_written_afterwards);
	RUN(test_peer_close__ends_a_get_that_gets_nothing);
	RUN(test_status__names_each);
	RUN(test_close__gives_up_a_handshake_without_other_users);
	RUN(test_death__leaves_nothing);
	RUN(test_death__before_its_answers);
	RUN(test_share__of_stores);
	RUN(test_share__of_requests);
	RUN(test_stall__requests_for_it_end);
	RUN(test_rings__full_to_the_last_place);
	RUN(test_news__of_a_peer_that_comes_and_goes);
	RUN(test_rings__full_of_requests);
	RUN(test_rings__tell_of_room);
	RUN(test_rings__hold_anything);
	RUN(test_rings__a_count_beyond_the_ring_ends_the_program);
	RUN(test_events__with_a_node_that_has_a_queue);
	RUN(test_area__keeps_its_size);
	RUN(test_end__of_carefuld);
	close_all();
	printf("test_attach: ok\n");
	return 0;
}
