// SPDX-License-Identifier: BSD-2-Clause
/* Tests the live latencies of messages, by the plan version that cut them, with two engines in
 * virtual time. */
#include <errno.h>
#include <string.h>

#include "check.h"
#include "device/sim.h"
#include "files.h"
#include "message/plan.h"
#include "engine/engine.h"

enum {
	POLL_NS = 200,
	MS = 1000000,
	BYTES = 4000,
	SMALL = 100, /* fragments of one version; the other's fill a frame */
	LARGE = 700,
	WIRE_G_NS = 5000,
	CLASS = 6, /* of BYTES */
	FILE_FD = 3,
	WRITE_NS = 20000,
	PATIENCE = 200000, /* rounds */
};

static struct world {
	struct sim_world *sim;
	struct files files[2];
	struct careful *c[2];
	int peer[2]; /* the other end */
	uint32_t key[2];
	uint8_t memory[2][2][BYTES]; /* each end's regions */
	uint32_t handled;
} w;

/* The result and time of an operation's end. */
struct end {
	bool done;
	int status;
	uint64_t at_ns;
};

static void on_done(const struct careful_result *result, void *user)
{
	struct end *end = user;

	end->done = true;
	end->status = result->status;
	end->at_ns = sim_now_ns(w.sim);
}

static void on_message(const struct careful_message *message, void *user)
{
	(void)message;
	(void)user;
	w.handled++;
}

static struct link_peer *peer_of(uint32_t side)
{
	return &w.c[side]->link.peers[w.peer[side]];
}

static struct careful_live_entry *live_of(uint32_t side)
{
	struct port *port = w.c[side]->port;

	return port->ops->live(port, (uint32_t)w.peer[side]);
}

static struct careful_live_cell *cell_of(uint32_t side, uint32_t version)
{
	return &live_of(side)->cells[CLASS][version];
}

static void pass(uint64_t ns)
{
	uint64_t end_ns = sim_now_ns(w.sim) + ns;

	while (sim_now_ns(w.sim) < end_ns) {
		uint64_t next_ns = sim_next_ns(w.sim);

		sim_advance(w.sim, next_ns < end_ns ? next_ns : end_ns);
		sim_run(w.sim);
	}
	CHECK(!sim_failure(w.sim));
}

static void step(void)
{
	pass(POLL_NS);
	for (int side = 0; side < 2; side++) {
		w.files[side].time_ns = sim_now_ns(w.sim);
		careful_poll(w.c[side]);
	}
}

static void steps(uint32_t ms)
{
	for (uint32_t i = 0; i < ms * (MS / POLL_NS); i++)
		step();
}

static void open_side(uint32_t side, uint32_t buffers)
{
	const struct careful_options options = {
		.ifname = "sim",
		.peers = 2,
		.rx_buffers = buffers,
		.tx_buffers = 256,
		.copyout_buffers = 32,
	};
	const struct sim_shape shape = {
		.chunk_bytes = 1024,
		.buffer_bytes = 896,
		.segments_max = 1,
		.frame_bytes = 896,
	};
	struct engine_base base = {
		.storage = &w.files[side].storage,
		.limits = { .operations = 32,
			    .regions = 8,
			    .messages = { .outs = 16, .parked = 32 } },
	};
	const struct careful_region region = {
		.span = { .base = w.memory[side][0], .fd = -1 },
		.bytes = BYTES,
		.access = CAREFUL_REGION_READ | CAREFUL_REGION_WRITE,
		.peer = CAREFUL_ANY_PEER,
	};
	struct careful_error error;

	files_init(&w.files[side], 0);
	CHECK_EQ(sim_open(w.sim, side, 0, &shape, &options, &base.queue, &error), 0);
	CHECK_EQ(engine_open(&options, &base, &w.c[side], &error), 0);
	CHECK_EQ(careful_region_add(w.c[side], &region, &w.key[side]), 0);
	for (uint32_t i = 0; i < CAREFUL_HANDLERS; i++)
		careful_handle(w.c[side], (uint16_t)i, on_message, NULL);
}

/* Version 0 of all settings cuts small, version 1 large; 0 is active. */
static void set_plans(uint32_t side)
{
	struct careful_tune_entry *entry =
		w.c[side]->port->ops->tune(w.c[side]->port, (uint32_t)w.peer[side]);
	struct careful_tune_entry large;

	plan_default(entry, SMALL);
	plan_default(&large, LARGE);
	entry->version[1] = large.version[0];
}

