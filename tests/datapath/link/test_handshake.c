// SPDX-License-Identifier: BSD-2-Clause
/* Tests handshake fields that a hostile peer may craft: they must have no effect. */
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>

#include "check.h"
#include "hostile.h"
#include "engine/sharing.h"
#include "link/peer/peers.h"
#include "link/session/session.h"

static const struct offer {
	uint32_t buffer_bytes;
	bool fits;
} offers[] = {
	{ 0, false },	   { 255, false },   { 256, true },	     { NODE_BUFFER, true },
	{ 1 << 16, true }, { 65537, false }, { 0x80000000u, false }, { 0xffffffffu, false },
};

enum {
	OFFERS = sizeof(offers) / sizeof(offers[0]),
};

/* Checks that a frame costs credits, whatever the session's peer claimed. */
static void expect_costs(const struct node *node)
{
	const struct link_peer *peer = &node->c->link.peers[0];

	CHECK(link_cost(peer, 0) >= 1);
	CHECK(link_cost(peer, link_body_max(peer)) >= 1);
	CHECK(link_cost(peer, link_body_max(peer)) <= window_cost_max(NODE_RX / NODE_PEERS));
}

static void test_hello__buffers_that_no_frame_fills_are_refused(void)
{
	for (uint32_t i = 0; i < OFFERS; i++) {
		struct careful_ctrl hello = node_hello(0);
		struct node *node = node_open();

		hello.terms.buffer_bytes = htobe32(offers[i].buffer_bytes);
		printf("  %u bytes\n", offers[i].buffer_bytes);
		CHECK_EQ(node_ask(node, 0, &hello), offers[i].fits);
		if (offers[i].fits) {
			expect_costs(node);
		} else {
			CHECK_EQ(node->last.type, CAREFUL_REFUSE);
			CHECK_EQ(be32toh(node->last.refuse.why), CAREFUL_REFUSED_FRAME);
		}
		node_close(node);
	}
}

/* A peer's window decides how many frames our log keeps: a larger one is refused, and the log ends
 * with the session. */
static void test_hello__a_window_beyond_the_log_is_refused(void)
{
	for (uint32_t more = 0; more <= 1; more++) {
		struct careful_ctrl hello = node_hello(0);
		struct node *node = node_open();
		struct link_peer *peer = &node->c->link.peers[0];

		hello.terms.window = htobe32(LINK_WINDOW_MAX + more);
		hello.terms.reserve = htobe32(0xffffffff);
		CHECK_EQ(node_ask(node, 0, &hello), !more);
		CHECK_EQ(peer->repair.log != NULL, !more);
		if (!more)
			CHECK(peer->repair.log_mask < 2 * LINK_WINDOW_MAX);
		link_close(peer, 0);
		CHECK(!peer->repair.log);
		node_close(node);
	}
}

static void test_welcome__buffers_that_no_frame_fills_end_the_attempt(void)
{
	for (uint32_t i = 0; i < OFFERS; i++) {
		struct node *node = node_open();
		struct careful_ctrl answer = node_hello(0);
		struct careful_peer_info info;

		printf("  %u bytes\n", offers[i].buffer_bytes);
		node_call(node);
		node_challenge(node, &answer, 77);
		CHECK_EQ(be64toh(node->last.token), 77);
		answer.terms.buffer_bytes = htobe32(offers[i].buffer_bytes);
		node_welcome(node, &answer);
		CHECK_EQ(careful_peer_info(node->c, 0, &info), 0);
		if (offers[i].fits) {
			CHECK_EQ(info.state, CAREFUL_PEER_UP);
			expect_costs(node);
		} else {
			CHECK_EQ(info.state, CAREFUL_PEER_FAILED);
			CHECK_EQ(info.last_errno, EPROTO);
		}
		node_close(node);
	}
}

/* A peer of the same version refuses a HELLO whose version was damaged on the way: the HELLO is
 * repeated. */
static void test_refuse__of_our_own_version_ends_nothing(void)
{
	struct node *node = node_open();
	struct careful_ctrl refuse = node_hello(0);
	struct careful_peer_info info;

	node_call(node);
	refuse.nonce = node->last.nonce;
	refuse.type = CAREFUL_REFUSE;
	refuse.refuse.why = htobe32(CAREFUL_REFUSED_VERSION);
	for (int i = 0; i < 10; i++) {
		node_tell(node, 0, &refuse);
		node_time(node, 4);
		CHECK_EQ(careful_peer_info(node->c, 0, &info), 0);
		CHECK_EQ(info.state, CAREFUL_PEER_CONNECTING);
		CHECK_EQ(node->last.type, CAREFUL_HELLO);
	}
	node_close(node);
}

