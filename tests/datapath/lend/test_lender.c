// SPDX-License-Identifier: BSD-2-Clause
/*
 * The memory server over an instance without a network: requests of hostile lengths, limits, other
 * hosts' pieces, and the end of sessions and regions.
 */
#include <arpa/inet.h>
#include <endian.h>
#include <poll.h>

#include "check.h"
#include "fake_careful.c" /* NOLINT(bugprone-suspicious-include) */
#include "lend/private.h"

static struct careful *c;
static struct lend_server *server;

static void start(uint64_t bytes, uint64_t host_bytes, uint32_t keep_ms)
{
	const struct lend_options options = { bytes, host_bytes, keep_ms };
	struct careful_error error = { 0 };

	c = fake_create();
	for (uint32_t i = 0; i < FAKE_PEERS; i++)
		c->peer_keys[i][0] = (uint8_t)(i + 1);
	if (lend_serve(c, &options, &server, &error) == -ENOMEM)
		skip(error.text);
	CHECK(server);
}

static void stop(void)
{
	CHECK_EQ(lend_stop(server), 0);
	fake_destroy(c);
}

static void poll_once(void)
{
	struct pollfd pfd = { .fd = lend_fd(server), .events = POLLIN };

	poll(&pfd, 1, 10);
	lend_poll(server);
}

static struct fake_answer *answer(uint32_t token)
{
	for (int i = 0; i < 3000 && !c->answers[token]->given; i++)
		poll_once();
	CHECK(c->answers[token]->given);
	return c->answers[token];
}

/* @share: a peer to share with, or -1 */
static struct fake_answer *ask(uint32_t peer, uint16_t handler, const char *name, uint64_t bytes,
			       int share)
{
	struct careful_memory_ask head = {
		.bytes = htobe64(bytes),
		.hosts = htobe32(share >= 0),
		.name_bytes = htobe32((uint32_t)strlen(name)),
	};
	struct careful_memory_host host = {
		.by = htobe32(CAREFUL_MEMORY_KEY),
		.access = htobe32(CAREFUL_MEMORY_READ),
		.id = { (uint8_t)(share + 1) },
	};
	uint8_t all[sizeof(head) + sizeof(host) + 256];
	size_t at = sizeof(head);

	memcpy(all, &head, sizeof(head));
	if (share >= 0) {
		memcpy(all + at, &host, sizeof(host));
		at += sizeof(host);
	}
	at += (size_t)snprintf((char *)all + at, sizeof(all) - at, "%s", name);
	return answer(fake_request(c, peer, handler, NULL, all, (uint32_t)at));
}

static int create(uint32_t peer, const char *name, uint64_t bytes)
{
	return ask(peer, CAREFUL_MEMORY_CREATE, name, bytes, -1)->status;
}

static void test_request__of_any_length(void)
{
	struct careful_memory_ask head = { .bytes = htobe64(4096) };
	uint8_t all[sizeof(head) + 300];

	start(1 << 20, 0, 1000);
	memset(all, 'x', sizeof(all));
	for (int handler = CAREFUL_MEMORY_CREATE; handler <= CAREFUL_MEMORY_LAST; handler++) {
		for (uint32_t n = handler == CAREFUL_MEMORY_STAT; n < sizeof(all); n++) {
			const uint32_t token = fake_request(c, 0, (uint16_t)handler, NULL, all, n);

			if (handler == CAREFUL_MEMORY_LIST)
				CHECK_EQ(answer(token)->status, 0);
			else
				CHECK_EQ(answer(token)->status, -EINVAL);
		}
	}
	/* Counts that wrap around, and names with what no terminal should get. */
	memset(&head, 0, sizeof(head));
	head.bytes = htobe64(4096);
	head.hosts = htobe32(UINT32_MAX / 40 + 1);
	head.name_bytes = htobe32(4);
	memcpy(all, &head, sizeof(head));
	CHECK_EQ(answer(fake_request(c, 0, CAREFUL_MEMORY_CREATE, NULL, all, sizeof(all)))->status,
		 -EINVAL);
	head.hosts = 0;
	head.name_bytes = htobe32(UINT32_MAX);
	memcpy(all, &head, sizeof(head));
	CHECK_EQ(answer(fake_request(c, 0, CAREFUL_MEMORY_CREATE, NULL, all, sizeof(all)))->status,
		 -EINVAL);
	CHECK_EQ(create(0, "\033[2J", 4096), -EINVAL);
	CHECK_EQ(create(0, "", 4096), -EINVAL);
	CHECK_EQ(create(0, "none", 0), -EINVAL);
	CHECK_EQ(create(0, "all", UINT64_MAX), -EDQUOT);
	CHECK_EQ(server->pieces_count, 0);
	stop();
}

