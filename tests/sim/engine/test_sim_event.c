// SPDX-License-Identifier: BSD-2-Clause
/* The event interface (P2 section 5.1): orders, ends, all-to-all, windows, failures, misuse. */
#include <endian.h>

#include "event_world.h"
#include "events/private.h"

enum {
	LAST = CAREFUL_EVENT_F_LAST,
	CROWD = CAREFUL_EVENT_F_CROWD,
	LARGE = CAREFUL_EVENT_F_LARGE,
	ALL = CAREFUL_EVENT_ALL,
};

static struct world w;
static struct careful_event_fragment got;

static void begin(uint32_t nodes, uint32_t window, uint32_t copies)
{
	world_set(&w, nodes, window, copies);
	world_begin(&w);
	world_join_all(&w);
}

/* Checks that all programs ended, no group failed, and no buffer is missing. */
static void end_well(void)
{
	world_run(&w, 1); /* credits are back */
	for (uint32_t i = 0; i < w.nodes; i++) {
		CHECK_EQ(careful_events_failed(w.node[i].ev, NULL), 0);
		careful_events_close(w.node[i].ev, 0, 0);
	}
	world_run(&w, 5);
	for (uint32_t i = 0; i < w.nodes; i++) {
		struct careful_info info;

		CHECK_EQ(careful_info(w.node[i].c, &info), 0);
		CHECK_EQ(info.copyout_used, 0);
		for (uint32_t k = 0; k < w.nodes; k++) {
			struct careful_peer_info peer;

			if (k == i)
				continue;
			CHECK_EQ(careful_peer_info(w.node[i].c, w.node[i].peers[k], &peer), 0);
			CHECK_EQ(peer.buffers_kept, 0);
			CHECK_EQ(peer.operations, 0);
		}
	}
	CHECK_EQ(world_count(&w, CAREFUL_C_DROP_MESSAGE), 0);
	CHECK_EQ(world_count(&w, CAREFUL_C_EPOCHS_BROKEN), 0);
	world_end(&w);
}

static void expect(uint32_t rank, uint32_t src, uint64_t event, const char *text, uint32_t source,
		   uint32_t status)
{
	CHECK_EQ(world_receive(&w, rank, src, event, &got), 0);
	CHECK_EQ(got.bytes, strlen(text));
	CHECK(!memcmp(got.data, text, got.bytes));
	CHECK_EQ(got.source, source);
	CHECK_EQ(got.status, status);
}

static void test_receive__more_and_done(void)
{
	begin(3, 8, 64);
	CHECK_EQ(world_send(&w, 0, 1, 1, "one", 3, LAST), 0);
	CHECK_EQ(world_send(&w, 0, 1, 4, "a", 1, LARGE), 0);
	CHECK_EQ(world_send(&w, 0, 1, 4, "bc", 2, LARGE), 0);
	CHECK_EQ(world_send(&w, 0, 1, 4, "", 0, LARGE | LAST), 0);
	expect(1, 0, 1, "one", 0, CAREFUL_EVENT_EVENT_DONE);
	expect(1, ALL, 4, "a", 0, CAREFUL_EVENT_MORE);
	CHECK_EQ(got.offset, 0);
	expect(1, ALL, 4, "bc", 0, CAREFUL_EVENT_MORE);
	CHECK_EQ(got.offset, 1);
	expect(1, ALL, 4, "", 0, CAREFUL_EVENT_EVENT_DONE);
	CHECK_EQ(got.offset, 3);
	CHECK_EQ(careful_event_receive(w.node[2].ev, ALL, 9, &got, 0), -EAGAIN);
	end_well();
}

/* All-to-all: each node receives P - 1 messages, from any node or from a named one. */
static void crowd(uint32_t nodes)
{
	char text[20], want[20];

	begin(nodes, 4, 64);
	for (uint32_t i = 0; i < nodes; i++) {
		snprintf(text, sizeof(text), "from %u", i);
		CHECK_EQ(world_send(&w, i, ALL, 1, text, 6, LAST | CROWD), 0);
		CHECK_EQ(world_send(&w, i, ALL, 2, text, 3, LARGE | CROWD), 0);
		CHECK_EQ(world_send(&w, i, ALL, 2, text + 3, 3, LARGE | LAST | CROWD), 0);
	}
	for (uint32_t i = 0; i < nodes; i++) {
		uint32_t seen = 0;

		for (uint32_t k = 1; k < nodes; k++) {
			CHECK_EQ(world_receive(&w, i, ALL, 1, &got), 0);
			CHECK_EQ(got.status, k == nodes - 1 ? CAREFUL_EVENT_EVENT_DONE :
							      CAREFUL_EVENT_NODE_DONE);
			snprintf(want, sizeof(want), "from %u", got.source);
			CHECK(!memcmp(got.data, want, 6));
			CHECK(got.source != i);
			CHECK(!(seen & 1u << got.source));
			seen |= 1u << got.source;
		}
		for (uint32_t k = nodes; k-- > 0;) { /* the last first */
			if (k == i)
				continue;
			snprintf(want, sizeof(want), "from %u", k);
			CHECK_EQ(world_receive(&w, i, k, 2, &got), 0);
			CHECK_EQ(got.status, CAREFUL_EVENT_MORE);
			CHECK(!memcmp(got.data, want, 3));
			CHECK_EQ(world_receive(&w, i, k, 2, &got), 0);
			CHECK(got.status != CAREFUL_EVENT_MORE);
			CHECK(!memcmp(got.data, want + 3, 3));
		}
		CHECK_EQ(got.status, CAREFUL_EVENT_EVENT_DONE);
	}
	end_well();
}