/* A delayed CHALLENGE is recognized by its number, unless another process sent the newer one. */
static void test_challenge__overtaken_changes_nothing(void)
{
	static const struct {
		uint32_t number, incarnation;
		bool news;
	} later[] = { { 3, 1, false }, { 3, 2, true }, { 5, 1, true } };

	for (size_t i = 0; i < sizeof(later) / sizeof(later[0]); i++) {
		struct node *node = node_open();
		struct careful_ctrl answer = node_hello(0);

		node_call(node);
		answer.incarnation = htobe64(1);
		answer.opening.challenges = htobe32(4);
		node_challenge(node, &answer, 77);
		CHECK_EQ(be64toh(node->last.token), 77);
		answer.opening.challenges = htobe32(later[i].number);
		answer.incarnation = htobe64(later[i].incarnation);
		node_challenge(node, &answer, 78);
		CHECK_EQ(node->last.nonce != answer.nonce, later[i].news);
		CHECK_EQ(node->c->link.peers[0].phase, later[i].news ? LINK_ASKING : LINK_ASKED);
		node_close(node);
	}
}

/* Numbers belong to one HELLO: a new process counts from 1. */
static void test_challenge__number_of_an_earlier_question_bounds_nothing(void)
{
	struct node *node = node_open();
	struct careful_ctrl answer = node_hello(0), hello = answer;
	struct careful_peer_info info;

	node_call(node);
	answer.opening.challenges = htobe32(500);
	node_challenge(node, &answer, 77);
	CHECK_EQ(node->c->link.peers[0].phase, LINK_ASKED);
	hello.nonce = htobe64(UINT64_MAX); /* the larger one is answered */
	hello.incarnation = htobe64(99);
	CHECK(node_ask(node, 0, &hello));
	link_close(&node->c->link.peers[0], ETIMEDOUT);
	node_call(node);
	CHECK_EQ(node->c->link.sessions[0].incarnation, 99);
	answer.incarnation = htobe64(99);
	answer.opening.challenges = htobe32(1);
	node_challenge(node, &answer, 78);
	CHECK_EQ(node->c->link.peers[0].phase, LINK_ASKED);
	answer.opening.challenges = 0;
	node_welcome(node, &answer);
	CHECK_EQ(careful_peer_info(node->c, 0, &info), 0);
	CHECK_EQ(info.state, CAREFUL_PEER_UP);
	node_close(node);
}

static void note_status(const struct careful_result *result, void *user)
{
	*(int *)user = result->status;
}

/* A message that waits for a session was checked with our own frame size. If the peer's frames are
 * smaller, a message that is too large fails, and one that fits leaves. */
static void test_welcome__a_waiting_message_that_fits_no_frame_fails(void)
{
	static const uint8_t payload[300];
	const union address to = node_host(0);
	struct node *node = node_open();
	struct careful_ctrl answer = node_hello(0);
	int large = 1, small = 1;
	uint64_t sent;

	CHECK_EQ(careful_peer(node->c, &to.sa, sizeof(to.in)), 0);
	CHECK_EQ(careful_request(node->c, 0, 1, NULL, payload, 300, note_status, &large), 0);
	CHECK_EQ(careful_request(node->c, 0, 1, NULL, payload, 20, note_status, &small), 0);
	CHECK_EQ(careful_request(node->c, 0, 1, NULL, payload, 300, NULL, NULL), 0);
	node_time(node, 1);
	node_challenge(node, &answer, 77);
	answer.terms.frame_bytes = htobe32(256);
	node_welcome(node, &answer);
	node_time(node, 1);
	sent = node->c->link.counters[CAREFUL_C_TX_FRAMES];
	CHECK_EQ(large, -EMSGSIZE);
	CHECK_EQ(small, 1);
	CHECK_EQ(sent, 1);
	CHECK_EQ(node->c->messages.peers[0].messages, 0);
	CHECK_EQ(node->c->messages.parked_share.free, node->c->messages.parked_share.count);
	node_close(node);
}

