/* SPDX-License-Identifier: BSD-2-Clause */
/* The inside of the world and of the device, for the files of this folder. */
#ifndef DEVICE_SIM_PRIVATE_H
#define DEVICE_SIM_PRIVATE_H

#include <stddef.h>

#include <careful/wire.h>

#include "device/sim.h"

enum {
	/* Frames and control messages under way: trains that a fault delays, and the rest. */
	SIM_SLOTS = 32 * CAREFUL_TRAIN_FRAMES,
	SIM_EVENTS = 2 * SIM_SLOTS,
	SIM_CTRL_QUEUE = 64, /* control messages in the kernel's socket */
	SIM_CTRL_BYTES = 256, /* of each, at most */
	SIM_TAPE = 64, /* the last arrivals, for replays */
	SIM_MULTICAST = 1, /* in the first byte of a MAC address: broadcast */
	SIM_HARMED = 16, /* epochs recorded as harmed, by wire */
};

/* A frame or control message on the network. */
struct sim_slot {
	uint8_t from, to;
	bool control;
	bool refused; /* ICMP: no process listens at `from`; data is the quotation */
	bool stray; /* a copy, or a stranger's */
	bool outside; /* ends at XDP, so it has no credit; as sent */
	uint32_t life; /* of the sending device */
	uint64_t cookie; /* of a frame, as it was sent */
	uint32_t leaving; /* where its device records that time */
	uint32_t descs_count;
	struct device_desc descs[DEVICE_SEGMENTS_MAX]; /* until it departs */
	uint32_t bytes;
	uint8_t data[SIM_FRAME_BYTES];
};

enum sim_event_kind {
	SIM_READY, /* a frame waits for the ring */
	SIM_DEPART, /* a frame has left its send buffers */
	SIM_ARRIVE, /* a frame or control message arrives */
	SIM_INJECT, /* a stranger's next message */
	SIM_BEGIN, /* a fault begins, */
	SIM_END, /* or ends, and the device is told */
};

struct sim_event {
	uint64_t at_ns;
	uint64_t order; /* order of events of the same time */
	uint32_t index; /* of a slot, or a fault */
	uint8_t kind;
};

/* One direction between two ports. */
struct sim_wire {
	uint64_t free_ns; /* when its last frame has left */
	uint64_t frame_ns, ctrl_ns; /* when the last one arrives */
	/* Epochs that lost, changed or reordered a frame. */
	uint64_t harmed[SIM_HARMED];
	uint32_t harmed_count;
};

struct sim_ring {
	struct device_desc *entries;
	uint32_t size; /* a power of two */
	uint32_t head, tail;
};

/* A sent frame whose buffers are not free yet. */
struct sim_leaving {
	uint64_t at_ns;
	uint32_t descs;
};

struct sim_datagram {
	union address from;
	bool refused;
	uint32_t bytes; /* of all segments; data has the first bytes */
	uint64_t at_ns;
	uint8_t data[SIM_CTRL_BYTES];
};

enum { SIM_DESC_STRAY = 1 << 30 }; /* sim_slot.stray of each descriptor in the RX ring */

enum sim_owner { SIM_ENGINE = 0, SIM_DEVICE };

/*
 * @owner:    of each chunk, enum sim_owner
 * @leaving: tx_chunks entries, from leaving_head on
 * @changed:  enum device_event, for the next events()
 */
struct sim_device {
	struct queue queue; /* first, */
	struct port nic; /* and second: the engine sees it */
	struct sim_world *world;
	uint32_t port, life;
	uint64_t random;
	uint32_t headroom;
	uint8_t *owner;
	struct sim_ring fill, rx, tx, left;
	struct sim_leaving *leaving;
	uint32_t leaving_head, leaving_count;
	struct sim_datagram *ctrl;
	uint32_t ctrl_head, ctrl_count;
	struct careful_peer_entry peers[CAREFUL_PEERS_MAX];
	uint64_t closed_ns[CAREFUL_PEERS_MAX]; /* when XDP has seen it */
	uint32_t peers_count;
	struct careful_tune_entry *tune;
	struct careful_live_entry *live;
	struct careful_arrivals arrivals;
	uint64_t xdp[CAREFUL_XDP_COUNTERS];
	struct careful_device_statistics statistics;
	uint64_t busy_ns;
	uint64_t ready_ns; /* time of its last frame, to keep the order */
	uint32_t changed;
	uint32_t rx_engine, tx_engine; /* chunks that the engine owns */
	bool dead; /* its process has ended: nothing leaves any longer */
	bool drops; /* a frame without a buffer is dropped, since no window promised it one */
	bool stray_taken; /* the engine holds stray frames, and has not returned their room */
	bool stray_lost; /* charged forged frames that the engine never saw */
};

