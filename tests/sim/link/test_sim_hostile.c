// SPDX-License-Identifier: BSD-2-Clause
/*
 * One of three nodes lies. Its messages are well formed, with the right cookie and CRC, but a seed
 * sets some fields of headers, messages and control messages. With keys, three of four lies are
 * proved and sealed. The invariants hold at every node, operations between the honest nodes neither
 * fail nor slow down, and an honest node in the liar's place is served again.
 */
#include <string.h>

#include "run.h"
#include "sim.h"

/* tests/targets.cmake sets SEEDS_SHARE. */
enum { SEEDS = 200 / SEEDS_SHARE, MISDEED_SEEDS = 40 / SEEDS_SHARE, HOSTILE = 2, PAIR = 8 };

/* End of the lies of a node without repairs: a gap ends the epoch after two seconds. */
enum { MUTE_MS = 6400 };

static uint64_t lies, lies_proved[LIES_PROVED]; /* so far, of all seeds */
static uint64_t unlike; /* likewise */
static uint64_t misdeeds_done[MISDEEDS]; /* likewise */
static uint64_t counters[CAREFUL_COUNTERS]; /* likewise */

static struct op *between(uint32_t i, uint32_t from, uint32_t to)
{
	struct op *op = sim_op((uint32_t)(sim_hash(scene->seed, 1, i) % OP_KINDS), from,
			       (uint32_t)(sim_hash(scene->seed, 2, i) % OP_BYTES_MAX),
			       1 + (double)(sim_hash(scene->seed, 3, i) % 30000) / 1000);

	op->to = (uint8_t)to;
	op->from_file = i & 1;
	op->to_file = i & 2;
	return op;
}

static struct {
	uint32_t epochs, lost, again;
} pair[HOSTILE]; /* the honest nodes' session, by node, at its last run */

static void watch(struct node *node)
{
	const struct link_peer *peer;
	union address address;

	if (node->port >= HOSTILE)
		return;
	sim_address(node->cluster->world, !node->port, &address);
	peer = link_peer_find(&node->c->link, &address);
	if (!peer)
		return;
	pair[node->port].epochs = peer->session->epochs;
	pair[node->port].lost = peer->session->lost_here;
	pair[node->port].again = peer->session->sent_again;
}

/* Checks that the honest nodes had one epoch with each other, without a loss. */
static void check_pair(void)
{
	for (uint32_t i = 0; i < HOSTILE; i++) {
		CHECK_EQ(pair[i].epochs, 1);
		CHECK_EQ(pair[i].lost, 0);
		CHECK_EQ(pair[i].again, 0);
	}
}

/* Runs traffic of two honest nodes, and of the third with both, if it exists. Returns the
 * time at which the honest nodes were done. */
static uint64_t play(uint64_t seed, bool hostile, uint32_t misdeeds)
{
	static const char *const seals[] = { "auth", "encrypt" };
	uint64_t last_ns = 0;

	sim_scene(seed);
	scene->nodes = 3;
	scene->on_round = watch;
	memset(pair, 0, sizeof(pair));
	scene->config.ipv6 = seed & 1;
	scene->limits.messages.copies = seed % 3;
	scene->files_delay_ns = seed % 5 ? 0 : 20000;
	scene->keyed = seed / 2 % 2 ? 7 : 0;
	scene->seal = seed / 4 % 2 ? seals[seed / 8 % 2] : NULL;
	for (uint32_t i = 0; i < PAIR; i++)
		between(i, i & 1, !(i & 1));
	if (hostile) {
		for (uint32_t i = PAIR; i < 3 * PAIR; i++)
			between(i, i & 1 ? HOSTILE : i / 2 & 1, i & 1 ? i / 2 & 1 : HOSTILE);
		hostile_make(scene, HOSTILE, misdeeds == 1u << MISDEED_MUTE ? MUTE_MS : LIES_MS);
		if (misdeeds)
			misdeeds_make(scene, misdeeds);
	}
	EXPECT_WELL(sim_play());
	lies += cluster->lies;
	for (uint32_t i = 0; i < LIES_PROVED; i++)
		lies_proved[i] += cluster->lies_proved[i];
	for (uint32_t i = 0; i < MISDEEDS; i++)
		misdeeds_done[i] += cluster->misdeeds[i];
	for (uint32_t i = 0; i < CAREFUL_COUNTERS; i++)
		counters[i] += cluster->counters[i];
	unlike += cluster->unlike;
	for (uint32_t i = 0; i < PAIR; i++) {
		CHECK_EQ(scene->ops[i].attempt, 1);
		CHECK_EQ(scene->ops[i].last_status, 0);
		if (scene->ops[i].done_ns > last_ns)
			last_ns = scene->ops[i].done_ns;
	}
	check_pair();
	return last_ns - SIM_START;
}

/* Checks that the honest pair needs at most 1.5 times as long. Returns its worst time in
 * percent. */
static unsigned compare_times(uint64_t seed, uint32_t misdeeds)
{
	uint64_t alone_ns = play(seed, false, 0), beside_ns = play(seed, true, misdeeds);

	CHECK(beside_ns * 2 <= alone_ns * 3);
	return (unsigned)(beside_ns * 100 / alone_ns);
}

