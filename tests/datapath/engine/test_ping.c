/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Pings between two instances: every stage answers, sessions and credits are not affected, and
 * strangers get no answer.
 */
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "instances.h"
#include "engine/sharing.h"

struct told {
	int done;
	struct careful_ping_result result;
};

static void on_ping(const struct careful_ping_result *result, void *user)
{
	struct told *told = user;

	told->done++;
	told->result = *result;
}

static int ask(struct ends *ends, uint32_t stage, uint32_t bytes, struct told *told)
{
	const struct careful_ping_ask ask = { .stage = stage, .bytes = bytes, .timeout_ms = 10000 };

	*told = (struct told){ 0 };
	return careful_ping(ends->c[0], (uint32_t)ends->peer, &ask, on_ping, told);
}

static void await_ping(struct ends *ends, struct told *told)
{
	for (int i = 0; i < PATIENCE && !told->done; i++)
		poll_both(ends);
	CHECK_EQ(told->done, 1);
}

static void begin(struct ends *ends, const struct careful_ping_ask *ask, struct told *told)
{
	int rc = -EAGAIN;

	*told = (struct told){ 0 };
	/* A veth is busy for a while if its other end does not run. */
	for (int i = 0; i < PATIENCE && rc == -EAGAIN; i++) {
		rc = careful_ping(ends->c[0], (uint32_t)ends->peer, ask, on_ping, told);
		if (rc)
			poll_both(ends);
	}
	CHECK_EQ(rc, 0);
}

static struct careful_ping_result probe(struct ends *ends, uint32_t stage, uint32_t bytes)
{
	const struct careful_ping_ask ask = { .stage = stage, .bytes = bytes, .timeout_ms = 10000 };
	struct told told;

	begin(ends, &ask, &told);
	await_ping(ends, &told);
	return told.result;
}

static void await_up(struct ends *ends)
{
	struct careful_peer_info info = { 0 };

	for (int i = 0; i < PATIENCE && info.state != CAREFUL_PEER_UP; i++) {
		poll_both(ends);
		CHECK_EQ(careful_peer_info(ends->c[0], (uint32_t)ends->peer, &info), 0);
	}
	CHECK_EQ(info.state, CAREFUL_PEER_UP);
}

static void open_up(struct ends *ends)
{
	ends_open(ends, 3826);
	await_up(ends);
}

static struct link_peer *near(struct ends *ends)
{
	return &ends->c[0]->link.peers[ends->peer];
}

/* Returns the first instance as the second's peer. */
static struct link_peer *far(struct ends *ends)
{
	return &ends->c[1]->link.peers[near(ends)->slot_out];
}

