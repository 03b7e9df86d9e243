// SPDX-License-Identifier: BSD-2-Clause
/*
 * Broadcasts as one frame (P2 section 5.1): the number of frames and updates, their effect on the
 * windows, networks that lack them, and the effect of a loss or a hostile sender.
 */
#include <endian.h>
#include <stdio.h>

#include <careful/frame.h>

#include "event_world.h"
#include "link/send/group.h"
#include "events/private.h"

enum {
	LAST = CAREFUL_EVENT_F_LAST,
	CROWD = CAREFUL_EVENT_F_CROWD,
	ALL = CAREFUL_EVENT_ALL,
};

static struct world w;
static struct careful_event_fragment got;

/* Runs until each node has chosen how to broadcast, and checks that all chose `how`. */
static void begin(int how)
{
	world_begin(&w);
	world_join_all(&w);
	for (uint32_t i = 0; i < w.nodes; i++) {
		for (int k = 0; k < 1000000 && careful_events_broadcast(w.node[i].ev) == -EAGAIN;
		     k++)
			world_step(&w);
		CHECK_EQ(careful_events_broadcast(w.node[i].ev), how);
	}
}

/* Checks that both ends of each idle session agree on frames and credits. */
static void check_accounts(void)
{
	for (uint32_t i = 0; i < w.nodes; i++)
		for (uint32_t k = 0; k < w.nodes; k++) {
			const struct flow *out, *in;
			const struct link_peer *there;

			if (i == k)
				continue;
			out = &w.node[i].c->link.peers[w.node[i].peers[k]].flow;
			there = &w.node[k].c->link.peers[w.node[k].peers[i]];
			in = &there->flow;
			CHECK_EQ(out->tx.sent, in->rx.received);
			CHECK_EQ(out->tx.credits, in->rx.announced);
			CHECK_EQ(out->seq_out, in->seq_in);
			CHECK_EQ(in->rx.received, in->rx.returned + there->kept);
			CHECK(window_rx_owed(&in->rx) < in->rx.threshold);
		}
	CHECK_EQ(world_count(&w, CAREFUL_C_DROP_SEQ), 0);
	CHECK_EQ(world_count(&w, CAREFUL_C_BAD_CREDITS), 0);
	CHECK_EQ(world_count(&w, CAREFUL_C_EPOCHS_BROKEN), 0);
}

static uint32_t events; /* of all_to_all() */

/* Each node broadcasts in each event, and receives from all others. */
static bool all_to_all(struct world *world, uint32_t rank, struct program *p)
{
	struct careful_events *ev = world->node[rank].ev;

	while (p->event < events) {
		uint32_t word = rank << 16 | (uint32_t)p->event;

		if (!p->fragment) {
			p->rc = careful_event_send(ev, ALL, p->event, &word, sizeof(word),
						   LAST | CROWD, 0);
			if (p->rc)
				return p->rc != -EAGAIN;
			p->fragment = 1;
		}
		p->rc = careful_event_receive(ev, ALL, p->event, &got, 0);
		if (p->rc)
			return p->rc != -EAGAIN;
		memcpy(&word, got.data, sizeof(word));
		CHECK_EQ(word, got.source << 16 | (uint32_t)p->event);
		p->got++;
		if (got.status != CAREFUL_EVENT_EVENT_DONE)
			continue;
		p->event++;
		p->fragment = 0;
	}
	return true;
}

static void play(uint32_t count)
{
	struct program programs[WORLD_NODES_MAX] = { 0 };

	events = count;
	CHECK(world_play(&w, all_to_all, programs, 10000));
	for (uint32_t i = 0; i < w.nodes; i++) {
		CHECK_EQ(programs[i].rc, 0);
		CHECK_EQ(programs[i].got, (w.nodes - 1) * count);
	}
	world_run(&w, 5);
}

