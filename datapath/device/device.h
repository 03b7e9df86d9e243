/* SPDX-License-Identifier: BSD-2-Clause */
/* The engine's only way to the outside, so a virtual device in virtual time can replace it. A port
 * is an interface: control messages, admission of peers, routes, link changes, the clock and random
 * numbers. A queue of the port moves frames in batches.
 *
 * A queue's buffers are chunks of one UMEM area: chunks [0, rx_chunks) receive, the rest send. A
 * frame is one or more descriptors; all but the last carry DEVICE_DESC_MORE. A queue is closed
 * before its port. */
#pragma once

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>

#include <careful/abi.h>
#include <careful/careful.h>

struct pollfd;

enum {
	DEVICE_DESC_MORE = 1, /* the next descriptor continues the frame (XDP_PKT_CONTD) */
	DEVICE_SEGMENTS_MAX = 16, /* descriptors of one frame */
	ETHERNET_BYTES = 14, /* not counted by the MTU */
	LLHDR_MAX = 64, /* Ethernet + IPv6 + UDP, rounded up */
	/* A frame must hold at least all headers and 64 bytes of payload. */
	DEVICE_FRAME_BYTES_MIN = LLHDR_MAX + 48 + 48 + 64,
	DEVICE_WAIT_FDS_MAX = 4, /* a queue's and its port's together */
};

/* A piece of a frame; the layout of struct xdp_desc. */
struct device_desc {
	uint64_t addr; /* of the first byte, relative to the UMEM's start */
	uint32_t bytes;
	uint32_t options; /* DEVICE_DESC_MORE or 0 */
};

/* An IPv4 or IPv6 address with port: the engine's name for a host.
 *
 * @ours: not part of the name: our address that the host reached, from ctrl_recv(); zeros: the
 *        kernel chooses */
union address {
	struct { /* first, so that { 0 } clears everything */
		struct sockaddr_in6 name;
		uint8_t ours[16]; /* IPv4: the first four */
	};
	struct sockaddr sa;
	struct sockaddr_in in;
	struct sockaddr_in6 in6;
};

static inline bool address_has_ours(const union address *address)
{
	static const uint8_t none[sizeof(address->ours)];

	return memcmp(address->ours, none, sizeof(none)) != 0;
}

/* Returns the port in network order; both families have it at the same place. */
static inline uint16_t address_port(const union address *address)
{
	return address->in.sin_port;
}

/* Reports whether two addresses are the same host, on any port. */
static inline bool address_same_host(const union address *a, const union address *b)
{
	if (a->sa.sa_family != b->sa.sa_family)
		return false;
	if (a->sa.sa_family == AF_INET)
		return a->in.sin_addr.s_addr == b->in.sin_addr.s_addr;
	return !memcmp(&a->in6.sin6_addr, &b->in6.sin6_addr, sizeof(a->in6.sin6_addr));
}

/* Converts an address to the words of a peers entry (abi.h). */
static inline void address_words(const union address *address, uint16_t *words)
{
	uint8_t bytes[16] = { [10] = 0xff, 0xff };

	if (address->sa.sa_family == AF_INET6)
		memcpy(bytes, &address->in6.sin6_addr, 16);
	else
		memcpy(bytes + 12, &address->in.sin_addr, 4);
	for (int i = 0; i < 8; i++)
		words[i] = (uint16_t)(bytes[2 * i] << 8 | bytes[2 * i + 1]);
}

/* The Ethernet, IP and UDP headers of a frame to a peer, made for a frame without payload; the
 * engine adjusts lengths and IPv4 checksum. */
struct llhdr {
	uint8_t data[LLHDR_MAX];
	uint16_t mtu; /* largest IP packet for the route; 0: the interface's MTU */
	uint8_t bytes; /* header bytes (42 for IPv4, 62 for IPv6); 0: not resolved yet */
	bool neighbour : 1; /* the host is on our link, so the Ethernet address is its own */
	bool moved : 1; /* the source that the host knows is no longer ours; resolve() always sets it */
};

/* The distribution of peers over several queues of an interface, as seen by one queue. */
struct spread {
	/* one for each queue, in shared memory; NULL: a single queue */
	struct careful_queue_entry *entries;
	uint16_t count; /* queues; 0: a single queue */
	uint16_t index; /* our queue; the engine of queue 0 assigns peers to queues */
	bool straight; /* a frame from queue n arrives at the other end's queue n */
};

struct port {
	const struct port_ops *ops;
	uint32_t mtu; /* ops->events() reports a change */
	/* rises when XDP sees a control message, just before the socket has it; or NULL */
	const uint32_t *control;
	uint32_t qdiscs; /* how often our qdisc was removed and restored */
	struct spread spread;
};

