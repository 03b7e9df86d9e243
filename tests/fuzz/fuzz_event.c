// SPDX-License-Identifier: BSD-2-Clause
/*
 * Fuzzes the event service of one node in a group of three: frames and messages of the other two
 * nodes, and calls of the program, in sessions that the input may end. Each input runs twice: once
 * with frames of the event service, once with the same messages as payloads of requests.
 */
#include <endian.h>
#include <errno.h>

#include "node.h"
#include "events/private.h"

enum { GROUP = 5, NODES = 3, RANK = 1, BYTES_MAX = 300 };

struct group {
	struct node *node;
	struct careful_events *ev; /* NULL: closed */
	bool requests;
	uint32_t peers[NODES];
	uint64_t event; /* the program's current event */
};

/* Returns the rank of a slot's peer: slots 0 and 1 are the nodes before and behind this one. */
static uint32_t rank_of(uint32_t slot)
{
	return slot ? RANK + 1 : RANK - 1;
}

static void open_group(struct group *g)
{
	const struct careful_events_options options = {
		.group = GROUP,
		.nodes = NODES,
		.rank = RANK,
		.peers = g->peers,
		.requests = g->requests,
	};

	if (!g->ev && careful_events_open(g->node->c, &options, &g->ev))
		g->ev = NULL;
}

/* Delivers the next frame of a slot's peer, with this body. */
static void arrive(struct node *node, uint32_t slot, const struct careful_am *ams, uint32_t count,
		   uint8_t fill, uint32_t bytes)
{
	const struct link_peer *peer = &node->c->link.peers[slot];
	const uint32_t head = count * (uint32_t)sizeof(*ams), body = head + bytes;
	const uint32_t udp = 8 + LINK_HDR_BYTES + body, payload = body - (uint32_t)sizeof(*ams);
	uint8_t frame[LINK_IPV4_BYTES + LINK_HDR_BYTES + 2 * sizeof(*ams) + BYTES_MAX] = { 0 };
	struct careful_hdr hdr = {
		.version = CAREFUL_WIRE_VERSION,
		.type = CAREFUL_DATA,
		.flags = CAREFUL_F_FIRST | CAREFUL_F_LAST,
		.src_node = htobe16((uint16_t)slot),
		.cookie = htobe64(peer->cookie_in),
		.seq = htobe32(peer->flow.seq_in + 1),
		.credits = htobe32(peer->flow.tx.sent),
		.msg_bytes = htobe32(payload),
		.frag_bytes = htobe16((uint16_t)payload),
	};
	uint8_t *at = frame + LINK_IPV4_BYTES + LINK_HDR_BYTES;
	uint64_t malformed;

	node_poll(node, 1); /* messages before this frame */
	malformed = node->c->link.counters[CAREFUL_C_DROP_MALFORMED];
	frame[12] = 0x08;
	frame[14] = 0x45;
	frame[16] = (uint8_t)((20 + udp) >> 8);
	frame[17] = (uint8_t)(20 + udp);
	frame[23] = 17;
	frame[38] = (uint8_t)(udp >> 8);
	frame[39] = (uint8_t)udp;
	memcpy(at, ams, head);
	memset(at + head, fill, bytes);
	hdr.payload_crc = htobe32(link_crc32c(at, body));
	hdr.check = htobe32(careful_hdr_check(&hdr));
	memcpy(frame + LINK_IPV4_BYTES, &hdr, sizeof(hdr));
	node_arrive(node, frame, LINK_IPV4_BYTES + LINK_HDR_BYTES + body);
	node_poll(node, 1);
	MUST(node->c->link.counters[CAREFUL_C_DROP_MALFORMED] == malformed);
}

/* Delivers a message of the event service: in a frame, or as the payload of a request. */
static void deliver(struct group *g, uint32_t slot, struct careful_am am, uint8_t fill,
		    uint32_t bytes)
{
	struct careful_am ams[] = {
		{
			.kind = CAREFUL_AM_REQUEST,
			.handler = htobe16(CAREFUL_HANDLERS_APP - 1 - GROUP),
			.token = htobe32(1),
		},
		am,
	};

	if (!g->requests) {
		arrive(g->node, slot, &am, 1, fill, bytes);
		return;
	}
	if (g->ev && be16toh(am.handler) != CAREFUL_EVENT_JOIN)
		ams[1].args[3] = htobe32(g->ev->membership);
	arrive(g->node, slot, ams, 2, fill, bytes);
}

