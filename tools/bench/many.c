// SPDX-License-Identifier: BSD-2-Clause
/*
 * Measures what a small message costs without a device, and whether many peers make it dearer. Two
 * instances joined in memory have P sessions with each other, each with a window of 16.
 * One thread polls them in turn; eight messages leave a round, each to the next peer and in a frame
 * of its own.
 *
 *   many stream PEERS COUNT [BYTES]   messages one way, with the window updates that answer them
 *   many burst PEERS COUNT [BYTES]    requests and their replies
 *   many packed PEERS COUNT [BYTES]   one way, 64 a round to one peer, which share frames
 *   many device PEERS COUNT [BYTES]   the device alone: what the others' time has of it
 *
 * Prints JSON: the least and the middle of the times of short spans (others may run meanwhile);
 * allocations and system calls while it measures (null: this kernel does not tell); the clock's
 * calls, and the device's. Under callgrind only measured() counts, and a fifth word keeps system
 * calls uncounted.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include <careful/careful.h>

#include "clock.h"
#include "memory.h"
#include "engine/engine.h"

enum {
	SINK = 1,
	ECHO = 2,
	WINDOW = 16, /* of each peer */
	BATCH = 8, /* messages a round, */
	PACKED = 64, /* and where they share frames */
	SPANS = 200, /* at most, that are timed one by one */
	SPAN_ROUNDS = 50, /* at least, in one of them */
	POLL_NS = 100,
	CONNECT_NS = 50 * 1000, /* the same while sessions begin: much of that goes by time */
	PATIENCE = 10000000,
	PAYLOAD_MAX = 2048,
	DEVICE_FRAME = LINK_IPV4_BYTES + LINK_HDR_BYTES + MESSAGE_AM_BYTES,
};

static struct memory ends[2];
static struct careful *c[2];
static uint32_t poll_ns = CONNECT_NS;
static uint32_t peers, next, sent, came, answers, rounds_done, all_rounds, batch = BATCH;
static uint8_t payload[PAYLOAD_MAX];
static volatile uint64_t allocations;

static void give_up(const char *what)
{
	fprintf(stderr, "many: %s\n", what);
	exit(1);
}

/* --- what is not to happen meanwhile */

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t n, size_t bytes);
void *__real_realloc(void *old, size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes);
void *__wrap_realloc(void *old, size_t bytes);

void *__wrap_malloc(size_t bytes)
{
	allocations++;
	return __real_malloc(bytes);
}

void *__wrap_calloc(size_t n, size_t bytes)
{
	allocations++;
	return __real_calloc(n, bytes);
}

void *__wrap_realloc(void *old, size_t bytes)
{
	allocations++;
	return __real_realloc(old, bytes);
}

static volatile char calls_end; /* SYSCALL_DISPATCH_FILTER_*: read by the kernel */
static volatile uint64_t system_calls;
static bool calls_known;

#ifdef PR_SET_SYSCALL_USER_DISPATCH
/* It is not made again: whoever counts one has found what it looked for. */
static void on_call(int number)
{
	(void)number;
	system_calls++;
	calls_end = PR_SYS_DISPATCH_OFF; /* 0: all are let through, sigreturn first */
}

static void watch_calls(void)
{
	const struct sigaction action = { .sa_handler = on_call };

	calls_known = !sigaction(SIGSYS, &action, NULL) &&
		      !prctl(PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_ON, 0, 0, &calls_end);
}
#else
static void watch_calls(void)
{
	calls_known = false;
}
#endif

/* --- both ends */

static inline void poll_end(int side)
{
	ends[side].now_ns += poll_ns;
	careful_poll(c[side]);
}

static void on_sink(const struct careful_message *message, void *user)
{
	(void)message;
	(void)user;
	came++;
}

static void on_echo(const struct careful_message *message, void *user)
{
	(void)user;
	came++;
	if (careful_reply(message, 0, NULL, message->payload, message->bytes))
		abort(); /* with so few under way there is room */
}

static void on_done(const struct careful_result *result, void *user)
{
	(void)user;
	answers += !result->status;
}

static void connect_all(void)
{
	struct careful_peer_info info = { 0 };

	for (uint32_t i = 0; i < peers; i++) {
		const union address to = memory_address(1, i);

		if (careful_peer(c[0], &to.sa, sizeof(to.in)) != (int)i)
			give_up("no peer");
		info.state = CAREFUL_PEER_NONE;
		for (uint32_t n = 0; info.state != CAREFUL_PEER_UP; n++) {
			if (n == PATIENCE)
				give_up("no session");
			poll_end(0);
			poll_end(1);
			careful_peer_info(c[0], i, &info);
		}
	}
	if (info.credits_window != WINDOW)
		give_up("another window");
}

static void open_all(void)
{
	const struct careful_options options = {
		.peers = peers,
		.rx_buffers = peers * WINDOW,
		.tx_buffers = MEMORY_TX,
		.unpacked = batch == BATCH,
	};

	memory_init(ends, peers * WINDOW);
	for (uint32_t side = 0; side < 2; side++)
		c[side] = memory_open(&ends[side], &options);
	careful_handle(c[1], SINK, on_sink, NULL);
	careful_handle(c[1], ECHO, on_echo, NULL);
	connect_all();
	poll_ns = POLL_NS;
}

static void close_all(void)
{
	for (uint32_t side = 0; side < 2; side++)
		careful_close(c[side]);
	memory_deinit(ends);
}

/* --- rounds */

static void messages(uint16_t handler, careful_done_fn *done, uint32_t bytes)
{
	for (uint32_t i = 0; i < batch; i++) {
		if (careful_request(c[0], next, handler, NULL, payload, bytes, done, NULL))
			give_up("a request was refused");
		sent++;
		if (batch == BATCH)
			next = next + 1 == peers ? 0 : next + 1;
	}
	if (batch != BATCH)
		next = next + 1 == peers ? 0 : next + 1;
	poll_end(0);
	poll_end(1);
}

