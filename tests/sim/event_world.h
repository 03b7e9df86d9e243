/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * For tests of the event service: P engines on a virtual network, all in one group, and concurrent
 * programs. A program is a function that is called before each round of its node until it returns
 * true.
 */
#ifndef SIM_EVENT_WORLD_H
#define SIM_EVENT_WORLD_H

#include <careful/event.h>
#include <errno.h>
#include <string.h>

#include "check.h"
#include "device/sim.h"
#include "files.h"
#include "engine/engine.h"
#include "sim_network.h"

enum {
	WORLD_NODES_MAX = SIM_PORTS_MAX,
	WORLD_STEP_NS = 300,
	WORLD_TICK_NS = ENGINE_TICK_NS,
	WORLD_IDLE = 40, /* steps without a frame before time jumps */
};

static const uint64_t world_ms = 1000000;

static bool world_requests; /* groups use requests */

struct world {
	struct sim_world *sim;
	uint32_t nodes, idle;
	bool replicate; /* broadcasts are replicated */
	struct world_node {
		struct careful *c; /* NULL: it is dead */
		struct files files;
		struct careful_events *ev;
		uint32_t peers[WORLD_NODES_MAX];
		uint32_t life;
		bool stopped; /* it does not poll */
	} node[WORLD_NODES_MAX];
	struct careful_options options;
	struct engine_limits limits;
	struct sim_shape shape;
	struct sim_config config;
	struct sim_fault faults[4];
	uint32_t faults_count;
};

/* All data frames from one node to another are lost for a millisecond. */
static inline void world_lose(struct world *w, uint32_t from, uint32_t to, uint64_t at_ms)
{
	w->faults[w->faults_count++] = (struct sim_fault){
		.kind = SIM_LOSS,
		.from = from,
		.to = to,
		.what = SIM_DATA,
		.one_in = 1,
		.at_ns = at_ms * world_ms,
		.until_ns = (at_ms + 1) * world_ms,
	};
}

static inline void world_start(struct world *w, uint32_t port)
{
	struct world_node *node = &w->node[port];
	struct engine_base base = {
		.storage = &node->files.storage,
		.limits = w->limits,
	};
	struct careful_error error = { 0 };

	files_init(&node->files, 0);
	CHECK_EQ(sim_open(w->sim, port, ++node->life, &w->shape, &w->options, &base.queue, &error),
		 0);
	CHECK_EQ(engine_open(&w->options, &base, &node->c, &error), 0);
}

/* Opens nodes with W receive buffers for each peer and this many copies. */
static inline void world_set(struct world *w, uint32_t nodes, uint32_t window, uint32_t copies)
{
	uint32_t rx = 16;

	*w = (struct world){ .nodes = nodes };
	while (rx < window * (nodes - 1))
		rx *= 2;
	w->options = (struct careful_options){
		.repair = CAREFUL_REPAIR_OFF, /* P2's protocol */
		.ifname = "sim",
		.peers = rx / window,
		.rx_buffers = rx,
		.tx_buffers = 64,
		.copyout_buffers = copies,
		.sync_ms = 200,
		.stall_ms = 2000,
	};
	w->limits = (struct engine_limits){
		.operations = 32,
		.regions = 32,
		.messages = { .outs = 16, .parked = 64 },
	};
	w->shape = sim_small_frames();
	w->config = sim_fast_wires(7);
	w->config.ports = nodes;
}

static inline uint64_t world_now_ns(const struct world *w)
{
	return sim_now_ns(w->sim);
}

/* Runs one round of every node; time advances. */
static inline void world_step(struct world *w)
{
	uint64_t next_ns = world_now_ns(w) + WORLD_STEP_NS;
	bool leap = w->idle > WORLD_IDLE;

	if (leap) {
		next_ns = world_now_ns(w) + WORLD_TICK_NS;
		if (sim_next_ns(w->sim) < next_ns)
			next_ns = sim_next_ns(w->sim);
	}
	while (sim_next_ns(w->sim) < next_ns) {
		sim_advance(w->sim, sim_next_ns(w->sim));
		sim_run(w->sim);
	}
	sim_advance(w->sim, next_ns);
	sim_run(w->sim);
	w->idle++;
	for (uint32_t i = 0; i < w->nodes; i++) {
		struct world_node *node = &w->node[i];

		if (!node->c || node->stopped)
			continue;
		node->files.time_ns = next_ns;
		if (leap)
			node->c->polls = ENGINE_POLLS_PER_CLOCK - 1;
		if (careful_poll(node->c) > 0)
			w->idle = 0;
	}
	CHECK(!sim_failure(w->sim));
}

static inline void world_run(struct world *w, double ms)
{
	uint64_t until_ns = world_now_ns(w) + (uint64_t)(ms * 1e6);

	while (world_now_ns(w) < until_ns)
		world_step(w);
}

