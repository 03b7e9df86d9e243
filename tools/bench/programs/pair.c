// SPDX-License-Identifier: BSD-2-Clause
/*
 * Times messages from memory to memory between two instances, each with its own queue and core. The
 * client prints JSON. Only SIGTERM ends the server.
 *
 *   pair serve IFNAME
 *   pair ask IFNAME HOST BYTES COUNT      requests and replies
 *   pair trips IFNAME HOST BYTES COUNT    stores there and back
 *   pair stream IFNAME HOST BYTES MS      stores in sequence
 *   pair small IFNAME HOST BYTES MS       requests without a reply, one per frame
 *   pair packed IFNAME HOST BYTES MS      the same, 64 per poll, which share frames
 *
 * If IFNAME is the socket of a carefuld, the program attaches, waits adaptively, and can only serve
 * and ask. PAIR_WAIT: waits adaptively instead of spinning. PAIR_ASK: `ask` waits instead of
 * polling. PAIR_IDLE_MS: idle time before each request of `ask`.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <signal.h>
#include <stdbool.h>

#include "clock.h"

enum {
	ECHO = 1,
	MEET = 2, /* exchanges the regions; the reply also counts received messages */
	SMALL = 3, /* a request without a reply */
	THERE = 1, /* a store that the server stores back */
	BACK = 2, /* that was */
	ROOM = 4 << 20, /* bytes at each end */
	UNDER_WAY = 4, /* stores of a stream */
	ROUND_ALONE = 8, /* requests per poll */
	ROUND_PACKED = 64, /* and if they share frames */
	WARMUP = 2000,
	GIVE_UP_MS = 60000,
};

static struct {
	struct careful *c;
	uint32_t peer, region, theirs;
	uint8_t *source;
	uint64_t came; /* messages */
} end;

static volatile sig_atomic_t ended;
static bool waits;
static uint32_t idle_ms;
static int answered, status;

static void on_signal(int number)
{
	(void)number;
	ended = 1;
}

static void fail(const char *what, int rc)
{
	fprintf(stderr, "pair: %s: %s\n", what, strerror(-rc));
	exit(1);
}

static void must(const char *what, int rc)
{
	if (rc)
		fail(what, rc);
}

static uint64_t limit_ns(void)
{
	return clock_now_ns() + GIVE_UP_MS * 1000000ull;
}

static void print_times(uint64_t *ns, uint32_t bytes, uint32_t count)
{
	printf("{\"schema\": 1, \"bytes\": %u, \"count\": %u", bytes, count);
	clock_print(ns, count);
	clock_print_xdp(end.c);
	printf("}\n");
	free(ns);
}

static uint64_t *times(uint32_t count)
{
	uint64_t *ns = calloc(count, sizeof(*ns));

	must("memory", ns ? 0 : -ENOMEM);
	return ns;
}

/* --- requests and replies */

static void on_echo(const struct careful_message *message, void *user)
{
	(void)user;
	if (careful_reply(message, 0, NULL, message->payload, message->bytes))
		abort(); /* one request at a time: there is always room */
}

static void on_reply(const struct careful_result *result, void *user)
{
	(void)user;
	answered = 1;
	status = result->status;
}

/* The engine does the rest by itself. */
static void be_idle(void)
{
	uint64_t now = clock_now_ns(), until = now + idle_ms * 1000000ull;

	for (; now < until; now = clock_now_ns())
		careful_wait(end.c, (int)((until - now) / 1000000) + 1, -1);
}

static void ask(uint32_t bytes, uint32_t count)
{
	uint64_t *ns = times(count), limit = limit_ns();
	uint32_t warmup = count < WARMUP ? count : WARMUP;

	for (uint32_t i = 0; i < count + warmup; i++) {
		uint64_t start;

		if (idle_ms && i >= warmup)
			be_idle();
		start = clock_now_ns();
		answered = 0;
		must("request", careful_request(end.c, end.peer, ECHO, NULL, end.source, bytes,
						on_reply, NULL));
		while (!answered) {
			if (waits)
				careful_wait(end.c, 100, -1);
			else
				careful_poll(end.c);
		}
		must("request", status);
		if (i >= warmup)
			ns[i - warmup] = clock_now_ns() - start;
		must("requests", start > limit ? -ETIMEDOUT : 0);
	}
	print_times(ns, bytes, count);
}

