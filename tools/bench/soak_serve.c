// SPDX-License-Identifier: BSD-2-Clause
/* The end of `soak` that serves, and compares what comes. Calls soak.c. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "soak.h"

static struct {
	uint8_t *stored;
	uint32_t key_stored, key_pattern;
	uint32_t next; /* number of the next request */
	int bye;
} server;

static void on_hello(const struct careful_message *m, void *user)
{
	uint32_t args[4] = { server.key_stored, server.key_pattern };

	(void)user;
	server.next = 0;
	if (careful_reply(m, 0, args, NULL, 0))
		fail("no room for a reply", 0);
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
	if (careful_reply(m, 0, m->args, payload_of(number + 1), m->bytes))
		fail("no room for a reply", 0);
}

static void on_stored(const struct careful_message *m, void *user)
{
	(void)user;
	if (m->bytes != BULK_BYTES ||
	    memcmp(server.stored + m->region_off, payload_of(m->args[0]), BULK_BYTES) != 0)
		fail("a store came damaged", 0);
	if (careful_reply(m, 0, m->args, NULL, 0))
		fail("no room for a reply", 0);
}

static void on_bye(const struct careful_message *m, void *user)
{
	(void)user;
	server.bye = 1;
	if (careful_reply(m, 0, NULL, NULL, 0))
		fail("no room for a reply", 0);
}

int soak_serve(void)
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
	until = clock_ns() + 500000000ull;
	while (!stopped && clock_ns() < until)
		careful_wait(engine, 10, -1);
	return say_counters();
}
