// SPDX-License-Identifier: BSD-2-Clause
/*
 * Implements device.h on the virtual network. Each buffer has an owner, so that a buffer that is
 * returned twice, or sent again too early, is found at once.
 */
#include "device/sim_private.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <careful/wire.h>

#include "device/entry.h"

static uint64_t chunk_of(const struct sim_device *sim, uint64_t addr)
{
	return addr / sim->queue.chunk_bytes;
}

/* Changes a chunk's owner. */
static void hand_over(struct sim_device *sim, uint64_t addr, enum sim_owner to)
{
	uint64_t chunk = chunk_of(sim, addr);
	uint32_t *count = chunk < sim->queue.rx_chunks ? &sim->rx_engine : &sim->tx_engine;

	assert(sim->owner[chunk] != to);
	sim->owner[chunk] = (uint8_t)to;
	*count += to == SIM_ENGINE ? 1 : UINT32_MAX;
}

/* Takes a chunk from the engine, which must own it. The chunk must be of the right kind. */
static bool take_chunk(struct sim_device *sim, uint64_t addr, bool receives)
{
	uint64_t chunk = chunk_of(sim, addr);

	if (chunk >= sim->queue.rx_chunks + sim->queue.tx_chunks ||
	    receives != (chunk < sim->queue.rx_chunks) || sim->owner[chunk] != SIM_ENGINE) {
		sim_fail(sim->world, "port %u: %s chunk %llu, which is not the engine's", sim->port,
			 receives ? "gave back" : "sent", (unsigned long long)chunk);
		return false;
	}
	hand_over(sim, addr, SIM_DEVICE);
	return true;
}

static uint32_t sim_rx(struct queue *queue, struct device_desc *descs, uint32_t n)
{
	struct sim_device *sim = to_sim(queue);
	uint32_t have = sim_ring_count(&sim->rx);
	uint32_t whole = 0;

	/* Only whole frames; one frame if each has its own time. */
	for (uint32_t i = 0; i < have && i < n && !(whole && sim->world->config.cost_ns); i++)
		if (!(sim->rx.entries[(sim->rx.tail + i) & (sim->rx.size - 1)].options &
		      DEVICE_DESC_MORE))
			whole = i + 1;
	for (uint32_t i = 0; i < whole; i++) {
		descs[i] = sim_ring_take(&sim->rx);
		sim->stray_taken |= (descs[i].options & SIM_DESC_STRAY) != 0;
		descs[i].options &= ~(uint32_t)SIM_DESC_STRAY;
		hand_over(sim, descs[i].addr, SIM_ENGINE);
		if (!i || !(descs[i - 1].options & DEVICE_DESC_MORE))
			sim_wire_work(sim, false, &descs[i]);
	}
	return whole;
}

static void sim_fill(struct queue *queue, const uint64_t *addrs, uint32_t n)
{
	struct sim_device *sim = to_sim(queue);
	uint64_t mask = ~(uint64_t)(queue->chunk_bytes - 1);

	for (uint32_t i = 0; i < n; i++)
		if (take_chunk(sim, addrs[i], true))
			sim_ring_put(&sim->fill, (struct device_desc){ .addr = addrs[i] & mask });
	sim->stray_taken = false; /* their charge is returned right after */
}

static uint32_t sim_tx(struct queue *queue, const struct device_desc *descs, uint32_t n)
{
	struct sim_device *sim = to_sim(queue);

	for (uint32_t i = 0; i < n; i++) {
		if (descs[i].addr % queue->chunk_bytes + descs[i].bytes > queue->chunk_bytes)
			sim_fail(sim->world, "port %u: sent more than a chunk holds", sim->port);
		if (take_chunk(sim, descs[i].addr, false))
			sim_ring_put(&sim->tx, descs[i]);
	}
	return n;
}

