/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The world as the engine sees it. A port is an interface: the side channel for
 * control messages, the admission of peers, routes, what changes about the link, the
 * clock and the random numbers. A queue of it moves frames, by batches. All that the
 * engine knows of the world passes through here, so that a virtual device in virtual
 * time can take its place.
 *
 * A queue's buffers are chunks of one UMEM area. Chunks [0, rx_chunks) receive, the
 * rest send. A frame is one or more descriptors; all but its last carry
 * DEVICE_DESC_MORE. A queue is closed before its port.
 */
#ifndef CAREFUL_DEVICE_H
#define CAREFUL_DEVICE_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>

#include <careful/abi.h>
#include <careful/careful.h>

struct pollfd;

enum {
	DEVICE_DESC_MORE = 1, /* the frame goes on in the next descriptor (XDP_PKT_CONTD) */
	DEVICE_SEGMENTS_MAX = 16, /* descriptors of one frame */
	ETHERNET_BYTES = 14, /* of a frame: what the MTU does not count */
	LLHDR_MAX = 64, /* Ethernet + IPv6 + UDP, rounded up */
	/* The least that a frame must hold: all headers, and 64 bytes to make it worth while. */
	DEVICE_FRAME_BYTES_MIN = LLHDR_MAX + 48 + 48 + 64,
	DEVICE_WAIT_FDS_MAX = 4, /* a queue's and its port's */
};

/* A piece of a frame; the layout of struct xdp_desc. */
struct device_desc {
	uint64_t addr; /* of the first byte, relative to the UMEM's start */
	uint32_t bytes;
	uint32_t options; /* DEVICE_DESC_MORE or 0 */
};

/* An address, IPv4 or IPv6, with its port: how the engine names a host. @ours: at which of our own
 * addresses it found us, as ctrl_recv() says; zeros: the kernel chooses. It is no part of the name. */
