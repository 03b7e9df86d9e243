// SPDX-License-Identifier: BSD-2-Clause
/* Peers with keys: messages of an attacker who reads and writes the wire but has no key. */
#include <endian.h>
#include <errno.h>

#include <careful/frame.h>

#include "check.h"
#include "node.h"
#include "link/session/session.h"

static void push(struct node *node, uint32_t host, const void *message, int32_t bytes)
{
	uint32_t at = (node->ctrl_first + node->ctrl_count++) % NODE_CTRL;

	node->ctrl[at].from = node_host(host);
	node->ctrl[at].bytes = bytes;
	memcpy(node->ctrl[at].data, message, (size_t)bytes);
	node_time(node, 1);
}

static uint64_t forged(const struct node *node)
{
	return node->c->link.counters[CAREFUL_C_CTRL_FORGED];
}

static struct link_peer *first(struct node *node)
{
	return &node->c->link.peers[0];
}

/* Returns an instance that has asked host 0, and the host's answer. */
static struct node *asking(struct careful_ctrl *answer)
{
	struct node *node = node_open_keyed(NULL);

	node_call(node);
	*answer = node_hello(0);
	answer->type = CAREFUL_CHALLENGE;
	answer->nonce = node->last.nonce;
	answer->token = htobe64(77);
	return node;
}

static void test_keyed__a_session_of_either_asker(void)
{
	static const char *const seals[] = { NULL, "auth", "encrypt" };
	struct careful_ctrl answer;
	struct node *node;

	for (uint32_t i = 0; i < 3; i++) {
		node = node_open_keyed(seals[i]);
		CHECK(node_session(node, 0));
		CHECK_EQ(forged(node), 0);
		node_close(node);
	}
	node = asking(&answer);
	node_tell(node, 0, &answer);
	node_welcome(node, &answer);
	CHECK_EQ(first(node)->phase, LINK_OPEN);
	node_close(node);
}

static void test_keyed__a_challenge_is_the_peers(void)
{
	struct careful_proved proved;
	struct careful_ctrl answer;
	struct node *node = asking(&answer);
	struct careful_ctrl plain = answer;

	plain.check = htobe32(careful_ctrl_check(&plain));
	push(node, 0, &plain, sizeof(plain));
	proved = node_prove(node, 0, &answer);
	proved.mac[3] ^= 1;
	push(node, 0, &proved, sizeof(proved));
	/* A proof of another host, and one of the peer for another type. */
	proved = node_prove(node, 1, &answer);
	push(node, 0, &proved, sizeof(proved));
	CHECK_EQ(forged(node), 3);
	CHECK_EQ(first(node)->phase, LINK_ASKING);
	CHECK_EQ(link_lives(first(node)), 0);
	node_tell(node, 0, &answer);
	CHECK_EQ(first(node)->phase, LINK_ASKED);
	CHECK_EQ(link_lives(first(node)), 1);
	node_close(node);
}

/* One key gets at most half of the windows, from whatever addresses. */
static void test_keyed__one_key_cannot_use_all_slots(void)
{
	struct node *node = node_open_keyed(NULL);

	CHECK(node_session(node, 0));
	first(node)->operations++; /* a busy session does not yield */
	CHECK(!node_session(node, 2));
	CHECK(node_session(node, 1));
	first(node)->operations--;
	node_close(node);
}

/* A message proved by both static keys cannot be reflected to its sender. */
static void test_keyed__a_message_turned_back_is_not_believed(void)
{
	struct careful_ctrl answer, hello;
	struct node *node = asking(&answer);
	struct careful_proved own;

	/* An attacker on the path sends the instance's own HELLO back, to get its CHALLENGE. */
	CHECK_EQ(node->last_bytes, sizeof(own));
	hello = node_hello(0);
	hello.nonce = answer.nonce;
	node_tell(node, 0, &hello);
	CHECK_EQ(node->last.type, CAREFUL_CHALLENGE);
	CHECK_EQ(node->last.nonce, answer.nonce);
	memcpy(&own, &node->last_proved, sizeof(own));
	push(node, 0, &own, sizeof(own));
	CHECK_EQ(forged(node), 1);
	CHECK_EQ(first(node)->phase, LINK_ASKING);
	node_close(node);
}

/* A host without a key gets one refusal, no longer than its question, and no challenge. */
static void test_keyed__a_stranger_is_not_challenged(void)
{
	struct careful_ctrl hello = node_hello(0);
	struct node *node = node_open_keyed(NULL);

	hello.check = htobe32(careful_ctrl_check(&hello));
	push(node, 0, &hello, sizeof(hello));
	CHECK_EQ(node->last.type, CAREFUL_REFUSE);
	CHECK_EQ(be32toh(node->last.refuse.why), CAREFUL_REFUSED_KEY);
	CHECK_EQ(node->last_bytes, sizeof(hello));
	CHECK_EQ(node->c->link.counters[CAREFUL_C_CTRL_CHALLENGED], 0);
	node_close(node);
}

