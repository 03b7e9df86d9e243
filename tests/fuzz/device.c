// SPDX-License-Identifier: BSD-2-Clause
/* The device and the storage under the instance, in place of AF_XDP and io_uring. */
#include <arpa/inet.h>
#include <errno.h>
#include <stddef.h>
#include <unistd.h>

#include "node.h"

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
	uint32_t got = 0, whole = 0;

	for (uint32_t i = 0; i < node->arrived_count && i < n; i++)
		if (!(node->arrived[i].options & DEVICE_DESC_MORE))
			whole = i + 1;
	got = whole;
	memcpy(descs, node->arrived, got * sizeof(*descs));
	node->arrived_count -= got;
	memmove(node->arrived, node->arrived + got, node->arrived_count * sizeof(*descs));
	return got;
}

static void dev_fill(struct queue *queue, const uint64_t *addrs, uint32_t n)
{
	struct node *node = node_of(queue);

	for (uint32_t i = 0; i < n; i++) {
		uint64_t chunk = addrs[i] / NODE_CHUNK;

		MUST(chunk < NODE_RX && !node->in_ring[chunk]);
		node->in_ring[chunk] = true;
		node->fill_ring[node->fill_count++] = chunk * NODE_CHUNK;
	}
}

/* Reports whether a send buffer holds a train frame. */
static bool is_train(const struct node *node, uint64_t chunk)
{
	const struct careful_hdr *hdr =
		(const void *)(node->queue.umem + chunk + LINK_PAYLOAD_AT - LINK_HDR_BYTES);

	return hdr->type == CAREFUL_TRAIN;
}

static uint32_t dev_tx(struct queue *queue, const struct device_desc *descs, uint32_t n)
{
	struct node *node = node_of(queue);

	for (uint32_t i = 0; i < n; i++) {
		uint64_t chunk = descs[i].addr / NODE_CHUNK * NODE_CHUNK;

		MUST(chunk >= (uint64_t)NODE_RX * NODE_CHUNK && node->sending_count < NODE_TX);
		MUST(descs[i].addr + descs[i].bytes <= chunk + NODE_CHUNK);
		for (uint32_t k = 0; k < node->sending_count; k++)
			MUST(node->sending[k] != chunk);
		node->sending[node->sending_count++] = chunk;
		node->trains_sent += is_train(node, chunk);
	}
	return n;
}

static int dev_kick(struct queue *queue)
{
	return node_of(queue)->busy ? -EAGAIN : 0;
}

static uint32_t dev_complete(struct queue *queue, uint64_t *addrs, uint32_t n)
{
	struct node *node = node_of(queue);
	uint32_t got = node->sent_count < n ? node->sent_count : n;

	memcpy(addrs, node->sending, got * sizeof(*addrs));
	node->sent_count -= got;
	node->sending_count -= got;
	memmove(node->sending, node->sending + got, node->sending_count * sizeof(*addrs));
	return got;
}

/* Returns a host's address; numbers from NODE_HOSTS on have the same addresses with another port. */
union address node_host(uint32_t host)
{
	const in_port_t port = htons((uint16_t)(CAREFUL_PORT_DEFAULT + host / NODE_HOSTS));

	if (host % NODE_HOSTS == 3) {
		union address a = { .in6 = { .sin6_family = AF_INET6, .sin6_port = port } };

		a.in6.sin6_addr.s6_addr[15] = 9;
		return a;
	}
	return (union address){ .in = { .sin_family = AF_INET,
					.sin_port = port,
					.sin_addr.s_addr =
						htonl(0x0a000001 + host % NODE_HOSTS) } };
}