/* --- stores */

static int store(uint32_t bytes, uint16_t handler, careful_done_fn *done)
{
	const struct careful_span span = { .base = end.source, .fd = -1 };
	uint32_t args[4] = { bytes };

	return careful_store(end.c, end.peer, end.theirs, 0, &span, bytes, handler, args,
			     CAREFUL_NO_DIGEST, done, NULL);
}

static void on_meet(const struct careful_message *message, void *user)
{
	uint32_t args[4] = { end.region, (uint32_t)end.came, (uint32_t)(end.came >> 32) };

	(void)user;
	end.peer = message->peer;
	end.theirs = message->args[0];
	if (careful_reply(message, 0, args, NULL, 0))
		abort(); /* one at a time: there is always room */
}

static void on_small(const struct careful_message *message, void *user)
{
	(void)message;
	(void)user;
	end.came++;
}

static void on_there(const struct careful_message *message, void *user)
{
	(void)user;
	must("store back", store(message->args[0], BACK, NULL));
}

static void on_met(const struct careful_result *result, void *user)
{
	uint64_t *came = user;

	answered = 1;
	status = result->status;
	end.theirs = result->args[0];
	*came = result->args[1] | (uint64_t)result->args[2] << 32;
}

/* Sends our region to the server. Returns the count of messages that it received. */
static uint64_t meet(void)
{
	uint64_t limit = limit_ns(), came = 0;
	uint32_t args[4] = { end.region };
	int rc;

	answered = 0;
	while ((rc = careful_request(end.c, end.peer, MEET, args, NULL, 0, on_met, &came)) ==
	       -EAGAIN)
		careful_poll(end.c);
	while (!rc && !answered && clock_now_ns() < limit)
		careful_poll(end.c);
	must("meet", rc ? rc : answered ? status : -ETIMEDOUT);
	return came;
}

static void trips(uint32_t bytes, uint32_t count)
{
	uint64_t *ns = times(count), limit = limit_ns();

	for (uint32_t i = 0; i < count + WARMUP; i++) {
		uint64_t start = clock_now_ns(), before = end.came;

		must("store", store(bytes, THERE, NULL));
		while (end.came == before)
			careful_poll(end.c);
		if (i >= WARMUP)
			ns[i - WARMUP] = clock_now_ns() - start;
		must("trips", start > limit ? -ETIMEDOUT : 0);
	}
	print_times(ns, bytes, count);
}

static uint32_t under_way;
static uint64_t stored;

static void on_stored(const struct careful_result *result, void *user)
{
	(void)user;
	under_way--;
	stored += result->bytes;
	must("store", result->status);
}

static void stream(uint32_t bytes, uint32_t ms)
{
	uint64_t start = clock_now_ns(), until = start + ms * 1000000ull / 2, before = 0;

	for (int round = 0; round < 2; round++) { /* the first one warms the caches */
		while (clock_now_ns() < until || under_way) {
			while (under_way < UNDER_WAY && clock_now_ns() < until) {
				int rc = store(bytes, CAREFUL_HANDLERS, on_stored);

				if (rc == -EAGAIN)
					break;
				must("store", rc);
				under_way++;
			}
			careful_poll(end.c);
		}
		if (!round) {
			before = stored;
			start = clock_now_ns();
			until = start + ms * 1000000ull;
		}
	}
	printf("{\"schema\": 1, \"bytes\": %u, \"stream_Gbit_per_s\": %.3f", bytes,
	       (double)(stored - before) * 8 / (double)(clock_now_ns() - start));
	clock_print_xdp(end.c);
	printf("}\n");
}

static void small(uint32_t bytes, uint32_t ms, uint32_t each)
{
	uint64_t start = 0, until = clock_now_ns() + ms * 1000000ull / 2, before = 0;

	for (int round = 0; round < 2; round++) {
		for (uint64_t n = 0; n % 64 || clock_now_ns() < until; n++) {
			int rc;

			while ((rc = careful_request(end.c, end.peer, SMALL, NULL, end.source,
						     bytes, NULL, NULL)) == -EAGAIN)
				careful_poll(end.c);
			must("request", rc);
			if (n % each == each - 1)
				careful_poll(end.c);
		}
		if (!round) {
			before = meet(); /* after all of them */
			start = clock_now_ns();
			until = start + ms * 1000000ull;
		}
	}
	before = meet() - before;
	printf("{\"schema\": 1, \"bytes\": %u, \"messages_per_s\": %.0f", bytes,
	       (double)before * 1e9 / (double)(clock_now_ns() - start));
	clock_print_xdp(end.c);
	printf("}\n");
}

