// SPDX-License-Identifier: BSD-2-Clause
/*
 * Runs a cluster. Nodes wake like a blocking process, poll until nothing moves, and sleep. Time
 * stands still while work is due.
 */
#include "cluster.h"

#include <stdlib.h>
#include <string.h>

enum {
	SLICE_NS = 20 * 1000 * 1000, /* longest sleep */
	AGAIN_NS = 1000 * 1000, /* the same while the device is busy */
	SLEPT_NS = 5000, /* after more time between two polls, the clock is read */
	IDLE_POLLS = 3, /* before going to sleep */
	TRAIN_NS = 2000, /* the same while a train is sent */
	QUIET_NS = 300 * 1000 * 1000, /* from the last operation to the final check */
	/* programs that poll in vain during a fault of seconds need many */
	STEPS_MAX = 10 * 1000 * 1000,
	STREAM_WAKE = 0x400,
};

/* From the last fault's end: time to notice a stall, give up a handshake, and begin another. */
static const uint64_t heal_ns = (STALL_MS + 5000 + 2000 + 3000) * 1000000ull;

struct cluster *cluster_create(void)
{
	struct cluster *cluster = calloc(1, sizeof(*cluster));

	if (!cluster)
		return NULL;
	cluster->world = sim_create();
	cluster->targets = calloc(OPS_MAX, OP_BYTES_MAX + GUARD_BYTES);
	if (!cluster->world || !cluster->targets) {
		cluster_destroy(cluster);
		return NULL;
	}
	return cluster;
}

void cluster_destroy(struct cluster *cluster)
{
	if (cluster->world)
		sim_destroy(cluster->world);
	free(cluster->targets);
	free(cluster);
}

bool cluster_fault_on(const struct cluster *cluster, uint32_t kind, uint32_t port,
		      struct sim_fault **found)
{
	uint64_t now_ns = sim_now_ns(cluster->world);

	for (uint32_t i = 0; i < cluster->scenario.config.faults_count; i++) {
		struct sim_fault *fault = &cluster->scenario.config.faults[i];

		if (fault->kind != kind || fault->to != port || now_ns < fault->at_ns ||
		    now_ns >= fault->until_ns)
			continue;
		if (found)
			*found = fault;
		return true;
	}
	return false;
}

/* Sets the scenario's plan for all later peers, if it has one. */
static void tune(struct node *node)
{
	const struct scenario *s = &node->cluster->scenario;
	struct port *port = node->c->port;
	struct careful_tune_entry *entry = port->ops->tune(port, CAREFUL_TUNE_DEFAULT);
	struct careful_class *classes = entry->version[0].classes;

	if (!s->plan_bytes)
		return;
	plan_default(entry, s->plan_bytes);
	for (uint32_t i = 0; s->minpulse_bytes && i < CAREFUL_CLASSES; i++)
		memcpy(classes[i].minpulse_bytes, s->minpulse_bytes,
		       sizeof(classes[i].minpulse_bytes));
}

void cluster_start(struct node *node)
{
	struct cluster *cluster = node->cluster;
	struct scenario *s = &cluster->scenario;
	struct engine_base base = { .storage = &node->files.storage, .limits = s->limits };
	struct careful_options options = s->options;
	struct careful_error error = { 0 };

	options.protocol |= s->protocols[node->port];
	if (options.protocol == CAREFUL_PROTOCOL_TRADITIONAL)
		options.reserve = 0; /* the traditional protocol grants no credits */
	if ((s->keyed & ~s->seal_except) >> node->port & 1)
		options.seal = s->seal;
	node->life++;
	files_init(&node->files, s->files_delay_ns);
	node->files.frozen = s->frozen_files;
	node->files.thaw_ns = s->thaw_ns;
	if (sim_open(cluster->world, node->port, node->life, &s->shape, &options, &base.queue,
		     &error) ||
	    engine_open(&options, &base, &node->c, &error)) {
		sim_fail(cluster->world, "node %u does not start: %s", node->port, error.text);
		node->c = NULL;
		return;
	}
	node->wake_ns = sim_now_ns(cluster->world);
	node->polled_ns = 0;
	node->idle_polls = 0;
	node->late_count = 0;
	tune(node);
	keys_open(node);
	work_open(node);
	pings_open(node);
	groups_open(node);
	carefuld_open(node);
}

