// SPDX-License-Identifier: BSD-2-Clause
/* The instance, its application, and the checks at its end. */
#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include "node.h"
#include "engine/sharing.h"

enum {
	HANDLER_REPLY = 0,
	HANDLER_KEEP = 1,
	HANDLER_LATE = 2, /* replies later, or never */
	HANDLER_ASK = 3, /* sends a request to the peer */
	HANDLER_CLOSE = 4, /* ends the session that it runs for */
};

/* Reads every byte for the sanitizer. */
static void touch(const void *payload, uint32_t bytes)
{
	static volatile uint8_t sink;
	const uint8_t *p = payload;

	for (uint32_t i = 0; i < bytes; i++)
		sink = p[i];
	(void)sink;
}

static void done(const struct careful_result *result, void *user)
{
	struct node *node = user;

	if (result->payload)
		touch(result->payload, result->bytes);
	MUST(result->status <= 0 && result->status > -4096);
	node->ended++;
}

static void keep(struct node *node, const struct careful_message *message)
{
	if (node->kept_count < NODE_KEPT) {
		struct careful_kept *kept = careful_keep(message);

		if (kept)
			node->kept[node->kept_count++] = kept;
	}
}

static void request(struct node *node, uint32_t peer, uint16_t handler, uint32_t bytes)
{
	int rc = careful_request(node->c, peer, handler, NULL, node->memory, bytes % NODE_BYTES,
				 done, node);

	node->begun += rc == 0;
}

static void on_message(const struct careful_message *message, void *user)
{
	struct node *node = user;

	touch(message->payload, message->bytes);
	switch (message->handler) {
	case HANDLER_KEEP:
		keep(node, message);
		/* fallthrough */
	case HANDLER_LATE:
		if (node->late_count < NODE_KEPT)
			careful_reply_name(message, &node->late[node->late_count++]);
		break;
	case HANDLER_ASK:
		request(node, message->peer, 7, message->args[0]);
		break;
	case HANDLER_CLOSE:
		careful_peer_close(node->c, message->peer);
		break;
	default:
		careful_reply(message, (int)message->args[1] % 4096, message->args,
			      message->payload, message->keepable ? message->bytes : 0);
	}
}

/* A region in a file has no bytes to read. */
static void on_stored(const struct careful_message *message, void *user)
{
	MUST(message->region);
	if (message->payload)
		touch(message->payload, message->bytes);
	if (message->handler == HANDLER_CLOSE)
		careful_peer_close(((struct node *)user)->c, message->peer);
}

static void add_regions(struct node *node)
{
	struct careful_region regions[NODE_REGIONS] = {
		{ .span = { .base = node->memory + NODE_BYTES, .fd = -1 },
		  .bytes = NODE_BYTES,
		  .access = CAREFUL_REGION_READ | CAREFUL_REGION_WRITE,
		  .peer = CAREFUL_ANY_PEER },
		{ .span = { .fd = node->fd },
		  .bytes = NODE_BYTES,
		  .access = CAREFUL_REGION_READ | CAREFUL_REGION_WRITE,
		  .peer = CAREFUL_ANY_PEER },
		/* larger than its file, so reads are short */
		{ .span = { .fd = node->fd, .offset = NODE_BYTES },
		  .bytes = 2 * NODE_BYTES,
		  .access = CAREFUL_REGION_READ,
		  .peer = 0 },
	};

	for (uint32_t i = 0; i < NODE_REGIONS; i++)
		MUST(careful_region_add(node->c, &regions[i], &node->keys[i]) == 0);
}

static struct node *open_node(bool measures, uint32_t reserve, const char *seal)
{
	const struct careful_options options = {
		.ifname = "fuzz",
		.peers = NODE_PEERS,
		.rx_buffers = NODE_RX,
		.tx_buffers = NODE_TX,
		.copyout_buffers = 4,
		.sync_ms = 200,
		.stall_ms = 2000,
		.measure_burst = measures,
		.reserve = reserve,
		.seal = seal,
	};
	struct node *node = calloc(1, sizeof(*node));
	struct engine_base base = {
		/* Small limits, so that they are reached. */
		.limits = { .operations = 32,
			    .regions = 8,
			    .messages = { .outs = 8, .parked = 16 } },
	};
	struct careful_error error;

	MUST(node);
	node->now_ns = 1000000000;
	node->random = 1;
	node->memory = calloc(2, NODE_BYTES);
	node->fd = memfd_create("fuzz", MFD_CLOEXEC);
	MUST(node->memory && node->fd >= 0 && !ftruncate(node->fd, NODE_BYTES + NODE_BYTES / 2));
	node_device_init(node);
	base.queue = &node->queue;
	base.storage = &node->storage;
	MUST(engine_open(&options, &base, &node->c, &error) == 0);
	engine_scratch(node->c, node->fd, CAREFUL_SCRATCH_FILE);
	for (uint16_t i = 0; i < 8; i++)
		careful_handle(node->c, i, on_message, node);
	for (uint16_t i = HANDLER_ASK; i < 8; i++)
		careful_handle_store(node->c, i, on_stored, node);
	add_regions(node);
	return node;
}

struct node *node_open(void)
{
	return open_node(false, 0, NULL);
}

struct node *node_open_keyed(const char *seal)
{
	struct node *node = open_node(false, 0, seal);

	node_trust(node);
	return node;
}