static int sim_kick(struct queue *queue)
{
	struct sim_device *sim = to_sim(queue);
	struct sim_world *world = sim->world;
	uint32_t most = world->config.kick_frames ? world->config.kick_frames : UINT32_MAX;

	sim->statistics.kicks++;
	if (sim->dead || sim_fault_on(world, SIM_TX_FULL, sim->port, NULL) ||
	    sim_fault_on(world, SIM_LINK_DOWN, sim->port, NULL)) {
		sim->statistics.kicks_again++;
		return -EAGAIN;
	}
	while (most-- && sim_ring_count(&sim->tx)) {
		struct device_desc descs[DEVICE_SEGMENTS_MAX];
		struct sim_leaving *leaving;
		uint32_t n = 0;

		do {
			assert(n < DEVICE_SEGMENTS_MAX && sim_ring_count(&sim->tx));
			descs[n++] = sim_ring_take(&sim->tx);
		} while (descs[n - 1].options & DEVICE_DESC_MORE);
		if (n > queue->segments_max)
			sim_fail(world, "port %u: sent a frame of %u pieces", sim->port, n);
		for (uint32_t i = 0; i < n; i++)
			sim_ring_put(&sim->left, descs[i]);
		leaving =
			&sim->leaving[(sim->leaving_head + sim->leaving_count) % queue->tx_chunks];
		leaving->descs = n;
		leaving->at_ns = sim_wire_kick(sim, descs, n);
		sim->leaving_count++;
	}
	if (!sim_ring_count(&sim->tx))
		return 0;
	sim->statistics.kicks_again++;
	return -EAGAIN;
}

static uint32_t sim_complete(struct queue *queue, uint64_t *addrs, uint32_t n)
{
	struct sim_device *sim = to_sim(queue);
	uint32_t count = 0;

	while (sim->leaving_count) {
		struct sim_leaving *first = &sim->leaving[sim->leaving_head];

		const struct sim_config *config = &sim->world->config;
		bool late = config->zerocopy || config->token_ns;
		bool away = late && first->at_ns > sim->world->now_ns;

		if (away || count == n)
			break;
		addrs[count] = sim_ring_take(&sim->left).addr;
		hand_over(sim, addrs[count++], SIM_ENGINE);
		if (--first->descs)
			continue;
		sim->leaving_head = (sim->leaving_head + 1) % queue->tx_chunks;
		sim->leaving_count--;
	}
	return count;
}

static uint64_t sim_device_now_ns(struct port *nic)
{
	struct sim_device *sim = nic_to_sim(nic);

	return sim->world->now_ns + sim->world->clock_ns[sim->port];
}

static void sim_random(struct port *nic, void *buf, uint32_t bytes)
{
	struct sim_device *sim = nic_to_sim(nic);
	uint8_t *to = buf;

	for (uint32_t i = 0; i < bytes; i += 8) {
		uint64_t word = sim_hash(sim->world->config.seed,
					 0x1000 + sim->port + ((uint64_t)sim->life << 16),
					 sim->random++);

		memcpy(to + i, &word, bytes - i < 8 ? bytes - i : 8);
	}
}

static void sim_settle(struct port *nic, uint32_t slot)
{
	struct sim_device *sim = nic_to_sim(nic);

	sim->closed_ns[slot] = sim->world->now_ns + sim->world->config.admit_ns;
}

static struct careful_peer_entry *sim_admit(struct port *nic, uint32_t slot, uint64_t cookie,
					    uint32_t window, uint32_t buffer_bytes, bool sealed)
{
	struct sim_device *sim = nic_to_sim(nic);
	struct careful_peer_entry *peer = &sim->peers[slot];

	if (cookie && (peer->cookie || sim->closed_ns[slot] > sim->world->now_ns))
		sim_fail(sim->world, "port %u: slot %u is not closed", sim->port, slot);
	if (!cookie)
		sim_settle(nic, slot);
	*peer = (struct careful_peer_entry){
		.cookie = cookie,
		.control = peer->control,
		.window = sealed ? 0 : window,
		.sealed_window = sealed ? window : 0,
		.may_fill = window,
		.buffer_bytes = buffer_bytes,
	};
	return peer;
}

static bool sim_closed(struct port *nic, uint32_t slot)
{
	const struct sim_device *sim = nic_to_sim(nic);

	return sim->closed_ns[slot] <= sim->world->now_ns;
}

static void sim_probed(struct port *nic, uint32_t slot, struct ping_seen *probed)
{
	const struct careful_peer_entry *peer = &nic_to_sim(nic)->peers[slot];

	*probed = (struct ping_seen){
		.at_ns = peer->probe_ns,
		.probe = peer->probe_last,
		.net_cpu = peer->probe_cpu,
	};
}