static void count(struct node *node)
{
	struct careful_info info;

	careful_info(node->c, &info);
	for (uint32_t i = 0; i < CAREFUL_COUNTERS; i++)
		node->cluster->counters[i] += info.counters[i];
	for (uint32_t i = 0; i < node->c->link.peers_max; i++) {
		node->cluster->epochs += node->c->link.peers[i].session->epochs;
		node->cluster->met += link_lives(&node->c->link.peers[i]);
	}
}

static void stop(struct node *node)
{
	count(node);
	work_close(node);
	groups_close(node);
	careful_close(node->c);
	carefuld_close(node);
	node->c = NULL;
}

/* Ends and restarts the node as scheduled. Further addresses of a lying host do not come back. */
static void live_or_die(struct node *node)
{
	uint32_t owner = misdeeds_owner(&node->cluster->scenario, node->port);
	struct sim_fault *fault = NULL;

	if (!cluster_fault_on(node->cluster, FAULT_KILL, owner, &fault))
		cluster_fault_on(node->cluster, FAULT_RESTART, owner, &fault);
	if (fault && node->c) {
		fault->hits++;
		if (fault->kind == FAULT_KILL)
			sim_kill(node->c->queue);
		stop(node);
	} else if (!fault && !node->c && owner == node->port) {
		cluster_start(node);
	}
	if (fault)
		node->wake_ns = owner == node->port ? fault->until_ns : UINT64_MAX;
}

/* Writes other plans into the map like a controller: a spare version, then the index. */
static void rewrite_tune(struct node *node)
{
	struct scenario *s = &node->cluster->scenario;
	struct queue *queue = node->c->queue;

	for (uint32_t slot = 0; slot < s->options.peers; slot++) {
		struct careful_tune_entry *entry = queue->port->ops->tune(queue->port, slot);
		uint64_t random = cluster_random(s, 0x500 + node->port, node->tunes++);
		uint32_t spare = (entry->active + 1) % CAREFUL_TUNE_VERSIONS;
		struct careful_tune *tune = &entry->version[spare];

		for (uint32_t i = 0; i < CAREFUL_CLASSES; i++)
			tune->classes[i].plan = (struct careful_plan){
				.first_bytes = (uint32_t)random % 2048,
				.ratio_q16 = random % 3 ? 65536 : (uint32_t)(random >> 20) % 200000,
				.step_bytes = random % 5 ? 0 : (uint32_t)(random >> 32) % 300,
				.peak_bytes = (uint32_t)(random >> 24) % 4096,
				.down_ratio_q16 = (uint32_t)(random >> 28) % 100000,
			};
		for (uint32_t i = 0; i < CAREFUL_CLASSES * CAREFUL_SINKS; i++)
			tune->classes[i / CAREFUL_SINKS].minpulse_bytes[i % CAREFUL_SINKS] =
				(uint32_t)(random >> (8 + i % 24)) % 8192;
		__atomic_store_n(&entry->active, spare, __ATOMIC_RELEASE);
	}
}

/* Returns the longest sleep of a node. The traditional protocol asks sooner. */
static uint64_t slice_ns(const struct node *node)
{
	const struct link *link = &node->c->link;
	uint32_t most_ms = SLICE_NS / 1000000;

	return link->traditional || link->repairs ? link_timeout_ms(link, most_ms) * 1000000ull :
						    SLICE_NS;
}