struct sim_world {
	struct sim_config config;
	uint64_t now_ns;
	uint64_t order;
	struct sim_event events[SIM_EVENTS]; /* a heap */
	uint32_t events_count;
	struct sim_slot *slots;
	uint32_t *slots_free;
	uint32_t slots_free_count;
	struct sim_wire wires[SIM_PORTS_MAX][SIM_PORTS_MAX];
	struct sim_device *devices[SIM_PORTS_MAX];
	uint64_t queue_ns[SIM_PORTS_MAX]; /* when its queue is empty */
	uint64_t queue_lost; /* frames that found a queue full */
	uint64_t gap_out_ns[SIM_PORTS_MAX],
		gap_in_ns[SIM_PORTS_MAX]; /* its next sending time, with gap_ns */
	uint64_t ring_free_ns, ring_frames; /* with token_ns: like a wire's, and the count so far */
	uint64_t clock_ns[SIM_PORTS_MAX]; /* how far a port's clock is ahead */
	struct sim_slot *tape; /* what SIM_REPLAY repeats */
	uint32_t tape_count;
	bool taping;
	char failure[SIM_TEXT_BYTES];
};

/* The combined effect of all faults on a frame or control message. */
struct sim_fate {
	bool lost;
	bool damaged;
	bool copied;
	uint64_t delay_ns; /* delay of this and later ones */
	uint64_t late_ns; /* delay of this one alone */
	uint64_t copy_ns; /* extra delay of the copy */
};

/* sim_world.c */
void sim_post(struct sim_world *world, uint64_t at_ns, enum sim_event_kind kind, uint32_t index);
struct sim_slot *sim_slot_take(struct sim_world *world, uint32_t *index);
void sim_slot_put(struct sim_world *world, uint32_t index);

/* sim_fault.c */
bool sim_fault_on(const struct sim_world *world, enum sim_fault_kind kind, uint32_t port,
		  uint64_t *amount);
uint64_t sim_fault_clog(const struct sim_world *world, const struct sim_slot *slot, uint64_t at_ns);
void sim_fault_fate(struct sim_world *world, struct sim_slot *slot, struct sim_fate *fate);
bool sim_fault_fill_empty(struct sim_world *world, const struct sim_slot *slot);
void sim_fault_begin(struct sim_world *world);
void sim_fault_inject(struct sim_world *world, uint32_t index);
void sim_fault_change(struct sim_world *world, uint32_t index, bool begin);

/* sim_wire.c: frames */
uint64_t sim_wire_kick(struct sim_device *sim, const struct device_desc *descs, uint32_t n);
void sim_wire_ready(struct sim_world *world, uint32_t index);
void sim_wire_depart(struct sim_world *world, uint32_t index);
void sim_wire_send(struct sim_world *world, uint32_t index);
void sim_wire_arrive(struct sim_world *world, uint32_t index);
void sim_wire_harm(struct sim_world *world, const struct sim_slot *slot);
uint8_t sim_wire_what(const struct sim_slot *slot);
uint32_t sim_wire_frame_bytes(const struct sim_device *sim);
void sim_wire_work(struct sim_device *sim, bool sent, const struct device_desc *desc);

/* sim_ctrl.c: control messages, addresses */
int sim_ctrl_send(struct port *nic, const union address *to, const void *buf, uint32_t bytes);
ssize_t sim_ctrl_recv(struct port *nic, union address *from, void *buf, uint32_t bytes,
		      struct arrival *arrival);
void sim_stamps(struct port *nic, bool on);
void sim_ctrl_pass(struct sim_device *sim, const struct sim_slot *slot, uint32_t at);
void sim_ctrl_refuse(struct sim_world *world, const struct sim_slot *slot, uint32_t at);
void sim_ctrl_arrive(struct sim_world *world, struct sim_slot *slot);
int sim_resolve(struct port *nic, const union address *to, struct llhdr *llhdr);
int sim_multicast(struct port *nic, const union address *like, struct llhdr *llhdr);

/* sim_xdp.c: the rule, and groups */
enum careful_xdp_counter sim_xdp(struct sim_device *sim, const uint8_t *frame, uint32_t bytes);
int sim_group(struct port *nic, uint32_t slot, uint64_t cookie, const union address *from);
uint32_t sim_grouped(struct port *nic, uint32_t slot);

static inline struct sim_device *to_sim(struct queue *queue)
{
	return (struct sim_device *)queue;
}

static inline struct sim_device *nic_to_sim(struct port *nic)
{
	return (struct sim_device *)((uint8_t *)nic - offsetof(struct sim_device, nic));
}

static inline uint32_t sim_ring_count(const struct sim_ring *ring)
{
	return ring->head - ring->tail;
}

static inline void sim_ring_put(struct sim_ring *ring, struct device_desc desc)
{
	ring->entries[ring->head++ & (ring->size - 1)] = desc;
}

static inline struct device_desc sim_ring_take(struct sim_ring *ring)
{
	return ring->entries[ring->tail++ & (ring->size - 1)];
}

#endif /* DEVICE_SIM_PRIVATE_H */
