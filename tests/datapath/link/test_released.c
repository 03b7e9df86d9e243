// SPDX-License-Identifier: BSD-2-Clause
/* Replays messages of the last released wire version (released.h) to today's carefuld. The same
 * version is served. Both ends learn of a different one. record_released.py recorded them.
 * test_released_before.c does the same for the version before. */
#include <endian.h>
#include <errno.h>

#include "check.h"
#include "frame.h"
#include "node.h"

#ifndef RELEASED
#define RELEASED "released.h"
#endif
#include RELEASED

enum {
	NONCE_AT = 8, /* in a HELLO and its answers, in every version */
	TOKEN_AT = 16,
	STATUS_AT = 60, /* of a REFUSE */
	MINOR_AT = 111, /* in a HELLO or WELCOME; 0 before minor versions existed */
};

static bool served(void)
{
	return released_hello[0] == CAREFUL_WIRE_VERSION;
}

/* Delivers a message from host 0 unchanged. */
static void hear(struct node *node, const uint8_t *message, uint32_t bytes)
{
	uint32_t at = (node->ctrl_first + node->ctrl_count) % NODE_CTRL;

	CHECK(bytes <= sizeof(node->ctrl[at].data) && node->ctrl_count < NODE_CTRL);
	node->ctrl[at].from = node_host(0);
	node->ctrl[at].bytes = (int32_t)bytes;
	memcpy(node->ctrl[at].data, message, bytes);
	node->ctrl_count++;
	node_time(node, 1);
}

/* Delivers a message from host 0 with a field of eight bytes replaced. */
static void hear_with(struct node *node, const uint8_t *message, uint32_t bytes, uint32_t field_at,
		      uint64_t field)
{
	union link_message changed = { 0 };

	CHECK(bytes <= sizeof(changed) && field_at + sizeof(field) <= bytes);
	memcpy(&changed, message, bytes);
	memcpy((uint8_t *)&changed + field_at, &field, sizeof(field));
	if (served()) { /* other versions ignore it */
		changed.ctrl.check = 0;
		changed.ctrl.check = htobe32(careful_ctrl_check(&changed.ctrl));
	}
	hear(node, (const uint8_t *)&changed, bytes);
}

/* Checks that an answer begins like the released version's: type, length, and nonce. */
static void expect_like(const struct node *node, const uint8_t *answer, uint32_t bytes,
			const uint8_t *asked)
{
	const uint8_t *said = (const uint8_t *)&node->last;

	CHECK_EQ(node->last_bytes, bytes);
	CHECK_EQ(said[0], CAREFUL_WIRE_VERSION);
	CHECK_EQ(said[1], answer[1]);
	CHECK(!memcmp(said + 2, answer + 2, 2));
	CHECK(!memcmp(said + NONCE_AT, asked + NONCE_AT, 8));
}

/* Checks the session's minor version, the smaller one of both ends. */
static void expect_minor(const struct node *node, uint8_t minor)
{
	struct careful_peer_info info;

	CHECK_EQ(careful_peer_info(node->c, 0, &info), 0);
	CHECK_EQ(info.wire_minor, minor > CAREFUL_WIRE_MINOR ? CAREFUL_WIRE_MINOR : minor);
}

/* The released version asks first. */
static void test_hello__is_answered(void)
{
	struct node *node = node_open();

	hear(node, released_hello, sizeof(released_hello));
	if (served()) {
		expect_like(node, released_challenge, sizeof(released_challenge), released_hello);
	} else {
		expect_like(node, released_refuse, sizeof(released_refuse), released_hello);
		CHECK(!memcmp((uint8_t *)&node->last + STATUS_AT, released_refuse + STATUS_AT, 4));
		CHECK_EQ(node->c->link.counters[CAREFUL_C_CTRL_VERSION], 1);
	}
	node_close(node);
}

/* Today's version asks first, and gets the REFUSE that the released one sent for this HELLO. */
static void test_refuse__is_understood(void)
{
	struct node *node = node_open();
	struct careful_peer_info info;

	CHECK_EQ(released_next_hello[0], released_refuse[0] + 1);
	CHECK(!memcmp(released_refuse + NONCE_AT, released_next_hello + NONCE_AT, 8));
	node_call(node);
	CHECK(node->last_bytes >= sizeof(released_hello));
	hear_with(node, released_refuse, sizeof(released_refuse), NONCE_AT, node->last.nonce);
	CHECK_EQ(careful_peer_info(node->c, 0, &info), 0);
	if (served()) { /* our version was refused, so the HELLO was damaged */
		CHECK_EQ(info.state, CAREFUL_PEER_CONNECTING);
	} else {
		CHECK_EQ(info.state, CAREFUL_PEER_FAILED);
		CHECK_EQ(info.last_errno, EPROTONOSUPPORT);
	}
	node_close(node);
}