static void test_crowd__each_receives_from_all_others(void)
{
	crowd(2);
	crowd(3);
	crowd(8);
}

/* In a crowd event a node may send different data to each of the others. */
static void test_crowd__to_each_its_own(void)
{
	begin(3, 4, 16);
	for (uint32_t i = 0; i < 3; i++)
		for (uint32_t k = 0; k < 3; k++)
			if (k != i)
				CHECK_EQ(world_send(&w, i, k, 1, &"abcdefghi"[3 * i + k], 1,
						    LAST | CROWD),
					 0);
	for (uint32_t k = 0; k < 3; k++)
		for (uint32_t i = 0; i < 3; i++)
			if (k != i) {
				CHECK_EQ(world_receive(&w, k, i, 1, &got), 0);
				CHECK_EQ(*(const char *)got.data, "abcdefghi"[3 * i + k]);
			}
	end_well();
}

/* A node that opens the group late loses nothing, since others wait for it. */
static void test_open__late_and_again(void)
{
	world_set(&w, 3, 4, 16);
	world_begin(&w);
	world_join(&w, 0, 3);
	world_join(&w, 1, 3);
	world_run(&w, 50);
	CHECK_EQ(careful_event_send(w.node[0].ev, 1, 1, "x", 1, LAST, 0), -EAGAIN);
	world_join(&w, 2, 3);
	CHECK_EQ(world_send(&w, 0, 1, 1, "x", 1, LAST), 0);
	expect(1, ALL, 1, "x", 0, CAREFUL_EVENT_EVENT_DONE);
	/* Nodes close and open the group in turn; old and new groups do not mix. */
	for (uint32_t i = 0; i < 3; i++) {
		world_run(&w, 1); /* credits are back */
		CHECK_EQ(careful_events_close(w.node[i].ev, 0, 0), 0);
		world_join(&w, i, 3);
		CHECK_EQ(careful_event_send(w.node[i].ev, ALL, 1, "y", 1, LAST | CROWD, 0),
			 -EAGAIN);
		world_run(&w, 20);
	}
	for (uint32_t i = 0; i < 3; i++)
		CHECK_EQ(world_send(&w, i, ALL, 1, "y", 1, LAST | CROWD), 0);
	for (uint32_t i = 0; i < 3; i++)
		for (uint32_t k = 1; k < 3; k++)
			CHECK_EQ(world_receive(&w, i, ALL, 1, &got), 0);
	CHECK_EQ(got.status, CAREFUL_EVENT_EVENT_DONE);
	end_well();
}

/* A node that closes the group before others heard of it sends nothing more, and no node waits for
 * its end. */
static void test_close__before_anybody_heard_of_it(void)
{
	for (int status = 0; status >= -EIO; status -= EIO) {
		world_set(&w, 3, 4, 16);
		world_begin(&w);
		world_join(&w, 0, 3);
		world_join(&w, 1, 3);
		world_run(&w, 20);
		world_join(&w, 2, 3);
		CHECK_EQ(careful_events_close(w.node[2].ev, status, 0), 0);
		world_run(&w, 20);
		for (uint32_t i = 0; i < 2; i++) {
			CHECK(!w.node[i].ev->node[2].joined);
			CHECK_EQ(careful_events_failed(w.node[i].ev, NULL), 0);
		}
		world_join(&w, 2, 3);
		CHECK_EQ(world_send(&w, 2, ALL, 1, "z", 1, LAST), 0);
		expect(0, 2, 1, "z", 2, CAREFUL_EVENT_EVENT_DONE);
		expect(1, 2, 1, "z", 2, CAREFUL_EVENT_EVENT_DONE);
		end_well();
	}
}

