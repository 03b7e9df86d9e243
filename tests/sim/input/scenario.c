// SPDX-License-Identifier: BSD-2-Clause
/* Makes a cluster, its work and its faults from a seed, and decides what the faults excuse. */
#include "cluster.h"

#include <stddef.h>
#include <string.h>

enum {
	STREAM_SHAPE = 1,
	STREAM_OPS,
	STREAM_FAULTS,
	STREAM_PINGS,
	STREAM_TRAINS,
	STREAM_RESERVE,
	STREAM_DISKS,
	STREAM_KEYED,
	STREAM_GROUP,
	STREAM_PACKED,
	STREAM_MISDEEDS,
	STREAM_CLIENTS,
	MS = 1000 * 1000,
	BEGIN_MS = 1000, /* the world's start time */
};

struct dice {
	uint64_t seed, stream, index;
};

static uint64_t roll(struct dice *dice)
{
	return sim_hash(dice->seed, dice->stream, dice->index++);
}

/* Returns a number from 0 to n - 1. */
static uint32_t below(struct dice *dice, uint32_t n)
{
	return (uint32_t)(roll(dice) % n);
}

static bool one_in(struct dice *dice, uint32_t n)
{
	return below(dice, n) == 0;
}

/* Returns a number from least to most; all orders of magnitude are equally likely. */
static uint64_t spread(struct dice *dice, uint64_t least, uint64_t most)
{
	uint32_t bits = 63 - (uint32_t)__builtin_clzll(most / least);
	uint64_t low = least << below(dice, bits + 1);
	uint64_t value = low + roll(dice) % low;

	return value < most ? value : most;
}

static void make_shape(struct scenario *s, struct dice *dice)
{
	uint32_t chunk = 512u << below(dice, 3);
	uint32_t buffer = chunk - chunk / 8;
	uint32_t peers = s->nodes - 1 + one_in(dice, 4);
	uint32_t rx = 4;
	uint32_t window, frame;

	while (rx / peers < 4)
		rx *= 2;
	rx <<= below(dice, 4);
	window = rx / peers;
	frame = one_in(dice, 2) ? buffer : window_cost_max(window) * buffer;
	if (frame > 4 * buffer)
		frame = 4 * buffer;
	if (one_in(dice, 4))
		frame -= below(dice, frame / 4);
	s->shape = (struct sim_shape){
		.chunk_bytes = chunk,
		.buffer_bytes = buffer,
		.segments_max = frame > buffer ? 8 : 1,
		.frame_bytes = frame,
	};
	s->options = (struct careful_options){
		.ifname = "sim",
		.peers = peers,
		.rx_buffers = rx,
		.tx_buffers = 8u << below(dice, 3),
		.copyout_buffers = rx,
		.sync_ms = SYNC_MS,
		.stall_ms = STALL_MS,
	};
	s->limits = (struct engine_limits){
		.operations = 32,
		.regions = 32,
		.messages = { .outs = 1 + below(dice, 12), .parked = 4 * OPS_MAX },
	};
}

static void make_world(struct scenario *s, struct dice *dice)
{
	s->config = (struct sim_config){
		.seed = s->seed,
		.kick_frames = one_in(dice, 2) ? 0 : 1 + below(dice, 8),
		.zerocopy = one_in(dice, 2),
		.ipv6 = one_in(dice, 4),
		.wire_g_ns = (uint32_t)spread(dice, 10, 5000),
		.wire_G_ps_per_byte = (uint32_t)spread(dice, 10, 20000),
		.wire_delay_ns = spread(dice, 100, MS),
		.ctrl_delay_ns = spread(dice, 1000, MS),
		.admit_ns = spread(dice, 1000, 20 * MS),
		.rx_g_ns = (uint32_t)spread(dice, 10, 5000),
		.tx_g_ns = (uint32_t)spread(dice, 10, 5000),
	};
	s->files_delay_ns = one_in(dice, 2) ? 0 : spread(dice, 1000, MS);
	s->poll_ns = spread(dice, 100, 2000);
}

