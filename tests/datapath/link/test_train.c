// SPDX-License-Identifier: BSD-2-Clause
/*
 * A hostile peer may request and answer any well-formed train. It cannot hold data back for long,
 * gets a bounded number of frames, and shrinks only its own window. test_sim_train.c
 * tests honest ends behind a short queue.
 */
#include <endian.h>

#include "check.h"
#include "frame.h"
#include "node.h"

enum {
	WINDOW = NODE_RX / NODE_PEERS,
	HOLD_MS = 2000, /* at most, without another message, */
	HELD_MS = 5000, /* and with it */
	ASKED = 0, /* in node->train_messages */
	SENT,
	OVER,
};

static struct careful_peer_info info_of(struct node *node, uint32_t peer)
{
	struct careful_peer_info info;

	CHECK_EQ(careful_peer_info(node->c, peer, &info), 0);
	return info;
}

static bool is_up(struct node *node)
{
	return info_of(node, 0).state == CAREFUL_PEER_UP;
}

/* Lets time pass, and sent frames leave, until the session is up. Returns the time in ms. */
static uint32_t time_until_up(struct node *node, uint32_t most_ms)
{
	uint32_t ms = 0;

	for (; ms < most_ms && !is_up(node); ms++) {
		node_leave(node, NODE_TX);
		node_time(node, 1);
	}
	return ms;
}

/* Opens a session with a peer that makes us hold our data back. */
static void join(struct node *node, uint32_t host, uint32_t hold_ms)
{
	struct careful_ctrl hello = node_hello(host);

	hello.terms.hold_ms = htobe32(hold_ms);
	node_ask(node, host, &hello);
}

static struct careful_ctrl about_trains(const struct node *node, uint8_t type, uint64_t number,
					uint32_t frames)
{
	return (struct careful_ctrl){
		.version = CAREFUL_WIRE_VERSION,
		.type = type,
		.bytes = htobe16(sizeof(struct careful_ctrl)),
		.nonce = htobe64(number),
		.cookie = htobe64(node->c->link.peers[0].cookie_in),
		.train.frames = htobe32(frames),
		.train.hold_ms = htobe32(0xffffffff),
	};
}

static void tell(struct node *node, uint8_t type, uint64_t number, uint32_t frames)
{
	struct careful_ctrl ctrl = about_trains(node, type, number, frames);

	node_tell(node, 0, &ctrl);
}

static void test_hold__ends_by_itself(void)
{
	static const uint32_t holds[] = { 1, 100, HOLD_MS, 60000, 0xffffffff };

	for (size_t i = 0; i < sizeof(holds) / sizeof(holds[0]); i++) {
		struct node *node = node_open();
		uint32_t want = holds[i] < HOLD_MS ? holds[i] : HOLD_MS;
		uint32_t took;

		join(node, 0, holds[i]);
		took = time_until_up(node, 10000);
		CHECK(took + 4 >= want && took <= want + 4);
		node_close(node);
	}
}

static void test_hold__not_renewed_for_ever(void)
{
	struct node *node = node_open();
	uint32_t took = 0;

	join(node, 0, HOLD_MS);
	for (; took < 2 * HELD_MS && !is_up(node); took += 100) {
		tell(node, CAREFUL_TRAIN_ASK, 1 + took, 1);
		for (uint32_t ms = 0; ms < 99; ms++) {
			node_leave(node, NODE_TX);
			node_time(node, 1);
		}
	}
	CHECK(took <= HELD_MS + 200);
	CHECK(is_up(node));
	node_close(node);
}

static void test_hold__over_ends_it(void)
{
	struct node *node = node_open();
	struct careful_ctrl over;

	join(node, 0, HOLD_MS);
	over = about_trains(node, CAREFUL_TRAIN_OVER, 0, 0);
	over.cookie ^= 1;
	node_tell(node, 0, &over);
	CHECK_EQ(time_until_up(node, 10), 10); /* a stranger sent it */
	tell(node, CAREFUL_TRAIN_OVER, 0, 0);
	CHECK(time_until_up(node, 10) < 10);
	node_close(node);
}

