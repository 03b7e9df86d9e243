// SPDX-License-Identifier: BSD-2-Clause
#include "logp_time.h"

#include <stdlib.h>

enum {
	WINDOW = 32,
	CAPACITY = 24, /* requests under way: an engine of the world has 32 operations */
	FRAME_BYTES = 8192,
	BULK_MAX = 4096,
	HANDLER = 7,
	TICK_NS = 50 * 1000, /* between two clock readings of an idle engine */
	READ_NS = 20, /* between two polls of a computing node */
	COPIES = 64,
};

/* A working node. @left_ns: when it is free again; @looked_ns: last run of its engine; @turn: next
 * peer to send to */
struct logp_node {
	struct signature_layer layer; /* first */
	uint32_t rank, turn, to_count;
	uint32_t to[WORLD_NODES_MAX];
	uint64_t left_ns, looked_ns;
	bool floods;
};

static struct world w;
static struct logp_setting setting;
static struct logp_node nodes[WORLD_NODES_MAX];
static uint8_t memory[WORLD_NODES_MAX][BULK_MAX];
static uint32_t keys[WORLD_NODES_MAX];
static uint32_t reads; /* clock readings since node 0 last did anything else */
static bool began;

static uint64_t cost_ns(void *user, uint32_t port, uint32_t other, bool sent, const void *frame)
{
	const struct logp_machine *m = setting.machine;
	struct careful_hdr hdr; /* a frame's header is not aligned */
	uint32_t bytes;

	(void)user;
	(void)port;
	(void)other;
	memcpy(&hdr, frame, sizeof(hdr));
	if (!began || hdr.type != CAREFUL_DATA)
		return 0;
	bytes = be16toh(hdr.frag_bytes);
	return sent ? m->o_s + (uint64_t)m->out_ps * bytes / 1000 :
		      m->o_r + (uint64_t)m->in_ps * bytes / 1000;
}

static void on_request(const struct careful_message *message, void *user)
{
	(void)user;
	CHECK_EQ(careful_reply(message, 0, NULL, NULL, 0), 0);
}

static void on_done(const struct careful_result *result, void *user)
{
	struct logp_node *node = user;

	CHECK_EQ(result->status, 0);
	node->layer.outstanding--;
}

static int issue(struct signature_layer *layer)
{
	struct logp_node *node = (struct logp_node *)layer;
	struct careful *c = w.node[node->rank].c;
	const struct careful_span local = { .base = memory[node->rank], .fd = -1 };
	uint32_t to = node->to[node->turn];
	uint32_t peer = w.node[node->rank].peers[to];
	int rc;

	if (node->rank == 0)
		reads = 0;
	if (setting.kind == LOGP_STORE)
		rc = careful_store(c, peer, keys[to], 0, &local, setting.bytes, CAREFUL_HANDLERS,
				   NULL, CAREFUL_NO_DIGEST, on_done, node);
	else if (setting.kind == LOGP_GET)
		rc = careful_get(c, peer, keys[to], 0, &local, setting.bytes, CAREFUL_NO_DIGEST,
				 on_done, node);
	else
		rc = careful_request(c, peer, HANDLER, NULL, NULL, 0, on_done, node);
	if (!rc)
		node->turn = (node->turn + 1) % node->to_count;
	return rc;
}

/* Runs a round of a node's engine. Returns its CPU time. */
static uint64_t round_ns(uint32_t i)
{
	struct world_node *node = &w.node[i];

	node->files.time_ns = world_now_ns(&w);
	node->c->polls = ENGINE_POLLS_PER_CLOCK - 1;
	careful_poll(node->c);
	nodes[i].looked_ns = world_now_ns(&w);
	return sim_take_busy_ns(node->c->queue);
}

/* Lets another node act: it sends if that is its role, and receives. */
static void turn(uint32_t i)
{
	struct logp_node *node = &nodes[i];
	uint64_t now_ns = world_now_ns(&w);
	struct queue *queue = w.node[i].c->queue;
	bool sends = node->floods && node->layer.outstanding < CAPACITY;

	if (node->left_ns > now_ns || (!sends && !sim_frames_waiting(queue) &&
				       !sim_readable(queue) && now_ns - node->looked_ns < TICK_NS))
		return;
	if (sends && !issue(&node->layer))
		node->layer.outstanding++;
	node->left_ns = now_ns + round_ns(i);
}

