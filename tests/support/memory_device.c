// SPDX-License-Identifier: BSD-2-Clause
/* Two devices joined in memory. */
#include "memory_device.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <careful/wire.h>

#include "engine/engine.h"

enum {
	BASE = 0x0a4d0002, /* the first of the addresses: 10.77.0.2 */
	MEMORY_HUGE = 2 << 20, /* bytes of a huge page */
};

static struct memory *of_queue(struct queue *queue)
{
	return (struct memory *)(void *)queue;
}

static struct memory *of_port(struct port *port)
{
	return (struct memory *)(void *)((uint8_t *)port - offsetof(struct memory, port));
}

static uint32_t ring_count(const struct memory_ring *ring)
{
	return ring->head - ring->tail;
}

static uint32_t memory_rx(struct queue *queue, struct device_desc *descs, uint32_t n)
{
	struct memory *end = of_queue(queue);
	uint32_t got = ring_count(&end->rx);

	end->calls.rx++;
	got = got < n ? got : n;
	for (uint32_t i = 0; i < got; i++)
		descs[i] = end->rx_ring[end->rx.tail++ & (queue->rx_chunks - 1)];
	return got;
}

static void memory_fill(struct queue *queue, const uint64_t *addrs, uint32_t n)
{
	struct memory *end = of_queue(queue);

	end->calls.fill++;
	assert(ring_count(&end->fill) + n <= queue->rx_chunks);
	for (uint32_t i = 0; i < n; i++)
		end->fill_ring[end->fill.head++ & (queue->rx_chunks - 1)] = addrs[i] &
									    ~(MEMORY_CHUNK - 1ull);
}

static uint32_t memory_tx(struct queue *queue, const struct device_desc *descs, uint32_t n)
{
	struct memory *end = of_queue(queue);

	end->calls.tx++;
	assert(ring_count(&end->held) + n <= MEMORY_TX);
	for (uint32_t i = 0; i < n; i++)
		end->held_ring[end->held.head++ % MEMORY_TX] = descs[i];
	return n;
}

/* Copies the frame to the other end, which granted a credit for it, and frees its chunk. */
static void pass(struct memory *end, struct device_desc desc)
{
	struct memory *to = end->other;
	const uint32_t mask = to->queue.rx_chunks - 1;
	uint64_t addr;

	assert(ring_count(&to->fill) && desc.bytes <= MEMORY_FRAME && !desc.options);
	addr = to->fill_ring[to->fill.tail++ & mask] + MEMORY_HEADROOM;
	memcpy(to->queue.umem + addr, end->queue.umem + desc.addr, desc.bytes);
	to->rx_ring[to->rx.head++ & mask] =
		(struct device_desc){ .addr = addr, .bytes = desc.bytes };
	end->left_ring[end->left.head++ % MEMORY_TX] = desc.addr;
	end->calls.frames++;
}

static int memory_kick(struct queue *queue)
{
	struct memory *end = of_queue(queue);

	end->calls.kick++;
	while (ring_count(&end->held))
		pass(end, end->held_ring[end->held.tail++ % MEMORY_TX]);
	return 0;
}

static uint32_t memory_complete(struct queue *queue, uint64_t *addrs, uint32_t n)
{
	struct memory *end = of_queue(queue);
	uint32_t got = ring_count(&end->left);

	end->calls.complete++;
	got = got < n ? got : n;
	for (uint32_t i = 0; i < got; i++)
		addrs[i] = end->left_ring[end->left.tail++ % MEMORY_TX];
	return got;
}

static void memory_statistics(struct queue *queue, struct careful_device_statistics *out)
{
	(void)queue;
	*out = (struct careful_device_statistics){ 0 };
}

union address memory_address(uint32_t side, uint32_t number)
{
	return (union address){ .in = { .sin_family = AF_INET,
					.sin_port = htons(CAREFUL_PORT_DEFAULT),
					.sin_addr.s_addr = htonl(BASE + 2 * number + side) } };
}