/* Returns the time of the engine's next poll, after a poll that handled this many frames. */
static uint64_t next_wake(struct node *node, uint64_t free_ns, int handled)
{
	struct cluster *cluster = node->cluster;
	uint64_t now_ns = sim_now_ns(cluster->world);
	uint64_t due_ns = files_next_ns(&node->files);

	node->idle_polls = handled ? 0 : node->idle_polls + 1;
	if (node->idle_polls < IDLE_POLLS || sim_frames_waiting(node->c->queue))
		return free_ns;
	if (node->c->link.trains) /* then no engine sleeps (round_untold()) */
		return free_ns > now_ns + TRAIN_NS ? free_ns : now_ns + TRAIN_NS;
	if (link_timeout_ms(&node->c->link, 2) < 2 && due_ns > now_ns + AGAIN_NS)
		due_ns = now_ns + AGAIN_NS;
	if (due_ns > now_ns + slice_ns(node))
		due_ns = now_ns + slice_ns(node);
	return due_ns > free_ns ? due_ns : free_ns;
}

static void poll_node(struct node *node)
{
	struct cluster *cluster = node->cluster;
	struct scenario *s = &cluster->scenario;
	uint64_t now_ns = sim_now_ns(cluster->world);
	struct sim_fault *fault;
	uint64_t free_ns, due_ns, ping_ns, group_ns, misdeed_ns, client_ns;
	int handled;

	if (cluster_fault_on(cluster, FAULT_STALL, node->port, &fault)) {
		fault->hits++;
		node->wake_ns = fault->until_ns;
		return;
	}
	if (!cluster_fault_on(cluster, FAULT_CLOSE, node->port, &fault)) {
		node->closing = false;
	} else if (!fault->hits) {
		fault->hits++;
		node->closing = !(fault->amount & 1);
		if (!node->closing)
			work_close_peers(node);
	}
	if (cluster_fault_on(cluster, FAULT_TUNE, node->port, &fault)) {
		fault->hits++;
		rewrite_tune(node);
	}
	node->files.time_ns = now_ns;
	if (now_ns - node->polled_ns > SLEPT_NS)
		node->c->polls = ENGINE_POLLS_PER_CLOCK - 1;
	node->polled_ns = now_ns;
	due_ns = work_run(node);
	ping_ns = pings_run(node);
	due_ns = ping_ns < due_ns ? ping_ns : due_ns;
	misdeed_ns = misdeeds_run(node);
	due_ns = misdeed_ns < due_ns ? misdeed_ns : due_ns;
	group_ns = groups_run(node);
	due_ns = group_ns < due_ns ? group_ns : due_ns;
	client_ns = clients_run(node);
	due_ns = client_ns < due_ns ? client_ns : due_ns;
	handled = careful_poll(node->c);
	cluster->polls++;
	if (!cluster->broken_ns && node->c->link.counters[CAREFUL_C_EPOCHS_BROKEN])
		cluster->broken_ns = now_ns;
	check_node(node);
	if (s->on_round)
		s->on_round(node);
	free_ns = now_ns + s->poll_ns + sim_take_busy_ns(node->c->queue);
	node->wake_ns = next_wake(node, free_ns, handled);
	if (due_ns < node->wake_ns)
		node->wake_ns = due_ns > free_ns ? due_ns : free_ns;
}

/* Wakes a sleeping node for a frame after a random time, or for a control message at its tick. */
static void rouse(struct node *node)
{
	struct cluster *cluster = node->cluster;
	uint64_t wake_ns = sim_now_ns(cluster->world);
	uint64_t tick_ns;

	if (!node->c || cluster_fault_on(cluster, FAULT_STALL, node->port, NULL))
		return;
	if (sim_frames_waiting(node->c->queue)) {
		wake_ns += cluster_random(&cluster->scenario, STREAM_WAKE + node->port,
					  cluster->steps) %
			   3000;
	} else if (sim_readable(node->c->queue)) {
		/* The node spins until then. */
		tick_ns = node->polled_ns +
			  (node->c->link.attentive ? ENGINE_CONTROL_NS : ENGINE_TICK_NS);
		wake_ns = tick_ns > wake_ns ? tick_ns : wake_ns;
	} else {
		return;
	}
	if (wake_ns < node->wake_ns && node->idle_polls >= IDLE_POLLS)
		node->wake_ns = wake_ns;
}

