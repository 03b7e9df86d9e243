/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the datapath, its XDP program and the controller share through BPF maps
 * pinned under /sys/fs/bpf/careful/INSTANCE/: keys, values, and who writes what.
 * The only declaration of each.
 */
#ifndef CAREFUL_ABI_H
#define CAREFUL_ABI_H

#ifndef CAREFUL_CDEF
#include <linux/types.h>
#endif

enum {
	/* Raised when a key or a value gets another layout, and CAREFUL_IPC_VERSION with it: who
	 * reads maps asks their carefuld first. */
	CAREFUL_ABI_VERSION = 3,
	CAREFUL_PEERS_MAX = 256, /* slots of the peers map; P is at most this */
	CAREFUL_CLASSES = 16, /* message-size classes of a plan table */
	CAREFUL_CLASS0_BYTES = 64, /* class i holds messages up to this << i */
	CAREFUL_TUNE_VERSIONS = 3, /* contents a tune entry can hold at a time */
	CAREFUL_TUNE_DEFAULT = CAREFUL_PEERS_MAX, /* key of what a new peer starts with */
	CAREFUL_QUEUES_MAX = 64,
	CAREFUL_SPREAD_MAX = 32, /* queues of one interface that peers are spread over */
	CAREFUL_WINDOW_ANY = 0x7fffffff, /* of a peers entry: frames may come late, or twice */
	CAREFUL_SEQ_SPAN = 1 << 17, /* then: twice as many as an instance has send buffers */
};

/* Frozen into the program at load time (.rodata); the loader writes it once. */
struct careful_xdp_config {
	__u16 port; /* UDP destination port that is ours, host order */
	__u16 queue; /* the RX queue that is ours */
	__u32 peers; /* slots in use: src_node must be below */
};

/*
 * All that is frozen.
 *
 * @first_port, @ports: of the queues of the interface together: each has the next one, and frames
 *                      to it; 0: there is one queue
 */
struct careful_xdp_start {
	struct careful_xdp_config config;
	__u16 first_port;
	__u16 ports;
};

/*
 * spread map (ARRAY, mmapable), key: queue. Who has a session with each queue of an interface, so
 * that the first can say where the next one belongs. Each queue's engine writes its own.
 *
 * @slots: P of this queue; 0: it is not open
 * @hosts: of each slot in use, a number that follows from the host's address; else 0
 */
struct careful_queue_entry {
	__u32 slots;
	__u32 pad;
	__u64 hosts[CAREFUL_PEERS_MAX];
};

/*
 * peers map (ARRAY, mmapable), key: slot. What XDP needs to admit a frame.
 * The engine writes all of it at an epoch's start (cookie last, 0 closes); from then on XDP
 * writes seq_last, filled, limit, probe_*, train_*, group_seq and group_probe, and the engine
 * may_fill, train (which begins a count), seq_taken and group_cookie (the rest of group_* before
 * it), in a cache line that XDP reads when the limit or the number that it read last is used up,
 * or of a sealed session.
 * Counts of buffers are of all the epoch, modulo 2^32.
 *
 * @cookie:    0: no session in this slot
 * @seq_last:  seq_taken as XDP read it last; with CAREFUL_WINDOW_ANY the highest sequence number
 *             admitted
 * @window:    a sequence number above seq_taken + window cannot be; CAREFUL_WINDOW_ANY: one
 *             that is no more than CAREFUL_SEQ_SPAN away, either way, can (traditional); 0: the
 *             session is sealed, and has no frames with a number that are not
 * @filled:    buffers that admitted frames filled, their padding included
 * @limit:     may_fill as XDP read it last
 * @buffer_bytes: of a receive buffer
 * @may_fill:  buffers that may be filled in all: those that were given back, and the window;
 *             not asked with CAREFUL_WINDOW_ANY
 * @probe_ns:    when XDP saw the last ping (CLOCK_MONOTONIC),
 * @probe_last:  its number; written after the other two, and only ever rises
 * @probe_cpu:   where XDP ran
 * @train:        the train that is counted; 0: none
 * @train_frames: frames of it that came,
 * @train_whole:  of which so many before any was missing,
 * @train_first_ns, @train_last_ns: and when the first and the last of them did
 * @group_cookie: of the peer's frames to a group; 0: none
 * @group_seq:    highest sequence number of those that was admitted
 * @group_probe:  number of the last of its probes that came
 * @group_source: the address that they come from, as IPv6 has it (RFC 4291, 2.5.5.2), each number
 *               in host order
 * @seq_taken:    the last number that the engine took in order; of a sealed session with
 *                CAREFUL_WINDOW_ANY too
 * @sealed_window: of one, the same as window; else 0
 */