static void test_hostile__harms_no_other(void)
{
	unsigned worst = 0;

	for (uint64_t seed = 0; seed < SEEDS; seed++) {
		unsigned now = compare_times(seed, 0);

		worst = now > worst ? now : worst;
	}
	CHECK(lies > SEEDS);
	printf("%llu lies, the others at worst %u %% of their time alone\n",
	       (unsigned long long)lies, worst);
}

/* Checks that a misdeed with repairs reaches the engine: requests are answered or end the liar's
 * epochs; skipped frames count as lost. */
static void check_effect(uint32_t misdeed)
{
	const uint64_t *n = counters;

	if (misdeed == MISDEED_GAPS || misdeed == MISDEED_ENDLESS)
		CHECK(n[CAREFUL_C_SENT_AGAIN] > 2 * n[CAREFUL_C_ASKED_AGAIN]);
	if (misdeed == MISDEED_ENDLESS) /* a few times at once, then once per millisecond */
		CHECK(n[CAREFUL_C_SENT_AGAIN] < misdeeds_done[misdeed] / 10);
	if (misdeed == MISDEED_UNSENT)
		CHECK(n[CAREFUL_C_BAD_CREDITS] > misdeeds_done[misdeed] / 2);
	if (misdeed == MISDEED_MUTE)
		CHECK(n[CAREFUL_C_LOST_FRAMES] >= MISDEED_SEEDS);
}

/* Each misdeed, alone and with all others, occurs and harms no other node. */
static void test_hostile__misdeeds_harm_no_other(void)
{
	for (uint32_t i = 0; i <= MISDEEDS; i++) {
		unsigned worst = 0;

		memset(misdeeds_done, 0, sizeof(misdeeds_done));
		memset(counters, 0, sizeof(counters));
		for (uint64_t seed = 0; seed < MISDEED_SEEDS; seed++) {
			unsigned now =
				compare_times(seed, i < MISDEEDS ? 1u << i : (1u << MISDEEDS) - 1);

			worst = now > worst ? now : worst;
		}
		for (uint32_t k = 0; k < MISDEEDS; k++) {
			if (i == k || i == MISDEEDS)
				printf("%llu %s, ", (unsigned long long)misdeeds_done[k],
				       misdeeds_name(k));
			CHECK((misdeeds_done[k] >= MISDEED_SEEDS) == (i == k || i == MISDEEDS));
		}
		printf("the others at worst %u %%\n", worst);
		check_effect(i);
	}
}

/* A liar with keys can prove true messages, and its sealed lies are accepted. */
static void test_hostile__proved_messages_are_accepted(void)
{
	memset(lies_proved, 0, sizeof(lies_proved));
	memset(counters, 0, sizeof(counters));
	lies = unlike = 0;
	cluster->proves_all = true;
	for (uint64_t seed = 0; seed < SEEDS; seed++)
		if (seed / 2 % 2)
			play(seed, true, 0);
	cluster->proves_all = false;
	CHECK_EQ(unlike, 0);
	for (uint32_t i = 0; i < LIES_PROVED; i++)
		CHECK(lies_proved[i] > SEEDS / 4);
	/* One frame in 16 has a false number: later frames and repairs count as old until the epoch
	 * ends. */
	printf("  %llu dropped for their tags\n",
	       (unsigned long long)counters[CAREFUL_C_DROP_SEAL]);
	CHECK(counters[CAREFUL_C_DROP_SEAL] < 8 * lies_proved[LIE_SEALED]);
}

/* A late train, an impossible count of lost frames, an end as the answer to another kind of
 * question, and buffers larger than ours. */
static void test_hostile__seeds_that_failed(void)
{
	static const uint64_t seeds[] = { 6109, 46562, 40497 };
	static const struct cut none;

	cluster->hostile = true;
	for (uint32_t i = 0; i < sizeof(seeds) / sizeof(seeds[0]); i++)
		EXPECT_WELL(run_cut(cluster, seeds[i], true, &none));
	/* Messages that a killed liar never ended; trains that all came late. */
	EXPECT_WELL(run_cut(cluster, 8003384, true, &none));
	EXPECT_WELL(run_cut(cluster, 8013645, true, &none));
	EXPECT_WELL(run_cut(cluster, 8050052, true, &none));
	/* A message that announced a digest and had none. */
	cluster->protocol = CAREFUL_PROTOCOL_TRADITIONAL;
	EXPECT_WELL(run_cut(cluster, 89855, true, &none));
	/* Trains delayed the request for a frame that a lie had lost, until the run seemed done. */
	EXPECT_WELL(run_cut(cluster, 9995, true, &none));
	cluster->protocol = CAREFUL_PROTOCOL_CAREFUL;
	cluster->hostile = false;
}

int main(void)
{
	sim_init();
	RUN(test_hostile__harms_no_other);
	RUN(test_hostile__misdeeds_harm_no_other);
	RUN(test_hostile__proved_messages_are_accepted);
	RUN(test_hostile__seeds_that_failed);
	cluster_destroy(cluster);
	return 0;
}
