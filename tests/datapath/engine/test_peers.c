// SPDX-License-Identifier: BSD-2-Clause
/*
 * A slot goes from one host to the next: the watcher hears of the first host's end, and before that
 * its frames leave the receive ring. A wait ends with the event.
 */
#include "instances.h"
#include "link/session/session.h"

#include <poll.h>
#include <time.h>

enum { STATES = 16, NOBODY_PORT = 9 };

static struct {
	uint32_t states[STATES];
	uint32_t count;
} heard;

static void watch(struct careful *c, uint32_t peer, uint32_t state, void *user)
{
	(void)c;
	(void)user;
	CHECK_EQ(peer, 0);
	CHECK(heard.count < STATES);
	heard.states[heard.count++] = state;
}

static uint32_t state_of(struct careful *c)
{
	struct careful_peer_info info;

	return careful_peer_info(c, 0, &info) ? CAREFUL_PEER_NONE : info.state;
}

static struct careful *open_watched(const struct pair *pair, int side)
{
	struct careful *c = instance_open(pair, side, (struct careful_options){ .peers = 1 });

	memset(&heard, 0, sizeof(heard));
	careful_peer_watch(c, watch, NULL);
	return c;
}

static void test_wait__ends_with_news_that_no_frame_brings(void)
{
	struct timespec before, after;
	struct pair pair;
	struct careful *c;

	pair_open(&pair, 1500);
	c = open_watched(&pair, 0);
	CHECK_EQ(peer_at(c, "10.77.0.2", NOBODY_PORT), 0);
	CHECK_EQ(heard.count, 1); /* already in the call */
	CHECK_EQ(heard.states[0], CAREFUL_PEER_CONNECTING);
	clock_gettime(CLOCK_MONOTONIC, &before);
	for (int i = 0; i < 10 && heard.count < 2; i++)
		CHECK_EQ(careful_wait(c, 30000, -1), 0);
	clock_gettime(CLOCK_MONOTONIC, &after);
	CHECK_EQ(heard.count, 2);
	CHECK_EQ(heard.states[1], CAREFUL_PEER_FAILED); /* refused within about a second */
	CHECK(after.tv_sec - before.tv_sec < 20);
	careful_close(c);
	pair_close(&pair);
}

static struct {
	struct port_ops ops;
	const struct port_ops *real;
	uint32_t hellos;
} counted;

static int ctrl_send_counted(struct port *port, const union address *to, const void *buf,
			     uint32_t bytes)
{
	counted.hellos += ((const struct careful_ctrl *)buf)->type == CAREFUL_HELLO;
	return counted.real->ctrl_send(port, to, buf, bytes);
}

/* In an application's own loop one poll follows a wait, and timers must be due by then. */
static void test_wait_fds__a_poll_after_it_keeps_time(void)
{
	struct ends ends;

	ends_open(&ends, 1500);
	counted.real = ends.c[0]->port->ops;
	counted.ops = *counted.real;
	counted.ops.ctrl_send = ctrl_send_counted;
	ends.c[0]->port->ops = &counted.ops;
	/* The other end does not answer. Route events of opening may end a wait early. */
	for (int silent = 0, round = 0; silent < 32 && round < 100000; round++) {
		struct pollfd pfds[DEVICE_WAIT_FDS_MAX + 1];
		int fds[DEVICE_WAIT_FDS_MAX + 1], timeout_ms;
		int n = careful_wait_fds(ends.c[0], fds, DEVICE_WAIT_FDS_MAX + 1, &timeout_ms);

		for (int i = 0; i < n; i++)
			pfds[i] = (struct pollfd){ .fd = fds[i], .events = POLLIN };
		CHECK(n > 0 && timeout_ms > 0);
		silent += !poll(pfds, (nfds_t)n, timeout_ms);
		CHECK_EQ(careful_poll(ends.c[0]), 0);
	}
	CHECK(counted.hellos >= 6);
	ends_close(&ends);
}

/* P is 1: the next peer gets the slot of a failed one. */
static void test_slot__the_next_host_is_announced(void)
{
	static const uint32_t expected[] = { CAREFUL_PEER_CONNECTING, CAREFUL_PEER_FAILED,
					     CAREFUL_PEER_NONE, CAREFUL_PEER_UP };
	struct careful *c[2];
	struct pair pair;

	pair_open(&pair, 1500);
	c[1] = instance_open(&pair, 1, (struct careful_options){ 0 });
	c[0] = open_watched(&pair, 0);
	CHECK_EQ(peer_at(c[0], "10.77.0.2", NOBODY_PORT), 0);
	while (heard.count < 2)
		careful_wait(c[0], 1000, -1);
	CHECK_EQ(peer_at(c[1], "10.77.0.1", 0), 0);
	for (int i = 0; i < PATIENCE && state_of(c[1]) != CAREFUL_PEER_UP; i++) {
		careful_poll(c[0]);
		careful_poll(c[1]);
	}
	careful_poll(c[0]);
	CHECK_EQ(heard.count, 4);
	CHECK(!memcmp(heard.states, expected, sizeof(expected)));
	careful_close(c[0]);
	careful_close(c[1]);
	pair_close(&pair);
}

