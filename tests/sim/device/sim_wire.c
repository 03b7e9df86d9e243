// SPDX-License-Identifier: BSD-2-Clause
/*
 * Carries frames over the virtual network: from the send buffers of one device, over a wire with
 * (g, G) and faults, through XDP into the receive buffers of another. Calls sim_xdp.c, sim_ctrl.c,
 * sim_fault.c, sim_world.c.
 */
#include "device/sim_private.h"

#include <assert.h>
#include <endian.h>
#include <stddef.h>
#include <string.h>

#include <careful/wire.h>

/* Returns where the careful header of one of our own frames begins. */
static uint32_t header_at(const uint8_t *frame)
{
	return frame[14] >> 4 == 6 ? 62 : 42;
}

static uint64_t cookie_of(const struct sim_slot *slot)
{
	uint64_t cookie;

	memcpy(&cookie, slot->data + header_at(slot->data) + offsetof(struct careful_hdr, cookie),
	       sizeof(cookie));
	return be64toh(cookie);
}

/* Reports whether a frame ends at XDP, without a credit. */
static bool outside(const uint8_t *frame)
{
	const uint8_t *hdr = frame + header_at(frame);

	return hdr[offsetof(struct careful_hdr, type)] == CAREFUL_TRAIN ||
	       (hdr[offsetof(struct careful_hdr, type)] == CAREFUL_PING &&
		hdr[offsetof(struct careful_hdr, stage_limit)] == CAREFUL_STAGE_NET_RX);
}

uint8_t sim_wire_what(const struct sim_slot *slot)
{
	if (slot->control)
		return SIM_CONTROL;
	if (slot->outside)
		return SIM_PINGS;
	return slot->data[header_at(slot->data) + 1] == CAREFUL_UPDATE ||
			       slot->data[header_at(slot->data) + 1] == CAREFUL_ACK ?
		       SIM_UPDATES :
		       SIM_DATA;
}

/* Returns the largest frame of a device now. */
uint32_t sim_wire_frame_bytes(const struct sim_device *sim)
{
	uint64_t mtu;

	if (sim_fault_on(sim->world, SIM_MTU, sim->port, &mtu) &&
	    mtu + ETHERNET_BYTES < sim->queue.frame_bytes_max)
		return (uint32_t)mtu + ETHERNET_BYTES;
	return sim->queue.frame_bytes_max;
}

void sim_wire_harm(struct sim_world *world, const struct sim_slot *slot)
{
	struct sim_wire *wire = &world->wires[slot->from][slot->to];

	if (!slot->control && !slot->stray && !slot->outside)
		wire->harmed[wire->harmed_count++ % SIM_HARMED] = slot->cookie;
}

bool sim_unharmed(const struct sim_world *world, uint32_t from, uint32_t to, uint64_t cookie)
{
	const struct sim_wire *wire = &world->wires[from][to];

	for (uint32_t i = 0; i < wire->harmed_count && i < SIM_HARMED; i++)
		if (wire->harmed[i] == cookie)
			return false;
	return true;
}

/* Copies a frame from its send buffers. */
static void gather(const struct sim_device *sim, struct sim_slot *slot)
{
	uint32_t at = 0;

	for (uint32_t i = 0; i < slot->descs_count; i++) {
		memcpy(slot->data + at, sim->queue.umem + slot->descs[i].addr,
		       slot->descs[i].bytes);
		at += slot->descs[i].bytes;
	}
}

/* Adds the CPU time of a frame to the node's. */
void sim_wire_work(struct sim_device *sim, bool sent, const struct device_desc *desc)
{
	const struct sim_config *config = &sim->world->config;
	const uint8_t *frame = sim->queue.umem + desc->addr;

	if (config->cost_ns)
		sim->busy_ns += config->cost_ns(config->user, sim->port, frame[sent ? 5 : 11], sent,
						frame + header_at(frame));
	else
		sim->busy_ns += sent ? config->tx_g_ns : config->rx_g_ns;
}

static uint64_t wire_ns(const struct sim_world *world, const struct sim_slot *slot)
{
	const struct sim_config *config = &world->config;
	uint32_t less = config->wire_less_bytes;
	uint32_t bytes = slot->bytes > less ? slot->bytes - less : 0;

	return config->wire_g_ns + (uint64_t)config->wire_G_ps_per_byte * bytes / 1000;
}

/* Returns how long a frame waits at a port that sends every gap_ns. */
static uint64_t gap_wait_ns(const struct sim_world *world, uint64_t *turn_ns, uint64_t at_ns)
{
	uint64_t wait_ns = *turn_ns > at_ns ? *turn_ns - at_ns : 0;

	*turn_ns = at_ns + wait_ns + world->config.gap_ns;
	return wait_ns;
}

