// SPDX-License-Identifier: BSD-2-Clause
/*
 * Several hosts send to one through a switch port whose queue holds 32 frames and drops the rest,
 * control messages too. The receiver withholds credits, so that the link stays full and is shared.
 * Rate and fairness count from the 50th round trip on; a round trip includes the full queue. Late
 * frames shrink no window, and frames lost at random cost little of the rate. With an argument, the
 * program prints the table for links from 10 Gbit/s to 10 Mbit/s.
 */
#include "event_world.h"

enum {
	MESSAGE = 256 << 10, /* bytes of a message */
	SENDERS_MAX = WORLD_NODES_MAX - 1,
	QUEUE_FRAMES = 32,
	MTU_BYTES = 1514,
	FRAME_NS = 1211, /* of a frame at 10 Gbit/s */
	SLOW = 100, /* how much slower the link is */
	DELAY_NS = 20000,
	IN_FLIGHT = 2, /* messages of each stream */
	BEFORE = 50, /* round trips */
	COUNTED = 200,
	/* Frames lost at random: on a link of 350 Mbit/s, behind a queue that holds whole windows. */
	LOSSY_SLOW = 28,
	LOSSY_QUEUE = 1000,
	LOSSY_DELAY_NS = 100000,
	LOSSY_COUNTED = 1000,
};

static uint32_t slower = SLOW;
static bool reorders; /* one frame in 20 comes two places late */
static bool lossy; /* frames are lost at random, */
static uint32_t lost_one_in; /* this share of all frames and messages; 0: none */
static struct world w;
static uint8_t memory[WORLD_NODES_MAX][MESSAGE];

/* A stream of messages: stores of a sender, or gets of the receiver. */
struct stream {
	uint32_t node, peer, key;
	uint32_t busy; /* messages */
	uint64_t frames; /* when counting began */
};

struct incast {
	double rate; /* share of the link */
	double jain;
	uint64_t lost, again;
	uint32_t withheld; /* w of the first sender at the end */
};

static void begin(uint32_t senders, uint32_t window)
{
	uint32_t rx = 16;

	while (rx < window * senders)
		rx *= 2;
	world_set(&w, senders + 1, 4, 0);
	w.options.repair = CAREFUL_REPAIR_ON;
	w.options.peers = senders;
	w.options.rx_buffers = w.options.copyout_buffers = window * senders > rx / 2 ? rx : rx / 2;
	w.options.tx_buffers = 1024;
	w.limits.operations = 128;
	w.limits.messages.outs = 64;
	w.limits.messages.parked = 256;
	w.shape.frame_bytes = w.shape.buffer_bytes = MTU_BYTES;
	w.shape.chunk_bytes = 2048;
	w.config.wire_g_ns = 0;
	w.config.wire_G_ps_per_byte = 800;
	w.config.wire_delay_ns = w.config.ctrl_delay_ns = lossy ? LOSSY_DELAY_NS : DELAY_NS;
	w.config.queue_frames = lossy ? LOSSY_QUEUE : QUEUE_FRAMES;
	w.config.queue_control = true;
	w.config.queue_ns = slower * FRAME_NS;
	if (reorders)
		w.faults[w.faults_count++] = (struct sim_fault){
			.kind = SIM_REORDER,
			.from = SIM_ANY,
			.to = 0,
			.what = SIM_DATA,
			.one_in = 20,
			.amount = 2 * (uint64_t)FRAME_NS * slower,
			.until_ns = UINT64_MAX,
		};
	if (lost_one_in)
		w.faults[w.faults_count++] = (struct sim_fault){
			.kind = SIM_LOSS,
			.from = SIM_ANY,
			.to = SIM_ANY,
			.what = SIM_ALL,
			.one_in = lost_one_in,
			.until_ns = UINT64_MAX,
		};
	world_begin(&w);
}

static void on_done(const struct careful_result *result, void *user)
{
	struct stream *stream = user;

	CHECK_EQ(result->status, 0);
	stream->busy--;
}

static void go_on(struct stream *stream, uint32_t rank, bool gets)
{
	const struct careful_span local = { .base = memory[rank], .fd = -1 };
	struct careful *c = w.node[gets ? 0 : rank].c;
	int rc;

	if (stream->busy == IN_FLIGHT)
		return;
	rc = gets ? careful_get(c, w.node[0].peers[rank], stream->key, 0, &local, MESSAGE,
				CAREFUL_NO_DIGEST, on_done, stream) :
		    careful_store(c, w.node[rank].peers[0], stream->key, 0, &local, MESSAGE,
				  CAREFUL_HANDLERS, NULL, CAREFUL_NO_DIGEST, on_done, stream);
	CHECK(!rc || rc == -EAGAIN);
	stream->busy += !rc;
}

static const struct link_peer *at_receiver(uint32_t rank)
{
	return engine_peer(w.node[0].c, w.node[0].peers[rank]);
}

static void run(struct stream *streams, uint32_t senders, bool gets, uint32_t rounds)
{
	uint64_t until_ns =
		world_now_ns(&w) +
		(uint64_t)rounds * (2 * DELAY_NS + (uint64_t)QUEUE_FRAMES * FRAME_NS * slower);

	while (world_now_ns(&w) < until_ns) {
		for (uint32_t i = 1; i <= senders; i++)
			go_on(&streams[i], i, gets);
		world_step(&w);
	}
}

