// SPDX-License-Identifier: BSD-2-Clause
/*
 * P2's experiments on hosts: one of these programs on each, with the same words but the rank.
 * Prints JSON: what this node took in each run, all nodes beginning together.
 *
 *   events IFACE RANK latency|throughput|flood WORDS COUNT FRAGMENTS PROCESSING RUNS HOST…
 *
 * HOST: IPv4 addresses of all nodes, by rank. A flood has COUNT messages of FRAGMENTS fragments.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "p2.h"

enum { GIVE_UP_MS = 30000, IDLE_MS = 20, RUNS_MAX = 100 };

static struct careful *c;

static void fail(const char *what, int rc)
{
	fprintf(stderr, "events: %s: %s\n", what, strerror(-rc));
	exit(1);
}

static uint32_t number(const char *text, uint32_t most)
{
	char *end;
	unsigned long value = strtoul(text, &end, 10);

	if (*end || value > most)
		fail(text, -EINVAL);
	return (uint32_t)value;
}

/* The session with a host, which may not be up yet. */
static uint32_t peer_of(const char *host)
{
	struct sockaddr_in to = { .sin_family = AF_INET };
	uint64_t end = clock_ns() + GIVE_UP_MS * 1000000ull;
	struct careful_peer_info info = { 0 };
	int peer = -1;

	if (inet_pton(AF_INET, host, &to.sin_addr) != 1)
		fail(host, -EINVAL);
	while (clock_ns() < end) {
		peer = careful_peer(c, (struct sockaddr *)&to, sizeof(to));
		if (peer < 0)
			fail(host, peer);
		careful_wait(c, IDLE_MS, -1);
		if (!careful_peer_info(c, (uint32_t)peer, &info) && info.state == CAREFUL_PEER_UP)
			return (uint32_t)peer;
	}
	fail(host, -ETIMEDOUT);
	return 0;
}

static uint64_t run(struct careful_events *ev, const struct p2_setup *setup, uint32_t rank,
		    uint32_t nodes, uint64_t *base, uint32_t *words)
{
	uint64_t began_ns = clock_ns();
	struct p2 p;
	int rc;

	p2_begin(&p, setup, ev, rank, nodes, *base);
	p.words = words;
	while ((rc = p2_step(&p)) == -EAGAIN)
		careful_wait(c, IDLE_MS, -1);
	if (rc)
		fail("an event", rc);
	*base += p2_events(setup, nodes);
	return clock_ns() - began_ns;
}

static enum p2_kind kind_of(const char *name)
{
	static const char *const names[] = { "latency", "throughput", "flood" };

	for (uint32_t i = 0; i < 3; i++)
		if (!strcmp(name, names[i]))
			return (enum p2_kind)i;
	fail(name, -EINVAL);
	return P2_KINDS;
}

int main(int argc, char **argv)
{
	static uint32_t words[1 << 16];
	static const struct p2_setup meet = { .kind = P2_MEET, .count = 1 };
	uint32_t peers[CAREFUL_EVENT_NODES_MAX] = { 0 };
	struct careful_options options = { .ifname = argc > 1 ? argv[1] : NULL };
	struct careful_events_options group = { .peers = peers };
	struct careful_events *ev;
	struct careful_error error;
	struct p2_setup setup;
	uint64_t base = 0;
	uint32_t runs;
	int rc;

	if (argc < 11 || argc - 9 > CAREFUL_EVENT_NODES_MAX) {
		fprintf(stderr, "usage: events IFACE RANK KIND WORDS COUNT FRAGMENTS PROCESSING "
				"RUNS HOST HOST...\n");
		return 2;
	}
	group.nodes = (uint32_t)argc - 9;
	group.rank = number(argv[2], group.nodes - 1);
	setup = (struct p2_setup){
		.kind = kind_of(argv[3]),
		.words = number(argv[4], 1 << 16),
		.count = number(argv[5], UINT32_MAX),
		.fragments = number(argv[6], UINT16_MAX),
		.processing = number(argv[7], 1),
	};
	runs = number(argv[8], RUNS_MAX);
	options.instance = getenv("CAREFUL_INSTANCE"); // NOLINT(concurrency-mt-unsafe)
	options.peers = group.nodes - 1;
	rc = careful_open(&options, &c, &error);
	if (rc)
		fail(error.text, rc);
	for (uint32_t i = 0; i < group.nodes; i++)
		if (i != group.rank)
			peers[i] = peer_of(argv[9 + i]);
	rc = careful_events_open(c, &group, &ev);
	if (rc)
		fail("the group", rc);
	run(ev, &meet, group.rank, group.nodes, &base, words);
	printf("{\"nodes\": %u, \"rank\": %u, \"words\": %u, \"frames\": %d, \"took_ns\": [",
	       group.nodes, group.rank, setup.words, p2_frames(ev, &setup));
	for (uint32_t i = 0; i < runs; i++) {
		printf("%s%llu", i ? ", " : "",
		       (unsigned long long)run(ev, &setup, group.rank, group.nodes, &base, words));
		run(ev, &meet, group.rank, group.nodes, &base, words);
	}
	printf("]}\n");
	careful_events_close(ev, 0, GIVE_UP_MS);
	careful_close(c);
	return 0;
}