static void sim_train(struct port *nic, uint32_t slot, uint32_t number)
{
	entry_train(&nic_to_sim(nic)->peers[slot], number);
}

static void sim_trained(struct port *nic, uint32_t slot, struct train_seen *seen)
{
	entry_trained(&nic_to_sim(nic)->peers[slot], seen);
}

static struct careful_tune_entry *sim_tune(struct port *nic, uint32_t slot)
{
	return &nic_to_sim(nic)->tune[slot];
}

static struct careful_live_entry *sim_live(struct port *nic, uint32_t slot)
{
	return &nic_to_sim(nic)->live[slot];
}

static struct careful_arrivals *sim_arrivals(struct port *nic)
{
	return &nic_to_sim(nic)->arrivals;
}

static uint32_t sim_events(struct port *nic)
{
	struct sim_device *sim = nic_to_sim(nic);
	uint32_t changed = sim->changed;

	if (changed & DEVICE_MTU)
		nic->mtu = sim_wire_frame_bytes(sim) - ETHERNET_BYTES;
	sim->changed = 0;
	return changed;
}

/* NOLINTNEXTLINE(readability-non-const-parameter): the interface's */
static uint32_t sim_wait_fds(struct port *nic, int *fds, uint32_t n)
{
	(void)nic;
	(void)fds;
	(void)n;
	return 0;
}

static void sim_statistics(struct queue *queue, struct careful_device_statistics *out)
{
	*out = to_sim(queue)->statistics;
}

static void sim_close_queue(struct queue *queue)
{
	struct sim_device *sim = to_sim(queue);

	free(queue->umem);
	free(sim->owner);
	free(sim->fill.entries);
	free(sim->rx.entries);
	free(sim->tx.entries);
	free(sim->left.entries);
	free(sim->leaving);
}

static void sim_close_port(struct port *nic)
{
	struct sim_device *sim = nic_to_sim(nic);

	if (sim->world->devices[sim->port] == sim)
		sim->world->devices[sim->port] = NULL;
	free(sim->ctrl);
	free(sim->tune);
	free(sim->live);
	free(sim);
}

static const struct queue_ops queue_ops = {
	.rx = sim_rx,
	.fill = sim_fill,
	.tx = sim_tx,
	.kick = sim_kick,
	.complete = sim_complete,
	.statistics = sim_statistics,
	.close = sim_close_queue,
};

static const struct port_ops port_ops = {
	.ctrl_send = sim_ctrl_send,
	.ctrl_recv = sim_ctrl_recv,
	.stamps = sim_stamps,
	.admit = sim_admit,
	.settle = sim_settle,
	.closed = sim_closed,
	.group = sim_group,
	.grouped = sim_grouped,
	.multicast = sim_multicast,
	.probed = sim_probed,
	.train = sim_train,
	.trained = sim_trained,
	.tune = sim_tune,
	.live = sim_live,
	.arrivals = sim_arrivals,
	.resolve = sim_resolve,
	.now_ns = sim_device_now_ns,
	.random = sim_random,
	.events = sim_events,
	.wait_fds = sim_wait_fds,
	.close = sim_close_port,
};

static bool ring_init(struct sim_ring *ring, uint32_t least)
{
	ring->size = 1;
	while (ring->size < least)
		ring->size *= 2;
	ring->entries = calloc(ring->size, sizeof(*ring->entries));
	return ring->entries;
}

static bool allocate(struct sim_device *sim)
{
	struct queue *queue = &sim->queue;
	uint32_t chunks = queue->rx_chunks + queue->tx_chunks;

	queue->umem = calloc(chunks, queue->chunk_bytes);
	sim->owner = calloc(chunks, 1);
	sim->leaving = calloc(queue->tx_chunks, sizeof(*sim->leaving));
	sim->ctrl = calloc(SIM_CTRL_QUEUE, sizeof(*sim->ctrl));
	sim->tune = calloc(CAREFUL_PEERS_MAX + 1, sizeof(*sim->tune));
	sim->live = calloc(sim->peers_count, sizeof(*sim->live));
	return queue->umem && sim->owner && sim->leaving && sim->ctrl && sim->tune && sim->live &&
	       ring_init(&sim->fill, queue->rx_chunks) && ring_init(&sim->rx, queue->rx_chunks) &&
	       ring_init(&sim->tx, queue->tx_chunks) && ring_init(&sim->left, queue->tx_chunks);
}

