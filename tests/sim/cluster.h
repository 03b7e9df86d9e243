/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A cluster of engines on one virtual network, in one process and one thread:
 *  - scenario.c    makes the cluster from a seed
 *  - cluster.c     runs it
 *  - work.c        the nodes' requests
 *  - invariants.c  the rules, checked after each round and at the end
 */
#ifndef SIM_CLUSTER_H
#define SIM_CLUSTER_H

#include <careful/event.h>

#include "device/sim.h"
#include "files.h"
#include "engine/engine.h"

enum {
	NODES_DRAWN = 3, /* nodes with their own random numbers */
	NODES_MAX = 5, /* with the further addresses of a lying node */
	OPS_MAX = 24,
	FAULTS_MAX = 10,
	OP_BYTES_MAX = 12000,
	LATE_MAX = 256, /* late answers of a node; a liar's request is repeated in many epochs */
	HITS_MAX = 256, /* hits of a fault that a schedule can list */
	ATTEMPTS = 16, /* attempts of an operation that are counted separately */
	POISON = 0xee, /* fill of memory that no message has reached */
	GUARD_BYTES = 64, /* of POISON, behind each target */
	STALL_MS = 2000, /* silence before a peer counts as gone */
	LIES_MS = 1200, /* when lies end: 200 ms after SIM_START */
	SYNC_MS = 200,
	TWICE_MS = 20, /* between two SYNC answers that count (sync.c) */
};

/* Faults of node `to`, not of the network. */
enum cluster_fault_kind {
	FAULT_KILL = SIM_FAULT_KINDS, /* SIGKILL; the node restarts when the fault ends */
	FAULT_RESTART, /* it sends BYE and exits; restarts likewise */
	FAULT_CLOSE, /* it closes its sessions, once: between rounds, or (amount is even) in a callback */
	FAULT_STALL, /* its process does not run */
	FAULT_KEEP, /* its handlers keep their messages until the fault ends */
	FAULT_TUNE, /* its tune map is rewritten before every round */
	FAULT_KINDS,
};

/* Lies that keys can prove: messages, handshakes, sealed frames. */
enum lie_kind { LIE_CONTROL, LIE_HANDSHAKE, LIE_SEALED, LIES_PROVED };

/* Misdeeds of a lying node, besides false fields. */
enum misdeed {
	MISDEED_FLAPS, /* it ends its sessions, again and again */
	MISDEED_TRAINS, /* it asks for the longest trains, again and again */
	MISDEED_SILENT, /* its messages are held back for a while */
	MISDEED_LATE, /* it answers requests late */
	MISDEED_ADDRESSES, /* it asks from another address again and again */
	MISDEED_FAMILIES, /* likewise, from addresses of the other family */
	MISDEED_GAPS, /* it asks again for frames that it has */
	MISDEED_UNSENT, /* it asks for frames that were never sent */
	MISDEED_ENDLESS, /* it asks again for all frames of the log, without end */
	MISDEED_MUTE, /* it skips frames and sends no repairs */
	MISDEEDS,
};

/* Losses and duplications with special names. */
enum special {
	SPECIAL_NONE,
	SPECIAL_PARTITION_ONE_WAY, /* nothing passes from one port to another */
	SPECIAL_PARTITION, /* nothing passes */
	SPECIAL_UPDATE_LOST, /* only window updates are lost */
	SPECIAL_UPDATE_TWICE,
	SPECIALS,
};

/* Floods, and deliberate bugs: OPENs can take all operations; handles of a closed client stay
 * open. */
enum clients_fault { CLIENTS_FLOOD = 1, CLIENTS_UNBOUNDED = 2, CLIENTS_LEFT_OPEN = 4 };

/* Counts: questions, CLOSEs among them, tasks of flooding programs, tasks of the third program,
 *   refused questions, killed programs. */
enum clients_count {
	CLIENTS_ASKED,
	CLIENTS_ENDS,
	CLIENTS_TASKS,
	CLIENTS_BESIDE,
	CLIENTS_REFUSED,
	CLIENTS_KILLED,
	CLIENTS_COUNTS,
};