static void test_broadcast__one_frame_each(void)
{
	static const uint32_t shapes[][2] = { { 3, 4 }, { 4, 8 }, { 8, 4 }, { 8, 16 } };

	for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
		uint64_t frames, updates;

		world_set(&w, shapes[i][0], shapes[i][1], 64);
		begin(0);
		frames = world_count(&w, CAREFUL_C_TX_FRAMES);
		updates = world_count(&w, CAREFUL_C_TX_UPDATES);
		play(200);
		frames = world_count(&w, CAREFUL_C_TX_FRAMES) - frames;
		updates = world_count(&w, CAREFUL_C_TX_UPDATES) - updates;
		CHECK_EQ(world_count(&w, CAREFUL_C_TX_BROADCASTS), shapes[i][0] * 200);
		CHECK_EQ(frames - updates, shapes[i][0] * 200); /* not one more */
		check_accounts();
		world_end(&w);
	}
}

/* Broadcasts one event in three, and sends the others to one node. */
static bool mixed(struct world *world, uint32_t rank, struct program *p)
{
	struct careful_events *ev = world->node[rank].ev;

	while (p->event < events) {
		bool all = p->event % 3 == 0;
		uint32_t source = (uint32_t)(p->event % world->nodes),
			 dst = (source + 1) % world->nodes;

		if (source == rank)
			p->rc = careful_event_send(ev, all ? ALL : dst, p->event, &p->event,
						   sizeof(p->event), LAST, 0);
		else if (all || dst == rank)
			p->rc = careful_event_receive(ev, source, p->event, &got, 0);
		else
			p->rc = 0;
		if (p->rc)
			return p->rc != -EAGAIN;
		p->event++;
	}
	return true;
}

static void test_broadcast__among_messages_to_one(void)
{
	struct program programs[WORLD_NODES_MAX] = { 0 };

	world_set(&w, 4, 4, 64);
	begin(0);
	events = 3000;
	CHECK(world_play(&w, mixed, programs, 10000));
	for (uint32_t i = 0; i < w.nodes; i++)
		CHECK_EQ(programs[i].rc, 0);
	CHECK_EQ(world_count(&w, CAREFUL_C_TX_BROADCASTS), events / 3);
	world_run(&w, 5);
	check_accounts();
	world_end(&w);
}

/* If one node cannot be reached, all others receive the broadcasts, and the failure is reported. */
static void test_broadcast__replicated_if_the_network_has_none(void)
{
	world_set(&w, 4, 8, 64);
	w.config.unreached = 1 << 2;
	world_begin(&w);
	world_join_all(&w);
	play(50); /* before it is known, too */
	world_run(&w, 12000);
	for (uint32_t i = 0; i < 4; i++)
		CHECK_EQ(careful_events_broadcast(w.node[i].ev), i == 2 ? 0 : -EHOSTUNREACH);
	CHECK(world_count(&w, CAREFUL_C_TX_BROADCASTS) <= 50);
	check_accounts();
	world_end(&w);
}

static void test_broadcast__two_nodes_have_none(void)
{
	world_set(&w, 2, 8, 64);
	begin(-EOPNOTSUPP);
	play(50);
	CHECK_EQ(world_count(&w, CAREFUL_C_TX_BROADCASTS), 0);
	world_end(&w);
}

/* A program can request this for comparisons. */
static void test_broadcast__replicated_on_request(void)
{
	world_set(&w, 4, 8, 64);
	w.replicate = true;
	begin(-EOPNOTSUPP);
	play(50);
	CHECK_EQ(world_count(&w, CAREFUL_C_TX_BROADCASTS), 0);
	CHECK(world_count(&w, CAREFUL_C_TX_FRAMES) >= 50 * 4 * 3);
	check_accounts();
	world_end(&w);
}

/* Returns the share of separate updates among all frames, percent (P2's footnote 6). */
static double alone(uint32_t nodes, uint32_t window, bool mute, bool one_frame)
{
	uint64_t frames, updates;

	world_set(&w, nodes, window, 64);
	w.config.unreached = one_frame ? 0 : ~0u;
	begin(one_frame ? 0 : -EHOSTUNREACH);
	for (uint32_t i = 0; one_frame && i < nodes; i++)
		w.node[i].ev->group->mute = mute;
	frames = world_count(&w, CAREFUL_C_TX_FRAMES);
	updates = world_count(&w, CAREFUL_C_TX_UPDATES);
	play(1000);
	frames = world_count(&w, CAREFUL_C_TX_FRAMES) - frames;
	updates = world_count(&w, CAREFUL_C_TX_UPDATES) - updates;
	check_accounts();
	world_end(&w);
	return 100.0 * (double)updates / (double)frames;
}