/* An unproved REFUSE does not end an attempt that continues. */
static void test_keyed__a_refusal_counts_when_nothing_else_is_heard(void)
{
	struct careful_ctrl answer, refuse;
	struct node *node = asking(&answer);

	refuse = answer;
	refuse.type = CAREFUL_REFUSE;
	refuse.refuse.why = htobe32(CAREFUL_REFUSED_KEY);
	refuse.check = 0;
	refuse.check = htobe32(careful_ctrl_check(&refuse));
	push(node, 0, &refuse, sizeof(refuse));
	node_tell(node, 0, &answer);
	CHECK_EQ(first(node)->phase, LINK_ASKED);
	for (uint32_t i = 0; i < 600; i++)
		node_time(node, 1);
	CHECK_EQ(first(node)->phase, LINK_ASKED);
	push(node, 0, &refuse, sizeof(refuse));
	for (uint32_t i = 0; i < 600; i++)
		node_time(node, 1);
	CHECK_EQ(first(node)->phase, LINK_ASKED); /* a real refusal answers each HELLO */
	for (uint32_t i = 1; i < 12; i++) {
		push(node, 0, &refuse, sizeof(refuse));
		node_time(node, 60);
	}
	node_time(node, 1000); /* a stopped process has sent no HELLO */
	CHECK_EQ(first(node)->phase, LINK_ASKED);
	push(node, 0, &refuse, sizeof(refuse));
	node_time(node, 60);
	CHECK_EQ(first(node)->state, CAREFUL_PEER_FAILED);
	CHECK_EQ(link_error(first(node)), EKEYREJECTED);
	node_close(node);
}

/* An attacker answers each HELLO for a while with a reason that needs no key. */
static void test_keyed__a_refusal_that_ends_too_soon_is_not_believed(void)
{
	struct careful_ctrl refuse;
	struct node *node = asking(&refuse);

	refuse.type = CAREFUL_REFUSE;
	refuse.refuse.why = htobe32(CAREFUL_REFUSED_FRAME);
	refuse.check = 0;
	refuse.check = htobe32(careful_ctrl_check(&refuse));
	for (uint32_t ms = 0; ms < 1200; ms++) {
		if (ms < 200) /* refused this time too */
			push(node, 0, &refuse, sizeof(refuse));
		node_time(node, 1);
		CHECK(first(node)->state != CAREFUL_PEER_FAILED);
	}
	for (uint32_t ms = 0; ms < 200; ms++) { /* refused again, to the end */
		push(node, 0, &refuse, sizeof(refuse));
		node_time(node, 1);
	}
	CHECK_EQ(first(node)->state, CAREFUL_PEER_FAILED);
	CHECK_EQ(link_error(first(node)), EMSGSIZE);
	node_close(node);
}

/* GONE of another session is not believed. */
static void test_keyed__gone_of_another_session_is_not_believed(void)
{
	struct node *node = node_open_keyed(NULL);
	struct careful_ctrl gone = node_hello(0);
	uint64_t cookie;

	CHECK(node_session(node, 0));
	cookie = first(node)->cookie_out;
	first(node)->session->doubted = true; /* the peer is asked until it answers */
	link_sync_ask(first(node), CAREFUL_SYNC_YIELD);
	CHECK_EQ(node->last.type, CAREFUL_SYNC);
	gone.type = CAREFUL_GONE;
	gone.nonce = node->last.nonce;
	gone.cookie = htobe64(cookie ^ 1);
	node_tell(node, 0, &gone);
	CHECK_EQ(first(node)->phase, LINK_OPEN);
	gone.cookie = htobe64(cookie);
	node_tell(node, 0, &gone);
	CHECK(first(node)->phase != LINK_OPEN);
	node_close(node);
}

static void on_ping(const struct careful_ping_result *result, void *user)
{
	struct careful_ping_result *told = user;

	*told = *result;
}

/* An answer that an attacker obtained before the ping left is worthless. */
static void test_keyed__an_answer_to_an_earlier_challenge_is_refused(void)
{
	const struct careful_ping_ask ask = { .stage = CAREFUL_STAGE_NET_RX,
					      .bytes = 200,
					      .timeout_ms = 500 };
	struct careful_ping_result told = { .status = 1 };
	struct node *node = node_open_keyed(NULL);
	struct careful_ping_answer answer = { .version = CAREFUL_WIRE_VERSION,
					      .type = CAREFUL_PING_ANSWER,
					      .bytes = htobe16(sizeof(answer)),
					      .probe = htobe32(1),
					      .stage = CAREFUL_STAGE_NET_RX };
	struct link_ping *ping;

	CHECK(node_session(node, 0));
	ping = &first(node)->session->ping;
	/* The peer's true answer to a stranger's ping of the same number. */
	node_prove_answer(node, 0, &answer);
	answer.check = htobe32(careful_message_check(&answer, sizeof(answer)));
	CHECK_EQ(careful_ping(node->c, 0, &ask, on_ping, &told), 0);
	CHECK_EQ(ping->last, 1);
	push(node, 0, &answer, sizeof(answer));
	CHECK_EQ(told.status, 1);
	CHECK_EQ(forged(node), 1);
	/* As forged by an attacker who reads the wire but has no key. */
	answer.cookie = htobe64(first(node)->cookie_in);
	answer.check = 0;
	answer.check = htobe32(careful_message_check(&answer, sizeof(answer)));
	push(node, 0, &answer, sizeof(answer));
	CHECK_EQ(told.status, 1);
	node_prove_answer(node, 0, &answer);
	answer.check = htobe32(careful_message_check(&answer, sizeof(answer)));
	push(node, 0, &answer, sizeof(answer));
	CHECK_EQ(told.status, 0);
	CHECK_EQ(forged(node), 2);
	node_leave(node, NODE_TX);
	node_close(node);
}

int main(void)
{
	RUN(test_keyed__a_session_of_either_asker);
	RUN(test_keyed__a_challenge_is_the_peers);
	RUN(test_keyed__one_key_cannot_use_all_slots);
	RUN(test_keyed__a_message_turned_back_is_not_believed);
	RUN(test_keyed__a_stranger_is_not_challenged);
	RUN(test_keyed__a_refusal_counts_when_nothing_else_is_heard);
	RUN(test_keyed__a_refusal_that_ends_too_soon_is_not_believed);
	RUN(test_keyed__gone_of_another_session_is_not_believed);
	RUN(test_keyed__an_answer_to_an_earlier_challenge_is_refused);
	return 0;
}
