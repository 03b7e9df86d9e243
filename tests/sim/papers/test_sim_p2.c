// SPDX-License-Identifier: BSD-2-Clause
/*
 * P2's experiments (section 6.1) in virtual time, with both protocols and the costs of P2's
 * appendix. Every node's program ends, the data is right, and the protocols' ratio matches P2. With
 * "tables" the program prints Tables 1 to 4 next to P2's; with "profile" also the parts of the
 * time.
 */
#include "jacobi.h"
#include "p2.h"
#include "p2_costs.h"
#include "p2_paper.h"
#include "p2_time.h"
#include "events/private.h"

enum {
	WORDS_MAX = 2000,
	HOPS = 200, /* hops of a message around the ring, per node */
	MESSAGES = 400, /* along the chain */
	FLOODS = 40, /* messages of each node */
	AHEAD = 8, /* sent before consuming: 8 of 16 fragments just fit P2_BUFFERS */
	FLOOD_MS = 8000, /* after this the run counts as endless */
	ITERATIONS = 1000, /* of Jacobi; P2 gives no number: assumes 1 us per point for 64 by 64 */
	POINT_NS = 1038, /* Table 4, one node: 64 by 64 minus 32 by 32, */
	ITERATION_NS = 117000, /* and the rest */
};

static struct world w;
static struct p2_time t;
static struct p2 parts[WORLD_NODES_MAX];
static uint32_t words[WORLD_NODES_MAX][16 * WORDS_MAX];
static uint32_t send_buffers = 2 * P2_BUFFERS;

static bool went_on(const struct p2 *was, const struct p2 *is)
{
	return was->event != is->event || was->consumed != is->consumed || was->at != is->at ||
	       was->bytes != is->bytes || was->sending != is->sending;
}

/* Continues a program by one fragment. */
static int step(struct p2_time *time, uint32_t rank, void *user)
{
	struct p2 *p = &parts[rank];
	struct p2 was = *p;
	int rc = p2_step(p);

	(void)user;
	if (p->setup.processing && p->bytes > was.bytes) {
		bool copied = p->ev->given->pool >= 0;

		p2_spend(time, rank, P2_SPENT_READ,
			 (p->bytes - was.bytes) / 4 * P2_CYCLE_NS *
				 (copied ? P2_COPY_CYCLES : P2_READ_CYCLES));
	}
	return rc == -EAGAIN && went_on(&was, p) ? 1 : rc;
}

/* Runs an experiment. Returns ns. The nodes stay open. */
static uint64_t play(const struct p2_setup *setup, uint32_t nodes, bool traditional,
		     uint64_t most_ms)
{
	p2_open(&t, &w, nodes, traditional, send_buffers);
	for (uint32_t i = 0; i < nodes; i++) {
		p2_begin(&parts[i], setup, w.node[i].ev, i, nodes, 0);
		parts[i].words = words[i];
	}
	return p2_run(&t, step, NULL, most_ms);
}

/* Returns us per hop. */
static double latency(uint32_t nodes, uint32_t payload, bool processing, bool traditional)
{
	const struct p2_setup setup = {
		.kind = P2_LATENCY,
		.words = payload,
		.count = HOPS,
		.processing = processing,
		.singly = true,
	};
	double took = (double)play(&setup, nodes, traditional, UINT32_MAX);

	for (uint32_t i = 0; i < nodes; i++)
		CHECK_EQ(parts[i].bytes, 4ull * HOPS * payload);
	/* Hop e carries e, e + 1 … */
	for (uint32_t k = 0, hop = nodes - 1; processing && k < HOPS; k++, hop += nodes)
		for (uint32_t i = 0; i < payload; i++)
			parts[0].sum -= hop + i;
	CHECK_EQ(parts[0].sum, 0);
	p2_close(&t);
	return took / HOPS / nodes / 1000;
}