struct careful_peer_entry {
	__u64 cookie;
	__u32 seq_last;
	__u32 window;
	__u32 filled;
	__u32 limit;
	__u32 buffer_bytes;
	__u32 probe_cpu;
	__u64 probe_ns;
	__u32 probe_last;
	__u32 train_frames;
	__u64 train_first_ns;
	__u64 train_last_ns;
	__u32 may_fill;
	__u32 train;
	__u32 train_whole;
	__u32 seq_taken;
	__u64 group_cookie;
	__u32 group_seq;
	__u32 group_probe;
	__u32 sealed_window;
	__u16 group_source[8];
	__u32 pad[3];
};

/*
 * groups map (HASH), key: the cookie of a group, host order, as __u64; value: the slot of its
 * sender, as __u32. The engine alone writes it, after group_seq and before group_cookie.
 */

/* Sinks that obey the minpulse rule (P3 section 3; P5 has netTx and hostRx). */
enum careful_sink {
	CAREFUL_SINK_NET_TX = 0, /* frames to the wire: a kick */
	CAREFUL_SINK_STORE = 1, /* received payload to a file: a write */
	CAREFUL_SINK_HOST_TX = 2, /* payload into frames: a read, or copies */
	CAREFUL_SINK_HOST_RX = 3, /* received payload to memory: copies */
	CAREFUL_SINKS,
};

/*
 * Fragment sizes of one message, payload bytes: x0 = first, then
 * x(i+1) = x(i) * ratio + step up to peak, then * down_ratio + down_step.
 * Fixed-size fragmentation (P1 section 3) is ratio 1.0, step 0, peak = first.
 */
struct careful_plan {
	__u32 first_bytes;
	__u32 ratio_q16; /* 65536 is 1.0 */
	__u32 step_bytes;
	__u32 peak_bytes;
	__u32 down_ratio_q16;
	__u32 down_step_bytes;
};

/* How messages of one class go: how they are cut, and the least pulse of each sink. */
struct careful_class {
	struct careful_plan plan;
	__u32 minpulse_bytes[CAREFUL_SINKS];
};

/* One version of a peer's settings. */
struct careful_tune {
	struct careful_class classes[CAREFUL_CLASSES];
};

/*
 * tune map (ARRAY, mmapable), key: slot, or CAREFUL_TUNE_DEFAULT. A writer fills
 * version (active + 1) % CAREFUL_TUNE_VERSIONS and then changes active, an aligned
 * word; a reader takes active once a message and checks afterwards that it is
 * still the same, so a message never mixes two versions. When a slot's next peer is
 * another host than the last, the engine is such a writer: it copies the default's.
 */
struct careful_tune_entry {
	__u32 active;
	__u32 pad;
	struct careful_tune version[CAREFUL_TUNE_VERSIONS];
};

/*
 * What bulk messages that one version of the settings cut took, from when they were given to
 * the engine until an answer that came behind them: totals since the instance began.
 *
 * @count:    messages that were measured
 * @asked:    of them, by a question behind the last fragment (the data of a get); the
 *            others by the reply that they have (a store, so with what it takes to write it)
 * @sum_ns:   what they took
 * @sum_square_low, @sum_square_high: of what each took, squared, ns^2: 128 bits
 */
struct careful_live_cell {
	__u64 count;
	__u64 asked;
	__u64 sum_ns;
	__u64 sum_square_low;
	__u64 sum_square_high;
};

/*
 * What messages took that a peer sent and one version of the settings wrote to files, from when
 * their first fragment was here until all was written: totals since the instance began.
 *
 * @count:       messages that were measured
 * @frames:      in which they came
 * @writes:      that they took
 * @bytes:       of them
 * @sum_came_ns: until their last fragment was here
 * @sum_ns:      until they were written
 * @sum_square_low, @sum_square_high: of what each took, squared, ns^2: 128 bits
 */
struct careful_live_stored {
	__u64 count;
	__u64 frames;
	__u64 writes;
	__u64 bytes;
	__u64 sum_came_ns;
	__u64 sum_ns;
	__u64 sum_square_low;
	__u64 sum_square_high;
};

/*
 * Writes of those messages, by the class of their own size: at most the first three of a message,
 * and its last.
 */