/* The peer that asked for a train no longer waits for it: the rest would only delay data. */
static void test_hold__over_ends_the_train(void)
{
	struct node *node = node_open();
	uint32_t sent;

	join(node, 0, HOLD_MS);
	tell(node, CAREFUL_TRAIN_ASK, 1, CAREFUL_TRAIN_FRAMES);
	node_time(node, 1); /* a frame in each buffer, none of which leaves */
	tell(node, CAREFUL_TRAIN_OVER, 0, 0);
	node_time(node, 2);
	CHECK(is_up(node));
	node_leave(node, NODE_TX);
	sent = node->trains_sent;
	CHECK(sent < CAREFUL_TRAIN_FRAMES);
	for (int ms = 0; ms < 100; ms++) {
		node_leave(node, NODE_TX);
		node_time(node, 1);
	}
	CHECK_EQ(node->trains_sent, sent);
	CHECK_EQ(node->train_messages[SENT], 0);
	node_close(node);
}

static void test_ask__bounded(void)
{
	struct node *node = node_open();

	join(node, 0, HOLD_MS);
	tell(node, CAREFUL_TRAIN_ASK, 1, 0xffffffff);
	time_until_up(node, 1500);
	CHECK_EQ(node->trains_sent, CAREFUL_TRAIN_FRAMES);
	CHECK_EQ(node->train_messages[SENT], 1);
	CHECK_EQ(be32toh(node->train.train.frames), CAREFUL_TRAIN_FRAMES);
	for (uint64_t number = 2; number < 40; number++) {
		tell(node, CAREFUL_TRAIN_ASK, number, 3);
		node_leave(node, NODE_TX);
	}
	time_until_up(node, HELD_MS);
	CHECK_EQ(node->trains_sent, CAREFUL_TRAIN_FRAMES + 15 * 3);
	node_close(node);
}

static void test_ask__of_no_session_or_too_late(void)
{
	struct node *node = node_open();
	struct careful_ctrl ask;

	CHECK(node_session(node, 0)); /* open: no data is held back */
	tell(node, CAREFUL_TRAIN_ASK, 1, 8);
	node_close(node);
	node = node_open();
	join(node, 0, HOLD_MS);
	ask = about_trains(node, CAREFUL_TRAIN_ASK, 1, 8);
	ask.cookie ^= 1;
	node_tell(node, 0, &ask);
	tell(node, CAREFUL_TRAIN_ASK, 0, 8);
	tell(node, CAREFUL_TRAIN_ASK, 1ull << 32, 8);
	time_until_up(node, HELD_MS);
	CHECK_EQ(node->trains_sent, 0);
	CHECK_EQ(node->train_messages[SENT], 0);
	node_close(node);
}

/* Nothing but the frames of a train leaves while data is held back. */
static void test_hold__data_waits(void)
{
	struct node *node = node_open();

	join(node, 0, HOLD_MS);
	CHECK_EQ(careful_request(node->c, 0, 1, NULL, "data", 4, NULL, NULL), 0);
	time_until_up(node, 100);
	CHECK_EQ(node->c->link.counters[CAREFUL_C_TX_FRAMES], 0);
	tell(node, CAREFUL_TRAIN_OVER, 0, 0);
	node_time(node, 1);
	CHECK_EQ(node->c->link.counters[CAREFUL_C_TX_FRAMES], 1);
	node_close(node);
}

/* The peer uses up its window before our next tick. */
static void use_up(struct node *node)
{
	const struct shape shape = { .type = CAREFUL_UPDATE };
	struct careful_hdr hdr = {
		.version = CAREFUL_WIRE_VERSION,
		.type = CAREFUL_UPDATE,
		.cookie = htobe64(node->c->link.peers[0].cookie_in),
	};

	for (uint32_t seq = 1; seq <= WINDOW; seq++) {
		struct frame frame = { 0 };

		hdr.seq = htobe32(seq);
		hdr.check = htobe32(careful_hdr_check(&hdr));
		frame_build(&frame, &shape);
		memcpy(frame.data + frame.hdr_at, &hdr, sizeof(hdr));
		node_arrive(node, frame.data, frame.bytes);
		node_poll(node, 1);
	}
	CHECK_EQ(node->c->link.counters[CAREFUL_C_RX_FRAMES], WINDOW);
	CHECK_EQ(node->c->link.counters[CAREFUL_C_TX_UPDATES], 0);
}

