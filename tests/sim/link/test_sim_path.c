// SPDX-License-Identifier: BSD-2-Clause
/* A link on the path with a smaller MTU than both ends, without ICMP. */
#include "device/device.h"
#include "run.h"
#include "sim.h"
#include "link/session/session.h"

#include <endian.h>
#include <errno.h>

static uint32_t most_sent; /* the nodes' largest frame at the end */

static void look(struct node *node)
{
	struct careful_peer_info info;

	if (careful_peer_info(node->c, 0, &info) || info.state != CAREFUL_PEER_UP)
		return;
	if (info.flags & CAREFUL_PEER_IS_NARROW)
		most_sent = info.frame_bytes;
}

/* Large frames vanish in both directions; the search ends just below the limit. */
static void test_path__large_frames_that_vanish_get_smaller(void)
{
	enum { NEAR = 8 };
	uint32_t found = 0;

	for (uint32_t seed = 0; seed < 10; seed++) {
		uint32_t limit;

		sim_scene(seed);
		limit = scene->shape.frame_bytes - 40;
		scene->on_round = look;
		most_sent = 0;
		sim_op(OP_STORE, 0, 12000, 0);
		sim_op(OP_GET, 0, 12000, 0);
		for (uint32_t from = 0; from < 2; from++)
			sim_fault(SIM_LOSS, from, !from, 0, 1000 * 1000)->longer = limit;
		EXPECT_WELL(sim_play());
		CHECK(most_sent <= limit);
		if (most_sent) {
			CHECK(most_sent + NEAR >= limit);
			found++;
		}
	}
	CHECK_EQ(found, 10);
}

/* The path's MTU shrinks again soon after the first search; the next search is as exact. */
static void test_path__that_narrows_twice(void)
{
	enum { NEAR = 8, SECOND_MS = 30 * 1000 };
	uint32_t limit;

	sim_scene(1);
	limit = scene->shape.frame_bytes - 200;
	scene->on_round = look;
	most_sent = 0;
	sim_op(OP_STORE, 0, 12000, 0);
	sim_op(OP_STORE, 0, 12000, SECOND_MS);
	sim_fault(SIM_LOSS, 0, 1, 0, 1000 * 1000)->longer = limit + 160;
	sim_fault(SIM_LOSS, 0, 1, SECOND_MS, 1000 * 1000)->longer = limit;
	EXPECT_WELL(sim_play());
	CHECK(most_sent <= limit);
	CHECK(most_sent + NEAR >= limit);
}

/* In each round ICMP reports a frame with the right cookie as too large. */
static void tell(struct node *node)
{
	struct link_peer *peer = &node->c->link.peers[0];

	if (link_has_epoch(peer))
		link_path_told(peer);
	look(node);
}

static void test_path__icmp_alone_makes_no_frame_smaller(void)
{
	for (uint32_t seed = 0; seed < 10; seed++) {
		sim_scene(seed);
		scene->on_round = tell;
		most_sent = 0;
		sim_op(OP_STORE, 0, 12000, 0);
		sim_op(OP_GET, 0, 12000, 0);
		EXPECT_WELL(sim_play());
		CHECK_EQ(most_sent, 0);
		CHECK_EQ(cluster->epochs, 2); /* one at each end */
	}
}

/* After ICMP fewer losses of a frame begin a search. */
static void test_path__icmp_begins_the_search_sooner(void)
{
	uint64_t done_ns[2] = { 0 };

	for (uint32_t told = 0; told < 2; told++) {
		sim_scene(1);
		scene->on_round = told ? tell : look;
		most_sent = 0;
		sim_op(OP_STORE, 0, 12000, 0);
		sim_fault(SIM_LOSS, 0, 1, 0, 1000 * 1000)->longer = scene->shape.frame_bytes - 40;
		EXPECT_WELL(sim_play());
		CHECK(most_sent);
		done_ns[told] = sim_last_done_ns();
	}
	CHECK(done_ns[1] < done_ns[0]);
}

static int first_status[OPS_MAX]; /* of each operation's first attempt, if it failed */

static void note_first(struct node *node)
{
	look(node);
	for (uint32_t i = 0; i < scene->ops_count; i++)
		if (!first_status[i])
			first_status[i] = scene->ops[i].last_status;
}

/* The path begins to eat every frame above a size, during transfers. Messages with such frames end
 * with EMSGSIZE at both ends, and succeed when they are repeated in smaller frames. The session and
 * its other messages go on. */