/* A node that joins while another leaves is told of the leave. */
static void test_join__while_a_node_leaves(void)
{
	world_set(&w, 3, 4, 16);
	world_begin(&w);
	world_join(&w, 0, 3);
	world_join(&w, 2, 3);
	world_run(&w, 20); /* node 1 opened the group, and no node knows */
	w.node[2].ev->leaving = true; /* like close() while it waits */
	world_join(&w, 1, 3);
	world_run(&w, 20);
	CHECK(w.node[1].ev->node[0].joined && !w.node[1].ev->node[0].left);
	CHECK(w.node[1].ev->node[2].left);
	world_end(&w);
}

/* P2's flooding: each broadcasts `events` messages of `fragments` fragments, then consumes. */
static uint32_t events, fragments, bytes = 720;

static uint32_t word(uint32_t rank, uint64_t event, uint32_t fragment)
{
	return rank << 24 | (uint32_t)event << 8 | fragment;
}

static bool flood(struct world *world, uint32_t rank, struct program *p)
{
	struct careful_events *ev = world->node[rank].ev;

	while (p->event < events) {
		uint32_t data[180] = { word(rank, p->event, p->fragment) };
		uint32_t flags = CROWD | LARGE | (p->fragment + 1 == fragments ? LAST : 0);

		p->rc = careful_event_send(ev, ALL, p->event, data, bytes, flags, 0);
		if (p->rc)
			return p->rc != -EAGAIN;
		p->event += ++p->fragment == fragments;
		p->fragment %= fragments;
	}
	while (p->event < 2ull * events) {
		uint64_t event = p->event - events;
		uint32_t first;

		p->rc = careful_event_receive(ev, ALL, event, &got, 0);
		if (p->rc)
			return p->rc != -EAGAIN;
		CHECK_EQ(got.bytes, bytes);
		memcpy(&first, got.data, sizeof(first)); /* frames are not aligned */
		CHECK_EQ(first, word(got.source, event, got.offset / bytes));
		p->got++;
		p->event += got.status == CAREFUL_EVENT_EVENT_DONE;
	}
	return true;
}

static void test_flood__more_than_a_window_before_consuming(void)
{
	static const uint32_t shapes[][4] = {
		/* nodes, window, events, fragments */
		{ 2, 4, 10, 16 }, { 3, 4, 10, 4 }, { 4, 8, 10, 8 },
		{ 8, 4, 10, 4 },  { 8, 16, 2, 1 },
	};

	for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
		const uint32_t nodes = shapes[i][0];
		struct program programs[WORLD_NODES_MAX] = { 0 };

		events = shapes[i][2];
		fragments = shapes[i][3];
		/* A quarter of the copies is reserved for other peers (link/share.h). */
		begin(nodes, shapes[i][1], (nodes - 1) * events * fragments * 4 / 3 + nodes);
		CHECK(world_play(&w, flood, programs, 1000));
		for (uint32_t k = 0; k < nodes; k++) {
			CHECK_EQ(programs[k].rc, 0);
			CHECK_EQ(programs[k].got, (nodes - 1) * events * fragments);
		}
		CHECK_EQ(world_count(&w, CAREFUL_C_CREDITS_WITHHELD), 0);
		if (events * fragments > shapes[i][1])
			CHECK(world_count(&w, CAREFUL_C_COPIED_OUT) > 0);
		else
			CHECK_EQ(world_count(&w, CAREFUL_C_COPIED_OUT), 0);
		end_well();
	}
}

/* The same with too few copies: each node gets an error, consumes, and continues. */
static bool flood_and_yield(struct world *world, uint32_t rank, struct program *p)
{
	bool over = flood(world, rank, p);

	if (p->rc != -ENOBUFS)
		return over;
	p->got++; /* errors so far */
	return true;
}

static void test_flood__the_bound_of_copying_out_has_a_name(void)
{
	struct program programs[WORLD_NODES_MAX] = { 0 };
	uint64_t began_ns;

	begin(3, 4, 6);
	events = 10;
	fragments = 4;
	began_ns = world_now_ns(&w);
	CHECK(world_play(&w, flood_and_yield, programs, 1000));
	CHECK(world_now_ns(&w) - began_ns < 1000 * world_ms);
	CHECK(world_count(&w, CAREFUL_C_CREDITS_WITHHELD) > 0);
	for (uint32_t k = 0; k < 3; k++) {
		CHECK_EQ(programs[k].rc, -ENOBUFS);
		CHECK_EQ(careful_events_failed(w.node[k].ev, NULL), 0); /* and continues */
	}
	for (uint32_t k = 0; k < 3; k++)
		careful_events_close(w.node[k].ev, -EINTR, 0);
	world_end(&w);
}

