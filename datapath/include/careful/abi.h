/* SPDX-License-Identifier: BSD-2-Clause */
/* The only declaration of the BPF maps that the datapath, its XDP program and the controller share:
 * keys, values, and who writes them. The maps are pinned under /sys/fs/bpf/careful/INSTANCE/. */
#ifndef CAREFUL_ABI_H
#define CAREFUL_ABI_H

#ifndef CAREFUL_CDEF
#include <linux/types.h>
#endif

enum {
	/* Rises when the layout of a key or value changes, and CAREFUL_IPC_VERSION with it, because
	 * a reader of the maps connects to carefuld first. */
	CAREFUL_ABI_VERSION = 5,
	CAREFUL_PEERS_MAX = 256, /* slots of the peers map; P is at most this */
	CAREFUL_CLASSES = 16, /* message-size classes of a plan table */
	CAREFUL_CLASS0_BYTES = 64, /* class i holds messages up to CLASS0_BYTES << i */
	CAREFUL_TUNE_VERSIONS = 3, /* versions that a tune entry holds */
	CAREFUL_TUNE_DEFAULT = CAREFUL_PEERS_MAX, /* key of the settings that a new peer gets */
	CAREFUL_QUEUES_MAX = 64,
	CAREFUL_SPREAD_MAX = 32, /* queues of one interface that peers are spread over */
	/* value of careful_peer_entry.window: frames may arrive late or twice */
	CAREFUL_WINDOW_ANY = 0x7fffffff,
	CAREFUL_BUFFERS_MAX = 1 << 16, /* receive or send buffers of a queue */
	CAREFUL_SEQ_SPAN = 2 * CAREFUL_BUFFERS_MAX, /* reach of CAREFUL_WINDOW_ANY */
};

/* Constants of the program (.rodata); the loader writes them once. */
struct careful_xdp_config {
	__u16 port; /* our UDP destination port, host order */
	__u16 queue; /* our RX queue */
	__u32 peers; /* slots in use; src_node must be below */
};

/* Everything that the loader writes.
 *
 * @first_port, @ports: UDP ports of the interface's queues: first_port + queue; ports 0: one queue
 */
struct careful_xdp_start {
	struct careful_xdp_config config;
	__u16 first_port;
	__u16 ports;
};

/* spread map (ARRAY, mmapable), key: queue. The hosts that have a session with each queue of an
 * interface, so that the first queue can choose one for the next host. Each queue's engine writes
 * its own entry.
 *
 * @slots: P of this queue; 0: not open
 * @hosts: for each slot in use, a number derived from the host's address; else 0 */
struct careful_queue_entry {
	__u32 slots;
	__u32 pad;
	__u64 hosts[CAREFUL_PEERS_MAX];
};

/* peers map (ARRAY, mmapable), key: slot. XDP admits a frame by this entry. The engine writes all
 * of it at the start of an epoch: cookie last, 0 to close. From then on XDP writes seq_last,
 * filled, limit, probe_*, train_*, group_probe and control. The engine writes may_fill, train
 * (which begins a count), seq_taken, and group_cookie after the rest of group_*. XDP reads the
 * engine's cache line only when it has used up what it read last, or for a sealed session. Buffers
 * are counted since the start of the epoch, modulo 2^32.
 *
 * @cookie:    0: no session in this slot
 * @seq_last:  seq_taken as XDP last read it; with CAREFUL_WINDOW_ANY the highest number admitted
 * @window:    XDP refuses a sequence number above seq_taken + window. CAREFUL_WINDOW_ANY
 *             (traditional): XDP refuses one more than CAREFUL_SEQ_SPAN away, either way. 0: the
 *             session is sealed; XDP refuses every unsealed frame with a number
 * @filled:    buffers that admitted frames filled, padding included
 * @limit:     may_fill as XDP last read it
 * @buffer_bytes: size of a receive buffer
 * @may_fill:  buffers that may be filled in all: those given back, and the window; not used with
 *             CAREFUL_WINDOW_ANY
 * @probe_ns:  when XDP saw the last ping (CLOCK_MONOTONIC)
 * @probe_last: number of that ping; written after probe_ns and probe_cpu, and only rises
 * @probe_cpu: CPU on which XDP ran
 * @train:     the train being counted; 0: none
 * @train_frames: frames of the train that arrived
 * @train_whole:  how many of them arrived before the first missing one
 * @train_first_ns, @train_last_ns: when the first and the last arrived
 * @group_cookie: cookie of the peer's frames to a group; 0: none
 * @group_probe:  number of the group's last probe that arrived
 * @group_source: source of group frames, as IPv6 (RFC 4291, 2.5.5.2), each number in host order
 * @seq_taken:    the last number that the engine took in order; with CAREFUL_WINDOW_ANY only in a
 *                sealed session
 * @sealed_window: sealed: the window; else 0
 * @control:      in the entry of slot 0: control messages of all peers; only rises */
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
	__u32 group_probe;
	__u32 sealed_window;
	__u16 group_source[8];
	__u32 control;
	__u32 pad[3];
};

