// SPDX-License-Identifier: BSD-2-Clause
/* Tests the order of operations' ends if an end causes others. */
#include <endian.h>
#include <errno.h>

#include "check.h"
#include "frame.h"
#include "node.h"

enum { PEERS = 2, ASKED = 3, BYTES = 8 };

static const char answers[ASKED][BYTES] = { "first", "unasked", "second" };

/* Requests in the order of their begin. */
static struct asked {
	struct node *node;
	int closes; /* peer whose session its callback closes; -1: none */
	int status;
	char payload[BYTES];
} asked[ASKED];
static uint32_t told[ASKED], told_count;

static void on_done(const struct careful_result *result, void *user)
{
	struct asked *one = user;

	CHECK(told_count < ASKED);
	told[told_count++] = (uint32_t)(one - asked);
	one->node->ended++;
	if (one->closes >= 0)
		CHECK_EQ(careful_peer_close(one->node->c, (uint32_t)one->closes), 0);
	one->status = result->status;
	if (result->payload)
		memcpy(one->payload, result->payload, result->bytes);
}

static void ask(struct node *node, uint32_t which, uint32_t peer, int closes)
{
	asked[which] = (struct asked){ .node = node, .closes = closes, .status = 1 };
	CHECK_EQ(careful_request(node->c, peer, 0, NULL, "?", 1, on_done, &asked[which]), 0);
	node->begun++;
}

static uint32_t token_of(const struct node *node, const struct asked *one)
{
	for (uint32_t i = 0; i < node->c->limits.operations; i++)
		if (node->c->operations[i].token && node->c->operations[i].user == one)
			return node->c->operations[i].token;
	CHECK(!"the operation is under way");
	return 0;
}

/* Lets a peer answer a request by the frame with this number. */
static void answer(struct node *node, uint32_t which, uint32_t peer, uint32_t seq)
{
	const struct shape shape = {
		.flags = CAREFUL_F_FIRST | CAREFUL_F_LAST,
		.cookie = node->c->link.peers[peer].cookie_in,
		.seq = seq,
		.frag_bytes = BYTES,
	};
	struct careful_am am = {
		.kind = CAREFUL_AM_REPLY,
		.token = htobe32(token_of(node, &asked[which])),
	};
	struct frame frame = { 0 };
	struct careful_hdr hdr;
	uint8_t *body;

	frame_build(&frame, &shape);
	body = frame.data + frame.hdr_at + sizeof(hdr);
	memcpy(body, &am, sizeof(am));
	memcpy(body + sizeof(am), answers[which], BYTES);
	memcpy(&hdr, frame.data + frame.hdr_at, sizeof(hdr));
	hdr.src_node = htobe16((uint16_t)peer);
	hdr.msg_bytes = htobe32(BYTES);
	hdr.payload_crc = htobe32(link_crc32c(body, sizeof(am) + BYTES));
	hdr.check = htobe32(careful_hdr_check(&hdr));
	memcpy(frame.data + frame.hdr_at, &hdr, sizeof(hdr));
	node_arrive(node, frame.data, frame.bytes);
}

/* Two replies come at once. The end of the first request closes another session, whose request ends
 * before the second one. Each reply has its own payload. */
static void test_replies__after_the_end_of_the_earlier_one(void)
{
	struct node *node = node_open();

	told_count = 0;
	for (uint32_t host = 0; host < PEERS; host++)
		CHECK(node_session(node, host));
	ask(node, 0, 0, 1);
	ask(node, 1, 1, -1);
	ask(node, 2, 0, -1);
	node_poll(node, 1);
	node_leave(node, NODE_TX);
	answer(node, 0, 0, 1);
	answer(node, 2, 0, 2);
	node_poll(node, 1);
	CHECK_EQ(told_count, ASKED);
	for (uint32_t i = 0; i < ASKED; i++)
		CHECK_EQ(told[i], i);
	CHECK_EQ(asked[0].status, 0);
	CHECK_EQ(asked[1].status, -ECONNRESET);
	CHECK_EQ(asked[2].status, 0);
	CHECK(!memcmp(asked[0].payload, answers[0], BYTES));
	CHECK(!memcmp(asked[2].payload, answers[2], BYTES));
	node_close(node);
}

int main(void)
{
	RUN(test_replies__after_the_end_of_the_earlier_one);
	return 0;
}