static int memory_ctrl_send(struct port *port, const union address *to, const void *buf,
			    uint32_t bytes)
{
	struct memory *other = of_port(port)->other;
	struct memory_ctrl *ctrl = &other->ctrl_ring[other->ctrl.head % MEMORY_CTRL];

	assert(bytes <= sizeof(ctrl->data));
	if (ring_count(&other->ctrl) == MEMORY_CTRL)
		return -ENOBUFS;
	ctrl->bytes = bytes;
	ctrl->number = (ntohl(to->in.sin_addr.s_addr) - BASE) / 2;
	memcpy(ctrl->data, buf, bytes);
	other->ctrl.head++;
	return 0;
}

static ssize_t memory_ctrl_recv(struct port *port, union address *from, void *buf, uint32_t bytes,
				struct arrival *arrival)
{
	struct memory *end = of_port(port);
	const struct memory_ctrl *ctrl;

	end->calls.ctrl_recv++;
	if (!ring_count(&end->ctrl))
		return -EAGAIN;
	ctrl = &end->ctrl_ring[end->ctrl.tail++ % MEMORY_CTRL];
	*from = memory_address(!end->side, ctrl->number);
	arrival->at_ns = end->now_ns;
	memcpy(buf, ctrl->data, ctrl->bytes < bytes ? ctrl->bytes : bytes);
	return ctrl->bytes;
}

static void memory_stamps(struct port *port, bool on)
{
	(void)port;
	(void)on;
}

static struct careful_peer_entry *memory_admit(struct port *port, uint32_t slot, uint64_t cookie,
					       uint32_t window, uint32_t buffer_bytes, bool sealed)
{
	static struct careful_peer_entry entry; /* each frame has a credit */

	(void)port;
	(void)slot;
	(void)cookie;
	(void)window;
	(void)buffer_bytes;
	(void)sealed;
	return &entry;
}

static void memory_probed(struct port *port, uint32_t slot, struct ping_seen *probed)
{
	(void)port;
	(void)slot;
	*probed = (struct ping_seen){ 0 };
}

static struct careful_tune_entry *memory_tune(struct port *port, uint32_t slot)
{
	struct memory *end = of_port(port);

	end->calls.tune++;
	return &end->tune[slot];
}

static struct careful_live_entry *memory_live(struct port *port, uint32_t slot)
{
	return &of_port(port)->live[slot];
}

static int memory_resolve(struct port *port, const union address *to, struct llhdr *llhdr)
{
	(void)port;
	(void)to;
	*llhdr = (struct llhdr){ .bytes = MEMORY_LL };
	llhdr->data[12] = 0x08; /* IPv4, UDP; addresses and checksums are unused */
	llhdr->data[14] = 0x45;
	llhdr->data[23] = 17;
	llhdr->data[36] = CAREFUL_PORT_DEFAULT >> 8;
	llhdr->data[37] = CAREFUL_PORT_DEFAULT & 0xff;
	return 0;
}

static uint64_t memory_now(struct port *port)
{
	struct memory *end = of_port(port);

	end->calls.clock++;
	return end->now_ns;
}

static void memory_random(struct port *port, void *buf, uint32_t bytes)
{
	struct memory *end = of_port(port);
	uint8_t *p = buf;

	for (uint32_t i = 0; i < bytes; i++) {
		end->random = end->random * 6364136223846793005u + 1442695040888963407u;
		p[i] = (uint8_t)(end->random >> 56);
	}
}

static uint32_t memory_events(struct port *port)
{
	(void)port;
	return 0;
}

// NOLINTNEXTLINE(readability-non-const-parameter): required by the ops
static uint32_t memory_wait_fds(struct port *port, int *fds, uint32_t n)
{
	(void)port;
	(void)fds;
	(void)n;
	return 0;
}

static void memory_close(struct queue *queue)
{
	(void)queue;
}

static void memory_close_port(struct port *port)
{
	(void)port;
}

static const struct queue_ops queue_ops = {
	.rx = memory_rx,
	.fill = memory_fill,
	.tx = memory_tx,
	.kick = memory_kick,
	.complete = memory_complete,
	.statistics = memory_statistics,
	.close = memory_close,
};

