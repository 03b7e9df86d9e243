/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Clusters made by hand instead of from a seed: by default two nodes on a fast network.
 */
#ifndef CAREFUL_TESTS_SIM_H
#define CAREFUL_TESTS_SIM_H

#include <string.h>

#include "check.h"
#include "cluster.h"
#include "sim_network.h"

#define SIM_MS ((uint64_t)1000000)
#define SIM_START (1000 * SIM_MS) /* start of a world's time */

static struct cluster *cluster;
static struct scenario *scene;

static inline void sim_scene(uint64_t seed)
{
	scene = &cluster->scenario;
	memset(scene, 0, sizeof(*scene));
	scene->seed = seed;
	scene->nodes = 2;
	scene->shape = sim_small_frames();
	scene->options = (struct careful_options){
		.ifname = "sim",
		.peers = 2,
		.rx_buffers = 32,
		.tx_buffers = 32,
		.copyout_buffers = 32,
		.sync_ms = SYNC_MS,
		.stall_ms = STALL_MS,
	};
	scene->limits = (struct engine_limits){
		.operations = 32,
		.regions = 32,
		.messages = { .outs = OPS_MAX, .parked = 2 * OPS_MAX },
	};
	scene->config = sim_fast_wires(seed);
	scene->config.rx_g_ns = scene->config.tx_g_ns = 300;
	scene->poll_ns = 200;
}

/* Adds an operation of node `from` with the other node, at_ms after the start. */
static inline struct op *sim_op(uint32_t kind, uint32_t from, uint32_t bytes, double at_ms)
{
	struct op *op = &scene->ops[scene->ops_count];

	CHECK(scene->ops_count < OPS_MAX);
	*op = (struct op){
		.index = scene->ops_count++,
		.from = (uint8_t)from,
		.to = (uint8_t)!from,
		.kind = (uint8_t)kind,
		.digest = true,
		.bytes = bytes,
		.pool_at = 2 * 4321 * scene->ops_count + 1,
		.reply_bytes = 20,
		.at_ns = SIM_START + (uint64_t)(at_ms * 1e6),
	};
	return op;
}

static inline struct sim_fault *sim_fault(uint32_t kind, uint32_t from, uint32_t to, double at_ms,
					  double until_ms)
{
	struct sim_fault *fault = &scene->faults[scene->faults_count];

	CHECK(scene->faults_count < FAULTS_MAX);
	*fault = (struct sim_fault){
		.kind = (uint8_t)kind,
		.from = (uint8_t)from,
		.to = (uint8_t)to,
		.what = SIM_ALL,
		.one_in = 1,
		.amount = 1,
		.id = scene->faults_count++,
		.at_ns = SIM_START + (uint64_t)(at_ms * 1e6),
		.until_ns = SIM_START + (uint64_t)(until_ms * 1e6),
	};
	return fault;
}

/* Adds three kinds of bulk both ways, and requests, in two bursts, the second second_ms later. */
static inline void sim_transfer(uint64_t seed, double second_ms)
{
	sim_scene(seed);
	sim_op(OP_STORE, 0, 12000, 0)->to_file = true;
	sim_op(OP_GET, 0, 12000, 0)->from_file = true;
	sim_op(OP_REQUEST, 0, 300, 0);
	sim_op(OP_STORE, 1, 5000, 0);
	sim_op(OP_REQUEST, 1, 300, 0.5)->reply_ns = 5 * SIM_MS;
	sim_op(OP_GET, 1, 11000, second_ms);
	sim_op(OP_REQUEST, 0, 10, second_ms);
	scene->files_delay_ns = 20000;
}

/* Returns when the last operation ended. */
static inline uint64_t sim_last_done_ns(void)
{
	uint64_t last_ns = 0;

	for (uint32_t i = 0; i < scene->ops_count; i++)
		if (scene->ops[i].done_ns > last_ns)
			last_ns = scene->ops[i].done_ns;
	return last_ns;
}

/* Runs the cluster. Returns NULL if every invariant held and every operation succeeded in the
 * end. */
static inline const char *sim_play(void)
{
	static const struct cut all;

	scenario_cut(scene, &all);
	return cluster_run(cluster);
}

/* Runs the cluster; no operation may fail even on the way. */
static inline const char *sim_play_strictly(void)
{
	static const struct cut all;

	scenario_cut(scene, &all);
	scene->excused = false;
	return cluster_run(cluster);
}

#define EXPECT_WELL(played)                                                              \
	do {                                                                             \
		const char *expect_why = (played);                                       \
                                                                                         \
		if (expect_why) {                                                        \
			fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, __func__, \
				expect_why);                                             \
			exit(1);                                                         \
		}                                                                        \
	} while (0)

static inline void sim_init(void)
{
	cluster = cluster_create();
	CHECK(cluster);
	work_init();
}

#endif /* CAREFUL_TESTS_SIM_H */
