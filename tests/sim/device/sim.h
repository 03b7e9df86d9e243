/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A virtual network in virtual time, and the virtual devices at its ports: N nodes in
 * one process, everything that happens drawn from one seed. A device does what a NIC
 * with our XDP program does and checks that its user keeps the rules of device.h; the
 * network does to frames and control messages what its faults say.
 *
 * Nothing moves by itself: whoever owns the world runs its events and polls the
 * engines in between.
 */
#ifndef DEVICE_SIM_H
#define DEVICE_SIM_H

#include <stdbool.h>
#include <stdint.h>

#include "device/device.h"

enum {
	SIM_PORTS_MAX = 17,
	SIM_ANY = 0xff, /* any port */
	SIM_FRAME_BYTES = 8192, /* largest frame of any device */
	SIM_TEXT_BYTES = 512,
};

/* Frames or control messages that a fault affects. */
enum {
	SIM_DATA = 0x01, /* frames that carry data */
	SIM_UPDATES = 0x02, /* frames that are window updates, or acknowledgements */
	SIM_CONTROL = 0x04, /* control messages */
	SIM_PINGS = 0x08, /* pings and trains that end at XDP: outside of sessions */
	SIM_FRAMES = SIM_DATA | SIM_UPDATES,
	SIM_ALL = SIM_FRAMES | SIM_CONTROL | SIM_PINGS,
};

enum sim_fault_kind {
	/* One frame or control message between two ports. */
	SIM_LOSS,
	SIM_DUPLICATE, /* amount: the copy comes up to this many ns later */
	SIM_REORDER, /* amount: up to this many ns later than those behind it */
	SIM_CORRUPT, /* amount: bits that may flip, at most */
	SIM_TRUNCATE,
	SIM_DELAY, /* amount: ns; order is kept */
	SIM_CLOG, /* nothing leaves before its end */
	/* A device: port `to`. */
	SIM_TX_FULL, /* a kick moves nothing */
	SIM_FILL_EMPTY, /* a frame that was admitted finds no buffer; from, what, one_in too */
	SIM_LINK_DOWN,
	SIM_UNRESOLVED, /* no neighbour is known */
	SIM_MTU, /* amount: the MTU while it lasts */
	SIM_CLOCK, /* amount: ns by which the clock jumps ahead at its beginning; never back, as
		    * CLOCK_MONOTONIC does not, and the engine looks at no other */
	/* From outside, to port `to`, in the name of port `from`, every `amount` ns. */
	SIM_STRANGER, /* made up: no cookie, nonce or token is right */
	SIM_REPLAY, /* something that arrived before */
	SIM_FAULT_KINDS,
};

/*
 * Something that goes wrong for a while.
 *
 * @what:     SIM_DATA …, or'd
 * @forges:   SIM_REPLAY: of frames, by who can read the wire and lacks the keys
 * @one_in:   it hits one opportunity in so many; 1: each
 * @id:       draws its random numbers, with the world's seed
 * @longer:   SIM_LOSS: it hits frames and messages of more bytes than that
 * @only:     where not NULL: the opportunities that it hits, ascending, instead
 * @seen:     opportunities so far
 * @hits:     of which it hit
 */
struct sim_fault {
	uint8_t kind;
	uint8_t from, to;
	uint8_t what;
	bool forges;
	uint32_t one_in;
	uint64_t at_ns, until_ns;
	uint64_t amount;
	uint32_t longer;
	uint32_t id;
	const uint32_t *only;
	uint32_t only_count;
	uint32_t seen;
	uint32_t hits;
};

/* The fate of a node's frame or message before it enters the network. */
enum sim_said { SIM_SAID, SIM_SAID_OTHERWISE, SIM_UNSAID };

/*
 * A world: costs are per frame (g) and per byte (G), as in P1.
 *
 * @kick_frames:    most that one kick moves; 0: all
 * @other_family:   ports that have IPv6 addresses unless `ipv6` says so of all others, as bits
 * @one_mac:        ports that are addresses of one host, as bits: they share an Ethernet address
 * @zerocopy:       a send buffer is read when its frame leaves, not at the kick
 * @wire_delay_ns:  propagation; occupies nothing
 * @ctrl_delay_ns:  of a control message, which may overtake frames
 * @admit_ns:       from closing a slot of the peers map until it is for good
 * @queue_frames:   before each port, of what all send to it: more are lost; 0: no bound
 * @queue_ns:       that each frame there takes to leave it
 * @queue_control:  control messages wait there, too, and are lost like frames
 * @gap_ns:         least time between two frames that a port sends, and between two that it takes
 * @unreached:      ports that no frame to all reaches, as bits
 * @rx_g_ns, @tx_g_ns: time of the node's own, for each frame received, sent
 * @cost_ns:        where not NULL, the same instead, by frame: of a port, to or from another one,
 *                  from its careful header on. Then it leaves when its node's work so far is done
 * @wire_less_bytes: of each frame, which take no time: headers of ours that another's lack
 * @token_ns:       where not 0, all ports share one ring: a frame at a time, for which a token is
 *                  waited that passes a port in so long; it may be anywhere
 * @on_pass:        where not NULL, told of what enters and leaves the network: the frame
 *                  from its careful header on, or the control message
 * @on_send:        where not NULL, may change or keep back what a node sends
 * @on_hit:         where not NULL, told of each opportunity that a fault hits
 */
