// SPDX-License-Identifier: BSD-2-Clause
/*
 * Grants (link/send/reservation.c) to and by misbehaving peers: what a peer can get or keep at most.
 */
#include "hostile.h"

enum { POOL = 16, W = (NODE_RX - POOL) / NODE_PEERS, IDLE_MS = 2000 };

/* Returns a request without a handler: its buffer is released at once, and it is answered. */
static struct hostile request(const struct node *node, uint32_t slot, uint16_t extra)
{
	return (struct hostile){
		.peer = slot,
		.extra = extra,
		.credits = node->c->link.peers[slot].flow.tx.sent,
		.am = { .kind = CAREFUL_AM_REQUEST, .handler = htobe16(CAREFUL_HANDLERS) },
		.bytes = 10,
	};
}

static void ask(struct node *node, uint32_t slot, uint16_t extra)
{
	const struct hostile what = request(node, slot, extra);

	hostile_send(node, &what);
}

static uint32_t granted(const struct node *node, uint32_t slot)
{
	return node->c->link.sessions[slot].granted;
}

static uint32_t left(const struct node *node)
{
	return node->c->link.reserve.free;
}

/* Lets the peer answer SYNC. */
static void answer(struct node *node, uint32_t slot)
{
	const struct link_peer *peer = &node->c->link.peers[slot];
	struct careful_ctrl ack = {
		.version = CAREFUL_WIRE_VERSION,
		.type = CAREFUL_SYNC_ACK,
		.bytes = htobe16(sizeof(ack)),
		.nonce = htobe64((uint64_t)peer->session->sync.token << 32 |
				 (uint32_t)peer->session->sync.last_us),
		.cookie = htobe64(peer->cookie_in),
		.counts.seq_sent = htobe32(peer->flow.seq_in),
		.counts.seq_rcvd = htobe32(peer->flow.seq_out),
		.counts.returned = htobe32(peer->flow.tx.sent),
	};

	if (peer->session->sync.asked)
		node_tell(node, slot, &ack);
}

static struct node *begin(uint32_t reserve)
{
	struct node *node = node_open_reserving(reserve);

	CHECK(node_session(node, 0));
	CHECK(node_session(node, 1));
	return node;
}

static void test_window__leaves_out_the_reserve(void)
{
	struct node *node = begin(POOL);
	struct careful_info info;

	CHECK_EQ(careful_info(node->c, &info), 0);
	CHECK_EQ(info.window, W);
	CHECK_EQ(info.reserve_buffers, POOL);
	CHECK_EQ(be32toh(node->sent[CAREFUL_WELCOME & 7].terms.window), W);
	CHECK_EQ(be32toh(node->sent[CAREFUL_WELCOME & 7].terms.reserve), POOL);
	/* XDP admits nothing beyond the granted buffers. */
	CHECK_EQ(node->c->link.peers[1].entry->may_fill, W);
	node_close(node);
}

static void test_ask__half_of_the_rest(void)
{
	struct node *node = begin(POOL);

	ask(node, 0, 0xffff);
	CHECK_EQ(granted(node, 0), POOL / 2);
	ask(node, 1, 3); /* exactly what it asks for */
	CHECK_EQ(granted(node, 1), 3);
	ask(node, 1, 0xffff);
	CHECK_EQ(granted(node, 1), 4);
	/* The first peer holds more than are left in the pool: it pays back until both have the
	 * same. */
	for (int i = 0; i < 10; i++) {
		ask(node, 0, 0xffff);
		ask(node, 1, 0xffff);
		CHECK_EQ(granted(node, 0) + granted(node, 1) + left(node), POOL);
	}
	CHECK(granted(node, 0) >= 5 && granted(node, 0) <= 6);
	CHECK(granted(node, 1) >= 5 && granted(node, 1) <= 6);
	/* Its frames, which ask for nothing any longer, pay the grant back. */
	for (int i = 0; i < 6; i++)
		ask(node, 0, 0);
	CHECK_EQ(granted(node, 0), 0);
	node_close(node);
}

/* The last frame of a message asks for nothing, and overtakes a frame that asks for more. */
static void test_ask__as_the_last_frame_says(void)
{
	struct node *node = begin(POOL);
	struct hostile last = request(node, 0, 0);

	last.ahead = 1;
	hostile_send(node, &last);
	ask(node, 0, 4);
	CHECK_EQ(be16toh(node->c->link.peers[0].flow.asked), 0);
	CHECK_EQ(granted(node, 0), 0);
	node_close(node);
}