/* Returns the total of all links, Mbit/s. */
static double throughput(uint32_t nodes, uint32_t payload, bool processing, bool traditional)
{
	const struct p2_setup setup = {
		.kind = P2_THROUGHPUT,
		.words = payload,
		.count = MESSAGES,
		.back = 3,
		.processing = processing,
		.singly = true,
	};
	double took = (double)play(&setup, nodes, traditional, UINT32_MAX);

	for (uint32_t i = 0; i < nodes; i++)
		CHECK_EQ(parts[i].bytes, 4ull * MESSAGES * (i ? payload : 1));
	p2_close(&t);
	return 32000.0 * MESSAGES * payload * (nodes - 1) / took;
}

/* Returns us per message between two nodes whose sender has one buffer and sends without a copy.
 * The application gets the buffer back when the frame has left, or is acknowledged. */
static double one_buffer(bool traditional)
{
	double mbit_per_s;

	send_buffers = LINK_CHUNKS_FREE_MIN + 1;
	mbit_per_s = throughput(2, WORDS_MAX, false, traditional);
	send_buffers = 2 * P2_BUFFERS;
	return 32.0 * WORDS_MAX / mbit_per_s;
}

/* Returns ms per message; 0: endless. */
static double flood(uint32_t nodes, uint32_t payload, bool processing, bool traditional)
{
	const struct p2_setup setup = {
		.kind = P2_FLOOD,
		.words = payload,
		.count = FLOODS,
		.fragments = 32 / nodes,
		.ahead = AHEAD,
		.processing = processing,
		.singly = true,
	};
	uint64_t took_ns = play(&setup, nodes, traditional, FLOOD_MS);

	if (took_ns == UINT64_MAX) {
		world_end(&w);
		return 0;
	}
	for (uint32_t i = 0; i < nodes; i++)
		CHECK_EQ(parts[i].bytes, 4ull * (nodes - 1) * FLOODS * setup.fragments * payload);
	p2_close(&t);
	return (double)took_ns / FLOODS / 1e6;
}

static struct jacobi grids[WORLD_NODES_MAX];

/* Continues a node's rows by a message or an iteration. */
static int relax(struct p2_time *time, uint32_t rank, void *user)
{
	struct jacobi *j = &grids[rank];
	uint32_t done = j->done, turn = j->turn;
	int rc = jacobi_step(j);

	(void)user;
	/* The last two of the four messages arrive, one word per point. */
	if (j->turn > turn && (turn == 2 ? rank + 1 < w.nodes : turn == 3 && rank > 0))
		p2_spend(time, rank, P2_SPENT_READ,
			 (uint64_t)j->size * P2_READ_CYCLES * P2_CYCLE_NS);
	if (j->done > done)
		p2_spend(time, rank, P2_SPENT_COMPUTED,
			 ITERATION_NS + (uint64_t)j->size * j->size / w.nodes * POINT_NS);
	return rc == -EAGAIN && (j->done != done || j->turn != turn) ? 1 : rc;
}

/* Returns s; one node computes alone. */
static double heat(uint32_t nodes, uint32_t size, bool traditional)
{
	double alone = ITERATIONS * (ITERATION_NS + (double)size * size * POINT_NS) / 1e9;
	double took;

	if (nodes == 1)
		return alone;
	p2_open(&t, &w, nodes, traditional, send_buffers);
	for (uint32_t i = 0; i < nodes; i++)
		CHECK_EQ(jacobi_begin(&grids[i], w.node[i].ev, i, nodes, size, ITERATIONS, 0), 0);
	for (uint32_t i = 0; i < nodes; i++)
		grids[i].singly = true;
	took = (double)p2_run(&t, relax, NULL, UINT32_MAX) / 1e9;
	for (uint32_t i = 0; i < nodes; i++) {
		CHECK_EQ(jacobi_wrong(&grids[i]), 0);
		jacobi_end(&grids[i]);
	}
	p2_close(&t);
	return took;
}

static double delta(double careful, double traditional)
{
	return (careful / traditional - 1) * 100;
}

