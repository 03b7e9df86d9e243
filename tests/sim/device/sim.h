/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A virtual network in virtual time, and the virtual devices at its ports: N nodes in one process.
 * One seed decides all that happens. A device acts like a NIC with our XDP program and checks the
 * rules of device.h. Faults of the network change frames and control messages.
 *
 * Nothing moves by itself: the owner of the world runs its events and polls the engines between
 * them.
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
	SIM_REORDER, /* amount: delays a frame by at most this many ns; later frames overtake it */
	SIM_CORRUPT, /* amount: most bits that flip */
	SIM_TRUNCATE,
	SIM_DELAY, /* amount: ns; frames keep their order */
	SIM_CLOG, /* nothing leaves until the fault ends */
	/* A device: port `to`. */
	SIM_TX_FULL, /* a kick moves nothing */
	SIM_FILL_EMPTY, /* an admitted frame finds no buffer; with from, what, one_in */
	SIM_LINK_DOWN,
	SIM_UNRESOLVED, /* no neighbour is known */
	SIM_MTU, /* amount: the MTU while it lasts */
	SIM_CLOCK, /* amount: ns by which the clock jumps ahead, never back (CLOCK_MONOTONIC) */
	/* From outside, to port `to`, in the name of port `from`, every `amount` ns. */
	SIM_STRANGER, /* invented messages: cookies, nonces and tokens are wrong */
	SIM_REPLAY, /* messages that arrived before */
	SIM_FAULT_KINDS,
};

/*
 * A fault that lasts for a while.
 *
 * @what:     SIM_DATA …, or'd
 * @forges: SIM_REPLAY: forges frames, like an attacker who reads the wire without keys
 * @one_in: hits one opportunity in this many; 1: each
 * @id: seed of its random numbers, with the world's seed
 * @longer: SIM_LOSS: hits only frames and messages of more bytes
 * @only: list of the opportunities to hit, ascending, or NULL
 * @seen:     opportunities so far
 * @hits: opportunities that it hit
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
 * Describes a world. Costs are per frame (g) and per byte (G), as in P1.
 *
 * @kick_frames: most frames that a kick sends; 0: all
 * @other_family: bit mask of ports that have IPv6 addresses; with `ipv6`, IPv4 addresses
 * @one_mac: bit mask of ports that belong to one host and share its Ethernet address
 * @zerocopy: send buffers are read, and complete, when the frame leaves, not at the kick (with
 *   token_ns they complete then in any case)
 * @wire_delay_ns:  propagation; occupies nothing
 * @ctrl_delay_ns: of a control message; it can overtake frames
 * @admit_ns: from closing a slot of the peers map until XDP sees that
 * @queue_frames: length of the queue before each port; further frames are lost; 0: no bound
 * @queue_ns: time of each frame at the head of the queue
 * @queue_control: control messages use the queue too
 * @gap_ns: least time between two frames of a port, in each direction
 * @unreached: bit mask of ports that no broadcast reaches
 * @rx_g_ns, @tx_g_ns: CPU time of the node per received, sent frame
 * @cost_ns: the same, computed for each frame from its careful header, or NULL. A frame then leaves
 *   when the node's earlier work is done
 * @wire_less_bytes: of each frame that cost no time: our headers, which the paper's frames lack
 * @token_ns: if not 0, all ports share a token ring. The token needs this long from port to port,
 *   and a frame waits for it
 * @on_pass: called when a frame (from its careful header) or a control message enters or leaves the
 *   network, or NULL
 * @on_send: can change or hold back a node's frames and messages, or NULL
 * @on_hit: called for each hit of a fault, or NULL
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
/* Resets the world: time 1 s, no devices, an empty network. The faults must outlive it. */
void sim_begin(struct sim_world *world, const struct sim_config *config);

uint64_t sim_now_ns(const struct sim_world *world);

/* Reports whether half of the room for frames and messages under way is in use. */
bool sim_crowded(const struct sim_world *world);
/* Returns the time of the next event; UINT64_MAX: never. */
uint64_t sim_next_ns(const struct sim_world *world);
/* Advances time to at_ns, at most to the next event. */
void sim_advance(struct sim_world *world, uint64_t at_ns);
/* Runs the events that are due. */
void sim_run(struct sim_world *world);
/* Returns the receive buffers of frames with this cookie that one engine has sent and the other has
 * not received. */
uint32_t sim_cost_under_way(const struct sim_world *world, uint32_t from, uint32_t to,
			    uint64_t cookie);
/* Counts frames lost because the queue before a port was full. */
uint64_t sim_queue_lost(const struct sim_world *world);
/* Reports whether every frame of an epoch arrives unchanged and in order. */
bool sim_unharmed(const struct sim_world *world, uint32_t from, uint32_t to, uint64_t cookie);
/* Returns the first violation, or NULL. */
const char *sim_failure(const struct sim_world *world);
__attribute__((format(printf, 2, 3))) void sim_fail(struct sim_world *world, const char *format,
						    ...);

/* Returns a hash of the arguments. */
uint64_t sim_hash(uint64_t seed, uint64_t stream, uint64_t index);

/* Opens the device of a port. `life` numbers the port's devices: with the seed it
 * decides what random() gives. */
int sim_open(struct sim_world *world, uint32_t port, uint32_t life, const struct sim_shape *shape,
	     const struct careful_options *options, struct queue **queue,
	     struct careful_error *error);
void sim_address(const struct sim_world *world, uint32_t port, union address *address);
/* Returns the port with this address, or SIM_ANY. */
uint32_t sim_port(const struct sim_world *world, const union address *address);
/* Ends a device like SIGKILL: unsent frames are lost, and the port is free. */
void sim_kill(struct queue *queue);
/* Reports whether frames wait to be received, and whether control messages or events do. */
bool sim_frames_waiting(const struct queue *queue);
bool sim_readable(const struct queue *queue);
/* Returns the CPU time that the device's calls took since the last call. */
uint64_t sim_take_busy_ns(struct queue *queue);
/* Counts the buffers that the engine owns, to check that none is lost. */
void sim_buffers(const struct queue *queue, uint32_t *rx_engine, uint32_t *tx_engine);
uint64_t sim_xdp_count(const struct queue *queue, enum careful_xdp_counter counter);

#endif /* DEVICE_SIM_H */