/* A peer has its share and no more; the others have the rest. Whole pages count. */
static void test_limits__of_a_host_and_of_all(void)
{
	char name[16];
	int made = 0;

	start(1 << 20, 700 << 10, 1000);
	CHECK_EQ(create(0, "a", 600 << 10), 0);
	CHECK_EQ(create(0, "b", 101 << 10), -EDQUOT);
	CHECK_EQ(create(1, "a", 500 << 10), -ENOSPC);
	CHECK_EQ(create(1, "a", 400 << 10), 0);
	CHECK_EQ(create(0, "a", 4096), -EEXIST);
	CHECK_EQ(ask(0, CAREFUL_MEMORY_DELETE, "a", 0, -1)->status, 0);
	CHECK_EQ(server->used, 400 << 10);
	for (int i = 0; i < 200; i++) {
		snprintf(name, sizeof(name), "%d", i);
		made += !create(0, name, 1);
	}
	CHECK_EQ(made, LEND_PIECES_HOST);
	CHECK_EQ(server->used, (400 << 10) + LEND_PIECES_HOST * LEND_PAGE_BYTES);
	stop();
}

/* Large pieces have huge pages where those fit, and never more than the limits. */
static void test_limits__of_huge_pages(void)
{
	start(5 << 20, 5 << 20, 1000);
	CHECK_EQ(create(0, "a", 3 << 20), 0);
	CHECK_EQ(server->used, 4 << 20);
	CHECK_EQ(create(0, "b", (1 << 20) + 1), -EDQUOT);
	CHECK_EQ(create(0, "b", 1 << 20), 0);
	CHECK_EQ(create(1, "c", 1), -ENOSPC);
	stop();
	start(5 << 20, 5 << 20, 1000);
	CHECK_EQ(create(0, "a", 5 << 20), 0);
	CHECK_EQ(server->used, 5 << 20);
	CHECK_EQ(create(0, "b", UINT64_MAX), -EDQUOT);
	stop();
}

static void test_piece__of_another_host_does_not_exist(void)
{
	struct fake_answer *absent, *hidden;
	struct careful_region *region;
	uint32_t key;

	start(1 << 20, 0, 1000);
	CHECK_EQ(create(0, "mine", 4096), 0);
	CHECK_EQ(ask(0, CAREFUL_MEMORY_CREATE, "ours", 4096, 1)->status, 0);
	absent = ask(1, CAREFUL_MEMORY_OPEN, "none", 0, -1);
	hidden = ask(1, CAREFUL_MEMORY_OPEN, "mine", 0, -1);
	CHECK_EQ(absent->status, -ENOENT);
	CHECK_EQ(hidden->status, -ENOENT);
	CHECK(absent->bytes == hidden->bytes && !absent->bytes);
	CHECK(!memcmp(absent->args, hidden->args, sizeof(absent->args)));
	CHECK_EQ(ask(1, CAREFUL_MEMORY_DELETE, "ours", 0, -1)->status, -ENOENT);
	CHECK_EQ(ask(2, CAREFUL_MEMORY_OPEN, "ours", 0, -1)->status, -ENOENT);
	CHECK_EQ(answer(fake_request(c, 2, CAREFUL_MEMORY_LIST, NULL, NULL, 0))->bytes, 0);
	CHECK_EQ(answer(fake_request(c, 1, CAREFUL_MEMORY_LIST, NULL, NULL, 0))->bytes, 72);
	CHECK_EQ(ask(1, CAREFUL_MEMORY_OPEN, "ours", 0, -1)->status, 0);
	key = ask(1, CAREFUL_MEMORY_OPEN, "ours", 0, -1)->args[0];
	region = fake_region(c, key);
	CHECK(region && region->peer == 1 && region->access == CAREFUL_REGION_READ);
	CHECK_EQ(region->bytes, 4096);
	/* Another host in the same slot of peers is another owner. */
	c->peer_keys[1][0] = 9;
	CHECK_EQ(ask(1, CAREFUL_MEMORY_OPEN, "ours", 0, -1)->status, -ENOENT);
	CHECK(!fake_region(c, key));
	stop();
}

