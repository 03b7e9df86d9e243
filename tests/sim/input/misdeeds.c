// SPDX-License-Identifier: BSD-2-Clause
/*
 * A lying host (hostile.c) can also end its sessions again and again, ask for the longest trains,
 * fall silent, answer late, and open sessions from further addresses. It can request frames that it
 * has or that were never sent, request frames without end, and skip frames without repairing them.
 * Each further address is a node with the host's Ethernet address and keys. Lies and misdeeds end
 * at the same time.
 */
#include "cluster.h"

#include <endian.h>
#include <string.h>

#include "link/repair/repair.h"
#include "link/peer/peers.h"

enum {
	LIAR = NODES_DRAWN - 1,
	ADDRESS = LIAR + 1, /* of the same family */
	FAMILY, /* of the other family */
	MORE = 1 << ADDRESS | 1 << FAMILY,
	STREAM_MISDEEDS = 0x5100,
	STREAM_SPELLS,
	PERIOD_NS = 1000 * 1000, /* between two misdeeds of a node */
	SPELL_NS = 20 * 1000 * 1000, /* of silence */
	LATE_NS = 400 * 1000 * 1000, /* longest delay of an answer */
	FLAP_ONE_IN = 16, /* periods */
	ASK_ONE_IN = 8, /* likewise */
	TRAIN_ONE_IN = 32, /* likewise; restarts a session with trains */
	GAP_MAX = 8, /* frames */
	UNSENT_ONE_IN = 16, /* periods */
	UNSENT_AHEAD = 1 << 20, /* frames beyond the last received one */
	ENDLESS_NS = 100 * 1000, /* between two requests of the endless kind */
	LEFT_OUT_ONE_IN = 32, /* frames */
	HANDLER_NONE = 99,
};

const char *misdeeds_name(enum misdeed misdeed)
{
	static const char *const names[MISDEEDS] = {
		[MISDEED_FLAPS] = "flaps",
		[MISDEED_TRAINS] = "long trains",
		[MISDEED_SILENT] = "silences",
		[MISDEED_LATE] = "late answers",
		[MISDEED_ADDRESSES] = "requests from a second address",
		[MISDEED_FAMILIES] = "requests over the other family",
		[MISDEED_GAPS] = "questions for frames that came",
		[MISDEED_UNSENT] = "questions for frames never sent",
		[MISDEED_ENDLESS] = "questions without end",
		[MISDEED_MUTE] = "repairs refused",
	};

	return names[misdeed];
}

void misdeeds_make(struct scenario *s, uint32_t misdeeds)
{
	s->misdeeds = misdeeds;
	s->nodes = NODES_MAX;
	s->hostile |= MORE;
	s->keyed |= s->keyed ? MORE : 0;
	s->config.one_mac = s->hostile;
	s->config.other_family = 1 << FAMILY;
}

uint32_t misdeeds_owner(const struct scenario *s, uint32_t port)
{
	return s->misdeeds && MORE >> port & 1 ? LIAR : port;
}

static uint64_t draw(struct cluster *cluster)
{
	return sim_hash(cluster->scenario.seed, STREAM_MISDEEDS, cluster->draws++);
}

static bool does(const struct node *node, enum misdeed misdeed)
{
	return node->cluster->scenario.misdeeds >> misdeed & 1 &&
	       hostile_still(node->cluster, node->port);
}

uint64_t misdeeds_late_ns(struct node *node)
{
	if (!does(node, MISDEED_LATE))
		return 0;
	node->cluster->misdeeds[MISDEED_LATE]++;
	return 1 + draw(node->cluster) % LATE_NS;
}

bool misdeeds_silent(struct cluster *cluster)
{
	uint64_t spell = sim_now_ns(cluster->world) / SPELL_NS;

	if (!(cluster->scenario.misdeeds >> MISDEED_SILENT & 1) ||
	    sim_hash(cluster->scenario.seed, STREAM_SPELLS, spell) % 3)
		return false;
	cluster->misdeeds[MISDEED_SILENT]++;
	return true;
}

/* Asks each peer for the longest train if its session begins with trains, and the world has room. */
static void ask_for_trains(struct node *node)
{
	struct link *link = &node->c->link;
	struct careful_ctrl ctrl = {
		.train.frames = htobe32(CAREFUL_TRAIN_FRAMES),
		.train.hold_ms = htobe32(STALL_MS),
	};

	if (sim_crowded(node->cluster->world))
		return;
	for (uint32_t i = 0; i < link->peers_max && !link->traditional; i++) {
		struct link_peer *peer = &link->peers[i];

		if (link_is_open(peer) && draw(node->cluster) % TRAIN_ONE_IN == 0) {
			link_measure(peer);
		} else if (peer->phase == LINK_HELD && draw(node->cluster) % ASK_ONE_IN == 0) {
			ctrl.nonce = htobe64(1 + draw(node->cluster) % UINT32_MAX);
			link_say(peer, &ctrl, CAREFUL_TRAIN_ASK);
			node->cluster->misdeeds[MISDEED_TRAINS]++;
		}
	}
}

