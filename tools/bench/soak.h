/* SPDX-License-Identifier: BSD-2-Clause */
/* Shared by both ends of `soak`: the bytes that must come, and the counters that they print. */
#ifndef BENCH_SOAK_H
#define BENCH_SOAK_H

#include <signal.h>
#include <stdint.h>

#include <careful/careful.h>

enum {
	HELLO = 1, /* answered with the keys of both regions */
	ECHO = 2,
	STORED = 3,
	BYE = 4,
	BULK_BYTES = 256 << 10,
	PHASES = 4096, /* where in the pattern a payload may begin */
	REQUESTS = 48,
	STORES = 2,
	GETS = 2,
	ECHO_BYTES_MAX = 256,
	STALL_S = 30, /* without an operation that ends */
};

/* Both ends make the same bytes, so that each can tell what must have come. */
extern uint8_t pattern[BULK_BYTES + PHASES];
extern struct careful *engine; /* NULL until it is open */
extern volatile sig_atomic_t stopped;

static inline const uint8_t *payload_of(uint32_t number)
{
	return pattern + number * 37 % PHASES;
}

static inline uint32_t bytes_of(uint32_t number)
{
	return number * 29 % (ECHO_BYTES_MAX + 1);
}

/* soak.c; fail() says the counters, too, and ends the process. */
void say_ready(void);
int say_counters(void);
void fail(const char *what, int rc);

/* soak_serve.c and soak_send.c: an end, until it is over; the status of the process. */
int soak_serve(void);
int soak_send(uint32_t peer, uint64_t frames_most);

#endif /* BENCH_SOAK_H */
