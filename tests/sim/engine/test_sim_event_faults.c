// SPDX-License-Identifier: BSD-2-Clause
/*
 * Events over networks with faults, with both protocols. The traditional protocol hides losses from
 * programs. careful counts a late or repeated frame as no loss. If a node dies during an event,
 * every other node soon gets an error.
 */
#include "event_world.h"

enum {
	LAST = CAREFUL_EVENT_F_LAST,
	CROWD = CAREFUL_EVENT_F_CROWD,
	LARGE = CAREFUL_EVENT_F_LARGE,
	ALL = CAREFUL_EVENT_ALL,
	CAREFUL = CAREFUL_PROTOCOL_CAREFUL,
	TRADITIONAL = CAREFUL_PROTOCOL_TRADITIONAL,
	FRAGMENTS = 3,
	FRAGMENT_WORDS = 150,
	ALWAYS_MS = 1000 * 1000,
};

static struct world w;
static struct careful_event_fragment got;
static uint32_t events;

static void set(uint32_t protocol, uint32_t nodes, uint32_t window, uint32_t copies)
{
	world_set(&w, nodes, window, copies);
	w.options.protocol = protocol;
}

/* Adds a fault to one in this many frames between all nodes, from the start on. */
static struct sim_fault *fault(uint32_t kind, uint32_t one_in, uint64_t amount_ns)
{
	struct sim_fault *f = &w.faults[w.faults_count++];

	*f = (struct sim_fault){
		.kind = (uint8_t)kind,
		.from = SIM_ANY,
		.to = SIM_ANY,
		.what = SIM_FRAMES,
		.one_in = one_in,
		.until_ns = ALWAYS_MS * world_ms,
		.amount = amount_ns,
	};
	return f;
}

static uint32_t word(uint32_t rank, uint64_t event, uint32_t at)
{
	return rank << 28 | (uint32_t)event << 12 | at;
}

/* Each event goes from all to all, from one to all, or from each to the next, in a few
 * fragments. */
static bool program(struct world *world, uint32_t rank, struct program *p)
{
	struct careful_events *ev = world->node[rank].ev;

	while (p->event < events) {
		const uint32_t kind = (uint32_t)(p->event % 3);
		const uint32_t flags = kind ? 0 : CROWD;
		const uint32_t dst = kind == 2 ? (rank + 1) % world->nodes : ALL;
		const bool sends = kind != 1 || p->event % world->nodes == rank;
		const bool hears = kind != 1 || !sends;
		uint32_t data[FRAGMENT_WORDS], first;

		while (sends && p->fragment < FRAGMENTS) {
			for (uint32_t i = 0; i < FRAGMENT_WORDS; i++)
				data[i] = word(rank, p->event, p->fragment * FRAGMENT_WORDS + i);
			p->rc = careful_event_send(
				ev, dst, p->event, data, sizeof(data),
				flags | LARGE | (p->fragment + 1 == FRAGMENTS ? LAST : 0), 0);
			if (p->rc)
				return p->rc != -EAGAIN;
			p->fragment++;
		}
		for (got.status = hears ? 0 : CAREFUL_EVENT_EVENT_DONE;
		     got.status != CAREFUL_EVENT_EVENT_DONE;) {
			p->rc = careful_event_receive(ev, ALL, p->event, &got, 0);
			if (p->rc)
				return p->rc != -EAGAIN;
			for (uint32_t i = 0; i < FRAGMENT_WORDS; i++) {
				memcpy(&first, (const uint8_t *)got.data + 4 * i, sizeof(first));
				CHECK_EQ(first, word(got.source, p->event, got.offset / 4 + i));
			}
			p->got++;
		}
		p->event++;
		p->fragment = 0;
	}
	return true;
}

/* Runs the program at each node. Returns the duration. */
static uint64_t play(uint32_t count)
{
	struct program programs[WORLD_NODES_MAX] = { 0 };
	uint64_t began_ns;

	events = count;
	world_begin(&w);
	world_join_all(&w);
	began_ns = world_now_ns(&w);
	CHECK(world_play(&w, program, programs, 60 * 1000));
	for (uint32_t i = 0; i < w.nodes; i++) {
		CHECK_EQ(programs[i].rc, 0);
		CHECK_EQ(programs[i].event, count);
		CHECK_EQ(careful_events_failed(w.node[i].ev, NULL), 0);
	}
	CHECK_EQ(world_count(&w, CAREFUL_C_EPOCHS_BROKEN), 0);
	CHECK_EQ(world_count(&w, CAREFUL_C_DROP_MESSAGE), 0);
	return world_now_ns(&w) - began_ns;
}