/* Reserves the ring for a frame. Frames are served in the order in which they are ready. */
void sim_wire_ready(struct sim_world *world, uint32_t index)
{
	enum { STREAM_TOKEN = 0x5000 };
	struct sim_slot *slot = &world->slots[index];
	struct sim_device *sim = world->devices[slot->from];
	uint64_t round_ns = (uint64_t)world->config.ports * world->config.token_ns;
	uint64_t at_ns = world->ring_free_ns > world->now_ns ? world->ring_free_ns : world->now_ns;

	at_ns += sim_hash(world->config.seed, STREAM_TOKEN, world->ring_frames++) % round_ns;
	at_ns += wire_ns(world, slot);
	world->ring_free_ns = at_ns;
	if (sim && sim->life == slot->life)
		sim->leaving[slot->leaving].at_ns = at_ns;
	sim_post(world, at_ns, SIM_DEPART, index);
}

/* Sends a frame towards a port. Returns the time at which its buffers are free;
 * UINT64_MAX: a later event frees them. */
static uint64_t kick_to(struct sim_device *sim, uint32_t to, const struct device_desc *descs,
			uint32_t n)
{
	struct sim_world *world = sim->world;
	struct sim_wire *wire;
	struct sim_slot *slot;
	uint32_t index;
	uint64_t at_ns, ready_ns;

	slot = sim_slot_take(world, &index);
	if (!slot)
		return world->now_ns;
	slot->from = (uint8_t)sim->port;
	slot->life = sim->life;
	slot->descs_count = n;
	memcpy(slot->descs, descs, n * sizeof(*descs));
	for (uint32_t i = 0; i < n; i++)
		slot->bytes += descs[i].bytes;
	assert(slot->bytes <= SIM_FRAME_BYTES);
	gather(sim, slot);
	slot->to = (uint8_t)to;
	slot->cookie = cookie_of(slot);
	slot->outside = outside(slot->data);
	ready_ns = world->now_ns + (world->config.cost_ns ? sim->busy_ns : 0);
	ready_ns = ready_ns > sim->ready_ns ? ready_ns : sim->ready_ns;
	sim->ready_ns = ready_ns;
	ready_ns += gap_wait_ns(world, &world->gap_out_ns[sim->port], ready_ns);
	wire = &world->wires[slot->from][slot->to];
	at_ns = wire->free_ns > ready_ns ? wire->free_ns : ready_ns;
	at_ns = sim_fault_clog(world, slot, at_ns) + wire_ns(world, slot);
	if (slot->bytes > sim_wire_frame_bytes(sim)) {
		sim->statistics.kicks_failed++; /* EBUSY: the frame is lost */
		sim_wire_harm(world, slot);
		sim_slot_put(world, index);
		return world->now_ns;
	}
	if (world->config.token_ns) {
		slot->leaving = (sim->leaving_head + sim->leaving_count) % sim->queue.tx_chunks;
		sim_post(world, ready_ns, SIM_READY, index);
		return UINT64_MAX;
	}
	wire->free_ns = at_ns;
	sim_post(world, at_ns, SIM_DEPART, index);
	return at_ns;
}

/* Returns the port whose IP address a frame names: several can share an Ethernet address. */
static uint32_t port_of_frame(const uint8_t *frame)
{
	return (frame[14] >> 4 == 6 ? frame[14 + 39] : frame[14 + 19]) - 1;
}

/* Sends a frame to the port that it names, or to all others. Returns like kick_to(). */
uint64_t sim_wire_kick(struct sim_device *sim, const struct device_desc *descs, uint32_t n)
{
	const uint8_t *to = sim->queue.umem + descs[0].addr;
	uint64_t left_ns = sim->world->now_ns;

	sim_wire_work(sim, true, &descs[0]);
	if (!(to[0] & SIM_MULTICAST))
		return kick_to(sim, port_of_frame(to), descs, n);
	for (uint32_t i = 0; i < sim->world->config.ports; i++) {
		uint64_t at_ns;

		if (i == sim->port || sim->world->config.unreached >> i & 1)
			continue;
		at_ns = kick_to(sim, i, descs, n);
		left_ns = at_ns > left_ns ? at_ns : left_ns;
	}
	return left_ns;
}

/* Called when a frame has left. With zero-copy its buffers are read only now. */
void sim_wire_depart(struct sim_world *world, uint32_t index)
{
	struct sim_slot *slot = &world->slots[index];
	struct sim_device *sim = world->devices[slot->from];

	if (world->config.zerocopy) {
		if (!sim || sim->life != slot->life) { /* its process ended before */
			sim_wire_harm(world, slot);
			sim_slot_put(world, index);
			return;
		}
		gather(sim, slot);
	}
	sim_wire_send(world, index);
}