/* Frames of the former peer may lie in the receive ring, in buffers of the next peer's window. */
static void test_slot__the_next_host_waits_for_the_ring(void)
{
	union address other = { .in = { .sin_family = AF_INET } };
	struct outcome outcome = { 0 };
	struct link_peer *peer;
	struct ends ends;
	uint32_t slot;

	ends_open(&ends, 1500);
	slot = (uint32_t)ends.peer;
	careful_handle(ends.c[1], 7, echo, NULL);
	careful_request(ends.c[0], slot, 7, NULL, NULL, 0, on_done, &outcome);
	await(&ends, &outcome);
	CHECK_EQ(careful_peer_close(ends.c[0], slot), 0);
	inet_pton(AF_INET, "10.77.0.9", &other.in.sin_addr);
	peer = link_peer_get(&ends.c[0]->link, &other);
	CHECK_EQ(peer->slot, slot);
	CHECK(!epoch_drained(peer));
	ends_close(&ends);
}

static uint32_t fragment_bytes(struct careful *c, uint32_t slot)
{
	const struct careful_tune_entry *entry = c->port->ops->tune(c->port, slot);

	return entry->version[entry->active].classes[0].plan.first_bytes;
}

/* P is 1: settings of a host are back when it returns, and another host does not get them. */
static void test_slot__the_next_host_gets_the_settings_for_new_peers(void)
{
	struct pair pair;
	struct careful *c;

	pair_open(&pair, 1500);
	c = open_watched(&pair, 0);
	plan_default(c->port->ops->tune(c->port, CAREFUL_TUNE_DEFAULT), 777);
	CHECK_EQ(peer_at(c, "10.77.0.2", NOBODY_PORT), 0);
	CHECK_EQ(fragment_bytes(c, 0), 777);
	plan_default(c->port->ops->tune(c->port, 0), 333);
	CHECK_EQ(careful_peer_close(c, 0), 0);
	CHECK_EQ(peer_at(c, "10.77.0.2", NOBODY_PORT), 0);
	CHECK_EQ(fragment_bytes(c, 0), 333);
	CHECK_EQ(careful_peer_close(c, 0), 0);
	CHECK_EQ(peer_at(c, "10.77.0.9", NOBODY_PORT), 0);
	CHECK_EQ(fragment_bytes(c, 0), 777);
	careful_close(c);
	pair_close(&pair);
}

/* A BYE travels on the control socket: it must not overtake frames. */
static void test_close__earlier_answers_arrive(void)
{
	struct outcome outcome = { 0 };
	struct ends ends;

	ends_open(&ends, 1500);
	careful_handle(ends.c[1], 7, echo, NULL);
	careful_request(ends.c[0], (uint32_t)ends.peer, 7, NULL, "ping", 4, on_done, &outcome);
	await(&ends, &outcome);
	outcome = (struct outcome){ 0 };
	careful_request(ends.c[0], (uint32_t)ends.peer, 7, NULL, "pong", 4, on_done, &outcome);
	careful_poll(ends.c[0]);
	for (int i = 0; i < PATIENCE && !careful_poll(ends.c[1]); i++)
		;
	careful_close(ends.c[1]);
	link_control(&ends.c[0]->link); /* the BYE is read before any frame */
	for (int i = 0; i < PATIENCE && state_of(ends.c[0]) == CAREFUL_PEER_UP; i++)
		careful_poll(ends.c[0]);
	CHECK_EQ(outcome.done, 1);
	CHECK_EQ(outcome.result.status, 0);
	CHECK(!memcmp(outcome.payload, "pong", 4));
	CHECK_EQ(state_of(ends.c[0]), CAREFUL_PEER_FAILED);
	careful_close(ends.c[0]);
	pair_close(&ends.pair);
}

