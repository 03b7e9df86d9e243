// SPDX-License-Identifier: BSD-2-Clause
/* The nodes, the wires between them, the handshake, and groups. */
#include "loss.h"

#include <arpa/inet.h>
#include <endian.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <careful/frame.h>

static void node_init(struct world *world, int index)
{
	const struct setting *setting = &world->setting;
	struct node *node = &world->node[index];
	uint32_t peers = setting->nodes - 1u;
	struct careful_options options = {
		.peers = peers,
		.copyout_buffers = setting->pool,
		.reserve = setting->reserve,
		.sync_ms = 200,
		.stall_ms = 30000,
		.name = "explored",
	};
	struct careful_error error = { 0 };

	node->world = world;
	node->index = (uint8_t)index;
	node->port.ops = &world_port_ops;
	node->port.mtu = window_cost_max(setting->window) * BUFFER_BYTES - ETHERNET_BYTES;
	node->queue = (struct queue){
		.ops = &world_queue_ops,
		.port = &node->port,
		.umem = node->umem,
		.chunk_bytes = CHUNK_BYTES,
		.rx_chunks = peers * setting->window + setting->reserve,
		.tx_chunks = setting->tx_chunks,
		.buffer_bytes = BUFFER_BYTES,
		.segments_max = DEVICE_SEGMENTS_MAX,
		.frame_bytes_max = window_cost_max(setting->window) * BUFFER_BYTES,
		.info.receive_buffers = peers * setting->window + setting->reserve,
	};
	for (uint32_t i = 0; i < node->queue.rx_chunks; i++)
		node->fill_ring[i] = (uint64_t)i * CHUNK_BYTES;
	node->fill_count = node->queue.rx_chunks;
	if (link_init(&node->link, &node->queue, &options, &error)) {
		fprintf(stderr, "%s\n", error.text);
		exit(1);
	}
}

bool world_linked(const struct world *world, int from, int to)
{
	if (from == to)
		return false;
	return world->setting.pattern < PATTERN_STAR || from == 0 || to == 0;
}

bool world_sends(const struct world *world, int from, int to)
{
	if (!world_linked(world, from, to))
		return false;
	if (world->setting.casters)
		return from >= world->setting.casters && to == 0 &&
		       world->setting.pattern != PATTERN_CAST;
	if (world->setting.pattern == PATTERN_SINK)
		return to == 0;
	return world->setting.pattern != PATTERN_RING || to == (from + 1) % world->setting.nodes;
}

bool world_hoards(const struct world *world, int node)
{
	for (int to = 0; to < world->setting.nodes; to++)
		if (world_sends(world, node, to) && world->said[node][to] < world->setting.hoard)
			return true;
	return false;
}

/* Opens a session between each two nodes with the real handshake. */
static void handshake(struct world *world)
{
	for (int i = 0; i < world->setting.nodes; i++)
		for (int j = 0; j < world->setting.nodes; j++) {
			union address to = world_address(j);
			struct link_peer *peer;

			if (!world_linked(world, i, j))
				continue;
			peer = link_peer_get(&world->node[i].link, &to);
			world->node[i].slot_of[j] = (uint8_t)peer->slot;
			world->node[i].node_of[peer->slot] = (uint8_t)j;
			link_connect(peer);
		}
	for (int round = 0; round < 1000; round++) {
		world->now_ns += 1000000;
		for (int i = 0; i < world->setting.nodes; i++) {
			struct link *link = &world->node[i].link;
			struct link_rxframe frame;

			link->now_ns = world->now_ns;
			link_rx(link);
			while (link_rx_next(link, &frame))
				;
			link_control(link);
			link_tick(link);
			link_drained(link);
		}
	}
	for (int i = 0; i < world->setting.nodes; i++)
		for (int j = 0; j < world->setting.nodes; j++)
			if (world_linked(world, i, j) &&
			    world_peer(world, i, j)->phase != LINK_OPEN) {
				fprintf(stderr, "no session between node %d and node %d\n", i, j);
				exit(1);
			}
}

/* Makes a group of all others for each node that casts. */
static void open_groups(struct world *world)
{
	for (int i = 0; i < world->setting.casters; i++) {
		struct link_peer *others[NODES_MAX];
		uint32_t count = 0;

		for (int j = 0; j < world->setting.nodes; j++)
			if (j != i)
				others[count++] = world_peer(world, i, j);
		if (link_group_open(&world->node[i].link, 77u + (unsigned)i, others, count,
				    &world->node[i].group)) {
			fprintf(stderr, "no group of node %d\n", i);
			exit(1);
		}
		for (int j = 0; j < world->setting.nodes; j++)
			if (j != i && link_group_admit(world_peer(world, j, i), 77u + (unsigned)i,
						       world_member_of(i, j)))
				exit(1);
	}
}

