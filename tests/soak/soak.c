// SPDX-License-Identifier: BSD-2-Clause
/*
 * Endless requests, stores and gets between two instances that own their queues. The receiver
 * compares each byte.
 *
 *   soak serve IFNAME                 until a client is done
 *   soak send IFNAME HOST FRAMES      until this many frames crossed, in both directions
 *
 * `send` prints a JSON line each second, and at the end one with all counters; SIGINT and SIGTERM
 * end it too. `serve` prints its counters at its end; SIGTERM ends it. The exit status is 1 if data
 * was damaged or out of order, or an operation failed; then standard error has the reason.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <signal.h>

#include "clock.h"

enum {
	HELLO = 1, /* the answer has the keys of both regions */
	ECHO = 2,
	STORED = 3,
	BYE = 4,
	BULK_BYTES = 256 << 10,
	PHASES = 4096, /* offsets in the pattern where a payload may begin */
	REQUESTS = 48,
	STORES = 2,
	GETS = 2,
	ECHO_BYTES_MAX = 256,
	STALL_S = 30, /* longest time without the end of an operation */
};

static uint8_t pattern[BULK_BYTES + PHASES];
static struct careful *engine; /* NULL until it is open */
static volatile sig_atomic_t stopped;

static inline const uint8_t *payload_of(uint32_t number)
{
	return pattern + number * 37 % PHASES;
}

static inline uint32_t bytes_of(uint32_t number)
{
	return number * 29 % (ECHO_BYTES_MAX + 1);
}

static void make_pattern(void)
{
	uint64_t x = 0x9e3779b97f4a7c15ull;

	for (uint32_t i = 0; i < sizeof(pattern); i++) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		pattern[i] = (uint8_t)(x >> 32);
	}
}

static void on_signal(int number)
{
	(void)number;
	stopped = 1;
}

static void say_ready(void)
{
	printf("{\"ready\": true}\n");
	fflush(stdout);
}

/* Prints all counters by number; soak.py knows which of them count losses. */
static void say_counters(void)
{
	struct careful_info info;
	const struct careful_device_statistics *s = &info.statistics;

	careful_info(engine, &info);
	printf("{\"end\": true, \"xdp_mode\": \"%s\", \"window_buffers\": %u, \"mtu_bytes\": %u, "
	       "\"device\": [%llu, %llu, %llu, %llu], \"counters\": [",
	       info.device.xdp_mode == CAREFUL_XDP_NATIVE ? "native" : "generic", info.window,
	       info.device.mtu, (unsigned long long)s->rx_dropped,
	       (unsigned long long)s->rx_ring_full, (unsigned long long)s->rx_fill_ring_empty,
	       (unsigned long long)s->kicks_failed);
	for (int i = 0; i < CAREFUL_COUNTERS; i++)
		printf("%s%llu", i ? ", " : "", (unsigned long long)info.counters[i]);
	printf("]}\n");
	fflush(stdout);
}

/* Prints the error and the counters, and ends the process. */
static void fail(const char *what, int rc)
{
	fprintf(stderr, "soak: %s%s%s\n", what, rc ? ": " : "", rc ? strerror(-rc) : "");
	if (engine)
		say_counters();
	exit(1);
}

/* --- the server, which compares all it receives */

static struct {
	uint8_t *stored;
	uint32_t key_stored, key_pattern;
	uint32_t next; /* number of the next request */
	int bye;
} server;

static void reply(const struct careful_message *m, const uint32_t *args, const void *payload)
{
	if (careful_reply(m, 0, args, payload, payload ? m->bytes : 0))
		fail("no room for a reply", 0);
}

static void on_hello(const struct careful_message *m, void *user)
{
	uint32_t args[4] = { server.key_stored, server.key_pattern };

	(void)user;
	server.next = 0;
	reply(m, args, NULL);
}

static void on_echo(const struct careful_message *m, void *user)
{
	uint32_t number = m->args[0];

	(void)user;
	if (number != server.next)
		fail("a request came twice, never, or out of order", 0);
	if (m->bytes != bytes_of(number) || memcmp(m->payload, payload_of(number), m->bytes) != 0)
		fail("a request came damaged", 0);
	server.next++;
	reply(m, m->args, payload_of(number + 1));
}

