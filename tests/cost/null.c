// SPDX-License-Identifier: BSD-2-Clause
/*
 * Measures what the engine costs without a device. One thread polls two instances, joined in
 * memory, in turn. Prints JSON with the times and the calls of the device. Under callgrind only
 * measured() counts (tools/bench/run instructions).
 *
 *   null request COUNT [BYTES]   a request and its reply
 *   null lent COUNT [BYTES]      the same, built in a send buffer (careful_alloc())
 *   null wait COUNT [BYTES]      the same, with careful_wait() for each poll
 *   null idle COUNT              a poll that finds nothing
 *   null store COUNT [BYTES]     a store from memory to memory, by frame
 *   null quiet COUNT [BYTES]     a request and its reply; also counts allocations and system calls
 *   null operations COUNT [BYTES]  a request and its reply: histograms of each operation of link
 *                                (null_operations alone)
 *
 * A last word names the protocol ("traditional" or "careful"), or the seal of ends with keys
 * ("auth" or "encrypt").
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include <careful/careful.h>

#include "clock.h"
#include "memory_device.h"
#include "operation_times.h"
#include "engine/engine.h"

enum {
	ECHO = 1,
	WARMUP = 1000,
	POLL_NS = 100,
	PATIENCE = 1000000,
	STORE_MAX = 1 << 24,
};

static struct memory ends[2];
static struct careful *c[2];
static uint64_t polls;
static int waits;
static uint32_t region;
static uint8_t *memory[2];
static uint32_t done;
static uint32_t protocol;
static const char *seal;

static void give_up(const char *what)
{
	fprintf(stderr, "null: %s\n", what);
	exit(1);
}

/* --- a message needs no allocation and no system call */

static volatile uint64_t allocations, system_calls;
static volatile char dispatch; /* SYSCALL_DISPATCH_FILTER_*: read by the kernel */
static bool calls_known; /* the kernel reports system calls */

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

#ifdef PR_SET_SYSCALL_USER_DISPATCH
/* Skips the call: one is enough to fail. */
static void on_call(int number)
{
	(void)number;
	system_calls++;
	dispatch = PR_SYS_DISPATCH_OFF; /* allows all calls, since sigreturn is next */
}

static void watch_calls(void)
{
	const struct sigaction action = { .sa_handler = on_call };

	calls_known = !sigaction(SIGSYS, &action, NULL) &&
		      !prctl(PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_ON, 0, 0, &dispatch);
}
#else
static void watch_calls(void)
{
}
#endif

/* --- both ends */

static inline void poll_end(int side)
{
	ends[side].now_ns += POLL_NS;
	polls++;
	if (waits)
		careful_wait(c[side], 0, -1);
	else
		careful_poll(c[side]);
}

static void on_echo(const struct careful_message *message, void *user)
{
	(void)user;
	if (careful_reply(message, 0, NULL, message->payload, message->bytes))
		abort(); /* one request at a time: there is always room */
}

static void on_done(const struct careful_result *result, void *user)
{
	(void)user;
	if (result->status)
		give_up(strerror(-result->status));
	done++;
}

static void ask(uint32_t bytes, int lent)
{
	void *payload = NULL;
	int rc;

	if (!lent)
		rc = careful_request(c[0], 0, ECHO, NULL, memory[0], bytes, on_done, NULL);
	else if (careful_alloc(c[0], &payload) < (int)bytes)
		rc = -1;
	else
		rc = careful_send(c[0], 0, ECHO, NULL, payload, bytes, on_done, NULL);
	if (rc)
		give_up("a request was refused");
}

/* The client's poll sends, the server's answers, and the client's next poll takes the answer. */
static void request(uint32_t bytes, int lent)
{
	ask(bytes, lent);
	done = 0;
	while (!done) {
		poll_end(0);
		if (!done)
			poll_end(1);
	}
}

static void store(uint32_t bytes)
{
	struct careful_span span = { .base = memory[0], .fd = -1 };

	if (careful_store(c[0], 0, region, 0, &span, bytes, CAREFUL_HANDLERS, NULL, 0, on_done,
			  NULL))
		give_up("a store was refused");
	done = 0;
	while (!done) {
		poll_end(0);
		poll_end(1);
	}
}

/* Built in place, since the copy counts too. */
static inline __attribute__((always_inline)) void once(char what, uint32_t bytes)
{
	if (what == 'i')
		poll_end(0);
	else if (what == 's')
		store(bytes);
	else
		request(bytes, what == 'l');
}

/* Only this function counts under callgrind. */
__attribute__((noinline)) static void measured(char what, uint32_t count, uint32_t bytes)
{
	for (uint32_t i = 0; i < count; i++)
		once(what, bytes);
}

/* Returns the other end's key. An end's number is its private key. */
static void trust(uint32_t side)
{
	static const uint8_t none[NOISE_KEY_BYTES] = { 0 }, base[NOISE_KEY_BYTES] = { 9 };
	uint8_t ours[NOISE_KEY_BYTES] = { 0 }, theirs[NOISE_KEY_BYTES] = { 0 };
	const union address at = memory_address(!side, 0);
	struct noise_pair other;

	ours[1] = (uint8_t)(1 + side);
	theirs[1] = (uint8_t)(2 - side);
	/* The base point times a private key is the public one. */
	if (noise_pair_init(&other, theirs, base, none) ||
	    keys_trust(&c[side]->link.keys, &at, ours, other.ours, none))
		give_up("no keys");
	c[side]->link.keyed = true;
}