void world_withhold(struct world *world, int from, int to, uint32_t withheld)
{
	struct window_rx *rx = &world_peer(world, to, from)->flow.rx;

	window_rx_withhold(rx, withheld, false);
	if (world->setting.threshold)
		rx->threshold = world->setting.threshold;
}

void world_init(struct world *world, const struct setting *setting)
{
	memset(world, 0, sizeof(*world));
	world->setting = *setting;
	world->random = 1;
	for (int i = 0; i < setting->nodes; i++)
		node_init(world, i);
	handshake(world);
	open_groups(world);
	for (int i = 0; setting->fault == FAULT_SHORT_LOG && i < setting->nodes; i++)
		for (uint32_t slot = 0; slot + 1u < setting->nodes; slot++)
			world->node[i].link.peers[slot].repair.log_mask = 1;
	for (int i = 0; i < setting->nodes; i++)
		for (int j = 0; j < setting->nodes; j++)
			if (world_linked(world, i, j))
				world_withhold(world, i, j, 0);
	for (uint32_t cost = 1; cost <= world->setting.cost_max; cost++) {
		struct link_txframe frame;

		if (!link_tx_get(world_peer(world, 0, 1), body_of(cost), &frame)) {
			fprintf(stderr, "too few send buffers for a frame\n");
			exit(1);
		}
		world->segments_of[cost] = (uint8_t)frame.segments;
		link_tx_put(&frame);
	}
}

void world_ask(struct world *world, int from, int to, uint8_t left)
{
	struct link_peer *peer = world_peer(world, from, to);
	uint32_t more = world->setting.asks_on ? 2u * world->setting.window : 0;

	world->left[from][to] = left;
	link_ask(peer, (uint64_t)(left + more) * link_body_max(peer), 0);
}

void world_deinit(struct world *world)
{
	for (int i = 0; i < world->setting.nodes; i++) {
		link_group_close(world->node[i].group);
		link_deinit(&world->node[i].link);
	}
}

/* Writes the frame that take_frame() saw into receive buffers of `to`. */
static void write_frame(struct world *world, int from, int to, const struct flight *flight,
			uint8_t *first)
{
	struct link_peer *here = world_peer(world, to, from);
	struct link_peer *there = world_peer(world, from, to);
	uint32_t body = flight->update ? 0 : body_of(flight->cost);
	uint32_t udp = 8 + LINK_HDR_BYTES + body;
	bool ping = flight->cost == 1 && !flight->update && !flight->cast && !world_loses(world);
	struct careful_hdr hdr = {
		.version = CAREFUL_WIRE_VERSION,
		.type = flight->update ? CAREFUL_UPDATE :
			ping	       ? CAREFUL_PING :
					 CAREFUL_DATA,
		.stage_limit = ping ? CAREFUL_STAGE_HOST_RX : 0,
		.src_node = htobe16(here->slot),
		.cookie = htobe64(here->cookie_in),
		.seq = htobe32(flight->seq),
		.credits = htobe32(flight->credits),
		.extra = htobe16(flight->ask),
		.msg_bytes = htobe32(body),
		.frag_bytes = htobe16((uint16_t)body),
	};

	if (flight->again) {
		const uint32_t at = flight->seq - here->flow.seq_in;
		const struct open *open = &world->open[from][to];

		hdr.flags = CAREFUL_F_BCAST_EVENT;
		hdr.msg_bytes = 0;
		hdr.frag_off = htobe32((int32_t)at > 0 ? open->gives[at - 1] : 0);
		hdr.msg_id = htobe32((int32_t)at > 0 ? open->more[at - 1] : 0);
	}
	if (flight->cast) {
		const uint32_t member = world_member_of(from, to);
		const uint32_t members = world->node[from].group->count;
		uint8_t *numbers = first + LL_BYTES + LINK_HDR_BYTES;

		numbers[2 * member] = (uint8_t)(flight->seq >> 8);
		numbers[2 * member + 1] = (uint8_t)flight->seq;
		hdr.flags = CAREFUL_F_BCAST_EVENT;
		hdr.msg_id = htobe32((uint32_t)flight->ask << 4 * member);
		hdr.msg_bytes = htobe32(members);
		hdr.frag_bytes = htobe16((uint16_t)(body - link_group_bytes(members)));
		hdr.extra = 0;
		hdr.cookie = htobe64(world->node[from].group->cookie);
		hdr.seq = 0;
		if (flight->cost == 1)
			hdr.payload_crc = htobe32(link_crc32c(numbers, body));
	}
	hdr.check = htobe32(careful_hdr_check(&hdr));
	memcpy(first, there->llhdr.data, LL_BYTES);
	first[16] = (uint8_t)((20 + udp) >> 8); /* IPv4's length */
	first[17] = (uint8_t)(20 + udp);
	first[LL_BYTES - 4] = (uint8_t)(udp >> 8);
	first[LL_BYTES - 3] = (uint8_t)udp;
	memcpy(first + LL_BYTES, &hdr, sizeof(hdr));
}