struct careful_live_write {
	__u64 count;
	__u64 bytes;
	__u64 sum_ns;
	__u64 sum_square_low;
	__u64 sum_square_high;
};

/*
 * live map (ARRAY, mmapable), key: slot, as many as the instance has. The engine alone writes,
 * and decides nothing by what stands there; nobody resets: readers take differences. A slot's
 * totals go on under its next peer.
 *
 * @sequence:  odd while a cell is being written; another one after
 */
struct careful_live_entry {
	__u64 sequence;
	struct careful_live_cell cells[CAREFUL_CLASSES][CAREFUL_TUNE_VERSIONS];
	struct careful_live_stored stored[CAREFUL_CLASSES][CAREFUL_TUNE_VERSIONS];
	struct careful_live_write writes[CAREFUL_CLASSES];
};

/* counters map (PERCPU_ARRAY of __u64), key: what became of a frame in XDP. */
enum careful_xdp_counter {
	CAREFUL_XDP_PASS_OTHER = 0, /* not our port, or of another service: to the kernel */
	CAREFUL_XDP_PASS_CONTROL, /* control message: to the kernel's socket */
	CAREFUL_XDP_PASS_QUEUE, /* ours, on a queue that is not: to the kernel */
	CAREFUL_XDP_PASS_PING, /* a NET_RX ping of a session, stamped: to the kernel's socket */
	CAREFUL_XDP_ADMITTED, /* redirected to the socket */
	CAREFUL_XDP_DROP_SHORT, /* truncated: no whole header, or less than frag_bytes */
	CAREFUL_XDP_DROP_FRAGMENT, /* an IP fragment to our port */
	CAREFUL_XDP_DROP_VERSION, /* another wire version */
	CAREFUL_XDP_DROP_CHECK, /* the header's check is wrong */
	CAREFUL_XDP_DROP_TYPE, /* no such type, or flags or a limit that it cannot have */
	CAREFUL_XDP_DROP_NODE, /* src_node names no slot */
	CAREFUL_XDP_DROP_COOKIE, /* not the cookie of an open session */
	CAREFUL_XDP_DROP_SEQ, /* taken before, or beyond the window */
	CAREFUL_XDP_DROP_CREDIT, /* it would fill more buffers than its sender may */
	CAREFUL_XDP_DROP_PING, /* a ping of no stage, or seen before */
	CAREFUL_XDP_DROP_TRAIN, /* of a train: counted for its session, if it was asked for */
	CAREFUL_XDP_DROP_REDIRECT, /* no socket in the map */
	CAREFUL_XDP_COUNTERS,
};

/* Of a frame that is caught, at most so much: a record fills a page with the kernel's 8 bytes. */
enum { CAREFUL_CAUGHT_BYTES = 4056 };

/*
 * A frame that `carefulctl capture` gets, by the ring buffer that it puts into the captures map
 * (ARRAY_OF_MAPS, key: 0) for as long as it listens.
 *
 * @time_ns:       CLOCK_MONOTONIC
 * @bytes:         of the whole frame
 * @caught_bytes:  of it in data
 * @verdict:       enum careful_xdp_counter; CAREFUL_XDP_COUNTERS: sent by this end
 */
struct careful_caught {
	__u64 time_ns;
	__u32 bytes;
	__u32 caught_bytes;
	__u32 verdict;
	__u32 reserved;
	__u8 data[CAREFUL_CAUGHT_BYTES];
};

#ifndef CAREFUL_CDEF

/*
 * How many frames a sequence number is ahead of the last one, if it can be at all: 1 to
 * window; 0 for a replay and for what is beyond the window. Modulo 2^32.
 */
static inline __u32 careful_seq_ahead(__u32 seq, __u32 last, __u32 window)
{
	return seq - last <= window ? seq - last : 0;
}

/* Reports whether a number can be one of those around the last one; modulo 2^32. */
static inline int careful_seq_near(__u32 seq, __u32 last)
{
	return seq - last + CAREFUL_SEQ_SPAN <= 2 * CAREFUL_SEQ_SPAN;
}

/* Reports whether a ping's number is newer than the last one's; modulo 2^32. */
static inline int careful_ping_new(__u32 probe, __u32 last)
{
	return careful_seq_ahead(probe, last, 0x7fffffff) != 0;
}

#endif /* CAREFUL_CDEF */
#endif /* CAREFUL_ABI_H */
