/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A cluster of engines on one virtual network, in one process and one thread.
 * A seed makes the cluster (scenario.c), and cluster.c runs it. The requests of its nodes are in
 * work.c. The rules that hold all the time, and at the end, are in invariants.c.
 */
#ifndef SIM_CLUSTER_H
#define SIM_CLUSTER_H

#include <careful/event.h>

#include "device/sim.h"
#include "files.h"
#include "engine/engine.h"

enum {
	NODES_DRAWN = 3, /* whose random numbers are apart */
	NODES_MAX = 5, /* with those that are more addresses of one who lies */
	OPS_MAX = 24,
	FAULTS_MAX = 10,
	OP_BYTES_MAX = 12000,
	LATE_MAX = 256, /* of a node: a liar's is asked again in each of many epochs */
	HITS_MAX = 256, /* of a fault, that a schedule can list */
	ATTEMPTS = 16, /* of each operation, whose runs are counted apart */
	POISON = 0xee, /* where nothing was placed yet */
	GUARD_BYTES = 64, /* of it, behind each target */
	STALL_MS = 2000, /* silence before a peer counts as gone */
	LIES_MS = 1200, /* when lies end: SIM_START and 200 ms */
	SYNC_MS = 200,
	TWICE_MS = 20, /* between two of its answers that count (sync.c) */
};

/* Faults that are the node's, not the network's: of node `to`. */
enum cluster_fault_kind {
	FAULT_KILL = SIM_FAULT_KINDS, /* SIGKILL; begins again at its end */
	FAULT_RESTART, /* it says BYE and ends; begins again likewise */
	FAULT_CLOSE, /* it closes its sessions, once: between rounds, or (amount is even) in a callback */
	FAULT_STALL, /* its process does not run */
	FAULT_KEEP, /* its handlers keep what they are given until the end */
	FAULT_TUNE, /* its tune map is rewritten before every round */
	FAULT_KINDS,
};

/* Lies that keys can prove: messages, handshakes, sealed frames. */
enum lie_kind { LIE_CONTROL, LIE_HANDSHAKE, LIE_SEALED, LIES_PROVED };

/* More that one who lies does than to say what is not so. */
enum misdeed {
	MISDEED_FLAPS, /* it ends its sessions, again and again */
	MISDEED_TRAINS, /* it asks for the longest trains, again and again */
	MISDEED_SILENT, /* nothing that it sends leaves, for a while */
	MISDEED_LATE, /* its answers to requests come late */
	MISDEED_ADDRESSES, /* it asks from another address, all the time, */
	MISDEED_FAMILIES, /* and from one of the other family */
	MISDEED_GAPS, /* it asks again for frames that it has */
	MISDEED_UNSENT, /* it asks for frames that were never sent */
	MISDEED_ENDLESS, /* it asks again for all frames of the log, without end */
	MISDEED_MUTE, /* it leaves out frames, and never sends one again */
	MISDEEDS,
};

/* Losses and duplications that have a name of their own. */
enum special {
	SPECIAL_NONE,
	SPECIAL_PARTITION_ONE_WAY, /* nothing passes from one port to another */
	SPECIAL_PARTITION, /* nothing passes */
	SPECIAL_UPDATE_LOST, /* window updates alone are */
	SPECIAL_UPDATE_TWICE,
	SPECIALS,
};

/* Deliberate faults in the bounds of clients: what keeps OPENs from taking all operations, and what
 * closes the handles of a client that has gone. */
enum clients_fault { CLIENTS_FLOOD = 1, CLIENTS_UNBOUNDED = 2, CLIENTS_LEFT_OPEN = 4 };

/* Counts of programs: questions, ends of handles among them apart, tasks of those that flood and of
 * the one next to them, questions that were refused, and programs that were killed. */
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
 * Something that one node asks of another until it succeeds.
 *
 * @from_file, @to_file: the source, the target is a file
 * @pool_at:    where its bytes are in the pool
 * @reply_bytes, @reply_ns: request: of the answer, and how long it is kept; 0: at once
 * @asked_bytes, answered_bytes: request: of its payload and its reply's, at this attempt
 * @ran:        times that its handler ran, of each attempt
 * @lives:      of both nodes, at this attempt
 */