static int dev_ctrl_send(struct port *port, const union address *to, const void *buf,
			 uint32_t bytes)
{
	struct node *node = node_of_port(port);
	struct careful_ctrl ctrl;

	if (bytes == sizeof(struct careful_ping_answer)) {
		MUST(((const struct careful_ping_answer *)buf)->type == CAREFUL_PING_ANSWER);
		node->answers++;
		return 0;
	}
	if (node->c && node->c->link.keyed)
		node_check_sent(node, buf, bytes);
	else
		MUST(bytes == sizeof(ctrl));
	memcpy(&ctrl, buf, sizeof(ctrl));
	if (bytes == sizeof(struct careful_keyed)) { /* only its beginning is not encrypted */
		ctrl = (struct careful_ctrl){ .version = ctrl.version, .type = ctrl.type };
		ctrl.nonce = ((const struct careful_keyed *)buf)->nonce;
		ctrl.token = ((const struct careful_keyed *)buf)->token;
	}
	if (ctrl.type >= CAREFUL_TRAIN_ASK && ctrl.type <= CAREFUL_TRAIN_OVER) {
		node->train = ctrl;
		node->train_messages[ctrl.type - CAREFUL_TRAIN_ASK]++;
		return 0;
	}
	if (ctrl.type == CAREFUL_MISSING)
		return 0;
	MUST(ctrl.type >= CAREFUL_HELLO && ctrl.type <= CAREFUL_BYE);
	node->sent[ctrl.type & 7] = ctrl;
	node->sent_to[ctrl.type & 7] =
		to->sa.sa_family == AF_INET6 ? 3 : ntohl(to->in.sin_addr.s_addr) - 0x0a000001;
	node->last = ctrl;
	node->last_bytes = bytes;
	if (bytes == sizeof(node->last_proved))
		memcpy(&node->last_proved, buf, bytes);
	return node->busy ? -ENOBUFS : 0;
}

static ssize_t dev_ctrl_recv(struct port *port, union address *from, void *buf, uint32_t bytes,
			     struct arrival *arrival)
{
	struct node *node = node_of_port(port);
	uint32_t at = node->ctrl_first;

	if (!node->ctrl_count)
		return -EAGAIN;
	node->ctrl_first = (at + 1) % NODE_CTRL;
	node->ctrl_count--;
	*from = node->ctrl[at].from;
	MUST(bytes >= sizeof(node->ctrl[at].data));
	*arrival = (struct arrival){ .at_ns = node->now_ns, .by = node_host(1) };
	if (node->ctrl[at].bytes > 0)
		memcpy(buf, node->ctrl[at].data, (size_t)node->ctrl[at].bytes);
	else if (node->ctrl[at].bytes == -EHOSTUNREACH)
		memcpy(buf, node->ctrl[at].data, sizeof(struct careful_hdr));
	else if (node->ctrl[at].bytes == -ECONNREFUSED)
		memcpy(buf, node->ctrl[at].data, sizeof(struct careful_ctrl));
	return node->ctrl[at].bytes;
}

static struct careful_peer_entry *dev_admit(struct port *port, uint32_t slot, uint64_t cookie,
					    uint32_t window, uint32_t buffer_bytes, bool sealed)
{
	static struct careful_peer_entry entry; /* every frame has a credit */

	(void)port;
	(void)cookie;
	(void)window;
	MUST(slot < NODE_PEERS);
	(void)buffer_bytes;
	(void)sealed;
	return &entry;
}

static struct careful_tune_entry *dev_tune(struct port *port, uint32_t slot)
{
	MUST(slot <= CAREFUL_TUNE_DEFAULT);
	return &node_of_port(port)->tune[slot];
}

static struct careful_live_entry *dev_live(struct port *port, uint32_t slot)
{
	return &node_of_port(port)->live[slot];
}

static struct careful_arrivals *dev_arrivals(struct port *port)
{
	return &node_of_port(port)->arrivals;
}

static int dev_resolve(struct port *port, const union address *to, struct llhdr *llhdr)
{
	if (node_of_port(port)->unresolved)
		return -EAGAIN;
	*llhdr = (struct llhdr){ .bytes = to->sa.sa_family == AF_INET6 ? 62 : NODE_LL,
				 .neighbour = node_of_port(port)->neighbours };
	llhdr->data[5] = (uint8_t)(to->sa.sa_family == AF_INET6 ? NODE_TWICE :
								  ntohl(to->in.sin_addr.s_addr));
	return 0;
}