/* Returns the time of the next event, at most at_ns. */
static uint64_t next_ns(uint64_t at_ns)
{
	uint64_t now_ns = world_now_ns(&w), sim_ns = sim_next_ns(w.sim);

	for (uint32_t i = 1; i < w.nodes; i++) {
		if (nodes[i].left_ns > now_ns && nodes[i].left_ns < at_ns)
			at_ns = nodes[i].left_ns;
	}
	return sim_ns < at_ns ? sim_ns : at_ns;
}

/* Runs the world to a time, or with `any` to the first event. */
static void go_on(uint64_t until_ns, bool any)
{
	do {
		sim_advance(w.sim, next_ns(until_ns));
		sim_run(w.sim);
		for (uint32_t i = 1; i < w.nodes; i++)
			turn(i);
		CHECK(!sim_failure(w.sim));
	} while (!any && world_now_ns(&w) < until_ns);
}

/* Runs node 0. Its CPU time passes for all nodes; if it is idle, it waits. */
static int poll(struct signature_layer *layer)
{
	uint64_t took_ns = round_ns(0), now_ns = world_now_ns(&w);

	(void)layer;
	reads = 0;
	go_on(now_ns + (took_ns ? took_ns : TICK_NS), !took_ns);
	return 0;
}

/* Reading the clock is free, except for a node that only computes between readings. */
static uint64_t now_ns(void)
{
	if (++reads > 2)
		go_on(world_now_ns(&w) + READ_NS, false);
	return world_now_ns(&w);
}

static void add_peer(uint32_t rank, uint32_t to)
{
	nodes[rank].to[nodes[rank].to_count++] = to;
}

/* Sets which node sends to which. */
static void arrange(void)
{
	uint32_t K = setting.K;

	for (uint32_t i = 0; i < w.nodes; i++) {
		nodes[i] = (struct logp_node){
			.layer = { .issue = issue,
				   .poll = poll,
				   .now_ns = now_ns,
				   .capacity = CAPACITY },
			.rank = i,
		};
	}
	switch (setting.pattern) {
	case LOGP_HALF_TO_HALF:
		for (uint32_t i = 0; i < K; i++)
			add_peer(i, K + i);
		break;
	case LOGP_ONE_TO_MANY:
		for (uint32_t i = 1; i <= K; i++)
			add_peer(0, i);
		break;
	case LOGP_MANY_TO_ONE:
		for (uint32_t i = 0; i < K; i++)
			add_peer(i, K);
		break;
	default:
		add_peer(0, 1);
	}
	for (uint32_t i = 1; i < w.nodes; i++)
		nodes[i].floods = nodes[i].to_count > 0;
}

static uint32_t nodes_of(const struct logp_setting *s)
{
	return s->pattern == LOGP_ONE_TO_ONE   ? 2 :
	       s->pattern == LOGP_HALF_TO_HALF ? 2 * s->K :
						 s->K + 1;
}