static inline struct careful_events *world_join(struct world *w, uint32_t rank, uint32_t nodes)
{
	const struct careful_events_options options = {
		.group = 5,
		.nodes = nodes,
		.rank = rank,
		.replicate = w->replicate,
		.peers = w->node[rank].peers,
		.requests = world_requests,
	};

	CHECK_EQ(careful_events_open(w->node[rank].c, &options, &w->node[rank].ev), 0);
	return w->node[rank].ev;
}

static inline void world_connect(struct world *w, uint32_t rank)
{
	for (uint32_t i = 0; i < w->nodes; i++) {
		union address address;
		int index;

		if (i == rank)
			continue;
		sim_address(w->sim, i, &address);
		index = careful_peer(w->node[rank].c, &address.sa, sizeof(address));
		CHECK(index >= 0);
		w->node[rank].peers[i] = (uint32_t)index;
	}
}

static inline bool world_connected(const struct world *w)
{
	for (uint32_t i = 0; i < w->nodes; i++)
		for (uint32_t k = 0; k < w->nodes; k++) {
			struct careful_peer_info info = { .state = CAREFUL_PEER_UP };

			if (i != k)
				careful_peer_info(w->node[i].c, w->node[i].peers[k], &info);
			if (info.state != CAREFUL_PEER_UP)
				return false;
		}
	return true;
}

/* Opens sessions between all nodes; no group yet. */
static inline void world_begin(struct world *w)
{
	w->sim = sim_create();
	CHECK(w->sim);
	w->config.faults = w->faults;
	w->config.faults_count = w->faults_count;
	sim_begin(w->sim, &w->config);
	for (uint32_t i = 0; i < w->nodes; i++)
		world_start(w, i);
	for (uint32_t i = 0; i < w->nodes; i++)
		world_connect(w, i);
	for (int i = 0; i < 1000000 && !world_connected(w); i++)
		world_step(w);
	CHECK(world_connected(w));
}

static inline void world_join_all(struct world *w)
{
	for (uint32_t i = 0; i < w->nodes; i++)
		world_join(w, i, w->nodes);
}

static inline void world_kill(struct world *w, uint32_t port)
{
	sim_kill(w->node[port].c->queue);
	careful_close(w->node[port].c);
	w->node[port].c = NULL;
	w->node[port].ev = NULL;
}

static inline void world_end(struct world *w)
{
	for (uint32_t i = 0; i < w->nodes; i++)
		if (w->node[i].c)
			careful_close(w->node[i].c);
	sim_destroy(w->sim);
}

/* The state of a node's program. */
struct program {
	uint64_t event;
	uint32_t fragment, got;
	int rc;
	bool over;
};

typedef bool program_fn(struct world *w, uint32_t rank, struct program *program);

/* Runs a program at each node until all end. Returns false after the time limit. */
static inline bool world_play(struct world *w, program_fn *run, struct program *programs, double ms)
{
	uint64_t until_ns = world_now_ns(w) + (uint64_t)(ms * 1e6);
	bool over = false;

	while (!over && world_now_ns(w) < until_ns) {
		over = true;
		for (uint32_t i = 0; i < w->nodes; i++) {
			if (!programs[i].over && w->node[i].c && !w->node[i].stopped)
				programs[i].over = run(w, i, &programs[i]);
			over = over && (programs[i].over || !w->node[i].c || w->node[i].stopped);
		}
		world_step(w);
	}
	return over;
}

/* Sends; while that is not possible, the world runs. */
static inline int world_send(struct world *w, uint32_t rank, uint32_t dst, uint64_t event,
			     const void *data, uint32_t bytes, uint32_t flags)
{
	uint64_t until_ns = world_now_ns(w) + 10000 * world_ms;
	int rc;

	while ((rc = careful_event_send(w->node[rank].ev, dst, event, data, bytes, flags, 0)) ==
		       -EAGAIN &&
	       world_now_ns(w) < until_ns)
		world_step(w);
	return rc;
}

static inline int world_receive(struct world *w, uint32_t rank, uint32_t src, uint64_t event,
				struct careful_event_fragment *fragment)
{
	uint64_t until_ns = world_now_ns(w) + 10000 * world_ms;
	int rc;

	while ((rc = careful_event_receive(w->node[rank].ev, src, event, fragment, 0)) == -EAGAIN &&
	       world_now_ns(w) < until_ns)
		world_step(w);
	return rc;
}

static inline uint64_t world_count(const struct world *w, enum careful_counter counter)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < w->nodes; i++)
		sum += w->node[i].c ? w->node[i].c->link.counters[counter] : 0;
	return sum;
}

#endif /* SIM_EVENT_WORLD_H */
