// SPDX-License-Identifier: BSD-2-Clause
/*
 * Large events by reservation (P2 section 7): an announced event gets grants beyond a small window,
 * is faster, and returns them, even if it is given up halfway. Fragments of an announced event have
 * the sizes of its plan (P1).
 */
#include "event_world.h"

enum {
	LAST = CAREFUL_EVENT_F_LAST,
	LARGE = CAREFUL_EVENT_F_LARGE,
	FRAGMENTS = 100,
	BYTES = 700,
	RESERVE = 28,
};

static struct world w;
static struct careful_event_fragment got;
static bool announced;
static uint32_t stops_at;

static void begin(uint32_t window)
{
	world_set(&w, 2, window, 64);
	w.options.peers = 1;
	w.options.rx_buffers = window + RESERVE;
	w.options.reserve = RESERVE;
	w.config.wire_delay_ns = 20000;
	world_begin(&w);
	world_join_all(&w);
	world_run(&w, 20);
}

static bool program(struct world *world, uint32_t rank, struct program *p)
{
	struct careful_events *ev = world->node[rank].ev;
	static uint8_t data[BYTES];

	if (!rank && !p->fragment && announced)
		CHECK_EQ(careful_event_ahead(ev, 1, (uint64_t)FRAGMENTS * BYTES), 0);
	for (; !rank && p->fragment < stops_at; p->fragment++) {
		p->rc = careful_event_send(ev, 1, 7, data, BYTES,
					   LARGE | (p->fragment + 1 == FRAGMENTS ? LAST : 0), 0);
		if (p->rc)
			return p->rc != -EAGAIN;
	}
	for (; rank && p->got < stops_at; p->got++) {
		p->rc = careful_event_receive(ev, 0, 7, &got, 0);
		if (p->rc)
			return p->rc != -EAGAIN;
		CHECK_EQ(got.offset, p->got * BYTES);
	}
	return true;
}

/* Returns the duration of the message. */
static uint64_t play(bool announces, uint32_t fragments)
{
	struct program programs[WORLD_NODES_MAX] = { 0 };
	uint64_t began_ns = world_now_ns(&w);

	announced = announces;
	stops_at = fragments;
	CHECK(world_play(&w, program, programs, 10000));
	CHECK_EQ(programs[0].rc, 0);
	CHECK_EQ(programs[1].rc, 0);
	return world_now_ns(&w) - began_ns;
}

/* Checks that no request or grant is left. */
static void expect_paid_back(void)
{
	world_run(&w, 300);
	for (uint32_t i = 0; i < 2; i++)
		CHECK_EQ(w.node[i].c->link.reserve.free, RESERVE);
	CHECK_EQ(w.node[0].c->messages.peers[w.node[0].peers[1]].unsent, 0);
	CHECK_EQ(world_count(&w, CAREFUL_C_EPOCHS_BROKEN), 0);
}

static void test_ahead__buffers_are_granted_and_paid_back(void)
{
	uint64_t without_ns, with_ns;

	begin(4);
	without_ns = play(false, FRAGMENTS);
	CHECK_EQ(world_count(&w, CAREFUL_C_GRANTED), 0);
	expect_paid_back();
	world_end(&w);
	begin(4);
	with_ns = play(true, FRAGMENTS);
	CHECK(world_count(&w, CAREFUL_C_GRANTED) > 0);
	expect_paid_back();
	world_end(&w);
	printf("  %d fragments, W = 4: %.3f ms, with up to %d buffers granted %.3f ms\n", FRAGMENTS,
	       (double)without_ns / 1e6, RESERVE, (double)with_ns / 1e6);
	CHECK(with_ns < without_ns / 2);
}

static void test_ahead__given_up_halfway(void)
{
	begin(4);
	play(true, FRAGMENTS / 2);
	CHECK(world_count(&w, CAREFUL_C_GRANTED) > 0);
	careful_events_close(w.node[0].ev, -EINTR, 0);
	world_run(&w, 20);
	CHECK(careful_events_failed(w.node[1].ev, NULL) < 0);
	careful_events_close(w.node[1].ev, 0, 0); /* releases the fragment */
	expect_paid_back();
	world_end(&w);
}

static void test_ahead__misuse(void)
{
	begin(4);
	CHECK_EQ(careful_event_ahead(w.node[0].ev, 0, 1), -ENOENT);
	CHECK_EQ(careful_event_ahead(w.node[0].ev, 2, 1), -ENOENT);
	/* A second announcement replaces the first; an announcement that is too large ends with the
	 * last fragment. */
	CHECK_EQ(careful_event_ahead(w.node[0].ev, CAREFUL_EVENT_ALL, 1 << 20), 0);
	CHECK_EQ(careful_event_ahead(w.node[0].ev, 1, 1 << 20), 0);
	CHECK_EQ(world_send(&w, 0, 1, 1, "x", 1, LAST), 0);
	CHECK_EQ(world_receive(&w, 1, 0, 1, &got), 0);
	CHECK_EQ(careful_event_receive(w.node[1].ev, 0, 2, &got, 0), -EAGAIN);
	expect_paid_back();
	world_end(&w);
}

/* Sends a message as large as the plan's fragments together. Returns their number. */
static uint32_t send_planned(struct careful_events *ev, uint32_t dst, uint64_t event,
			     const uint32_t *sizes, uint32_t bytes)
{
	static const uint8_t data[4 * BYTES];
	uint32_t at = 0, count = 0;

	while (at < bytes) {
		int next = careful_event_next(ev, dst);
		uint32_t n = next < (int)(bytes - at) ? (uint32_t)next : bytes - at;

		CHECK_EQ(n, sizes[count]);
		CHECK_EQ(careful_event_next(ev, dst), next); /* until it is sent */
		CHECK_EQ(careful_event_send(ev, dst, event, data, n,
					    LARGE | (at + n == bytes ? LAST : 0), 0),
			 0);
		at += n;
		count++;
	}
	return count;
}

static void test_next__follows_the_plan(void)
{
	static const uint32_t ramp[] = { 100, 200, 300 };
	struct careful_events *ev;
	struct careful_tune_entry *entry;
	struct careful *c;
	int most;

	begin(8);
	ev = w.node[0].ev;
	c = w.node[0].c;
	most = careful_event_bytes(ev);
	entry = c->port->ops->tune(c->port, engine_peer(c, w.node[0].peers[1])->slot);
	entry->version[entry->active].classes[plan_class(600)].plan = (struct careful_plan){
		.first_bytes = 100,
		.ratio_q16 = 65536,
		.step_bytes = 100,
		.peak_bytes = 300,
		.down_ratio_q16 = 65536,
	};
	CHECK_EQ(careful_event_next(ev, 1), most); /* nothing is announced */
	for (uint32_t event = 1; event < 3; event++) {
		uint32_t dst = event == 1 ? 1 : CAREFUL_EVENT_ALL;

		CHECK_EQ(careful_event_ahead(ev, dst, 600), 0);
		CHECK_EQ(send_planned(ev, dst, event, ramp, 600), 3);
		CHECK_EQ(careful_event_next(ev, dst), most); /* the message has ended */
		for (uint32_t i = 0; i < 3; i++) {
			CHECK_EQ(world_receive(&w, 1, 0, event, &got), 0);
			CHECK_EQ(got.bytes, ramp[i]);
		}
	}
	world_end(&w);
}

int main(void)
{
	RUN(test_ahead__buffers_are_granted_and_paid_back);
	RUN(test_ahead__given_up_halfway);
	RUN(test_ahead__misuse);
	RUN(test_next__follows_the_plan);
	return 0;
}