static struct incast incast(uint32_t senders, uint32_t window, bool gets)
{
	struct stream streams[WORLD_NODES_MAX] = { 0 };
	struct incast found = { 0 };
	uint64_t began_ns, lost, again;
	double sum = 0, squares = 0;

	begin(senders, window);
	for (uint32_t i = 1; i <= senders; i++) {
		const struct careful_region region = {
			.span = { .base = memory[gets ? i : 0], .fd = -1 },
			.bytes = MESSAGE,
			.access = gets ? CAREFUL_REGION_READ : CAREFUL_REGION_WRITE,
			.peer = CAREFUL_ANY_PEER,
		};

		CHECK_EQ(careful_region_add(w.node[gets ? i : 0].c, &region, &streams[i].key), 0);
	}
	run(streams, senders, gets, BEFORE);
	began_ns = world_now_ns(&w);
	lost = sim_queue_lost(w.sim);
	again = world_count(&w, CAREFUL_C_SENT_AGAIN);
	for (uint32_t i = 1; i <= senders; i++)
		streams[i].frames = at_receiver(i)->rx_frames;
	run(streams, senders, gets, lossy ? LOSSY_COUNTED : COUNTED);
	for (uint32_t i = 1; i <= senders; i++) {
		double frames = (double)(at_receiver(i)->rx_frames - streams[i].frames);

		sum += frames;
		squares += frames * frames;
	}
	found.rate = sum * FRAME_NS * slower / (double)(world_now_ns(&w) - began_ns);
	found.jain = sum * sum / (senders * squares);
	found.lost = sim_queue_lost(w.sim) - lost;
	found.again = world_count(&w, CAREFUL_C_SENT_AGAIN) - again;
	found.withheld = at_receiver(1)->flow.rx.withheld;
	CHECK_EQ(world_count(&w, CAREFUL_C_EPOCHS_BROKEN), 0);
	world_end(&w);
	return found;
}

static void table(void)
{
	static const uint32_t links[] = { 1, 10, 100, 1000 };

	printf("Mbit/s senders window  how   rate  Jain   lost  again\n");
	for (uint32_t i = 0; i < sizeof(links) / sizeof(links[0]); i++)
		for (uint32_t window = 32; window <= 64; window *= 2)
			for (uint32_t n = 2; n <= 2 * SENDERS_MAX; n++) {
				uint32_t senders = 1u << n / 2;
				struct incast f;

				if (senders > SENDERS_MAX)
					break;
				slower = links[i];
				f = incast(senders, window, n & 1);
				printf("%6u %7u %6u %4s %6.2f %5.2f %6llu %6llu\n", 10000 / slower,
				       senders, window, n & 1 ? "get" : "put", f.rate, f.jain,
				       (unsigned long long)f.lost, (unsigned long long)f.again);
			}
}

/* SEEDS_SHARE (tests/targets.cmake) is large with sanitizers, where two of the four are enough. */
static void share(uint32_t senders)
{
	const uint32_t step = SEEDS_SHARE > 2 ? 3 : 1;

	for (uint32_t how = 0; how < 4; how += step) {
		struct incast f = incast(senders, how & 1 ? 64 : 32, how & 2);

		printf("  %2u senders, windows of %u, %s: %.2f of the rate, Jain's index %.2f\n",
		       senders, how & 1 ? 64 : 32, how & 2 ? "gets" : "puts", f.rate, f.jain);
		CHECK(f.rate >= 0.85);
		CHECK(f.jain >= 0.9);
	}
}

static void test_incast__the_link_is_full_and_shared(void)
{
	for (uint32_t senders = 2; senders <= SENDERS_MAX; senders *= 2)
		share(senders);
}

/* One frame in 20 comes two places late. */
static void test_reorder__shrinks_no_window(void)
{
	struct incast in_order = incast(1, 16, false), late;

	reorders = true;
	late = incast(1, 16, false);
	reorders = false;
	printf("  %.2f of the rate in order, %llu frames sent again\n", late.rate / in_order.rate,
	       (unsigned long long)late.again);
	CHECK(late.rate >= 0.9 * in_order.rate);
	CHECK_EQ(late.withheld, 0);
}

/* Returns the share of the link's rate that one get keeps. */
static double keeps(uint32_t one_in)
{
	double rate;

	lost_one_in = one_in;
	rate = incast(1, 64, true).rate;
	lost_one_in = 0;
	return rate;
}

static void test_random_loss__costs_little_of_the_rate(void)
{
	double whole, tenth, one;

	lossy = true;
	slower = LOSSY_SLOW;
	whole = keeps(0);
	tenth = keeps(1000) / whole;
	one = keeps(100) / whole;
	slower = SLOW;
	lossy = false;
	printf("  %.3f of the rate at one frame lost in 1000, %.3f at one in 100\n", tenth, one);
	CHECK(tenth >= 0.98);
	CHECK(one >= 0.95);
}

int main(int argc, char **argv)
{
	(void)argv;
	if (argc > 1) {
		table();
		return 0;
	}
	RUN(test_incast__the_link_is_full_and_shared);
	RUN(test_reorder__shrinks_no_window);
	RUN(test_random_loss__costs_little_of_the_rate);
	return 0;
}
