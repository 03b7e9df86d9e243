// SPDX-License-Identifier: BSD-2-Clause
/* The virtual device under each node, the wires between them, and the handshake. */
#include "world.h"

#include <arpa/inet.h>
#include <endian.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct node *node_of(struct queue *queue)
{
	return (struct node *)queue;
}

static struct node *node_of_port(struct port *port)
{
	return (struct node *)((uint8_t *)port - offsetof(struct node, port));
}

static uint32_t dev_rx(struct queue *queue, struct device_desc *descs, uint32_t n)
{
	struct node *node = node_of(queue);
	uint32_t got = node->arrived_count;

	if (got > n)
		violation(node->world, "a frame of more descriptors than are asked for");
	memcpy(descs, node->arrived, got * sizeof(*descs));
	node->arrived_count = 0;
	return got;
}

static void dev_fill(struct queue *queue, const uint64_t *addrs, uint32_t n)
{
	struct node *node = node_of(queue);

	for (uint32_t i = 0; i < n; i++) {
		if (node->fill_count == queue->rx_chunks)
			violation(node->world, "more buffers in the fill ring than there are");
		else
			node->fill_ring[node->fill_count++] = addrs[i] &
							      ~(uint64_t)(CHUNK_BYTES - 1);
	}
}

/* The node for which a frame is: by the address in its IP header. */
static int destination(const struct node *node, const uint8_t *frame)
{
	int to = frame[33] - 1;

	if (to < 0 || to >= node->world->setting.nodes || to == node->index)
		violation(node->world, "a frame to nobody");
	return to < 0 || to >= NODES_MAX ? 0 : to;
}

/* A probe outside the session: it has no number and no credit, and goes no further. */
static void take_outside(struct node *node, const struct careful_hdr *hdr,
			 const struct device_desc *descs, uint32_t n)
{
	if (hdr->seq || hdr->credits || be32toh(hdr->check) != careful_hdr_check(hdr))
		violation(node->world, "a probe outside the session takes part in it");
	for (uint32_t i = 0; i < n; i++)
		node->sent[node->sent_count++] = descs[i].addr & ~(uint64_t)(CHUNK_BYTES - 1);
}

/* Takes one frame: what the rule doesn't see must be right, the rest goes on the wire. */
static void take_frame(struct node *node, const struct device_desc *descs, uint32_t n)
{
	struct world *world = node->world;
	const uint8_t *frame = node->umem + descs[0].addr;
	int to = destination(node, frame);
	struct link_peer *there = world_peer(world, to, node->index);
	struct wire *wire = &world->wire[node->index][to];
	struct flight *flight = &wire->flight[wire->count];
	struct careful_hdr hdr;
	uint32_t bytes = 0;

	memcpy(&hdr, frame + LL_BYTES, sizeof(hdr));
	if (hdr.type == CAREFUL_PING && hdr.stage_limit == CAREFUL_STAGE_NET_RX) {
		take_outside(node, &hdr, descs, n);
		return;
	}
	if (wire->count == FRAMES_MAX || n > TX_SEGMENTS_MAX) {
		violation(world, "more under way than the window allows");
		return;
	}
	if (be32toh(hdr.check) != careful_hdr_check(&hdr) ||
	    be64toh(hdr.cookie) != node->world->node[to].cookie[there->slot] ||
	    be16toh(hdr.src_node) != there->slot ||
	    be32toh(hdr.seq) != there->flow.seq_in + wire->count + 1)
		violation(world, "a header that the receiver will refuse");
	for (uint32_t i = 0; i < n; i++) {
		flight->chunk[i] = descs[i].addr & ~(uint64_t)(CHUNK_BYTES - 1);
		bytes += descs[i].bytes;
	}
	flight->segments = (uint8_t)n;
	flight->update = hdr.type == CAREFUL_UPDATE;
	flight->cost = (uint8_t)((bytes + BUFFER_BYTES - 1) / BUFFER_BYTES);
	flight->credits = be32toh(hdr.credits);
	flight->ask = be16toh(hdr.extra);
	wire->count++;
}

