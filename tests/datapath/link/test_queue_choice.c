// SPDX-License-Identifier: BSD-2-Clause
/* The choice of a queue for a host's session. */
#include <string.h>

#include "check.h"
#include "link/session/queue_choice.h"

enum { QUEUES = 4, SLOTS = 4, ALL = (1 << QUEUES) - 1 };

static struct careful_queue_entry entries[CAREFUL_SPREAD_MAX];
static struct spread spread = { .entries = entries, .count = QUEUES };

static union address host(uint32_t ipv4)
{
	return (union address){ .in = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(ipv4) } };
}

static void begin(bool straight)
{
	memset(entries, 0, sizeof(entries));
	for (uint32_t i = 0; i < QUEUES; i++)
		entries[i].slots = SLOTS;
	spread.straight = straight;
}

/* Fills this many slots of a queue with unused hosts. */
static void fill(uint32_t queue, uint32_t slots)
{
	for (uint32_t i = 0; i < slots; i++)
		entries[queue].hosts[i] = 2 * (queue * SLOTS + i) + 2;
}

static struct queue_choice choose(uint32_t ipv4, uint32_t among)
{
	const union address of = host(ipv4);

	return queue_choose(&spread, &of, among);
}

static void test_fewest__is_taken(void)
{
	begin(false);
	for (uint32_t queue = 0; queue < QUEUES; queue++)
		fill(queue, queue == 2 ? 1 : 2);
	for (uint32_t i = 0; i < 16; i++)
		CHECK_EQ(choose(0x0a4d0001 + i, 1).queue, 2);
	CHECK_EQ(choose(0x0a4d0001, 5).among, 5);
}

static void test_equal__hosts_are_spread(void)
{
	uint32_t seen = 0;

	begin(false);
	for (uint32_t i = 0; i < 16; i++)
		seen |= 1u << choose(0x0a4d0001 + i, 1).queue;
	CHECK_EQ(seen, ALL);
	CHECK_EQ(choose(0x0a4d0001, 1).queue, choose(0x0a4d0001, 1).queue);
}

static void test_full_or_closed__is_not_taken(void)
{
	begin(false);
	fill(0, SLOTS);
	entries[1].slots = 0;
	entries[2].slots = CAREFUL_PEERS_MAX + 1; /* an impossible number */
	for (uint32_t i = 0; i < 16; i++)
		CHECK_EQ(choose(0x0a4d0001 + i, 1).queue, 3);
}

static void test_straight__only_the_same_numbers(void)
{
	begin(true);
	fill(1, 2);
	fill(3, 1);
	for (uint32_t i = 0; i < 16; i++) {
		CHECK_EQ(choose(0x0a4d0001 + i, 1 << 1 | 1 << 3).queue, 3);
		CHECK_EQ(choose(0x0a4d0001 + i, 1 << 1 | 1 << 3).among, 1 << 3);
		/* The peer has more queues than we have: queue 0 matches. */
		CHECK_EQ(choose(0x0a4d0001 + i, 1 << 5).queue, 0);
		CHECK_EQ(choose(0x0a4d0001 + i, 1 << 5).among, 1);
	}
}

static void test_known__stays(void)
{
	union address of = host(0x0a4d0001);

	begin(false);
	for (int queue = 0; queue < QUEUES; queue++) {
		begin(false);
		fill((uint16_t)queue, SLOTS - 1);
		entries[queue].hosts[SLOTS - 1] = queue_choice_host(&of);
		CHECK_EQ(choose(0x0a4d0001, 1).queue, queue);
		CHECK(choose(0x0a4d0002, 1).queue != queue);
	}
}

int main(void)
{
	RUN(test_fewest__is_taken);
	RUN(test_equal__hosts_are_spread);
	RUN(test_full_or_closed__is_not_taken);
	RUN(test_straight__only_the_same_numbers);
	RUN(test_known__stays);
	return 0;
}