/* The memory goes only when no message uses it; until then the peer reaches it no longer. */
static void test_delete__waits_for_messages(void)
{
	struct fake_answer *made;
	struct careful_memory_ask head = { .name_bytes = htobe32(1) };
	uint8_t all[sizeof(head) + 1];
	uint32_t token;

	start(1 << 20, 0, 1000);
	made = ask(0, CAREFUL_MEMORY_CREATE, "a", 4096, -1);
	memcpy(all, &head, sizeof(head));
	all[sizeof(head)] = 'a';
	c->busy = 1 << 30;
	token = fake_request(c, 0, CAREFUL_MEMORY_DELETE, NULL, all, sizeof(all));
	for (int i = 0; i < 5; i++)
		poll_once();
	CHECK(!c->answers[token]->given && fake_region(c, made->args[0]));
	CHECK_EQ(fake_region(c, made->args[0])->access, 0);
	CHECK_EQ(server->used, 4096);
	CHECK_EQ(create(0, "a", 4096), 0); /* the name is free at once */
	c->busy = 0;
	CHECK_EQ(answer(token)->status, 0);
	CHECK_EQ(server->used, 4096);
	stop();
}

static void test_session__ends_and_the_memory_stays_for_a_while(void)
{
	struct careful_lend_use uses[4];
	uint32_t key;

	start(1 << 20, 0, 150);
	key = ask(0, CAREFUL_MEMORY_CREATE, "a", 4096, -1)->args[0];
	lend_watch(server, 0, CAREFUL_PEER_FAILED);
	CHECK(!fake_region(c, key));
	CHECK_EQ(lend_use(server, uses, 4), 2);
	CHECK(uses[1].gone_s && uses[1].used == 4096 && uses[0].used == 4096);
	/* The same key in another slot has it again. */
	c->peer_keys[3][0] = 1;
	CHECK_EQ(ask(3, CAREFUL_MEMORY_OPEN, "a", 0, -1)->status, 0);
	CHECK_EQ(lend_use(server, uses, 4), 2);
	CHECK_EQ(uses[1].gone_s, 0);
	for (int i = 0; i < 30; i++)
		poll_once();
	CHECK_EQ(server->pieces_count, 1);
	lend_watch(server, 3, CAREFUL_PEER_NONE);
	for (int i = 0; i < 1000 && server->pieces_count; i++)
		poll_once();
	CHECK_EQ(server->pieces_count, 0);
	CHECK_EQ(server->used, 0);
	stop();
}

/* A CREATE that is asked again after a reset is the same one. Answers wait for room, but not
 * without a bound. */
static void test_create__is_repeated(void)
{
	struct careful_memory_ask head = { .bytes = htobe64(4096), .name_bytes = htobe32(1) };
	const uint32_t args[4] = { 7, 8 };
	uint8_t all[sizeof(head) + 1];
	uint32_t first, second;

	start(1 << 20, 0, 1000);
	memcpy(all, &head, sizeof(head));
	all[sizeof(head)] = 'a';
	fake_request(c, 0, CAREFUL_MEMORY_CREATE, args, all, sizeof(all));
	first = fake_request(c, 0, CAREFUL_MEMORY_CREATE, args, all, sizeof(all));
	CHECK_EQ(answer(first)->status, 0);
	second = fake_request(c, 0, CAREFUL_MEMORY_CREATE, args, all, sizeof(all));
	CHECK_EQ(answer(second)->status, 0);
	CHECK_EQ(answer(second)->args[0], answer(first)->args[0]);
	CHECK_EQ(create(0, "a", 4096), -EEXIST);
	c->reply_errno = -EAGAIN;
	c->reply_errors = 1 << 30;
	for (int i = 0; i < 500; i++)
		first = fake_request(c, 0, CAREFUL_MEMORY_STAT, NULL, NULL, 0);
	CHECK_EQ(server->peers[0].answers, LEND_ANSWERS_PEER);
	CHECK_EQ(lend_timeout_ms(server), 1);
	second = fake_request(c, 1, CAREFUL_MEMORY_STAT, NULL, NULL, 0);
	c->reply_errors = 0;
	CHECK_EQ(answer(second)->status, 0);
	CHECK(!c->answers[first]->given);
	CHECK_EQ(server->peers[0].answers, 0);
	stop();
}