static uint32_t dev_tx(struct queue *queue, const struct device_desc *descs, uint32_t n)
{
	struct node *node = node_of(queue);
	uint32_t from = 0;

	for (uint32_t i = 0; i < n; i++) {
		if (descs[i].options & DEVICE_DESC_MORE)
			continue;
		take_frame(node, descs + from, i + 1 - from);
		from = i + 1;
	}
	return n;
}

static int dev_kick(struct queue *queue)
{
	(void)queue;
	return 0;
}

static uint32_t dev_complete(struct queue *queue, uint64_t *addrs, uint32_t n)
{
	struct node *node = node_of(queue);
	uint32_t got = node->sent_count < n ? node->sent_count : n;

	node->sent_count -= got;
	memcpy(addrs, node->sent + node->sent_count, got * sizeof(*addrs));
	return got;
}

static union address address_of(int node)
{
	return (union address){ .in = { .sin_family = AF_INET,
					.sin_port = htons(CAREFUL_PORT_DEFAULT),
					.sin_addr.s_addr = htonl(0x0a000001u + (unsigned)node) } };
}

static int dev_ctrl_send(struct port *port, const union address *to, const void *buf,
			 uint32_t bytes)
{
	struct node *node = node_of_port(port);
	struct node *other = &node->world->node[ntohl(to->in.sin_addr.s_addr) - 0x0a000001u];

	if (other->ctrl_count == CTRL_MAX || bytes != sizeof(other->ctrl[0].ctrl))
		return -ENOBUFS;
	other->ctrl[other->ctrl_count].from = address_of(node->index);
	memcpy(&other->ctrl[other->ctrl_count].ctrl, buf, bytes);
	other->ctrl_count++;
	return 0;
}

static ssize_t dev_ctrl_recv(struct port *port, union address *from, void *buf, uint32_t bytes,
			     struct arrival *arrival)
{
	struct node *node = node_of_port(port);

	if (!node->ctrl_count || bytes < sizeof(node->ctrl[0].ctrl))
		return -EAGAIN;
	*arrival = (struct arrival){ .at_ns = node->world->now_ns };
	*from = node->ctrl[0].from;
	memcpy(buf, &node->ctrl[0].ctrl, sizeof(node->ctrl[0].ctrl));
	memmove(node->ctrl, node->ctrl + 1, --node->ctrl_count * sizeof(node->ctrl[0]));
	return sizeof(node->ctrl[0].ctrl);
}

static uint32_t *dev_admit(struct port *port, uint32_t slot, uint64_t cookie, uint32_t window,
			   uint32_t buffer_bytes)
{
	static uint32_t may_fill; /* frames come with credits */

	(void)window;
	node_of_port(port)->cookie[slot] = cookie;
	(void)buffer_bytes;
	return &may_fill;
}

static int dev_resolve(struct port *port, const union address *to, struct llhdr *llhdr)
{
	(void)port;
	*llhdr = (struct llhdr){ .bytes = LL_BYTES };
	llhdr->data[12] = 0x08; /* IPv4, UDP */
	llhdr->data[14] = 0x45;
	llhdr->data[23] = 17;
	memcpy(llhdr->data + 30, &to->in.sin_addr, 4);
	return 0;
}

static uint64_t dev_now(struct port *port)
{
	return node_of_port(port)->world->now_ns;
}

static void dev_random(struct port *port, void *buf, uint32_t bytes)
{
	struct world *world = node_of_port(port)->world;
	uint8_t *p = buf;

	for (uint32_t i = 0; i < bytes; i++) {
		world->random = world->random * 6364136223846793005u + 1442695040888963407u;
		p[i] = (uint8_t)(world->random >> 56);
	}
}

static const struct queue_ops queue_ops = {
	.rx = dev_rx,
	.fill = dev_fill,
	.tx = dev_tx,
	.kick = dev_kick,
	.complete = dev_complete,
};