struct queue {
	const struct queue_ops *ops;
	struct port *port;
	uint8_t *umem;
	uint32_t chunk_bytes; /* a power of two */
	uint32_t rx_chunks; /* all in the fill ring once open; info.bounds limits the windows */
	uint32_t tx_chunks;
	uint32_t buffer_bytes; /* bytes of a frame that one receive buffer holds */
	uint32_t segments_max; /* most descriptors of a frame; 1: no multi-buffer */
	uint32_t frame_bytes_max; /* largest frame at any MTU, with the Ethernet header */
	bool umem_stays; /* close() leaves the area mapped: the kernel still uses it */
	bool frames_checked; /* rx() returns only frames that the rules of frame.h admit */
	uint16_t index;
	int fd; /* readable when frames have arrived; -1: none */
	struct careful_device_info info; /* settings in effect, for status */
};

static inline uint32_t queue_frame_bytes(const struct queue *queue)
{
	uint32_t frame = queue->port->mtu + ETHERNET_BYTES;

	return frame < queue->frame_bytes_max ? frame : queue->frame_bytes_max;
}

static inline uint32_t queue_single_bytes(const struct queue *queue)
{
	uint32_t frame = queue_frame_bytes(queue);

	return frame < queue->buffer_bytes ? frame : queue->buffer_bytes;
}

/* Facts about a control message besides its bytes.
 *
 * @icmp_type, @icmp_code, @icmp_info: of the error; info is the MTU for "too big" */
struct arrival {
	uint64_t at_ns; /* arrival, by now_ns(); the kernel's time stamp while stamps() are on */
	union address by; /* sender of an ICMP error */
	uint32_t icmp_type;
	uint32_t icmp_code;
	uint32_t icmp_info;
	uint32_t ip_bytes; /* bytes of the IP packet */
};

/* XDP's record of a slot's last ping. */
struct ping_seen {
	uint64_t at_ns;
	uint32_t probe;
	uint32_t net_cpu;
	uint32_t cpu; /* the caller's CPU */
};

/* XDP's counts of a train (abi.h: struct careful_peer_entry). */
struct train_seen {
	uint32_t frames;
	uint32_t whole;
	uint64_t span_ns; /* first to last frame */
};

enum device_event {
	DEVICE_ROUTES = 0x01, /* a neighbour or route changed: resolve again */
	DEVICE_DOWN = 0x02, /* the link is down */
	DEVICE_UP = 0x04, /* the link is up again */
	DEVICE_GONE = 0x08, /* the interface was deleted */
	DEVICE_MTU = 0x10, /* the MTU changed */
	DEVICE_QDISC = 0x20, /* our qdisc was removed */
};

struct queue_ops {
	/* Takes up to n arrived descriptors; a partial frame only if n is smaller than the frame.
	 * The buffers belong to the caller until fill(). */
	uint32_t (*rx)(struct queue *queue, struct device_desc *descs, uint32_t n);
	/* Gives n receive buffers back, each named by any address within its chunk. On return a
	 * frame may arrive in them. */
	void (*fill)(struct queue *queue, const uint64_t *addrs, uint32_t n);
	/* Queues whole frames for kick(), which sends them in order. Returns the descriptors taken,
	 * always up to the end of a frame. */
	uint32_t (*tx)(struct queue *queue, const struct device_desc *descs, uint32_t n);
	/* Moves queued frames to the wire, as many as the device takes at once. 0: all are on their
	 * way; -EAGAIN: call again; also while the link is down. Loses only the frames that
	 * statistics().kicks_failed counts. */
	int (*kick)(struct queue *queue);
	/* Returns the chunks of frames that have left. */
	uint32_t (*complete)(struct queue *queue, uint64_t *addrs, uint32_t n);
	/* Reports the frames that the device knows it has lost. */
	void (*statistics)(struct queue *queue, struct careful_device_statistics *out);
	/* Changes the XDP mode for receiving. Frames that arrive meanwhile are lost, so no slot may
	 * be open. -errno with *error: the old mode stays, unless statistics().program_detached
	 * reports no program. May be NULL. */
	int (*mode)(struct queue *queue, uint32_t mode, struct careful_error *error);
	void (*close)(struct queue *queue);
};

