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
 * instead of polling, as where both share a core.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <careful/careful.h>

#include "clock.h"

enum { ECHO = 1, WARMUP = 2000, GIVE_UP_MS = 60000 };

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

static int time_requests(struct careful *c, uint32_t peer, uint32_t bytes, uint64_t *ns,
			 uint32_t count)
{
	static uint8_t payload[4096];
	uint64_t limit = clock_ns() + GIVE_UP_MS * 1000000ull;
	uint32_t warmup = count < WARMUP ? count : WARMUP;
	int rc;

	if (bytes > sizeof(payload))
		return -EINVAL;
	for (uint32_t i = 0; i < count + warmup; i++) {
		uint64_t start = clock_ns();

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

static int ask(struct careful *c, uint32_t peer, uint32_t bytes, uint32_t count)
{
	uint64_t *ns = calloc(count, sizeof(*ns));
	int rc = ns ? time_requests(c, peer, bytes, ns, count) : -ENOMEM;

	if (!rc) {
		printf("{\"schema\": 1, \"request_bytes\": %u, \"count\": %u", bytes, count);
		clock_print(ns, count);
		printf("}\n");
	}
	free(ns);
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
	fprintf(stderr, "usage: rtt serve IFNAME|SOCKET\n"
			"       rtt ask IFNAME|SOCKET HOST BYTES COUNT\n");
	return 2;
}

int main(int argc, char **argv)
{
	struct sockaddr_in to = { .sin_family = AF_INET };
	struct careful_error error;
	struct careful *c;
	int asks = argc == 6 && !strcmp(argv[1], "ask");
	int rc = 0, peer;

	if ((!asks && (argc != 3 || strcmp(argv[1], "serve") != 0)) ||
	    (asks && inet_pton(AF_INET, argv[3], &to.sin_addr) != 1))
		return usage();
	if (!asks)
		signal(SIGTERM, on_signal);
	waits = getenv("RTT_ASK");
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