/* Only its senders wait for a node that does not consume. */
static void test_send__waits_for_a_slow_node(void)
{
	uint32_t sent = 0;

	begin(3, 4, 8);
	for (uint32_t i = 0; i < 30; i++, world_run(&w, 50))
		sent += careful_event_send(w.node[0].ev, 2, sent, "x", 1, LAST, 0) == 0;
	CHECK(sent > 4 && sent < 16);
	CHECK_EQ(careful_event_send(w.node[0].ev, 2, sent, "x", 1, LAST, 0), -EAGAIN);
	CHECK_EQ(world_send(&w, 1, 0, 7, "y", 1, LAST), 0);
	expect(0, ALL, 7, "y", 1, CAREFUL_EVENT_EVENT_DONE);
	for (uint32_t i = 0; i < sent; i++)
		expect(2, 0, i, "x", 0, CAREFUL_EVENT_EVENT_DONE);
	CHECK_EQ(world_send(&w, 0, 2, sent, "x", 1, LAST), 0);
	expect(2, 0, sent, "x", 0, CAREFUL_EVENT_EVENT_DONE);
	end_well();
}

/* The program's current fragment stays in place while others are copied out. */
static void test_receive__the_current_fragment_stays_in_place(void)
{
	char text[2] = "a";

	begin(2, 4, 32);
	CHECK_EQ(world_send(&w, 0, 1, 1, "first", 5, LAST), 0);
	expect(1, 0, 1, "first", 0, CAREFUL_EVENT_EVENT_DONE);
	const struct careful_event_fragment held = got;

	for (uint64_t i = 2; i < 20; i++, text[0]++)
		CHECK_EQ(world_send(&w, 0, 1, i, text, 1, LAST), 0);
	world_run(&w, 1);
	CHECK(world_count(&w, CAREFUL_C_COPIED_OUT) > 10);
	CHECK(!memcmp(held.data, "first", 5));
	text[0] = 'a';
	for (uint64_t i = 2; i < 20; i++, text[0]++)
		expect(1, 0, i, text, 0, CAREFUL_EVENT_EVENT_DONE);
	end_well();
}

static void test_send__misuse(void)
{
	struct careful_events *ev, *second;
	static char large[2000];
	const struct careful_events_options wrong[] = {
		{ .nodes = 0 },
		{ .nodes = 3, .rank = 3 },
		{ .nodes = CAREFUL_EVENT_NODES_MAX + 1 },
	};

	world_set(&w, 3, 4, 16);
	world_begin(&w);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		CHECK_EQ(careful_events_open(w.node[0].c, &wrong[i], &second), -EINVAL);
	ev = world_join(&w, 0, 3);
	CHECK_EQ(careful_events_open(w.node[0].c,
				     &(struct careful_events_options){ .nodes = 3,
								       .peers = w.node[0].peers },
				     &second),
		 -EBUSY);
	world_join(&w, 1, 3);
	world_join(&w, 2, 3);
	CHECK_EQ(world_send(&w, 0, 1, 5, "x", 1, LAST), 0);
	CHECK_EQ(careful_event_send(ev, 0, 6, "x", 1, LAST, 0), -ENOENT); /* itself */
	CHECK_EQ(careful_event_send(ev, 3, 6, "x", 1, LAST, 0), -ENOENT);
	CHECK_EQ(careful_event_send(ev, 1, 6, "x", 1, LAST | 0x40, 0), -EINVAL);
	CHECK_EQ(careful_event_send(ev, 1, 6, "x", 1, 0, 0), -EINVAL); /* second fragment */
	CHECK_EQ(careful_event_send(ev, 1, 4, "x", 1, LAST, 0), -EILSEQ); /* earlier */
	CHECK_EQ(careful_event_send(ev, 1, 5, "x", 1, LAST, 0), -EILSEQ); /* ended */
	CHECK_EQ(careful_event_send(ev, 1, 6, large, sizeof(large), LAST, 0), -EMSGSIZE);
	CHECK_EQ(careful_event_send(ev, 1, 6, large, (uint32_t)careful_event_bytes(ev) + 1, LAST,
				    0),
		 -EMSGSIZE);
	CHECK_EQ(world_send(&w, 0, 1, 6, "x", 1, LARGE), 0);
	CHECK_EQ(careful_event_send(ev, 1, 7, "x", 1, LAST, 0), -EILSEQ); /* 6 is open */
	CHECK_EQ(careful_event_send(ev, 1, 6, "x", 1, LAST, 0), -EINVAL); /* large and not large */
	CHECK_EQ(careful_event_send(ev, 1, 6, "x", 1, LARGE | LAST | CROWD, 0), -EINVAL);
	CHECK_EQ(careful_event_send(ev, ALL, 6, "x", 1, LAST | CROWD, 0), -EINVAL);
	CHECK_EQ(world_send(&w, 0, 1, 6, "x", 1, LARGE | LAST), 0);
	/* None of these was sent. */
	expect(1, ALL, 5, "x", 0, CAREFUL_EVENT_EVENT_DONE);
	expect(1, ALL, 6, "x", 0, CAREFUL_EVENT_MORE);
	expect(1, ALL, 6, "x", 0, CAREFUL_EVENT_EVENT_DONE);
	CHECK_EQ(careful_event_receive(w.node[2].ev, ALL, 1, &got, 0), -EAGAIN);
	end_well();
}