struct port_ops {
	/* Sends a control message through the kernel's socket. 0 or -errno. */
	int (*ctrl_send)(struct port *port, const union address *to, const void *buf,
			 uint32_t bytes);
	/* Receives a control message, cut to `bytes`; returns its bytes. 0: sent to a broadcast or
	 * multicast address, to be dropped. -EAGAIN: none. -ECONNREFUSED: ICMP says that nobody
	 * listens at `from`; anyone can forge that. -EHOSTUNREACH: another ICMP error about a ping
	 * to `from`. -EMSGSIZE: a packet to `from` was too large for the path; resolve() knows the
	 * MTU. For an error, buf starts with the quoted part of our message; the rest is
	 * unchanged. */
	ssize_t (*ctrl_recv)(struct port *port, union address *from, void *buf, uint32_t bytes,
			     struct arrival *arrival);
	/* Turns kernel time stamps of control messages on or off; they slow all traffic a little. */
	void (*stamps)(struct port *port, bool on);

	/* Opens a slot of the peers map to frames with this cookie; 0 closes it, and closed()
	 * reports when it may be opened again. Returns the slot's entry, whose may_fill and
	 * seq_taken the caller writes from then on. may_fill starts at `window`. */
	struct careful_peer_entry *(*admit)(struct port *port, uint32_t slot, uint64_t cookie,
					    uint32_t window, uint32_t buffer_bytes, bool sealed);
	/* Starts a wait until the RX ring holds all frames that XDP has admitted to the slot;
	 * closed() reports its end. NULL: the ring always holds them. */
	void (*settle)(struct port *port, uint32_t slot);
	/* Reports whether the RX ring holds all frames that XDP admitted before the slot was
	 * closed, or before settle(). NULL: it always does. */
	bool (*closed)(struct port *port, uint32_t slot);
	/* The next three may all be NULL.
	 *
	 * Also admits frames to a group: those with the group's cookie from the address `from`,
	 * numbered from 1. Cookie 0 ends this. Takes effect soon; only probes may come until
	 * grouped() returns a number. -EEXIST: another slot has the cookie. Another -errno: the
	 * device receives no group frames. */
	int (*group)(struct port *port, uint32_t slot, uint64_t cookie, const union address *from);
	/* Returns the number of the group's last probe, or 0. */
	uint32_t (*grouped)(struct port *port, uint32_t slot);
	/* Makes the headers of a frame to all group members on our link; `like` is the address of
	 * one. -EHOSTUNREACH: that member is behind a router; -EAGAIN; or another -errno. */
	int (*multicast)(struct port *port, const union address *like, struct llhdr *llhdr);
	/* Reads XDP's record of the slot's last ping. */
	void (*probed)(struct port *port, uint32_t slot, struct ping_seen *probed);
	/* Starts counting the frames of a slot's train (0: none); trained() reads the counts. */
	void (*train)(struct port *port, uint32_t slot, uint32_t number);
	void (*trained)(struct port *port, uint32_t slot, struct train_seen *seen);
	/* Returns a slot's tune entry, CAREFUL_TUNE_DEFAULT included, in shared memory. */
	struct careful_tune_entry *(*tune)(struct port *port, uint32_t slot);
	/* Returns a slot's live entry, in shared memory. */
	struct careful_live_entry *(*live)(struct port *port, uint32_t slot);
	/* Returns the list of recorded arrivals, in shared memory. */
	struct careful_arrivals *(*arrivals)(struct port *port);
	/* Makes the headers of a frame to an address. 0; -EAGAIN: the neighbour is being resolved;
	 * -ENETUNREACH; -EXDEV: the route leaves by another interface; -ENOTUNIQ: the address is
	 * ours; -ENETDOWN: no route, and the interface is down. */
	int (*resolve)(struct port *port, const union address *to, struct llhdr *llhdr);
	/* If to->ours is no address of this host, sets it to the source address that the kernel
	 * would choose. It stays if the host has no route, or no address that others can use. May
	 * be NULL. */
	void (*source)(struct port *port, union address *to);
	/* Reports that no host answers: the address's link address may be stale. May be NULL. */
	void (*distrust)(struct port *port, const union address *to);

	uint64_t (*now_ns)(struct port *port); /* monotonic */
	void (*random)(struct port *port, void *buf, uint32_t bytes);
	/* Returns how often the carrier was lost since open. NULL: never. */
	uint32_t (*downs)(struct port *port);
	/* Returns changes since the last call: enum device_event, or'd. */
	uint32_t (*events)(struct port *port);
	/* Returns descriptors to poll() for reading while idle. */
	uint32_t (*wait_fds)(struct port *port, int *fds, uint32_t n);
	void (*close)(struct port *port);
};

static inline void device_close(struct queue *queue)
{
	struct port *port = queue->port;

	queue->ops->close(queue);
	port->ops->close(port);
}

/* Opens AF_XDP on options->ifname: a port and one queue. Errors: careful_open(). */
int xsk_open(const struct careful_options *options, struct queue **queue,
	     struct careful_error *error);
