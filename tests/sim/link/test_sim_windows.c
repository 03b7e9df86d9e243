// SPDX-License-Identifier: BSD-2-Clause
/*
 * Windows for many peers (P2 section 7) in virtual time: large messages through static windows,
 * through small windows with a reserve, and through frames of 256 bytes. Only the senders exist;
 * the other peers' windows are reserved all the same. With an argument, the program prints the
 * tables of `carefulctl help reservation`.
 */
#include "event_world.h"

enum {
	MESSAGE = 256 << 10, /* bytes of a message */
	MESSAGES = 4, /* messages of each sender, in sequence */
	SENDERS_MAX = 4,
	SMALL = 4, /* the least window */
};

static struct world w;
static uint8_t memory[WORLD_NODES_MAX][MESSAGE];

/*
 * @peers, @buffers: P and R; @reserve: granted buffers among these; @senders: peers that send
 * @frame_bytes: payload of a frame and a buffer
 */
struct setting {
	uint32_t peers, buffers, reserve, senders, frame_bytes;
};

struct sender {
	uint32_t left;
	bool busy;
};

/* 10 Gbit/s over a switch, 20 us each way. */
static void begin(const struct setting *s)
{
	world_set(&w, s->senders + 1, SMALL, 0);
	w.options.peers = s->peers;
	w.options.rx_buffers = w.options.copyout_buffers = s->buffers;
	w.options.tx_buffers = 512;
	w.options.reserve = s->reserve;
	w.shape.frame_bytes = w.shape.buffer_bytes = s->frame_bytes;
	w.shape.chunk_bytes = s->frame_bytes > 256 ? 2048 : 512;
	w.config.wire_g_ns = 0;
	w.config.wire_G_ps_per_byte = 800;
	w.config.wire_delay_ns = 20000;
	world_begin(&w);
}

static void on_done(const struct careful_result *result, void *user)
{
	struct sender *sender = user;

	CHECK_EQ(result->status, 0);
	sender->busy = false;
	sender->left--;
}

static void go_on(uint32_t rank, uint32_t key, struct sender *sender)
{
	const struct careful_span local = { .base = memory[rank], .fd = -1 };

	if (sender->busy || !sender->left)
		return;
	sender->busy = true;
	CHECK_EQ(careful_store(w.node[rank].c, w.node[rank].peers[0], key, 0, &local, MESSAGE,
			       CAREFUL_HANDLERS, NULL, CAREFUL_NO_DIGEST, on_done, sender),
		 0);
}

/* Returns the payload rate from all senders to one node, Gbit/s. */
static double gbits(const struct setting *s)
{
	const struct careful_region region = {
		.span = { .base = memory[0], .fd = -1 },
		.bytes = MESSAGE,
		.access = CAREFUL_REGION_WRITE,
		.peer = CAREFUL_ANY_PEER,
	};
	struct sender senders[WORLD_NODES_MAX] = { 0 };
	uint64_t began_ns;
	bool over = false;
	uint32_t key;

	begin(s);
	CHECK_EQ(careful_region_add(w.node[0].c, &region, &key), 0);
	for (uint32_t i = 1; i <= s->senders; i++)
		senders[i].left = MESSAGES;
	began_ns = world_now_ns(&w);
	while (!over) {
		over = true;
		for (uint32_t i = 1; i <= s->senders; i++) {
			go_on(i, key, &senders[i]);
			over = over && !senders[i].left;
		}
		world_step(&w);
		CHECK(world_now_ns(&w) - began_ns < 1000 * world_ms);
	}
	double took_ns = (double)(world_now_ns(&w) - began_ns);

	CHECK_EQ(w.node[0].c->link.reserve.free, s->reserve);
	CHECK_EQ(world_count(&w, CAREFUL_C_EPOCHS_BROKEN), 0);
	world_end(&w);
	return 8.0 * MESSAGE * MESSAGES * s->senders / took_ns;
}

/* R is divided among all peers. */
static double divided(uint32_t peers, uint32_t buffers, uint32_t senders, uint32_t frame_bytes)
{
	const struct setting s = { peers, buffers, 0, senders, frame_bytes };

	return gbits(&s);
}