/* Opens a session with host 0 that lost five frames; the HELLO for the next epoch says so. */
static struct node *open_with_losses(void)
{
	struct node *node = node_open();

	CHECK(node_session(node, 0));
	link_lost(&node->c->link.peers[0], 5);
	for (int i = 0; i < 10; i++)
		node_time(node, 1);
	CHECK_EQ(node->last.type, CAREFUL_HELLO);
	CHECK_EQ(be32toh(node->last.terms.lost), 5);
	return node;
}

static void expect_lost_here(struct node *node)
{
	struct careful_peer_info info;

	CHECK_EQ(careful_peer_info(node->c, 0, &info), 0);
	CHECK_EQ(info.state, CAREFUL_PEER_UP);
	CHECK_EQ(info.lost_here, 5);
	CHECK_EQ(info.lost_there, 0);
	node_close(node);
}

/* Losses belong to two processes: a new process does not hear of its predecessor's. */
static void test_lost__a_new_process_that_asks_inherits_nothing(void)
{
	struct node *node = open_with_losses();
	struct careful_ctrl hello = node_hello(0);

	hello.nonce = htobe64(UINT64_MAX); /* the larger one is answered */
	hello.incarnation = htobe64(99);
	CHECK(node_ask(node, 0, &hello));
	CHECK_EQ(node->last.type, CAREFUL_WELCOME);
	CHECK_EQ(be32toh(node->last.terms.lost), 0);
	expect_lost_here(node);
}

static void test_lost__a_new_process_that_is_asked_inherits_nothing(void)
{
	struct node *node = open_with_losses();
	struct careful_ctrl answer = node_hello(0);

	answer.incarnation = htobe64(99);
	for (int i = 0; i < 2; i++) { /* the new process does not know that epoch */
		node_challenge(node, &answer, 77);
		node_time(node, 1);
		CHECK_EQ(node->last.type, CAREFUL_HELLO);
	}
	CHECK_EQ(be64toh(node->last.token), 77);
	CHECK_EQ(be32toh(node->last.terms.lost), 0);
	node_welcome(node, &answer);
	expect_lost_here(node);
}

/* The peer's SYNC may arrive between two epochs. Then no GONE is sent, since a HELLO tells the
 * peer. For an ended session GONE is sent. */
static void test_sync__of_the_epoch_that_is_being_renewed_is_not_gone(void)
{
	struct careful_ctrl hello = node_hello(0), sync = hello;
	struct node *node = node_open();
	struct link_peer *peer = &node->c->link.peers[0];

	CHECK(node_ask(node, 0, &hello));
	sync.type = CAREFUL_SYNC;
	sync.cookie = htobe64(peer->cookie_in);
	link_renew(peer);
	node_tell(node, 0, &sync);
	CHECK(node->last.type != CAREFUL_GONE);
	node_time(node, 5);
	CHECK_EQ(node->last.type, CAREFUL_HELLO);
	link_close(peer, ETIMEDOUT);
	node_tell(node, 0, &sync);
	CHECK_EQ(node->last.type, CAREFUL_GONE);
	node_close(node);
}

/* Payload that a program keeps from the last epoch is copied out, since its buffers belong to the
 * next one. */
static void test_hello__waits_for_nothing_that_is_kept(void)
{
	const struct hostile kept = {
		.am = { .kind = CAREFUL_AM_REQUEST, .handler = htobe16(1) },
		.bytes = 10,
	};
	struct careful_ctrl hello = node_hello(0);
	struct node *node = node_open();
	const struct link_peer *peer = &node->c->link.peers[0];

	CHECK(node_ask(node, 0, &hello));
	hostile_send(node, &kept);
	CHECK_EQ(node->kept_count, 1);
	CHECK_EQ(peer->kept, 1);
	hello.nonce = htobe64(1000);
	CHECK(node_ask(node, 0, &hello));
	CHECK_EQ(peer->session->epochs, 2);
	CHECK_EQ(node->kept_count, 1);
	CHECK_EQ(node->c->link.counters[CAREFUL_C_COPIED_OUT], 1);
	node_close(node);
}