struct op {
	struct cluster *cluster;
	uint32_t index;
	uint8_t from, to, kind;
	bool from_file, to_file, digest;
	bool silent; /* request: no answer is wanted */
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

/* An answer that waits, and the request that it keeps. */
struct late {
	struct op *op;
	uint32_t attempt;
	uint64_t at_ns;
	struct careful_kept *kept;
	uint32_t bytes; /* of that */
	struct careful_reply_to to;
};

/*
 * A node's part in the group of all.
 *
 * @ev:       NULL: it takes none now, until again_ns
 * @done:     it has played the program to its end
 * @event, @at, @said, @heard, @large: of its program: bytes of its message that have left, whether
 *            all have, whether all that is for it came, in pieces
 * @got:      bytes of each node's message
 * @over, @failed, @status: it is to be closed, for what
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
	/* Pings: how many were sent, the one under way, whether its answer may be a lie, when the
	 * next is due. */
	uint32_t probes, stage;
	bool probing, distrusted;
	uint64_t ping_ns, misdeed_ns, endless_ns;
	struct last_sent sent[NODES_MAX];
	struct group_part part;
};

/*
 * A seed, and what remains of its scenario after a schedule is cut down.
 *
 * @protocols: of each node, enum careful_protocol, where not that of the options
 * @keyed:     nodes that have keys, a bit each, @wrong_keys: of which others know another
 * @seal:      how frames of nodes with keys are sealed; NULL: not
 * @seal_except: nodes that do not, a bit each
 * @old_keys:  before each key that is trusted stands one that its host has no longer
 * @hostile:   nodes that say what is not so, a bit each: nothing is promised to whom they ask
 * @misdeeds:  what these do beside that, a bit each
 * @lies_end_ns: when both end
 * @frozen_files: of each node, a bit each, whose disk takes nothing before @thaw_ns
 * @pings:     pings go beside the work
 * @group:     all nodes have events beside the work
 * @clients:   programs flood carefuld beside the work, enum clients_fault
 * @excused:   some fault in it makes operations fail, also between those who do not lie
 * @damage:    some fault in it damages payload
 * @plan_bytes: of each fragment; 0: what the engine begins with
 * @minpulse_bytes: with a plan, of each sink; NULL likewise
 * @on_round:  where not NULL, told after each round of a node
 * @healed_ns: when the last fault is over
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

/* The rest of a scenario. @hits: those of a fault, if only_hits is set. */
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
	uint32_t protocol; /* enum careful_protocol, of what seeds make */
	bool hostile; /* in what seeds make, one of three lies, */
	bool unpacked; /* or no two messages share a frame */
	uint64_t unlike; /* what who lies proved once more, untouched, and got another proof */
	bool proves_all; /* and tells no lie that its keys could have proved and do not */
	uint64_t draws, lies, lies_proved[LIES_PROVED]; /* of who lies: by its keys, of each kind */
	uint64_t misdeeds[MISDEEDS]; /* how often each was done */
	uint8_t *targets; /* OPS_MAX places of OP_BYTES_MAX, each with a guard */
	uint32_t requests[NODES_MAX][NODES_MAX]; /* how many the one asked of the other, */
	uint32_t handled[NODES_MAX][NODES_MAX]; /* and the last that its handler ran for */
	uint32_t ops_done;
	uint64_t steps;
	uint64_t done_ns;
	uint64_t hit_ns, broken_ns; /* when a fault first hit, when a session first broke; or 0 */
	uint64_t counters[CAREFUL_COUNTERS]; /* of all nodes, at the end */
	uint32_t epochs; /* likewise, that were opened */
	uint32_t met; /* likewise, processes that were met in the slots of peers */
	uint64_t polls;
	uint64_t pings[CAREFUL_STAGE_STORE + 1]; /* probes answered, by where they ended */
	uint64_t clients_done[CLIENTS_COUNTS]; /* by programs that flood */
	bool trace; /* print what passes the network, */
	bool digests; /* or make a number of it all */
	uint64_t digest;
	struct cut seen; /* what the faults hit */
};