/* The peer's data opens the session; then it needs the credits. */
static void test_hold__credits_that_fell_due_are_told(void)
{
	struct node *node = node_open();

	join(node, 0, HOLD_MS);
	use_up(node);
	CHECK_EQ(node->c->link.peers[0].phase, LINK_HELD);
	node_time(node, 1);
	CHECK(is_up(node));
	CHECK_EQ(node->c->link.counters[CAREFUL_C_TX_UPDATES], 1);
	node_close(node);
}

/* Frames that overtake their WELCOME need their credits too. */
static void test_asked__credits_that_fell_due_are_told(void)
{
	struct careful_ctrl answer = node_hello(0);
	struct node *node = node_open();

	node_call(node);
	node_challenge(node, &answer, 77);
	use_up(node);
	CHECK_EQ(node->c->link.peers[0].phase, LINK_ASKED);
	node_welcome(node, &answer);
	CHECK(is_up(node));
	CHECK_EQ(node->c->link.counters[CAREFUL_C_TX_UPDATES], 1);
	node_close(node);
}

/* An older peer answers nothing and holds no data back. */
static void test_measure__no_answer(void)
{
	struct node *node = node_open_measuring();

	node->is_train_manual = true;
	join(node, 0, 0);
	CHECK(!is_up(node));
	CHECK(time_until_up(node, 1000) < 400);
	CHECK_EQ(info_of(node, 0).burst, CAREFUL_BURST_UNKNOWN);
	CHECK_EQ(info_of(node, 0).window, WINDOW);
	node_close(node);
}

static void new_epoch(struct node *node)
{
	struct careful_ctrl answer = node_hello(0);

	CHECK_EQ(node->last.type, CAREFUL_HELLO);
	answer.nonce = node->last.nonce;
	if (!node->last.token) {
		node_challenge(node, &answer, 77);
		CHECK_EQ(node->last.type, CAREFUL_HELLO);
	}
	node_welcome(node, &answer);
}

/* Answers trains like a peer from which `frames` of `sent` frames arrive. */
static void answer_trains(struct node *node, uint32_t frames, uint32_t sent)
{
	uint32_t asked = 0;

	for (uint32_t ms = 0; ms < 4000 && !is_up(node); ms++) {
		if (node->train_messages[ASKED] != asked) {
			asked = node->train_messages[ASKED];
			node->trained[0].frames = node->trained[0].whole = frames;
			tell(node, CAREFUL_TRAIN_SENT, be64toh(node->train.nonce), sent);
		}
		node_leave(node, NODE_TX);
		node_time(node, 1);
		if (node->last.type == CAREFUL_HELLO && !node->c->link.peers[0].cookie_out)
			continue;
		if (node->c->link.peers[0].phase == LINK_ASKED)
			new_epoch(node);
	}
	CHECK(is_up(node));
}

/* A peer's report of its trains, and the window that it gets. */
static void test_measure__answers(void)
{
	static const struct {
		uint32_t frames, sent, burst, window;
	} answers[] = {
		{ 0, 0, CAREFUL_BURST_UNKNOWN, WINDOW }, /* it sends no frame */
		{ 0, WINDOW, CAREFUL_BURST_UNKNOWN, WINDOW }, /* it only claims to have sent */
		{ 0, 0xffffffff, CAREFUL_BURST_UNKNOWN, WINDOW },
		{ 1, WINDOW, CAREFUL_BURST_SHORT, 5 }, /* the least window for its frames */
		{ 1, 0xffffffff, CAREFUL_BURST_SHORT, 5 },
		{ 10, WINDOW, CAREFUL_BURST_SHORT, 10 },
		{ NODE_RX, NODE_RX, CAREFUL_BURST_WHOLE, WINDOW },
		{ 0xffffffff, NODE_RX, CAREFUL_BURST_WHOLE, WINDOW }, /* more than requested */
	};

	for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++) {
		struct node *node = node_open_measuring();

		node->is_train_manual = true;
		join(node, 0, 0);
		answer_trains(node, answers[i].frames, answers[i].sent);
		printf("  %u of %u\n", answers[i].frames, answers[i].sent);
		CHECK_EQ(info_of(node, 0).burst, answers[i].burst);
		CHECK_EQ(info_of(node, 0).window, answers[i].window);
		CHECK_EQ(node->c->link.counters[CAREFUL_C_EPOCHS_BROKEN], 0);
		/* The next peer has its own window. */
		CHECK_EQ(node->c->link.window, WINDOW);
		node_close(node);
	}
}