/* One host, with as many ports as it likes, takes half of the slots and leaves half. */
static void test_hello__one_address_cannot_use_all_slots(void)
{
	struct node *node = node_open();

	CHECK(node_session(node, 0));
	for (uint32_t i = 1; i < 4; i++) {
		CHECK(!node_session(node, i * NODE_HOSTS));
		/* The last message may be a SYNC to the first peer. */
		CHECK_EQ(node->c->link.counters[CAREFUL_C_CTRL_REFUSED], i);
	}
	CHECK(node_session(node, 1));
	node_close(node);
}

/* Slots that the address had, and that count as free, do not give it more either. */
static void test_hello__other_ports_of_an_address_get_no_further_slots(void)
{
	struct careful_ctrl hello = node_hello(0);
	struct node *node = node_open();

	CHECK(node_session(node, 0));
	link_close(&node->c->link.peers[0], ECONNRESET);
	CHECK(node_session(node, NODE_HOSTS)); /* another port of the same host */
	hello.nonce = htobe64(1000);
	CHECK(!node_ask(node, 0, &hello));
	CHECK(node->c->link.counters[CAREFUL_C_CTRL_REFUSED] > 0);
	CHECK(node_session(node, 1));
	node_close(node);
}

/* A host that asks at two of our addresses has two sessions. Here the second finds no slot. */
static void test_hello__at_another_of_our_addresses_leaves_the_session_alone(void)
{
	struct careful_ctrl hello = node_hello(0), sync = hello;
	struct node *node = node_open();
	const struct link_peer *peer = &node->c->link.peers[0];

	node->ours = 2;
	CHECK(node_session(node, 0));
	node->ours = 13;
	hello.nonce = htobe64(1000);
	node_tell(node, 0, &hello);
	hello.token = node->sent[CAREFUL_CHALLENGE & 7].token;
	node_tell(node, 0, &hello);
	CHECK_EQ(node->last.type, CAREFUL_REFUSE);
	CHECK_EQ(be32toh(node->last.refuse.why), CAREFUL_REFUSED_PEERS);
	CHECK_EQ(peer->phase, LINK_OPEN);
	CHECK_EQ(peer->session->epochs, 1);

	/* The cookie names the session at each of our addresses. */
	sync.type = CAREFUL_SYNC;
	sync.nonce = htobe64(7);
	sync.cookie = htobe64(peer->cookie_in);
	node_tell(node, 0, &sync);
	node_time(node, 5);
	CHECK_EQ(node->last.type, CAREFUL_SYNC_ACK);
	CHECK_EQ(be64toh(node->last.nonce), 7);
	node_close(node);
}

/* A nonce of 0 looks like an answer to a HELLO that was never sent, and must not reveal a
 * session. */
static void test_hello__without_a_number_is_dropped(void)
{
	struct careful_ctrl answer = node_hello(0), hello = answer;
	struct node *node = node_open();

	node_call(node);
	node_challenge(node, &answer, 77);
	node_welcome(node, &answer);
	CHECK_EQ(node->c->link.peers[0].phase, LINK_OPEN);
	hello.nonce = 0;
	hello.token = htobe64(1);
	node_tell(node, 0, &hello);
	CHECK_EQ(node->last.type, CAREFUL_HELLO); /* our own */
	CHECK_EQ(node->c->link.counters[CAREFUL_C_CTRL_MALFORMED], 1);
	node_close(node);
}

/* HELLOs without a proof: only as many are answered as the loop can afford, and no state is
 * kept. */
static void test_flood__of_strangers_is_answered_at_a_rate(void)
{
	enum { MS = 500, EACH_MS = 30 };
	const uint64_t most = NODE_HOSTS * (RATE_LIMIT_ANSWERS_HOST_BURST +
					    (uint64_t)RATE_LIMIT_ANSWERS_HOST * MS / 1000);
	struct node *node = node_open();
	const uint64_t *counters = node->c->link.counters;

	for (uint32_t i = 0; i < MS * EACH_MS; i++) {
		struct careful_ctrl hello = node_hello(i % NODE_HOSTS);

		hello.nonce = htobe64(1000 + i);
		hello.token = htobe64(i % 3);
		node_hear(node, i % NODE_HOSTS, &hello);
		if (i % EACH_MS == EACH_MS - 1)
			node_time(node, 1);
	}
	node_time(node, 1);
	CHECK(counters[CAREFUL_C_CTRL_CHALLENGED] <= most + 16);
	CHECK(counters[CAREFUL_C_CTRL_CHALLENGED] >= most - 16);
	CHECK_EQ(counters[CAREFUL_C_CTRL_CHALLENGED] + counters[CAREFUL_C_CTRL_LIMITED],
		 MS * EACH_MS);
	for (uint32_t i = 0; i < NODE_PEERS; i++)
		CHECK_EQ(node->c->link.peers[i].state, CAREFUL_PEER_NONE);
	CHECK(node_session(node, 0));
	node_close(node);
}