static uint64_t dev_now(struct port *port)
{
	return node_of_port(port)->now_ns;
}

static void dev_random(struct port *port, void *buf, uint32_t bytes)
{
	struct node *node = node_of_port(port);
	uint8_t *p = buf;

	for (uint32_t i = 0; i < bytes; i++) {
		node->random = node->random * 6364136223846793005u + 1442695040888963407u;
		p[i] = (uint8_t)(node->random >> 56);
	}
}

static uint32_t dev_events(struct port *port)
{
	uint32_t events = node_of_port(port)->events;

	node_of_port(port)->events = 0;
	return events;
}

// NOLINTNEXTLINE(readability-non-const-parameter): as the ops say
static uint32_t dev_wait_fds(struct port *port, int *fds, uint32_t n)
{
	(void)port;
	(void)fds;
	(void)n;
	return 0;
}

static void dev_statistics(struct queue *queue, struct careful_device_statistics *out)
{
	(void)queue;
	*out = (struct careful_device_statistics){ 0 };
}

static void dev_stamps(struct port *port, bool on)
{
	(void)port;
	(void)on;
}

static void dev_probed(struct port *port, uint32_t slot, struct ping_seen *probed)
{
	MUST(slot < NODE_PEERS);
	*probed = node_of_port(port)->probed[slot];
}

static void dev_train(struct port *port, uint32_t slot, uint32_t number)
{
	struct node *node = node_of_port(port);

	MUST(slot < NODE_PEERS);
	node->trained[slot] =
		(struct train_seen){ .frames = node->is_train_manual ? 0 : number % 7 };
}

/* Each call reports some more train frames. */
static void dev_trained(struct port *port, uint32_t slot, struct train_seen *seen)
{
	struct node *node = node_of_port(port);

	MUST(slot < NODE_PEERS);
	*seen = node->trained[slot];
	if (node->is_train_manual)
		return;
	node->trained[slot].frames += (uint32_t)(node->now_ns / 1000) % 3;
	node->trained[slot].whole = node->trained[slot].frames * 2 / 3;
	node->trained[slot].span_ns += 1000;
	*seen = node->trained[slot];
}

/* node_close() frees the node. */
static void dev_close(struct queue *queue)
{
	(void)queue;
}

static void dev_close_port(struct port *port)
{
	(void)port;
}

static const struct queue_ops queue_ops = {
	.rx = dev_rx,
	.fill = dev_fill,
	.tx = dev_tx,
	.kick = dev_kick,
	.complete = dev_complete,
	.statistics = dev_statistics,
	.close = dev_close,
};

static const struct port_ops port_ops = {
	.ctrl_send = dev_ctrl_send,
	.ctrl_recv = dev_ctrl_recv,
	.stamps = dev_stamps,
	.probed = dev_probed,
	.train = dev_train,
	.trained = dev_trained,
	.admit = dev_admit,
	.tune = dev_tune,
	.live = dev_live,
	.arrivals = dev_arrivals,
	.resolve = dev_resolve,
	.now_ns = dev_now,
	.random = dev_random,
	.events = dev_events,
	.wait_fds = dev_wait_fds,
	.close = dev_close_port,
};

static struct node *node_of_storage(struct storage *storage)
{
	return (struct node *)((uint8_t *)storage - offsetof(struct node, storage));
}

/* Moves some or all bytes, or fails, by the mode. */
static void io_do(struct node *node, struct storage_io *io)
{
	uint8_t mode = node->io_mode & 7;
	uint64_t bytes = 0;

	MUST(io->iov_count && io->iov_count <= STORAGE_IO_SEGMENTS);
	for (uint32_t i = 0; i < io->iov_count; i++)
		bytes += io->iov[i].iov_len;
	MUST(bytes == io->bytes);
	if (mode == 6)
		io->result = -EIO;
	else if (io->write)
		io->result = pwritev(io->fd, io->iov, io->iov_count, (off_t)io->offset);
	else
		io->result = preadv(io->fd, io->iov, io->iov_count, (off_t)io->offset);
	if (mode == 7 && io->result > 0)
		io->result--;
}