struct node *node_open_measuring(void)
{
	return open_node(true, 0, NULL);
}

struct node *node_open_reserving(uint32_t reserve)
{
	return open_node(false, reserve, NULL);
}

void node_poll(struct node *node, uint32_t times)
{
	for (uint32_t i = 0; i < times; i++)
		careful_poll(node->c);
}

void node_time(struct node *node, uint32_t ms)
{
	node->now_ns += (uint64_t)ms * 1000000;
	node_poll(node, 16); /* one of them checks the clock */
}

void node_leave(struct node *node, uint32_t n)
{
	uint32_t rest = node->sending_count - node->sent_count;

	if (!node->busy)
		node->sent_count += n < rest ? n : rest;
}

/* The application's and the controller's actions. */
void node_operation(struct node *node, struct input *in)
{
	const union address to = node_host(take8(in));
	uint8_t what = take8(in);
	uint32_t peer = what >> 6 & 1;
	uint32_t bytes = take16(in);
	uint32_t region = what & 0x20 ? node->keys[bytes % NODE_REGIONS] : bytes;
	struct careful_span span = { .base = node->memory, .fd = -1 };
	int rc = -1;

	if (what & 0x10)
		span = (struct careful_span){ .fd = node->fd, .offset = bytes & 0xff };
	switch (what & 7) {
	case 0:
		careful_peer(node->c, &to.sa, to.sa.sa_family == AF_INET6 ? 28 : 16);
		break;
	case 1:
		careful_peer_close(node->c, peer);
		break;
	case 2:
	case 3:
		request(node, peer, what & 0x0f, bytes);
		break;
	case 4:
	case 5:
		rc = careful_get(node->c, peer, region, bytes & 0xf00, &span, bytes % NODE_BYTES,
				 what >> 3 & 1, done, node);
		break;
	case 6:
		rc = careful_store(node->c, peer, region, bytes & 0xf00, &span, bytes % NODE_BYTES,
				   what >> 3 & 1 ? CAREFUL_HANDLERS : 0, NULL, bytes & 1, done,
				   node);
		break;
	default:
		if (node->late_count)
			careful_reply_late(node->c, &node->late[--node->late_count], 0, NULL,
					   node->memory, bytes % 400);
	}
	node->begun += rc == 0;
}

void node_release(struct node *node, struct input *in)
{
	uint32_t at;

	if (!node->kept_count)
		return;
	at = take8(in) % node->kept_count;
	careful_release(node->c, node->kept[at]);
	node->kept[at] = node->kept[--node->kept_count];
}

/* The failures of the device, the storage and the tune map. */
void node_device(struct node *node, struct input *in)
{
	uint8_t what = take8(in);
	uint32_t slot, bytes;
	const uint8_t *p;

	switch (what & 7) {
	case 0:
		node->io_mode = what >> 3;
		break;
	case 1:
		node->busy = what & 8;
		break;
	case 2:
		node->unresolved = what & 8;
		break;
	case 3:
		node->events |= DEVICE_ROUTES | DEVICE_DOWN;
		break;
	case 4: /* a smaller MTU, or the first one */
		node->port.mtu = (what & 8 ? NODE_FRAME : 256 + what) - ETHERNET_BYTES;
		node->events |= DEVICE_MTU;
		break;
	case 5:
		slot = what & 8 ? CAREFUL_TUNE_DEFAULT : what >> 4 & 1;
		p = take_bytes(in, 64, &bytes);
		memcpy((uint8_t *)&node->tune[slot] + (what >> 5) * 8, p, bytes);
		break;
	default:
		node_leave(node, 1 + (what >> 3));
	}
}

/* Releases all buffers of the device and the application. */
static void settle(struct node *node)
{
	struct input none = { 0 };

	node->busy = false;
	node->io_mode = 0;
	while (node->kept_count)
		node_release(node, &none);
	for (int i = 0; i < 8; i++) {
		node_leave(node, NODE_TX);
		node_time(node, 1);
		while (node->storage.pending)
			node_poll(node, 1);
	}
}

static void find_losses(struct node *node)
{
	struct careful *c = node->c;
	struct link *link = &c->link;

	link_complete(link);
	MUST(node->fill_count + node->arrived_count == NODE_RX);
	MUST(link->tx_free_count == NODE_TX);
	MUST(link->kept_free_count == NODE_RX + link->pool_count);
	MUST(link->pool_share.free == link->pool_count);
	MUST(link->reserve.free == link->reserve.count);
	MUST(node->begun == node->ended);
	for (uint32_t i = 0; i < NODE_PEERS; i++) {
		MUST(!link->peers[i].kept && !link->peers[i].kept_old);
		MUST(!link->peers[i].operations);
		MUST(!c->messages.peers[i].messages);
	}
	for (uint32_t i = 0; i < NODE_REGIONS; i++)
		MUST(careful_region_remove(c, node->keys[i]) == 0);
	MUST(c->messages.ins_free_count == c->messages.ins_count);
	MUST(!c->deferred_count);
}

void node_close(struct node *node)
{
	settle(node);
	for (uint32_t i = 0; i < NODE_PEERS; i++)
		careful_peer_close(node->c, i);
	settle(node);
	find_losses(node);
	careful_close(node->c);
	close(node->fd);
	free(node->tune);
	free(node->live);
	free(node->queue.umem);
	free(node->memory);
	free(node);
}
