/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Two or three nodes with the compiled code of link/, and wires that deliver a frame on request.
 * The explorer puts this world into every reachable state. A frame on a wire was written by the
 * code, checked, and reduced to the fields of the window rule: kind, buffers and credits.
 */
#ifndef EXPLORE_WORLD_H
#define EXPLORE_WORLD_H

#include <stdbool.h>
#include <stdint.h>

#include "link/send/group.h"

enum {
	NODES_MAX = 3,
	WINDOW_MAX = 6,
	POOL_MAX = 6, /* copy-out buffers */
	GRANTED_MAX = 4,
	CHUNK_BYTES = 512,
	BUFFER_BYTES = 256,
	RX_MAX = (NODES_MAX - 1) * WINDOW_MAX + GRANTED_MAX,
	TX_MAX = 16, /* send buffers; more than all windows can use */
	LL_BYTES = 42,
	TX_SEGMENTS_MAX = 4, /* send buffers of the largest frame */
	CTRL_MAX = 16,
	FRAMES_MAX = WINDOW_MAX + GRANTED_MAX, /* on one wire: each costs a credit */
	KEPT_MAX = RX_MAX + POOL_MAX,
	FLIGHT_UPDATE = 0x80, /* next to a cost: a window update, */
	FLIGHT_CAST = 0x40, /* a broadcast */
	FLIGHT_AGAIN = 0x08, /* with FLIGHT_CAST: its repair to one member */
	NUMBER_WAITS = 0x20, /* received, waits for an earlier number */
	NUMBER_WANTED = 0x10, /* requested by the receiver */
	COST_MASK = 0x07,
};

/* The pairs of nodes that talk. */
enum pattern {
	PATTERN_ALL, /* every node sends data to every other */
	PATTERN_RING, /* each node sends data to the next, which returns updates */
	PATTERN_STAR, /* node 0 with each of the others, both ways */
	PATTERN_SINK, /* the others send to node 0, which returns updates */
	PATTERN_CAST, /* node 0 broadcasts to the others, which return updates */
};

/* Rules of the repair that are broken on purpose. */
enum fault {
	FAULT_NONE,
	FAULT_NO_TAIL, /* no end suspects a lost tail */
	/* The same after a whole lost window. It needs no floor of its own: a repair keeps its number
	 * and its buffers, so the taken number and the settled charge suffice. FAULT_NO_FLOOR and
	 * FAULT_RING_WINDOW break these. */
	FAULT_NO_WINDOW,
	FAULT_ASKED_ONCE, /* a missing number is requested only once */
	FAULT_NO_FLOOR, /* XDP does not learn which numbers the engine has taken */
	FAULT_LAST_SEEN, /* XDP counts from the last number that it has admitted */
	FAULT_WIDE, /* XDP admits numbers of the window after the one that is due */
	FAULT_SHORT_LOG, /* the log has two entries */
	FAULT_WAITING_FREED, /* frames behind a gap give their credits back while they wait */
	FAULT_CHARGED_AGAIN, /* the sender charges a repair */
	FAULT_TAKEN_BACK, /* the sender takes the cost of a lost frame back */
	FAULT_COPY_KEPT, /* the charge of a second copy is not given back, at once or later */
	FAULT_OVERTAKES, /* a frame behind a gap is handed on at once */
	FAULT_NEW_NUMBER, /* a lost frame is sent again under a new number */
	FAULT_NEVER_SENT, /* an unsent number is answered too */
	FAULT_OLD_CREDITS, /* a repair has the credits from before the lost frame */
	FAULT_RING_CHARGED, /* the charge of frames that the ring lost is not given back */
	FAULT_RING_WINDOW, /* the same if the ring has lost all that the sender may send */
	FAULT_CAST_ALONE, /* the repair of a broadcast does not give the credits that the broadcast gave */
};

/*
 * The explored world and its bounds.
 *
 * @cost_min, @cost_max: receive buffers of a data frame
 * @pool:      copy-out buffers of a node
 * @tx_chunks: send buffers of a node
 * @keeps: most frames that a node's application keeps; 0: it consumes all
 * @hoard: frames that each node sends in all, and before it consumes any; 0: nodes send without end
 *   and consume
 * @casters: nodes, from 0 on, that only broadcast
 * @rounds: after each arrival and release the node does a round in careful_poll()'s order; else
 *   these steps happen at any time
 * @spend_last: data may take the last credit (the rule broken on purpose)
 * @threshold: T; 0: the code's value
 * @withholds: buffers of a window that a receiver may withhold, at any time
 * @reserve:   receive buffers of a node that may be granted
 * @large:     frames of a large message, of the greatest cost; 0: there are none
 * @asks_on: a sender asks for all it can get, even without a message (broken on purpose)
 * @standstill: a violation is a state in which no node can send its largest frame; else one at rest
 *   in which some frame cannot be sent
 * @gone: most unrepaired lost frames at a time; frames then arrive in any order. 0: the network
 *   loses nothing and keeps the order
 * @copies: most copies under way besides the first of each number
 * @ring: most receive buffers that XDP charged for frames that the ring lost
 * @sealed: XDP uses its rule for sealed sessions
 * @announces: a question for a missing frame may announce owed credits, too
 * @fault:     a rule of the repair that is broken on purpose
 */
struct setting {
	uint8_t nodes, window, cost_min, cost_max, pool, tx_chunks, keeps, threshold, withholds,
		reserve, large, hoard, casters, gone, copies, ring;
	enum pattern pattern;
	bool rounds, spend_last, asks_on, standstill, sealed, announces;
	enum fault fault;
};