struct flight world_take_off(struct world *world, int from, int to, uint32_t index)
{
	struct wire *wire = &world->wire[from][to];
	struct flight flight = wire->flight[index];
	struct node *sender = &world->node[from];

	memmove(wire->flight + index, wire->flight + index + 1,
		(--wire->count - index) * sizeof(flight));
	for (uint32_t i = 0; i < flight.segments; i++)
		sender->sent[sender->sent_count++] = flight.chunk[i];
	return flight;
}

bool world_admits(struct world *world, int from, int to, const struct flight *flight)
{
	const uint32_t seq = flight->seq;
	const uint32_t bytes = flight->update ? LL_BYTES + LINK_HDR_BYTES :
						flight->cost * BUFFER_BYTES;
	struct link_peer *in = world_peer(world, to, from);
	struct careful_peer_entry *entry = in->entry, was = *entry;
	const struct careful_hdr hdr = {
		.type = CAREFUL_DATA,
		.cookie = htobe64(in->cookie_in),
		.seq = htobe32(seq),
	};
	enum careful_xdp_counter verdict;

	if (flight->cast)
		return loss_admits_cast(world, from, to, flight);
	/* XDP may not have seen the latest seq_taken yet, so it may admit an old number again. */
	if ((int32_t)(seq - in->flow.seq_in) <= 0)
		entry->seq_last = seq - 1;
	if (world->setting.fault == FAULT_WIDE)
		entry->window *= 2;
	if (world->setting.fault == FAULT_LAST_SEEN &&
	    seq - in->flow.seq_in <= world->open[from][to].count)
		for (uint32_t at = 2; at <= world->open[from][to].count; at++)
			if (loss_waits(world, from, to, at))
				entry->seq_last = entry->seq_taken = in->flow.seq_in + at;
	verdict = world->setting.sealed ? careful_frame_admit_sealed(entry, &hdr, bytes) :
					  careful_frame_admit(entry, &hdr, bytes);
	entry->window = was.window;
	entry->seq_last = entry->seq_taken = was.seq_taken;
	return verdict == CAREFUL_XDP_ADMITTED;
}

/* Reports whether XDP admits a frame. If not, another frame must still arrive. */
static bool admitted(struct world *world, int from, int to, const struct flight *flight)
{
	const struct link_peer *in = world_peer(world, to, from);
	const uint32_t at = flight->seq - in->flow.seq_in;
	const bool settles = loss_charged(in) && loss_settles(world, in);
	const bool untold = in->dirty &&
			    in->entry->may_fill != in->flow.rx.returned + in->flow.most;

	if (world_admits(world, from, to, flight))
		return true;
	world->refused = true;
	if ((int32_t)at > 0 && !loss_waits(world, from, to, at) && !settles && !untold)
		violation(world, FOUND_REFUSED);
	return false;
}

uint32_t world_deliver(struct world *world, int from, int to, uint32_t index)
{
	struct flight flight = world_take_off(world, from, to, index);
	struct node *node = &world->node[to];

	if (world_loses(world) && !admitted(world, from, to, &flight))
		return 0;
	if (node->fill_count < flight.cost) {
		violation(world, "a frame arrives and there is no buffer for it");
		return 0;
	}
	for (uint32_t i = 0; i < flight.cost; i++) {
		bool last = i + 1u == flight.cost;

		node->arrived[i] = (struct device_desc){
			.addr = node->fill_ring[i],
			.bytes = last && flight.update ? LL_BYTES + LINK_HDR_BYTES : BUFFER_BYTES,
			.options = last ? 0 : DEVICE_DESC_MORE,
		};
	}
	node->arrived_count = flight.cost;
	node->fill_count -= flight.cost;
	memmove(node->fill_ring, node->fill_ring + flight.cost,
		node->fill_count * sizeof(node->fill_ring[0]));
	write_frame(world, from, to, &flight, node->umem + node->arrived[0].addr);
	return flight.cost;
}