/* scenario.c */
/* Programs flood carefuld; the engine has as much room as carefuld's. */
void clients_make(struct scenario *s);
/* @hostile: of three nodes one lies. */
void scenario_make(struct scenario *s, uint64_t seed, bool faults, bool hostile, bool unpacked);
/* Leaves out what the cut does; the lists of hits stay the cut's. */
void scenario_cut(struct scenario *s, const struct cut *cut);

/* hostile.c */
/* This node lies until then, and is killed; there is room for a fault. */
void hostile_make(struct scenario *s, uint32_t port, uint32_t until_ms);
/* Reports whether the node lies now. */
bool hostile_still(const struct cluster *cluster, uint32_t port);

/* misdeeds.c */
const char *misdeeds_name(enum misdeed misdeed);
/* The node that lies, the third, does these, too. */
void misdeeds_make(struct scenario *s, uint32_t misdeeds);
/* Does what is due; returns when there is more to do. */
uint64_t misdeeds_run(struct node *node);
/* Returns by how much an answer is late. */
uint64_t misdeeds_late_ns(struct node *node);
/* Reports whether nothing that a node sends leaves now. */
bool misdeeds_silent(struct cluster *cluster);
/* Reports whether the node leaves out this frame: one of some, and each that it sends again. */
bool misdeeds_mute(struct node *node, uint32_t to, const void *frame, uint32_t bytes);
/* Returns the node whose host a node is: one more address has no host of its own. */
uint32_t misdeeds_owner(const struct scenario *s, uint32_t port);

/* names.c */
const char *scenario_fault_name(uint32_t kind);
enum special scenario_special(const struct sim_fault *fault);
const char *scenario_special_name(enum special special);

/* cluster.c */
struct cluster *cluster_create(void);
void cluster_destroy(struct cluster *cluster);
/* Runs cluster->scenario to its end. NULL: all is well; else what was violated. */
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
/* Does what is due; when there is more to do. */
uint64_t work_run(struct node *node);

/* keys.c */
void keys_open(struct node *node);

/* pings.c */
void pings_open(struct node *node);
/* Sends a ping if one is due; when the next is. */
uint64_t pings_run(struct node *node);

/* groups.c */
void groups_open(struct node *node);
void groups_close(struct node *node);
/* Goes on with a node's part; when it is to be looked at again without a frame. */
uint64_t groups_run(struct node *node);
/* Reports whether all have played it to the end, and nobody plays. */
bool groups_over(const struct cluster *cluster);

/* clients.c */
void clients_begin(struct cluster *cluster);
void clients_end(struct cluster *cluster);
/* Runs a node's part; returns when there is more to do. */
uint64_t clients_run(struct node *node);
/* Reports whether all programs are through, and nothing that they held is left. */
bool clients_over(struct cluster *cluster);
/* Says why they are not. */
void clients_stuck(struct cluster *cluster);

/* carefuld.c */
void carefuld_open(struct node *node);
/* After careful_close(). */
void carefuld_close(const struct node *node);

/* invariants.c */
void check_node(struct node *node);
void check_end(struct cluster *cluster);

/* Reports whether a node lies, or whom it knows in this slot. */
static inline bool peer_distrusted(const struct node *node, uint32_t slot)
{
	const struct link_peer *peer = &node->c->link.peers[slot];
	uint32_t port = sim_port(node->cluster->world, &peer->session->address);
	uint32_t hostile = node->cluster->scenario.hostile;

	return (hostile >> node->port | (port == SIM_ANY ? 0 : hostile >> port)) & 1;
}

/* Reports whether an operation is with a node that lies. */
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
