// SPDX-License-Identifier: BSD-2-Clause
/*
 * P4's microbenchmark (`Communication microbenchmark`) in virtual time, with real engines on
 * processors and network interfaces as fast as P4's. The measured parameters equal the configured
 * ones. P4's observations on shared receivers and copies appear too. With "tables" the program
 * prints Tables 3 to 5 and the signatures of Figures 5, 8 and 9, next to P4's numbers.
 */
#include "logp_time.h"

#include <math.h>

/*
 * P4 Table 4, except the Paragon's L: P4's text says 6.3 us, which makes 2 (os + L + or) the round
 * trip of its Table 3; 7.5 us is the Meiko's. For the Myrinet's bulk transfers P4 gives the gap of 8
 * bytes (18 us, Figure 8) and the network's rate (80 MB/s, Table 2). It also gives os and T of 4
 * KiB (143 and 298 us). The rest of T is attributed to the receiver's processor.
 */
static const struct logp_machine machines[] = {
	{ .name = "Paragon", .o_s = 1400, .o_r = 2200, .g = 7600, .L = 6300 },
	{ .name = "Meiko", .o_s = 1700, .o_r = 1600, .g = 13600, .L = 7500 },
	{ .name = "Myrinet",
	  .o_s = 2000,
	  .o_r = 2600,
	  .g = 12400,
	  .L = 11100,
	  .bulk_g = 18000,
	  .out_ps = 34424,
	  .in_ps = 18164,
	  .wire_ps = 12500 },
};

enum { MACHINES = sizeof(machines) / sizeof(machines[0]), MYRINET = 2 };

/* P4 Table 3, us. */
static const double trips[MACHINES][2] = { { 19.9, 20.1 }, { 20.3, 21.6 }, { 30.6, 31.5 } };
/* P4 Table 5: senders, and the gap relative to one sender. */
static const struct {
	uint32_t K;
	double times;
} contended[MACHINES] = { { 7, 6 }, { 15, 16.8 }, { 3, 3 } };

static struct logp_found read_of(uint32_t machine, enum logp_kind kind, uint32_t bytes,
				 enum logp_pattern pattern, uint32_t K)
{
	const struct logp_setting setting = {
		.machine = &machines[machine],
		.kind = kind,
		.bytes = bytes,
		.pattern = pattern,
		.K = K,
	};
	struct logp_found found;

	logp_open(&setting);
	logp_read(&found);
	logp_close();
	return found;
}

static struct logp_found small(uint32_t machine, enum logp_pattern pattern, uint32_t K)
{
	return read_of(machine, LOGP_REQUEST, 0, pattern, K);
}

static bool near(double a, double b, double share)
{
	return fabs(a - b) <= share * b;
}

/* Reports whether two signatures differ by at most 1 %. */
static bool alike(const struct logp_found *a, const struct logp_found *b)
{
	return near(a->o_s, b->o_s, 0.01) && near(a->o_r, b->o_r, 0.01) && near(a->g, b->g, 0.01) &&
	       near(a->L, b->L, 0.01);
}

static void test_signature__shows_the_machine(void)
{
	for (uint32_t i = 0; i < MACHINES; i++) {
		struct logp_found found = small(i, LOGP_ONE_TO_ONE, 1);

		CHECK(near(found.o_s, machines[i].o_s / 1e3, 0.01));
		CHECK(near(found.o_r, machines[i].o_r / 1e3, 0.01));
		CHECK(near(found.g, machines[i].g / 1e3, 0.01));
		CHECK(near(found.L, machines[i].L / 1e3, 0.01));
		CHECK(found.trip > 0.99 * trips[i][0] && found.trip < 1.01 * trips[i][1]);
	}
}

/* P4, `Validation of communication scaling`. */
static void test_pairs__are_as_one(void)
{
	for (uint32_t i = 0; i < MACHINES; i++) {
		struct logp_found one = small(i, LOGP_ONE_TO_ONE, 1);
		struct logp_found half = small(i, LOGP_HALF_TO_HALF, 8);

		CHECK(alike(&half, &one));
	}
}

/* The sender's network interface is the bottleneck for any receivers, like on the Meiko. */
static void test_one_to_many__has_the_gap_of_one(void)
{
	for (uint32_t i = 0; i < MACHINES; i++) {
		struct logp_found one = small(i, LOGP_ONE_TO_ONE, 1);
		struct logp_found many = small(i, LOGP_ONE_TO_MANY, 15);

		CHECK(alike(&many, &one));
	}
}

static void test_contention__multiplies_the_gap(void)
{
	for (uint32_t i = 0; i < MACHINES; i++) {
		double one = small(i, LOGP_ONE_TO_ONE, 1).g;

		for (uint32_t K = 3; K <= 15; K = 2 * K + 1)
			CHECK(near(small(i, LOGP_MANY_TO_ONE, K).g / one, K, 0.02));
	}
}

/* P4 Figures 8 and 9: the gap shows at 8 bytes; at 2 KiB overhead hides it. */
static void test_bulk__overhead_hides_the_gap_of_long_transfers(void)
{
	struct logp_found few = read_of(MYRINET, LOGP_STORE, 8, LOGP_ONE_TO_ONE, 1);
	struct logp_found many = read_of(MYRINET, LOGP_STORE, 2048, LOGP_ONE_TO_ONE, 1);
	struct logp_found page = read_of(MYRINET, LOGP_STORE, 4096, LOGP_ONE_TO_ONE, 1);

	CHECK(near(few.g, 18, 0.01));
	CHECK(few.o_s + few.o_r < 0.5 * few.g);
	CHECK(near(many.g, many.o_s + many.o_r, 0.01));
	CHECK(near(page.o_s, 143, 0.01));
	CHECK(near(page.trip, 298, 0.01));
}