/* groups map (HASH), key: the cookie of a group, host order, as __u64; value: the slot of its
 * sender, as __u32. Only the engine writes it, before group_cookie. */

/* Sinks that obey the minpulse rule (P3 section 3; P5 has netTx and hostRx). */
enum careful_sink {
	CAREFUL_SINK_NET_TX = 0, /* frames to the wire: a kick */
	CAREFUL_SINK_STORE = 1, /* received payload to a file: a write */
	CAREFUL_SINK_HOST_TX = 2, /* payload into frames: a read, or copies */
	CAREFUL_SINK_HOST_RX = 3, /* received payload to memory: copies */
	CAREFUL_SINKS,
};

/* With this bit in its minpulse, netTx or store takes exactly the minpulse, not all that waits:
 * P3's fixed pulses (section 4.1), for comparison. */
#define CAREFUL_MINPULSE_EXACT 0x80000000u

/* Fragment sizes of one message, payload bytes: x0 = first, then x(i+1) = x(i) * ratio + step up to
 * peak, then x(i) * down_ratio + down_step. Fixed-size fragmentation (P1 section 3) is ratio 1.0,
 * step 0, peak = first. */
struct careful_plan {
	__u32 first_bytes;
	__u32 ratio_q16; /* 65536 is 1.0 */
	__u32 step_bytes;
	__u32 peak_bytes;
	__u32 down_ratio_q16;
	__u32 down_step_bytes;
};

/* The plan for messages of one class, and the least pulse of each sink. */
struct careful_class {
	struct careful_plan plan;
	__u32 minpulse_bytes[CAREFUL_SINKS];
};

/* One version of a peer's settings. */
struct careful_tune {
	struct careful_class classes[CAREFUL_CLASSES];
};

/* tune map (ARRAY, mmapable), key: slot, or CAREFUL_TUNE_DEFAULT. A writer fills version (active +
 * 1) % CAREFUL_TUNE_VERSIONS and then changes active, an aligned word. A reader reads active once
 * per message and checks afterwards that it is unchanged, so a message never mixes two versions.
 * The engine is such a writer, too: it copies the default when another host takes a slot. */
struct careful_tune_entry {
	__u32 active;
	__u32 pad;
	struct careful_tune version[CAREFUL_TUNE_VERSIONS];
};

/* Times of bulk messages that were cut by one version of the settings: from the call until an
 * answer that followed the message. Totals since the instance began.
 *
 * @count:    messages measured
 * @asked:    those measured by a question behind the last fragment (the data of a get); stores are
 *            measured by their own reply, so their time includes the write
 * @sum_ns:   sum of the times
 * @sum_square_low, @sum_square_high: sum of their squares, ns^2: 128 bits */
struct careful_live_cell {
	__u64 count;
	__u64 asked;
	__u64 sum_ns;
	__u64 sum_square_low;
	__u64 sum_square_high;
};

/* Times of a peer's messages that were written to files under one version of the settings: from the
 * first fragment's arrival until all was written. Totals since the instance began.
 *
 * @count:       messages measured
 * @frames:      frames of these messages
 * @writes:      their writes
 * @bytes:       their bytes
 * @sum_came_ns: sum of the times until the last fragment arrived
 * @sum_ns:      sum of the times until all was written
 * @sum_square_low, @sum_square_high: sum of the squares of the times in sum_ns, ns^2: 128 bits */
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

/* Writes of those messages, by the class of the write's own size: at most the first three of a
 * message, and its last. */
struct careful_live_write {
	__u64 count;
	__u64 bytes;
	__u64 sum_ns;
	__u64 sum_square_low;
	__u64 sum_square_high;
};

/* live map (ARRAY, mmapable), key: slot, as many as the instance has. Only the engine writes it,
 * and the engine never reads it. Nothing resets it: readers take differences. A slot's totals
 * continue under its next peer.
 *
 * @sequence:  odd while a cell is being written; different afterwards */
struct careful_live_entry {
	__u64 sequence;
	struct careful_live_cell cells[CAREFUL_CLASSES][CAREFUL_TUNE_VERSIONS];
	struct careful_live_stored stored[CAREFUL_CLASSES][CAREFUL_TUNE_VERSIONS];
	struct careful_live_write writes[CAREFUL_CLASSES];
};

enum { CAREFUL_ARRIVALS_MAX = 512 }; /* a power of two */

/* A frame that arrived from the recorded peer.
 *
 * @at_ns:  when XDP saw it (CLOCK_MONOTONIC)
 * @bytes:  what follows the frame's header
 * @others: frames of other peers since the arrival before */
