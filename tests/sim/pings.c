// SPDX-License-Identifier: BSD-2-Clause
/*
 * Pings, if the scenario has them: to the peers and stages in turn. The invariants check their
 * effects.
 */
#include <errno.h>
#include <string.h>

#include "cluster.h"
#include "engine/sharing.h"

enum {
	STAGES = CAREFUL_STAGE_STORE - CAREFUL_STAGE_NET_RX + 1, /* stages where a ping can end */
	PERIOD_NS = 300 * 1000,
	LIMIT_MS = 10, /* shorter than the idle time at a run's end */
	SCRATCH_FD = FILES_MAX - 1,
	IPV4_BYTES = 28 + LINK_HDR_BYTES, /* of a probe without payload */
};

static uint8_t scratch[4096]; /* for all nodes; never read */

/* Reports whether this run's faults allow a probe to end with this status. */
static bool excused(const struct node *node, int status)
{
	return status == -ETIMEDOUT || (status == -ECONNRESET && node->cluster->scenario.excused);
}

static bool clocks_jump(const struct scenario *s)
{
	for (uint32_t i = 0; i < s->faults_count; i++)
		if (s->faults[i].kind == SIM_CLOCK)
			return true;
	return false;
}

static void on_ping(const struct careful_ping_result *r, void *user)
{
	struct node *node = user;
	struct sim_world *world = node->cluster->world;

	node->probing = false;
	if (node->distrusted)
		return;
	if (r->status) {
		if (!excused(node, r->status))
			sim_fail(world, "node %u: a ping ends with %s", node->port,
				 strerrorname_np(-r->status));
		return;
	}
	node->cluster->pings[r->stage]++;
	/* Checks that the times in an honest answer are plausible. */
	if (r->host_rx_ns + r->store_ns + r->turn_ns > r->round_trip_ns &&
	    !clocks_jump(&node->cluster->scenario))
		sim_fail(world, "node %u: the stages of a ping take longer than its round trip",
			 node->port);
	if (r->stage != node->stage ||
	    (r->stage == CAREFUL_STAGE_NET_RX && (r->host_rx_ns || r->store_ns)))
		sim_fail(world, "node %u: a probe of stage %u is answered by %u", node->port,
			 node->stage, r->stage);
}

static void probe(struct node *node, uint32_t peer)
{
	uint32_t stage = CAREFUL_STAGE_NET_RX + node->probes % STAGES;
	const uint32_t seal = sizeof(struct careful_seal_end); /* a body, sealed or not */
	const uint32_t more = node->cluster->scenario.config.ipv6 ||
					      node->cluster->scenario.config.other_family ?
				      LINK_IPV6_MORE :
				      0;
	const struct careful_ping_ask ask = {
		.stage = stage,
		.bytes = IPV4_BYTES + more + seal + 1 + node->probes * 37 % 300,
		.timeout_ms = LIMIT_MS,
	};
	int rc = careful_ping(node->c, peer, &ask, on_ping, node);

	if (rc == -ENOTSUP) { /* a new epoch starts with the first stage */
		node->probes += STAGES - node->probes % STAGES;
	} else if (!rc) {
		node->probes++;
		node->stage = stage;
		node->probing = true;
		node->distrusted = peer_distrusted(node, peer);
	} else if (rc != -EAGAIN && rc != -ENOTCONN && rc != -EMSGSIZE) {
		sim_fail(node->cluster->world, "node %u: no ping: %s", node->port,
			 strerrorname_np(-rc));
	}
}

uint64_t pings_run(struct node *node)
{
	const struct scenario *s = &node->cluster->scenario;
	uint64_t now_ns = sim_now_ns(node->cluster->world);
	struct careful_peer_info info;
	uint32_t peer;

	if (!s->pings || node->cluster->ops_done == s->ops_count)
		return UINT64_MAX;
	if (node->ping_ns > now_ns)
		return node->ping_ns;
	node->ping_ns = now_ns + PERIOD_NS;
	peer = node->probes / CAREFUL_STAGE_STORE % s->options.peers;
	if (!node->probing && !careful_peer_info(node->c, peer, &info) &&
	    info.state == CAREFUL_PEER_UP)
		probe(node, peer);
	else if (!node->probing)
		node->probes += CAREFUL_STAGE_STORE; /* another peer's turn */
	return node->ping_ns;
}

void pings_open(struct node *node)
{
	node->probing = false;
	files_set(&node->files, SCRATCH_FD, scratch, sizeof(scratch));
	engine_scratch(node->c, SCRATCH_FD, CAREFUL_SCRATCH_MEMORY);
}