static void on_stored(const struct careful_message *m, void *user)
{
	(void)user;
	if (m->bytes != BULK_BYTES ||
	    memcmp(server.stored + m->region_off, payload_of(m->args[0]), BULK_BYTES) != 0)
		fail("a store came damaged", 0);
	reply(m, m->args, NULL);
}

static void on_bye(const struct careful_message *m, void *user)
{
	(void)user;
	server.bye = 1;
	reply(m, NULL, NULL);
}

static void serve(void)
{
	struct careful_region stored = { .bytes = STORES * BULK_BYTES,
					 .access = CAREFUL_REGION_WRITE,
					 .peer = CAREFUL_ANY_PEER };
	struct careful_region source = { .span = { .base = pattern },
					 .bytes = sizeof(pattern),
					 .access = CAREFUL_REGION_READ,
					 .peer = CAREFUL_ANY_PEER };
	uint64_t until;

	server.stored = calloc(STORES, BULK_BYTES);
	stored.span.base = server.stored;
	if (!server.stored || careful_region_add(engine, &stored, &server.key_stored) ||
	    careful_region_add(engine, &source, &server.key_pattern))
		fail("no regions", 0);
	careful_handle(engine, HELLO, on_hello, NULL);
	careful_handle(engine, ECHO, on_echo, NULL);
	careful_handle_store(engine, STORED, on_stored, NULL);
	careful_handle(engine, BYE, on_bye, NULL);
	say_ready();
	while (!server.bye && !stopped)
		if (careful_wait(engine, 100, -1) == -ENODEV)
			fail("the interface was deleted", 0);
	/* Until the client has the answer. */
	until = clock_now_ns() + 500000000ull;
	while (!stopped && clock_now_ns() < until)
		careful_wait(engine, 10, -1);
	say_counters();
}

/* --- the client, which compares the answers */

struct bulk {
	uint32_t number, index, busy;
	uint8_t *into;
};

static struct {
	uint32_t peer, key_stored, key_pattern;
	uint32_t next, answered, pending; /* requests */
	uint64_t requests, done_bulks[2], ended; /* stores, gets */
	int done;
	struct bulk bulks[STORES + GETS];
} client;

static void on_done(const struct careful_result *r, void *user)
{
	(void)user;
	if (r->status)
		fail("the host does not answer", r->status);
	client.key_stored = r->args[0];
	client.key_pattern = r->args[1];
	client.done = 1;
}

static void go_on(void)
{
	int rc = careful_wait(engine, 100, -1);

	if (rc < 0 && rc != -EINTR)
		fail("the interface", rc);
}

static void ask(uint16_t handler)
{
	int rc = careful_request(engine, client.peer, handler, NULL, NULL, 0, on_done, NULL);

	client.done = 0;
	if (rc)
		fail("request", rc);
	while (!client.done)
		go_on();
}

static void on_reply(const struct careful_result *r, void *user)
{
	uint32_t number = client.answered++;

	(void)user;
	if (r->status)
		fail("a request failed", r->status);
	if (r->args[0] != number)
		fail("a reply came twice, never, or out of order", 0);
	if (r->bytes != bytes_of(number) ||
	    memcmp(r->payload, payload_of(number + 1), r->bytes) != 0)
		fail("a reply came damaged", 0);
	client.pending--;
	client.requests++;
	client.ended++;
}

static void on_bulk(const struct careful_result *r, void *user)
{
	struct bulk *bulk = user;

	if (r->status)
		fail(bulk->into ? "a get failed" : "a store failed", r->status);
	if (bulk->into && (r->bytes != BULK_BYTES ||
			   memcmp(bulk->into, payload_of(bulk->number), BULK_BYTES) != 0))
		fail("a get came damaged", 0);
	bulk->busy = 0;
	client.done_bulks[bulk->into != NULL]++;
	client.ended++;
}

static void start_requests(void)
{
	while (client.pending < REQUESTS) {
		uint32_t args[4] = { client.next };
		int rc = careful_request(engine, client.peer, ECHO, args, payload_of(client.next),
					 bytes_of(client.next), on_reply, NULL);

		if (rc == -EAGAIN)
			return;
		if (rc)
			fail("request", rc);
		client.next++;
		client.pending++;
	}
}