static void flip(uint32_t side, uint32_t version)
{
	w.c[side]->port->ops->tune(w.c[side]->port, (uint32_t)w.peer[side])->active = version;
}

/* Opens a session between two engines with this many receive buffers and two peers each. */
static void begin(uint32_t buffers)
{
	static const struct sim_config config = {
		.seed = 1,
		.ports = 2,
		.wire_g_ns = WIRE_G_NS,
		.wire_G_ps_per_byte = 800,
		.wire_delay_ns = 1000,
		.ctrl_delay_ns = 2000,
	};

	memset(&w, 0, sizeof(w));
	w.sim = sim_create();
	CHECK(w.sim);
	sim_begin(w.sim, &config);
	for (uint32_t side = 0; side < 2; side++)
		open_side(side, buffers);
	for (uint32_t side = 0; side < 2; side++) {
		union address to;

		sim_address(w.sim, !side, &to);
		w.peer[side] = careful_peer(w.c[side], &to.sa, sizeof(to));
		CHECK(w.peer[side] >= 0);
	}
	for (uint32_t i = 0; i < PATIENCE && (peer_of(0)->state != CAREFUL_PEER_UP ||
					      peer_of(1)->state != CAREFUL_PEER_UP);
	     i++)
		step();
	for (uint32_t side = 0; side < 2; side++) {
		CHECK_EQ(peer_of(side)->state, CAREFUL_PEER_UP);
		set_plans(side);
	}
	steps(3);
}

static void end(void)
{
	for (int side = 0; side < 2; side++) {
		CHECK_EQ(w.c[side]->operations_free_count, 32);
		CHECK_EQ(w.c[side]->messages.outs_share.free, 16);
		careful_close(w.c[side]);
	}
	CHECK(!sim_failure(w.sim));
	CHECK_EQ(w.handled, 0);
	sim_destroy(w.sim);
}

static void store(uint32_t bytes, struct end *end)
{
	const struct careful_span local = { .base = w.memory[0][1], .fd = -1 };

	memset(end, 0, sizeof(*end));
	CHECK_EQ(careful_store(w.c[0], (uint32_t)w.peer[0], w.key[1], 0, &local, bytes,
			       CAREFUL_HANDLERS, NULL, CAREFUL_NO_DIGEST, on_done, end),
		 0);
}

/* Side 1 gets: side 0 sends the data. */
static void get(uint32_t bytes, struct end *end)
{
	const struct careful_span local = { .base = w.memory[1][1], .fd = -1 };

	memset(end, 0, sizeof(*end));
	CHECK_EQ(careful_get(w.c[1], (uint32_t)w.peer[1], w.key[0], 0, &local, bytes,
			     CAREFUL_NO_DIGEST, on_done, end),
		 0);
}

static void await(struct end *end)
{
	for (int i = 0; i < PATIENCE && !end->done; i++)
		step();
	CHECK(end->done);
	CHECK_EQ(end->status, 0);
}

/* Runs a store. Returns its duration as its caller measures it. */
static uint64_t stored(void)
{
	uint64_t began_ns = sim_now_ns(w.sim);
	struct end end;

	store(BYTES, &end);
	await(&end);
	steps(3);
	return end.at_ns - began_ns;
}

static void test_live__a_store_s_time_is_what_its_caller_measures(void)
{
	uint64_t took[2], squares;

	begin(256);
	for (int i = 0; i < 2; i++) {
		took[i] = stored();
		if (!i)
			CHECK_EQ(cell_of(0, 0)->sum_ns, took[0]);
	}
	squares = took[0] * took[0] + took[1] * took[1];
	CHECK_EQ(cell_of(0, 0)->count, 2);
	CHECK_EQ(cell_of(0, 0)->asked, 0);
	CHECK_EQ(cell_of(0, 0)->sum_ns, took[0] + took[1]);
	CHECK_EQ(cell_of(0, 0)->sum_square_low, squares);
	CHECK_EQ(cell_of(0, 0)->sum_square_high, 0);
	CHECK_EQ(live_of(0)->sequence, 4);
	CHECK_EQ(cell_of(1, 0)->count, 0);
	end();
}