/* --- both ends */

static void open_end(const char *where, bool unpacked)
{
	const bool attaches = where[0] == '/';
	const struct careful_options options = {
		.ifname = where,
		.instance = getenv("CAREFUL_INSTANCE"),
		.wait_mode = getenv("PAIR_WAIT") ? CAREFUL_WAIT_ADAPTIVE : CAREFUL_WAIT_SPIN,
		.xdp_mode = clock_xdp_mode(),
		.protocol = clock_protocol(),
		.unpacked = unpacked,
	};
	const struct careful_attach_options attach = {
		.path = where,
		.name = "pair",
		.wait_mode = CAREFUL_WAIT_ADAPTIVE,
	};
	static uint8_t room[2][ROOM]; /* the sent data, and the region */
	struct careful_region region = {
		.span = { .base = room[1], .fd = -1 },
		.bytes = ROOM,
		.access = CAREFUL_REGION_WRITE,
		.peer = CAREFUL_ANY_PEER,
	};
	struct careful_error error;

	end.source = room[0];
	memset(room, 1, sizeof(room));
	if (attaches ? careful_attach(&attach, &end.c, &error) :
		       careful_open(&options, &end.c, &error)) {
		fprintf(stderr, "pair: %s\n", error.text);
		exit(1);
	}
	careful_handle(end.c, ECHO, on_echo, NULL);
	if (attaches)
		return;
	must("region", careful_region_add(end.c, &region, &end.region));
	careful_handle(end.c, MEET, on_meet, NULL);
	careful_handle(end.c, SMALL, on_small, NULL);
	careful_handle_store(end.c, THERE, on_there, NULL);
	careful_handle_store(end.c, BACK, on_small, NULL);
}

static void serve(void)
{
	signal(SIGTERM, on_signal);
	printf("ready\n");
	fflush(stdout);
	while (!ended)
		careful_wait(end.c, 100, -1);
}

int main(int argc, char **argv)
{
	struct sockaddr_in to = { .sin_family = AF_INET };
	const char *what = argc > 1 ? argv[1] : "", *idle = getenv("PAIR_IDLE_MS");
	bool serves = argc == 3 && !strcmp(what, "serve");
	uint32_t bytes = argc == 6 ? (uint32_t)atoi(argv[4]) : 0;
	uint32_t much = argc == 6 ? (uint32_t)atoi(argv[5]) : 0;
	int peer;

	if ((!serves && (argc != 6 || inet_pton(AF_INET, argv[3], &to.sin_addr) != 1 ||
			 bytes > ROOM || !much)) ||
	    !strstr(" serve ask trips stream small packed ", what)) {
		fprintf(stderr, "usage: pair serve IFNAME|SOCKET\n"
				"       pair ask|trips IFNAME|SOCKET HOST BYTES COUNT\n"
				"       pair stream|small|packed IFNAME HOST BYTES MS\n");
		return 2;
	}
	waits = getenv("PAIR_ASK");
	idle_ms = idle ? (uint32_t)atoi(idle) : 0;
	open_end(argv[2], !strcmp(what, "small"));
	if (serves) {
		serve();
		careful_close(end.c);
		return 0;
	}
	peer = careful_peer(end.c, (struct sockaddr *)&to, sizeof(to));
	must("peer", peer < 0 ? peer : 0);
	end.peer = (uint32_t)peer;
	if (strcmp(what, "ask") != 0)
		meet();
	if (!strcmp(what, "ask"))
		ask(bytes, much);
	else if (!strcmp(what, "trips"))
		trips(bytes, much);
	else if (!strcmp(what, "stream"))
		stream(bytes, much);
	else
		small(bytes, much, !strcmp(what, "small") ? ROUND_ALONE : ROUND_PACKED);
	careful_close(end.c);
	return 0;
}
