// SPDX-License-Identifier: BSD-2-Clause
/* The virtual device of each node: checks sent frames and puts them on the wires. */
#include "loss.h"

#include <arpa/inet.h>
#include <endian.h>
#include <stddef.h>
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

/* Returns the destination node by the address in the IP header. */
static int destination(const struct node *node, const uint8_t *frame)
{
	int to = frame[33] - 1;

	if (to < 0 || to >= node->world->setting.nodes || to == node->index)
		violation(node->world, "a frame to nobody");
	return to < 0 || to >= NODES_MAX ? 0 : to;
}

/* Drops a probe outside the session: it has no number and no credit. */
static void take_outside(struct node *node, const struct careful_hdr *hdr,
			 const struct device_desc *descs, uint32_t n)
{
	if (hdr->seq || hdr->credits || be32toh(hdr->check) != careful_hdr_check(hdr))
		violation(node->world, "a probe outside the session takes part in it");
	for (uint32_t i = 0; i < n; i++)
		node->sent[node->sent_count++] = descs[i].addr & ~(uint64_t)(CHUNK_BYTES - 1);
}

static uint16_t extra_of(const struct careful_hdr *hdr, uint32_t member)
{
	return be32toh(hdr->msg_id) >> 4 * member & 15;
}

/* Checks that a frame has the next number, or equals the earlier frame with its number. */
static void check_number(struct world *world, int from, int to, const struct flight *flight)
{
	const uint8_t number = flight->cost | (flight->update ? FLIGHT_UPDATE : 0) |
			       (flight->cast || flight->again ? FLIGHT_CAST : 0);
	const uint32_t at = flight->seq - world_peer(world, to, from)->flow.seq_in;
	struct open *open = &world->open[from][to];

	if ((int32_t)(flight->seq - world_peer(world, from, to)->flow.seq_out) > 0) {
		violation(world, FOUND_NEVER);
	} else if (at == open->count + 1 && open->count < FRAMES_MAX) {
		open->gives[open->count] = open->more[open->count] = 0;
		open->number[open->count++] = number;
	} else if ((int32_t)at > (int32_t)open->count) {
		violation(world, "frames are not numbered one by one");
	} else if ((int32_t)at > 0 &&
		   (open->number[at - 1] & (uint8_t) ~(NUMBER_WAITS | FLIGHT_AGAIN)) != number) {
		violation(world, FOUND_REPAIR);
	}
}

/* Puts a broadcast on the wire to each node, and frees its buffers. */
static void take_cast(struct node *node, const struct careful_hdr *hdr,
		      const struct device_desc *descs, uint32_t n, const struct flight *cast)
{
	const uint8_t *numbers = node->umem + descs[0].addr + LL_BYTES + LINK_HDR_BYTES;
	struct world *world = node->world;

	for (int to = 0; to < world->setting.nodes; to++) {
		struct wire *wire = &world->wire[node->index][to];
		const struct open *open = &world->open[node->index][to];
		uint32_t member = world_member_of(node->index, to), seq;

		if (to == node->index)
			continue;
		seq = world_peer(world, to, node->index)->flow.seq_in + 1;
		seq += world_loses(world) ? open->count : wire->count;
		if ((numbers[2 * member] << 8 | numbers[2 * member + 1]) != (uint16_t)seq)
			violation(world, "a frame to all has another number than is due");
		if (wire->count == FRAMES_MAX)
			violation(world, "more under way than the window allows");
		else
			wire->flight[wire->count++] = *cast;
		/* In a broadcast, `ask` holds the credits that this member gets beyond the
		 * others. */
		wire->flight[wire->count - 1].ask = extra_of(hdr, member);
		wire->flight[wire->count - 1].seq = seq;
		if (!world_loses(world))
			continue;
		check_number(world, node->index, to, &wire->flight[wire->count - 1]);
		loss_note_cast(world, node->index, to, &wire->flight[wire->count - 1]);
	}
	if (be32toh(hdr->check) != careful_hdr_check(hdr) ||
	    be64toh(hdr->cookie) != node->group->cookie)
		violation(world, "a header that the receivers will refuse");
	for (uint32_t i = 0; i < n; i++)
		node->sent[node->sent_count++] = descs[i].addr & ~(uint64_t)(CHUNK_BYTES - 1);
}

