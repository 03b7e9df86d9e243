// SPDX-License-Identifier: BSD-2-Clause
/*
 * P2's experiments (section 6.1) in virtual time, where a node is busy while it handles a
 * frame: every node's part ends, what arrives is what was sent, and what P2 saw of careful's
 * side holds: a hop takes the same in a ring of any size, a chain moves as much on each link.
 * Run with a word, it prints the three tables of this side.
 */
#include "event_world.h"
#include "p2.h"

enum {
	POLL_NS = 500, /* of an empty round */
	WORDS_MAX = 2000,
	FRAGMENT_BYTES = 8192,
};

static struct world w;
static uint32_t words[WORLD_NODES_MAX][16 * WORDS_MAX];

/* FDDI's 100 Mbit/s, and a host's share of P2's 85 us for a word (Table 1). */
static void begin(uint32_t nodes, uint32_t window, uint32_t copies)
{
	world_set(&w, nodes, window, copies);
	w.options.tx_buffers = 256;
	w.shape = (struct sim_shape){
		.chunk_bytes = 2 * FRAGMENT_BYTES,
		.buffer_bytes = FRAGMENT_BYTES,
		.segments_max = 1,
		.frame_bytes = FRAGMENT_BYTES,
	};
	w.config.wire_g_ns = 0;
	w.config.wire_G_ps_per_byte = 80000;
	w.config.rx_g_ns = 70000; /* what a hop takes beside the wire */
	w.config.tx_g_ns = 25000;
	world_begin(&w);
	world_join_all(&w);
	world_run(&w, 5);
}

static void end(void)
{
	for (uint32_t i = 0; i < w.nodes; i++)
		CHECK_EQ(careful_events_failed(w.node[i].ev, NULL), 0);
	CHECK_EQ(world_count(&w, CAREFUL_C_DROP_MESSAGE), 0);
	CHECK_EQ(world_count(&w, CAREFUL_C_EPOCHS_BROKEN), 0);
	world_end(&w);
}

/* One step and one round of a node; when it is free again. */
static uint64_t turn(uint32_t rank, struct p2 *p, bool *over)
{
	struct world_node *node = &w.node[rank];
	int rc = *over ? 0 : p2_step(p);

	CHECK(!rc || rc == -EAGAIN);
	*over = !rc;
	node->files.time_ns = world_now_ns(&w);
	node->c->polls = ENGINE_POLLS_PER_CLOCK - 1;
	careful_poll(node->c);
	return world_now_ns(&w) + POLL_NS + sim_take_busy_ns(node->c->queue);
}

/* Runs an experiment; its time, ns. */
static uint64_t play(const struct p2_setup *setup, uint64_t base, struct p2 *parts)
{
	uint64_t free_ns[WORLD_NODES_MAX] = { 0 };
	uint64_t began_ns = world_now_ns(&w), next_ns;
	bool over[WORLD_NODES_MAX] = { false };
	uint32_t left = w.nodes;

	for (uint32_t i = 0; i < w.nodes; i++) {
		p2_begin(&parts[i], setup, w.node[i].ev, i, w.nodes, base);
		parts[i].words = words[i];
	}
	while (left) {
		next_ns = sim_next_ns(w.sim);
		left = 0;
		for (uint32_t i = 0; i < w.nodes; i++) {
			if (free_ns[i] <= world_now_ns(&w))
				free_ns[i] = turn(i, &parts[i], &over[i]);
			next_ns = free_ns[i] < next_ns ? free_ns[i] : next_ns;
			left += !over[i];
		}
		CHECK(world_now_ns(&w) - began_ns < 10000 * world_ms);
		if (sim_next_ns(w.sim) < next_ns)
			next_ns = sim_next_ns(w.sim);
		sim_advance(w.sim, next_ns > world_now_ns(&w) ? next_ns : world_now_ns(&w));
		sim_run(w.sim);
	}
	CHECK(!sim_failure(w.sim));
	return world_now_ns(&w) - began_ns;
}