union address {
	struct { /* the first: { 0 } clears all of it */
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

/* An address as a peers entry has it (abi.h). */
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

/*
 * What a frame to a peer starts with: Ethernet, IP and UDP, lengths and IPv4
 * checksum as for a frame without payload (the engine adjusts them).
 *
 * @mtu:       largest IP packet that the kernel would send this way; 0: as large as the interface's
 * @bytes:     of the header (42 for IPv4, 62 for IPv6); 0: not resolved yet
 * @neighbour: the host is on our link, so the Ethernet address is the host's own
 */
struct llhdr {
	uint8_t data[LLHDR_MAX];
	uint16_t mtu;
	uint8_t bytes;
	bool neighbour;
};

/*
 * An interface with several queues that peers are spread over, as one of them sees it.
 *
 * @entries:  of each queue, in shared memory; NULL: this one is used alone
 * @count:    queues; 0: one alone
 * @index:    ours; the engine of 0 says which queue a peer belongs to
 * @straight: what leaves by a queue arrives at the other end's of the same number
 */
struct spread {
	struct careful_queue_entry *entries;
	uint16_t count;
	uint16_t index;
	bool straight;
};

struct port {
	const struct port_ops *ops;
	uint32_t mtu; /* ops->events() tells when it has changed */
	uint32_t qdiscs; /* how often somebody took our qdisc off and it was put back */
	struct spread spread;
};

struct queue {
	const struct queue_ops *ops;
	struct port *port;
	uint8_t *umem;
	uint32_t chunk_bytes; /* a power of two */
	uint32_t rx_chunks; /* all in the fill ring once open; how many are promised: info.bounds */
	uint32_t tx_chunks;
	uint32_t buffer_bytes; /* bytes of a frame that one receive buffer holds */
	uint32_t segments_max; /* descriptors a frame may have here; 1: no multi-buffer */
	uint32_t frame_bytes_max; /* largest frame, whatever the MTU, Ethernet header included */
	bool umem_stays; /* close() leaves it mapped: the kernel still uses it */
	bool judged; /* rx() has only what careful_frame_judge() and its like let in (frame.h) */
	uint16_t index;
	int fd; /* readable when frames have arrived; -1: none */
	struct careful_device_info info; /* for people: modes, R and what bounds it, at open() */
};

/* Largest frame now, Ethernet header included: it follows the MTU. */
static inline uint32_t queue_frame_bytes(const struct queue *queue)
{
	uint32_t frame = queue->port->mtu + ETHERNET_BYTES;

	return frame < queue->frame_bytes_max ? frame : queue->frame_bytes_max;
}

/* The same of frames that fit one receive buffer. */
static inline uint32_t queue_single_bytes(const struct queue *queue)
{
	uint32_t frame = queue_frame_bytes(queue);

	return frame < queue->buffer_bytes ? frame : queue->buffer_bytes;
}

/*
 * What is known of a control message beside its bytes.
 *
 * @at_ns:      when it arrived, by now_ns(): as the kernel noted it while stamps() are on
 * @by:         of an ICMP error: who says so
 * @icmp_type, @icmp_code, @icmp_info: of it; info is the MTU where packets are too big
 * @ip_bytes:   of the IP packet that it came in
 */
struct arrival {
	uint64_t at_ns;
	union address by;
	uint32_t icmp_type;
	uint32_t icmp_code;
	uint32_t icmp_info;
	uint32_t ip_bytes;
};

/* What XDP noted of the last ping of a slot. @cpu: where the caller runs. */
struct ping_seen {
	uint64_t at_ns;
	uint32_t probe;
	uint32_t net_cpu;
	uint32_t cpu;
};

/* What XDP counted of a train (abi.h: struct careful_peer_entry). @span_ns: from its first
 * frame to its last. */
struct train_seen {
	uint32_t frames;
	uint32_t whole;
	uint64_t span_ns;
};

enum device_event {
	DEVICE_ROUTES = 0x01, /* a neighbour or route changed: resolve again */
	DEVICE_DOWN = 0x02, /* the link is down */
	DEVICE_UP = 0x04, /* the link is up again */
	DEVICE_GONE = 0x08, /* the interface was deleted */
	DEVICE_MTU = 0x10, /* its MTU is not what it was */
	DEVICE_QDISC = 0x20, /* our qdisc was taken off */
};

struct queue_ops {
	/* Takes up to n descriptors that arrived; never part of a frame unless n
	 * is smaller than the frame. Their buffers are the caller's until fill(). */
	uint32_t (*rx)(struct queue *queue, struct device_desc *descs, uint32_t n);
	/* Gives n receive buffers back, named by any address within the chunk. On
	 * return they are published: a frame may arrive in them. */
	void (*fill)(struct queue *queue, const uint64_t *addrs, uint32_t n);
	/* Queues whole frames for sending; returns the descriptors taken, which end
	 * at a frame's end. They leave with kick(), in order. */
	uint32_t (*tx)(struct queue *queue, const struct device_desc *descs, uint32_t n);
	/* Moves what is queued to the wire, up to what the device takes in one go.
	 * 0: all is on its way; -EAGAIN: call again, nothing was lost (or as much as
	 * statistics().kicks_failed says). While the link is down it stays -EAGAIN. */
	int (*kick)(struct queue *queue);
	/* Chunks whose frames have left; they are free again. */
	uint32_t (*complete)(struct queue *queue, uint64_t *addrs, uint32_t n);
	/* Frames lost by the device itself, as far as it can tell; for status. */
	void (*statistics)(struct queue *queue, struct careful_device_statistics *out);
	/* Receives in another XDP mode from now on. What arrives meanwhile is lost, so that no
	 * slot may be open. -errno with *error: in the mode as before, unless
	 * statistics().program_detached says that there is none. May be NULL. */
	int (*mode)(struct queue *queue, uint32_t mode, struct careful_error *error);
	void (*close)(struct queue *queue);
};

struct port_ops {
	/* Control messages, through the kernel's own socket. 0 or -errno. */
	int (*ctrl_send)(struct port *port, const union address *to, const void *buf,
			 uint32_t bytes);
	/* Bytes received (of a longer message, as many as there was room for; 0: sent to a
	 * broadcast or multicast address, to be dropped), -EAGAIN, or
	 * -ECONNREFUSED where ICMP says that nobody listens at the host `from`: anyone can.
	 * -EHOSTUNREACH: another ICMP error about a ping towards `from`. -EMSGSIZE: the kernel
	 * was told that a packet towards `from` is too large: resolve() knows. Of what they
	 * are about buf has the beginning, as far as the error quotes it; the rest stays. */
	ssize_t (*ctrl_recv)(struct port *port, union address *from, void *buf, uint32_t bytes,
			     struct arrival *arrival);
	/* Lets the kernel note when control messages arrive; it costs all traffic a little. */
	void (*stamps)(struct port *port, bool on);