static void test_receive__misuse(void)
{
	struct careful_events *ev;

	begin(3, 4, 16);
	ev = w.node[1].ev;
	CHECK_EQ(world_send(&w, 0, 1, 1, "a", 1, LARGE), 0);
	CHECK_EQ(world_send(&w, 0, 1, 1, "b", 1, LARGE | LAST), 0);
	CHECK_EQ(world_send(&w, 0, 1, 3, "c", 1, LAST), 0);
	world_run(&w, 1);
	CHECK_EQ(careful_event_receive(ev, 1, 1, &got, 0), -ENOENT);
	CHECK_EQ(careful_event_receive(ev, 3, 1, &got, 0), -ENOENT);
	CHECK_EQ(careful_event_receive(ev, 0, 3, &got, 0), -EILSEQ); /* 1 is held */
	expect(1, 0, 1, "a", 0, CAREFUL_EVENT_MORE);
	CHECK_EQ(careful_event_receive(ev, 0, 3, &got, 0), -EILSEQ); /* event 1 has not ended */
	expect(1, 0, 1, "b", 0, CAREFUL_EVENT_EVENT_DONE);
	CHECK_EQ(careful_event_receive(ev, 0, 1, &got, 0), -EILSEQ); /* now it has */
	CHECK_EQ(careful_event_receive(ev, 0, 2, &got, 0), -ENOMSG); /* 0 is past it */
	expect(1, 0, 3, "c", 0, CAREFUL_EVENT_EVENT_DONE);
	CHECK_EQ(careful_event_receive(ev, 0, 2, &got, 0), -EILSEQ);
	/* A receive ends when its sender has left. */
	CHECK_EQ(careful_events_close(w.node[0].ev, 0, 0), 0);
	world_run(&w, 1);
	CHECK_EQ(careful_event_receive(ev, 0, 4, &got, 0), -ENOMSG);
	CHECK_EQ(careful_event_receive(ev, ALL, 4, &got, 0), -EAGAIN); /* node 2 may */
	CHECK_EQ(careful_event_send(ev, 0, 4, "x", 1, LAST, 0), -EPIPE);
	CHECK_EQ(careful_event_send(ev, ALL, 4, "x", 1, LAST, 0), -EPIPE);
	CHECK_EQ(careful_events_close(w.node[2].ev, 0, 0), 0);
	world_run(&w, 1);
	CHECK_EQ(careful_event_receive(ev, ALL, 4, &got, 0), -ENOMSG);
	CHECK_EQ(careful_events_close(ev, 0, 0), 0);
	world_end(&w);
}

static void fails_for(uint32_t rank, int error, uint32_t culprit)
{
	uint32_t who = 99;

	CHECK_EQ(careful_event_receive(w.node[rank].ev, ALL, 100, &got, 0), error);
	CHECK_EQ(careful_event_send(w.node[rank].ev, ALL, 100, "x", 1, LAST, 0), error);
	CHECK_EQ(careful_events_failed(w.node[rank].ev, &who), error);
	CHECK_EQ(who, culprit);
}

/* Two nodes send to one in an event that is not all-to-all, or disagree on its kind. */
static void test_receive__a_node_that_breaks_the_rules(void)
{
	static const uint32_t flags[][2] = {
		{ LAST, LAST },
		{ LAST | CROWD, LAST },
		{ LAST, LAST | CROWD },
	};

	for (uint32_t i = 0; i < 3; i++) {
		begin(3, 4, 16);
		CHECK_EQ(world_send(&w, 1, 0, 1, "x", 1, flags[i][0]), 0);
		world_run(&w, 1);
		CHECK_EQ(world_receive(&w, 0, 1, 1, &got), 0);
		CHECK_EQ(world_send(&w, 2, 0, 1, "x", 1, flags[i][1]), 0);
		world_run(&w, 1);
		careful_event_receive(w.node[0].ev, 2, 1, &got, 0);
		world_run(&w, 1);
		for (uint32_t k = 0; k < 3; k++)
			fails_for(k, -EPROTO, 2);
		world_end(&w);
	}
}