static void given_up(uint64_t seed, uint32_t segments, uint32_t buffers, uint32_t bytes)
{
	uint32_t large = 0, limit, most;

	sim_scene(seed);
	scene->shape.segments_max = segments;
	scene->shape.frame_bytes *= segments;
	scene->plan_bytes = segments > 1 ? scene->shape.frame_bytes : 0;
	limit = scene->shape.frame_bytes / 2;
	most = scene->shape.buffer_bytes - MESSAGE_AM_BYTES - 200;
	scene->options.rx_buffers = scene->options.tx_buffers = buffers;
	scene->on_round = note_first;
	most_sent = 0;
	memset(first_status, 0, sizeof(first_status));
	sim_op(OP_STORE, 0, bytes, 0);
	sim_op(OP_GET, 0, bytes, 0)->from_file = true;
	sim_op(OP_STORE, 1, bytes, 0)->digest = false;
	sim_op(OP_REQUEST, 1, most, 0);
	sim_op(OP_REQUEST, 0, 10, 0)->reply_bytes = most;
	for (uint32_t i = 0; i < 12; i++)
		sim_op(OP_REQUEST, i & 1, 100, 20 * i);
	sim_fault(SIM_LOSS, SIM_ANY, SIM_ANY, 0.01, 1000 * 1000)->longer = limit;
	EXPECT_WELL(sim_play());
	CHECK_EQ(cluster->counters[CAREFUL_C_EPOCHS_BROKEN], 0);
	CHECK_EQ(cluster->epochs, 2); /* one at each end */
	CHECK(most_sent && most_sent <= limit);
	for (uint32_t i = 0; i < scene->ops_count; i++) {
		CHECK(!first_status[i] || first_status[i] == -EMSGSIZE);
		if (i >= 5)
			CHECK_EQ(scene->ops[i].attempt, 1);
		else
			large += first_status[i] != 0;
	}
	CHECK(large);
}

static void test_path__a_frame_that_never_arrives_ends_its_message(void)
{
	for (uint64_t seed = 0; seed < 20; seed++)
		given_up(seed, 1 + seed % 4, 256, 12000); /* nothing waits for credits */
}

/* Frames are lost after their message has failed, while others wait for credits. */
static void test_path__a_failed_message_leaves_no_gap(void)
{
	for (uint64_t seed = 0; seed < 20; seed++)
		given_up(seed, 2, seed & 1 ? 32 : 48, 12000);
}

/* A fragment that fits the path, but is lost each time, ends its message and not the epoch. */
static void test_path__a_frame_that_is_lost_16_times_ends_its_message(void)
{
	sim_scene(1);
	scene->excused = true;
	scene->on_round = note_first;
	most_sent = 0;
	memset(first_status, 0, sizeof(first_status));
	sim_op(OP_STORE, 0, 12000, 0);
	sim_op(OP_REQUEST, 0, 100, 0);
	sim_op(OP_REQUEST, 1, 100, 0);
	sim_fault(SIM_LOSS, 0, 1, 0.01, 1500)->what = SIM_DATA;
	EXPECT_WELL(sim_play());
	CHECK_EQ(cluster->counters[CAREFUL_C_EPOCHS_BROKEN], 0);
	CHECK_EQ(first_status[0], -ECOMM);
	CHECK_EQ(most_sent, 0);
}

/* A stranger quotes a wrong cookie, or none. */
static void ask_quotes(struct node *node)
{
	const struct link_peer *peer = &node->c->link.peers[0];
	union link_message forged = { .hdr.type = CAREFUL_DATA };

	CHECK(!link_quotes(peer, &forged));
	forged.hdr.cookie = htobe64(peer->cookie_out + 1);
	CHECK(!link_quotes(peer, &forged));
	forged.hdr.cookie = htobe64(peer->cookie_out);
	if (peer->cookie_out)
		CHECK(link_quotes(peer, &forged));
}

static void test_path__a_stranger_quotes_no_cookie(void)
{
	sim_scene(1);
	scene->on_round = ask_quotes;
	sim_op(OP_STORE, 0, 12000, 0);
	EXPECT_WELL(sim_play());
}

/* A host's MTU shrinks while it opens a session for larger frames, and grows again. Meanwhile frames
 * are lost: the window that is left must still hold the largest frame. */
static void test_path__a_window_holds_frames_of_the_earlier_mtu(void)
{
	static const struct cut none;

	EXPECT_WELL(run_cut(cluster, 95345, true, &none));
}

int main(void)
{
	sim_init();
	RUN(test_path__large_frames_that_vanish_get_smaller);
	RUN(test_path__that_narrows_twice);
	RUN(test_path__icmp_alone_makes_no_frame_smaller);
	RUN(test_path__icmp_begins_the_search_sooner);
	RUN(test_path__a_frame_that_never_arrives_ends_its_message);
	RUN(test_path__a_failed_message_leaves_no_gap);
	RUN(test_path__a_frame_that_is_lost_16_times_ends_its_message);
	RUN(test_path__a_stranger_quotes_no_cookie);
	RUN(test_path__a_window_holds_frames_of_the_earlier_mtu);
	return 0;
}