static void test_broadcast__gives_credits_back(void)
{
	static const uint32_t shapes[][2] = { { 4, 8 }, { 8, 8 }, { 8, 16 } };

	for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
		double with = alone(shapes[i][0], shapes[i][1], false, true);
		double without = alone(shapes[i][0], shapes[i][1], true, true);
		double replicated = alone(shapes[i][0], shapes[i][1], false, false);

		printf("  %u nodes, W = %u: updates alone %.1f %% with, %.1f %% without, "
		       "%.1f %% replicated\n",
		       shapes[i][0], shapes[i][1], with, without, replicated);
		CHECK(with < 5);
		CHECK(without > 20);
	}
}

/* P2's flooding: each node broadcasts all its data, then receives. */
static bool flood(struct world *world, uint32_t rank, struct program *p)
{
	struct careful_events *ev = world->node[rank].ev;

	for (; p->event < events; p->event++) {
		p->rc = careful_event_send(ev, ALL, p->event, &rank, sizeof(rank), LAST | CROWD, 0);
		if (p->rc)
			return p->rc != -EAGAIN;
	}
	while (p->fragment < events) {
		p->rc = careful_event_receive(ev, ALL, p->fragment, &got, 0);
		if (p->rc)
			return p->rc != -EAGAIN;
		p->got++;
		p->fragment += got.status == CAREFUL_EVENT_EVENT_DONE;
	}
	return true;
}

/* Nodes that share a processor: each runs until it must wait. The first sender owes nothing to
 * nodes that have not sent yet, and much to the others. */
static void test_broadcast__gives_credits_back_to_each(void)
{
	struct program programs[WORLD_NODES_MAX] = { 0 };
	uint64_t frames, updates;
	bool over = false;

	world_set(&w, 8, 16, 1024);
	begin(0);
	events = 60;
	frames = world_count(&w, CAREFUL_C_TX_FRAMES);
	updates = world_count(&w, CAREFUL_C_TX_UPDATES);
	for (uint32_t turn = 0; turn < 8000 && !over; turn++) {
		over = true;
		for (uint32_t i = 0; i < 8; i++) {
			w.node[i].stopped = i != turn % 8;
			over = over && programs[i].over;
		}
		for (uint32_t k = 0; k < 40; k++) {
			struct program *p = &programs[turn % 8];

			p->over = p->over || flood(&w, turn % 8, p);
			world_step(&w);
		}
	}
	for (uint32_t i = 0; i < 8; i++) {
		w.node[i].stopped = false;
		CHECK_EQ(programs[i].rc, 0);
		CHECK_EQ(programs[i].got, 7 * events);
	}
	frames = world_count(&w, CAREFUL_C_TX_FRAMES) - frames;
	updates = world_count(&w, CAREFUL_C_TX_UPDATES) - updates;
	printf("  %llu updates alone, %llu broadcasts\n", (unsigned long long)updates,
	       (unsigned long long)(frames - updates));
	CHECK_EQ(frames - updates, 8 * events);
	CHECK(updates < (frames - updates) / 2); /* 396 with the common part alone */
	world_run(&w, 5);
	check_accounts();
	world_end(&w);
}