/* Delivers a node's next fragment; the input may change its place. */
static void fragment(struct group *g, struct input *in, uint8_t what)
{
	uint32_t slot = what >> 7;
	uint8_t how = take8(in);
	uint32_t bytes = take16(in) % BYTES_MAX;
	const struct event_direction *way = g->ev ? &g->ev->node[rank_of(slot)].in : NULL;
	bool open = way && way->open;
	struct careful_am am = {
		.kind = CAREFUL_AM_EVENT,
		.flags = how & 0x0e,
		.handler = htobe16(CAREFUL_EVENT_FRAGMENT),
		.region = htobe32(GROUP + (how >> 7)),
		.region_off = htobe64((way ? way->event : 0) + (open ? 0 : 1) + (how >> 4 & 3)),
		.bytes = htobe32((open ? way->offset : 0) + (how & 1)),
	};

	deliver(g, slot, am, how, bytes);
}

/* Delivers a node's message about the group. */
static void group_message(struct group *g, struct input *in, uint8_t what)
{
	uint32_t slot = what >> 7;
	uint8_t how = take8(in);
	struct careful_am am = {
		.kind = CAREFUL_AM_EVENT,
		.handler = htobe16(1 + (how & 3)),
		.region = htobe32(GROUP + (how >> 7)),
		.args = { htobe32(rank_of(slot) + (how >> 6 & 1)), htobe32(NODES + (how >> 5 & 1)),
			  htobe32(how >> 4 & 1), htobe32(how >> 2 & 1) },
	};

	if (how & 8)
		am.args[1] = htobe32(take16(in));
	if (g->requests && am.handler == htobe16(CAREFUL_EVENT_HEARD))
		am.handler = htobe16(CAREFUL_EVENT_STAY);
	deliver(g, slot, am, how, how >> 2 & 1);
}

static void program_sends(struct group *g, struct input *in, uint8_t what)
{
	static const uint32_t to[] = { CAREFUL_EVENT_ALL, 0, 2, NODES };
	uint8_t flags = take8(in);
	uint32_t bytes = take16(in) % (2 * BYTES_MAX);
	int rc;

	if (!g->ev)
		return;
	rc = careful_event_send(g->ev, to[what >> 6], g->event, g->node->memory, bytes,
				flags & 0x1f, 0);
	MUST(rc <= 0 && rc > -4096);
	g->event += flags >> 7;
}

static void program_receives(struct group *g, uint8_t what)
{
	static const uint32_t from[] = { CAREFUL_EVENT_ALL, 0, 2, RANK };
	struct careful_event_fragment got = { 0 };
	uint64_t event = g->event;
	static volatile uint8_t sink;
	int rc;

	if (!g->ev)
		return;
	/* the next event that arrived, or the program's current one */
	for (uint32_t i = 0; what & 0x20 && i < NODES; i++)
		if (i != RANK && g->ev->node[i].first)
			event = g->ev->node[i].first->event;
	rc = careful_event_receive(g->ev, from[what >> 6], event, &got, 0);
	MUST(rc <= 0 && rc > -4096);
	MUST(rc || (got.source < NODES && got.source != RANK));
	for (uint32_t i = 0; !rc && i < got.bytes; i++)
		sink = ((const uint8_t *)got.data)[i];
	(void)sink;
}

static void close_group(struct group *g, uint8_t what)
{
	if (!g->ev)
		return;
	careful_events_close(g->ev, what & 0x10 ? -EIO : 0, 0);
	g->ev = NULL;
}

static void run(struct input in, bool requests)
{
	struct group g = { .node = node_open(), .peers = { 0, 0, 1 }, .requests = requests };
	uint8_t steps = 0;

	MUST(node_session(g.node, 0));
	MUST(node_session(g.node, 1));
	open_group(&g);
	while (in.bytes && steps++ < 200) {
		uint8_t what = take8(&in);

		switch (what & 15) {
		case 0:
		case 1:
		case 2:
		case 3:
			fragment(&g, &in, what);
			break;
		case 4:
		case 5:
			group_message(&g, &in, what);
			break;
		case 6:
		case 7:
			program_sends(&g, &in, what);
			break;
		case 8:
		case 9:
		case 10:
			program_receives(&g, what);
			break;
		case 11:
			node_time(g.node, 1u << (what >> 4));
			break;
		case 12:
			node_leave(g.node, what >> 4);
			node_poll(g.node, 1);
			break;
		case 13:
			node_device(g.node, &in);
			break;
		case 14:
			if (what & 0x20)
				close_group(&g, what);
			else
				open_group(&g);
			break;
		default:
			if (what & 0x20)
				node_operation(g.node, &in);
			else
				node_frame(g.node, &in);
		}
	}
	close_group(&g, 0);
	node_close(g.node);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	run((struct input){ data, bytes }, false);
	run((struct input){ data, bytes }, true);
	return 0;
}
