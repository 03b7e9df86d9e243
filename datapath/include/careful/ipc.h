/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * carefuld's local socket: a SOCK_SEQPACKET Unix socket, /run/careful/INSTANCE/sock.
 * Each packet is one struct careful_ipc and at most CAREFUL_IPC_PAYLOAD_BYTES of
 * payload; a client has up to CAREFUL_IPC_INFLIGHT questions under way, answers
 * come in any order and carry the question's id. Host byte order: both ends are
 * the same machine. It offers what careful.h offers, through one queue shared by
 * all clients; data moves between the client's files (descriptors are passed) and
 * UMEM, never through the socket.
 */
#ifndef CAREFUL_IPC_H
#define CAREFUL_IPC_H

#ifndef CAREFUL_CDEF
#include <careful/careful.h>
#include <careful/ping.h>
#endif

enum {
	CAREFUL_IPC_VERSION = 11, /* raised by each change of what is said */
	CAREFUL_IPC_PAYLOAD_BYTES = 65536,
	CAREFUL_IPC_INFLIGHT = 256,
	CAREFUL_IPC_FILES = 64, /* files a client may have registered at a time */
	CAREFUL_IPC_RANGES = 256, /* of one GETS */
	CAREFUL_IPC_PEER_NONE = 0xffffffff,
	CAREFUL_IPC_TIMED = 3, /* kinds of operations whose times are counted */
	CAREFUL_IPC_BUCKETS = 25, /* of each: what took less than CAREFUL_IPC_BUCKET_NS << i, */
	CAREFUL_IPC_BUCKET_NS = 1024, /* and no less than the bucket before; the last: all others */
};

enum careful_ipc_op {
	CAREFUL_IPC_INFO = 1, /* answer's payload: struct careful_info */
	CAREFUL_IPC_PEERS = 2, /* answer's payload: struct careful_peer_info per peer in use */
	/* payload: a struct sockaddr_storage; bytes: time limit, ms. Answered with peer
	 * when the session is up, or with the status that says why not. args[0]: queues, as
	 * careful_peer_among() takes them; -EREMCHG: args[0] is the queue, args[1] the port */
	CAREFUL_IPC_CONNECT = 3,
	CAREFUL_IPC_FILE_ADD = 4, /* a descriptor (SCM_RIGHTS); answered with file */
	CAREFUL_IPC_FILE_REMOVE = 5, /* file. Waits for what uses it. */
	CAREFUL_IPC_REQUEST = 6, /* peer, handler, args, payload; answered with args, payload */
	CAREFUL_IPC_GET = 7, /* peer, region, region_off, bytes, file, file_off, flags */
	CAREFUL_IPC_STORE = 8, /* likewise; handler CAREFUL_HANDLERS */
	/* Probes to peer, sent and timed by the daemon itself: args[0] frames of `bytes` of
	 * payload each, flags CAREFUL_IPC_TRAIN or 0. Answered with a struct
	 * careful_ipc_probe for each, when the last answer is here. A client has one at a time.
	 * -ETIMEDOUT: the peer answered nothing for seconds. -EMSGSIZE: too large, or more frames
	 * in a train than stamps in an answer. */
	CAREFUL_IPC_MEASURE = 9,
	/* peer; args: stage, ttl, time limit in ms; bytes: of the IP packet. One at a time to a
	 * peer. Answer's payload, whatever its status: struct careful_ping_result. */
	CAREFUL_IPC_PING = 10,
	/* peer: careful_peer_measure(). Answered when that has begun; PEERS tells what it found. */
	CAREFUL_IPC_BURST = 11,
	/* payload: a struct careful_signature; region. Answered with bursts, each a struct
	 * careful_burst and its marks. carefuld does nothing else meanwhile but move frames. */
	CAREFUL_IPC_SIGNATURE = 16,
	/* Answer's payload: struct careful_ipc_use, and exports_count times careful_export_use. */
	CAREFUL_IPC_USE = 17,
	/* payload: the program's name; bytes: of the memory it wants. Answered with bytes: of the
	 * memory, and a descriptor of the area (struct careful_area). From then on the connection
	 * is the program's life, and packets with BELL wake either end. -EALREADY: it has one. */
	CAREFUL_IPC_ATTACH = 18,
	CAREFUL_IPC_PEER_BEGIN = 19, /* as CONNECT, answered at once: careful_peer() */
	CAREFUL_IPC_PEER_LEAVE = 20, /* peer: given up, where it is nobody's yet */
	CAREFUL_IPC_PEER_INFO = 21, /* peer; payload: struct careful_ipc_peer */
	CAREFUL_IPC_HANDLE = 22, /* handler; flags CAREFUL_IPC_OF_*; bytes 0: no longer */
	/* region_off: in the memory; bytes, flags, peer -> region. With a descriptor: of its file,
	 * from file_off on. */
	CAREFUL_IPC_REGION_ADD = 23,
	CAREFUL_IPC_REGION_REMOVE = 24, /* region */
	CAREFUL_IPC_PROGRAMS = 25, /* answer's payload: struct careful_program_info of each */
	CAREFUL_IPC_BELL = 26, /* look into the rings; with flags, a BELL comes back */
	/* peer, region, file, flags; payload: up to CAREFUL_IPC_RANGES of careful_ipc_range, each a
	 * GET. One answer: bytes of all, and the status of the first that failed (-ENODATA: it was
	 * shorter); then some are in the file, and others not. */
	CAREFUL_IPC_GETS = 27,
	/* payload: words of carefuld's command line, a NUL behind each, of root alone. The exports
	 * and waits that they say are in effect from now on; other words change nothing. Answer's
	 * payload: what is wrong with them, in words, and then nothing has changed; or nothing. */
	CAREFUL_IPC_RELOAD = 28,
	/* The program is about to end: nothing that it asks in its ring begins, and nothing is put
	 * into its regions, or where its gets go. -EBUSY: something is just being written yet. */
	CAREFUL_IPC_QUIET = 29,
};