/* Sends the session's first frame, with its new cookie. */
static void ask(struct node *node)
{
	const struct shape shape = {
		.flags = CAREFUL_F_FIRST | CAREFUL_F_LAST,
		.frag_bytes = sizeof(released_request) - sizeof(struct careful_hdr) -
			      sizeof(struct careful_am),
	};
	struct frame frame = { 0 };
	struct careful_hdr hdr;

	memcpy(&hdr, released_request, sizeof(hdr));
	CHECK_EQ(be32toh(hdr.check), careful_hdr_check(&hdr));
	CHECK_EQ(be16toh(hdr.src_node), 0);
	hdr.cookie = node->sent[CAREFUL_WELCOME & 7].cookie;
	hdr.check = htobe32(careful_hdr_check(&hdr));
	frame_build(&frame, &shape);
	memcpy(frame.data + frame.hdr_at, released_request, sizeof(released_request));
	memcpy(frame.data + frame.hdr_at, &hdr, sizeof(hdr));
	node_arrive(node, frame.data, frame.bytes);
	node_poll(node, 1);
	node_leave(node, NODE_TX);
}

static void test_request__is_served(void)
{
	struct node *node = node_open();
	const uint64_t *counters = node->c->link.counters;

	if (served()) {
		hear(node, released_hello, sizeof(released_hello));
		hear_with(node, released_hello_again, sizeof(released_hello_again), TOKEN_AT,
			  node->last.token);
		expect_like(node, released_welcome, sizeof(released_welcome), released_hello_again);
		expect_minor(node, released_hello_again[MINOR_AT]);
		ask(node);
		CHECK_EQ(counters[CAREFUL_C_RX_FRAMES], 1);
		CHECK_EQ(counters[CAREFUL_C_TX_FRAMES], 1); /* the reply */
	} else {
		printf("not tried: a request of wire version %d: it is refused\n",
		       released_hello[0]);
	}
	node_close(node);
}

/* Today's version asks first, and gets the released version's answers. */
static void test_answers__are_understood(void)
{
	struct node *node = node_open();
	struct careful_peer_info info;
	uint64_t nonce;

	node_call(node);
	nonce = node->last.nonce;
	hear_with(node, released_challenge, sizeof(released_challenge), NONCE_AT, nonce);
	if (served())
		CHECK(!memcmp((uint8_t *)&node->last + TOKEN_AT, released_challenge + TOKEN_AT, 8));
	hear_with(node, released_welcome, sizeof(released_welcome), NONCE_AT, nonce);
	for (int s = 0; s < 3; s++) /* the peer asks to hold data back, and sends no train */
		node_time(node, 1000);
	CHECK_EQ(careful_peer_info(node->c, 0, &info), 0);
	CHECK_EQ(info.state, served() ? CAREFUL_PEER_UP : CAREFUL_PEER_CONNECTING);
	if (served())
		expect_minor(node, released_welcome[MINOR_AT]);
	node_close(node);
}

/* A peer of a later minor version is served like today's. */
static void test_hello__of_a_later_minor_version(void)
{
	struct node *node = node_open();
	struct careful_ctrl hello;

	if (served()) {
		hear(node, released_hello, sizeof(released_hello));
		memcpy(&hello, released_hello_again, sizeof(hello));
		hello.terms.minor = 255;
		hear_with(node, (const uint8_t *)&hello, sizeof(hello), TOKEN_AT, node->last.token);
		CHECK_EQ(node->last.type, CAREFUL_WELCOME);
		CHECK_EQ(node->last.terms.minor, CAREFUL_WIRE_MINOR);
		expect_minor(node, 255);
	}
	node_close(node);
}

int main(void)
{
	test_hello__is_answered();
	test_answers__are_understood();
	test_refuse__is_understood();
	test_request__is_served();
	test_hello__of_a_later_minor_version();
	printf("test_released: ok\n");
	return 0;
}
