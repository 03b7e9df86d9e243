// SPDX-License-Identifier: BSD-2-Clause
/*
 * Times transfers from memory to memory between two instances. Each owns its queue and spins on a
 * core of its own. The client prints JSON. SIGTERM ends the server, and nothing else does.
 *
 *   passes serve IFNAME
 *   passes trips IFNAME HOST BYTES COUNT    as many bytes there and back, by stores
 *   passes stream IFNAME HOST BYTES MS      stores of so many, one after the other
 *   passes small IFNAME HOST BYTES MS       requests of so many that want no reply, a frame each
 *   passes packed IFNAME HOST BYTES MS      the same, 64 between two polls, which share frames
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

enum {
	MEET = 1, /* a request: here is my region; the reply: here is mine, and what came so far */
	SMALL = 2, /* a request that wants no reply */
	THERE = 1, /* a store that is stored back */
	BACK = 2, /* that was */
	ROOM = 4 << 20, /* bytes at each end */
	UNDER_WAY = 4, /* stores of a stream */
	ROUND_ALONE = 8, /* requests between two polls, */
	ROUND_PACKED = 64, /* and where they share frames */
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

static void on_signal(int number)
{
	(void)number;
	ended = 1;
}

static void fail(const char *what, int rc)
{
	fprintf(stderr, "passes: %s: %s\n", what, strerror(-rc));
	exit(1);
}

static int store(uint32_t bytes, uint16_t handler, careful_done_fn *done, void *user)
{
	const struct careful_span span = { .base = end.source, .fd = -1 };
	uint32_t args[4] = { bytes };

	return careful_store(end.c, end.peer, end.theirs, 0, &span, bytes, handler, args,
			     CAREFUL_NO_DIGEST, done, user);
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
	int rc = store(message->args[0], BACK, NULL, NULL);

	(void)user;
	if (rc)
		fail("store back", rc);
}

static void on_back(const struct careful_message *message, void *user)
{
	(void)message;
	(void)user;
	end.came++;
}

static int met, status;

static void on_met(const struct careful_result *result, void *user)
{
	uint64_t *came = user;

	met = 1;
	status = result->status;
	end.theirs = result->args[0];
	*came = result->args[1] | (uint64_t)result->args[2] << 32;
}

/* Tells the server of us; returns what came to it so far. */
static uint64_t meet(void)
{
	uint64_t limit = clock_ns() + GIVE_UP_MS * 1000000ull, came = 0;
	uint32_t args[4] = { end.region };
	int rc;

	met = 0;
	while ((rc = careful_request(end.c, end.peer, MEET, args, NULL, 0, on_met, &came)) ==
	       -EAGAIN)
		careful_poll(end.c);
	while (!rc && !met && clock_ns() < limit)
		careful_poll(end.c);
	if (rc || !met || status)
		fail("meet", rc ? rc : met ? status : -ETIMEDOUT);
	return came;
}

static void trips(uint32_t bytes, uint32_t count)
{
	uint64_t limit = clock_ns() + GIVE_UP_MS * 1000000ull;
	uint64_t *ns = calloc(count, sizeof(*ns));

	if (!ns)
		fail("trips", -ENOMEM);
	for (uint32_t i = 0; i < count + WARMUP; i++) {
		uint64_t start = clock_ns(), before = end.came;
		int rc = store(bytes, THERE, NULL, NULL);

		while (!rc && end.came == before)
			careful_poll(end.c);
		if (rc)
			fail("store", rc);
		if (i >= WARMUP)
			ns[i - WARMUP] = clock_ns() - start;
		if (start > limit)
			fail("trips", -ETIMEDOUT);
	}
	printf("{\"schema\": 1, \"bytes\": %u, \"count\": %u", bytes, count);
	clock_print(ns, count);
	clock_print_xdp(end.c);
	printf("}\n");
	free(ns);
}

static uint32_t under_way;
static uint64_t stored;

static void on_stored(const struct careful_result *result, void *user)
{
	(void)user;
	under_way--;
	stored += result->bytes;
	if (result->status)
		fail("store", result->status);
}

static void stream(uint32_t bytes, uint32_t ms)
{
	uint64_t start = clock_ns(), until = start + ms * 1000000ull / 2, before = 0;

	for (int round = 0; round < 2; round++) { /* the first finds everything cold */
		while (clock_ns() < until || under_way) {
			while (under_way < UNDER_WAY && clock_ns() < until) {
				int rc = store(bytes, CAREFUL_HANDLERS, on_stored, NULL);

				if (rc == -EAGAIN)
					break;
				if (rc)
					fail("store", rc);
				under_way++;
			}
			careful_poll(end.c);
		}
		if (!round) {
			before = stored;
			start = clock_ns();
			until = start + ms * 1000000ull;
		}
	}
	printf("{\"schema\": 1, \"bytes\": %u, \"stream_Gbit_per_s\": %.3f", bytes,
	       (double)(stored - before) * 8 / (double)(clock_ns() - start));
	clock_print_xdp(end.c);
	printf("}\n");
}

