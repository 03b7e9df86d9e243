// SPDX-License-Identifier: BSD-2-Clause
#include "p2_time.h"

#include "p2_costs.h"

enum {
	FRAGMENT_BYTES = 8192,
	TICK_NS = 50 * 1000, /* between two clock readings of an idle engine */
	COPIES = 4096,
};

static struct link_peer *peer_of(const struct p2_time *t, uint32_t port, uint32_t other)
{
	const struct world_node *node = &t->w->node[port];

	return engine_peer(node->c, node->peers[other]);
}

void p2_spend(struct p2_time *t, uint32_t rank, enum p2_spent what, uint64_t ns)
{
	t->spent_ns[what] += ns;
	t->node[rank].now_spent += ns;
}

/* Charges the node for the frames copied out since the last count. */
static void count_copies(struct p2_time *t, uint32_t port)
{
	struct p2_time_node *node = &t->node[port];
	uint64_t copied = t->w->node[port].c->link.counters[CAREFUL_C_COPIED_OUT];

	p2_spend(t, port, P2_SPENT_COPIED_OUT,
		 (copied - node->copied) * node->words * P2_READ_CYCLES * P2_CYCLE_NS);
	node->copied = copied;
}

/* Charges the sender for a copy of its fragment if P2_ON_BOARD earlier ones are unacknowledged. */
static void count_kept(struct p2_time *t, uint32_t port, uint32_t other,
		       const struct careful_hdr *hdr)
{
	uint32_t seq = be32toh(hdr->seq);
	uint32_t words = be16toh(hdr->frag_bytes) / 4;

	if ((int32_t)(seq - t->node[port].sent[other]) <= 0)
		return; /* sent again */
	t->node[port].sent[other] = seq;
	if (seq - t->node[port].acked[other] <= P2_ON_BOARD)
		return;
	t->kept++;
	p2_spend(t, port, P2_SPENT_KEPT, (uint64_t)words * P2_COPY_CYCLES * P2_CYCLE_NS);
}

/* Counts the fragments that a frame acknowledges for the first time. */
static uint32_t let_go(struct p2_time *t, uint32_t port, uint32_t other,
		       const struct careful_hdr *hdr)
{
	uint32_t *acked = &t->node[port].acked[other];
	uint32_t credits = be32toh(hdr->credits);
	uint32_t n = (int32_t)(credits - *acked) > 0 ? credits - *acked : 0;

	*acked += n;
	return n;
}

static uint64_t frame_ns(void *user, uint32_t port, uint32_t other, bool sent, const void *frame)
{
	struct p2_time *t = user;
	struct careful_hdr header; /* a frame's header is not aligned */
	const struct careful_hdr *hdr = memcpy(&header, frame, sizeof(header));
	bool data = hdr->type == CAREFUL_DATA;
	uint64_t before = t->node[port].now_spent, ns;
	uint32_t gone = !sent && t->traditional ? let_go(t, port, other, hdr) : 0;

	if (!t->began)
		return 0;
	t->frames += sent;
	t->own += sent && !data;
	if (data)
		t->node[port].words = be16toh(hdr->frag_bytes) / 4;
	p2_spend(t, port, P2_SPENT_HOP, P2_HOP_NS / 2);
	for (uint32_t i = 0; i < P2_COSTS; i++)
		if (p2_costs[i].traditional == t->traditional && p2_costs[i].interrupt != sent)
			p2_spend(t, port, P2_SPENT_EXTRA,
				 (uint64_t)p2_cycles(&p2_costs[i], data, gone) * P2_CYCLE_NS);
	if (sent)
		count_copies(t, port);
	if (sent && data && t->traditional)
		count_kept(t, port, other, hdr);
	ns = t->node[port].now_spent - before;
	t->node[port].now_spent = before; /* the device counts it */
	return ns;
}