/* Requests `count` frames from each peer again; the last is `ahead` of the last in order. */
static void ask_again(struct node *node, enum misdeed misdeed, uint32_t count, uint32_t ahead)
{
	struct link *link = &node->c->link;

	for (uint32_t i = 0; i < link->peers_max && !link->traditional; i++) {
		struct link_peer *peer = &link->peers[i];
		uint32_t to = peer->flow.seq_in + ahead;
		struct careful_ctrl ctrl = {
			.missing.before = htobe32(to - count),
			.missing.last = htobe32(to),
			.missing.seq_rcvd = htobe32(ahead ? peer->flow.seq_in : to - count),
		};

		if (link_is_open(peer) && link_say(peer, &ctrl, CAREFUL_MISSING))
			node->cluster->misdeeds[misdeed]++;
	}
}

bool misdeeds_mute(struct node *node, uint32_t to, const void *frame, uint32_t bytes)
{
	struct last_sent *last = &node->sent[to];
	struct careful_hdr hdr;
	uint32_t seq;

	if (!does(node, MISDEED_MUTE) || bytes < sizeof(hdr))
		return false;
	memcpy(&hdr, frame, sizeof(hdr));
	seq = be32toh(hdr.seq);
	if ((hdr.type != CAREFUL_DATA && hdr.type != CAREFUL_UPDATE) ||
	    hdr.flags & CAREFUL_F_BCAST_EVENT)
		return false;
	if (last->cookie == hdr.cookie && (int32_t)(seq - last->seq) <= 0) {
		node->cluster->misdeeds[MISDEED_MUTE]++;
		return true;
	}
	*last = (struct last_sent){ .cookie = hdr.cookie, .seq = seq };
	return draw(node->cluster) % LEFT_OUT_ONE_IN == 0;
}

/* Sends a request to each honest node, so that no session is idle. */
static void ask_all(struct node *node, enum misdeed misdeed)
{
	const uint32_t args[4] = { 0 };
	union address address;

	for (uint32_t port = 0; port < LIAR; port++) {
		int peer;

		sim_address(node->cluster->world, port, &address);
		peer = careful_peer(node->c, &address.sa, sizeof(address));
		if (peer >= 0 && !careful_request(node->c, (uint32_t)peer, HANDLER_NONE, args, NULL,
						  0, NULL, NULL))
			node->cluster->misdeeds[misdeed] +=
				link_is_open(&node->c->link.peers[peer]);
	}
}

/* Does the misdeeds that are due once per period. Returns the time at which the next period begins. */
static uint64_t run_period(struct node *node, uint64_t now_ns)
{
	enum misdeed more = node->port == FAMILY ? MISDEED_FAMILIES : MISDEED_ADDRESSES;

	if (node->misdeed_ns > now_ns)
		return node->misdeed_ns;
	node->misdeed_ns = now_ns + PERIOD_NS;
	if (node->port != LIAR && does(node, more))
		ask_all(node, more);
	if (does(node, MISDEED_TRAINS))
		ask_for_trains(node);
	if (does(node, MISDEED_FLAPS) && draw(node->cluster) % FLAP_ONE_IN == 0) {
		work_close_peers(node);
		node->cluster->misdeeds[MISDEED_FLAPS]++;
	}
	if (does(node, MISDEED_GAPS))
		ask_again(node, MISDEED_GAPS, 1 + draw(node->cluster) % GAP_MAX, 0);
	if (does(node, MISDEED_UNSENT) && draw(node->cluster) % UNSENT_ONE_IN == 0)
		ask_again(node, MISDEED_UNSENT, 1, UNSENT_AHEAD);
	return node->misdeed_ns;
}

uint64_t misdeeds_run(struct node *node)
{
	uint64_t now_ns = sim_now_ns(node->cluster->world), next_ns;

	if (!node->cluster->scenario.misdeeds || !hostile_still(node->cluster, node->port))
		return UINT64_MAX;
	next_ns = run_period(node, now_ns);
	if (!does(node, MISDEED_ENDLESS))
		return next_ns;
	if (node->endless_ns <= now_ns) {
		ask_again(node, MISDEED_ENDLESS, MISSING_NAMED, 0);
		node->endless_ns = now_ns + ENDLESS_NS;
	}
	return node->endless_ns < next_ns ? node->endless_ns : next_ns;
}