/* So many frames from one end to the other, and the buffers back. */
static void device_frames(uint32_t side, uint32_t n, uint32_t bytes)
{
	struct queue *from = &ends[side].queue, *to = &ends[!side].queue;
	struct device_desc descs[LINK_BATCH];
	uint64_t addrs[LINK_BATCH];
	uint32_t got;

	for (uint32_t i = 0; i < n; i++)
		descs[i] = (struct device_desc){
			.addr = (uint64_t)(from->rx_chunks + i) * MEMORY_CHUNK + LINK_PAYLOAD_AT -
				LINK_IPV4_BYTES - LINK_HDR_BYTES,
			.bytes = DEVICE_FRAME + bytes,
		};
	from->ops->tx(from, descs, n);
	from->ops->kick(from);
	from->ops->complete(from, addrs, LINK_BATCH);
	got = to->ops->rx(to, descs, LINK_BATCH);
	for (uint32_t i = 0; i < got; i++)
		addrs[i] = descs[i].addr;
	to->ops->fill(to, addrs, got);
}

static void once(char what, uint32_t bytes)
{
	if (what == 's' || what == 'p') {
		messages(SINK, NULL, bytes);
	} else if (what == 'b') {
		messages(ECHO, on_done, bytes);
	} else {
		device_frames(0, BATCH, bytes);
		device_frames(1, 1, 0); /* as an update for so many */
	}
}

/* All that callgrind collects. */
__attribute__((noinline)) static void measured(char what, uint32_t rounds, uint32_t bytes)
{
	for (uint32_t i = 0; i < rounds; i++)
		once(what, bytes);
	rounds_done += rounds;
	all_rounds += rounds;
}

/* Returns the least and the median time of a message. */
static void spans(char what, uint32_t rounds, uint32_t bytes, double *least, double *middle)
{
	static uint64_t ns[SPANS];
	uint32_t each = rounds / SPANS < SPAN_ROUNDS ? SPAN_ROUNDS : rounds / SPANS;
	uint32_t count = rounds / each ? rounds / each : 1;

	for (uint32_t i = 0; i < count; i++) {
		uint64_t began_ns = clock_ns();

		calls_end = calls_known; /* SYSCALL_DISPATCH_FILTER_BLOCK */
		measured(what, each, bytes);
		calls_end = 0;
		ns[i] = clock_ns() - began_ns;
	}
	*middle = clock_quantile(ns, count, 50) / each / batch;
	*least = (double)ns[0] / each / batch;
}

static void print(const char *what, uint32_t count, uint32_t bytes, double least, double middle)
{
	const struct memory_calls *a = &ends[0].calls, *b = &ends[1].calls;
	const double n = count;

	printf("{\"schema\": 1, \"what\": \"%s\", \"peers\": %u, \"count\": %u, \"bytes\": %u, "
	       "\"measured\": %u, \"batch\": %u, \"ns_least\": %.1f, \"ns\": %.1f, \"frames\": %.3f, \"rx\": %.3f, "
	       "\"fill\": %.3f, \"tx\": %.3f, \"kick\": %.3f, \"complete\": %.3f, "
	       "\"clock\": %.3f, \"allocations\": %llu, ",
	       what, peers, count, bytes, all_rounds * batch, batch, least, middle,
	       (double)(a->frames + b->frames) / n, (double)(a->rx + b->rx) / n,
	       (double)(a->fill + b->fill) / n, (double)(a->tx + b->tx) / n,
	       (double)(a->kick + b->kick) / n, (double)(a->complete + b->complete) / n,
	       (double)(a->clock + b->clock) / n, (unsigned long long)allocations);
	if (calls_known)
		printf("\"system_calls\": %llu}\n", (unsigned long long)system_calls);
	else
		printf("\"system_calls\": null}\n");
}

/* All that was sent has come, and been answered. */
static void check(char what)
{
	for (uint32_t i = 0; i < 4; i++) {
		poll_end(0);
		poll_end(1);
	}
	if (what != 'd' && (came != sent || (what == 'b' && answers != sent)))
		give_up("some of it did not come");
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";
	uint32_t count = argc > 3 ? (uint32_t)strtoul(argv[3], NULL, 10) : 0;
	uint32_t bytes = argc > 4 ? (uint32_t)strtoul(argv[4], NULL, 10) : 64;
	uint32_t rounds, warmup;
	double least, middle;

	peers = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : 0;
	if ((strcmp(what, "stream") != 0 && strcmp(what, "burst") != 0 &&
	     strcmp(what, "device") != 0 && strcmp(what, "packed") != 0) ||
	    !count || peers < 2 || peers > CAREFUL_PEERS_MAX || peers & (peers - 1) ||
	    bytes > PAYLOAD_MAX || argc > 6) {
		fprintf(stderr,
			"usage: many stream|burst|packed|device PEERS COUNT [BYTES [callgrind]]   "
			"(PEERS: a power of two from 2 to 256)\n");
		return 2;
	}
	batch = what[0] == 'p' ? PACKED : BATCH;
	rounds = (count + batch - 1) / batch;
	open_all();
	warmup = 8 * peers * WINDOW / BATCH; /* each buffer several times */
	measured(what[0], warmup, bytes);
	for (int side = 0; side < 2; side++)
		ends[side].calls = (struct memory_calls){ 0 };
	allocations = rounds_done = 0;
	if (argc < 6)
		watch_calls();
	spans(what[0], rounds, bytes, &least, &middle);
	print(what, rounds_done * batch, bytes, least, middle);
	check(what[0]);
	close_all();
	return 0;
}
