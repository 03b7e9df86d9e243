/* SPDX-License-Identifier: BSD-2-Clause */
/* carefuld's local socket: a SOCK_SEQPACKET Unix socket, /run/careful/INSTANCE/sock. Each packet is
 * one struct careful_ipc and at most CAREFUL_IPC_PAYLOAD_BYTES of payload. A client has up to
 * CAREFUL_IPC_INFLIGHT questions under way; answers come in any order and carry the question's id.
 * Host byte order. The socket offers what careful.h offers, through one queue that all clients
 * share. Data moves between the client's files (passed as descriptors) and UMEM, never through the
 * socket. */
#ifndef CAREFUL_IPC_H
#define CAREFUL_IPC_H

#ifndef CAREFUL_CDEF
#include <careful/careful.h>
#include <careful/ping.h>
#endif

enum {
	CAREFUL_IPC_VERSION = 16, /* rises with each change of the format */
	CAREFUL_IPC_PAYLOAD_BYTES = 75776, /* at least a careful_peer_info for each peer */
	CAREFUL_IPC_INFLIGHT = 256,
	CAREFUL_IPC_FILES = 64, /* files that a client can have registered */
	CAREFUL_IPC_RANGES = 256, /* most ranges of one GETS */
	CAREFUL_IPC_PEER_NONE = 0xffffffff,
	CAREFUL_IPC_TIMED = 3, /* kinds of operations that are timed */
	CAREFUL_IPC_BUCKETS = 25, /* of each kind; bucket i counts times below BUCKET_NS << i */
	CAREFUL_IPC_BUCKET_NS = 1024, /* the last bucket counts all longer times, too */
};

enum careful_ipc_op {
	CAREFUL_IPC_INFO = 1, /* answer's payload: struct careful_info */
	CAREFUL_IPC_PEERS = 2, /* answer's payload: struct careful_peer_info per peer in use */
	/* payload: a struct sockaddr_storage; bytes: time limit, ms. Answered with peer when the
	 * session is up, or with the status that says why not. args[0]: queues for
	 * careful_peer_among(); -EREMCHG: args[0] is the queue, args[1] the port */
	CAREFUL_IPC_CONNECT = 3,
	CAREFUL_IPC_FILE_ADD = 4, /* a descriptor (SCM_RIGHTS); answered with file */
	CAREFUL_IPC_FILE_REMOVE = 5, /* file; waits for the operations that use it */
	CAREFUL_IPC_REQUEST = 6, /* peer, handler, args, payload; answered with args, payload */
	CAREFUL_IPC_GET = 7, /* peer, region, region_off, bytes, file, file_off, flags */
	CAREFUL_IPC_STORE = 8, /* as GET; handler CAREFUL_HANDLERS */
	/* The daemon sends and times probes to peer: args[0] frames with `bytes` of payload each,
	 * flags CAREFUL_IPC_TRAIN or 0. Answered with a struct careful_ipc_probe for each, after
	 * the last answer. A client has one MEASURE at a time. -ETIMEDOUT: the peer answered
	 * nothing for seconds. -EMSGSIZE: too large, or more frames in a train than an answer has
	 * stamps. */
	CAREFUL_IPC_MEASURE = 9,
	/* peer; args: stage, ttl, time limit in ms; bytes: length of the IP packet. One at a time
	 * to a peer. Answer's payload, whatever its status: struct careful_ping_result. */
	CAREFUL_IPC_PING = 10,
	/* peer: careful_peer_measure(). Answered when the measurement begins; PEERS has the
	 * result. */
	CAREFUL_IPC_BURST = 11,
	/* payload: a struct careful_signature; region. Answered with bursts, each a struct
	 * careful_burst and its marks. Meanwhile carefuld only moves frames. */
	CAREFUL_IPC_SIGNATURE = 16,
	/* Answer's payload: struct careful_ipc_use, then careful_export_use exports_count times,
	 * then careful_lend_use lends_count times. */
	CAREFUL_IPC_USE = 17,
	/* payload: the program's name; bytes: of memory wanted. Answered with bytes of the memory
	 * and a descriptor of the area (struct careful_area). From then on the program lives as
	 * long as the connection, and BELL packets wake either end. -EALREADY: it is attached
	 * already. */
	CAREFUL_IPC_ATTACH = 18,
	CAREFUL_IPC_PEER_BEGIN = 19, /* as CONNECT, answered at once: careful_peer() */
	CAREFUL_IPC_PEER_LEAVE = 20, /* peer: drops it if no other client uses it */
	CAREFUL_IPC_PEER_INFO = 21, /* peer; payload: struct careful_ipc_peer */
	CAREFUL_IPC_HANDLE = 22, /* handler; flags CAREFUL_IPC_OF_*; bytes 0: removes it */
	/* region_off: offset in the memory; bytes, flags, peer -> region. With a descriptor: offset
	 * file_off in its file. */
	CAREFUL_IPC_REGION_ADD = 23,
	CAREFUL_IPC_REGION_REMOVE = 24, /* region */
	CAREFUL_IPC_PROGRAMS = 25, /* answer's payload: struct careful_program_info of each */
	CAREFUL_IPC_BELL = 26, /* look into the rings; if flags is not 0, answer with a BELL */
	/* peer, region, file, flags; payload: up to CAREFUL_IPC_RANGES of careful_ipc_range, each a
	 * GET. One answer: bytes of all, and the status of the first that failed (-ENODATA: too few
	 * bytes); then some ranges are in the file and others are not. */
	CAREFUL_IPC_GETS = 27,
	/* payload: words of carefuld's command line, each with a NUL, from root alone. The exports
	 * and waits among them take effect now; other words change nothing. Answer's payload:
	 * empty, or the fault as text; then nothing has changed. */
	CAREFUL_IPC_RELOAD = 28,
	/* The program is about to end: nothing in its ring begins any longer, and nothing is
	 * written into its regions or the destinations of its gets. -EBUSY: a write is still under
	 * way. */
	CAREFUL_IPC_QUIET = 29,
};