/* Measured from the round that serves the request to the round with the answer. */
static void test_live__a_get_lasts_until_its_answer(void)
{
	uint64_t began_ns = 0, frames, updates;
	struct end got;

	begin(256);
	frames = peer_of(0)->tx_frames;
	updates = w.c[0]->link.counters[CAREFUL_C_TX_UPDATES];
	get(BYTES, &got);
	for (int i = 0; i < PATIENCE && !cell_of(0, 0)->count; i++) {
		step();
		if (!began_ns && peer_of(0)->tx_frames > frames)
			began_ns = sim_now_ns(w.sim);
	}
	CHECK_EQ(cell_of(0, 0)->count, 1);
	CHECK_EQ(cell_of(0, 0)->asked, 1);
	CHECK_EQ(cell_of(0, 0)->sum_ns, sim_now_ns(w.sim) - began_ns);
	/* The answer follows the data by at most a round trip of one frame. */
	CHECK(got.done && !got.status);
	CHECK(sim_now_ns(w.sim) - got.at_ns < 3 * WIRE_G_NS);
	updates = w.c[0]->link.counters[CAREFUL_C_TX_UPDATES] - updates;
	CHECK_EQ(peer_of(0)->tx_frames - frames, BYTES / SMALL + 1 + updates);
	end();
}

/* Messages use versions 0 and 1 in turn. The wire is the bottleneck, so their times differ by the
 * wire's time for the additional frames. */
static void expect_difference(uint32_t side)
{
	const struct careful_live_cell *small = cell_of(side, 0), *large = cell_of(side, 1);
	const int frames = BYTES / SMALL - (BYTES + LARGE - 1) / LARGE;
	const double more_ns = frames * (WIRE_G_NS + 0.8 * (LINK_IPV4_BYTES + LINK_HDR_BYTES));
	double difference_ns;

	CHECK_EQ(small->count, 10);
	CHECK_EQ(large->count, 10);
	difference_ns = ((double)small->sum_ns - (double)large->sum_ns) / 10;
	CHECK(difference_ns > 0.95 * more_ns && difference_ns < 1.05 * more_ns);
	CHECK_EQ(cell_of(side, 2)->count, 0);
}

static void test_live__versions_differ_by_the_wires_time(void)
{
	struct end got;

	begin(256);
	for (uint32_t i = 0; i < 20; i++) {
		flip(0, i & 1);
		stored();
	}
	expect_difference(0);
	memset(live_of(0), 0, sizeof(*live_of(0)));
	for (uint32_t i = 0; i < 20; i++) {
		flip(0, i & 1);
		get(BYTES, &got);
		await(&got);
		steps(3);
	}
	expect_difference(0);
	end();
}

/* A message counts for the version that was active when it began. */
static void test_live__a_message_belongs_to_the_version_that_cut_it(void)
{
	struct end end_of;

	begin(256);
	flip(0, 1);
	store(BYTES, &end_of);
	flip(0, 2);
	await(&end_of);
	CHECK_EQ(cell_of(0, 1)->count, 1);
	CHECK_EQ(cell_of(0, 2)->count, 0);
	end();
}

/* Only one message of a class in 2 ms is measured. */
static void test_live__one_in_two_milliseconds(void)
{
	struct end ends[8];

	begin(256);
	for (uint32_t i = 0; i < 8; i++)
		store(64, &ends[i]);
	for (uint32_t i = 0; i < 8; i++)
		await(&ends[i]);
	CHECK_EQ(live_of(0)->cells[0][0].count, 1);
	steps(3);
	store(65, &ends[0]);
	await(&ends[0]);
	CHECK_EQ(live_of(0)->cells[0][0].count, 1);
	CHECK_EQ(live_of(0)->cells[1][0].count, 1);
	end();
}

static void test_live__a_broken_epoch_counts_nothing(void)
{
	const uint32_t *question;
	struct end one;

	begin(256);
	question = w.c[0]->live[w.peer[0]].questions;
	store(BYTES, &one);
	for (int i = 0; i < 100; i++)
		step();
	link_break(peer_of(0));
	steps(50);
	CHECK(one.done);
	CHECK_EQ(one.status, -ECONNRESET);
	CHECK_EQ(peer_of(0)->state, CAREFUL_PEER_UP);
	get(BYTES, &one);
	for (int i = 0; i < PATIENCE && !*question; i++)
		step();
	CHECK(*question && !one.done);
	link_break(peer_of(0));
	steps(50);
	CHECK(one.done); /* its status is open: all data may have been under way */
	CHECK_EQ(live_of(0)->sequence, 0);
	end();
}