/* Returns how many of a thousand questions from as many addresses of a family are answered. */
static uint32_t answered(struct link *link, uint32_t host, bool from_one)
{
	union address from = node_host(host);
	uint32_t count = 0;

	for (uint32_t i = 0; i < 1000; i++) {
		if (!from_one && from.sa.sa_family == AF_INET)
			from.in.sin_addr.s_addr = htonl(0x0a800000 + i);
		else if (!from_one)
			memcpy(&from.in6.sin6_addr.s6_addr[8], &i, sizeof(i));
		count += rate_limit_answer(link, &from);
	}
	return count;
}

/* One address leaves others their share, and one family the other, from however many addresses. */
static void test_flood__leaves_others_a_share_of_answers(void)
{
	struct node *node = node_open();
	struct link *link = &node->c->link;

	CHECK_EQ(answered(link, 0, true), RATE_LIMIT_ANSWERS_HOST_BURST);
	CHECK_EQ(answered(link, 1, true), RATE_LIMIT_ANSWERS_HOST_BURST);
	CHECK_EQ(answered(link, 0, false),
		 RATE_LIMIT_ANSWERS_BURST - 2 * RATE_LIMIT_ANSWERS_HOST_BURST);
	node_time(node, 20);
	CHECK(answered(link, 0, false) > 0);
	CHECK(answered(link, 3, true) > RATE_LIMIT_ANSWERS_HOST_BURST / 2);
	CHECK(answered(link, 3, false) > 0);
	node_close(node);
}

static uint32_t one_fd(struct port *port, int *fds, uint32_t n)
{
	(void)port;
	(void)n;
	fds[0] = 0;
	return 1;
}

/* While more messages come than are read at once, they do not wake a program that waits for
 * frames. */
static void test_flood__wakes_nobody(void)
{
	struct node *node = node_open();
	struct careful_ctrl hello = node_hello(0);
	struct port_ops ops = *node->port.ops;
	int fds[DEVICE_WAIT_FDS_MAX + 1], quiet_ms, timeout_ms;
	int count = careful_wait_fds(node->c, fds, DEVICE_WAIT_FDS_MAX + 1, &quiet_ms);

	ops.wait_fds = one_fd;
	node->port.ops = &ops;
	for (int i = 0; i < NODE_CTRL; i++)
		node_hear(node, 0, &hello);
	for (int i = 0; i < 3; i++) { /* 32, 16 and 16 */
		node_time(node, 1);
		CHECK_EQ(careful_wait_fds(node->c, fds, DEVICE_WAIT_FDS_MAX + 1, &timeout_ms),
			 count);
		CHECK_EQ(timeout_ms, 1);
	}
	node_time(node, 1);
	CHECK_EQ(careful_wait_fds(node->c, fds, DEVICE_WAIT_FDS_MAX + 1, &timeout_ms), count + 1);
	CHECK_EQ(timeout_ms, quiet_ms);
	node_close(node);
}

/* A host with a proved address begins new epochs again and again: others are still served. */
static void test_flood__of_a_peer_is_read_at_a_rate(void)
{
	enum { ATTEMPTS = 1000, EACH_MS = 3 };
	struct node *node = node_open();
	const struct link *link = &node->c->link;

	for (uint32_t i = 0; i < ATTEMPTS; i++) {
		struct careful_ctrl hello = node_hello(0);

		hello.nonce = htobe64(1000 + i);
		node_tell(node, 0, &hello); /* one millisecond each */
		node_time(node, EACH_MS - 1);
		hello.token = node->sent[CAREFUL_CHALLENGE & 7].token;
		node_hear(node, 0, &hello);
	}
	CHECK(link->sessions[0].epochs <=
	      RATE_LIMIT_PROVED_BURST + EACH_MS * ATTEMPTS * RATE_LIMIT_PROVED / 1000 + 1);
	CHECK(link->sessions[0].epochs >= RATE_LIMIT_PROVED_BURST);
	CHECK(link->counters[CAREFUL_C_CTRL_LIMITED] > ATTEMPTS / 10);
	CHECK(node_session(node, 1));
	node_time(node, 1000);
	CHECK(node_session(node, 0));
	node_close(node);
}

