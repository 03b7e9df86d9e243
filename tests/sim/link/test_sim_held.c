// SPDX-License-Identifier: BSD-2-Clause
/*
 * Counts the sent frames that a sender still holds (P2 section 2.1): none with careful, a round
 * trip's worth with the traditional protocol.
 */
#include "event_world.h"

enum {
	DELAY_NS = 1000 * 1000, /* of the wire, one way */
	EACH_NS = 50 * 1000, /* a message of each node to the other */
	MESSAGES = 400,
	BYTES = 600,
	ROUND_MESSAGES = 2 * DELAY_NS / EACH_NS,
};

static struct world w;
static uint64_t begun_ns, most_bytes;

/* Returns the bytes in send buffers that the device has released and the engine keeps. */
static uint64_t held_bytes(const struct world_node *node)
{
	uint32_t receive, send;

	link_complete(&node->c->link);
	sim_buffers(node->c->queue, &receive, &send);
	return (uint64_t)(send - node->c->link.tx_free_count) * BYTES;
}

/* Sends a message if one is due, and receives. */
static bool chat(struct world *world, uint32_t rank, struct program *p)
{
	struct careful_events *ev = world->node[rank].ev;
	struct careful_event_fragment got;
	static const uint8_t data[BYTES];

	if (p->fragment < MESSAGES && world_now_ns(world) >= begun_ns + p->fragment * EACH_NS) {
		CHECK_EQ(careful_event_send(ev, !rank, p->fragment, data, BYTES,
					    CAREFUL_EVENT_F_LAST, 0),
			 0);
		p->fragment++;
	}
	if (p->got < MESSAGES && !careful_event_receive(ev, !rank, p->got, &got, 0))
		p->got++;
	if (!rank && held_bytes(&world->node[0]) > most_bytes)
		most_bytes = held_bytes(&world->node[0]);
	return p->got == MESSAGES && p->fragment == MESSAGES;
}

/* Returns the most bytes that node 0 held. */
static uint64_t play(uint32_t protocol)
{
	struct program programs[2] = { 0 };

	world_set(&w, 2, 256, 16);
	w.options.protocol = protocol;
	w.options.tx_buffers = 256;
	w.config.wire_delay_ns = DELAY_NS;
	w.config.zerocopy = true; /* a frame holds its send buffer until it has left */
	world_begin(&w);
	world_join_all(&w);
	world_run(&w, 20);
	begun_ns = world_now_ns(&w);
	most_bytes = 0;
	CHECK(world_play(&w, chat, programs, 1000));
	world_end(&w);
	return most_bytes;
}

static void test_held__nothing_or_a_round_trip(void)
{
	uint64_t traditional = play(CAREFUL_PROTOCOL_TRADITIONAL);

	uint64_t careful = play(CAREFUL_PROTOCOL_CAREFUL);

	printf("  held of what has left, of %u bytes sent in a round trip: careful %llu, "
	       "traditional %llu bytes\n",
	       ROUND_MESSAGES * BYTES, (unsigned long long)careful,
	       (unsigned long long)traditional);
	CHECK_EQ(careful, 0);
	CHECK(traditional >= ROUND_MESSAGES * BYTES);
	CHECK(traditional < ROUND_MESSAGES * BYTES * 2);
}

int main(void)
{
	RUN(test_held__nothing_or_a_round_trip);
	return 0;
}