enum op_kind { OP_REQUEST, OP_STORE, OP_GET, OP_KINDS };
enum op_state { OP_WAITS, OP_RUNS, OP_DONE };

/*
 * An operation that one node asks of another until it succeeds.
 *
 * @from_file, @to_file: the source, the target is a file, else memory
 * @pool_at: offset of its bytes in the pool
 * @reply_bytes, @reply_ns: of a request's answer: its size and delay
 * @asked_bytes, answered_bytes: of a request and its reply, at this attempt
 * @ran: times that its handler ran, by attempt
 * @lives: lives of both nodes at this attempt
 */
struct op {
	struct cluster *cluster;
	uint32_t index;
	uint8_t from, to, kind;
	bool from_file, to_file, digest;
	bool silent; /* a request without an answer */
	uint32_t bytes;
	uint32_t pool_at;
	uint32_t reply_bytes;
	uint64_t reply_ns;
	uint64_t at_ns;

	uint8_t state;
	uint32_t attempt;
	uint32_t asked_bytes, answered_bytes;
	uint8_t ran[ATTEMPTS];
	uint32_t lives[2];
	uint64_t again_ns, done_ns;
	uint32_t key, key_life;
	uint8_t *target;
	int last_status;
};

/* The newest frame that a node sent to another: its epoch and number. */
struct last_sent {
	__be64 cookie;
	uint32_t seq;
};

/* A delayed answer, and the request that it keeps. */
struct late {
	struct op *op;
	uint32_t attempt;
	uint64_t at_ns;
	struct careful_kept *kept;
	uint32_t bytes; /* of the request */
	struct careful_reply_to to;
};

/*
 * A node's membership in the group of all nodes.
 *
 * @ev: NULL: not a member until again_ns
 * @done: its program has ended
 * @event, @at, @said, @heard, @large: progress of its program: bytes sent of its message; whether
 *   all are sent, whether all have come; whether in several pieces
 * @got: bytes received of each node's message
 * @over, @failed, @status: it must close, and why
 */
struct group_part {
	struct careful_events *ev;
	uint64_t event, again_ns;
	uint32_t at;
	bool done, said, heard, large, over, failed;
	uint32_t got[NODES_MAX];
	int status;
};

struct node {
	struct cluster *cluster;
	uint32_t port;
	uint32_t life;
	struct careful *c; /* NULL: dead */
	struct files files;
	uint64_t wake_ns, polled_ns;
	uint32_t idle_polls;
	bool closing; /* its next callback closes its sessions */
	uint32_t tunes;
	int peer[NODES_MAX];
	uint64_t asked_ns[NODES_MAX];
	struct late late[LATE_MAX];
	uint32_t late_count;
	/* Pings: count, stage of the one under way, whether its answer may be a lie, time of the
	 *   next. */
	uint32_t probes, stage;
	bool probing, distrusted;
	uint64_t ping_ns, misdeed_ns, endless_ns;
	struct last_sent sent[NODES_MAX];
	struct group_part part;
};

/*
 * A scenario, made from a seed and perhaps cut down.
 *
 * @protocols: enum careful_protocol of each node; 0: that of the options
 * @keyed: bit mask of nodes with keys; @wrong_keys: of nodes whose keys others know wrongly
 * @seal: how nodes with keys seal frames; NULL: they do not
 * @seal_except: bit mask of nodes that do not seal
 * @old_keys: an old key precedes each trusted key
 * @hostile: bit mask of lying nodes; nothing is promised to their peers
 * @misdeeds: bit mask of what lying nodes also do
 * @lies_end_ns: when lies and misdeeds end
 * @frozen_files: bit mask of nodes whose disk hangs until @thaw_ns
 * @pings: nodes also send pings
 * @group: all nodes also send events
 * @clients: enum clients_fault: programs also flood carefuld
 * @excused: a fault makes operations fail, also between honest nodes
 * @damage: a fault damages payload
 * @plan_bytes: of each fragment; 0: the engine's default
 * @minpulse_bytes: of each sink, with a plan; NULL: the default
 * @on_round: called after each round of a node
 * @healed_ns: when the last fault ends
 */
