// SPDX-License-Identifier: BSD-2-Clause
/*
 * Messages that a program builds in a send buffer leave in it, or are copied if they have to wait.
 * A program that uses a buffer that it does not own gets an error.
 */
#include "instances.h"

#include <errno.h>

enum { ECHO = 3, BYTES = 1000 };

static void on_echo(const struct careful_message *message, void *user)
{
	const uint8_t *umem = message->instance->queue->umem;
	const uint8_t *payload = message->payload;

	CHECK(payload > umem); /* it is read in place */
	++*(int *)user;
	CHECK_EQ(careful_reply(message, 0, NULL, payload, message->bytes), 0);
}

static uint8_t *alloc(struct careful *c)
{
	void *payload = NULL;

	CHECK(careful_alloc(c, &payload) >= BYTES);
	return payload;
}

/* Sends a message that the program built in a send buffer. The answer frees the buffer. */
static void round_trip(struct ends *ends, uint8_t fill)
{
	struct outcome outcome = { 0 };
	uint8_t *payload = alloc(ends->c[0]);

	memset(payload, fill, BYTES);
	CHECK_EQ(careful_send(ends->c[0], (uint32_t)ends->peer, ECHO, NULL, payload, BYTES, on_done,
			      &outcome),
		 0);
	CHECK_EQ(careful_send(ends->c[0], (uint32_t)ends->peer, ECHO, NULL, payload, BYTES, on_done,
			      &outcome),
		 -EINVAL);
	CHECK_EQ(careful_free(ends->c[0], payload), -EINVAL);
	await(ends, &outcome);
	CHECK_EQ(outcome.result.status, 0);
	CHECK_EQ(outcome.result.bytes, BYTES);
	for (int i = 0; i < BYTES; i++)
		CHECK_EQ(outcome.payload[i], fill);
}

static void open_up(struct ends *ends, int *came)
{
	*came = 0;
	ends_open(ends, 3826);
	CHECK_EQ(careful_handle(ends->c[1], ECHO, on_echo, came), 0);
}

static void test_send__in_its_buffer_and_before_the_session(void)
{
	struct ends ends;
	int came;

	open_up(&ends, &came);
	for (int i = 1; i <= 1000; i++) { /* the first one is copied */
		round_trip(&ends, (uint8_t)i);
		CHECK_EQ(came, i);
		CHECK_EQ(ends.c[0]->link.lent_count, 0);
	}
	ends_close(&ends);
}

static void test_send__of_foreign_memory(void)
{
	uint8_t own[BYTES] = { 0 }, *payload;
	struct ends ends;
	int came;

	open_up(&ends, &came);
	round_trip(&ends, 1);
	payload = alloc(ends.c[0]);
	CHECK_EQ(careful_free(ends.c[0], payload), 0);
	CHECK_EQ(careful_free(ends.c[0], payload), -EINVAL);
	CHECK_EQ(careful_send(ends.c[0], 0, ECHO, NULL, payload, 1, NULL, NULL), -EINVAL);
	CHECK_EQ(careful_send(ends.c[0], 0, ECHO, NULL, own, 1, NULL, NULL), -EINVAL);
	CHECK_EQ(careful_send(ends.c[0], 0, ECHO, NULL, NULL, 1, NULL, NULL), -EINVAL);
	CHECK_EQ(careful_free(ends.c[0], ends.c[0]->queue->umem + 128 + 48), -EINVAL);
	payload = alloc(ends.c[0]);
	CHECK_EQ(careful_free(ends.c[0], payload + 1), -EINVAL);
	CHECK_EQ(careful_free(ends.c[1], payload), -EINVAL);
	/* A refused payload stays the program's. */
	CHECK_EQ(careful_send(ends.c[0], 0, ECHO, NULL, payload, 5000, NULL, NULL), -EMSGSIZE);
	CHECK_EQ(careful_send(ends.c[0], 77, ECHO, NULL, payload, 1, NULL, NULL), -ENOENT);
	CHECK_EQ(careful_free(ends.c[0], payload), 0);
	CHECK_EQ(came, 1);
	ends_close(&ends);
}

static void test_alloc__is_bounded_and_others_continue(void)
{
	uint8_t *lent[1024];
	uint32_t n = 0;
	struct outcome outcome = { 0 };
	struct ends ends;
	void *none;
	int came;

	open_up(&ends, &came);
	round_trip(&ends, 1);
	while (n < 1024 && careful_alloc(ends.c[0], (void **)&lent[n]) > 0)
		n++;
	CHECK(n > 16 && n <= ends.c[0]->queue->tx_chunks / 4);
	CHECK_EQ(careful_alloc(ends.c[0], &none), -EAGAIN);
	CHECK_EQ(careful_request(ends.c[0], (uint32_t)ends.peer, ECHO, NULL, "x", 1, on_done,
				 &outcome),
		 0);
	await(&ends, &outcome);
	/* More messages at once than credits: some wait, and none is lost. */
	for (uint32_t i = 0; i < n; i++)
		CHECK_EQ(careful_send(ends.c[0], (uint32_t)ends.peer, ECHO, NULL, lent[i], BYTES,
				      NULL, NULL),
			 0);
	CHECK_EQ(ends.c[0]->link.lent_count, 0);
	for (int i = 0; i < PATIENCE && came < 2 + (int)n; i++)
		poll_both(&ends);
	CHECK_EQ(came, 2 + (int)n);
	round_trip(&ends, 2);
	ends_close(&ends);
}

/* Lent messages end with the instance; the sanitizer would report a leak. */
static void test_close__with_buffers_of_the_program(void)
{
	struct ends ends;
	int came;

	open_up(&ends, &came);
	round_trip(&ends, 1);
	for (int i = 0; i < 5; i++)
		memset(alloc(ends.c[0]), i, BYTES);
	careful_close(ends.c[0]);
	careful_close(ends.c[1]);
	pair_close(&ends.pair);
}

int main(void)
{
	RUN(test_send__in_its_buffer_and_before_the_session);
	RUN(test_send__of_foreign_memory);
	RUN(test_alloc__is_bounded_and_others_continue);
	RUN(test_close__with_buffers_of_the_program);
	return 0;
}