/* The peer goes while a worker maps its piece: no region is made for the next in its slot. */
static void test_create__of_a_peer_that_is_gone(void)
{
	struct careful_memory_ask head = { .bytes = htobe64(4096), .name_bytes = htobe32(1) };
	uint8_t all[sizeof(head) + 1];

	start(1 << 20, 0, 60000);
	memcpy(all, &head, sizeof(head));
	all[sizeof(head)] = 'a';
	fake_request(c, 0, CAREFUL_MEMORY_CREATE, NULL, all, sizeof(all));
	lend_watch(server, 0, CAREFUL_PEER_FAILED);
	for (int i = 0; i < 1000 && server->pieces->state != LEND_READY; i++)
		poll_once();
	CHECK_EQ(server->pieces->state, LEND_READY);
	CHECK(!server->pieces->opens);
	stop();
}

/* Waits of a peer that the piece is shared with, of a stranger, and too many. */
static void test_wait__ends_with_a_notification(void)
{
	struct careful_memory_ask head = { .name_bytes = htobe32(1) };
	const uint32_t long_wait[4] = { 0, 60000 }, seen[4] = { 1, 0 };
	uint8_t all[sizeof(head) + 1];
	uint32_t token, others[LEND_WAITS_PEER];

	start(1 << 20, 0, 1000);
	memcpy(all, &head, sizeof(head));
	all[sizeof(head)] = 'a';
	CHECK_EQ(ask(0, CAREFUL_MEMORY_CREATE, "a", 4096, 1)->status, 0);
	CHECK_EQ(ask(2, CAREFUL_MEMORY_WAIT, "a", 0, -1)->status, -ENOENT);
	CHECK_EQ(ask(2, CAREFUL_MEMORY_NOTIFY, "a", 0, -1)->status, -ENOENT);
	CHECK_EQ(ask(1, CAREFUL_MEMORY_NOTIFY, "a", 0, -1)->status, -EACCES);
	for (int i = 0; i < LEND_WAITS_PEER; i++)
		others[i] = fake_request(c, 1, CAREFUL_MEMORY_WAIT, long_wait, all, sizeof(all));
	token = fake_request(c, 1, CAREFUL_MEMORY_WAIT, long_wait, all, sizeof(all));
	CHECK_EQ(answer(token)->status, -EAGAIN);
	CHECK_EQ(server->peers[1].waits, LEND_WAITS_PEER);
	poll_once();
	CHECK(!c->answers[others[0]]->given);
	CHECK(lend_timeout_ms(server) > 0 && lend_timeout_ms(server) <= LEND_WAIT_MS + 1);
	CHECK_EQ(ask(0, CAREFUL_MEMORY_NOTIFY, "a", 0, -1)->args[0], 1);
	for (int i = 0; i < LEND_WAITS_PEER; i++)
		CHECK_EQ(answer(others[i])->args[0], 1);
	CHECK_EQ(server->peers[1].waits, 0);
	/* One that asks for no time, and one whose piece goes. */
	token = fake_request(c, 1, CAREFUL_MEMORY_WAIT, seen, all, sizeof(all));
	CHECK_EQ(answer(token)->args[0], 1);
	token = fake_request(c, 1, CAREFUL_MEMORY_WAIT, (uint32_t[4]){ 1, 900 }, all, sizeof(all));
	lend_poll(server);
	CHECK(!c->answers[token]->given);
	CHECK_EQ(ask(0, CAREFUL_MEMORY_DELETE, "a", 0, -1)->status, 0);
	CHECK_EQ(answer(token)->status, -ENOENT);
	stop();
}

int main(void)
{
	RUN(test_request__of_any_length);
	RUN(test_limits__of_a_host_and_of_all);
	RUN(test_limits__of_huge_pages);
	RUN(test_piece__of_another_host_does_not_exist);
	RUN(test_delete__waits_for_messages);
	RUN(test_session__ends_and_the_memory_stays_for_a_while);
	RUN(test_create__is_repeated);
	RUN(test_create__of_a_peer_that_is_gone);
	RUN(test_wait__ends_with_a_notification);
	return 0;
}