struct scenario {
	uint64_t seed;
	uint32_t nodes;
	struct sim_config config;
	struct sim_shape shape;
	struct careful_options options;
	uint32_t protocols[NODES_MAX];
	uint32_t keyed, wrong_keys;
	const char *seal;
	uint32_t seal_except;
	bool old_keys;
	struct engine_limits limits;
	uint64_t files_delay_ns;
	uint32_t hostile, misdeeds;
	uint64_t lies_end_ns;
	uint64_t frozen_files, thaw_ns;
	uint64_t poll_ns;
	uint32_t plan_bytes;
	const uint32_t *minpulse_bytes;
	void (*on_round)(struct node *node);
	struct sim_fault faults[FAULTS_MAX];
	uint32_t faults_count;
	struct op ops[OPS_MAX];
	uint32_t ops_count;
	uint32_t ops_left_out; /* a bit each */
	bool pings, group;
	uint32_t clients;
	bool excused, damage;
	uint64_t healed_ns;
};

/* The parts that are cut from a scenario. @hits: hits of a fault that stay, if only_hits is set. */
struct cut {
	uint32_t ops_left_out, faults_left_out; /* a bit each */
	bool only_hits[FAULTS_MAX];
	uint32_t hits[FAULTS_MAX][HITS_MAX];
	uint32_t hits_count[FAULTS_MAX];
};

struct cluster {
	struct sim_world *world;
	struct scenario scenario;
	struct node nodes[NODES_MAX];
	uint32_t protocol; /* enum careful_protocol of scenarios made from seeds */
	bool hostile; /* in these, one of three nodes lies */
	bool unpacked; /* in these, no two messages share a frame */
	uint64_t unlike; /* unchanged messages that a liar proved again with another result */
	bool proves_all; /* a liar proves each lie that its keys can prove */
	uint64_t draws, lies, lies_proved[LIES_PROVED]; /* of liars; by kind of proof */
	uint64_t misdeeds[MISDEEDS]; /* counts of each */
	uint8_t *targets; /* OPS_MAX targets of OP_BYTES_MAX, each with a guard */
	uint32_t requests[NODES_MAX][NODES_MAX]; /* requests from one node to another */
	uint32_t handled[NODES_MAX][NODES_MAX]; /* the last request that the handler saw */
	uint32_t ops_done;
	uint64_t steps;
	uint64_t done_ns;
	uint64_t hit_ns, broken_ns; /* time of the first hit and of the first session's end, or 0 */
	uint64_t counters[CAREFUL_COUNTERS]; /* of all nodes, at the end */
	uint32_t epochs; /* likewise, epochs opened */
	uint32_t met; /* likewise, processes seen in the slots of peers */
	uint64_t polls;
	uint64_t pings[CAREFUL_STAGE_STORE + 1]; /* answered probes by stage */
	uint64_t clients_done[CLIENTS_COUNTS]; /* counts of flooding programs */
	bool trace; /* print each frame and message */
	bool digests; /* or compute a digest of all */
	uint64_t digest;
	struct cut seen; /* hits of the faults */
};

/* scenario.c */
/* Makes a scenario whose programs flood carefuld, with an engine of carefuld's size. */
void clients_make(struct scenario *s);
/* @hostile: one of three nodes lies. */
void scenario_make(struct scenario *s, uint64_t seed, bool faults, bool hostile, bool unpacked);
/* Applies the cut. Its lists of hits must outlive the scenario. */
void scenario_cut(struct scenario *s, const struct cut *cut);

/* hostile.c */
/* Makes this node lie until until_ms, when it is killed. Needs a free fault. */
void hostile_make(struct scenario *s, uint32_t port, uint32_t until_ms);
/* Reports whether the node lies now. */
bool hostile_still(const struct cluster *cluster, uint32_t port);