/* Schedules the arrival. Only a frame that a fault delays is overtaken. */
static void post_arrival(struct sim_world *world, uint32_t index, const struct sim_fate *fate)
{
	struct sim_slot *slot = &world->slots[index];
	struct sim_wire *wire = &world->wires[slot->from][slot->to];
	uint64_t *last_ns = slot->control ? &wire->ctrl_ns : &wire->frame_ns;
	uint64_t at_ns =
		world->now_ns + fate->delay_ns +
		(slot->control ? world->config.ctrl_delay_ns : world->config.wire_delay_ns);

	if (at_ns < *last_ns)
		at_ns = *last_ns;
	if (fate->late_ns)
		at_ns += fate->late_ns;
	else
		*last_ns = at_ns;
	sim_post(world, at_ns, SIM_ARRIVE, index);
	if (fate->copied) {
		uint32_t copy_index;
		struct sim_slot *copy = sim_slot_take(world, &copy_index);

		if (!copy)
			return;
		memcpy(copy, slot, offsetof(struct sim_slot, data) + slot->bytes);
		copy->stray = true;
		sim_post(world, at_ns + fate->copy_ns, SIM_ARRIVE, copy_index);
	}
}

static void tell(const struct sim_world *world, const struct sim_slot *slot, const char *what)
{
	uint32_t at = slot->control ? 0 : header_at(slot->data);

	if (world->config.on_pass && slot->bytes >= at)
		world->config.on_pass(world->config.user, slot->from, slot->to, slot->control,
				      slot->data + at, slot->bytes - at, what);
}

/* Enters the queue before a port; false if it is full. Adds the waiting time to the fate's delay. */
static bool enqueue(struct sim_world *world, const struct sim_slot *slot, struct sim_fate *fate)
{
	uint64_t *empty_ns = &world->queue_ns[slot->to];
	uint32_t each_ns = world->config.queue_ns;
	uint64_t wait_ns = *empty_ns > world->now_ns ? *empty_ns - world->now_ns : 0;

	if (!world->config.queue_frames || (slot->control && !world->config.queue_control))
		return true;
	if (wait_ns > (uint64_t)(world->config.queue_frames - 1) * each_ns) {
		world->queue_lost++;
		return false;
	}
	*empty_ns = world->now_ns + wait_ns + each_ns;
	fate->delay_ns += wait_ns + each_ns;
	return true;
}

uint64_t sim_queue_lost(const struct sim_world *world)
{
	return world->queue_lost;
}

/* Lets the scenario change or hold back a node's message (on_send). */
static enum sim_said said(const struct sim_world *world, struct sim_slot *slot)
{
	uint32_t at = slot->control ? 0 : header_at(slot->data);

	if (!world->config.on_send || slot->refused || slot->bytes < at)
		return SIM_SAID;
	return world->config.on_send(world->config.user, slot->from, slot->to, slot->control,
				     slot->data + at, slot->bytes - at);
}

/* Puts a frame or message on the network. */
void sim_wire_send(struct sim_world *world, uint32_t index)
{
	struct sim_slot *slot = &world->slots[index];
	struct sim_fate fate = { 0 };
	enum sim_said how = said(world, slot);

	if (how != SIM_SAID)
		sim_wire_harm(world, slot);
	sim_fault_fate(world, slot, &fate);
	fate.lost |= how == SIM_UNSAID;
	fate.lost |= !fate.lost && !enqueue(world, slot, &fate);
	if (!slot->control)
		fate.delay_ns += gap_wait_ns(world, &world->gap_in_ns[slot->to],
					     world->now_ns + fate.delay_ns);
	if (fate.lost || fate.damaged || fate.late_ns)
		sim_wire_harm(world, slot);
	tell(world, slot, fate.lost ? "lost" : fate.damaged ? "sent, damaged" : "sent");
	if (fate.lost)
		sim_slot_put(world, index);
	else
		post_arrival(world, index, &fate);
}

/* Puts an admitted frame into receive buffers; false: too few are in the fill ring. */
static bool place(struct sim_device *sim, const struct sim_slot *slot)
{
	uint32_t n = (slot->bytes + sim->queue.buffer_bytes - 1) / sim->queue.buffer_bytes;
	uint32_t at = 0;

	if (sim_ring_count(&sim->fill) < n)
		return false;
	while (at < slot->bytes) {
		struct device_desc desc = sim_ring_take(&sim->fill);
		uint32_t rest = slot->bytes - at;

		desc.addr += sim->headroom;
		desc.bytes = rest < sim->queue.buffer_bytes ? rest : sim->queue.buffer_bytes;
		desc.options = (desc.bytes < rest ? DEVICE_DESC_MORE : 0) |
			       (slot->stray ? SIM_DESC_STRAY : 0);
		memcpy(sim->queue.umem + desc.addr, slot->data + at, desc.bytes);
		at += desc.bytes;
		sim_ring_put(&sim->rx, desc);
	}
	return true;
}