/* A message that waits for the session does not count: the handshake's time is not its own. */
static void test_live__a_wait_for_the_session_does_not_count(void)
{
	struct end end_of;

	begin(256);
	link_break(peer_of(0));
	careful_poll(w.c[0]);
	store(BYTES, &end_of);
	await(&end_of);
	CHECK_EQ(live_of(0)->sequence, 0);
	end();
}

static void test_live__a_failed_store_counts_nothing(void)
{
	struct end end_of;

	begin(256);
	CHECK_EQ(careful_region_remove(w.c[1], w.key[1]), 0);
	store(BYTES, &end_of);
	for (int i = 0; i < PATIENCE && !end_of.done; i++)
		step();
	CHECK_EQ(end_of.status, -ENOENT);
	CHECK_EQ(live_of(0)->sequence, 0);
	end();
}

/* W is 4: after the third fragment only the credit for updates is left, and none for a question. */
static void test_live__no_question_without_a_credit(void)
{
	struct end got;

	begin(8);
	get(3 * SMALL, &got);
	await(&got);
	steps(3);
	CHECK_EQ(live_of(0)->sequence, 0);
	CHECK_EQ(w.c[0]->operations_free_count, 32);
	get(SMALL, &got);
	await(&got);
	steps(3);
	CHECK_EQ(live_of(0)->sequence, 2);
	end();
}

/* A peer that accepts data and never answers costs a few operations, not one per message. */
static void test_live__a_silent_peer_has_a_few_questions(void)
{
	struct end got[ENGINE_QUESTIONS + 3];
	const uint32_t count = sizeof(got) / sizeof(got[0]);

	begin(256);
	for (uint32_t i = 0; i < count; i++) {
		get(SMALL, &got[i]);
		round_send(w.c[1]); /* it sends and never receives */
		for (uint32_t k = 0; k < 3 * MS / POLL_NS; k++) {
			pass(POLL_NS);
			careful_poll(w.c[0]);
		}
		CHECK_EQ(w.c[0]->operations_free_count,
			 32 - (i < ENGINE_QUESTIONS ? i + 1 : ENGINE_QUESTIONS));
	}
	for (uint32_t i = 0; i < count; i++)
		await(&got[i]);
	steps(1);
	CHECK_EQ(live_of(0)->cells[1][0].count, ENGINE_QUESTIONS);
	end();
}

/* The engine only writes to the map, so garbage in it does no harm. */
static void test_live__garbage_in_the_map_does_no_harm(void)
{
	begin(256);
	memset(live_of(0), 0xff, sizeof(*live_of(0)));
	stored();
	CHECK_EQ(live_of(0)->sequence & 1, 0);
	CHECK_EQ(cell_of(0, 0)->count, 0);
	CHECK_EQ(cell_of(0, 1)->count, UINT64_MAX);
	stored();
	CHECK_EQ(cell_of(0, 0)->count, 1);
	end();
}

/* Squares that overflow 64 bits continue in the next word. */
static void test_live__squares_have_128_bits(void)
{
	uint64_t took_ns;

	begin(256);
	cell_of(0, 0)->sum_square_low = UINT64_MAX;
	took_ns = stored();
	CHECK_EQ(cell_of(0, 0)->sum_square_high, 1);
	CHECK_EQ(cell_of(0, 0)->sum_square_low, took_ns * took_ns - 1);
	end();
}

/* Stores into a file of side 1 with WRITE_NS per write. */
static void write_file(struct end *end_of)
{
	static uint8_t file[BYTES];
	const struct careful_span local = { .base = w.memory[0][1], .fd = -1 };
	const struct careful_region region = {
		.span = { .fd = FILE_FD },
		.bytes = BYTES,
		.access = CAREFUL_REGION_WRITE,
		.peer = CAREFUL_ANY_PEER,
	};
	uint32_t key;

	files_set(&w.files[1], FILE_FD, file, BYTES);
	w.files[1].delay_ns = WRITE_NS;
	CHECK_EQ(careful_region_add(w.c[1], &region, &key), 0);
	memset(end_of, 0, sizeof(*end_of));
	CHECK_EQ(careful_store(w.c[0], (uint32_t)w.peer[0], key, 0, &local, BYTES, CAREFUL_HANDLERS,
			       NULL, CAREFUL_NO_DIGEST, on_done, end_of),
		 0);
}

