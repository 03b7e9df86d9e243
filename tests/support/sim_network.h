/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The virtual network of hand-made clusters: fast wires, and frames of one small buffer.
 */
#ifndef CAREFUL_TESTS_SIM_NETWORK_H
#define CAREFUL_TESTS_SIM_NETWORK_H

#include "device/sim.h"

static inline struct sim_shape sim_small_frames(void)
{
	return (struct sim_shape){
		.chunk_bytes = 1024,
		.buffer_bytes = 896,
		.segments_max = 1,
		.frame_bytes = 896,
	};
}

static inline struct sim_config sim_fast_wires(uint64_t seed)
{
	return (struct sim_config){
		.seed = seed,
		.wire_g_ns = 500,
		.wire_G_ps_per_byte = 800,
		.wire_delay_ns = 1000,
		.ctrl_delay_ns = 20000,
		.admit_ns = 1000,
	};
}

#endif /* CAREFUL_TESTS_SIM_NETWORK_H */