struct sim_config {
	uint64_t seed;
	uint32_t ports;
	uint32_t kick_frames;
	bool zerocopy;
	bool ipv6;
	uint32_t other_family, one_mac;
	uint32_t wire_g_ns;
	uint32_t wire_G_ps_per_byte;
	uint64_t wire_delay_ns;
	uint64_t ctrl_delay_ns;
	uint64_t admit_ns;
	uint32_t queue_frames, queue_ns;
	bool queue_control;
	uint32_t gap_ns;
	uint32_t unreached;
	uint32_t rx_g_ns, tx_g_ns;
	uint64_t (*cost_ns)(void *user, uint32_t port, uint32_t other, bool sent, const void *hdr);
	uint32_t wire_less_bytes;
	uint32_t token_ns;
	struct sim_fault *faults;
	uint32_t faults_count;
	void (*on_pass)(void *user, uint32_t from, uint32_t to, bool control, const void *message,
			uint32_t bytes, const char *what);
	enum sim_said (*on_send)(void *user, uint32_t from, uint32_t to, bool control,
				 void *message, uint32_t bytes);
	void (*on_hit)(void *user, const struct sim_fault *fault, uint32_t opportunity);
	void *user;
};

/* The buffers of a device: see struct queue. */
struct sim_shape {
	uint32_t chunk_bytes;
	uint32_t buffer_bytes;
	uint32_t segments_max;
	uint32_t frame_bytes;
};

struct sim_world;

struct sim_world *sim_create(void);
void sim_destroy(struct sim_world *world);
/* Begins again: time 1 s, no device, nothing under way. The faults stay the caller's. */
void sim_begin(struct sim_world *world, const struct sim_config *config);

uint64_t sim_now_ns(const struct sim_world *world);
/* When the next event is due; UINT64_MAX: never. */
uint64_t sim_next_ns(const struct sim_world *world);
/* Time goes on to at_ns, which is not beyond the next event. */
void sim_advance(struct sim_world *world, uint64_t at_ns);
/* Runs the events that are due. */
void sim_run(struct sim_world *world);
/* Receive buffers that frames with this cookie fill or will fill which the engine at one
 * end has sent and that at the other has not received. */
uint32_t sim_cost_under_way(const struct sim_world *world, uint32_t from, uint32_t to,
			    uint64_t cookie);
/* Returns how many frames the queues before ports had no room for. */
uint64_t sim_queue_lost(const struct sim_world *world);
/* Reports whether every frame of an epoch arrived, or will, as it was sent and in order. */
bool sim_unharmed(const struct sim_world *world, uint32_t from, uint32_t to, uint64_t cookie);
/* The first violation; NULL: nothing. */
const char *sim_failure(const struct sim_world *world);
__attribute__((format(printf, 2, 3))) void sim_fail(struct sim_world *world, const char *format,
						    ...);

/* A number that depends on these alone. */
uint64_t sim_hash(uint64_t seed, uint64_t stream, uint64_t index);

/* Opens the device of a port. `life` numbers the port's devices: with the seed it
 * decides what random() gives. */
int sim_open(struct sim_world *world, uint32_t port, uint32_t life, const struct sim_shape *shape,
	     const struct careful_options *options, struct queue **queue,
	     struct careful_error *error);
void sim_address(const struct sim_world *world, uint32_t port, union address *address);
/* The port with an address, or SIM_ANY. */
uint32_t sim_port(const struct sim_world *world, const union address *address);
/* Ends a device as SIGKILL does: what was not sent yet is not, and its port is free. */
void sim_kill(struct queue *queue);
/* Reports whether frames wait to be received, and whether control messages or events do. */
bool sim_frames_waiting(const struct queue *queue);
bool sim_readable(const struct queue *queue);
/* Time of the node's own that the device's calls took since the last call. */
uint64_t sim_take_busy_ns(struct queue *queue);
/* Buffers that are the engine's, for who checks that none is lost. */
void sim_buffers(const struct queue *queue, uint32_t *rx_engine, uint32_t *tx_engine);
uint64_t sim_xdp_count(const struct queue *queue, enum careful_xdp_counter counter);

#endif /* DEVICE_SIM_H */