static void test_ping__each_answers(void)
{
	const struct careful_ping_ask ask = {
		.stage = CAREFUL_STAGE_STORE,
		.bytes = 600,
		.timeout_ms = 10000,
	};
	int fd = memfd_create("scratch", MFD_CLOEXEC);
	struct careful_ping_result r;
	struct told told;
	struct ends ends;

	open_up(&ends);
	for (uint32_t stage = CAREFUL_STAGE_NET_RX; stage <= CAREFUL_STAGE_HOST_RX; stage++) {
		r = probe(&ends, stage, 600);
		CHECK_EQ(r.status, 0);
		CHECK_EQ(r.stage, stage);
		CHECK_EQ(r.answer_bytes, 20 + 8 + sizeof(struct careful_ping_answer));
		CHECK(r.host_tx_ns && r.turn_ns);
		/* Both ends have one clock here, so times ascend. */
		CHECK(r.arrived_ns > r.sent_ns);
		CHECK(r.round_trip_ns > r.turn_ns + (r.arrived_ns - r.sent_ns) + r.host_rx_ns);
		CHECK_EQ(r.host_rx_ns > 0, stage == CAREFUL_STAGE_HOST_RX);
		CHECK_EQ(r.store_ns, 0);
	}
	r = probe(&ends, CAREFUL_STAGE_STORE, 600);
	CHECK_EQ(r.stage, CAREFUL_STAGE_HOST_RX); /* there is no file to write */
	CHECK_EQ(r.scratch, CAREFUL_SCRATCH_NONE);
	engine_scratch(ends.c[1], fd, CAREFUL_SCRATCH_MEMORY);
	r = probe(&ends, CAREFUL_STAGE_STORE, 3826);
	CHECK_EQ(r.status, 0);
	CHECK_EQ(r.stage, CAREFUL_STAGE_STORE);
	CHECK_EQ(r.scratch, CAREFUL_SCRATCH_MEMORY);
	CHECK(r.host_rx_ns && r.store_ns);
	CHECK_EQ(lseek(fd, 0, SEEK_END), 3826 - 28 - LINK_HDR_BYTES);
	CHECK_EQ(engine_scratch_asked(ends.c[1]), 1);
	/* A ping that comes before the file is open waits for it. */
	engine_scratch(ends.c[1], -1, CAREFUL_SCRATCH_FILE);
	begin(&ends, &ask, &told);
	for (int i = 0; i < PATIENCE && engine_scratch_asked(ends.c[1]) < 2; i++)
		poll_both(&ends);
	CHECK_EQ(far(&ends)->kept, 1);
	engine_scratch(ends.c[1], fd, CAREFUL_SCRATCH_FILE);
	await_ping(&ends, &told);
	CHECK_EQ(told.result.stage, CAREFUL_STAGE_STORE);
	CHECK_EQ(far(&ends)->kept, 0);
	ends_close(&ends);
	close(fd);
}

/* A node whose trains are not over answers the ping of a node that has finished. */
static void test_ping__while_trains_are_awaited(void)
{
	struct ends ends;

	open_up(&ends);
	far(&ends)->phase = LINK_HELD;
	far(&ends)->session->train.hold_until_ns = UINT64_MAX;
	far(&ends)->session->train.begun_ns = ends.c[1]->link.now_ns;
	CHECK_EQ(probe(&ends, CAREFUL_STAGE_NET_RX, 600).status, 0);
	ends_close(&ends);
}

static void test_ping__credits_are_conserved(void)
{
	int fd = memfd_create("scratch", MFD_CLOEXEC);
	struct ends ends;
	uint32_t window;

	open_up(&ends);
	engine_scratch(ends.c[1], fd, CAREFUL_SCRATCH_MEMORY);
	window = near(&ends)->flow.tx.size;
	for (uint32_t i = 0; i < 20; i++)
		CHECK_EQ(probe(&ends, CAREFUL_STAGE_NET_RX, 80 + 150 * i).status, 0);
	CHECK_EQ(near(&ends)->flow.tx.sent, 0);
	CHECK_EQ(near(&ends)->flow.seq_out, 0);
	/* More than a window: without updates the credits would end. */
	for (uint32_t i = 0; i < 3 * window; i++) {
		uint32_t stage = CAREFUL_STAGE_HOST_RX + i % 2;

		CHECK_EQ(probe(&ends, stage, 600).stage, stage);
		CHECK_EQ(near(&ends)->flow.tx.sent, i + 1);
		CHECK_EQ(far(&ends)->flow.rx.received, i + 1);
	}
	/* The last update may still be under way. */
	for (int i = 0; i < PATIENCE && window_tx_outstanding(&near(&ends)->flow.tx) !=
						window_rx_owed(&far(&ends)->flow.rx);
	     i++)
		poll_both(&ends);
	CHECK_EQ(far(&ends)->flow.rx.returned, far(&ends)->flow.rx.received);
	CHECK_EQ(far(&ends)->kept, 0);
	CHECK_EQ(window_tx_outstanding(&near(&ends)->flow.tx),
		 window_rx_owed(&far(&ends)->flow.rx));
	ends_close(&ends);
	close(fd);
}