/* Nodes that disagree on the members get an error at once. */
static void test_open__another_group(void)
{
	world_set(&w, 2, 4, 16);
	world_begin(&w);
	world_join(&w, 0, 2);
	w.node[1].peers[1] = w.node[1].peers[0];
	const struct careful_events_options options = {
		.group = 5,
		.nodes = 3,
		.rank = 2,
		.peers = (uint32_t[]){ 0, 0, 0 },
	};
	/* one peer twice */
	CHECK_EQ(careful_events_open(w.node[1].c, &options, &w.node[1].ev), -EINVAL);
	const struct careful_events_options same_rank = {
		.group = 5,
		.nodes = 2,
		.rank = 0,
		.peers = (uint32_t[]){ 0, w.node[1].peers[0] },
		.requests = world_requests,
	};
	CHECK_EQ(careful_events_open(w.node[1].c, &same_rank, &w.node[1].ev), 0);
	world_run(&w, 20);
	CHECK_EQ(careful_events_failed(w.node[0].ev, NULL), -EPROTO);
	CHECK_EQ(careful_events_failed(w.node[1].ev, NULL), -EPROTO);
	world_end(&w);
}

/* Sends an event message that a member would not send. */
static void say(uint32_t from, uint32_t to, uint32_t group, struct careful_am am, uint32_t bytes)
{
	static const uint8_t payload[64];
	struct careful *c = w.node[from].c;

	am.kind = CAREFUL_AM_EVENT;
	am.region = htobe32(group);
	if (world_requests) {
		uint8_t body[sizeof(am) + sizeof(payload)] = { 0 };

		if (am.handler != htobe16(CAREFUL_EVENT_JOIN))
			am.args[3] = htobe32(w.node[to].ev->membership);
		memcpy(body, &am, sizeof(am));
		CHECK_EQ(careful_request(c, w.node[from].peers[to],
					 (uint16_t)(CAREFUL_HANDLERS_APP - 1 - group), NULL, body,
					 (uint32_t)sizeof(am) + bytes, NULL, NULL),
			 0);
		world_run(&w, 1);
		return;
	}
	CHECK(message_small_now(&c->messages, &c->link.peers[w.node[from].peers[to]], &am, payload,
				bytes));
	world_run(&w, 1);
}

static void expect_no_buffer_kept(uint32_t rank)
{
	for (uint32_t i = 0; i < w.nodes; i++) {
		struct careful_peer_info peer;

		if (i == rank)
			continue;
		CHECK_EQ(careful_peer_info(w.node[rank].c, w.node[rank].peers[i], &peer), 0);
		CHECK_EQ(peer.buffers_kept, 0);
	}
}

/* The message is dropped and counted, and the group continues. */
static void test_arrived__message_of_no_member(void)
{
	const struct careful_am fragment = { .flags = LAST };

	world_set(&w, 3, 4, 16);
	world_begin(&w);
	say(1, 0, 5, fragment, 10); /* no group is open */
	world_join(&w, 0, 2);
	say(1, 0, 5, fragment, 10); /* it has not joined */
	say(1, 0, 5, (struct careful_am){ .handler = htobe16(CAREFUL_EVENT_LEAVE) }, 0);
	say(1, 0, 5, (struct careful_am){ .handler = htobe16(CAREFUL_EVENT_FAIL) }, 0);
	world_join(&w, 1, 2);
	world_run(&w, 20);
	say(1, 0, 6, fragment, 10); /* another group */
	say(2, 0, 5, fragment, 10); /* not a member */
	say(2, 0, 5, (struct careful_am){ .handler = htobe16(CAREFUL_EVENT_FAIL) }, 0);
	say(1, 0, 5, (struct careful_am){ .handler = htobe16(77) }, 10);
	CHECK_EQ(w.node[0].c->link.counters[CAREFUL_C_DROP_MESSAGE], 5);
	expect_no_buffer_kept(0);
	CHECK_EQ(world_send(&w, 1, 0, 1, "x", 1, LAST), 0);
	expect(0, ALL, 1, "x", 1, CAREFUL_EVENT_EVENT_DONE);
	world_end(&w);
}