static void make_ops(struct scenario *s)
{
	struct dice dice = { s->seed, STREAM_OPS, 0 };

	s->ops_count = 1 + below(&dice, OPS_MAX);
	for (uint32_t i = 0; i < s->ops_count; i++) {
		struct op *op = &s->ops[i];

		memset(op, 0, sizeof(*op));
		op->index = i;
		op->from = (uint8_t)below(&dice, s->nodes);
		op->to = (uint8_t)((op->from + 1 + below(&dice, s->nodes - 1)) % s->nodes);
		op->kind = (uint8_t)below(&dice, OP_KINDS);
		op->from_file = one_in(&dice, 2);
		op->to_file = one_in(&dice, 2);
		op->digest = true;
		op->silent = op->kind == OP_REQUEST && one_in(&dice, 8);
		op->bytes = (uint32_t)spread(&dice, 1, OP_BYTES_MAX) - 1;
		op->pool_at = (uint32_t)roll(&dice);
		op->reply_bytes = (uint32_t)spread(&dice, 1, 2048) - 1;
		op->reply_ns = one_in(&dice, 2) ? 0 : spread(&dice, 1000, 20 * MS);
		op->at_ns = BEGIN_MS * (uint64_t)MS;
		if (!one_in(&dice, 4))
			op->at_ns += spread(&dice, 1000, 50 * MS);
	}
}

/* Some clusters measure bursts. In some of these, queues are too short for most windows, but long
 * enough for the least. */
static void make_trains(struct scenario *s)
{
	struct dice dice = { s->seed, STREAM_TRAINS, 0 };

	s->options.measure_burst = one_in(&dice, 4);
	if (!s->options.measure_burst || !one_in(&dice, 2))
		return;
	s->config.queue_frames = 24 + below(&dice, 40);
	s->config.queue_ns = (uint32_t)spread(&dice, 100, 20000);
}

/* Some clusters grant buffers and have smaller windows. */
static void make_reserve(struct scenario *s)
{
	struct dice dice = { s->seed, STREAM_RESERVE, 0 };
	uint32_t window = 4, most;

	if (!one_in(&dice, 3))
		return;
	while (window_cost_max(window) * s->shape.buffer_bytes < s->shape.frame_bytes)
		window++;
	if (s->options.rx_buffers < 64 && !s->config.queue_frames)
		s->options.rx_buffers *= 2;
	if (s->options.rx_buffers < s->options.peers * window)
		return;
	most = s->options.rx_buffers - s->options.peers * window;
	s->options.reserve = one_in(&dice, 2) ? most : below(&dice, most + 1);
}

/* Sets the copy-out pool; some disks hang for a while. */
static void make_disks(struct scenario *s)
{
	struct dice dice = { s->seed, STREAM_DISKS, 0 };

	s->limits.messages.copies = below(&dice, 6);
	if (!one_in(&dice, 3))
		return;
	s->frozen_files = roll(&dice);
	s->thaw_ns = BEGIN_MS * (uint64_t)MS + spread(&dice, MS, 300ull * MS);
}

static uint64_t fault_amount(uint32_t kind, struct dice *dice)
{
	switch (kind) {
	case SIM_CORRUPT:
		return spread(dice, 1, 32);
	case SIM_MTU:
		return 300 + below(dice, 2000);
	case SIM_CLOCK:
		return spread(dice, MS, 5000ull * MS);
	case SIM_STRANGER:
	case SIM_REPLAY:
		return spread(dice, 20000, 20 * MS);
	default:
		return spread(dice, 1000, 100 * MS);
	}
}

static void make_fault(struct scenario *s, struct sim_fault *fault, struct dice *dice)
{
	static const uint32_t rates[] = { 1, 2, 3, 10, 30, 100 };
	static const uint8_t what[] = { SIM_DATA, SIM_UPDATES, SIM_CONTROL, SIM_FRAMES, SIM_ALL };
	uint32_t kind = below(dice, FAULT_KINDS);
	uint64_t begin_ns = BEGIN_MS * (uint64_t)MS + spread(dice, 1000, 60 * MS);
	bool device = kind == SIM_TX_FULL || (kind >= SIM_LINK_DOWN && kind <= SIM_CLOCK) ||
		      kind >= SIM_FAULT_KINDS;
	uint64_t most_ns = one_in(dice, 10) ? 3000ull * MS : 400ull * MS;
	bool stranger = kind == SIM_STRANGER || kind == SIM_REPLAY;

	*fault = (struct sim_fault){
		.kind = (uint8_t)kind,
		.from = (uint8_t)below(dice, s->nodes),
		.what = what[below(dice, sizeof(what))],
		.one_in = rates[below(dice, sizeof(rates) / sizeof(rates[0]))],
		.at_ns = begin_ns,
		.until_ns = begin_ns + spread(dice, 10000, most_ns),
		.amount = fault_amount(kind, dice),
	};
	fault->to = (uint8_t)((fault->from + 1 + below(dice, s->nodes - 1)) % s->nodes);
	if (kind == SIM_FILL_EMPTY)
		fault->what = SIM_FRAMES;
	if (kind == SIM_LOSS && one_in(dice, 4))
		fault->what = SIM_ALL;
	if (stranger || (kind == SIM_LOSS && fault->what == SIM_ALL))
		fault->one_in = 1;
	if (!device && !stranger && one_in(dice, 3))
		fault->from = fault->to = SIM_ANY;
}

