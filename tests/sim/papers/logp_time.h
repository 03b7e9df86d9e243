/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * P4's microbenchmark in virtual time. A frame occupies processors, network interfaces and the wire
 * as long as on P4's machines. Node 0 makes signatures with carefuld's code; the others answer or
 * flood.
 */
#ifndef SIM_LOGP_TIME_H
#define SIM_LOGP_TIME_H

#include "event_world.h"
#include "measure/signature.h"

/*
 * A machine of P4. Times in ns, per byte in ps.
 *
 * @o_s, @o_r, @g, @L: of a small message
 * @bulk_g: between two bulk transfers of any length
 * @out_ps, @in_ps: processor time per byte of a bulk transfer, sent or received
 * @wire_ps: network time per byte
 */
struct logp_machine {
	const char *name;
	uint32_t o_s, o_r, g, L;
	uint32_t bulk_g, out_ps, in_ps, wire_ps;
};

enum logp_kind { LOGP_REQUEST, LOGP_STORE, LOGP_GET };

/* Senders and receivers while node 0 makes its signature. */
enum logp_pattern {
	LOGP_ONE_TO_ONE,
	LOGP_HALF_TO_HALF, /* K pairs */
	LOGP_ONE_TO_MANY, /* node 0 to K others in turn */
	LOGP_MANY_TO_ONE, /* K senders, one is node 0 */
	LOGP_PATTERNS,
};

struct logp_setting {
	const struct logp_machine *machine;
	enum logp_kind kind;
	uint32_t bytes;
	enum logp_pattern pattern;
	uint32_t K;
};

/* A signature as P4 reads it, us. @trip: time of one message or transfer. */
struct logp_found {
	double o_s, o_r, g, L, trip;
};

enum { LOGP_COSTS_MAX = 64, LOGP_MESSAGES = 1024 };

/* The cost per message at each burst size, us. @compute: the pause before each message */
struct logp_curve {
	double compute;
	uint32_t count;
	uint32_t messages[LOGP_COSTS_MAX];
	double cost[LOGP_COSTS_MAX];
};

void logp_open(const struct logp_setting *setting);
void logp_close(void);
/* Returns the curve for a pause of this many us. */
void logp_curve(double compute, struct logp_curve *curve);
/* Returns all figures of the open world. */
void logp_read(struct logp_found *found);

#endif /* SIM_LOGP_TIME_H */
