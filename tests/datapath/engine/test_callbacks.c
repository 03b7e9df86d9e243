// SPDX-License-Identifier: BSD-2-Clause
/*
 * An application acts inside its own callbacks: it begins operations and closes sessions. Each
 * operation ends once, nothing is lost, and the last reported state is the present one.
 */
#include "instances.h"

#include <sys/mman.h>

enum { BYTES = 3000001, STATES = 16 };

static uint8_t source[BYTES], target[BYTES];

static const struct careful_span memory = { .base = source, .fd = -1 };

/* A store, and the application's actions at its end. */
struct asked {
	struct careful *c;
	uint32_t peer, key;
	int done, status;
	struct asked *then; /* the next store, begun at the end of this one */
	bool close; /* the session is closed there */
};

static void store(struct asked *asked, const struct careful_span *span, uint32_t bytes);

static void on_end(const struct careful_result *result, void *user)
{
	struct asked *asked = user;

	asked->done++;
	asked->status = result->status;
	if (asked->then)
		store(asked->then, &memory, BYTES);
	if (asked->close)
		CHECK_EQ(careful_peer_close(asked->c, asked->peer), 0);
}

static void store(struct asked *asked, const struct careful_span *span, uint32_t bytes)
{
	CHECK_EQ(careful_store(asked->c, asked->peer, asked->key, 0, span, bytes, CAREFUL_HANDLERS,
			       NULL, 0, on_end, asked),
		 0);
}

static uint32_t state_of(struct careful *c, uint32_t peer)
{
	struct careful_peer_info info;

	return careful_peer_info(c, peer, &info) ? CAREFUL_PEER_NONE : info.state;
}

/* Opens two instances with a session; the second accepts stores into target. */
static void open_up(struct ends *ends, unsigned int mtu, struct asked *asked, uint32_t count)
{
	const struct careful_region region = {
		.span = { .base = target, .fd = -1 },
		.bytes = BYTES,
		.access = CAREFUL_REGION_WRITE,
		.peer = CAREFUL_ANY_PEER,
	};
	uint32_t key;

	ends_open(ends, mtu);
	CHECK_EQ(careful_region_add(ends->c[1], &region, &key), 0);
	for (int i = 0; i < PATIENCE && state_of(ends->c[0], 0) != CAREFUL_PEER_UP; i++)
		poll_both(ends);
	CHECK_EQ(state_of(ends->c[0], 0), CAREFUL_PEER_UP);
	for (uint32_t i = 0; i < count; i++) {
		asked[i].c = ends->c[0];
		asked[i].peer = (uint32_t)ends->peer;
		asked[i].key = key;
	}
}

static void await_end(struct ends *ends, const struct asked *asked)
{
	for (int i = 0; i < PATIENCE && !asked->done; i++)
		poll_both(ends);
	CHECK_EQ(asked->done, 1);
}

/* Checks that no operation is left. */
static void check_idle(const struct careful *c)
{
	CHECK_EQ(c->messages.peers[0].messages, 0);
	CHECK_EQ(c->messages.peers[0].slots_busy, 0);
	CHECK_EQ(c->messages.outs_share.free, c->messages.outs_share.count);
	CHECK_EQ(c->operations_free_count, c->limits.operations);
}

static void close_quietly(struct ends *ends)
{
	careful_close(ends->c[0]);
	careful_close(ends->c[1]);
	pair_close(&ends->pair);
}

static void test_done__stores_again_after_the_source_shrank(void)
{
	const struct careful_span empty = { .fd = memfd_create("empty", 0) };
	struct asked asked[2] = { { .then = &asked[1] } };
	struct ends ends;

	open_up(&ends, 3826, asked, 2);
	store(&asked[0], &empty, BYTES);
	await_end(&ends, &asked[0]);
	CHECK_EQ(asked[0].status, -ENODATA);
	await_end(&ends, &asked[1]);
	CHECK_EQ(asked[1].status, 0);
	CHECK(!memcmp(source, target, BYTES));
	/* The failed message is kept until its frames have arrived. */
	for (int i = 0; i < PATIENCE && ends.c[0]->messages.retained; i++)
		poll_both(&ends);
	check_idle(ends.c[0]);
	ends_close(&ends);
	close(empty.fd);
}