/* With keys, some replayed messages are changed. */
static void make_forger(const struct scenario *s, struct sim_fault *fault)
{
	uint64_t random = sim_hash(s->seed, STREAM_KEYED, 3 + fault->id);

	if (fault->kind != SIM_REPLAY || !s->keyed || random % 4 == 0)
		return;
	fault->forges = true;
	fault->what = s->seal && random % 4 > 1 ? SIM_FRAMES : SIM_CONTROL;
}

/* Makes mostly small requests at the same time, which share frames. */
static void make_packed(struct scenario *s, bool unpacked)
{
	struct dice dice = { s->seed, STREAM_PACKED, 0 };
	uint64_t each_ns = one_in(&dice, 3) ? 1 : spread(&dice, 1000, 20 * MS);

	s->options.unpacked = unpacked || one_in(&dice, 4);
	for (uint32_t i = 0; !s->options.unpacked && i < s->ops_count; i++)
		s->ops[i].at_ns -= (s->ops[i].at_ns - BEGIN_MS * (uint64_t)MS) % each_ns;
}

void clients_make(struct scenario *s)
{
	s->clients = CLIENTS_FLOOD;
	s->limits.operations = CAREFUL_OPERATIONS_MAX;
	s->limits.regions = CAREFUL_REGIONS_MAX;
	s->limits.messages.parked = CAREFUL_SMALL_MAX;
}

void scenario_make(struct scenario *s, uint64_t seed, bool faults, bool hostile, bool unpacked)
{
	struct dice dice = { seed, STREAM_SHAPE, 0 };

	memset(s, 0, offsetof(struct scenario, ops));
	s->seed = seed;
	s->nodes = one_in(&dice, 6) || hostile ? 3 : 2;
	make_shape(s, &dice);
	make_world(s, &dice);
	make_ops(s);
	make_trains(s);
	make_reserve(s);
	make_disks(s);
	make_packed(s, unpacked);
	s->keyed = sim_hash(seed, STREAM_KEYED, 0) % 4 ? 0 : (1u << s->nodes) - 1;
	if (s->keyed && sim_hash(seed, STREAM_KEYED, 1) % 2)
		s->seal = sim_hash(seed, STREAM_KEYED, 2) % 2 ? "encrypt" : "auth";
	s->pings = sim_hash(seed, STREAM_PINGS, 0) % 4 == 0;
	s->group = !hostile && sim_hash(seed, STREAM_GROUP, 0) % 4 == 0; /* ends with the lies */
	s->clients = 0;
	if (!hostile && sim_hash(seed, STREAM_CLIENTS, 0) % 512 == 0)
		clients_make(s);
	dice = (struct dice){ seed, STREAM_FAULTS, 0 };
	if (faults && !one_in(&dice, 4))
		s->faults_count = 1 + below(&dice, below(&dice, 4) ? 3 : FAULTS_MAX);
	for (uint32_t i = 0; i < s->faults_count; i++) {
		make_fault(s, &s->faults[i], &dice);
		s->faults[i].id = i;
		make_forger(s, &s->faults[i]);
	}
	if (hostile && s->faults_count == FAULTS_MAX)
		s->faults_count--;
	if (!hostile)
		return;
	/* With short queues, a node that lies about trains loses its own frames for tens of
	 * seconds. */
	s->config.queue_frames = 0;
	s->limits.messages.outs += s->options.peers; /* at least one for each */
	hostile_make(s, s->nodes - 1, LIES_MS);
	if (seed % 4 == 0) /* keeps the scenarios of earlier seeds */
		misdeeds_make(s, 1 + (uint32_t)(sim_hash(seed, STREAM_MISDEEDS, 0) %
						((1 << MISDEEDS) - 1)));
}

/* Reports whether a fault may make operations fail. Delays, repetitions and strangers may not,
 * since they lose nothing. Nor may temporary losses if the protocol repairs them. */