static void small(uint32_t bytes, uint32_t ms, uint32_t each)
{
	uint64_t start = 0, until = clock_ns() + ms * 1000000ull / 2, before = 0;

	for (int round = 0; round < 2; round++) {
		for (uint64_t n = 0; n % 64 || clock_ns() < until; n++) {
			int rc;

			while ((rc = careful_request(end.c, end.peer, SMALL, NULL, end.source,
						     bytes, NULL, NULL)) == -EAGAIN)
				careful_poll(end.c);
			if (rc)
				fail("request", rc);
			if (n % each == each - 1)
				careful_poll(end.c);
		}
		if (!round) {
			before = meet(); /* behind all of them */
			start = clock_ns();
			until = start + ms * 1000000ull;
		}
	}
	before = meet() - before;
	printf("{\"schema\": 1, \"bytes\": %u, \"messages_per_s\": %.0f}\n", bytes,
	       (double)before * 1e9 / (double)(clock_ns() - start));
}

static int usage(void)
{
	fprintf(stderr, "usage: passes serve IFNAME\n"
			"       passes trips IFNAME HOST BYTES COUNT\n"
			"       passes stream|small|packed IFNAME HOST BYTES MS\n");
	return 2;
}

static void open_end(const char *ifname, bool unpacked)
{
	struct careful_options options = {
		.ifname = ifname,
		.instance = getenv("CAREFUL_INSTANCE"),
		.wait_mode = CAREFUL_WAIT_SPIN,
		.xdp_mode = clock_xdp_mode(),
		.protocol = clock_protocol(),
		.unpacked = unpacked,
	};
	struct careful_region region = {
		.span = { .base = malloc(ROOM), .fd = -1 },
		.bytes = ROOM,
		.access = CAREFUL_REGION_WRITE,
		.peer = CAREFUL_ANY_PEER,
	};
	struct careful_error error;
	int rc;

	end.source = malloc(ROOM);
	if (!end.source || !region.span.base)
		fail("memory", -ENOMEM);
	memset(end.source, 1, ROOM);
	memset(region.span.base, 1, ROOM);
	if (careful_open(&options, &end.c, &error)) {
		fprintf(stderr, "passes: %s\n", error.text);
		exit(1);
	}
	rc = careful_region_add(end.c, &region, &end.region);
	if (rc)
		fail("region", rc);
	careful_handle(end.c, MEET, on_meet, NULL);
	careful_handle(end.c, SMALL, on_small, NULL);
	careful_handle_store(end.c, THERE, on_there, NULL);
	careful_handle_store(end.c, BACK, on_back, NULL);
}

int main(int argc, char **argv)
{
	struct sockaddr_in to = { .sin_family = AF_INET };
	bool serves = argc == 3 && !strcmp(argv[1], "serve");
	uint32_t bytes = argc == 6 ? (uint32_t)atoi(argv[4]) : 0;
	uint32_t much = argc == 6 ? (uint32_t)atoi(argv[5]) : 0;
	int peer;

	if (!serves &&
	    (argc != 6 || inet_pton(AF_INET, argv[3], &to.sin_addr) != 1 || bytes > ROOM || !much))
		return usage();
	open_end(argv[2], !strcmp(argv[1], "small"));
	if (serves) {
		signal(SIGTERM, on_signal);
		printf("ready\n");
		fflush(stdout);
		while (!ended)
			careful_wait(end.c, 100, -1);
		careful_close(end.c);
		return 0;
	}
	peer = careful_peer(end.c, (struct sockaddr *)&to, sizeof(to));
	if (peer < 0)
		fail("peer", peer);
	end.peer = (uint32_t)peer;
	meet();
	if (!strcmp(argv[1], "trips"))
		trips(bytes, much);
	else if (!strcmp(argv[1], "stream"))
		stream(bytes, much);
	else if (!strcmp(argv[1], "small"))
		small(bytes, much, ROUND_ALONE);
	else if (!strcmp(argv[1], "packed"))
		small(bytes, much, ROUND_PACKED);
	else
		return usage();
	careful_close(end.c);
	return 0;
}