static const struct port_ops port_ops = {
	.ctrl_send = memory_ctrl_send,
	.ctrl_recv = memory_ctrl_recv,
	.stamps = memory_stamps,
	.admit = memory_admit,
	.probed = memory_probed,
	.tune = memory_tune,
	.live = memory_live,
	.resolve = memory_resolve,
	.now_ns = memory_now,
	.random = memory_random,
	.events = memory_events,
	.wait_fds = memory_wait_fds,
	.close = memory_close_port,
};

static int no_submit(struct storage *storage, struct storage_io *io)
{
	(void)storage;
	io->result = -EIO;
	return 1;
}

static bool no_wait(struct storage *storage, struct storage_io *io)
{
	(void)storage;
	(void)io;
	return false;
}

static uint32_t no_io(struct storage *storage)
{
	(void)storage;
	return 0;
}

static int no_fd(struct storage *storage)
{
	(void)storage;
	return -1;
}

static const struct storage_ops storage_ops = {
	.submit = no_submit,
	.waits = no_wait,
	.poll = no_io,
	.wait_fd = no_fd,
	.close = no_io,
};

static void init(struct memory *end, uint32_t side, uint32_t rx)
{
	size_t chunks_bytes = (size_t)(rx + MEMORY_TX) * MEMORY_CHUNK;
	size_t umem_bytes = (chunks_bytes + MEMORY_HUGE - 1) / MEMORY_HUGE * MEMORY_HUGE;

	end->side = side;
	end->random = side;
	end->now_ns = 1000000000;
	end->storage.ops = &storage_ops;
	end->port = (struct port){ .ops = &port_ops, .mtu = MEMORY_FRAME - ETHERNET_BYTES };
	end->queue = (struct queue){
		.ops = &queue_ops,
		.port = &end->port,
		.umem = aligned_alloc(MEMORY_HUGE, umem_bytes),
		.chunk_bytes = MEMORY_CHUNK,
		.rx_chunks = rx,
		.tx_chunks = MEMORY_TX,
		.buffer_bytes = MEMORY_FRAME,
		.segments_max = 1,
		.frames_checked = true, /* both ends are ours */
		.frame_bytes_max = MEMORY_FRAME,
		.fd = -1,
		.info.receive_buffers = rx,
	};
	end->tune = calloc(CAREFUL_TUNE_DEFAULT + 1, sizeof(*end->tune));
	end->live = calloc(CAREFUL_PEERS_MAX, sizeof(*end->live));
	if (!end->queue.umem || !end->tune || !end->live)
		abort();
	madvise(end->queue.umem, umem_bytes, MADV_HUGEPAGE); /* like a device's UMEM */
	memset(end->queue.umem, 0, umem_bytes);
	for (uint32_t i = 0; i < rx; i++)
		end->fill_ring[end->fill.head++] = (uint64_t)i * MEMORY_CHUNK;
}

void memory_init(struct memory ends[2], uint32_t rx)
{
	assert(rx <= MEMORY_RX_MAX && !(rx & (rx - 1)));
	memset(ends, 0, 2 * sizeof(*ends));
	for (uint32_t side = 0; side < 2; side++) {
		ends[side].other = &ends[!side];
		init(&ends[side], side, rx);
	}
}

void memory_deinit(struct memory ends[2])
{
	for (uint32_t side = 0; side < 2; side++) {
		free(ends[side].queue.umem);
		free(ends[side].tune);
		free(ends[side].live);
	}
}

struct careful *memory_open(struct memory *end, const struct careful_options *options)
{
	struct careful_options own = *options;
	const struct engine_base base = {
		.queue = &end->queue,
		.storage = &end->storage,
		.limits = { .operations = 4096,
			    .regions = 4096,
			    .messages = { .outs = 512, .parked = 1024 } },
	};
	struct careful_error error = { 0 };
	struct careful *c = NULL;

	own.ifname = end->side ? "two" : "one";
	if (engine_open(&own, &base, &c, &error)) {
		fprintf(stderr, "%s\n", error.text);
		exit(1);
	}
	return c;
}