static bool excuses(const struct scenario *s, const struct sim_fault *fault)
{
	bool again = s->options.protocol == CAREFUL_PROTOCOL_TRADITIONAL;
	bool frames = fault->what & SIM_FRAMES;
	uint64_t long_ns = STALL_MS * (uint64_t)MS / 2;
	bool lasting = fault->until_ns - fault->at_ns >= long_ns;
	uint32_t window = (s->options.rx_buffers - s->options.reserve) / s->options.peers;

	if ((fault->kind == FAULT_KILL || fault->kind == FAULT_RESTART) &&
	    s->hostile >> fault->to & 1)
		return false; /* nothing is expected of it */
	switch (fault->kind) {
	case SIM_LOSS:
	case SIM_REORDER:
	case SIM_CORRUPT:
	case SIM_TRUNCATE:
		return (frames || fault->one_in == 1) && !again;
	case SIM_FILL_EMPTY:
		return !again;
	case SIM_UNRESOLVED: /* then the addresses of one host are unknown */
		return lasting || s->misdeeds;
	case SIM_TX_FULL:
	case FAULT_STALL:
	case FAULT_KEEP:
		return lasting;
	case SIM_DUPLICATE: /* a sealed session has a third more room than its window (seal.h) */
		return frames && s->seal && (fault->one_in <= 3 || window <= 8);
	case SIM_REPLAY: /* with a small window, this is one frame or none */
		return frames && s->seal && window <= 8;
	case SIM_CLOCK:
		return fault->amount >= long_ns;
	case SIM_DELAY: /* see set_excuses() */
	case SIM_CLOG:
	case SIM_STRANGER:
	case FAULT_TUNE:
		return false;
	default:
		return true;
	}
}

/* Returns how long a lossy fault may block everything. */
static uint64_t loses_ns(const struct sim_fault *fault)
{
	switch (fault->kind) {
	case SIM_LOSS:
	case SIM_REORDER:
	case SIM_CORRUPT:
	case SIM_TRUNCATE:
	case SIM_FILL_EMPTY:
	case SIM_TX_FULL:
		return fault->until_ns - fault->at_ns;
	default:
		return 0;
	}
}

/* Returns how long a fault delays frames. */
static uint64_t holds_ns(const struct sim_fault *fault)
{
	if (!(fault->what & SIM_FRAMES))
		return 0;
	return fault->kind == SIM_DELAY ? fault->amount :
	       fault->kind == SIM_CLOG	? fault->until_ns - fault->at_ns :
					  0;
}

static void set_excuses(struct scenario *s)
{
	bool clock = false, fills = false, stopped = false;
	uint64_t held_ns = 0, lost_ns = 0;

	s->excused = s->config.queue_frames; /* it loses frames and delays none */
	s->damage = false;
	s->healed_ns = BEGIN_MS * (uint64_t)MS;
	for (uint32_t i = 0; i < s->faults_count; i++) {
		const struct sim_fault *fault = &s->faults[i];

		s->excused |= excuses(s, fault);
		lost_ns += loses_ns(fault);
		clock |= fault->kind == SIM_CLOCK;
		fills |= fault->forges || (fault->kind == SIM_REPLAY && s->seal);
		stopped |= fault->kind == FAULT_STALL;
		held_ns += holds_ns(fault);
		s->damage |= fault->kind == SIM_CORRUPT;
		if (fault->until_ns > s->healed_ns)
			s->healed_ns = fault->until_ns;
	}
	/* A frame that is delayed beyond two SYNC answers counts as lost. One such answer may
	 * already be under way. */
	s->excused |= held_ns >= TWICE_MS * (uint64_t)MS || (held_ns && clock);
	s->excused |= lost_ns >= STALL_MS / 2 * (uint64_t)MS || (lost_ns && clock);
	/* While a process is stopped, forged and replayed sealed frames use all room (seal.h). */
	s->excused |= fills && stopped;
	if (!s->damage)
		for (uint32_t i = 0; i < s->ops_count; i++)
			s->ops[i].digest = s->ops[i].pool_at & 1;
}

void scenario_cut(struct scenario *s, const struct cut *cut)
{
	uint32_t n = 0;

	s->ops_left_out = cut->ops_left_out;
	for (uint32_t i = 0; i < s->faults_count; i++) {
		uint32_t id = s->faults[i].id;

		if (cut->faults_left_out >> id & 1)
			continue;
		s->faults[n] = s->faults[i];
		if (cut->only_hits[id]) {
			s->faults[n].only = cut->hits[id];
			s->faults[n].only_count = cut->hits_count[id];
		}
		n++;
	}
	s->faults_count = n;
	set_excuses(s);
}