/* misdeeds.c */
const char *misdeeds_name(enum misdeed misdeed);
/* Adds misdeeds of the lying node, the third. */
void misdeeds_make(struct scenario *s, uint32_t misdeeds);
/* Does what is due. Returns the time at which there is more to do. */
uint64_t misdeeds_run(struct node *node);
/* Returns the delay of an answer. */
uint64_t misdeeds_late_ns(struct node *node);
/* Reports whether the lying node's messages are held back now. */
bool misdeeds_silent(struct cluster *cluster);
/* Reports whether the node skips this frame: some frames, and every repair. */
bool misdeeds_mute(struct node *node, uint32_t to, const void *frame, uint32_t bytes);
/* Returns the node that owns this node's host: further addresses share one host. */
uint32_t misdeeds_owner(const struct scenario *s, uint32_t port);

/* names.c */
const char *scenario_fault_name(uint32_t kind);
enum special scenario_special(const struct sim_fault *fault);
const char *scenario_special_name(enum special special);

/* cluster.c */
struct cluster *cluster_create(void);
void cluster_destroy(struct cluster *cluster);
/* Runs cluster->scenario. Returns NULL or the violated rule. */
const char *cluster_run(struct cluster *cluster);
bool cluster_fault_on(const struct cluster *cluster, uint32_t kind, uint32_t port,
		      struct sim_fault **fault);
void cluster_start(struct node *node);

/* trace.c */
void trace_pass(void *user, uint32_t from, uint32_t to, bool control, const void *message,
		uint32_t bytes, const char *what);
void trace_nodes(const struct cluster *cluster);

/* work.c */
void work_init(void);
void work_begin(struct cluster *cluster);
void work_open(struct node *node);
void work_close(struct node *node);
void work_close_peers(struct node *node);
/* Does what is due. Returns the time at which there is more to do. */
uint64_t work_run(struct node *node);

/* keys.c */
void keys_open(struct node *node);

/* pings.c */
void pings_open(struct node *node);
/* Sends a ping if one is due. Returns the time of the next ping. */
uint64_t pings_run(struct node *node);

/* groups.c */
void groups_open(struct node *node);
void groups_close(struct node *node);
/* Continues a node's program. Returns the time of the next call if no frame arrives. */
uint64_t groups_run(struct node *node);
/* Reports whether every node's program has ended. */
bool groups_over(const struct cluster *cluster);

/* clients.c */
void clients_begin(struct cluster *cluster);
void clients_end(struct cluster *cluster);
/* Runs a node's programs. Returns the time at which there is more to do. */
uint64_t clients_run(struct node *node);
/* Reports whether all programs have ended and released all they held. */
bool clients_over(struct cluster *cluster);
/* Explains why programs have not ended. */
void clients_stuck(struct cluster *cluster);

/* carefuld.c */
void carefuld_open(struct node *node);
/* Called after careful_close(). */
void carefuld_close(const struct node *node);

/* invariants.c */
void check_node(struct node *node);
void check_end(struct cluster *cluster);

/* Reports whether a node, or its peer in this slot, lies. */
static inline bool peer_distrusted(const struct node *node, uint32_t slot)
{
	const struct link_peer *peer = &node->c->link.peers[slot];
	uint32_t port = sim_port(node->cluster->world, &peer->session->address);
	uint32_t hostile = node->cluster->scenario.hostile;

	return (hostile >> node->port | (port == SIM_ANY ? 0 : hostile >> port)) & 1;
}

/* Reports whether either node of an operation lies. */
static inline bool op_distrusted(const struct op *op)
{
	return (op->cluster->scenario.hostile >> op->from |
		op->cluster->scenario.hostile >> op->to) &
	       1;
}

static inline uint64_t cluster_random(const struct scenario *s, uint64_t stream, uint64_t index)
{
	return sim_hash(s->seed, stream, index);
}

#endif /* SIM_CLUSTER_H */