static void test_ask__in_vain_without_a_reserve(void)
{
	struct node *node = begin(0);
	const struct flow *flow = &node->c->link.peers[0].flow;

	ask(node, 0, 0xffff);
	CHECK_EQ(granted(node, 0), 0);
	CHECK_EQ(flow->rx.returned, flow->rx.received);
	CHECK_EQ(node->c->link.reserve.asking_count, 0);
	node_close(node);
}

/* A peer uses its whole grant, and one buffer more. */
static void test_use__no_more_than_was_granted(void)
{
	struct node *node = begin(POOL);
	const struct link_peer *peer = &node->c->link.peers[0];
	uint64_t epoch = peer->epoch;

	ask(node, 0, 0xffff);
	for (uint32_t i = 0; i < W + POOL / 2; i++) {
		const struct hostile what = request(node, 0, 0xffff);

		CHECK(node->fill_count > 0);
		hostile_arrive(node, &what);
	}
	node_poll(node, 1);
	CHECK_EQ(peer->epoch, epoch);
	node_leave(node, NODE_TX);
	for (uint32_t i = 0; i <= W + POOL / 2; i++) {
		const struct hostile what = request(node, 0, 0xffff);

		hostile_arrive(node, &what);
	}
	node_poll(node, 1);
	CHECK_EQ(node->c->link.counters[CAREFUL_C_BAD_CREDITS], 1);
	CHECK(peer->epoch != epoch);
	/* The grant returns to the pool with the epoch's buffers. */
	node_leave(node, NODE_TX);
	for (int i = 0; i < 5; i++)
		node_time(node, 10);
	CHECK_EQ(left(node), POOL);
	node_close(node);
}

/* A peer that asks and sends nothing keeps its grant until another peer wants it. */
static void test_silence__ends_the_epoch_when_others_wait(void)
{
	struct node *node = begin(POOL);
	const struct link_peer *peer = &node->c->link.peers[0];
	uint64_t epoch = peer->epoch;

	ask(node, 0, 0xffff);
	for (int i = 0; i < 5 * IDLE_MS / 100; i++) {
		ask(node, 1, 0);
		node_time(node, 100);
		answer(node, 0);
	}
	CHECK_EQ(peer->epoch, epoch);
	CHECK_EQ(granted(node, 0), POOL / 2);
	for (int i = 0; i < IDLE_MS / 100 + 3; i++) {
		ask(node, 1, 0xffff);
		node_time(node, 100);
		answer(node, 0);
	}
	CHECK(peer->epoch != epoch);
	CHECK_EQ(node->c->link.counters[CAREFUL_C_GRANTS_ENDED], 1);
	CHECK_EQ(granted(node, 0), 0);
	CHECK_EQ(granted(node, 1), POOL / 2);
	CHECK_EQ(node->c->link.peers[1].state, CAREFUL_PEER_UP);
	node_close(node);
}

/* A receiver that gives more credits than half of what it announced loses the session. */
static void test_credits__beyond_the_announced_number(void)
{
	for (uint32_t announced = 0; announced <= 8; announced += 4)
		for (uint32_t given = 0; given <= 12; given += 4) {
			struct node *node = node_open();
			const struct link_peer *peer = &node->c->link.peers[0];
			struct careful_ctrl hello = node_hello(0);
			struct hostile what;
			bool good = given <= announced / 2;

			hello.terms.reserve = htobe32(announced);
			CHECK(node_ask(node, 0, &hello));
			CHECK_EQ(peer->flow.tx.reserve, announced / 2);
			what = request(node, 0, 0);
			what.credits += given;
			hostile_send(node, &what);
			CHECK_EQ(node->c->link.counters[CAREFUL_C_BAD_CREDITS], !good);
			/* There is no data for the grant: updates use it up. */
			node_time(node, 2);
			if (good)
				CHECK_EQ(window_tx_unused(&peer->flow.tx), 0);
			if (good && given)
				CHECK(node->c->link.counters[CAREFUL_C_TX_UPDATES] >= given - 1);
			node_leave(node, NODE_TX);
			node_close(node);
		}
}

int main(void)
{
	RUN(test_window__leaves_out_the_reserve);
	RUN(test_ask__half_of_the_rest);
	RUN(test_ask__as_the_last_frame_says);
	RUN(test_ask__in_vain_without_a_reserve);
	RUN(test_use__no_more_than_was_granted);
	RUN(test_silence__ends_the_epoch_when_others_wait);
	RUN(test_credits__beyond_the_announced_number);
	return 0;
}