static void test_ping__refused_requests(void)
{
	const struct careful_ping_ask bad[] = {
		{ .stage = 0, .bytes = 600 },
		{ .stage = CAREFUL_STAGE_STORE + 1, .bytes = 600 },
		{ .stage = CAREFUL_STAGE_HOST_RX, .ttl = 1, .bytes = 600 },
		{ .stage = CAREFUL_STAGE_NET_RX, .ttl = 256, .bytes = 600 },
		{ .stage = CAREFUL_STAGE_NET_RX, .bytes = 75 },
	};
	struct told told, second;
	struct ends ends;

	open_up(&ends);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		CHECK_EQ(careful_ping(ends.c[0], (uint32_t)ends.peer, &bad[i], on_ping, &told),
			 -EINVAL);
	CHECK_EQ(careful_ping(ends.c[0], 7, &bad[0], on_ping, &told), -ENOENT);
	CHECK_EQ(ask(&ends, CAREFUL_STAGE_NET_RX, 3827, &told), -EMSGSIZE);
	/* An older peer would count the ping as a lost frame. */
	CHECK_EQ(ask(&ends, CAREFUL_STAGE_HOST_RX, 600, &told), -ENOTSUP);
	CHECK_EQ(ask(&ends, CAREFUL_STAGE_NET_RX, 76, &told), 0);
	CHECK_EQ(ask(&ends, CAREFUL_STAGE_NET_RX, 76, &second), -EAGAIN);
	await_ping(&ends, &told);
	CHECK_EQ(told.result.status, 0);
	CHECK_EQ(probe(&ends, CAREFUL_STAGE_HOST_RX, 76).status, 0);
	ends_close(&ends);
}

static bool is_same(const void *user, const void *of)
{
	return user == of;
}

/* An unanswered ping ends in time and once, also if the asker or the session ends meanwhile. */
static void test_ping__ends_without_an_answer(void)
{
	struct careful_ping_ask ask = { .stage = CAREFUL_STAGE_NET_RX,
					.bytes = 600,
					.timeout_ms = 20 };
	struct told told;
	struct ends ends;

	open_up(&ends);
	begin(&ends, &ask, &told);
	for (int i = 0; i < PATIENCE && !told.done; i++)
		careful_poll(ends.c[0]); /* the other end does not run */
	CHECK_EQ(told.done, 1);
	CHECK_EQ(told.result.status, -ETIMEDOUT);
	for (int i = 0; i < 2000; i++)
		poll_both(&ends); /* the late answer has no effect */
	CHECK_EQ(told.done, 1);
	ask.timeout_ms = 60000;
	begin(&ends, &ask, &told);
	engine_forget(ends.c[0], is_same, &ask); /* matches no ping */
	careful_poll(ends.c[0]);
	CHECK_EQ(told.done, 0);
	engine_forget(ends.c[0], is_same, &told);
	careful_poll(ends.c[0]);
	CHECK_EQ(told.done, 1);
	CHECK_EQ(told.result.status, -ECANCELED);
	CHECK_EQ(probe(&ends, CAREFUL_STAGE_NET_RX, 600).status, 0);
	CHECK_EQ(told.done, 1);
	begin(&ends, &ask, &told);
	CHECK_EQ(careful_peer_close(ends.c[0], (uint32_t)ends.peer), 0);
	await_ping(&ends, &told);
	CHECK_EQ(told.result.status, -ECONNRESET);
	ends_close(&ends);
}

static uint64_t counter(struct careful *c, enum careful_counter which)
{
	struct careful_info info;

	CHECK_EQ(careful_info(c, &info), 0);
	return info.counters[which];
}

/* Sends a probe from a socket that is no peer. */
static void send_probe(int fd, const struct sockaddr_in *to, uint64_t cookie, uint16_t slot,
		       uint8_t limit, uint32_t number, uint32_t seq)
{
	struct careful_hdr hdr = {
		.version = CAREFUL_WIRE_VERSION,
		.type = CAREFUL_PING,
		.stage_limit = limit,
		.src_node = htobe16(slot),
		.cookie = htobe64(cookie),
		.seq = htobe32(seq),
		.msg_id = htobe32(number),
	};

	hdr.check = htobe32(careful_hdr_check(&hdr));
	CHECK_EQ(sendto(fd, &hdr, sizeof(hdr), 0, (const struct sockaddr *)to, sizeof(*to)),
		 sizeof(hdr));
}