void p2_open(struct p2_time *t, struct world *w, uint32_t nodes, bool traditional, uint32_t buffers)
{
	*t = (struct p2_time){ .w = w, .traditional = traditional };
	world_set(w, nodes, P2_BUFFERS / nodes, COPIES);
	w->options.protocol = traditional ? CAREFUL_PROTOCOL_TRADITIONAL : CAREFUL_PROTOCOL_CAREFUL;
	w->options.rx_buffers = P2_BUFFERS;
	w->options.tx_buffers = buffers;
	w->options.sync_ms = 2000; /* a frame may wait for the ring for 200 ms */
	w->options.stall_ms = 30000;
	/* Careful's windows are R / P (section 5.3). With the traditional protocol all peers share
	 * the buffers, and nothing was copied out (section 6.1, flooding). */
	w->options.peers = traditional ? nodes - 1 : nodes;
	w->options.copyout_buffers = traditional ? 1 : COPIES;
	w->shape = (struct sim_shape){
		.chunk_bytes = 2 * FRAGMENT_BYTES,
		.buffer_bytes = FRAGMENT_BYTES,
		.segments_max = 1,
		.frame_bytes = FRAGMENT_BYTES,
	};
	w->config.wire_g_ns = 0;
	w->config.wire_delay_ns = 0;
	w->config.wire_G_ps_per_byte = P2_BYTE_PS;
	w->config.wire_less_bytes =
		LINK_IPV4_BYTES + LINK_HDR_BYTES + MESSAGE_AM_BYTES - P2_HEADER_BYTES;
	w->config.token_ns = P2_TOKEN_NS;
	w->config.cost_ns = frame_ns;
	w->config.user = t;
	world_begin(w);
	world_join_all(w);
	world_run(w, 20);
	t->began = true;
	for (uint32_t i = 0; i < nodes; i++) {
		for (uint32_t k = 0; k < nodes; k++) {
			struct link_peer *peer = i != k ? peer_of(t, i, k) : NULL;

			t->node[i].sent[k] = peer ? peer->flow.tx.sent : 0;
			t->node[i].acked[k] = peer ? peer->flow.tx.credits : 0;
		}
	}
}

void p2_close(struct p2_time *t)
{
	for (uint32_t i = 0; i < t->w->nodes; i++)
		CHECK_EQ(careful_events_failed(t->w->node[i].ev, NULL), 0);
	CHECK_EQ(world_count(t->w, CAREFUL_C_DROP_MESSAGE), 0);
	CHECK_EQ(world_count(t->w, CAREFUL_C_EPOCHS_BROKEN), 0);
	world_end(t->w);
}

/* Returns the CPU time of a node's call. */
static uint64_t took_ns(struct p2_time *t, uint32_t i)
{
	uint64_t ns;

	count_copies(t, i);
	ns = t->node[i].now_spent + sim_take_busy_ns(t->w->node[i].c->queue);
	t->node[i].now_spent = 0;
	return ns;
}

/* Lets a node act: it receives a frame and continues its program in turn. */
static void turn(struct p2_time *t, uint32_t i, p2_program *program, void *user)
{
	struct world_node *node = &t->w->node[i];
	struct p2_time_node *time = &t->node[i];
	uint64_t now_ns = world_now_ns(t->w), ns = 0;
	int rc = 1;

	if (time->free_ns > now_ns)
		return;
	if (!time->took_frame) {
		node->files.time_ns = now_ns;
		node->c->polls = ENGINE_POLLS_PER_CLOCK - 1;
		careful_poll(node->c);
		ns = took_ns(t, i);
		time->took_frame = ns != 0;
	} else {
		time->took_frame = false;
	}
	while (!ns && !time->over && rc == 1) {
		rc = program(t, i, user);
		CHECK(!rc || rc == 1 || rc == -EAGAIN || rc == -ENOBUFS);
		t->stuck |= rc == -ENOBUFS;
		time->over = !rc;
		ns = took_ns(t, i);
		time->over_ns = now_ns + ns;
	}
	time->free_ns = now_ns + ns;
}

/* Returns the time of the next event. */
static uint64_t next_ns(const struct p2_time *t)
{
	uint64_t now_ns = world_now_ns(t->w), at_ns = now_ns + TICK_NS;
	uint64_t sim_ns = sim_next_ns(t->w->sim);

	for (uint32_t i = 0; i < t->w->nodes; i++)
		if (t->node[i].free_ns > now_ns && t->node[i].free_ns < at_ns)
			at_ns = t->node[i].free_ns;
	if (sim_ns >= at_ns)
		return at_ns;
	return sim_ns > now_ns ? sim_ns : now_ns;
}

uint64_t p2_run(struct p2_time *t, p2_program *program, void *user, uint64_t most_ms)
{
	struct sim_world *sim = t->w->sim;
	uint64_t began_ns = world_now_ns(t->w), over_ns = began_ns;
	uint32_t left = t->w->nodes;

	for (uint32_t i = 0; i < t->w->nodes; i++)
		t->node[i].free_ns = began_ns;
	while (left) {
		left = 0;
		for (uint32_t i = 0; i < t->w->nodes; i++) {
			turn(t, i, program, user);
			left += !t->node[i].over;
			if (t->node[i].over && t->node[i].over_ns > over_ns)
				over_ns = t->node[i].over_ns;
		}
		if (t->stuck || world_now_ns(t->w) - began_ns > most_ms * world_ms)
			return UINT64_MAX;
		sim_advance(sim, next_ns(t));
		sim_run(sim);
		CHECK(!sim_failure(sim));
	}
	return over_ns - began_ns;
}