enum careful_ipc_measure {
	CAREFUL_IPC_TRAIN = 1, /* back to back, each in a kick of its own; else one at a time */
};

/*
 * One probe, by monotonic clocks, ns.
 *
 * @sent_ns:     ours, before it was handed to the engine
 * @arrived_ns:  the peer's, when its handler ran
 * @back_ns:     ours, when the answer's callback ran; 0 in a train, but for its last
 */
struct careful_ipc_probe {
	uint64_t sent_ns;
	uint64_t arrived_ns;
	uint64_t back_ns;
};

enum {
	CAREFUL_SIGNATURE_MARKS = 64,
	CAREFUL_SIGNATURE_PEERS = 16,
	CAREFUL_SIGNATURE_MS = 100, /* after which a question begins no further burst */
	CAREFUL_BURST_MS = 3000, /* a burst that lasts longer fails with -ETIMEDOUT */
	CAREFUL_SIGNATURE_GO_ON = 1, /* flag: replies may come during the next question */
};

/*
 * Bursts of requests with computation between them (P4).
 *
 * @kind:        CAREFUL_IPC_REQUEST: to the probe handler; _GET, _STORE: of `region`
 * @bytes:       payload of each
 * @bursts:      at most
 * @capacity:    requests that may be under way
 * @compute_ns:  D, after each request
 * @flags:       CAREFUL_SIGNATURE_*
 * @peers:       to whom, in turn
 * @marks:       issued messages at which a burst is timed, ascending; the last is M
 */
struct careful_signature {
	uint32_t kind;
	uint32_t bytes;
	uint32_t bursts;
	uint32_t capacity;
	uint64_t compute_ns;
	uint32_t flags;
	uint32_t peers_count;
	uint32_t marks_count;
	uint32_t pad;
	uint32_t peers[CAREFUL_SIGNATURE_PEERS];
	uint32_t marks[CAREFUL_SIGNATURE_MARKS];
};

/* Since the burst began; computed_ns: how much of elapsed_ns was computation. */
struct careful_mark {
	uint64_t elapsed_ns;
	uint64_t computed_ns;
};

/*
 * One burst; its marks follow.
 *
 * @began_ns:    CLOCK_MONOTONIC
 * @done_ns:     until the last reply, from then on
 * @arrived_ns:  the peer's monotonic clock when it took the last message; 0: unknown
 */