static void test_ping__strangers_get_nothing(void)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(CAREFUL_PORT_DEFAULT) };
	uint64_t cookie, unknown;
	struct link_peer *peer;
	struct ends ends;
	uint8_t byte;
	int fd;

	open_up(&ends);
	CHECK_EQ(inet_pton(AF_INET, "10.77.0.2", &to.sin_addr), 1);
	pair_enter(&ends.pair, 0);
	fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0);
	pair_leave(&ends.pair);
	CHECK(fd >= 0);
	for (uint32_t i = 0; i < 3; i++)
		CHECK_EQ(probe(&ends, CAREFUL_STAGE_NET_RX, 600).status, 0);
	peer = far(&ends);
	cookie = peer->cookie_in;
	for (uint32_t i = 0; i < 300; i++) {
		/* Garbage, and replays of answered pings, at every limit. */
		send_probe(fd, &to, cookie ^ (1 + i), peer->slot, (uint8_t)(i % 4), 100 + i, 1);
		send_probe(fd, &to, cookie, peer->slot, (uint8_t)(i % 4), 1 + i % 3, 1);
		poll_both(&ends);
	}
	CHECK_EQ(recv(fd, &byte, 1, 0), -1);
	CHECK_EQ(peer->flow.rx.received, 0);
	CHECK_EQ(peer->session->ping.answered, 3);
	CHECK_EQ(counter(ends.c[0], CAREFUL_C_CTRL_UNKNOWN), 0);
	CHECK_EQ(counter(ends.c[1], CAREFUL_C_CTRL_UNKNOWN), 0);
	CHECK_EQ(counter(ends.c[1], CAREFUL_C_PINGS_ANSWERED), 3);
	/* With a known cookie the answer goes to the peer, never to the stranger. */
	unknown = counter(ends.c[0], CAREFUL_C_CTRL_UNKNOWN);
	send_probe(fd, &to, cookie, peer->slot, CAREFUL_STAGE_NET_RX, 1000, 0);
	for (int i = 0; i < PATIENCE && counter(ends.c[0], CAREFUL_C_CTRL_UNKNOWN) == unknown; i++)
		poll_both(&ends);
	CHECK_EQ(counter(ends.c[0], CAREFUL_C_CTRL_UNKNOWN), unknown + 1);
	CHECK_EQ(recv(fd, &byte, 1, 0), -1);
	CHECK_EQ(peer->flow.rx.received, 0);
	close(fd);
	ends_close(&ends);
}

/* Each stage answers over IPv6 as well; test_pathchar of tests/system tests hops. */
static void test_ping__over_ipv6(void)
{
	struct sockaddr_in6 to = { .sin6_family = AF_INET6 };
	struct careful_ping_result r;
	struct ends ends;

	open_up(&ends);
	CHECK_EQ(inet_pton(AF_INET6, "fd77::2", &to.sin6_addr), 1);
	ends.peer = careful_peer(ends.c[0], (struct sockaddr *)&to, sizeof(to));
	CHECK(ends.peer >= 0);
	await_up(&ends);
	for (uint32_t stage = CAREFUL_STAGE_NET_RX; stage <= CAREFUL_STAGE_HOST_RX; stage++) {
		r = probe(&ends, stage, 1400);
		CHECK_EQ(r.status, 0);
		CHECK_EQ(r.stage, stage);
		CHECK_EQ(r.answer_bytes, 40 + 8 + sizeof(struct careful_ping_answer));
		CHECK(r.arrived_ns > r.sent_ns);
	}
	ends_close(&ends);
}

int main(void)
{
	RUN(test_ping__each_answers);
	RUN(test_ping__while_trains_are_awaited);
	RUN(test_ping__credits_are_conserved);
	RUN(test_ping__refused_requests);
	RUN(test_ping__ends_without_an_answer);
	RUN(test_ping__strangers_get_nothing);
	RUN(test_ping__over_ipv6);
	return 0;
}
