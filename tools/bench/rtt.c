// SPDX-License-Identifier: BSD-2-Clause
/*
 * Request and reply between two instances, each owning its queue and spinning on a
 * core of its own: the client prints JSON with quantiles of a round trip.
 * SIGTERM ends the server, and nothing else does: who asks may be slow to begin.
 *
 *   rtt serve IFNAME
 *   rtt ask IFNAME HOST BYTES COUNT
 *
 * In place of IFNAME, the socket of a carefuld: a program that is attached, and waits adaptively.
 * RTT_WAIT=adaptive or block: so does one that owns its queue. RTT_ASK=wait: who asks waits, too,
 * instead of polling, as where both share a core. RTT_IDLE_MS: how long nothing happens before each
 * request. In place of IFNAME, "tcp": the same over a connection of the kernel's, both ends
 * blocking.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <careful/careful.h>

#include "clock.h"

enum { ECHO = 1, WARMUP = 2000, GIVE_UP_MS = 60000, TCP_PORT = 8023, BYTES_MAX = 4096 };

static volatile sig_atomic_t ended;

static void on_signal(int number)
{
	(void)number;
	ended = 1;
}

static void on_echo(const struct careful_message *message, void *user)
{
	(void)user;
	if (careful_reply(message, 0, NULL, message->payload, message->bytes))
		abort(); /* one request at a time: there is always room */
}

static void serve(struct careful *c)
{
	careful_handle(c, ECHO, on_echo, NULL);
	printf("ready\n");
	fflush(stdout);
	while (!ended)
		careful_wait(c, 100, -1);
}

static bool waits;
static uint32_t idle_ms;
static int answered;
static int failed;

static void on_reply(const struct careful_result *result, void *user)
{
	(void)user;
	answered = 1;
	failed = result->status;
}

static int ask_once(struct careful *c, uint32_t peer, const void *payload, uint32_t bytes)
{
	int rc = careful_request(c, peer, ECHO, NULL, payload, bytes, on_reply, NULL);

	answered = 0;
	while (!rc && !answered) {
		if (waits)
			careful_wait(c, 100, -1);
		else
			careful_poll(c);
	}
	return rc ? rc : failed;
}

/* Nothing but what the engine does by itself. */
static void be_idle(struct careful *c)
{
	uint64_t now = clock_ns(), until = now + idle_ms * 1000000ull;

	for (; now < until; now = clock_ns())
		careful_wait(c, (int)((until - now) / 1000000) + 1, -1);
}

static int time_requests(struct careful *c, uint32_t peer, uint32_t bytes, uint64_t *ns,
			 uint32_t count)
{
	static uint8_t payload[BYTES_MAX];
	uint64_t limit = clock_ns() + GIVE_UP_MS * 1000000ull;
	uint32_t warmup = count < WARMUP ? count : WARMUP;
	int rc;

	if (bytes > sizeof(payload))
		return -EINVAL;
	for (uint32_t i = 0; i < count + warmup; i++) {
		uint64_t start;

		if (idle_ms && i >= warmup)
			be_idle(c);
		start = clock_ns();
		rc = ask_once(c, peer, payload, bytes);
		if (rc)
			return rc;
		if (i >= warmup)
			ns[i - warmup] = clock_ns() - start;
		if (start > limit)
			return -ETIMEDOUT;
	}
	return 0;
}

static void print(struct careful *c, uint32_t bytes, uint64_t *ns, uint32_t count)
{
	printf("{\"schema\": 1, \"request_bytes\": %u, \"count\": %u", bytes, count);
	clock_print(ns, count);
	if (c)
		clock_print_xdp(c);
	printf("}\n");
}

static int ask(struct careful *c, uint32_t peer, uint32_t bytes, uint32_t count)
{
	uint64_t *ns = calloc(count, sizeof(*ns));
	int rc = ns ? time_requests(c, peer, bytes, ns, count) : -ENOMEM;

	if (!rc)
		print(c, bytes, ns, count);
	free(ns);
	return rc;
}

/* One connection after the other; SIGTERM ends it. */
static int tcp_serve(void)
{
	const struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons(TCP_PORT) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1, with;
	uint8_t payload[BYTES_MAX];

	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) ||
	    bind(fd, (const struct sockaddr *)&at, sizeof(at)) || listen(fd, 1))
		return -errno;
	printf("ready\n");
	fflush(stdout);
	while ((with = accept(fd, NULL, NULL)) >= 0) {
		ssize_t n;

		setsockopt(with, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
		while ((n = recv(with, payload, sizeof(payload), 0)) > 0 &&
		       send(with, payload, (size_t)n, 0) == n)
			;
		close(with);
	}
	return -errno;
}