/* Strangers prove many addresses and so keep out other strangers, but not a peer that begins a new
 * epoch after a loss. */
static void test_flood__of_many_addresses_keeps_no_peer_out(void)
{
	struct careful_ctrl hello = node_hello(0);
	struct node *node = node_open();
	struct link *link = &node->c->link;

	CHECK(node_session(node, 0));
	for (uint32_t i = 0; i < RATE_LIMIT_SOURCES; i++)
		link->limit.proved_ns[i] = UINT64_MAX;
	CHECK(!node_session(node, 1));
	CHECK_EQ(link->sessions[0].epochs, 1);
	hello.nonce = htobe64(1000);
	CHECK(node_ask(node, 0, &hello));
	CHECK_EQ(link->sessions[0].epochs, 2);
	node_close(node);
}

enum { TWICE = NODE_TWICE - 1, TWICE_IPV6 = 3 }; /* one host with two addresses */

/* Fills both slots from one host while its two addresses look like two hosts. */
static void fill_slots(struct node *node)
{
	node->neighbours = false;
	CHECK(node_session(node, TWICE));
	CHECK(node_session(node, TWICE_IPV6));
	for (uint32_t i = 0; i < NODE_PEERS; i++)
		node->c->link.peers[i].llhdr.neighbour = true;
	node->neighbours = true;
}

/* Half of the slots are for others. */
static void test_slots__a_host_has_an_account_for_both_address_families(void)
{
	struct node *node = node_open();

	node->neighbours = true;
	CHECK(node_session(node, TWICE));
	CHECK(!node_session(node, TWICE_IPV6));
	CHECK_EQ(node->c->link.counters[CAREFUL_C_CTRL_REFUSED], 1);
	CHECK(node_session(node, 0));
	node_close(node);
}

/* A host behind a router can use each address of its /64, and its key at any address. */
static void test_slots__a_host_is_known_by_its_network_and_its_key(void)
{
	struct node *node = node_open_keyed(NULL);
	struct link_host host = { .address = node_host(TWICE_IPV6) };
	const struct link_peer *peer;

	CHECK(node_session(node, TWICE_IPV6));
	peer = link_peer_find(&node->c->link, &host.address);
	CHECK(peer && !peer->llhdr.neighbour);
	host.way = peer->llhdr;
	host.address.in6.sin6_addr.s6_addr[8] ^= 1;
	CHECK(link_peer_belongs(peer, &host));
	host.address.in6.sin6_addr.s6_addr[7] ^= 1;
	CHECK(!link_peer_belongs(peer, &host));
	host.key = peer->session->keyed.theirs;
	CHECK(link_peer_belongs(peer, &host));
	node_close(node);
}

/* No window is idle: the host that holds the most loses one, and does not get it back. */
static void test_slots__a_newcomer_evicts_the_largest_holder(void)
{
	struct node *node = node_open();

	fill_slots(node);
	CHECK(node_session(node, 0));
	CHECK(!node_session(node, TWICE));
	CHECK(node->c->link.counters[CAREFUL_C_CTRL_REFUSED] > 0);
	CHECK(!node_session(node, 2)); /* two hosts have one slot each: neither loses it */
	CHECK(node->c->link.counters[CAREFUL_C_CTRL_REFUSED] > 1);
	node_close(node);
}

/* A host that changed its address is refused while its old session may live. When that one no longer
 * answers, the new one takes its slot. Other hosts' sessions are not asked. */
static void test_slots__a_silent_session_makes_room_for_its_own_host(void)
{
	const union address before = node_host(TWICE), after = node_host(TWICE_IPV6);
	const union address beside = node_host(0);
	struct node *node = node_open();
	struct link *link = &node->c->link;

	node->neighbours = true;
	CHECK(node_session(node, TWICE));
	CHECK(node_session(node, 0));
	CHECK(!node_session(node, TWICE_IPV6));
	CHECK_EQ(link_peer_find(link, &before)->state, CAREFUL_PEER_UP);
	CHECK(careful_peer(node->c, &before.sa, sizeof(before.in)) >=
	      0); /* our programs ask, too */
	node_time(node, 800);
	CHECK_EQ(link_peer_find(link, &before)->state, CAREFUL_PEER_STALLED);
	CHECK(node_session(node, TWICE_IPV6));
	CHECK(!link_peer_find(link, &before));
	CHECK_EQ(link_peer_find(link, &after)->state, CAREFUL_PEER_UP);
	CHECK_EQ(link_peer_find(link, &beside)->state, CAREFUL_PEER_UP);
	node_close(node);
}