/* The getter sends a small request; its processor receives the bytes. */
static void test_get__costs_the_getters_processor(void)
{
	struct logp_found few = read_of(MYRINET, LOGP_GET, 8, LOGP_ONE_TO_ONE, 1);
	struct logp_found many = read_of(MYRINET, LOGP_GET, 2048, LOGP_ONE_TO_ONE, 1);

	CHECK(near(many.o_s, few.o_s, 0.01));
	CHECK(many.o_r > few.o_r + 30);
}

static void print_signature(const char *title, uint32_t machine, enum logp_kind kind,
			    uint32_t bytes, const double *pauses, uint32_t n)
{
	const struct logp_setting setting = {
		.machine = &machines[machine],
		.kind = kind,
		.bytes = bytes,
	};
	struct logp_curve curves[4];

	logp_open(&setting);
	for (uint32_t i = 0; i < n; i++)
		logp_curve(pauses[i], &curves[i]);
	logp_close();
	printf("\n%s: message cost, us\n%8s", title, "M");
	for (uint32_t i = 0; i < n; i++)
		printf("   D = %-5g", pauses[i]);
	printf("\n");
	for (uint32_t k = 0; k < curves[0].count; k++) {
		printf("%8u", curves[0].messages[k]);
		for (uint32_t i = 0; i < n; i++)
			printf(" %11.2f", curves[i].cost[k]);
		printf("\n");
	}
}

static void print_found(const char *name, const struct logp_found *found)
{
	printf("%-22s %7.2f %7.2f %7.2f %7.2f %7.2f\n", name, found->o_s, found->o_r, found->g,
	       found->L, found->trip);
}

static void print_machines(void)
{
	static const char *const patterns[LOGP_PATTERNS] = { "one to one", "8 to 8", "one to 15",
							     "15 to one" };
	static const uint32_t K[LOGP_PATTERNS] = { 1, 8, 15, 15 };

	printf("Tables 3 and 4, `Validation of communication scaling`, us\n");
	printf("%-22s %7s %7s %7s %7s %7s\n", "", "os", "or", "g", "L", "trip");
	for (uint32_t i = 0; i < MACHINES; i++) {
		const struct logp_machine *m = &machines[i];

		printf("%-8s P4            %7.2f %7.2f %7.2f %7.2f %4.1f-%.1f\n", m->name,
		       m->o_s / 1e3, m->o_r / 1e3, m->g / 1e3, m->L / 1e3, trips[i][0],
		       trips[i][1]);
		for (uint32_t k = 0; k < LOGP_MANY_TO_ONE; k++) {
			struct logp_found found = small(i, (enum logp_pattern)k, K[k]);

			print_found(patterns[k], &found);
		}
	}
}

static void print_contention(void)
{
	printf("\nTable 5: gap of K senders to one, over that of one\n%-10s", "K");
	for (uint32_t K = 1; K <= 15; K = 2 * K + 1)
		printf(" %7u", K);
	printf("\n");
	for (uint32_t i = 0; i < MACHINES; i++) {
		double one = small(i, LOGP_ONE_TO_ONE, 1).g;

		printf("%-10s", machines[i].name);
		for (uint32_t K = 1; K <= 15; K = 2 * K + 1)
			printf(" %7.2f", small(i, LOGP_MANY_TO_ONE, K).g / one);
		printf("   P4: %g for K = %u\n", contended[i].times, contended[i].K);
	}
}

static void print_bulk(void)
{
	static const uint32_t sizes[] = { 8, 256, 512, 1024, 2048, 4096 };

	printf("\nFigures 7 and 10, Myrinet, stores; P4: os(4096) 143, T(4096) 298 us\n");
	printf("%-10s %7s %7s %7s %7s %7s %9s\n", "bytes", "os", "or", "g", "L", "T", "BW, MB/s");
	for (uint32_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		struct logp_found found =
			read_of(MYRINET, LOGP_STORE, sizes[i], LOGP_ONE_TO_ONE, 1);

		printf("%-10u %7.2f %7.2f %7.2f %7.2f %7.2f %9.2f\n", sizes[i], found.o_s,
		       found.o_r, found.g, found.L, found.trip, sizes[i] / found.trip);
	}
}

int main(int argc, char **argv)
{
	if (argc > 1 && !strcmp(argv[1], "tables")) {
		print_machines();
		print_contention();
		print_bulk();
		print_signature("Figure 5a, Paragon", 0, LOGP_REQUEST, 0,
				(const double[]){ 0, 3, 8, 16 }, 4);
		print_signature("Figure 5b, Meiko", 1, LOGP_REQUEST, 0,
				(const double[]){ 0, 8, 16, 32 }, 4);
		print_signature("Figure 5c, Myrinet", 2, LOGP_REQUEST, 0,
				(const double[]){ 0, 6, 16, 32 }, 4);
		print_signature("Figure 8, Myrinet, stores of 8 bytes", 2, LOGP_STORE, 8,
				(const double[]){ 0, 8, 20, 40 }, 4);
		print_signature("Figure 9, Myrinet, stores of 2 KiB", 2, LOGP_STORE, 2048,
				(const double[]){ 0, 8, 20, 40 }, 4);
		return 0;
	}
	RUN(test_signature__shows_the_machine);
	RUN(test_pairs__are_as_one);
	RUN(test_one_to_many__has_the_gap_of_one);
	RUN(test_contention__multiplies_the_gap);
	RUN(test_bulk__overhead_hides_the_gap_of_long_transfers);
	RUN(test_get__costs_the_getters_processor);
	return 0;
}
