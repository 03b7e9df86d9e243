// SPDX-License-Identifier: BSD-2-Clause
/* Names of a scenario's faults, for people. */
#include "cluster.h"

const char *scenario_fault_name(uint32_t kind)
{
	static const char *const names[FAULT_KINDS] = {
		[SIM_LOSS] = "loss",
		[SIM_DUPLICATE] = "duplication",
		[SIM_REORDER] = "reordering",
		[SIM_CORRUPT] = "corruption",
		[SIM_TRUNCATE] = "truncation",
		[SIM_DELAY] = "delay",
		[SIM_CLOG] = "clogging",
		[SIM_TX_FULL] = "TX ring full",
		[SIM_FILL_EMPTY] = "fill ring empty",
		[SIM_LINK_DOWN] = "link down",
		[SIM_UNRESOLVED] = "neighbour unknown",
		[SIM_MTU] = "MTU change",
		[SIM_CLOCK] = "clock jump ahead",
		[SIM_STRANGER] = "stranger's frames and messages",
		[SIM_REPLAY] = "replay",
		[FAULT_KILL] = "SIGKILL and restart",
		[FAULT_RESTART] = "end and restart",
		[FAULT_CLOSE] = "sessions closed",
		[FAULT_STALL] = "stopped process",
		[FAULT_KEEP] = "handlers that keep everything",
		[FAULT_TUNE] = "tune map rewritten",
	};

	return names[kind];
}

/* Returns the special case that a fault is. */
enum special scenario_special(const struct sim_fault *fault)
{
	bool all = fault->what == SIM_ALL && fault->one_in == 1;

	if (fault->kind == SIM_LOSS && all)
		return fault->from == SIM_ANY ? SPECIAL_PARTITION : SPECIAL_PARTITION_ONE_WAY;
	if (fault->what != SIM_UPDATES)
		return SPECIAL_NONE;
	return fault->kind == SIM_LOSS	    ? SPECIAL_UPDATE_LOST :
	       fault->kind == SIM_DUPLICATE ? SPECIAL_UPDATE_TWICE :
					      SPECIAL_NONE;
}

const char *scenario_special_name(enum special special)
{
	static const char *const names[SPECIALS] = {
		[SPECIAL_PARTITION_ONE_WAY] = "partition, one way",
		[SPECIAL_PARTITION] = "partition, both ways",
		[SPECIAL_UPDATE_LOST] = "lost update",
		[SPECIAL_UPDATE_TWICE] = "duplicated update",
	};

	return names[special];
}