/* A host that holds its share of the slots is not refused while one of its sessions is idle: that one
 * is asked for its window. A session of another host is not. */
static void test_slots__an_idle_session_makes_room_for_its_own_host(void)
{
	struct node *node = node_open();
	const struct link *link = &node->c->link;
	const union address idle = node_host(TWICE), beside = node_host(0);

	node->neighbours = true;
	CHECK(node_session(node, 0));
	CHECK(node_session(node, TWICE));
	node_time(node, 1100);
	CHECK(!node_session(node, TWICE_IPV6));
	CHECK_EQ(link->counters[CAREFUL_C_CTRL_REFUSED], 0);
	CHECK(link_peer_find(&node->c->link, &idle)->session->yield_ns);
	CHECK(!link_peer_find(&node->c->link, &beside)->session->yield_ns);
	node_close(node);
}

/* The host of a session loses its address, so the session's next epoch finds no answer. A newcomer
 * takes its slot, but not at once. */
static void test_slots__a_lost_session_makes_room_for_anybody(void)
{
	const union address lost = node_host(0);
	struct node *node = node_open();
	struct link *link = &node->c->link;

	fill_slots(node);
	CHECK(node_session(node, 0));
	CHECK(!node_session(node, 2));
	link_break(link_peer_find(link, &lost));
	CHECK(!node_session(node, 2));
	node_time(node, 500);
	CHECK_EQ(link_peer_find(link, &lost)->state, CAREFUL_PEER_RENEWING);
	CHECK(node_session(node, 2));
	CHECK(!link_peer_find(link, &lost));
	node_close(node);
}

/* A peer that sends a frame now and then is never idle for long enough to be asked for its
 * window. */
static void test_slots__our_own_programs_find_one(void)
{
	const union address to = node_host(0);
	struct node *node = node_open();
	int rc = -EAGAIN;

	fill_slots(node);
	for (int ms = 0; ms < 5000 && rc == -EAGAIN; ms += 100) {
		for (uint32_t i = 0; i < NODE_PEERS; i++)
			node->c->link.peers[i].rx_frames++;
		node_time(node, 100);
		rc = careful_peer(node->c, &to.sa, sizeof(to.in));
	}
	CHECK(rc >= 0);
	CHECK_EQ(node->c->link.peers[rc].state, CAREFUL_PEER_CONNECTING);
	/* No other host can take slots in use. */
	CHECK(!node_session(node, 2));
	CHECK_EQ(node->c->link.peers[rc].state, CAREFUL_PEER_CONNECTING);
	node_close(node);
}

/* A disk holds buffers of an old epoch: the next epoch begins without them after a while. */
static void test_epoch__begins_without_buffers_that_hang(void)
{
	enum { HUNG = 5, W = NODE_RX / NODE_PEERS };
	struct careful_ctrl hello = node_hello(0);
	struct node *node = node_open();
	struct link_peer *peer = &node->c->link.peers[0];

	CHECK(node_session(node, 0));
	CHECK_EQ(peer->flow.rx.size, W);
	peer->kept = HUNG;
	hello.nonce = htobe64(1000);
	CHECK(!node_ask(node, 0, &hello));
	CHECK_EQ(peer->kept_old, HUNG);
	node_time(node, 300);
	CHECK_EQ(peer->phase, LINK_OPEN);
	CHECK_EQ(peer->flow.rx.size, W - HUNG);
	CHECK_EQ(be32toh(node->sent[CAREFUL_WELCOME & 7].terms.window), W - HUNG);
	/* If the disk holds too many, the rest of the window is too small for a frame. */
	peer->kept = W - HUNG;
	hello.nonce = htobe64(1001);
	CHECK(!node_ask(node, 0, &hello));
	node_time(node, 300);
	CHECK_EQ(peer->phase, LINK_DRAINING);
	peer->kept_old = 0;
	node_time(node, 1);
	CHECK_EQ(peer->phase, LINK_OPEN);
	CHECK_EQ(peer->flow.rx.size, W);
	node_close(node);
}

