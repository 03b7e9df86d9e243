// SPDX-License-Identifier: BSD-2-Clause
/*
 * Invariants after every round of every node: each buffer has one place and is counted once, and
 * both ends of a session agree on credits. At the end, with nothing under way, all buffers and
 * credits are back.
 */
#include "cluster.h"
#include "link/send/group.h"
#include "events/private.h"
#include "link/repair/repair.h"

enum { FRAMES_MAX = 100000 }; /* frames of one run; there are far fewer */

#define EXPECT(node, a, b)                                                                  \
	do {                                                                                \
		unsigned long long expect_a = (a), expect_b = (b);                          \
                                                                                            \
		if (expect_a != expect_b)                                                   \
			sim_fail((node)->cluster->world, "node %u: %s is %llu, %s is %llu", \
				 (node)->port, #a, expect_a, #b, expect_b);                 \
	} while (0)

static bool is_traditional(const struct node *node)
{
	return node->c->link.traditional;
}

/* Counts the buffers, and in *frames the frames, of a peer that wait for an earlier frame. */
static uint32_t waiting(const struct link_peer *peer, uint32_t *frames)
{
	const struct link *link = peer->link;
	uint32_t n = 0;

	*frames = 0;
	for (uint32_t i = 0; link->repairs && i <= link->early_mask; i++)
		if (peer->repair.early[i]) {
			n += link->early[peer->repair.early[i] - 1].cost;
			++*frames;
		}
	return n;
}

/* Counts the buffers of all frames that arrived ahead of a missing one. */
static uint32_t early(const struct link *link)
{
	uint32_t n = link->traditional ? link->traditional->early_buffers : 0, frames;

	for (uint32_t i = 0; i < link->peers_max; i++)
		n += waiting(&link->peers[i], &frames);
	return n;
}

/* Counts the buffers held by handlers, files, waiting requests and early frames. */
static uint32_t held(const struct link *link)
{
	uint32_t n = link->fill_count + early(link);

	for (uint32_t i = 0; i < link->peers_max; i++)
		n += link->peers[i].kept + link->peers[i].kept_old;
	return n;
}

/* Counts send buffers with built, unsent frames of bulk messages; *built: the receive buffers that
 * these will fill at the peer of this slot. */
static uint32_t filled(const struct message_state *state, uint32_t slot, uint32_t *built)
{
	uint32_t n = 0;

	*built = 0;
	for (struct message_out *out = state->peers[slot].out_first; out; out = out->next)
		for (uint32_t at_work = 0; at_work < 2; at_work++) {
			const struct message_frame *frame = at_work ? out->frames : out->ready;

			for (; frame; frame = frame->next) {
				n += frame->tx.segments;
				*built += frame->tx.built;
			}
		}
	return n;
}

/* Counts the send buffers of unacknowledged frames that the device has released. */
static uint32_t at_rest(const struct link *link)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < link->queue->tx_chunks; i++)
		n += link->traditional->copies[i].kept && !link->traditional->copies[i].away;
	return n;
}

static void check_buffers(struct node *node)
{
	struct link *link = &node->c->link;
	uint32_t rx_engine, tx_engine, built, n = 0;

	for (uint32_t i = 0; i < link->peers_max; i++) {
		const struct message_reread *reread = node->c->messages.peers[i].reread;

		n += filled(&node->c->messages, i, &built);
		for (uint32_t k = 0; k < MESSAGE_REREADS; k++)
			n += reread[k].busy ? reread[k].tx.segments : 0;
		EXPECT(node, link->peers[i].flow.built, built);
	}
	sim_buffers(node->c->queue, &rx_engine, &tx_engine);
	EXPECT(node, rx_engine, held(link));
	EXPECT(node, tx_engine,
	       link->tx_free_count + link->tx_queued + n +
		       (is_traditional(node) ? at_rest(link) : 0));
}

/* Kept and waiting buffers hold frames that were sent and have not arrived, or that arrived
 * early. */
static void check_traditional(struct node *node, const struct link_peer *peer)
{
	const struct traditional_link *all = node->c->link.traditional;
	const struct traditional *t = &all->peers[peer->slot];
	uint32_t frames = 0;

	for (uint32_t i = 0; i < all->numbers_in; i++)
		frames += t->early[i] != 0;
	EXPECT(node, frames, t->early_frames);
	EXPECT(node, (int32_t)(t->highest - peer->flow.seq_in) >= (int32_t) !!frames, 1);
	EXPECT(node, peer->flow.tx.sent - peer->flow.tx.credits <= all->numbers_out, 1);
	EXPECT(node,
	       t->early[(peer->flow.seq_in + 1) & (all->numbers_in - 1)] &&
		       !node->c->link.following,
	       0);
}