static void step(struct cluster *cluster)
{
	uint64_t next_ns = sim_next_ns(cluster->world);
	struct scenario *s = &cluster->scenario;

	for (uint32_t i = 0; i < s->nodes; i++)
		if (cluster->nodes[i].wake_ns < next_ns)
			next_ns = cluster->nodes[i].wake_ns;
	for (uint32_t i = 0; i < s->config.faults_count; i++) {
		struct sim_fault *fault = &s->config.faults[i];

		if ((fault->kind == FAULT_KILL || fault->kind == FAULT_RESTART) &&
		    fault->at_ns > sim_now_ns(cluster->world) && fault->at_ns < next_ns)
			next_ns = fault->at_ns;
	}
	if (next_ns < sim_now_ns(cluster->world))
		next_ns = sim_now_ns(cluster->world);
	sim_advance(cluster->world, next_ns);
	sim_run(cluster->world);
	for (uint32_t i = 0; i < s->nodes; i++) {
		struct node *node = &cluster->nodes[i];

		live_or_die(node);
		rouse(node);
		if (node->c && node->wake_ns <= next_ns) {
			poll_node(node);
			rouse(node); /* the killed process may have left frames to read */
		}
	}
	cluster->steps++;
}

/* Reports whether the traditional protocol keeps unacknowledged frames or misses announced frames
 * (perhaps a lie), or whether a grant is unpaid. Each leads to a question or ends the peer. */
static bool keeps(const struct link *link)
{
	const struct traditional_link *again = link->traditional;

	for (uint32_t i = 0; i < link->peers_max; i++) {
		const struct flow *flow = &link->peers[i].flow;

		if (link->sessions[i].granted)
			return true;
		if (again && link->peers[i].phase == LINK_OPEN &&
		    (window_tx_outstanding(&flow->tx) || again->peers[i].highest != flow->seq_in))
			return true;
	}
	return false;
}

/* Reports whether a request without an answer has not left, or an engine's own request has no
 * answer. No callback tells when that changes. */
static bool untold(const struct cluster *cluster)
{
	for (uint32_t i = 0; i < cluster->scenario.nodes; i++) {
		const struct careful *c = cluster->nodes[i].c;

		if (c && (c->messages.parked_share.free < c->messages.parked_share.count ||
			  c->operations_free_count < c->limits.operations || keeps(&c->link)))
			return true;
	}
	return false;
}

/* Reports whether trains are under way. */
static bool measuring(const struct cluster *cluster)
{
	for (uint32_t i = 0; i < cluster->scenario.nodes; i++) {
		const struct careful *c = cluster->nodes[i].c;

		for (uint32_t k = 0; c && k < c->link.peers_max; k++)
			if (c->link.peers[k].phase == LINK_HELD)
				return true;
	}
	return false;
}

/* Reports whether the cluster was idle for a while. */
static bool ended(struct cluster *cluster)
{
	uint64_t now_ns = sim_now_ns(cluster->world);

	if (measuring(cluster)) { /* requests that trains hold up are counted afterwards */
		cluster->done_ns = 0;
		return false;
	}
	if (cluster->ops_done < cluster->scenario.ops_count || !groups_over(cluster) ||
	    !clients_over(cluster) || now_ns < cluster->scenario.healed_ns ||
	    (!cluster->done_ns && untold(cluster)))
		return false;
	if (!cluster->done_ns)
		cluster->done_ns = now_ns;
	return now_ns >= cluster->done_ns + QUIET_NS;
}

static void on_hit(void *user, const struct sim_fault *fault, uint32_t opportunity)
{
	struct cluster *cluster = user;
	struct cut *seen = &cluster->seen;

	if (!cluster->hit_ns)
		cluster->hit_ns = sim_now_ns(cluster->world);
	if (seen->hits_count[fault->id] < HITS_MAX)
		seen->hits[fault->id][seen->hits_count[fault->id]] = opportunity;
	seen->hits_count[fault->id]++;
}