static void describe(struct sim_device *sim)
{
	struct queue *queue = &sim->queue;
	struct careful_device_info *info = &queue->info;

	snprintf(info->ifname, sizeof(info->ifname), "sim%u", sim->port);
	snprintf(info->driver, sizeof(info->driver), "sim");
	info->mtu = sim->nic.mtu;
	info->zerocopy = sim->world->config.zerocopy;
	info->multibuffer = queue->segments_max > 1;
	info->buffer_bytes = queue->buffer_bytes;
	info->frame_bytes = queue_frame_bytes(queue);
	info->bounds[CAREFUL_BOUND_UMEM] = queue->rx_chunks;
	info->receive_buffers = queue->rx_chunks;
	info->receive_bound = CAREFUL_BOUND_UMEM;
	info->umem_bytes = (uint64_t)(queue->rx_chunks + queue->tx_chunks) * queue->chunk_bytes;
}

int sim_open(struct sim_world *world, uint32_t port, uint32_t life, const struct sim_shape *shape,
	     const struct careful_options *options, struct queue **queue,
	     struct careful_error *error)
{
	struct sim_device *sim = calloc(1, sizeof(*sim));

	assert(shape->frame_bytes <= SIM_FRAME_BYTES);
	if (!sim)
		return -ENOMEM;
	sim->world = world;
	sim->port = port;
	sim->life = life;
	sim->headroom = shape->chunk_bytes - shape->buffer_bytes;
	sim->peers_count = options->peers;
	sim->drops = options->protocol == CAREFUL_PROTOCOL_TRADITIONAL;
	sim->nic.ops = &port_ops;
	sim->nic.control = &sim->peers[0].control;
	sim->queue = (struct queue){
		.frames_checked = true,
		.ops = &queue_ops,
		.port = &sim->nic,
		.chunk_bytes = shape->chunk_bytes,
		.rx_chunks = options->rx_buffers,
		.tx_chunks = options->tx_buffers,
		.buffer_bytes = shape->buffer_bytes,
		.segments_max = shape->segments_max,
		.frame_bytes_max = shape->frame_bytes,
		.fd = -1,
	};
	if (!allocate(sim)) {
		device_close(&sim->queue);
		snprintf(error->text, sizeof(error->text), "out of memory");
		return -ENOMEM;
	}
	sim->rx_engine = sim->queue.rx_chunks;
	sim->tx_engine = sim->queue.tx_chunks;
	for (uint32_t i = 0; i < sim->queue.rx_chunks; i++) {
		uint64_t addr = (uint64_t)i * sim->queue.chunk_bytes;

		sim_fill(&sim->queue, &addr, 1);
	}
	sim->nic.mtu = sim_wire_frame_bytes(sim) - ETHERNET_BYTES;
	describe(sim);
	world->devices[port] = sim;
	*queue = &sim->queue;
	return 0;
}

void sim_kill(struct queue *queue)
{
	struct sim_device *sim = to_sim(queue);

	sim->dead = true;
	sim->world->devices[sim->port] = NULL;
}

uint64_t sim_take_busy_ns(struct queue *queue)
{
	struct sim_device *sim = to_sim(queue);
	uint64_t busy = sim->busy_ns;

	sim->busy_ns = 0;
	return busy;
}

bool sim_readable(const struct queue *queue)
{
	const struct sim_device *sim = (const struct sim_device *)queue;

	return sim->ctrl_count || sim->changed;
}

bool sim_frames_waiting(const struct queue *queue)
{
	return sim_ring_count(&((const struct sim_device *)queue)->rx);
}

void sim_buffers(const struct queue *queue, uint32_t *rx_engine, uint32_t *tx_engine)
{
	const struct sim_device *sim = (const struct sim_device *)queue;

	*rx_engine = sim->rx_engine;
	*tx_engine = sim->tx_engine;
}

uint64_t sim_xdp_count(const struct queue *queue, enum careful_xdp_counter counter)
{
	return ((const struct sim_device *)queue)->xdp[counter];
}