/* A broadcast that one node misses ends that session, and the group everywhere. */
static void lose(bool last)
{
	uint64_t began_ns;

	world_set(&w, 4, 8, 64);
	world_lose(&w, 0, 1, 3000);
	begin(0);
	world_run(&w, (double)(3000 * world_ms - world_now_ns(&w)) / 1e6 + 0.1);
	began_ns = world_now_ns(&w);
	CHECK_EQ(careful_event_send(w.node[0].ev, ALL, 1, "a", 1, LAST, 0), 0);
	world_run(&w, 2);
	CHECK_EQ(w.faults[0].hits, 1);
	if (!last)
		CHECK_EQ(careful_event_send(w.node[0].ev, ALL, 2, "b", 1, LAST, 0), 0);
	for (uint32_t i = 0; i < 4; i++) {
		while (!careful_events_failed(w.node[i].ev, NULL) &&
		       world_now_ns(&w) - began_ns < 1000 * world_ms)
			world_step(&w);
		CHECK(careful_events_failed(w.node[i].ev, NULL) < 0);
	}
	CHECK(world_count(&w, CAREFUL_C_LOST_FRAMES) > 0);
	CHECK_EQ(w.node[2].c->link.counters[CAREFUL_C_EPOCHS_BROKEN], 0);
	CHECK_EQ(w.node[3].c->link.counters[CAREFUL_C_EPOCHS_BROKEN], 0);
	/* All nodes can begin again. */
	for (uint32_t i = 0; i < 4; i++)
		careful_events_close(w.node[i].ev, 0, 0);
	world_run(&w, 100);
	world_join_all(&w);
	play(10);
	world_end(&w);
}

static void test_broadcast__lost_for_one(void)
{
	lose(false);
	lose(true);
}

static void hear(uint32_t node, uint64_t event, char text)
{
	while (careful_event_receive(w.node[node].ev, ALL, event, &got, 0) == -EAGAIN)
		world_step(&w);
	CHECK_EQ(got.bytes, 1);
	CHECK_EQ(*(const char *)got.data, text);
	CHECK_EQ(got.status, CAREFUL_EVENT_EVENT_DONE);
}

/* With repairs, only the node that missed the frame gets it again, in order. */
static void repair(bool last)
{
	world_set(&w, 4, 8, 64);
	w.options.repair = CAREFUL_REPAIR_ON;
	world_lose(&w, 0, 1, 3000);
	begin(0);
	world_run(&w, (double)(3000 * world_ms - world_now_ns(&w)) / 1e6 + 0.1);
	CHECK_EQ(careful_event_send(w.node[0].ev, ALL, 1, "a", 1, LAST, 0), 0);
	world_run(&w, 2);
	CHECK_EQ(w.faults[0].hits, 1);
	if (!last)
		CHECK_EQ(careful_event_send(w.node[0].ev, 1, 2, "b", 1, LAST, 0), 0);
	CHECK_EQ(careful_event_send(w.node[0].ev, ALL, 3, "c", 1, LAST, 0), 0);
	for (uint32_t i = 1; i < 4; i++) {
		hear(i, 1, 'a');
		if (i == 1 && !last)
			hear(i, 2, 'b');
		hear(i, 3, 'c');
	}
	CHECK_EQ(w.node[0].c->link.counters[CAREFUL_C_SENT_AGAIN], 1);
	CHECK_EQ(w.node[1].c->link.counters[CAREFUL_C_ASKED_AGAIN], 1);
	CHECK_EQ(world_count(&w, CAREFUL_C_ASKED_AGAIN), 1);
	world_run(&w, 20);
	check_accounts();
	world_end(&w);
}

static void test_broadcast__lost_for_one_is_repaired_alone(void)
{
	repair(false);
	repair(true);
}

/* Nodes close in turn and join again; frames under way are no loss. */
static void test_broadcast__again(void)
{
	world_set(&w, 4, 8, 64);
	begin(0);
	for (int round = 0; round < 5; round++) {
		play(7);
		CHECK_EQ(careful_event_send(w.node[0].ev, ALL, 7, "x", 1, LAST, 0), 0);
		for (uint32_t i = 0; i < 4; i++) {
			careful_events_close(w.node[3 - i].ev, 0, 0);
			world_run(&w, 1);
		}
		world_run(&w, 500);
		world_join_all(&w);
	}
	play(7);
	check_accounts();
	world_end(&w);
}