	/* Opens a slot of the peers map to frames with this cookie; 0 closes it, and it may
	 * be opened again when closed() says so. Returns the slot's entry, of which the caller
	 * writes may_fill and seq_taken from then on. may_fill begins with the window. */
	struct careful_peer_entry *(*admit)(struct port *port, uint32_t slot, uint64_t cookie,
					    uint32_t window, uint32_t buffer_bytes, bool sealed);
	/* Begins a wait, which closed() reports to be over, until the RX ring holds what XDP has
	 * admitted in the slot so far. May be NULL: it always does. */
	void (*settle)(struct port *port, uint32_t slot);
	/* Reports whether what XDP admitted before the slot was closed, or settle() was called, is
	 * in the RX ring. May be NULL: it always is. */
	bool (*closed)(struct port *port, uint32_t slot);
	/* Opens a slot whose session is open to frames of a group with this cookie, too, which
	 * come from this address and whose numbers begin with 1; soon, and until grouped() says so
	 * none but probes may come. 0 closes that. -EEXIST: another slot has it; another -errno:
	 * there are no such frames here. grouped: number of the last probe of that group that came;
	 * 0: none did. multicast: headers of a frame to all hosts of the link that have such a
	 * group, for one that is to reach `like`; -EHOSTUNREACH: a router is on the way there,
	 * -EAGAIN, or another -errno. All or none of them are NULL. */
	int (*group)(struct port *port, uint32_t slot, uint64_t cookie, const union address *from);
	uint32_t (*grouped)(struct port *port, uint32_t slot);
	int (*multicast)(struct port *port, const union address *like, struct llhdr *llhdr);
	void (*probed)(struct port *port, uint32_t slot, struct ping_seen *probed);
	/* Counts the frames of a slot's train from now on, 0: of none; and what was counted. */
	void (*train)(struct port *port, uint32_t slot, uint32_t number);
	void (*trained)(struct port *port, uint32_t slot, struct train_seen *seen);
	/* The tune entry of a slot (CAREFUL_TUNE_DEFAULT included), in shared memory. */
	struct careful_tune_entry *(*tune)(struct port *port, uint32_t slot);
	/* The live entry of a slot, in shared memory. */
	struct careful_live_entry *(*live)(struct port *port, uint32_t slot);
	/* Headers of a frame to this address. 0, -EAGAIN while the neighbour is being
	 * resolved, -ENETUNREACH, -EXDEV where the route leaves by another interface, -ENOTUNIQ if
	 * the address is our own, -ENETDOWN if there is no route and the interface is down. */
	int (*resolve)(struct port *port, const union address *to, struct llhdr *llhdr);
	/* Sets to->ours to the address that the kernel would send from; zero if there is no way.
	 * May be NULL. */
	void (*source)(struct port *port, union address *to);
	/* Nobody answers there: maybe the neighbour's link address is another by now. May be
	 * NULL. */
	void (*distrust)(struct port *port, const union address *to);

	uint64_t (*now_ns)(struct port *port); /* monotonic */
	void (*random)(struct port *port, void *buf, uint32_t bytes);
	/* How often the carrier went since the port was opened. May be NULL: never. */
	uint32_t (*downs)(struct port *port);
	/* What changed since the last call: enum device_event, or'd. */
	uint32_t (*events)(struct port *port);
	/* File descriptors to poll() for readability when there is nothing to do. */
	uint32_t (*wait_fds)(struct port *port, int *fds, uint32_t n);
	void (*close)(struct port *port);
};

/* Closes a queue and the port that it alone uses. */
static inline void device_close(struct queue *queue)
{
	struct port *port = queue->port;

	queue->ops->close(queue);
	port->ops->close(port);
}

/* Opens AF_XDP on options->ifname: a port, and its queue options->queue. See
 * careful_open() for the errors. */
int xsk_open(const struct careful_options *options, struct queue **queue,
	     struct careful_error *error);

#endif /* CAREFUL_DEVICE_H */