struct careful_arrival {
	__u64 at_ns;
	__u32 bytes;
	__u32 others;
};

/* arrivals map (ARRAY, mmapable), key: 0. The last arrivals of one session's frames, for a
 * measurement under traffic. The engine sets count to 0 and names the session; XDP writes count,
 * others and the ring, until `until` arrivals have come. The engine raises `until` as it reads.
 *
 * @cookie: of the session that is recorded; 0: none
 * @count:  arrivals so far; XDP writes it after the arrival
 * @until:  XDP stops when count reaches this number
 * @others: frames of other peers since the last arrival
 * @ring:   the arrival of number n, from 0, at n % CAREFUL_ARRIVALS_MAX */
struct careful_arrivals {
	__u64 cookie;
	__u32 count;
	__u32 until;
	__u32 others;
	__u32 pad;
	struct careful_arrival ring[CAREFUL_ARRIVALS_MAX];
};

/* counters map (PERCPU_ARRAY of __u64), key: XDP's verdict. PASS: to the kernel. */
enum careful_xdp_counter {
	CAREFUL_XDP_PASS_OTHER = 0, /* not our port, or another service's frame */
	CAREFUL_XDP_PASS_CONTROL, /* control message */
	CAREFUL_XDP_PASS_QUEUE, /* ours, on another queue */
	CAREFUL_XDP_PASS_PING, /* a NET_RX ping of a session, stamped */
	CAREFUL_XDP_ADMITTED, /* redirected to the AF_XDP socket */
	CAREFUL_XDP_DROP_SHORT, /* truncated: no whole header, or fewer bytes than frag_bytes */
	CAREFUL_XDP_DROP_FRAGMENT, /* an IP fragment to our port */
	CAREFUL_XDP_DROP_VERSION, /* another wire version */
	CAREFUL_XDP_DROP_CHECK, /* wrong header check */
	CAREFUL_XDP_DROP_TYPE, /* unknown type, or flags or a limit that the type cannot have */
	CAREFUL_XDP_DROP_NODE, /* src_node names no slot */
	CAREFUL_XDP_DROP_COOKIE, /* no open session has this cookie */
	CAREFUL_XDP_DROP_SEQ, /* already taken, or beyond the window */
	CAREFUL_XDP_DROP_CREDIT, /* beyond the buffers that the sender may fill */
	CAREFUL_XDP_DROP_PING, /* ping without a stage, or already received */
	CAREFUL_XDP_DROP_TRAIN, /* train frame: counted if its session asked for it */
	CAREFUL_XDP_DROP_REDIRECT, /* no socket in the map */
	CAREFUL_XDP_COUNTERS,
};

/* Most bytes of a captured frame: a record with the kernel's 8 bytes fills a page. A ring buffer of
 * at least CAREFUL_CAUGHT_SHORT_RING bytes gets at most CAREFUL_CAUGHT_SHORT_BYTES of a frame. */
enum {
	CAREFUL_CAUGHT_BYTES = 4056,
	CAREFUL_CAUGHT_SHORT_BYTES = 128,
	CAREFUL_CAUGHT_SHORT_RING = 64 << 20,
};

/* A frame that `carefulctl capture` gets, through the ring buffer that it puts into the captures
 * map (ARRAY_OF_MAPS, key: 0) while it listens.
 *
 * @time_ns:       CLOCK_MONOTONIC
 * @bytes:         length of the whole frame
 * @caught_bytes:  length of data
 * @verdict:       enum careful_xdp_counter; CAREFUL_XDP_COUNTERS: sent by this end */
struct careful_caught {
	__u64 time_ns;
	__u32 bytes;
	__u32 caught_bytes;
	__u32 verdict;
	__u32 reserved;
	__u8 data[CAREFUL_CAUGHT_BYTES];
};

#ifndef CAREFUL_CDEF

/* Returns how far a sequence number is ahead of the last one, 1 to window; 0 if it was received
 * before or lies beyond the window. Modulo 2^32. */
static inline __u32 careful_seq_ahead(__u32 seq, __u32 last, __u32 window)
{
	return seq - last <= window ? seq - last : 0;
}

/* Reports whether a number is within CAREFUL_SEQ_SPAN of the last one, modulo 2^32. */
static inline int careful_seq_near(__u32 seq, __u32 last)
{
	return seq - last + CAREFUL_SEQ_SPAN <= 2 * CAREFUL_SEQ_SPAN;
}

/* Reports whether a ping or frame number is newer than the last one, modulo 2^32. */
static inline int careful_is_newer(__u32 number, __u32 last)
{
	return careful_seq_ahead(number, last, 0x7fffffff) != 0;
}

#endif /* CAREFUL_CDEF */
#endif /* CAREFUL_ABI_H */