static void begin(struct cluster *cluster)
{
	struct scenario *s = &cluster->scenario;

	memset(cluster->seen.hits_count, 0, sizeof(cluster->seen.hits_count));
	s->config.on_hit = on_hit;
	s->config.on_pass = cluster->trace || cluster->digests ? trace_pass : NULL;
	cluster->digest = 0;
	s->config.user = cluster;
	s->config.faults = s->faults;
	s->config.faults_count = s->faults_count;
	s->config.ports = s->nodes;
	sim_begin(cluster->world, &s->config);
	cluster->ops_done = cluster->epochs = cluster->met = 0;
	cluster->steps = cluster->done_ns = cluster->polls = 0;
	cluster->hit_ns = cluster->broken_ns = 0;
	cluster->draws = cluster->lies = cluster->unlike = 0;
	memset(cluster->lies_proved, 0, sizeof(cluster->lies_proved));
	memset(cluster->misdeeds, 0, sizeof(cluster->misdeeds));
	memset(cluster->counters, 0, sizeof(cluster->counters));
	memset(cluster->requests, 0, sizeof(cluster->requests));
	memset(cluster->handled, 0, sizeof(cluster->handled));
	memset(cluster->pings, 0, sizeof(cluster->pings));
	work_begin(cluster);
	clients_begin(cluster);
	for (uint32_t i = 0; i < s->nodes; i++) {
		struct node *node = &cluster->nodes[i];

		node->cluster = cluster;
		node->port = i;
		node->life = node->tunes = node->probes = 0;
		node->ping_ns = node->misdeed_ns = node->endless_ns = 0;
		memset(node->sent, 0, sizeof(node->sent));
		node->c = NULL;
		cluster_start(node);
	}
}

/* Reports what has not ended long after the last fault. */
static void stuck(struct cluster *cluster)
{
	int64_t after_ns = (int64_t)(sim_now_ns(cluster->world) - cluster->scenario.healed_ns);
	long long after_ms = after_ns / 1000000;

	for (uint32_t i = 0; i < cluster->scenario.ops_count; i++) {
		struct op *op = &cluster->scenario.ops[i];

		if (op->state != OP_DONE)
			sim_fail(
				cluster->world,
				"operation %u (attempt %u, last status %d) is not done %lld ms after "
				"the last fault",
				op->index, op->attempt, op->last_status, after_ms);
	}
	for (uint32_t i = 0; i < cluster->scenario.nodes && !groups_over(cluster); i++) {
		const struct group_part *part = &cluster->nodes[i].part;

		if (part->ev || !part->done)
			sim_fail(cluster->world,
				 "node %u, event %llu (last status %d): the group is not over %lld "
				 "ms after the last fault",
				 i, (unsigned long long)part->event, part->status, after_ms);
	}
	if (!clients_over(cluster))
		clients_stuck(cluster);
	sim_fail(cluster->world, "all is done, and no rest %lld ms after the last fault", after_ms);
}

const char *cluster_run(struct cluster *cluster)
{
	uint64_t limit_ns;

	begin(cluster);
	limit_ns = cluster->scenario.healed_ns + heal_ns;
	while (!sim_failure(cluster->world) && !ended(cluster)) {
		step(cluster);
		if (sim_now_ns(cluster->world) > limit_ns || cluster->steps > STEPS_MAX)
			stuck(cluster);
	}
	if (!sim_failure(cluster->world))
		check_end(cluster);
	if (cluster->trace)
		trace_nodes(cluster);
	for (uint32_t i = 0; i < cluster->scenario.nodes; i++)
		if (cluster->nodes[i].c)
			stop(&cluster->nodes[i]);
	clients_end(cluster);
	return sim_failure(cluster->world);
}