static void test_done__stores_again_after_the_epoch_broke(void)
{
	struct asked asked[2] = { { .then = &asked[1] } };
	struct ends ends;

	open_up(&ends, 3826, asked, 2);
	store(&asked[0], &memory, BYTES);
	careful_poll(ends.c[0]);
	link_break(&ends.c[0]->link.peers[ends.peer]);
	await_end(&ends, &asked[0]);
	CHECK_EQ(asked[0].status, -ECONNRESET);
	await_end(&ends, &asked[1]);
	CHECK_EQ(asked[1].status, 0);
	CHECK(!memcmp(source, target, BYTES));
	check_idle(ends.c[0]);
	close_quietly(&ends);
}

/* The first waits for credits, the second cannot be read, the third waits. */
static void test_done__closes_the_session_with_others_waiting(void)
{
	const struct careful_span nothing = { .fd = 100000 };
	struct asked asked[3] = { [1].close = true };
	struct ends ends;

	open_up(&ends, 6000, asked, 3);
	/* Fragments of several buffers: while they wait, a small message may still leave. */
	plan_default(ends.c[0]->port->ops->tune(ends.c[0]->port, 0), 1 << 20);
	store(&asked[0], &memory, BYTES);
	store(&asked[1], &nothing, 100);
	store(&asked[2], &memory, BYTES);
	for (int i = 0; i < PATIENCE && !asked[1].done; i++)
		careful_poll(ends.c[0]); /* the other end returns no credits */
	CHECK(asked[1].done == 1 && asked[1].status < 0);
	await_end(&ends, &asked[0]);
	await_end(&ends, &asked[2]);
	for (int i = 0; i < 1000; i++)
		poll_both(&ends);
	for (int i = 0; i < 3; i++)
		CHECK_EQ(asked[i].done, 1);
	CHECK_EQ(asked[0].status, -ECONNRESET);
	CHECK_EQ(asked[2].status, -ECONNRESET);
	check_idle(ends.c[0]);
	close_quietly(&ends);
}

static struct {
	uint32_t states[STATES];
	uint32_t count;
} heard;

static void watch(struct careful *c, uint32_t peer, uint32_t state, void *user)
{
	(void)user;
	CHECK_EQ(state, state_of(c, peer)); /* the present state, not an old one */
	CHECK(heard.count < STATES);
	heard.states[heard.count++] = state;
}

/* An operation's callback closes its peer at the session's end: no failure of the peer is
 * reported. */
static void test_watch__after_a_callback_that_closes(void)
{
	struct asked asked[1] = { { .close = true } };
	struct ends ends;

	open_up(&ends, 3826, asked, 1);
	careful_peer_watch(ends.c[0], watch, NULL);
	store(&asked[0], &memory, BYTES);
	careful_poll(ends.c[0]);
	link_close(&ends.c[0]->link.peers[ends.peer], ECONNREFUSED);
	for (int i = 0; i < 100; i++)
		careful_poll(ends.c[0]);
	CHECK_EQ(asked[0].done, 1);
	CHECK_EQ(asked[0].status, -ECONNREFUSED);
	CHECK(heard.count > 0);
	CHECK_EQ(heard.states[heard.count - 1], CAREFUL_PEER_NONE);
	check_idle(ends.c[0]);
	close_quietly(&ends);
}

/* Checks that calls which would poll inside this poll are refused. */
static void check_refused(struct careful *c, uint32_t *refused)
{
	CHECK_EQ(careful_poll(c), -EDEADLK);
	CHECK_EQ(careful_wait(c, 0, -1), -EDEADLK);
	CHECK_EQ(careful_close(c), -EDEADLK);
	(*refused)++;
}

/* An instance, and how often each kind of callback ran. */
static struct {
	struct careful *c;
	uint32_t handler, stored, done, state, ping;
} inside;

static void handler_polls(const struct careful_message *message, void *user)
{
	check_refused(message->instance, user);
	if (message->token)
		CHECK_EQ(careful_reply(message, 0, NULL, NULL, 0), 0);
}