struct careful_burst {
	uint64_t began_ns;
	uint64_t done_ns;
	uint64_t arrived_ns;
};

/*
 * How long operations took that local clients asked for, from the question until the answer.
 *
 * @failed:   that ended with a status; not in the buckets, nor in sum_ns
 */
struct careful_latency {
	uint64_t failed;
	uint64_t sum_ns;
	uint64_t buckets[CAREFUL_IPC_BUCKETS];
};

/* What local clients asked for since the start. */
struct careful_ipc_use {
	struct careful_latency request;
	struct careful_latency get;
	struct careful_latency store;
	uint32_t exports_count;
	uint32_t pad;
};

/*
 * What peers did with an export since the start; in the order of the command line.
 *
 * @requests: that were answered, ends of open files among them
 * @failed:   of them, with an error
 * @denied:   of them, as a path leads out, or the peer may not do that; batches of which an item is
 * @read_bytes, @written_bytes: of the contents of files
 */
struct careful_export_use {
	uint64_t requests;
	uint64_t failed;
	uint64_t denied;
	uint64_t read_bytes;
	uint64_t written_bytes;
};

/*
 * @version:     CAREFUL_IPC_VERSION; in every version the first four bytes. A client of another
 *               one gets a header with id 0 and -EPROTO
 * @op:          enum careful_ipc_op, the same in question and answer
 * @id:          chosen by the client, not 0; returned in the answer. 0: why the connection
 *               is not served, before it is closed
 * @status:      answer: 0 or -errno. Of id 0: -EUSERS: args[0] clients are served already
 * @peer:        index of a peer, from CONNECT
 * @file:        index of a registered file
 * @bytes:       GET, STORE: asked for; in their answers, moved. CONNECT: time limit, ms
 * @handler, @region, @region_off, @flags, @args, @digest: as in careful.h
 * @payload_bytes: of what follows this header
 */
struct careful_ipc {
	uint32_t version;
	uint32_t op;
	uint64_t id;
	int32_t status;
	uint32_t peer;
	uint32_t file;
	uint32_t handler;
	uint32_t region;
	uint32_t flags;
	uint64_t region_off;
	uint64_t file_off;
	uint64_t bytes;
	uint64_t digest;
	uint32_t args[4];
	uint32_t payload_bytes;
	uint32_t pad;
};

/* Of GETS: as region_off, file_off and bytes of a GET. */
struct careful_ipc_range {
	uint64_t region_off;
	uint64_t file_off;
	uint32_t bytes;
	uint32_t pad;
};

enum careful_ipc_handle {
	CAREFUL_IPC_OF_REQUESTS = 1,
	CAREFUL_IPC_OF_STORES = 2,
};

struct careful_ipc_peer {
	struct careful_peer_info info;
	struct careful_peer_whereabouts where;
	int32_t payload_bytes; /* or -errno */
	uint32_t pad;
};

/*
 * A program that is attached.
 *
 * @name:        as it calls itself
 * @pid:         of who connected
 * @stalled:     1: it has not looked for so long that requests for it are refused
 * @operations:  that it began, without their end
 * @unread:      what it was told and has not looked at
 * @unanswered:  requests of peers that it has not answered
 * @handlers:    numbers that are its own
 * @regions:     of its memory
 * @asked:       requests, stores, gets and answers that it gave us, since it attached
 * @told:        ends of operations, requests of peers and news that it was given
 */
struct careful_program_info {
	char name[32];
	uint32_t pid;
	uint32_t stalled;
	uint32_t operations;
	uint32_t unread;
	uint32_t unanswered;
	uint32_t handlers;
	uint32_t regions;
	uint32_t pad;
	uint64_t memory_bytes;
	uint64_t asked;
	uint64_t told;
};

/*
 * The area that a program shares with carefuld. It begins with a struct careful_area; then
 * CAREFUL_RING_ASKS entries of what the program asks, CAREFUL_RING_TOLD of what it is told, the
 * payloads of both (entry i's is the i-th of its ring), CAREFUL_RING_BUILT payloads that the
 * program builds before it asks, and its memory, where regions lie and stores and gets move bytes.
 * Each number is written by one end alone. carefuld believes nothing that it reads here: it takes
 * each entry once, and looks at its own copy.
 */