/* The appendix's sums, and the cost of one short frame. */
static void test_costs__are_those_of_the_appendix(void)
{
	uint32_t sum[2][2] = { { 0 } };

	for (uint32_t i = 0; i < P2_COSTS; i++)
		sum[p2_costs[i].traditional][p2_costs[i].interrupt] +=
			p2_cycles(&p2_costs[i], true, 1);
	CHECK_EQ(sum[true][false], 318);
	CHECK_EQ(sum[true][true], 1100);
	CHECK_EQ(sum[false][false], 42);
	CHECK_EQ(sum[false][true], 109);
}

static void test_latency__of_one_word_differs_as_in_table_1(void)
{
	for (uint32_t i = 0; i < P2_ROWS; i++) {
		const struct p2_row *row = &p2_table1[i];
		double p2 = delta(row->care[0], row->trad[0]);
		double ours;

		if (row->words != 1)
			continue;
		ours = delta(latency(row->nodes, 1, false, false),
			     latency(row->nodes, 1, false, true));
		CHECK(ours > p2 - 3 && ours < p2 + 3);
	}
}

/* Each further byte costs 80 ns on the wire, P2's slope (Figure 1). */
static void test_latency__grows_by_the_wire(void)
{
	double more = latency(2, 1001, false, false) - latency(2, 1, false, false);

	CHECK(more > 0.99 * 320 && more < 1.01 * 320);
}

static double gain(uint32_t nodes, uint32_t payload)
{
	return delta(throughput(nodes, payload, false, false),
		     throughput(nodes, payload, false, true));
}

/* On two nodes +27 % for one word and +31 % for 200; less when the ring is full. */
static void test_throughput__differs_as_in_table_2(void)
{
	double one[] = { gain(2, 1), gain(4, 1), gain(8, 1) };
	double more[] = { gain(2, 200), gain(4, 200), gain(8, 200) };

	for (int i = 0; i < 3; i++) {
		CHECK(one[i] > 15 && one[i] < 40);
		CHECK(more[i] > 0 && more[i] < 35);
	}
	CHECK(one[2] < one[0] && one[2] < one[1]);
	CHECK(more[1] < more[0] && more[2] < more[1]);
	CHECK(more[1] < one[1] && more[2] < one[2]);
}

/* Careful copies out, unless the program is as slow. So on two nodes it loses without processing
 * and wins with it. From four nodes on the traditional protocol lacks buffers, and crawls. */
static void test_flood__crawls_with_the_traditional_protocol(void)
{
	for (uint32_t payload = 1000; payload <= 2000; payload += 1000) {
		double slower =
			delta(flood(2, payload, false, false), flood(2, payload, false, true));
		double faster =
			delta(flood(2, payload, true, false), flood(2, payload, true, true));

		CHECK(slower > 5 && slower < 35);
		CHECK(faster < -5 && faster > -30);
	}
	for (uint32_t nodes = 4; nodes <= 8; nodes *= 2) {
		double careful = flood(nodes, 200, false, false);
		double traditional = flood(nodes, 200, false, true);

		CHECK(careful > 0);
		CHECK(!traditional || traditional > 1.5 * careful);
	}
}

/* Careful gains if there is little to compute, at most as much as a hop. */
static void test_jacobi__gains_on_small_grids(void)
{
	for (uint32_t nodes = 2; nodes <= 8; nodes *= 2) {
		double small = delta(heat(nodes, 8, false), heat(nodes, 8, true));
		double large = delta(heat(nodes, 64, false), heat(nodes, 64, true));

		CHECK(small < -8 && small > -25);
		CHECK(large < 0 && large > small);
	}
	/* P2's 8 by 8 grid is faster on one node, its 32 by 32 on two. */
	CHECK(heat(1, 8, false) < heat(2, 8, false));
	CHECK(heat(1, 32, false) > heat(2, 32, false));
}

static bool profiled;

