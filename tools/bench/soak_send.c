// SPDX-License-Identifier: BSD-2-Clause
/* The end of `soak` that asks, and compares the answers. Calls soak.c. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "soak.h"

struct bulk {
	uint32_t number, index, busy;
	uint8_t *into;
};

static struct {
	uint32_t peer, key_stored, key_pattern;
	uint32_t next, answered, pending; /* requests */
	uint64_t requests, stores, gets, ended;
	int done;
	struct bulk storing[STORES], getting[GETS];
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

static void on_store_done(const struct careful_result *r, void *user)
{
	struct bulk *bulk = user;

	if (r->status)
		fail("a store failed", r->status);
	bulk->busy = 0;
	client.stores++;
	client.ended++;
}

static void on_get_done(const struct careful_result *r, void *user)
{
	struct bulk *bulk = user;

	if (r->status)
		fail("a get failed", r->status);
	if (r->bytes != BULK_BYTES || memcmp(bulk->into, payload_of(bulk->number), BULK_BYTES) != 0)
		fail("a get came damaged", 0);
	bulk->busy = 0;
	client.gets++;
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

static void start_store(struct bulk *bulk)
{
	uint32_t args[4] = { ++bulk->number };
	struct careful_span from = { .base = (void *)payload_of(bulk->number) };
	int rc = careful_store(engine, client.peer, client.key_stored,
			       (uint64_t)bulk->index * BULK_BYTES, &from, BULK_BYTES, STORED, args,
			       0, on_store_done, bulk);

	if (rc && rc != -EAGAIN)
		fail("store", rc);
	bulk->busy = !rc;
}

static void start_get(struct bulk *bulk)
{
	struct careful_span to = { .base = bulk->into };
	int rc;

	memset(bulk->into, 0, BULK_BYTES); /* what the last one left proves nothing */
	bulk->number++;
	rc = careful_get(engine, client.peer, client.key_pattern,
			 (uint64_t)(payload_of(bulk->number) - pattern), &to, BULK_BYTES, 0,
			 on_get_done, bulk);
	if (rc && rc != -EAGAIN)
		fail("get", rc);
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
	       (unsigned long long)client.stores, (unsigned long long)client.gets);
	fflush(stdout);
}

static int busy(void)
{
	int n = client.pending != 0;

	for (uint32_t i = 0; i < STORES; i++)
		n |= client.storing[i].busy != 0;
	for (uint32_t i = 0; i < GETS; i++)
		n |= client.getting[i].busy != 0;
	return n;
}

static void start_all(void)
{
	start_requests();
	for (uint32_t i = 0; i < STORES; i++)
		if (!client.storing[i].busy)
			start_store(&client.storing[i]);
	for (uint32_t i = 0; i < GETS; i++)
		if (!client.getting[i].busy)
			start_get(&client.getting[i]);
}

int soak_send(uint32_t peer, uint64_t frames_most)
{
	uint64_t crossed = 0, told = clock_ns(), now, moved = told, ended = 0;

	client.peer = peer;
	for (uint32_t i = 0; i < STORES; i++)
		client.storing[i].index = i;
	for (uint32_t i = 0; i < GETS; i++) {
		client.getting[i].into = malloc(BULK_BYTES);
		if (!client.getting[i].into)
			fail("no memory", 0);
	}
	say_ready();
	ask(HELLO);
	while (busy() || (crossed < frames_most && !stopped)) {
		if (crossed < frames_most && !stopped)
			start_all();
		go_on();
		crossed = frames();
		now = clock_ns();
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
	return say_counters();
}