/* ns a hop. */
static double latency(uint32_t nodes, uint32_t payload)
{
	const struct p2_setup setup = {
		.kind = P2_LATENCY, .words = payload, .count = 50, .processing = true
	};
	struct p2 parts[WORLD_NODES_MAX] = { 0 };
	double took;

	begin(nodes, 16, 64);
	took = (double)play(&setup, 0, parts);
	for (uint32_t i = 0; i < nodes; i++)
		CHECK_EQ(parts[i].bytes, 50ull * payload * 4);
	/* Hop e carried e, e + 1 … */
	for (uint32_t k = 0, hop = nodes - 1; k < 50; k++, hop += nodes)
		for (uint32_t i = 0; i < payload; i++)
			parts[0].sum -= hop + i;
	CHECK_EQ(parts[0].sum, 0);
	end();
	return took / (50.0 * nodes);
}

static void test_latency__a_hop_takes_the_same_in_any_ring(void)
{
	double two = latency(2, 1), four = latency(4, 1), eight = latency(8, 1);

	CHECK(four > 0.97 * two && four < 1.03 * two);
	CHECK(eight > 0.97 * two && eight < 1.03 * two);
	/* Of more words the wire takes 80 ns a byte more, P2's slope (Figure 1). */
	double more = latency(2, 1001) - two;

	CHECK(more > 0.99 * 320000 && more < 1.05 * 320000);
}

/* bit/us of all links together. */
static double throughput(uint32_t nodes, uint32_t payload)
{
	const struct p2_setup setup = { .kind = P2_THROUGHPUT, .words = payload, .count = 200 };
	struct p2 parts[WORLD_NODES_MAX] = { 0 };
	double took;

	begin(nodes, 16, 64);
	took = (double)play(&setup, 0, parts);
	for (uint32_t i = 1; i < nodes; i++)
		CHECK_EQ(parts[i].bytes, 200ull * payload * 4);
	end();
	return 200.0 * payload * 32 * (nodes - 1) / took * 1000;
}

static void test_throughput__each_link_of_a_chain_moves_as_much(void)
{
	double two = throughput(2, 2000), four = throughput(4, 2000);

	/* The wire is the bottleneck: 100 bit/us but for headers, as in Table 2. */
	CHECK(two > 95 && two < 100);
	CHECK(four > 3 * 0.9 * two && four < 3 * two);
	CHECK(throughput(2, 1) < 1);
}

/* ms; *copied: frames copied out. */
static double flood(uint32_t nodes, uint32_t payload, uint32_t fragments, uint64_t *copied)
{
	const struct p2_setup setup = {
		.kind = P2_FLOOD, .words = payload, .count = 10, .fragments = fragments
	};
	struct p2 parts[WORLD_NODES_MAX] = { 0 };
	double took;

	/* Medusa's 128 buffers, divided (P2 section 5.3). */
	begin(nodes, 128 / nodes, 4 * (nodes - 1) * 10 * fragments);
	took = (double)play(&setup, 0, parts);
	for (uint32_t i = 0; i < nodes; i++)
		CHECK_EQ(parts[i].bytes, (nodes - 1) * 10ull * fragments * payload * 4);
	*copied = world_count(&w, CAREFUL_C_COPIED_OUT);
	CHECK_EQ(world_count(&w, CAREFUL_C_CREDITS_WITHHELD), 0);
	end();
	return took / 1e6;
}

static void test_flood__ends_by_copying_out(void)
{
	uint64_t copied;

	for (uint32_t nodes = 2; nodes <= 8; nodes *= 2) {
		flood(nodes, 1, 32 / nodes, &copied);
		CHECK(copied > 0);
		flood(nodes, 1000, 32 / nodes, &copied);
		CHECK(copied > 0);
	}
}

static void tables(void)
{
	static const uint32_t payloads[] = { 1, 200, 1000, 2000 };
	uint64_t copied;

	printf("P words  latency us  throughput bit/us  flood ms (copied)\n");
	for (uint32_t nodes = 2; nodes <= 8; nodes *= 2)
		for (uint32_t i = 0; i < 4; i++) {
			double ms = flood(nodes, payloads[i], 32 / nodes, &copied);

			printf("%u %5u %11.1f %18.2f %9.2f (%llu)\n", nodes, payloads[i],
			       latency(nodes, payloads[i]) / 1000, throughput(nodes, payloads[i]),
			       ms, (unsigned long long)copied);
		}
}

int main(int argc, char **argv)
{
	(void)argv;
	if (argc > 1) {
		tables();
		return 0;
	}
	RUN(test_latency__a_hop_takes_the_same_in_any_ring);
	RUN(test_throughput__each_link_of_a_chain_moves_as_much);
	RUN(test_flood__ends_by_copying_out);
	return 0;
}