static int io_submit(struct storage *storage, struct storage_io *io)
{
	struct node *node = node_of_storage(storage);

	if (node->io_mode & 8 && !(node->io_mode & 0x10))
		return -EAGAIN;
	if (node->io_mode & 1 && node->storage.pending < NODE_IOS) {
		node->ios[node->storage.pending++] = io;
		return 0;
	}
	io_do(node, io);
	return 1;
}

static bool io_waits(struct storage *storage, struct storage_io *io)
{
	(void)io;
	return node_of_storage(storage)->io_mode & 1;
}

/* Ends the oldest or the newest operation. */
static uint32_t io_poll(struct storage *storage)
{
	struct node *node = node_of_storage(storage);
	uint32_t at = node->io_mode & 2 ? node->storage.pending - 1 : 0;
	struct storage_io *io;

	if (!node->storage.pending || node->io_mode & 4)
		return 0;
	io = node->ios[at];
	memmove(node->ios + at, node->ios + at + 1,
		(--node->storage.pending - at) * sizeof(struct storage_io *));
	io_do(node, io);
	io->done(io);
	return 1;
}

static int io_wait_fd(struct storage *storage)
{
	(void)storage;
	return -1;
}

static uint32_t io_close(struct storage *storage)
{
	(void)storage;
	return 0;
}

static const struct storage_ops storage_ops = {
	.submit = io_submit,
	.waits = io_waits,
	.poll = io_poll,
	.wait_fd = io_wait_fd,
	.close = io_close,
};

void node_device_init(struct node *node)
{
	node->storage.ops = &storage_ops;
	node->port = (struct port){ .ops = &port_ops, .mtu = NODE_FRAME - ETHERNET_BYTES };
	node->queue = (struct queue){
		.ops = &queue_ops,
		.port = &node->port,
		.umem = calloc(NODE_RX + NODE_TX, NODE_CHUNK),
		.chunk_bytes = NODE_CHUNK,
		.rx_chunks = NODE_RX,
		.tx_chunks = NODE_TX,
		.buffer_bytes = NODE_BUFFER,
		.segments_max = DEVICE_SEGMENTS_MAX,
		.frame_bytes_max = NODE_FRAME,
		.fd = -1,
		.info.receive_buffers = NODE_RX,
	};
	node->tune = calloc(CAREFUL_TUNE_DEFAULT + 1, sizeof(*node->tune));
	node->live = calloc(CAREFUL_PEERS_MAX, sizeof(*node->live));
	MUST(node->queue.umem && node->tune && node->live);
	for (uint32_t i = 0; i < NODE_RX; i++) {
		node->fill_ring[node->fill_count++] = (uint64_t)i * NODE_CHUNK;
		node->in_ring[i] = true;
	}
}

/* Delivers a frame, cut into buffers like by a NIC; without free buffers it is lost. */
void node_arrive(struct node *node, const uint8_t *frame, uint32_t bytes)
{
	uint32_t need = bytes ? (bytes + NODE_BUFFER - 1) / NODE_BUFFER : 1;

	if (need > node->fill_count || node->arrived_count + need > NODE_RX)
		return;
	for (uint32_t i = 0; i < need; i++) {
		uint32_t part = bytes < NODE_BUFFER ? bytes : NODE_BUFFER;
		uint64_t addr = node->fill_ring[i];

		node->in_ring[addr / NODE_CHUNK] = false;
		/* Not aligned, like on a NIC; the rest of the chunk does not belong to the
		 * frame. */
		addr += 256 - 14;
		memcpy(node->queue.umem + addr, frame, part);
		node->arrived[node->arrived_count++] = (struct device_desc){
			.addr = addr,
			.bytes = part,
			.options = i + 1 < need ? DEVICE_DESC_MORE : 0,
		};
		frame += part;
		bytes -= part;
	}
	node->fill_count -= need;
	memmove(node->fill_ring, node->fill_ring + need, node->fill_count * sizeof(uint64_t));
}