/* One frame in ten is lost, late, twice, cut off, damaged, or finds no buffer. */
static void test_traditional__repairs_beneath_events(void)
{
	static const uint32_t kinds[] = { SIM_LOSS,	SIM_REORDER, SIM_DUPLICATE,
					  SIM_TRUNCATE, SIM_CORRUPT, SIM_FILL_EMPTY };

	for (uint32_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		for (uint32_t nodes = 2; nodes <= 4; nodes++) {
			const struct sim_fault *f;

			set(TRADITIONAL, nodes, 16, 64);
			f = fault(kinds[i], 10, kinds[i] == SIM_CORRUPT ? 3 : 50000);
			play(30);
			CHECK(f->hits > 0);
			if (kinds[i] == SIM_LOSS)
				CHECK(world_count(&w, CAREFUL_C_SENT_AGAIN) > 0);
			world_end(&w);
		}
}

/* With careful too, a late or repeated frame is no loss. */
static void test_careful__late_and_repeated_frames_are_no_loss(void)
{
	for (uint32_t protocol = CAREFUL; protocol <= TRADITIONAL; protocol++)
		for (uint32_t nodes = 2; nodes <= 4; nodes++) {
			const struct sim_fault *twice, *late;

			set(protocol, nodes, 8, 64);
			twice = fault(SIM_DUPLICATE, 5, 20000);
			late = fault(SIM_DELAY, 20, 100000);
			play(30);
			CHECK(twice->hits > 0 && late->hits > 0);
			world_end(&w);
		}
}

/* Every seventh frame of an exchange is lost, each in its own run. With careful a program ends well
 * or the group fails at its node; with the traditional protocol all programs end well. */
static void lose_one(uint32_t protocol)
{
	uint32_t lost = 0, frames = UINT32_MAX;

	for (uint32_t at = 0; at < frames; at += 7) {
		struct program programs[WORLD_NODES_MAX] = { 0 };
		struct sim_fault *f;
		const uint32_t only = at;

		set(protocol, 3, 8, 64);
		f = fault(SIM_LOSS, 1, 0);
		f->only = &only;
		f->only_count = 1;
		events = 6;
		world_begin(&w);
		world_join_all(&w);
		CHECK(world_play(&w, program, programs, 60 * 1000));
		frames = f->seen;
		lost += f->hits;
		for (uint32_t i = 0; i < 3; i++) {
			if (protocol == TRADITIONAL)
				CHECK_EQ(programs[i].rc, 0);
			else
				/* With broadcasts and single frames, a later frame can arrive
				 * before an earlier loss is noticed. */
				CHECK(!programs[i].rc || programs[i].rc == -ECONNRESET ||
				      programs[i].rc == -EPROTO);
			CHECK(programs[i].rc || programs[i].event == events);
		}
		world_end(&w);
	}
	CHECK(lost > 5);
}

static void test_loss__of_one_frame(void)
{
	lose_one(TRADITIONAL);
	lose_one(CAREFUL);
}

/* P2's flooding: more than a window and a peer's share before any node consumes. */
static bool flood(struct world *world, uint32_t rank, struct program *p)
{
	struct careful_events *ev = world->node[rank].ev;

	while (p->event < events) {
		uint32_t data = word(rank, p->event, 0);

		p->rc = careful_event_send(ev, ALL, p->event, &data, sizeof(data), LAST | CROWD, 0);
		if (p->rc)
			return p->rc != -EAGAIN;
		p->event++;
	}
	while (p->event < 2ull * events) {
		uint32_t data;

		p->rc = careful_event_receive(ev, ALL, p->event - events, &got, 0);
		if (p->rc)
			return p->rc != -EAGAIN;
		memcpy(&data, got.data, sizeof(data));
		CHECK_EQ(data, word(got.source, p->event - events, 0));
		p->event += got.status == CAREFUL_EVENT_EVENT_DONE;
	}
	return true;
}

static void test_flood__over_a_network_that_loses(void)
{
	for (uint32_t nodes = 2; nodes <= 4; nodes++) {
		struct program programs[WORLD_NODES_MAX] = { 0 };
		const struct sim_fault *f;

		set(TRADITIONAL, nodes, 8, 1024);
		f = fault(SIM_LOSS, 10, 0);
		events = 40;
		world_begin(&w);
		world_join_all(&w);
		CHECK(world_play(&w, flood, programs, 60 * 1000));
		for (uint32_t i = 0; i < nodes; i++)
			CHECK_EQ(programs[i].rc, 0);
		CHECK(f->hits > 0);
		CHECK(world_count(&w, CAREFUL_C_COPIED_OUT) > 0);
		world_end(&w);
	}
}

/* Node 1 dies after half a message. */
static void test_death__reaches_every_node(void)
{
	for (uint32_t protocol = CAREFUL; protocol <= TRADITIONAL; protocol++) {
		uint64_t died_ns;

		set(protocol, 4, 8, 64);
		world_begin(&w);
		world_join_all(&w);
		CHECK_EQ(world_send(&w, 1, ALL, 1, "half", 4, LARGE), 0);
		world_run(&w, 1);
		died_ns = world_now_ns(&w);
		world_kill(&w, 1);
		for (uint32_t i = 0; i < 4; i++) {
			uint32_t who = ALL;

			if (i == 1)
				continue;
			while (!careful_events_failed(w.node[i].ev, &who) &&
			       world_now_ns(&w) - died_ns < 20000 * world_ms)
				world_step(&w);
			CHECK(careful_events_failed(w.node[i].ev, &who) < 0);
			CHECK_EQ(who, 1);
			CHECK(world_receive(&w, i, 1, 1, &got) < 0);
		}
		/* stall_ms, and as long again for an unanswered question. */
		CHECK(world_now_ns(&w) - died_ns < 2 * w.options.stall_ms * world_ms);
		world_end(&w);
	}
}

int main(void)
{
	RUN(test_traditional__repairs_beneath_events);
	RUN(test_careful__late_and_repeated_frames_are_no_loss);
	RUN(test_loss__of_one_frame);
	RUN(test_flood__over_a_network_that_loses);
	RUN(test_death__reaches_every_node);
	return 0;
}