static void done_polls(const struct careful_result *result, void *user)
{
	CHECK_EQ(result->status, 0);
	check_refused(inside.c, user);
}

static void watch_polls(struct careful *c, uint32_t peer, uint32_t state, void *user)
{
	(void)peer;
	(void)state;
	if (c->polling) /* not within careful_peer_close() */
		check_refused(c, user);
}

static void ping_polls(const struct careful_ping_result *result, void *user)
{
	CHECK_EQ(result->status, 0);
	check_refused(inside.c, user);
}

static void test_poll__refused_to_each_callback(void)
{
	const struct careful_ping_ask ping = {
		.stage = CAREFUL_STAGE_NET_RX,
		.bytes = 100,
		.timeout_ms = 10000,
	};
	struct asked asked[1] = { { 0 } };
	struct ends ends;
	uint32_t peer;

	memset(&inside, 0, sizeof(inside));
	open_up(&ends, 3826, asked, 1);
	inside.c = ends.c[0];
	peer = (uint32_t)ends.peer;
	careful_handle(ends.c[1], 1, handler_polls, &inside.handler);
	careful_handle_store(ends.c[1], 2, handler_polls, &inside.stored);
	careful_peer_watch(ends.c[1], watch_polls, &inside.state);
	CHECK_EQ(careful_request(ends.c[0], peer, 1, NULL, "x", 1, done_polls, &inside.done), 0);
	CHECK_EQ(careful_store(ends.c[0], peer, asked[0].key, 0, &memory, 1000, 2, NULL, 0,
			       done_polls, &inside.done),
		 0);
	for (int i = 0; i < PATIENCE && inside.done < 2; i++)
		poll_both(&ends);
	CHECK_EQ(careful_ping(ends.c[0], peer, &ping, ping_polls, &inside.ping), 0);
	for (int i = 0; i < PATIENCE && !inside.ping; i++)
		poll_both(&ends);
	CHECK_EQ(careful_peer_close(ends.c[0], peer), 0);
	for (int i = 0; i < PATIENCE && !inside.state; i++)
		poll_both(&ends);
	CHECK(inside.handler == 1 && inside.stored == 1 && inside.done == 2);
	CHECK(inside.ping == 1 && inside.state > 0);
	ends_close(&ends);
}

/* Answers while there is no session; the next session has smaller frames. */
static void answer_between_epochs(const struct careful_message *message, void *user)
{
	struct link_peer *peer = &message->instance->link.peers[message->peer];
	int *answered = user;

	peer->phase = LINK_ASKED;
	CHECK_EQ(careful_reply(message, 0, NULL, source, 1000), 0);
	peer->phase = LINK_OPEN;
	peer->frame_bytes = 200;
	++*answered;
}

static void test_reply__outgrows_the_session_that_it_waits_for(void)
{
	struct outcome outcome = { 0 };
	struct asked unused;
	struct ends ends;
	int answered = 0;

	open_up(&ends, 1500, &unused, 0);
	careful_handle(ends.c[1], 7, answer_between_epochs, &answered);
	CHECK_EQ(careful_request(ends.c[0], 0, 7, NULL, NULL, 0, on_done, &outcome), 0);
	await(&ends, &outcome);
	CHECK_EQ(answered, 1);
	CHECK_EQ(outcome.result.status, -EMSGSIZE);
	CHECK_EQ(outcome.result.bytes, 0);
	check_idle(ends.c[0]);
	check_idle(ends.c[1]);
	ends_close(&ends);
}

int main(void)
{
	for (uint32_t i = 0; i < BYTES; i++)
		source[i] = (uint8_t)(i * 31 + i / 1000);
	RUN(test_done__stores_again_after_the_source_shrank);
	RUN(test_done__stores_again_after_the_epoch_broke);
	RUN(test_done__closes_the_session_with_others_waiting);
	RUN(test_watch__after_a_callback_that_closes);
	RUN(test_poll__refused_to_each_callback);
	RUN(test_reply__outgrows_the_session_that_it_waits_for);
	return 0;
}
