// SPDX-License-Identifier: BSD-2-Clause
/*
 * Measures what it costs a program to share an interface. carefuld's socket and rings run in a
 * thread that spins, over two engines joined in memory; the program runs in another. Prints JSON,
 * ns:
 *
 *   own       a request and its reply, by the thread that has the engines
 *   attached  the same, by the program
 *   rings     a request to nobody, which carefuld answers at once: there and back, no engine
 *   handover  half of that
 *
 *   attach COUNT [BYTES]
 *
 * Two CPUs are wanted that nobody else uses: each thread is pinned to one of them.
 */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <careful/careful.h>
#include <careful/ipc.h>

#include "clock.h"
#include "daemon/ipc.h"
#include "memory.h"
#include "engine/engine.h"

enum {
	ECHO = 1,
	WARMUP_MAX = 1000,
	EVENTS = 8,
	LOOKS = 64, /* rounds between two looks at the socket, as carefuld has */
	NOBODY = 1 << 16,
	COUNT_MAX = 10000000,
};

static struct memory ends[2];
static struct careful *node[2];
static struct ipc *server;
static struct sockaddr_un address = { .sun_family = AF_UNIX };
static int listen_fd, epoll_fd;
static int stop;
static int done, status;
static uint8_t payload[CAREFUL_RING_PAYLOAD_BYTES];

static void give_up(const char *what)
{
	fprintf(stderr, "attach: %s\n", what);
	unlink(address.sun_path);
	exit(1);
}

static void poll_engines(void)
{
	for (int side = 0; side < 2; side++) {
		ends[side].now_ns = clock_ns();
		careful_poll(node[side]);
	}
}

static void look(void)
{
	struct epoll_event events[EVENTS];
	int n = epoll_wait(epoll_fd, events, EVENTS, 0);

	for (int i = 0; i < n; i++) {
		struct ipc_event *event = events[i].data.ptr;

		event->handle(event, events[i].events);
	}
	ipc_poll(server);
}

static void pin(int nth)
{
	cpu_set_t all, one;

	CPU_ZERO(&one);
	if (sched_getaffinity(0, sizeof(all), &all) || CPU_COUNT(&all) < 2)
		return;
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		if (CPU_ISSET((size_t)cpu, &all) && nth-- == 0)
			CPU_SET((size_t)cpu, &one);
	}
	pthread_setaffinity_np(pthread_self(), sizeof(one), &one);
}

static void *carefuld(void *unused)
{
	(void)unused;
	pin(1);
	for (uint32_t i = 0; !__atomic_load_n(&stop, __ATOMIC_RELAXED); i++) {
		poll_engines();
		if (i % LOOKS == 0)
			look();
	}
	return NULL;
}

static void on_echo(const struct careful_message *message, void *user)
{
	(void)user;
	if (careful_reply(message, 0, NULL, message->payload, message->bytes))
		abort();
}

static void on_done(const struct careful_result *result, void *user)
{
	(void)user;
	status = result->status;
	done = 1;
}

static void open_all(void)
{
	const struct careful_options options = { 0 };
	union address to = memory_address(1, 0);
	struct careful_peer_info info = { 0 };

	memory_init(ends, MEMORY_RX);
	for (int side = 0; side < 2; side++) {
		ends[side].now_ns = clock_ns();
		node[side] = memory_open(&ends[side], &options);
	}
	careful_handle(node[1], ECHO, on_echo, NULL);
	careful_peer(node[0], &to.sa, sizeof(to.in));
	while (info.state != CAREFUL_PEER_UP) {
		poll_engines();
		careful_peer_info(node[0], 0, &info);
	}
	snprintf(address.sun_path, sizeof(address.sun_path), "/tmp/careful-bench.%d", getpid());
	listen_fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (bind(listen_fd, (struct sockaddr *)&address, sizeof(address)) || listen(listen_fd, 1) ||
	    ipc_create(node[0], listen_fd, epoll_fd, &server))
		give_up("no socket");
}

static void once(struct careful *c, uint32_t peer, uint32_t bytes, void (*poll)(struct careful *c))
{
	done = 0;
	if (careful_request(c, peer, ECHO, NULL, payload, bytes, on_done, NULL))
		give_up("a request was refused");
	while (!done)
		poll(c);
}

static void poll_own(struct careful *c)
{
	(void)c;
	poll_engines();
}

static void poll_attached(struct careful *c)
{
	if (careful_poll(c) < 0)
		give_up("carefuld is gone");
}

/* The median of so many, which others' turns on the CPU do not move. */
static double median(struct careful *c, uint32_t peer, uint32_t bytes, uint32_t count,
		     void (*poll)(struct careful *c), int wanted)
{
	const uint32_t warmup = count < WARMUP_MAX ? count : WARMUP_MAX;
	uint64_t *ns = malloc(count * sizeof(*ns));
	double middle;

	if (!ns)
		give_up("out of memory");
	for (uint32_t i = 0; i < count + warmup; i++) {
		uint64_t began_ns = clock_ns();

		once(c, peer, bytes, poll);
		if (status != wanted)
			give_up(strerror(-status));
		if (i >= warmup)
			ns[i - warmup] = clock_ns() - began_ns;
	}
	middle = clock_quantile(ns, count, 50);
	free(ns);
	return middle;
}

int main(int argc, char **argv)
{
	const struct careful_attach_options options = { .path = address.sun_path, .name = "bench" };
	uint32_t count = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 0;
	uint32_t bytes = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : 64;
	double own_ns, attached_ns, rings_ns;
	struct careful_error error;
	struct careful *c = NULL;
	pthread_t thread;

	if (!count || count > COUNT_MAX || bytes > sizeof(payload) / 2) {
		fprintf(stderr, "usage: attach COUNT [BYTES]\n");
		return 2;
	}
	open_all();
	own_ns = median(node[0], 0, bytes, count, poll_own, 0);
	if (pthread_create(&thread, NULL, carefuld, NULL))
		give_up("no thread");
	if (careful_attach(&options, &c, &error))
		give_up(error.text);
	pin(0);
	attached_ns = median(c, 0, bytes, count, poll_attached, 0);
	rings_ns = median(c, NOBODY, bytes, count, poll_attached, -ENOTCONN);
	printf("{\"schema\": 1, \"what\": \"attach\", \"count\": %u, \"bytes\": %u, \"own_ns\": %.0f, "
	       "\"attached_ns\": %.0f, \"rings_ns\": %.0f, \"handover_ns\": %.0f}\n",
	       count, bytes, own_ns, attached_ns, rings_ns, rings_ns / 2);
	careful_close(c);
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
	pthread_join(thread, NULL);
	careful_close(node[0]);
	ipc_destroy(server);
	careful_close(node[1]);
	memory_deinit(ends);
	close(listen_fd);
	close(epoll_fd);
	unlink(address.sun_path);
	return 0;
}
