// SPDX-License-Identifier: BSD-2-Clause
/* A misbehaving peer with a session harms neither the instance nor other peers. */
#include <endian.h>

#include "hostile.h"

enum { FILE_REGION = 1 }; /* of node->keys: it has no memory */

static uint32_t ran;

static void on_run(const struct careful_message *message, void *user)
{
	(void)message;
	(void)user;
	ran++;
}

static struct hostile store(const struct node *node, uint16_t handler)
{
	return (struct hostile){
		.flags = CAREFUL_F_BULK,
		.am = { .kind = CAREFUL_AM_STORE,
			.handler = htobe16(handler),
			.token = htobe32(7),
			.region = htobe32(node ? node->keys[FILE_REGION] : 0) },
		.bytes = 64,
	};
}

/* Request handlers need their payload in memory, so a store to a file must not run one. */
static void test_store__runs_no_handler_of_requests(void)
{
	struct node *node = node_open();
	struct hostile what = store(node, CAREFUL_HANDLERS_APP + 4);

	CHECK(node_session(node, 0));
	ran = 0;
	CHECK_EQ(careful_handle(node->c, CAREFUL_HANDLERS_APP + 4, on_run, NULL), 0);
	hostile_send(node, &what);
	CHECK_EQ(ran, 0);
	CHECK_EQ(careful_handle_store(node->c, CAREFUL_HANDLERS_APP + 4, on_run, NULL), 0);
	hostile_send(node, &what);
	CHECK_EQ(ran, 1);
	node_close(node);
}

/* Sends messages of one kind as long as there are credits, and gives none for the answers. Returns
 * the number of messages. */
static uint32_t hostile_flood(struct node *node, struct hostile what, uint32_t rounds)
{
	const struct link_peer *peer = &node->c->link.peers[what.peer];
	uint64_t epoch = peer->epoch;
	uint32_t sent = 0;

	for (uint32_t i = 0; i < rounds && peer->epoch == epoch; i++) {
		/* Sends as much as its credits allow; our frames announce each credit. */
		if (peer->flow.rx.received + 1 - peer->flow.rx.announced <= peer->flow.rx.size) {
			what.msg_id++;
			hostile_send(node, &what);
			sent++;
		} else {
			node_time(node, 1);
		}
	}
	CHECK_EQ(peer->epoch, epoch);
	return sent;
}

/* Checks that a well-behaved peer is served: its get brings data, its store is answered. */
static void expect_served(struct node *node, uint32_t slot)
{
	const struct link_peer *peer = &node->c->link.peers[slot];
	struct hostile what = {
		.peer = slot,
		.am = { .kind = CAREFUL_AM_GET,
			.token = htobe32(9),
			.region = htobe32(node->keys[0]),
			.bytes = htobe32(100) },
	};
	uint32_t before = peer->flow.seq_out;

	for (int i = 0; i < 20; i++) {
		what.credits = peer->flow.tx.sent;
		what.msg_id++;
		what.am.kind = i % 2 ? CAREFUL_AM_STORE : CAREFUL_AM_GET;
		what.flags = i % 2 ? CAREFUL_F_BULK : 0;
		what.am.handler = htobe16(CAREFUL_HANDLERS);
		what.bytes = i % 2 ? 40 : 0;
		hostile_send(node, &what);
		CHECK(peer->flow.seq_out > before);
		before = peer->flow.seq_out;
	}
	CHECK_EQ(node->c->waiting[slot].deferred, 0);
}

/* The first fragment announces a digest that the last one lacks. */
static void test_store__without_the_digest_it_announced(void)
{
	struct node *node = node_open();
	struct hostile what = store(NULL, CAREFUL_HANDLERS);
	uint64_t dropped;

	CHECK(node_session(node, 0));
	CHECK(node_session(node, 1));
	what.am.region = htobe32(node->keys[0]);
	what.flags |= CAREFUL_F_DIGEST;
	what.without = CAREFUL_F_LAST;
	what.more = 64;
	hostile_send(node, &what);
	dropped = node->c->link.counters[CAREFUL_C_DROP_MESSAGE];
	what.off = 64;
	what.more = 0;
	what.flags = CAREFUL_F_BULK;
	what.without = CAREFUL_F_FIRST;
	hostile_send(node, &what);
	CHECK_EQ(node->c->link.counters[CAREFUL_C_DROP_MESSAGE], dropped + 1);
	CHECK_EQ(node->c->messages.ins_free_count, node->c->messages.ins_count);
	expect_served(node, 1);
	node_close(node);
}

/* Answers to stores of one frame find no credits. */
static void test_stores__unanswered_are_bounded(void)
{
	struct hostile what = store(NULL, CAREFUL_HANDLERS);
	struct node *node = node_open();

	CHECK(node_session(node, 0));
	CHECK(node_session(node, 1));
	what.am.region = htobe32(0x7777);
	hostile_flood(node, what, 2000);
	CHECK(node->c->messages.unanswered);
	CHECK(node->c->messages.unanswered <= NODE_RX);
	expect_served(node, 1);
	/* The peer holds the buffers for its own answers: only this peer gets EBUSY. */
	for (int i = 0; i < 30; i++)
		node_time(node, 100);
	CHECK_EQ(node->c->messages.unanswered, 0);
	node_close(node);
}