static int tcp_ask_once(int fd, uint8_t *payload, uint32_t bytes)
{
	if (send(fd, payload, bytes, 0) != (ssize_t)bytes ||
	    recv(fd, payload, bytes, MSG_WAITALL) != (ssize_t)bytes)
		return errno ? -errno : -EIO;
	return 0;
}

static int tcp_time_requests(int fd, uint32_t bytes, uint64_t *ns, uint32_t count)
{
	const uint32_t warmup = count < WARMUP ? count : WARMUP;
	uint8_t payload[BYTES_MAX] = { 0 };
	int rc = bytes > sizeof(payload) ? -EINVAL : 0;

	for (uint32_t i = 0; !rc && i < count + warmup; i++) {
		uint64_t start;

		if (i >= warmup)
			usleep(idle_ms * 1000);
		start = clock_ns();
		rc = tcp_ask_once(fd, payload, bytes);
		if (i >= warmup)
			ns[i - warmup] = clock_ns() - start;
	}
	return rc;
}

static int tcp_ask(struct sockaddr_in *to, uint32_t bytes, uint32_t count)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1, rc;
	uint64_t *ns = calloc(count, sizeof(*ns));

	to->sin_port = htons(TCP_PORT);
	if (fd < 0 || connect(fd, (const struct sockaddr *)to, sizeof(*to)) ||
	    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)))
		rc = -errno;
	else
		rc = ns ? tcp_time_requests(fd, bytes, ns, count) : -ENOMEM;
	if (!rc)
		print(NULL, bytes, ns, count);
	free(ns);
	close(fd);
	return rc;
}

static int open_one(const char *where, struct careful **c, struct careful_error *error)
{
	const char *wait = getenv("RTT_WAIT");
	struct careful_options options = {
		.ifname = where,
		.instance = getenv("CAREFUL_INSTANCE"),
		.wait_mode = wait && !strcmp(wait, "adaptive") ? CAREFUL_WAIT_ADAPTIVE :
			     wait && !strcmp(wait, "block")    ? CAREFUL_WAIT_BLOCK :
								 CAREFUL_WAIT_SPIN,
		.xdp_mode = clock_xdp_mode(),
		.protocol = clock_protocol(),
	};
	const struct careful_attach_options attach = {
		.path = where,
		.name = "rtt",
		.wait_mode = CAREFUL_WAIT_ADAPTIVE,
	};

	return where[0] == '/' ? careful_attach(&attach, c, error) :
				 careful_open(&options, c, error);
}

static int usage(void)
{
	fprintf(stderr, "usage: rtt serve IFNAME|SOCKET|tcp\n"
			"       rtt ask IFNAME|SOCKET|tcp HOST BYTES COUNT\n");
	return 2;
}

int main(int argc, char **argv)
{
	const char *idle = getenv("RTT_IDLE_MS");
	struct sockaddr_in to = { .sin_family = AF_INET };
	struct careful_error error;
	struct careful *c;
	int asks = argc == 6 && !strcmp(argv[1], "ask");
	int rc = 0, peer;

	if ((!asks && (argc != 3 || strcmp(argv[1], "serve") != 0)) ||
	    (asks && inet_pton(AF_INET, argv[3], &to.sin_addr) != 1))
		return usage();
	waits = getenv("RTT_ASK");
	idle_ms = idle ? (uint32_t)atoi(idle) : 0;
	if (!strcmp(argv[2], "tcp")) {
		rc = asks ? tcp_ask(&to, (uint32_t)atoi(argv[4]), (uint32_t)atoi(argv[5])) :
			    tcp_serve();
		if (rc)
			fprintf(stderr, "rtt: tcp: %s\n", strerror(-rc));
		return rc ? 1 : 0;
	}
	if (!asks)
		signal(SIGTERM, on_signal);
	rc = open_one(argv[2], &c, &error);
	if (rc) {
		fprintf(stderr, "rtt: %s\n", error.text);
		return 1;
	}
	if (!asks) {
		serve(c);
	} else {
		peer = careful_peer(c, (struct sockaddr *)&to, sizeof(to));
		rc = peer < 0 ? peer :
				ask(c, (uint32_t)peer, (uint32_t)atoi(argv[4]),
				    (uint32_t)atoi(argv[5]));
	}
	if (rc)
		fprintf(stderr, "rtt: %s\n", strerror(-rc));
	careful_close(c);
	return rc ? 1 : 0;
}