static uint8_t cost_of(const struct device_desc *descs, uint32_t n)
{
	uint32_t bytes = 0;

	for (uint32_t i = 0; i < n; i++)
		bytes += descs[i].bytes;
	return (uint8_t)((bytes + BUFFER_BYTES - 1) / BUFFER_BYTES);
}

/* Takes a frame: checks the fields that the rule does not use, and puts the others on the wire. */
static void take_frame(struct node *node, const struct device_desc *descs, uint32_t n)
{
	struct world *world = node->world;
	const uint8_t *frame = node->umem + descs[0].addr;
	struct link_peer *there;
	struct flight *flight;
	struct careful_hdr hdr;
	struct wire *wire;
	int to;

	memcpy(&hdr, frame + LL_BYTES, sizeof(hdr));
	if (hdr.flags & CAREFUL_F_BCAST_EVENT && hdr.msg_bytes) {
		take_cast(node, &hdr, descs, n,
			  &(struct flight){ .cast = true,
					    .cost = cost_of(descs, n),
					    .credits = be32toh(hdr.credits) });
		return;
	}
	to = destination(node, frame);
	there = world_peer(world, to, node->index);
	wire = &world->wire[node->index][to];
	flight = &wire->flight[wire->count];
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
	    (!world_loses(world) && be32toh(hdr.seq) != there->flow.seq_in + wire->count + 1))
		violation(world, "a header that the receiver will refuse");
	for (uint32_t i = 0; i < n; i++)
		flight->chunk[i] = descs[i].addr & ~(uint64_t)(CHUNK_BYTES - 1);
	flight->segments = (uint8_t)n;
	flight->update = hdr.type == CAREFUL_UPDATE;
	flight->cast = false;
	flight->again = hdr.flags & CAREFUL_F_BCAST_EVENT;
	flight->cost = cost_of(descs, n);
	flight->credits = be32toh(hdr.credits);
	flight->ask = be16toh(hdr.extra);
	flight->seq = be32toh(hdr.seq);
	wire->count++;
	if (!world_loses(world))
		return;
	check_number(world, node->index, to, flight);
	if (!flight->update && frame[LL_BYTES + LINK_HDR_BYTES] != (uint8_t)flight->seq)
		violation(world, FOUND_REPAIR);
	if (flight->again)
		loss_check_again(world, node->index, to, flight, &hdr);
	for (; flight->segments; flight->segments--)
		node->sent[node->sent_count++] = flight->chunk[flight->segments - 1];
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

union address world_address(int node)
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
	other->ctrl[other->ctrl_count].from = world_address(node->index);
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

static struct careful_peer_entry *dev_admit(struct port *port, uint32_t slot, uint64_t cookie,
					    uint32_t window, uint32_t buffer_bytes, bool sealed)
{
	struct node *node = node_of_port(port);
	struct careful_peer_entry *entry = &node->entry[slot];

	node->cookie[slot] = cookie;
	(void)sealed; /* frames are not, though XDP can see them so */
	*entry = (struct careful_peer_entry){
		.cookie = cookie,
		.window = window,
		.sealed_window = node->world->setting.sealed ? window : 0,
		.buffer_bytes = buffer_bytes,
	};
	return entry;
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

static int dev_multicast(struct port *port, const union address *like, struct llhdr *llhdr)
{
	dev_resolve(port, like, llhdr);
	memset(llhdr->data + 30, 0xff, 4);
	return 0;
}

static int dev_group(struct port *port, uint32_t slot, uint64_t cookie, const union address *from)
{
	(void)port;
	(void)slot;
	(void)cookie;
	(void)from;
	return 0;
}

static struct careful_tune_entry *dev_tune(struct port *port, uint32_t slot)
{
	static struct careful_tune_entry entry; /* nothing is truncated here */

	(void)port;
	(void)slot;
	return &entry;
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

const struct queue_ops world_queue_ops = {
	.rx = dev_rx,
	.fill = dev_fill,
	.tx = dev_tx,
	.kick = dev_kick,
	.complete = dev_complete,
};

const struct port_ops world_port_ops = {
	.ctrl_send = dev_ctrl_send,
	.ctrl_recv = dev_ctrl_recv,
	.admit = dev_admit,
	.resolve = dev_resolve,
	.tune = dev_tune,
	.multicast = dev_multicast,
	.group = dev_group,
	.now_ns = dev_now,
	.random = dev_random,
};