static void test_interface__deleted(void)
{
	struct outcome outcome = { 0 };
	struct careful_info info;
	struct ends ends;
	int rc = 0;

	ends_open(&ends, 1500);
	careful_handle(ends.c[1], 7, echo, NULL);
	careful_request(ends.c[0], (uint32_t)ends.peer, 7, NULL, NULL, 0, on_done, &outcome);
	await(&ends, &outcome);
	outcome = (struct outcome){ 0 };
	careful_request(ends.c[0], (uint32_t)ends.peer, 7, NULL, NULL, 0, on_done, &outcome);
	CHECK(!pair_run(&ends.pair, 0, "ip link del eth1"));
	for (int i = 0; i < PATIENCE && rc >= 0; i++)
		rc = careful_wait(ends.c[0], 1000, -1);
	CHECK_EQ(rc, -ENODEV);
	CHECK_EQ(outcome.done, 1);
	CHECK_EQ(outcome.result.status, -ENODEV);
	CHECK_EQ(peer_at(ends.c[0], "10.77.0.3", 0), -ENODEV);
	CHECK_EQ(careful_info(ends.c[0], &info), 0);
	careful_close(ends.c[0]);
	careful_close(ends.c[1]);
	pair_close(&ends.pair);
}

static uint32_t state_at(struct careful *c, uint32_t slot)
{
	struct careful_peer_info info;

	return careful_peer_info(c, slot, &info) ? CAREFUL_PEER_NONE : info.state;
}

/* Polls until a peer has this state, for at most 30 s. */
static void poll_until(struct ends *ends, int side, uint32_t slot, uint32_t state)
{
	const time_t end = time(NULL) + 30;

	while (state_at(ends->c[side], slot) != state && time(NULL) < end)
		poll_both(ends);
	CHECK_EQ(state_at(ends->c[side], slot), state);
}

static void close_quietly(struct ends *ends)
{
	careful_close(ends->c[0]);
	careful_close(ends->c[1]);
	pair_close(&ends->pair);
}

/* A HELLO that cannot be granted ends the old session, since nobody would ask again. */
static void test_session__frames_too_small_for_a_new_epoch(void)
{
	struct outcome outcome = { 0 };
	struct ends ends;

	ends_open(&ends, 1500);
	poll_until(&ends, 1, 0, CAREFUL_PEER_UP);
	poll_until(&ends, 0, (uint32_t)ends.peer, CAREFUL_PEER_UP);
	ends.c[0]->port->mtu = DEVICE_FRAME_BYTES_MIN - 1 - ETHERNET_BYTES;
	link_frames_changed(&ends.c[0]->link);
	poll_until(&ends, 1, 0, CAREFUL_PEER_FAILED);
	poll_until(&ends, 0, (uint32_t)ends.peer, CAREFUL_PEER_FAILED);
	CHECK_EQ(careful_request(ends.c[1], 0, 7, NULL, NULL, 0, on_done, &outcome), -EMSGSIZE);
	close_quietly(&ends);
}

/* The token's epoch ended before the token came back: the next CHALLENGE counts. */
static void test_session__challenged_twice(void)
{
	struct ends ends;

	ends_open(&ends, 1500);
	for (int i = 0; i < PATIENCE && !ends.c[1]->link.counters[CAREFUL_C_CTRL_CHALLENGED]; i++)
		careful_poll(ends.c[1]);
	ends.c[1]->link.secret[0] ^= 1;
	poll_until(&ends, 0, (uint32_t)ends.peer, CAREFUL_PEER_UP);
	CHECK(ends.c[1]->link.counters[CAREFUL_C_CTRL_CHALLENGED] >= 2);
	close_quietly(&ends);
}

/* The peer's process, which its WELCOME names, and its Ethernet address. */
static void test_whereabouts__of_a_session(void)
{
	const struct link_peer *theirs;
	struct careful_peer_whereabouts where;
	struct ends ends;

	ends_open(&ends, 1500);
	theirs = &ends.c[1]->link.peers[0];
	CHECK_EQ(careful_peer_whereabouts(ends.c[0], (uint32_t)ends.peer, &where), 0);
	CHECK(!where.incarnation);
	poll_until(&ends, 1, 0, CAREFUL_PEER_UP);
	poll_until(&ends, 0, (uint32_t)ends.peer, CAREFUL_PEER_UP);
	CHECK_EQ(careful_peer_whereabouts(ends.c[0], (uint32_t)ends.peer, &where), 0);
	CHECK(where.incarnation == ends.c[1]->link.incarnation);
	CHECK(!memcmp(where.mac, theirs->llhdr.data + sizeof(where.mac), sizeof(where.mac)));
	CHECK_EQ(careful_peer_whereabouts(ends.c[0], (uint32_t)ends.peer + 1, &where), -ENOENT);
	close_quietly(&ends);
}