static const struct port_ops port_ops = {
	.ctrl_send = dev_ctrl_send,
	.ctrl_recv = dev_ctrl_recv,
	.admit = dev_admit,
	.resolve = dev_resolve,
	.now_ns = dev_now,
	.random = dev_random,
};

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
	struct careful_error error = { "" };

	node->world = world;
	node->index = (uint8_t)index;
	node->port.ops = &port_ops;
	node->port.mtu = window_cost_max(setting->window) * BUFFER_BYTES - ETHERNET_BYTES;
	node->queue = (struct queue){
		.ops = &queue_ops,
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
	if (world->setting.pattern == PATTERN_SINK)
		return to == 0;
	return world->setting.pattern != PATTERN_RING || to == (from + 1) % world->setting.nodes;
}

/* Lets the real handshake make a session between each two nodes. */
static void handshake(struct world *world)
{
	for (int i = 0; i < world->setting.nodes; i++)
		for (int j = 0; j < world->setting.nodes; j++) {
			union address to = address_of(j);
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
			struct link_rxframe frames[LINK_BATCH];
			bool more;

			link->now_ns = world->now_ns;
			link_rx(link, frames, LINK_BATCH, &more);
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

void world_init(struct world *world, const struct setting *setting)
{
	memset(world, 0, sizeof(*world));
	world->setting = *setting;
	world->random = 1;
	for (int i = 0; i < setting->nodes; i++)
		node_init(world, i);
	handshake(world);
	for (int i = 0; setting->threshold && i < setting->nodes; i++)
		for (uint32_t slot = 0; slot + 1u < setting->nodes; slot++)
			world->node[i].link.peers[slot].flow.rx.threshold = setting->threshold;
	if (!world->setting.cost_max) {
		const struct link_peer *peer = world_peer(world, 0, 1);

		world->setting.cost_max = (uint8_t)link_cost(peer, link_body_max(peer));
	}
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
	for (int i = 0; i < world->setting.nodes; i++)
		link_deinit(&world->node[i].link);
}

/* Writes the frame anew, as take_frame() saw it, into receive buffers of `to`. */
static void write_frame(struct world *world, int from, int to, const struct flight *flight,
			uint8_t *first)
{
	struct link_peer *here = world_peer(world, to, from);
	struct link_peer *there = world_peer(world, from, to);
	uint32_t body = flight->update ? 0 : body_of(flight->cost);
	uint32_t udp = 8 + LINK_HDR_BYTES + body;
	struct careful_hdr hdr = {
		.version = CAREFUL_WIRE_VERSION,
		.type = flight->update	  ? CAREFUL_UPDATE :
			flight->cost == 1 ? CAREFUL_PING :
					    CAREFUL_DATA,
		.stage_limit = flight->cost == 1 && !flight->update ? CAREFUL_STAGE_HOST_RX : 0,
		.src_node = htobe16(here->slot),
		.cookie = htobe64(here->cookie_in),
		.seq = htobe32(here->flow.seq_in + 1),
		.credits = htobe32(flight->credits),
		.extra = htobe16(flight->ask),
		.msg_bytes = htobe32(body),
		.frag_bytes = htobe16((uint16_t)body),
	};

	hdr.check = htobe32(careful_hdr_check(&hdr));
	memcpy(first, there->llhdr.data, LL_BYTES);
	first[16] = (uint8_t)((20 + udp) >> 8); /* IPv4's length */
	first[17] = (uint8_t)(20 + udp);
	first[LL_BYTES - 4] = (uint8_t)(udp >> 8);
	first[LL_BYTES - 3] = (uint8_t)udp;
	memcpy(first + LL_BYTES, &hdr, sizeof(hdr));
}

uint32_t world_deliver(struct world *world, int from, int to)
{
	struct wire *wire = &world->wire[from][to];
	struct node *node = &world->node[to], *sender = &world->node[from];
	struct flight flight = wire->flight[0];

	memmove(wire->flight, wire->flight + 1, --wire->count * sizeof(flight));
	for (uint32_t i = 0; i < flight.segments; i++)
		sender->sent[sender->sent_count++] = flight.chunk[i];
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