/* A CHALLENGE comes from another address than the one asked. */
static void test_challenge__from_another_address_is_told(void)
{
	const union address other = node_host(1);
	struct node *node = node_open();
	struct careful_ctrl answer = node_hello(1);
	struct sockaddr_storage from;
	struct careful_peer_info info;

	for (int attempt = 0; attempt < 2; attempt++) {
		node_call(node);
		answer.type = CAREFUL_CHALLENGE;
		answer.nonce = node->last.nonce;
		answer.token = htobe64(77);
		if (!attempt) /* nobody answers the second attempt */
			node_tell(node, 1, &answer);
		CHECK_EQ(be64toh(node->last.token), 0); /* the CHALLENGE is not believed */
		for (int ms = 0; ms < 6000; ms += 100)
			node_time(node, 100);
		CHECK_EQ(careful_peer_info(node->c, 0, &info), 0);
		CHECK_EQ(info.state, CAREFUL_PEER_FAILED);
		CHECK_EQ(info.last_errno, attempt ? ETIMEDOUT : EADDRNOTAVAIL);
		CHECK_EQ(engine_elsewhere(node->c, 0, &from), 0);
		CHECK_EQ(from.ss_family, attempt ? AF_UNSPEC : AF_INET);
		if (!attempt)
			CHECK(!memcmp(&from, &other, sizeof(other.in)));
	}
	node_close(node);
}

/* A host's proof of its address stays valid while sessions of other hosts end. */
static void test_challenge__holds_while_others_go(void)
{
	struct careful_ctrl hello = node_hello(1);
	struct node *node = node_open();

	CHECK(node_session(node, 0));
	node_tell(node, 1, &hello);
	hello.token = node->sent[CAREFUL_CHALLENGE & 7].token;
	link_close(&node->c->link.peers[0], ECONNRESET);
	node_tell(node, 1, &hello);
	CHECK_EQ(node->last.type, CAREFUL_WELCOME);
	CHECK_EQ(node->sent_to[CAREFUL_WELCOME & 7], 1);
	node_close(node);
}

int main(void)
{
	RUN(test_hello__buffers_that_no_frame_fills_are_refused);
	RUN(test_hello__a_window_beyond_the_log_is_refused);
	RUN(test_welcome__buffers_that_no_frame_fills_end_the_attempt);
	RUN(test_refuse__of_our_own_version_ends_nothing);
	RUN(test_challenge__overtaken_changes_nothing);
	RUN(test_challenge__number_of_an_earlier_question_bounds_nothing);
	RUN(test_welcome__a_waiting_message_that_fits_no_frame_fails);
	RUN(test_lost__a_new_process_that_asks_inherits_nothing);
	RUN(test_lost__a_new_process_that_is_asked_inherits_nothing);
	RUN(test_sync__of_the_epoch_that_is_being_renewed_is_not_gone);
	RUN(test_hello__waits_for_nothing_that_is_kept);
	RUN(test_hello__one_address_cannot_use_all_slots);
	RUN(test_hello__other_ports_of_an_address_get_no_further_slots);
	RUN(test_hello__at_another_of_our_addresses_leaves_the_session_alone);
	RUN(test_hello__without_a_number_is_dropped);
	RUN(test_flood__of_strangers_is_answered_at_a_rate);
	RUN(test_flood__leaves_others_a_share_of_answers);
	RUN(test_flood__wakes_nobody);
	RUN(test_flood__of_a_peer_is_read_at_a_rate);
	RUN(test_flood__of_many_addresses_keeps_no_peer_out);
	RUN(test_epoch__begins_without_buffers_that_hang);
	RUN(test_slots__a_host_has_an_account_for_both_address_families);
	RUN(test_slots__a_host_is_known_by_its_network_and_its_key);
	RUN(test_slots__a_newcomer_evicts_the_largest_holder);
	RUN(test_slots__a_silent_session_makes_room_for_its_own_host);
	RUN(test_slots__an_idle_session_makes_room_for_its_own_host);
	RUN(test_slots__a_lost_session_makes_room_for_anybody);
	RUN(test_slots__our_own_programs_find_one);
	RUN(test_challenge__from_another_address_is_told);
	RUN(test_challenge__holds_while_others_go);
	return 0;
}