/* The least windows; the rest is for grants. */
static double reserved(uint32_t peers, uint32_t buffers, uint32_t senders, uint32_t frame_bytes)
{
	const struct setting s = { peers, buffers, buffers - peers * SMALL, senders, frame_bytes };

	return gbits(&s);
}

static uint32_t senders_of(uint32_t peers)
{
	return peers < SENDERS_MAX ? peers : SENDERS_MAX;
}

enum { R = 1024, MTU_BYTES = 1514, P2_BYTES = 256 };

/* With the same buffers, a reserve gains more the more peers there are. */
static void test_same_buffers__a_reserve_is_faster_than_windows(void)
{
	double few = divided(2, R, 1, MTU_BYTES), many = divided(128, R, 1, MTU_BYTES);

	CHECK(many < 0.35 * few);
	CHECK(reserved(2, R, 1, MTU_BYTES) > 0.9 * few);
	CHECK(reserved(128, R, 1, MTU_BYTES) > 0.85 * few);
	CHECK(reserved(128, R, 4, MTU_BYTES) > 0.9 * few);
}

/* Returns the least R, a power of two, that gives one sender almost its full rate. */
static uint32_t least(uint32_t peers, bool reserve)
{
	double enough = 0.85 * divided(2, R, 1, MTU_BYTES);
	uint32_t buffers = 8;

	while (buffers < peers * SMALL)
		buffers *= 2;
	while ((reserve ? reserved(peers, buffers, 1, MTU_BYTES) :
			  divided(peers, buffers, 1, MTU_BYTES)) < enough)
		buffers *= 2;
	return buffers;
}

/* Static windows need P times a path's window; a reserve needs little more than the least
 * windows. */
static void test_least_buffers__grow_with_p_without_a_reserve(void)
{
	CHECK_EQ(least(8, false), 8 * 64);
	CHECK_EQ(least(32, false), 32 * 64);
	CHECK(least(8, true) <= 512);
	CHECK(least(32, true) <= 512);
	CHECK(least(128, true) <= 1024);
}

/* P2: frames of 256 bytes make small windows for thousands of nodes. */
static void test_small_frames__trade_bandwidth_for_buffers(void)
{
	double full = divided(2, R, 1, MTU_BYTES), small = divided(2, 2 * R, 1, P2_BYTES);

	CHECK(small < 0.8 * full && small > 0.5 * full); /* headers */
	/* The same memory as 8 buffers of an MTU for each of 128 peers. */
	CHECK(divided(128, 4096, 1, P2_BYTES) < 0.4 * small);
	CHECK(reserved(128, 4096, 1, P2_BYTES) > 0.85 * small);
}

static void row(uint32_t peers, uint32_t buffers, uint32_t frame_bytes)
{
	uint32_t senders = senders_of(peers);

	printf("%4u %5u %6u %6u %8.2f %8.2f %8.2f %8.2f %8.2f\n", peers, frame_bytes,
	       buffers * (frame_bytes > 256 ? 1536 : 256) / 1024, buffers / peers,
	       divided(peers, buffers, 1, frame_bytes),
	       divided(peers, buffers, senders, frame_bytes),
	       divided(peers, peers * SMALL, 1, frame_bytes),
	       reserved(peers, buffers, 1, frame_bytes),
	       reserved(peers, buffers, senders, frame_bytes));
}

static void tables(void)
{
	printf("                        windows alone     W = 4   W = 4, and a reserve\n"
	       "   P frame    KiB      W   one    up to 4      one      one  up to 4\n");
	for (uint32_t peers = 2; peers <= 128; peers *= 2)
		row(peers, R, MTU_BYTES);
	for (uint32_t peers = 2; peers <= 128; peers *= 2)
		row(peers, 4096, P2_BYTES);
	printf("\n   P  KiB for 85 %%: windows alone, with a reserve\n");
	for (uint32_t peers = 2; peers <= 128; peers *= 2)
		printf("%4u %22u %14u\n", peers, least(peers, false) * 3 / 2,
		       least(peers, true) * 3 / 2);
}

int main(int argc, char **argv)
{
	(void)argv;
	if (argc > 1) {
		tables();
		return 0;
	}
	RUN(test_same_buffers__a_reserve_is_faster_than_windows);
	RUN(test_least_buffers__grow_with_p_without_a_reserve);
	RUN(test_small_frames__trade_bandwidth_for_buffers);
	return 0;
}