/* Starts a get if there is memory for it, else a store. */
static void start_bulk(struct bulk *bulk)
{
	uint32_t args[4] = { ++bulk->number };
	const uint8_t *payload = payload_of(bulk->number);
	struct careful_span span = { .base = bulk->into ? bulk->into : (void *)payload };
	int rc;

	if (bulk->into) {
		memset(bulk->into, 0, BULK_BYTES); /* erases what the last get wrote */
		rc = careful_get(engine, client.peer, client.key_pattern,
				 (uint64_t)(payload - pattern), &span, BULK_BYTES, 0, on_bulk,
				 bulk);
	} else {
		rc = careful_store(engine, client.peer, client.key_stored,
				   (uint64_t)bulk->index * BULK_BYTES, &span, BULK_BYTES, STORED,
				   args, 0, on_bulk, bulk);
	}
	if (rc && rc != -EAGAIN)
		fail(bulk->into ? "get" : "store", rc);
	bulk->busy = !rc;
}

static uint64_t frames(void)
{
	struct careful_info info;

	careful_info(engine, &info);
	return info.counters[CAREFUL_C_TX_FRAMES] + info.counters[CAREFUL_C_RX_FRAMES];
}

static void say_progress(uint64_t crossed)
{
	printf("{\"frames\": %llu, \"requests\": %llu, \"stores\": %llu, \"gets\": %llu}\n",
	       (unsigned long long)crossed, (unsigned long long)client.requests,
	       (unsigned long long)client.done_bulks[0], (unsigned long long)client.done_bulks[1]);
	fflush(stdout);
}

static int busy(void)
{
	int n = client.pending != 0;

	for (uint32_t i = 0; i < STORES + GETS; i++)
		n |= client.bulks[i].busy != 0;
	return n;
}

static void start_all(void)
{
	start_requests();
	for (uint32_t i = 0; i < STORES + GETS; i++)
		if (!client.bulks[i].busy)
			start_bulk(&client.bulks[i]);
}

static void send_all(uint32_t peer, uint64_t frames_most)
{
	uint64_t crossed = 0, told = clock_now_ns(), now, moved = told, ended = 0;

	client.peer = peer;
	for (uint32_t i = 0; i < STORES + GETS; i++) {
		client.bulks[i].index = i;
		if (i >= STORES && !(client.bulks[i].into = malloc(BULK_BYTES)))
			fail("no memory", 0);
	}
	say_ready();
	ask(HELLO);
	while (busy() || (crossed < frames_most && !stopped)) {
		if (crossed < frames_most && !stopped)
			start_all();
		go_on();
		crossed = frames();
		now = clock_now_ns();
		if (ended != client.ended) {
			ended = client.ended;
			moved = now;
		} else if (now - moved > STALL_S * 1000000000ull) {
			fail("nothing moves any more", 0);
		}
		if (now - told > 1000000000ull) {
			say_progress(crossed);
			told = now;
		}
	}
	ask(BYE);
	say_progress(frames());
	say_counters();
}

int main(int argc, char **argv)
{
	/* One peer has a window that the sender does not use up, so fragments do not grow. */
	struct careful_options options = { .peers = 1 };
	struct sockaddr_in to = { .sin_family = AF_INET };
	int sends = argc == 5 && !strcmp(argv[1], "send");
	struct careful_error error;
	int peer;

	if ((!sends && (argc != 3 || strcmp(argv[1], "serve") != 0)) ||
	    (sends && inet_pton(AF_INET, argv[3], &to.sin_addr) != 1)) {
		fprintf(stderr, "usage: soak serve IFNAME\n"
				"       soak send IFNAME HOST FRAMES\n");
		return 2;
	}
	signal(SIGINT, sends ? on_signal : SIG_IGN);
	signal(SIGTERM, on_signal);
	make_pattern();
	options.ifname = argv[2];
	options.instance = getenv("CAREFUL_INSTANCE");
	options.xdp_mode = clock_xdp_mode();
	if (careful_open(&options, &engine, &error)) {
		fprintf(stderr, "soak: %s\n", error.text);
		return 1;
	}
	if (!sends) {
		serve();
	} else {
		peer = careful_peer(engine, (struct sockaddr *)&to, sizeof(to));
		if (peer < 0)
			fail("peer", peer);
		send_all((uint32_t)peer, strtoull(argv[4], NULL, 10));
	}
	careful_close(engine);
	return 0;
}