/* Reports whether a forged frame holds room that a valid one may need (seal.h): the forged frame
 * waits, the engine has it, or it was lost after its charge, which lasts until the epoch ends. */
static bool stray_waits(const struct sim_device *sim)
{
	if (sim->stray_lost || sim->stray_taken)
		return true;
	for (uint32_t i = sim->rx.tail; i != sim->rx.head; i++)
		if (sim->rx.entries[i & (sim->rx.size - 1)].options & SIM_DESC_STRAY)
			return true;
	return false;
}

static void receive(struct sim_world *world, const struct sim_slot *slot)
{
	struct sim_device *sim = world->devices[slot->to];
	enum careful_xdp_counter verdict;

	if (!sim || sim_fault_on(world, SIM_LINK_DOWN, slot->to, NULL) ||
	    slot->bytes > sim_wire_frame_bytes(sim)) {
		sim_wire_harm(world, slot);
		if (!sim)
			sim_ctrl_refuse(world, slot, header_at(slot->data));
		return;
	}
	verdict = sim_xdp(sim, slot->data, slot->bytes);
	sim->xdp[verdict]++;
	if (verdict == CAREFUL_XDP_PASS_PING)
		sim_ctrl_pass(sim, slot, header_at(slot->data));
	if (verdict == CAREFUL_XDP_DROP_CREDIT && stray_waits(sim))
		sim_wire_harm(world, slot);
	if (verdict != CAREFUL_XDP_ADMITTED)
		return;
	if (sim_fault_fill_empty(world, slot)) {
		sim->statistics.rx_fill_ring_empty++;
		sim->stray_lost |= slot->stray;
		sim_wire_harm(world, slot);
	} else if (!place(sim, slot) && !sim->drops) {
		sim_fail(world, "port %u: a frame of %u bytes from port %u finds %u buffers",
			 slot->to, slot->bytes, slot->from, sim_ring_count(&sim->fill));
	}
}

void sim_wire_arrive(struct sim_world *world, uint32_t index)
{
	struct sim_slot *slot = &world->slots[index];

	if (world->taping && !slot->stray)
		memcpy(&world->tape[world->tape_count++ % SIM_TAPE], slot,
		       offsetof(struct sim_slot, data) + slot->bytes);
	tell(world, slot, slot->refused ? "refused" : "arrives");
	if (slot->control)
		sim_ctrl_arrive(world, slot);
	else
		receive(world, slot);
	sim_slot_put(world, index);
}

/* Returns the receive buffers that a frame in UMEM costs if it has this cookie, else 0. */
static uint32_t cost_of(const uint8_t *frame, uint32_t bytes, uint32_t buffer_bytes,
			uint64_t cookie)
{
	uint64_t theirs;

	memcpy(&theirs, frame + header_at(frame) + offsetof(struct careful_hdr, cookie),
	       sizeof(theirs));
	return be64toh(theirs) == cookie && !outside(frame) ?
		       (bytes + buffer_bytes - 1) / buffer_bytes :
		       0;
}

/* Returns the receive buffers that the frames of a cookie in a device's ring cost. */
static uint32_t cost_in_ring(const struct sim_device *at, const struct sim_ring *ring,
			     uint32_t buffer_bytes, uint64_t cookie)
{
	uint32_t cost = 0;

	for (uint32_t i = ring->tail; i != ring->head;) {
		const struct device_desc *first = &ring->entries[i & (ring->size - 1)];
		const struct device_desc *desc;
		uint32_t bytes = 0;

		do {
			desc = &ring->entries[i++ & (ring->size - 1)];
			bytes += desc->bytes;
		} while (desc->options & DEVICE_DESC_MORE);
		if (!(first->options & SIM_DESC_STRAY))
			cost += cost_of(at->queue.umem + first->addr, bytes, buffer_bytes, cookie);
	}
	return cost;
}

uint32_t sim_cost_under_way(const struct sim_world *world, uint32_t from, uint32_t to,
			    uint64_t cookie)
{
	const struct sim_device *receiver = world->devices[to];
	const struct sim_device *sender = world->devices[from];
	uint32_t buffer_bytes = receiver->queue.buffer_bytes;
	uint32_t cost = cost_in_ring(receiver, &receiver->rx, buffer_bytes, cookie);

	if (sender)
		cost += cost_in_ring(sender, &sender->tx, buffer_bytes, cookie);
	for (uint32_t i = 0; i < world->events_count; i++) {
		const struct sim_event *event = &world->events[i];
		const struct sim_slot *slot = &world->slots[event->index];

		if (event->kind <= SIM_ARRIVE && !slot->control && !slot->stray &&
		    slot->cookie == cookie && !slot->outside)
			cost += (slot->bytes + buffer_bytes - 1) / buffer_bytes;
	}
	return cost;
}