static void open_all(void)
{
	const struct careful_options options = {
		.rx_buffers = MEMORY_RX,
		.tx_buffers = MEMORY_TX,
		.protocol = protocol,
		.seal = seal,
	};
	union address to = memory_address(1, 0);
	struct careful_peer_info info = { 0 };
	struct careful_region whole = {
		.span = { .fd = -1 },
		.bytes = STORE_MAX,
		.access = CAREFUL_REGION_WRITE,
		.peer = CAREFUL_ANY_PEER,
	};

	memory_init(ends, MEMORY_RX);
	for (uint32_t side = 0; side < 2; side++) {
		memory[side] = calloc(1, STORE_MAX);
		if (!memory[side])
			give_up("out of memory");
		c[side] = memory_open(&ends[side], &options);
		if (seal)
			trust(side);
	}
	whole.span.base = memory[1];
	careful_handle(c[1], ECHO, on_echo, NULL);
	if (careful_region_add(c[1], &whole, &region) ||
	    careful_peer(c[0], &to.sa, sizeof(to.in)) != 0)
		give_up("no peer");
	for (uint32_t i = 0; info.state != CAREFUL_PEER_UP; i++) {
		if (i == PATIENCE)
			give_up("no session");
		poll_end(0);
		poll_end(1);
		careful_peer_info(c[0], 0, &info);
	}
}

static void close_all(void)
{
	for (uint32_t side = 0; side < 2; side++) {
		careful_close(c[side]);
		free(memory[side]);
	}
	memory_deinit(ends);
}

static void print(const char *what, uint32_t count, uint32_t bytes, uint64_t ns)
{
	const struct memory_calls *a = &ends[0].calls, *b = &ends[1].calls;
	const double n = count, frames = (double)(a->frames + b->frames);

	printf("{\"schema\": 1, \"what\": \"%s\", \"count\": %u, \"bytes\": %u, \"ns\": %.1f, "
	       "\"ns_per_frame\": %.1f, \"polls\": %.3f, \"frames\": %.3f, \"rx\": %.3f, "
	       "\"fill\": %.3f, \"tx\": %.3f, \"kick\": %.3f, \"complete\": %.3f, "
	       "\"clock\": %.3f, \"ctrl_recv\": %.3f, \"tune\": %.3f, \"allocations\": %llu, "
	       "\"system_calls\": %lld}\n",
	       what, count, bytes, (double)ns / n, frames ? (double)ns / frames : 0,
	       (double)polls / n, frames / n, (double)(a->rx + b->rx) / n,
	       (double)(a->fill + b->fill) / n, (double)(a->tx + b->tx) / n,
	       (double)(a->kick + b->kick) / n, (double)(a->complete + b->complete) / n,
	       (double)(a->clock + b->clock) / n, (double)(a->ctrl_recv + b->ctrl_recv) / n,
	       (double)(a->tune + b->tune) / n, (unsigned long long)allocations,
	       calls_known ? (long long)system_calls : -1);
}

/* Prints the histograms of link's operations. */
static void print_times(const char *what, uint32_t count, uint32_t bytes)
{
	printf("{\"schema\": 1, \"what\": \"%s\", \"protocol\": \"%s\", \"count\": %u, "
	       "\"bytes\": %u",
	       what, protocol ? "traditional" : "careful", count, bytes);
	timed_print(count);
	printf("}\n");
}

int main(int argc, char **argv)
{
	static const char *const kinds[] = { "request", "lent",	 "wait",      "idle",
					     "store",	"quiet", "operations" };
	const char *what = argc > 1 ? argv[1] : "";
	uint32_t count = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : 0;
	uint32_t bytes;
	uint64_t start, ns;
	int known = 0;

	if (argc > 3 && !strcmp(argv[argc - 1], "traditional")) {
		protocol = CAREFUL_PROTOCOL_TRADITIONAL;
		argc--;
	} else if (argc > 3 && !strcmp(argv[argc - 1], "careful")) {
		argc--;
	} else if (argc > 3 && strchr("ae", argv[argc - 1][0])) {
		seal = argv[--argc];
	}
	bytes = argc > 3 ? (uint32_t)strtoul(argv[3], NULL, 10) : 0;
	for (int i = 0; i < 7; i++)
		known |= !strcmp(what, kinds[i]);
	if (!known || !count || argc > 4 || bytes > STORE_MAX) {
		fprintf(stderr, "usage: null request|lent|wait|idle|store|quiet|operations COUNT "
				"[BYTES] [careful|traditional|auth|encrypt]\n");
		return 2;
	}
	if (!bytes && what[0] != 'i')
		bytes = what[0] == 's' ? 1 << 20 : 64;
#ifndef CAREFUL_OPERATIONS
	if (what[0] == 'o')
		give_up("its operations are not timed: that is null_operations");
#endif
	timed_calibrate();
	open_all();
	waits = what[0] == 'w';
	for (uint32_t i = 0; i < (what[0] == 's' ? 4 : WARMUP); i++)
		once(what[0], bytes);
	for (int side = 0; side < 2; side++)
		ends[side].calls = (struct memory_calls){ 0 };
	polls = 0;
	timed_forget();
	if (what[0] == 'q')
		watch_calls();
	start = clock_now_ns();
	allocations = 0;
	dispatch = calls_known; /* SYSCALL_DISPATCH_FILTER_BLOCK */
	measured(what[0], count, bytes);
	dispatch = 0;
	ns = clock_now_ns() - start;
	if (what[0] == 'o')
		print_times(what, count, bytes);
	else
		print(what, count, bytes, ns);
	close_all();
	return 0;
}