/* The group fails, names the node, and keeps none of its buffers. */
static void test_arrived__message_that_breaks_the_rules(void)
{
	const __be64 seven = htobe64(7);
	const struct careful_am wrong[][2] = {
		{ { .flags = LAST | 0x80 } }, /* unknown flags */
		{ { .flags = LAST, .bytes = htobe32(5) } }, /* starts in the middle */
		{ { .flags = 0 } }, /* several fragments, but not large */
		{ { .flags = LARGE }, { .flags = LARGE | LAST, .bytes = htobe32(9) } }, /* a gap */
		{ { .flags = LARGE }, { .flags = LARGE | LAST, .region_off = seven } }, /* no end */
		{ { .flags = LARGE }, { .flags = LARGE | CROWD, .bytes = htobe32(10) } },
		{ { .flags = LAST }, { .flags = LAST } }, /* twice */
		{ { .flags = LAST, .region_off = seven }, { .flags = LAST } }, /* backwards */
		{ { .flags = LARGE }, { .handler = htobe16(CAREFUL_EVENT_LEAVE) } },
		{ { .handler = htobe16(CAREFUL_EVENT_FAIL), .args = { htobe32(99), 0 } } },
		{ { .handler = htobe16(CAREFUL_EVENT_FAIL),
		    .args = { htobe32(UINT32_MAX), htobe32(EAGAIN) } } },
		{ { .handler = htobe16(CAREFUL_EVENT_JOIN), .args = { htobe32(1), htobe32(3) } } },
	};

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		begin(2, 8, 16);
		world_run(&w, 20);
		say(1, 0, 5, wrong[i][0], 10);
		if (wrong[i][1].flags || wrong[i][1].handler)
			say(1, 0, 5, wrong[i][1], 10);
		fails_for(0, -EPROTO, 1);
		expect_no_buffer_kept(0);
		world_end(&w);
	}
}

enum { KILLED, SILENT, SAYS_SO, LEAVES_OPEN, LOST_FRAME, HOWS };

/* A node fails in the middle of an event, in several ways. Every other node gets an error in
 * bounded time, also nodes that wait for a third. */
static void fail(uint32_t how, double within_ms)
{
	uint64_t began_ns;

	world_set(&w, 4, 4, 16);
	if (how == LOST_FRAME)
		world_lose(&w, 0, 1, 2000);
	world_begin(&w);
	world_join_all(&w);
	CHECK_EQ(world_send(&w, 0, ALL, 1, "a", 1, LARGE), 0);
	for (uint32_t i = 1; i < 4; i++)
		expect(i, 0, 1, "a", 0, CAREFUL_EVENT_MORE);
	world_run(&w, 1); /* all credits are back */
	if (how == LOST_FRAME)
		world_run(&w, (double)(2000 * world_ms - world_now_ns(&w)) / 1e6 + 0.1);
	began_ns = world_now_ns(&w);
	switch (how) {
	case KILLED:
		world_kill(&w, 0);
		break;
	case SILENT:
		w.node[0].stopped = true;
		break;
	case SAYS_SO:
		CHECK_EQ(careful_events_close(w.node[0].ev, -EIO, 0), 0);
		break;
	case LEAVES_OPEN:
		CHECK_EQ(careful_events_close(w.node[0].ev, 0, 0), 0);
		break;
	default:
		CHECK_EQ(careful_event_send(w.node[0].ev, 1, 1, "b", 1, LARGE, 0), 0);
	}
	for (uint32_t i = 1; i < 4; i++) {
		int rc = -EAGAIN;

		while (rc == -EAGAIN && world_now_ns(&w) - began_ns < within_ms * 1e6) {
			world_step(&w);
			rc = careful_event_receive(w.node[i].ev, i == 2 ? 3 : 0, 1, &got, 0);
		}
		CHECK(rc == -EIO || rc == -ECANCELED || rc == -ECONNRESET || rc == -ECONNREFUSED ||
		      rc == -ETIMEDOUT);
		CHECK_EQ(rc == -EIO, how == SAYS_SO);
		CHECK_EQ(rc == -ECANCELED, how == LEAVES_OPEN);
	}
	world_end(&w);
}

static void test_fail__reaches_every_node(void)
{
	fail(KILLED, 2500);
	fail(SILENT, 2500);
	fail(SAYS_SO, 1);
	fail(LEAVES_OPEN, 1);
	fail(LOST_FRAME, 500);
}

/* A node passes a failure on to nodes that did not notice it. */
static void test_fail__is_passed_on(void)
{
	world_set(&w, 3, 4, 16);
	w.faults_count = 2;
	for (uint32_t i = 0; i < 2; i++)
		w.faults[i] = (struct sim_fault){
			.kind = SIM_LOSS,
			.from = (uint8_t)i,
			.to = (uint8_t)!i,
			.what = SIM_ALL,
			.one_in = 1,
			.id = i,
			.at_ns = 1500 * world_ms,
			.until_ns = 90000 * world_ms,
		};
	world_begin(&w);
	world_join_all(&w);
	world_run(&w, 5000);
	/* Node 2 lost no peer. */
	CHECK_EQ(careful_event_receive(w.node[2].ev, ALL, 1, &got, 0), -ETIMEDOUT);
	CHECK_EQ(careful_event_receive(w.node[0].ev, ALL, 1, &got, 0), -ETIMEDOUT);
	CHECK_EQ(careful_event_receive(w.node[1].ev, ALL, 1, &got, 0), -ETIMEDOUT);
	world_end(&w);
}