/* P is 1, and the host in the slot vanished while no answer was awaited. The next host is refused
 * at first, and then gets the slot. */
static void test_slot__of_a_host_that_vanished(void)
{
	struct careful_options options = { .peers = 1 };
	struct ends ends;
	int peer = -1;

	pair_open(&ends.pair, 1500);
	ends.c[0] = instance_open(&ends.pair, 0, (struct careful_options){ 0 });
	ends.c[1] = instance_open(&ends.pair, 1, options);
	ends.peer = peer_at(ends.c[0], "10.77.0.2", 0);
	poll_until(&ends, 1, 0, CAREFUL_PEER_UP);
	poll_until(&ends, 0, (uint32_t)ends.peer, CAREFUL_PEER_UP);
	ends.c[0]->link.peers[ends.peer].cookie_out = 0; /* sends no BYE */
	careful_close(ends.c[0]);

	ends.c[0] = instance_open(&ends.pair, 0, (struct careful_options){ .port = 4711 });
	for (int i = 0; i < 1000; i++) {
		peer = peer_at(ends.c[0], "10.77.0.2", CAREFUL_PORT_DEFAULT);
		CHECK(peer >= 0);
		for (int k = 0; k < 100; k++) {
			/* Its silence begins now, not when the next instance was opened. */
			if (!ends.c[1]->link.counters[CAREFUL_C_CTRL_REFUSED])
				ends.c[1]->link.peers[0].session->moved++;
			poll_both(&ends);
			usleep(100);
		}
		if (state_at(ends.c[0], (uint32_t)peer) == CAREFUL_PEER_UP)
			break;
	}
	CHECK(ends.c[1]->link.counters[CAREFUL_C_CTRL_REFUSED] > 0);
	CHECK_EQ(state_at(ends.c[0], (uint32_t)peer), CAREFUL_PEER_UP);
	close_quietly(&ends);
}

/* A host's address changes: its session continues from the new one, and is the only one. The other
 * end has a session with each address. */
static void test_session__follows_our_address(void)
{
	struct outcome outcome = { 0 };
	struct careful_peer_info info;
	struct ends ends;

	ends_open(&ends, 1500);
	careful_handle(ends.c[1], 7, echo, NULL);
	poll_until(&ends, 0, (uint32_t)ends.peer, CAREFUL_PEER_UP);
	CHECK(!pair_run(&ends.pair, 0,
			"ip addr flush dev eth1 && ip addr add 10.77.0.101/24 dev eth1"));
	poll_until(&ends, 1, 1, CAREFUL_PEER_UP);
	poll_until(&ends, 0, (uint32_t)ends.peer, CAREFUL_PEER_UP);
	CHECK_EQ(careful_peer_info(ends.c[0], (uint32_t)ends.peer, &info), 0);
	CHECK_EQ(info.last_errno, 0);
	careful_request(ends.c[0], (uint32_t)ends.peer, 7, NULL, "ping", 4, on_done, &outcome);
	await(&ends, &outcome);
	CHECK_EQ(outcome.result.status, 0);
	CHECK_EQ(state_at(ends.c[0], (uint32_t)ends.peer + 1), CAREFUL_PEER_NONE);
	close_quietly(&ends);
}

/* Control messages have a route and frames have none: the session fails in bounded time. */
static void test_session__without_a_way_for_frames(void)
{
	struct careful_peer_info info;
	struct ends ends;

	pair_open(&ends.pair, 1500);
	for (int side = 0; side < 2; side++)
		ends.c[side] = instance_open(&ends.pair, side, (struct careful_options){ 0 });
	ends.peer = peer_at(ends.c[0], "10.77.0.2", 0);
	CHECK(ends.peer >= 0);
	CHECK(!pair_run(&ends.pair, 0,
			"ip link add other type veth peer name another && ip link set another up &&"
			"ip link set other up && ip route add 10.77.0.2/32 dev other &&"
			"ip route del 10.77.0.0/24"));
	CHECK_EQ(peer_at(ends.c[0], "10.77.0.2", 4711), -ENETUNREACH); /* reported at once */
	poll_until(&ends, 0, (uint32_t)ends.peer, CAREFUL_PEER_UP);
	poll_until(&ends, 0, (uint32_t)ends.peer, CAREFUL_PEER_FAILED);
	CHECK_EQ(careful_peer_info(ends.c[0], (uint32_t)ends.peer, &info), 0);
	CHECK_EQ(info.last_errno, ENETUNREACH);
	close_quietly(&ends);
}

static bool was_told(uint32_t state)
{
	for (uint32_t i = 0; i < heard.count; i++)
		if (heard.states[i] == state)
			return true;
	return false;
}