static void check_windows(struct node *node, const struct link_peer *peer)
{
	const struct window_rx *rx = &peer->flow.rx;
	const struct window_tx *tx = &peer->flow.tx;
	uint32_t granted = peer->session->granted, frames;
	uint32_t buffers = waiting(peer, &frames);

	EXPECT(node, frames, peer->repair.early_count);
	EXPECT(node, reorder_holds(peer, peer->flow.seq_in + 1) && !peer->link->following, 0);
	EXPECT(node, window_tx_free(tx) <= tx->size + tx->reserve, 1);
	EXPECT(node, rx->received + granted - rx->announced <= rx->size + granted, 1);
	EXPECT(node, rx->received + granted - rx->returned,
	       peer->kept + peer->flow.freeing + buffers);
	EXPECT(node, rx->returned - rx->announced <= rx->size + granted, 1);
}

/* The windows and all grants together never exceed the guaranteed buffers. */
static void check_reserve(struct node *node)
{
	const struct link *link = &node->c->link;
	uint32_t windows = 0, granted = 0;

	for (uint32_t i = 0; i < link->peers_max; i++) {
		const struct link_peer *peer = &link->peers[i];

		windows += peer->flow.rx.size > link->window ? peer->flow.rx.size : link->window;
		granted += peer->session->granted;
	}
	EXPECT(node, granted + link->reserve.free, link->reserve.count);
	EXPECT(node, windows + link->reserve.count <= node->c->queue->info.receive_buffers, 1);
}

/* Returns the other end of a peer's session, or NULL. */
static struct link_peer *other_end(struct node *node, const struct link_peer *peer,
				   struct node **other)
{
	struct sim_world *world = node->cluster->world;
	uint32_t port = sim_port(world, &peer->session->address);
	union address address;

	*other = &node->cluster->nodes[port % NODES_MAX];
	if (peer->state == CAREFUL_PEER_NONE || port == SIM_ANY || !(*other)->c)
		return NULL;
	sim_address(world, node->port, &address);
	return link_peer_find(&(*other)->c->link, &address);
}

/* Counts the peer's credits that are set aside for the next broadcast. */
static uint32_t set_aside(const struct node *node, const struct link_peer *peer)
{
	const struct link_group *group = node->c->events ? node->c->events->group : NULL;

	for (uint32_t i = 0; group && i < group->count; i++)
		if (group->members[i].peer == peer)
			return group->members[i].held;
	return 0;
}

/* Reports whether no broadcast can be under way: in both directions as many frames have left as
 * arrived. The network does not record a broadcast's session. */
static bool casts_came(const struct node *node, const struct link_peer *peer,
		       const struct link_peer *theirs)
{
	return !node->cluster->scenario.group || (peer->flow.seq_out == theirs->flow.seq_in &&
						  theirs->flow.seq_out == peer->flow.seq_in);
}

/* Each frame that one end sent has been received or is under way. */
static void check_credits(struct node *node, const struct link_peer *peer)
{
	struct sim_world *world = node->cluster->world;
	struct node *other;
	struct link_peer *theirs = other_end(node, peer, &other);

	if (!theirs || peer_distrusted(node, peer->slot) || peer->phase != LINK_OPEN ||
	    peer->cookie_out != theirs->cookie_in)
		return;
	EXPECT(node,
	       peer->flow.tx.sent - theirs->flow.rx.received <=
		       peer->flow.tx.size + peer->flow.tx.reserve,
	       1);
	/* A repaired frame can be under way twice. */
	if (casts_came(node, peer, theirs) && !node->c->link.counters[CAREFUL_C_SENT_AGAIN] &&
	    sim_unharmed(world, node->port, other->port, peer->cookie_out))
		EXPECT(node, peer->flow.tx.sent - set_aside(node, peer),
		       theirs->flow.rx.received + sim_cost_under_way(world, node->port, other->port,
								     peer->cookie_out));
}

/* Checks that the count of all messages is the sum of the peers' counts. */
static void check_messages(struct node *node)
{
	const struct message_state *state = &node->c->messages;
	uint32_t n = 0;

	for (uint32_t i = 0; i < node->c->link.peers_max; i++)
		n += state->peers[i].messages;
	EXPECT(node, state->messages, n);
}

void check_node(struct node *node)
{
	struct link *link = &node->c->link;

	check_buffers(node);
	check_messages(node);
	check_reserve(node);
	/* No more frames are missing than exist. */
	EXPECT(node, link->counters[CAREFUL_C_LOST_FRAMES] < FRAMES_MAX, 1);
	for (uint32_t i = 0; i < link->peers_max; i++) {
		struct link_peer *peer = &link->peers[i];

		if (is_traditional(node)) {
			if (peer->cookie_in)
				check_traditional(node, peer);
			continue;
		}
		if (peer->cookie_in)
			check_windows(node, peer);
		check_credits(node, peer);
	}
}