/* Counts the groups whose frames are admitted, over all nodes. */
static uint32_t admitted(void)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < w.nodes; i++)
		for (uint32_t slot = 0; slot < w.node[i].c->link.peers_max; slot++)
			n += w.node[i].c->link.heard[slot].cookie != 0;
	return n;
}

/* A node that has left admits no broadcasts; its sessions continue. */
static void test_broadcast__nothing_is_left_of_a_group(void)
{
	world_set(&w, 4, 8, 64);
	begin(0);
	play(7);
	CHECK_EQ(admitted(), 4 * 3);
	for (uint32_t i = 0; i < 4; i++) {
		careful_events_close(w.node[i].ev, 0, 0);
		world_run(&w, 20);
	}
	CHECK_EQ(admitted(), 0);
	CHECK_EQ(world_count(&w, CAREFUL_C_EPOCHS_BROKEN), 0);
	world_end(&w);
}

/* XDP: with any numbers, a group's sender fills no more buffers than its session allows. */
static void test_admit__a_group_within_its_senders_window(void)
{
	struct careful_peer_entry peer = {
		.cookie = 1,
		.window = 4,
		.limit = 4,
		.may_fill = 4,
		.buffer_bytes = 1024,
		.group_cookie = 7,
		.group_source = { 0, 0, 0, 0, 0, 0xffff, 0, 9 },
	};
	struct careful_hdr hdr = {
		.type = CAREFUL_DATA,
		.flags = CAREFUL_F_BCAST_EVENT,
		.cookie = htobe64(7),
	};
	const uint8_t ip[CAREFUL_FRAME_IPV4] = { [15] = 9 };
	const uint8_t *end = ip + sizeof(ip);

	for (uint32_t i = 1; i <= 4; i++)
		CHECK_EQ(careful_frame_admit_group(&peer, &hdr, 100, ip, end),
			 CAREFUL_XDP_ADMITTED);
	CHECK_EQ(careful_frame_admit_group(&peer, &hdr, 100, ip, end), CAREFUL_XDP_DROP_CREDIT);
	hdr.cookie = htobe64(1);
	hdr.seq = htobe32(1);
	CHECK_EQ(careful_frame_admit(&peer, &hdr, 100), CAREFUL_XDP_DROP_CREDIT); /* one window */
	CHECK_EQ(careful_frame_admit_group(&peer, &hdr, 100, ip, end), CAREFUL_XDP_DROP_COOKIE);
	hdr.cookie = htobe64(7);
	peer.may_fill = 5;
	peer.cookie = 0;
	CHECK_EQ(careful_frame_admit_group(&peer, &hdr, 100, ip, end), CAREFUL_XDP_DROP_COOKIE);
}

/* A node that uses another's cookie is refused. */
static void test_admit__the_cookie_of_another_node(void)
{
	struct link_peer *second, *third;

	world_set(&w, 3, 8, 64);
	begin(0);
	second = &w.node[0].c->link.peers[w.node[0].peers[1]];
	third = &w.node[0].c->link.peers[w.node[0].peers[2]];
	CHECK_EQ(link_group_admit(third, w.node[1].ev->cookie, 0), -EEXIST);
	CHECK_EQ(link_group_admit(second, w.node[1].ev->cookie, 0), 0); /* its own cookie */
	world_end(&w);
}

int main(void)
{
	RUN(test_broadcast__one_frame_each);
	RUN(test_broadcast__among_messages_to_one);
	RUN(test_broadcast__replicated_if_the_network_has_none);
	RUN(test_broadcast__two_nodes_have_none);
	RUN(test_broadcast__replicated_on_request);
	RUN(test_broadcast__gives_credits_back);
	RUN(test_broadcast__gives_credits_back_to_each);
	RUN(test_broadcast__lost_for_one);
	RUN(test_broadcast__lost_for_one_is_repaired_alone);
	RUN(test_broadcast__again);
	RUN(test_broadcast__nothing_is_left_of_a_group);
	RUN(test_admit__a_group_within_its_senders_window);
	RUN(test_admit__the_cookie_of_another_node);
	return 0;
}