/* Arriving events are kept in memory. A node that sends too much before it consumes gets an error. */
static void test_requests__flood(void)
{
	struct program programs[WORLD_NODES_MAX] = { 0 };

	bytes = 720 - (uint32_t)sizeof(struct careful_am);
	for (uint32_t nodes = 2; nodes <= 8; nodes *= 2) {
		memset(programs, 0, sizeof(programs));
		begin(nodes, 4, 64);
		events = 10;
		fragments = 8;
		CHECK(world_play(&w, flood, programs, 1000));
		for (uint32_t k = 0; k < nodes; k++) {
			CHECK_EQ(programs[k].rc, 0);
			CHECK_EQ(programs[k].got, (nodes - 1) * events * fragments);
			CHECK_EQ(careful_events_broadcast(w.node[k].ev), -EOPNOTSUPP);
		}
		end_well();
	}
	memset(programs, 0, sizeof(programs));
	begin(3, 8, 64);
	events = 30;
	fragments = 100;
	CHECK(world_play(&w, flood_and_yield, programs, 5000));
	for (uint32_t k = 0; k < 3; k++) {
		CHECK_EQ(programs[k].rc, -ENOBUFS);
		CHECK(w.node[k].ev->kept >= EVENT_ROOM);
		CHECK(w.node[k].ev->kept <= EVENT_ROOM + 2 * EVENT_WINDOW);
		CHECK_EQ(careful_events_failed(w.node[k].ev, NULL), 0);
	}
	for (uint32_t k = 0; k < 3; k++) /* and continues if the others consumed */
		for (uint32_t i = 0; i < 100; i++)
			CHECK_EQ(world_receive(&w, k, (k + 1) % 3, 0, &got), 0);
	CHECK_EQ(world_send(&w, 0, ALL, programs[0].event, "x", 1,
			    CROWD | LARGE | (programs[0].fragment == 99 ? LAST : 0)),
		 0);
	world_end(&w);
}

static void on_anything(const struct careful_message *message, void *user)
{
	(void)message;
	(void)user;
}

/* The group owns its handler until it is closed. */
static void test_requests__handler(void)
{
	const uint16_t number = CAREFUL_HANDLERS_APP - 1 - 5;

	world_set(&w, 2, 4, 16);
	world_begin(&w);
	CHECK_EQ(careful_handle(w.node[0].c, number, on_anything, NULL), 0);
	CHECK_EQ(careful_events_open(
			 w.node[0].c,
			 &(struct careful_events_options){
				 .group = 5, .nodes = 2, .peers = w.node[0].peers, .requests = 1 },
			 &w.node[0].ev),
		 -EBUSY);
	CHECK_EQ(careful_handle(w.node[0].c, number, NULL, NULL), 0);
	world_join_all(&w);
	CHECK_EQ(world_send(&w, 0, 1, 1, "x", 1, LAST), 0);
	expect(1, ALL, 1, "x", 0, CAREFUL_EVENT_EVENT_DONE);
	end_well();
}

/* Runs all tests that do not depend on kept frames with requests instead. */
static void by_requests(void)
{
	world_requests = true;
	RUN(test_receive__more_and_done);
	RUN(test_crowd__each_receives_from_all_others);
	RUN(test_crowd__to_each_its_own);
	RUN(test_open__late_and_again);
	RUN(test_close__before_anybody_heard_of_it);
	RUN(test_join__while_a_node_leaves);
	RUN(test_send__misuse);
	RUN(test_receive__misuse);
	RUN(test_receive__a_node_that_breaks_the_rules);
	RUN(test_open__another_group);
	RUN(test_arrived__message_that_breaks_the_rules);
	RUN(test_fail__reaches_every_node);
	RUN(test_fail__is_passed_on);
	RUN(test_requests__flood);
	RUN(test_requests__handler);
}

int main(void)
{
	RUN(test_receive__more_and_done);
	RUN(test_crowd__each_receives_from_all_others);
	RUN(test_crowd__to_each_its_own);
	RUN(test_open__late_and_again);
	RUN(test_close__before_anybody_heard_of_it);
	RUN(test_join__while_a_node_leaves);
	RUN(test_flood__more_than_a_window_before_consuming);
	RUN(test_flood__the_bound_of_copying_out_has_a_name);
	RUN(test_send__waits_for_a_slow_node);
	RUN(test_receive__the_current_fragment_stays_in_place);
	RUN(test_send__misuse);
	RUN(test_receive__misuse);
	RUN(test_receive__a_node_that_breaks_the_rules);
	RUN(test_open__another_group);
	RUN(test_arrived__message_of_no_member);
	RUN(test_arrived__message_that_breaks_the_rules);
	RUN(test_fail__reaches_every_node);
	RUN(test_fail__is_passed_on);
	by_requests();
	return 0;
}