/* Sets the receiver's minpulse; the time of a store counts for the version of these settings. */
static void set_store_pulse(uint32_t bytes)
{
	struct careful_tune_entry *entry =
		w.c[1]->port->ops->tune(w.c[1]->port, (uint32_t)w.peer[1]);

	entry->version[1] = entry->version[0];
	entry->version[1].classes[CLASS].minpulse_bytes[CAREFUL_SINK_STORE] = bytes;
	flip(1, 1);
}

static void test_live__a_store_lasts_until_its_last_write(void)
{
	const struct careful_live_stored *stored_of;
	const struct careful_live_write *writes;
	uint64_t count = 0, bytes = 0, write_ns = 0;
	struct end one;

	begin(256);
	set_store_pulse(BYTES / 2);
	write_file(&one);
	await(&one);
	stored_of = &live_of(1)->stored[CLASS][1];
	CHECK_EQ(stored_of->count, 1);
	CHECK_EQ(stored_of->frames, BYTES / SMALL);
	CHECK_EQ(stored_of->bytes, BYTES);
	CHECK_EQ(stored_of->writes, w.files[1].writes);
	CHECK_EQ(stored_of->writes, 2);
	CHECK_EQ(stored_of->sum_square_low, stored_of->sum_ns * stored_of->sum_ns);
	/* The wire is the bottleneck; the last write begins with the last frame. */
	CHECK(stored_of->sum_came_ns > (uint64_t)(BYTES / SMALL - 1) * WIRE_G_NS);
	CHECK(stored_of->sum_ns >= stored_of->sum_came_ns + WRITE_NS);
	CHECK(stored_of->sum_ns < stored_of->sum_came_ns + WRITE_NS + 3 * POLL_NS);
	writes = live_of(1)->writes;
	for (uint32_t i = 0; i < CAREFUL_CLASSES; i++) {
		count += writes[i].count;
		bytes += writes[i].bytes;
		write_ns += writes[i].sum_ns;
	}
	CHECK_EQ(count, 2);
	CHECK_EQ(bytes, BYTES);
	CHECK(write_ns >= 2 * WRITE_NS && write_ns < 2 * (WRITE_NS + 2 * POLL_NS));
	CHECK_EQ(live_of(1)->stored[CLASS][0].count, 0);
	end();
}

/* If there are many writes, the first three and the last are reported. */
static void test_live__few_of_many_writes_are_reported(void)
{
	uint64_t count = 0;
	struct end one;

	begin(256);
	set_store_pulse(SMALL);
	write_file(&one);
	await(&one);
	CHECK(live_of(1)->stored[CLASS][1].writes > MESSAGE_WRITES);
	CHECK_EQ(live_of(1)->stored[CLASS][1].writes, w.files[1].writes);
	for (uint32_t i = 0; i < CAREFUL_CLASSES; i++)
		count += live_of(1)->writes[i].count;
	CHECK_EQ(count, MESSAGE_WRITES);
	end();
}

static void test_live__memory_has_no_store_times(void)
{
	begin(256);
	stored();
	CHECK_EQ(live_of(1)->sequence, 0);
	end();
}

static void test_live__a_write_that_fails_counts_nothing(void)
{
	struct end one;

	begin(256);
	write_file(&one);
	files_set(&w.files[1], FILE_FD, NULL, 0);
	for (int i = 0; i < PATIENCE && !one.done; i++)
		step();
	CHECK_EQ(one.status, -EBADF);
	CHECK_EQ(live_of(1)->sequence, 0);
	end();
}

int main(void)
{
	RUN(test_live__a_store_s_time_is_what_its_caller_measures);
	RUN(test_live__a_get_lasts_until_its_answer);
	RUN(test_live__versions_differ_by_the_wires_time);
	RUN(test_live__a_message_belongs_to_the_version_that_cut_it);
	RUN(test_live__one_in_two_milliseconds);
	RUN(test_live__a_broken_epoch_counts_nothing);
	RUN(test_live__a_wait_for_the_session_does_not_count);
	RUN(test_live__a_failed_store_counts_nothing);
	RUN(test_live__no_question_without_a_credit);
	RUN(test_live__a_silent_peer_has_a_few_questions);
	RUN(test_live__garbage_in_the_map_does_no_harm);
	RUN(test_live__squares_have_128_bits);
	RUN(test_live__a_store_lasts_until_its_last_write);
	RUN(test_live__few_of_many_writes_are_reported);
	RUN(test_live__memory_has_no_store_times);
	RUN(test_live__a_write_that_fails_counts_nothing);
	return 0;
}