enum careful_ipc_measure {
	CAREFUL_IPC_TRAIN = 1, /* 1: back to back, each with its own kick; 0: one at a time */
};

/* One probe; times of monotonic clocks, ns.
 *
 * @sent_ns:     ours, before the hand-over to the engine
 * @arrived_ns:  the peer's, when its handler ran
 * @back_ns:     ours, when the answer's callback ran; in a train 0, except for the last */
struct careful_ipc_probe {
	uint64_t sent_ns;
	uint64_t arrived_ns;
	uint64_t back_ns;
};

enum {
	CAREFUL_SIGNATURE_MARKS = 64,
	CAREFUL_SIGNATURE_PEERS = 16,
	CAREFUL_SIGNATURE_MS = 100, /* a question begins no burst after this time */
	CAREFUL_BURST_MS = 3000, /* a burst that lasts longer fails with -ETIMEDOUT */
	CAREFUL_SIGNATURE_GO_ON = 1, /* flag: replies may come during the next question */
};

/* Bursts of requests with computation between them (P4).
 *
 * @kind:        CAREFUL_IPC_REQUEST: to the probe handler; _GET, _STORE: of `region`
 * @bytes:       payload of each
 * @bursts:      most bursts
 * @capacity:    requests that may be under way
 * @compute_ns:  D, after each request
 * @flags:       CAREFUL_SIGNATURE_*
 * @peers:       destinations, in turn
 * @marks:       issued messages at which a burst is timed, ascending; the last is M */
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

/* Times since the burst began; computed_ns: the part of elapsed_ns that was computation. */
struct careful_mark {
	uint64_t elapsed_ns;
	uint64_t computed_ns;
};

/* One burst; its marks follow.
 *
 * @began_ns:    CLOCK_MONOTONIC
 * @done_ns:     from began_ns until the last reply
 * @arrived_ns:  the peer's monotonic clock when it received the last message; 0: unknown */
struct careful_burst {
	uint64_t began_ns;
	uint64_t done_ns;
	uint64_t arrived_ns;
};

/* Times of the operations of local clients, from the question until the answer.
 *
 * @failed:   operations that ended with an error; neither in the buckets nor in sum_ns */
struct careful_latency {
	uint64_t failed;
	uint64_t sum_ns;
	uint64_t buckets[CAREFUL_IPC_BUCKETS];
};

/* Operations of local clients since the start. */
struct careful_ipc_use {
	struct careful_latency request;
	struct careful_latency get;
	struct careful_latency store;
	uint32_t exports_count;
	uint32_t lends_count;
};

/* Operations of peers on an export since the start; in the order of the command line.
 *
 * @requests: answered requests, including the ends of open files
 * @failed:   requests that got an error
 * @denied:   those refused because a path leads out or the peer lacks permission; also batches with
 *            such an item
 * @read_bytes, @written_bytes: of the contents of files */
struct careful_export_use {
	uint64_t requests;
	uint64_t failed;
	uint64_t denied;
	uint64_t read_bytes;
	uint64_t written_bytes;
};

/* Memory that is lent. The first entry is the sum; each other one is an owner's.
 *
 * @bytes:   what may be lent, in all or to this owner
 * @used:    what is lent
 * @pieces:  their number
 * @by, @id: the owner, as in struct careful_memory_host; by is CAREFUL_MEMORY_ANY for the sum
 * @gone_s:  seconds since the owner's last session ended, plus 1; 0: it has a session */
struct careful_lend_use {
	uint64_t bytes;
	uint64_t used;
	uint32_t pieces;
	uint32_t by;
	uint32_t gone_s;
	uint32_t pad;
	uint8_t id[32];
};