/* Answers to another train than the last, and answers of a stranger. */
static void test_measure__not_the_answer(void)
{
	struct node *node = node_open_measuring();
	struct careful_ctrl sent;

	node->is_train_manual = true;
	join(node, 0, 0);
	node_time(node, 1);
	CHECK_EQ(node->train_messages[ASKED], 1);
	sent = about_trains(node, CAREFUL_TRAIN_SENT, be64toh(node->train.nonce), 0);
	sent.cookie ^= 1;
	node_tell(node, 0, &sent);
	tell(node, CAREFUL_TRAIN_SENT, be64toh(node->train.nonce) + 1, 0);
	tell(node, CAREFUL_TRAIN_SENT, be64toh(node->train.nonce) | 1ull << 32, 0);
	CHECK(!is_up(node));
	tell(node, CAREFUL_TRAIN_SENT, be64toh(node->train.nonce), 0);
	CHECK(is_up(node));
	node_close(node);
}

/* Requests long trains of large frames again and again. Returns how many bytes would be sent. */
static uint64_t ask_much(struct link *link, uint32_t host)
{
	enum { FRAME = 4000, TIMES = 100 };
	const union address to = node_host(host);
	uint64_t frames = 0;

	for (int i = 0; i < TIMES; i++)
		frames += rate_limit_train(link, &to, CAREFUL_TRAIN_FRAMES, FRAME);
	return frames * FRAME;
}

/* The limit of a host holds over all its epochs and sessions. Other hosts have their own share. */
static void test_trains__of_a_host_are_bounded_in_bytes(void)
{
	enum { LESS = 2 * 4000 };
	struct node *node = node_open();
	struct link *link = &node->c->link;
	uint64_t first = ask_much(link, 0), second, later;

	CHECK(first <= RATE_LIMIT_TRAIN_BURST && first >= RATE_LIMIT_TRAIN_BURST - LESS);
	CHECK_EQ(ask_much(link, 0), 0);
	CHECK_EQ(ask_much(link, NODE_HOSTS), 0); /* another port of the same host */
	second = ask_much(link, 1);
	CHECK(second <= RATE_LIMIT_TRAIN_BURST && second >= RATE_LIMIT_TRAIN_BURST - LESS);
	CHECK(ask_much(link, 2) <= LESS); /* all hosts together */
	link->now_ns += 1000000000;
	later = ask_much(link, 0);
	CHECK(later <= 1000000000 / RATE_LIMIT_TRAIN_BYTE_NS + LESS);
	CHECK(later >= 1000000000 / RATE_LIMIT_TRAIN_BYTE_NS - LESS);
	node_close(node);
}

/* The peer learns how few frames were sent, and may send its data at once. */
static void test_trains__of_a_host_that_had_too_many_are_empty(void)
{
	struct node *node = node_open();

	join(node, 0, HOLD_MS);
	ask_much(&node->c->link, 0);
	ask_much(&node->c->link, 0);
	node->trains_sent = 0;
	tell(node, CAREFUL_TRAIN_ASK, 1, CAREFUL_TRAIN_FRAMES);
	for (int ms = 0; ms < 10; ms++) {
		node_leave(node, NODE_TX);
		node_time(node, 1);
	}
	CHECK(node->trains_sent <= 1 + 40); /* allowed by the 10 ms */
	CHECK_EQ(node->train_messages[SENT], 1);
	CHECK_EQ(be32toh(node->train.train.frames), node->trains_sent);
	node_close(node);
}

int main(void)
{
	RUN(test_hold__ends_by_itself);
	RUN(test_hold__not_renewed_for_ever);
	RUN(test_hold__over_ends_it);
	RUN(test_hold__over_ends_the_train);
	RUN(test_hold__data_waits);
	RUN(test_hold__credits_that_fell_due_are_told);
	RUN(test_asked__credits_that_fell_due_are_told);
	RUN(test_ask__bounded);
	RUN(test_ask__of_no_session_or_too_late);
	RUN(test_measure__no_answer);
	RUN(test_measure__answers);
	RUN(test_measure__not_the_answer);
	RUN(test_trains__of_a_host_are_bounded_in_bytes);
	RUN(test_trains__of_a_host_that_had_too_many_are_empty);
	return 0;
}