enum {
	CAREFUL_RING_ASKS = 256, /* a power of two, as the next one */
	CAREFUL_RING_TOLD = 1024,
	CAREFUL_RING_BUILT = 64,
	CAREFUL_RING_PAYLOAD_BYTES = 4096,
	CAREFUL_RING_OPERATIONS = 128, /* a program's share of CAREFUL_OPERATIONS_MAX */
	CAREFUL_RING_ANSWERS = 512, /* requests of peers that it may leave unanswered */
	CAREFUL_AREA_REGIONS = 128,
	CAREFUL_AREA_BYTES_MAX = 1 << 30, /* of memory */
};

enum careful_ring_kind {
	CAREFUL_RING_REQUEST = 1, /* id 0: no answer is wanted */
	CAREFUL_RING_GET = 2,
	CAREFUL_RING_STORE = 3,
	CAREFUL_RING_REPLY = 4, /* id: of the ASKED */
	CAREFUL_RING_DONE = 5, /* id: of the REQUEST, GET or STORE */
	CAREFUL_RING_ASKED = 6, /* a request of a peer; id 0: no answer is wanted */
	CAREFUL_RING_STORED = 7, /* a store whose handler is the program's */
	CAREFUL_RING_PEER = 8, /* status: enum careful_peer_state */
	/* args: as struct careful_ping_ask, stage, ttl, timeout_ms, bytes. DONE has a struct
	 * careful_ping_result as its payload, if it began. */
	CAREFUL_RING_PING = 9,
};

/*
 * OF_FILE, of GET and STORE: not of the memory, but of the file (FILE_ADD) that status names. Of
 * STORED: the region is of a file, and its bytes are not in the memory.
 * OF_BUILT, of REQUEST: the payload is the memory_off-th of those that the program built. It is the
 * program's again when the entry was taken.
 */
enum {
	CAREFUL_RING_OF_FILE = 2,
	CAREFUL_RING_OF_BUILT = 4,
};

/* @memory_off: GET and STORE: where in the memory or the file; the rest as in struct careful_ipc. */
struct careful_ring_entry {
	uint32_t kind;
	int32_t status;
	uint64_t id;
	uint32_t peer;
	uint32_t handler;
	uint32_t region;
	uint32_t bytes;
	uint64_t region_off;
	uint64_t memory_off;
	uint64_t digest;
	uint32_t args[4];
	uint32_t flags;
	uint32_t pad[13];
};

/* A line of the cache each. */
struct careful_ring_number {
	uint32_t value;
	uint32_t pad[15];
};

/*
 * @asks_put:     entries that the program put in, modulo 2^32; @asks_taken: by carefuld
 * @told_put:     entries that carefuld put in; @told_taken: by the program
 * @asks_asleep:  1: carefuld waits for a BELL; who sends it sets this to 0
 * @told_asleep:  1: the program does
 */
struct careful_area {
	struct careful_ring_number asks_put, asks_taken, told_put, told_taken;
	struct careful_ring_number asks_asleep, told_asleep;
	struct careful_ring_number pad[2];
};

#ifndef CAREFUL_CDEF
/* Where in the area the payloads begin, those that are built, and the program's memory. */
static inline uint64_t careful_area_payloads(void)
{
	return (sizeof(struct careful_area) +
		(CAREFUL_RING_ASKS + CAREFUL_RING_TOLD) * sizeof(struct careful_ring_entry) +
		4095) /
	       4096 * 4096;
}

static inline uint64_t careful_area_built(void)
{
	return careful_area_payloads() +
	       (uint64_t)(CAREFUL_RING_ASKS + CAREFUL_RING_TOLD) * CAREFUL_RING_PAYLOAD_BYTES;
}

static inline uint64_t careful_area_before(void)
{
	return careful_area_built() + (uint64_t)CAREFUL_RING_BUILT * CAREFUL_RING_PAYLOAD_BYTES;
}
#endif

#endif /* CAREFUL_IPC_H */