/* @version:     CAREFUL_IPC_VERSION; the first four bytes in every version. A client of another
 *               version gets a header with id 0 and -EPROTO
 * @op:          enum careful_ipc_op, the same in question and answer
 * @id:          chosen by the client, not 0; returned in the answer. 0: the reason why the
 *               connection is about to be closed
 * @status:      answer: 0 or -errno. With id 0: -EUSERS: there are args[0] clients already
 * @peer:        index of a peer, from CONNECT
 * @file:        index of a registered file
 * @bytes:       GET, STORE: asked for; in their answers, moved. CONNECT: time limit, ms
 * @handler, @region, @region_off, @flags, @args, @digest: as in careful.h
 * @payload_bytes: of what follows this header */
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

/* A range of GETS: as region_off, file_off and bytes of a GET. */
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

/* An attached program.
 *
 * @name:        its own name for itself
 * @pid:         process that connected
 * @stalled:     1: it has not polled for so long that its requests are refused
 * @operations:  its operations that have not ended
 * @unread:      entries that it has not read
 * @unanswered:  requests of peers that it has not answered
 * @handlers:    its handlers
 * @regions:     its regions
 * @asked:       requests, stores, gets and answers from it, since it attached
 * @told:        ends of operations, requests of peers and news to it */
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

/* The area that a program shares with carefuld: struct careful_area; CAREFUL_RING_ASKS entries from
 * the program; CAREFUL_RING_NOTES entries to the program; the payloads of both (entry i's is the
 * i-th of its ring); CAREFUL_RING_BUILT payloads that the program builds in advance; and the
 * program's memory, for regions, stores and gets. Each number has one writer. carefuld trusts
 * nothing in the area: it reads each entry once and works on its own copy. */
enum {
	CAREFUL_RING_ASKS = 256, /* a power of two, like CAREFUL_RING_NOTES */
	CAREFUL_RING_NOTES = 1024,
	CAREFUL_RING_BUILT = 64,
	CAREFUL_RING_PAYLOAD_BYTES = 4096,
	CAREFUL_RING_OPERATIONS = 128, /* a program's share of CAREFUL_OPERATIONS_MAX */
	CAREFUL_RING_ANSWERS = 512, /* requests of peers that a program may leave unanswered */
	CAREFUL_AREA_REGIONS = 128,
	CAREFUL_AREA_BYTES_MAX = 1 << 30, /* most memory */
};

enum careful_ring_kind {
	CAREFUL_RING_REQUEST = 1, /* id 0: no answer wanted */
	CAREFUL_RING_GET = 2,
	CAREFUL_RING_STORE = 3,
	CAREFUL_RING_REPLY = 4, /* id: of the ASKED */
	CAREFUL_RING_DONE = 5, /* id: of the REQUEST, GET or STORE */
	CAREFUL_RING_ASKED = 6, /* a request of a peer; id 0: no answer wanted */
	CAREFUL_RING_STORED = 7, /* a store that names the program's handler */
	CAREFUL_RING_PEER = 8, /* status: enum careful_peer_state */
	/* args: stage, ttl, timeout_ms, bytes, as in struct careful_ping_ask. If the ping began,
	 * DONE has a struct careful_ping_result as its payload. */
	CAREFUL_RING_PING = 9,
};

/* OF_FILE, in GET and STORE: the bytes are in the file (FILE_ADD) that status names, not in the
 * memory. In STORED: the region is a file, and its bytes are not in the memory. OF_BUILT, in
 * REQUEST: the payload is number memory_off of those that the program built. It belongs to the
 * program again when carefuld has taken the entry. */
enum {
	CAREFUL_RING_OF_FILE = 2,
	CAREFUL_RING_OF_BUILT = 4,
};

/* @memory_off: GET, STORE: offset in the memory or the file; other fields as in careful_ipc. */
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

/* A number that has a cache line to itself. */
struct careful_ring_number {
	uint32_t value;
	uint32_t pad[15];
};

/* @asks_put:     entries that the program has put, modulo 2^32; @asks_taken: carefuld has taken
 * @notes_put:     entries that carefuld has put; @notes_taken: the program has taken
 * @asks_asleep:  1: carefuld waits for a BELL; the sender of the BELL sets it to 0
 * @notes_asleep:  1: the program waits for a BELL */
struct careful_area {
	struct careful_ring_number asks_put, asks_taken, notes_put, notes_taken;
	struct careful_ring_number asks_asleep, notes_asleep;
	struct careful_ring_number pad[2];
};

#ifndef CAREFUL_CDEF
/* Offsets in the area of the payloads, the built payloads, and the program's memory. */
static inline uint64_t careful_area_payloads(void)
{
	return (sizeof(struct careful_area) +
		(CAREFUL_RING_ASKS + CAREFUL_RING_NOTES) * sizeof(struct careful_ring_entry) +
		4095) /
	       4096 * 4096;
}

static inline uint64_t careful_area_built(void)
{
	return careful_area_payloads() +
	       (uint64_t)(CAREFUL_RING_ASKS + CAREFUL_RING_NOTES) * CAREFUL_RING_PAYLOAD_BYTES;
}

static inline uint64_t careful_area_before(void)
{
	return careful_area_built() + (uint64_t)CAREFUL_RING_BUILT * CAREFUL_RING_PAYLOAD_BYTES;
}
#endif

#endif /* CAREFUL_IPC_H */