/* Counts messages that a liar began and never ended, into this region or (0) anywhere. They last
 * until the session ends, and an idle session does not notice that its liar was killed. */
static uint32_t begun(const struct node *node, uint32_t region)
{
	const struct message_state *state = &node->c->messages;
	uint32_t n = 0;

	for (uint32_t i = 0; i < state->ins_count; i++) {
		const struct message_in *in = &state->ins[i];

		n += in->active && in->slot && peer_distrusted(node, in->peer->slot) &&
		     (!region || in->region == region);
	}
	return n;
}

static void check_idle(struct node *node)
{
	struct careful *c = node->c;
	struct link *link = &c->link;

	link_complete(link);
	/* An address that does not come back sends no repairs. */
	EXPECT(node, held(link), node->cluster->scenario.misdeeds ? early(link) : 0);
	EXPECT(node, link->tx_free_count, c->queue->tx_chunks);
	EXPECT(node, link->kept_free_count, c->queue->rx_chunks + link->pool_count);
	EXPECT(node, link->pool_share.free, link->pool_count);
	EXPECT(node, link->reserve.free, link->reserve.count);
	EXPECT(node, c->messages.outs_share.free, c->messages.outs_share.count);
	EXPECT(node, c->messages.ins_free_count + begun(node, 0), c->messages.ins_count);
	EXPECT(node, c->messages.parked_share.free, c->messages.parked_share.count);
	EXPECT(node, c->operations_free_count, c->limits.operations);
	EXPECT(node, c->deferred_count, 0);
	for (uint32_t i = 0; i < c->limits.regions; i++)
		EXPECT(node, c->regions[i].uses,
		       c->regions[i].key ? begun(node, c->regions[i].key) : 0);
	for (uint32_t i = 0; i < link->peers_max; i++) {
		EXPECT(node, link->peers[i].operations, 0);
		EXPECT(node, link->peers[i].flow.built, 0);
	}
}

/* Checks that these counters are 0. A killed program's answers are not counted. */
static void check_none(const struct node *node, const enum careful_counter *none, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		if (node->c->link.counters[none[i]] &&
		    (!node->cluster->scenario.clients || none[i] != CAREFUL_C_DROP_MESSAGE))
			sim_fail(node->cluster->world, "node %u: counter %u is %llu", node->port,
				 none[i], (unsigned long long)node->c->link.counters[none[i]]);
}

/* Checks that temporary faults end no session and damage no message. */
static void check_repaired(struct node *node)
{
	static const enum careful_counter none[] = {
		CAREFUL_C_LOST_FRAMES,
		CAREFUL_C_BAD_CREDITS,
		CAREFUL_C_EPOCHS_BROKEN,
		CAREFUL_C_DROP_MESSAGE,
	};

	check_none(node, none, sizeof(none) / sizeof(none[0]));
}

/* Checks that without loss nothing is counted as lost and no session restarts. */
static void check_promise(struct node *node)
{
	static const enum careful_counter none[] = {
		CAREFUL_C_LOST_FRAMES, CAREFUL_C_BAD_CREDITS, CAREFUL_C_EPOCHS_BROKEN,
		CAREFUL_C_DIGEST_BAD,  CAREFUL_C_DROP_CRC,    CAREFUL_C_DROP_MESSAGE,
		CAREFUL_C_DROP_SEQ,
	};

	check_none(node, none, sizeof(none) / sizeof(none[0]));
}

/* A message without an answer was handled too, unless a fault kept it. */
static void check_silent(struct cluster *cluster)
{
	const struct scenario *s = &cluster->scenario;

	for (uint32_t i = 0; i < s->ops_count; i++)
		if (s->ops[i].silent && !(s->ops_left_out >> i & 1) && !s->excused &&
		    !op_distrusted(&s->ops[i]) && s->ops[i].ran[s->ops[i].attempt % ATTEMPTS] != 1)
			sim_fail(cluster->world, "operation %u never ran", i);
}

void check_end(struct cluster *cluster)
{
	check_silent(cluster);
	for (uint32_t i = 0; i < cluster->scenario.nodes; i++) {
		struct node *node = &cluster->nodes[i];

		if (!node->c)
			continue;
		check_node(node);
		check_idle(node);
		if (cluster->scenario.hostile)
			continue;
		if (!cluster->scenario.excused && is_traditional(node))
			check_repaired(node);
		else if (!cluster->scenario.excused)
			check_promise(node);
	}
}