void logp_open(const struct logp_setting *asked)
{
	const struct logp_machine *m = asked->machine;

	setting = *asked;
	began = false;
	CHECK(asked->bytes <= BULK_MAX);
	world_set(&w, nodes_of(asked), WINDOW, COPIES);
	w.shape = (struct sim_shape){
		.chunk_bytes = 2 * FRAME_BYTES,
		.buffer_bytes = FRAME_BYTES,
		.segments_max = 1,
		.frame_bytes = FRAME_BYTES,
	};
	w.config.wire_g_ns = 0;
	w.config.wire_G_ps_per_byte = m->wire_ps;
	w.config.wire_less_bytes = LINK_IPV4_BYTES + LINK_HDR_BYTES + MESSAGE_AM_BYTES;
	w.config.wire_delay_ns = m->L;
	w.config.gap_ns = asked->kind == LOGP_REQUEST ? m->g : m->bulk_g;
	w.config.cost_ns = cost_ns;
	world_begin(&w);
	for (uint32_t i = 0; i < w.nodes; i++) {
		const struct careful_region region = {
			.span = { .base = memory[i], .fd = -1 },
			.bytes = BULK_MAX,
			.access = CAREFUL_REGION_READ | CAREFUL_REGION_WRITE,
			.peer = CAREFUL_ANY_PEER,
		};

		CHECK_EQ(careful_handle(w.node[i].c, HANDLER, on_request, NULL), 0);
		CHECK_EQ(careful_region_add(w.node[i].c, &region, &keys[i]), 0);
	}
	world_run(&w, 20);
	arrange();
	began = true;
	/* A flood fills the network before the timing starts. */
	go_on(world_now_ns(&w) + 200 * (uint64_t)w.nodes * w.config.gap_ns, false);
}

void logp_close(void)
{
	CHECK_EQ(world_count(&w, CAREFUL_C_EPOCHS_BROKEN), 0);
	world_end(&w);
}

/* Sends a burst. Stores us at each mark, without the computed pauses, and until the last reply. */
static double burst(double compute, const uint32_t *marks, uint32_t count, double *elapsed)
{
	static uint64_t answers[(sizeof(struct careful_burst) +
				 LOGP_COSTS_MAX * sizeof(struct careful_mark)) /
				sizeof(uint64_t)];
	const struct careful_burst *found = (const struct careful_burst *)answers;
	const struct careful_mark *at = (const struct careful_mark *)(found + 1);
	struct careful_signature s = {
		.bursts = 1,
		.capacity = CAPACITY,
		.compute_ns = (uint64_t)(compute * 1000),
		.marks_count = count,
	};

	memcpy(s.marks, marks, count * sizeof(*marks));
	CHECK_EQ(signature_check(&s), 0);
	CHECK_EQ(signature_run(&nodes[0].layer, &s, answers, sizeof(answers)), 1);
	for (uint32_t i = 0; i < count; i++)
		elapsed[i] = (double)(at[i].elapsed_ns - at[i].computed_ns) / 1000;
	return (double)found->done_ns / 1000;
}

void logp_curve(double compute, struct logp_curve *curve)
{
	double elapsed[LOGP_COSTS_MAX];

	*curve = (struct logp_curve){ .compute = compute };
	for (uint32_t eighths = 8; eighths <= 8 * LOGP_MESSAGES;
	     eighths += eighths < 64 ? 8 : eighths / 4)
		curve->messages[curve->count++] = eighths / 8;
	burst(compute, curve->messages, curve->count, elapsed);
	for (uint32_t i = 0; i < curve->count; i++)
		curve->cost[i] = elapsed[i] / curve->messages[i] + compute;
}

/* Returns the time of a message between two counts of a burst, us, without pauses. */
static double slope(double compute, uint32_t from, uint32_t to)
{
	const uint32_t marks[] = { from, to };
	double elapsed[2];

	burst(compute, marks, 2, elapsed);
	return (elapsed[1] - elapsed[0]) / (to - from);
}

/* Returns the one-way time of a small message, us. */
static double small_us(void)
{
	const struct logp_machine *m = setting.machine;

	return (m->o_s + m->L + m->o_r) / 1e3;
}

void logp_read(struct logp_found *found)
{
	static const uint32_t one = 1;
	double first, D;

	*found = (struct logp_found){ 0 };
	found->trip = burst(0, &one, 1, &first);
	found->o_s = slope(0, 1, 2);
	found->g = slope(0, LOGP_MESSAGES / 4, LOGP_MESSAGES);
	D = 2 * found->g;
	/* P4: "subtracting D + os from g'". */
	found->o_r = slope(D, LOGP_MESSAGES / 16, LOGP_MESSAGES / 4) - found->o_s;
	/* A bulk transfer's other direction is a small message. */
	found->L = (setting.kind == LOGP_REQUEST ? found->trip / 2 : found->trip - small_us()) -
		   found->o_s - found->o_r;
}