/* Opens two instances with a session. Another process replaces the second, unknown to the first. */
static void open_replaced(struct ends *ends)
{
	pair_open(&ends->pair, 1500);
	ends->c[0] = open_watched(&ends->pair, 0);
	ends->c[1] = instance_open(&ends->pair, 1, (struct careful_options){ 0 });
	ends->peer = peer_at(ends->c[0], "10.77.0.2", 0);
	poll_until(ends, 1, 0, CAREFUL_PEER_UP);
	poll_until(ends, 0, 0, CAREFUL_PEER_UP);
	ends->c[1]->link.peers[0].cookie_out = 0; /* sends no BYE */
	careful_close(ends->c[1]);
	link_close(&ends->c[0]->link.peers[0], ECONNREFUSED);
	careful_poll(ends->c[0]);
	ends->c[1] = instance_open(&ends->pair, 1, (struct careful_options){ 0 });
	memset(&heard, 0, sizeof(heard));
}

static struct {
	struct port_ops ops;
	const struct port_ops *real;
	struct careful *receiver, *other;
	struct outcome outcome;
	bool in_time;
} race;

/* Pauses the sender of a WELCOME until the other end has sent a request. */
static int ctrl_send_and_pause(struct port *port, const union address *to, const void *buf,
			       uint32_t bytes)
{
	int rc = race.real->ctrl_send(port, to, buf, bytes);
	struct pollfd ring = { .events = POLLIN };

	if (((const struct careful_ctrl *)buf)->type != CAREFUL_WELCOME)
		return rc;
	for (int i = 0; i < PATIENCE && state_of(race.other) != CAREFUL_PEER_UP; i++)
		careful_poll(race.other);
	CHECK_EQ(careful_request(race.other, 0, 1, NULL, "x", 1, on_done, &race.outcome), 0);
	for (int i = 0; i < 1000 || !race.other->link.peers[0].tx_frames; i++)
		careful_poll(race.other);
	ring.fd = race.receiver->queue->fd;
	CHECK_EQ(poll(&ring, 1, 10000), 1); /* the request is there */
	return rc;
}

static void on_first_request(const struct careful_message *message, void *user)
{
	(void)user;
	race.in_time = was_told(CAREFUL_PEER_FAILED);
	CHECK_EQ(careful_reply(message, 0, NULL, NULL, 0), 0);
}

/* A new process's request would otherwise count as the old process's, and end with it. */
static void test_life__reported_before_its_first_request(void)
{
	struct ends ends;

	open_replaced(&ends);
	race.real = ends.c[0]->port->ops;
	race.ops = *race.real;
	race.ops.ctrl_send = ctrl_send_and_pause;
	race.receiver = ends.c[0];
	race.other = ends.c[1];
	ends.c[0]->port->ops = &race.ops;
	careful_handle(ends.c[0], 1, on_first_request, NULL);
	CHECK_EQ(peer_at(ends.c[1], "10.77.0.1", 0), 0);
	await(&ends, &race.outcome);
	CHECK(race.in_time);
	close_quietly(&ends);
}

/* The peer's frames, which may overtake its WELCOME, can arrive from here on. */
static void test_life__reported_before_its_window_opens(void)
{
	struct ends ends;

	open_replaced(&ends);
	CHECK_EQ(peer_at(ends.c[0], "10.77.0.2", 0), 0);
	for (int i = 0; i < PATIENCE && state_of(ends.c[1]) != CAREFUL_PEER_UP; i++)
		poll_both(&ends); /* the second poll is the last */
	CHECK(state_of(ends.c[0]) == CAREFUL_PEER_CONNECTING && was_told(CAREFUL_PEER_FAILED));
	close_quietly(&ends);
}

int main(void)
{
	RUN(test_life__reported_before_its_first_request);
	RUN(test_life__reported_before_its_window_opens);
	RUN(test_session__frames_too_small_for_a_new_epoch);
	RUN(test_session__challenged_twice);
	RUN(test_whereabouts__of_a_session);
	RUN(test_session__follows_our_address);
	RUN(test_session__without_a_way_for_frames);
	RUN(test_slot__of_a_host_that_vanished);
	RUN(test_close__earlier_answers_arrive);
	RUN(test_interface__deleted);
	RUN(test_wait__ends_with_news_that_no_frame_brings);
	RUN(test_wait_fds__a_poll_after_it_keeps_time);
	RUN(test_slot__the_next_host_is_announced);
	RUN(test_slot__the_next_host_waits_for_the_ring);
	RUN(test_slot__the_next_host_gets_the_settings_for_new_peers);
	return 0;
}