/* Gets without credits for their data. */
static void test_gets__leave_others_their_share(void)
{
	struct hostile what = {
		.am = { .kind = CAREFUL_AM_GET, .token = htobe32(5), .bytes = htobe32(4000) },
	};
	struct node *node = node_open();

	CHECK(node_session(node, 0));
	CHECK(node_session(node, 1));
	what.am.region = htobe32(node->keys[0]);
	hostile_flood(node, what, 1000);
	CHECK(node->c->waiting[0].deferred);
	expect_served(node, 1);
	for (int i = 0; i < 30; i++)
		node_time(node, 100);
	CHECK_EQ(node->c->waiting[0].deferred, 0);
	node_close(node);
}

/* Kept requests of one peer leave copies to others. */
static void test_kept__a_peer_cannot_use_all_copies(void)
{
	struct hostile what = {
		.am = { .kind = CAREFUL_AM_REQUEST, .handler = htobe16(1) },
		.bytes = 10,
	};
	struct node *node = node_open();
	struct link *link = &node->c->link;

	CHECK(node_session(node, 0));
	CHECK(node_session(node, 1));
	hostile_flood(node, what, 200);
	CHECK(link->peers[0].withholding);
	CHECK_EQ(link->peers[0].session->copied + link->pool_share.free, link->pool_count);
	what.peer = 1;
	hostile_flood(node, what, 200);
	CHECK(link->peers[1].session->copied >= link->pool_share.each);
	node_close(node);
}

/* Sends a frame of n requests of this payload size. nexts: the size that each header announces; kind:
 * of the last message */
static void send_packed(struct node *node, uint32_t n, uint32_t payload, const uint32_t *nexts,
			uint8_t kind)
{
	struct hostile what = { .am = { .kind = CAREFUL_AM_REQUEST,
					.handler = htobe16(CAREFUL_HANDLERS_APP + 4),
					.next = htobe32(nexts[0]) } };
	uint32_t each = (uint32_t)sizeof(struct careful_am) + payload;

	what.bytes = n * each - (uint32_t)sizeof(struct careful_am);
	for (uint32_t i = 1; i < n; i++) {
		struct careful_am am = what.am;

		if (i + 1 == n)
			am.kind = kind;
		am.next = htobe32(nexts[i]);
		memcpy(what.rest + (i - 1) * each + payload, &am, sizeof(am));
	}
	hostile_send(node, &what);
}

/* No message of a frame runs if they do not fill it exactly, or are of a kind that may not
 * share. */
static void test_packed__wrongly(void)
{
	enum { EACH = sizeof(struct careful_am) + 8, MOST = 7 };
	static const struct {
		uint32_t n;
		uint8_t kind;
		uint32_t at, next; /* a wrong offset in one of them */
		uint32_t ran;
	} cases[] = {
		{ 3, CAREFUL_AM_REQUEST, 0, EACH, 3 },
		{ MOST, CAREFUL_AM_REQUEST, 0, EACH, MOST },
		{ 3, CAREFUL_AM_STORE, 0, EACH, 0 },
		{ 3, CAREFUL_AM_EVENT, 0, EACH, 0 },
		{ 3, CAREFUL_AM_GET_DATA, 0, EACH, 0 },
		{ 3, CAREFUL_AM_REQUEST, 1, 1, 0 },
		{ 3, CAREFUL_AM_REQUEST, 1, sizeof(struct careful_am) - 1, 0 },
		{ 3, CAREFUL_AM_REQUEST, 1, EACH + 9, 0 },
		{ 3, CAREFUL_AM_REQUEST, 1, UINT32_MAX, 0 },
		{ 3, CAREFUL_AM_REQUEST, 2, EACH, 0 },
		{ 3, CAREFUL_AM_REQUEST, 2, 8, 0 },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct node *node = node_open();
		const struct link_peer *peer = &node->c->link.peers[0];
		uint32_t nexts[MOST];
		uint64_t epoch;

		CHECK(node_session(node, 0));
		CHECK(node_session(node, 1));
		CHECK_EQ(careful_handle(node->c, CAREFUL_HANDLERS_APP + 4, on_run, NULL), 0);
		epoch = peer->epoch;
		ran = 0;
		for (uint32_t k = 0; k < cases[i].n; k++)
			nexts[k] = k + 1 < cases[i].n ? EACH : 0;
		nexts[cases[i].at] = cases[i].next;
		send_packed(node, cases[i].n, 8, nexts, cases[i].kind);
		CHECK_EQ(ran, cases[i].ran);
		CHECK_EQ(peer->epoch == epoch, cases[i].ran != 0);
		expect_served(node, 1);
		node_close(node);
	}
}

int main(void)
{
	RUN(test_store__runs_no_handler_of_requests);
	RUN(test_store__without_the_digest_it_announced);
	RUN(test_stores__unanswered_are_bounded);
	RUN(test_gets__leave_others_their_share);
	RUN(test_kept__a_peer_cannot_use_all_copies);
	RUN(test_packed__wrongly);
	return 0;
}