/*
 * A frame under way.
 *
 * @cast: a broadcast, with its own account of credits
 * @again: the repair of a broadcast, which is a frame of the session
 * @seq:  its number
 * @ask: of a session's frame: requested buffers; of a broadcast: this node's additional credits
 */
struct flight {
	bool update, cast, again;
	uint8_t cost;
	uint8_t segments; /* send buffers */
	uint16_t ask;
	uint32_t seq;
	uint32_t credits;
	uint64_t chunk[TX_SEGMENTS_MAX];
};

struct node {
	struct queue queue; /* first member: its ops find the node by it */
	struct port port;
	struct link link;
	struct world *world;
	uint8_t index;
	uint8_t slot_of[NODES_MAX]; /* of another node in link.peers */
	uint8_t node_of[NODES_MAX]; /* the other way round */
	_Alignas(16) uint8_t umem[(RX_MAX + TX_MAX) * CHUNK_BYTES];

	uint64_t fill_ring[RX_MAX]; /* empty receive buffers, in the order of their use */
	uint32_t fill_count;
	uint64_t sent[TX_MAX]; /* send buffers whose frames have left */
	uint32_t sent_count;
	struct device_desc arrived[WINDOW_MAX];
	uint32_t arrived_count;

	struct {
		union address from;
		struct careful_ctrl ctrl;
	} ctrl[CTRL_MAX]; /* of the handshake, not read yet */
	uint32_t ctrl_count;
	uint64_t cookie[NODES_MAX]; /* admitted, by slot */
	struct careful_peer_entry entry[NODES_MAX]; /* XDP's, by slot */
	struct link_group *group; /* group of the others; NULL: the node does not cast */

	struct link_held *kept[KEPT_MAX]; /* frames that the application keeps */
	uint32_t kept_count;
};

struct world {
	struct setting setting;
	struct node node[NODES_MAX];
	struct wire {
		uint32_t count;
		struct flight flight[FRAMES_MAX];
	} wire[NODES_MAX][NODES_MAX]; /* [from][to] */
	/* True state of the numbers from the first that `to` has not taken in order to the last
	 * that `from` has sent: cost, FLIGHT_*, NUMBER_WAITS. A broadcast gives credits to all and
	 * more to this node. */
	struct open {
		uint32_t count;
		uint8_t number[FRAMES_MAX], gives[FRAMES_MAX], more[FRAMES_MAX];
	} open[NODES_MAX][NODES_MAX]; /* [from][to] */
	uint8_t left[NODES_MAX][NODES_MAX]; /* frames of a large message: [from][to] */
	uint8_t said[NODES_MAX][NODES_MAX]; /* frames of those that a hoarder sends */
	uint8_t segments_of[WINDOW_MAX + 1]; /* send buffers of a data frame, by its cost */
	uint64_t now_ns;
	uint64_t random;
	bool refused; /* XDP refused the frame of this step */
	const char *violated; /* the violation, or NULL */
};

/* Records the first violation; the search stops there. */
static inline void violation(struct world *world, const char *what)
{
	if (!world->violated)
		world->violated = what;
}

/* device.c */
extern const struct queue_ops world_queue_ops;
extern const struct port_ops world_port_ops;
union address world_address(int node);

void world_init(struct world *world, const struct setting *setting);
void world_deinit(struct world *world);

/* Reports whether `from` has a session with `to`, and whether it sends data there. */
bool world_linked(const struct world *world, int from, int to);
bool world_sends(const struct world *world, int from, int to);
/* Reports whether a node has more to send before it consumes. */
bool world_hoards(const struct world *world, int node);

/* Lets the receiver withhold this many buffers of the sender's window. */
void world_withhold(struct world *world, int from, int to, uint32_t withheld);

static inline struct link_peer *world_peer(struct world *world, int node, int other)
{
	struct node *n = &world->node[node];

	return &n->link.peers[n->slot_of[other]];
}

/* Returns a node's index in a caster's group. */
static inline uint32_t world_member_of(int caster, int node)
{
	return (uint32_t)(node < caster ? node : node - 1);
}

/* Returns the other node's place in a node's group, or NULL. */
static inline struct link_member *world_member(struct world *world, int node, int other)
{
	struct link_group *group = world->node[node].group;

	return group ? &group->members[world_member_of(node, other)] : NULL;
}

static inline struct link_heard *world_heard(struct world *world, int node, int other)
{
	struct node *n = &world->node[node];

	return &n->link.heard[n->slot_of[other]];
}

/* Returns the bytes after the careful header that fill `cost` buffers. */
static inline uint32_t body_of(uint32_t cost)
{
	return cost * BUFFER_BYTES - LL_BYTES - LINK_HDR_BYTES;
}

/* Sets the unsent frames of a large message, for which each frame asks. */
void world_ask(struct world *world, int from, int to, uint8_t left);
/* Moves a frame of a wire into the receiver's ring. Returns its cost; 0: XDP refuses it. */
uint32_t world_deliver(struct world *world, int from, int to, uint32_t index);
/* Reports whether XDP admits a frame, and charges its buffers. */
bool world_admits(struct world *world, int from, int to, const struct flight *flight);
/* Takes a frame off its wire; its send buffers have left. */
struct flight world_take_off(struct world *world, int from, int to, uint32_t index);

static inline bool world_loses(const struct world *world)
{
	return world->setting.gone != 0;
}

#endif /* EXPLORE_WORLD_H */