/* Prints the parts of a node's time in the last run, ms. */
static void profile(const char *protocol)
{
	static const char *const names[P2_SPENTS] = { "hop",  "extra", "copied out",
						      "kept", "read",  "computed" };

	if (!profiled)
		return;
	printf("    %s:", protocol);
	for (int i = 0; i < P2_SPENTS; i++)
		printf(" %s %.1f", names[i], (double)t.spent_ns[i] / 1e6 / w.nodes);
	printf("; frames %llu, own %llu\n", (unsigned long long)t.frames,
	       (unsigned long long)t.own);
}

static void print_pair(double traditional, double careful, int digits)
{
	if (traditional > 0)
		printf(" %8.*f", digits, traditional);
	else
		printf("      n/a");
	if (careful > 0)
		printf(" %8.*f", digits, careful);
	else
		printf("      n/a");
	if (traditional > 0 && careful > 0)
		printf(" %+6.1f |", delta(careful, traditional));
	else
		printf("    n/a |");
}

typedef double experiment_fn(uint32_t nodes, uint32_t payload, bool processing, bool traditional);

static void print_table(const char *title, const struct p2_row *rows, uint32_t n,
			experiment_fn *run, int digits)
{
	for (int processing = 0; processing < 2; processing++) {
		printf("%s, %s processing\n", title, processing ? "with" : "no");
		printf("P words |     trad     care  delta |  P2 trad  P2 care  delta |\n");
		for (uint32_t i = 0; i < n; i++) {
			double trad = run(rows[i].nodes, rows[i].words, processing, true);

			profile("traditional");
			double care = run(rows[i].nodes, rows[i].words, processing, false);

			profile("careful");
			printf("%u %5u |", rows[i].nodes, rows[i].words);
			print_pair(trad, care, digits);
			print_pair(rows[i].trad[processing], rows[i].care[processing], digits);
			printf("\n");
		}
	}
}

static void print_one_buffer(void)
{
	double trad = one_buffer(true), care;

	printf("One send buffer, us a message, no processing\n");
	printf("P words |     trad     care  delta |  P2 trad  P2 care  delta |\n");
	profile("traditional");
	care = one_buffer(false);
	profile("careful");
	printf("2 %5u |", WORDS_MAX);
	print_pair(trad, care, 1);
	print_pair(1150, 720, 1);
	printf("\n");
}

static void print_jacobi(void)
{
	printf("Table 4, Jacobi, s\n");
	printf("P  grid |     trad     care  delta |  P2 trad  P2 care  delta |\n");
	for (uint32_t i = 0; i < sizeof(p2_table4) / sizeof(p2_table4[0]); i++)
		for (uint32_t k = 0; k < P2_GRIDS; k++) {
			double trad = heat(p2_table4[i].nodes, 8u << k, true), care;

			if (p2_table4[i].nodes > 1) /* one node sends nothing and does not run */
				profile("traditional");
			care = heat(p2_table4[i].nodes, 8u << k, false);
			if (p2_table4[i].nodes > 1)
				profile("careful");
			printf("%u %5u |", p2_table4[i].nodes, 8u << k);
			print_pair(trad, care, 2);
			print_pair(p2_table4[i].trad[k], p2_table4[i].care[k], 2);
			printf("\n");
		}
}

int main(int argc, char **argv)
{
	if (argc > 1) {
		profiled = !strcmp(argv[1], "profile");
		print_table("Table 1, latency of a hop, us", p2_table1, P2_ROWS, latency, 1);
		print_table("Table 2, throughput, Mbit/s", p2_table2, P2_ROWS_2, throughput, 2);
		print_one_buffer();
		print_table("Table 3, flooding, ms", p2_table3, P2_ROWS, flood, 1);
		print_jacobi();
		return 0;
	}
	RUN(test_costs__are_those_of_the_appendix);
	RUN(test_latency__of_one_word_differs_as_in_table_1);
	RUN(test_latency__grows_by_the_wire);
	RUN(test_throughput__differs_as_in_table_2);
	RUN(test_flood__crawls_with_the_traditional_protocol);
	RUN(test_jacobi__gains_on_small_grids);
	return 0;
}
