/* SPDX-License-Identifier: BSD-2-Clause */
/* libcareful's public interface: an instance owns one NIC queue and exchanges active messages (P4:
 * request, reply, store, get) with its peers.
 *
 * An instance belongs to one thread. Frames move and callbacks run only inside careful_poll() and
 * careful_wait(); a peer watcher also runs inside careful_peer() and careful_peer_close(). A
 * callback may call everything except careful_poll(), careful_wait() and careful_close(), which
 * return -EDEADLK there. Functions return 0 (or a count) or -errno. */
#ifndef CAREFUL_H
#define CAREFUL_H

#ifndef CAREFUL_CDEF
#include <stdint.h>
#include <sys/socket.h>
#ifdef __cplusplus
extern "C" {
#endif
#endif

struct careful;

enum {
	CAREFUL_ERROR_BYTES = 256,
	CAREFUL_HANDLERS = 256, /* indices 0 to 127 belong to the application */
	CAREFUL_HANDLERS_APP = 128,
	CAREFUL_PATH_BYTES = 108,
	CAREFUL_MTU_MIN = 210, /* for IPv4; IPv6 itself needs 1280 */
};

/* The limits of an instance, for all peers together. A call beyond a limit returns -EAGAIN until
 * earlier ones have ended. A quarter of the messages is divided into a reserved part per peer,
 * which no other peer can use; the rest is shared.
 *
 * @CAREFUL_OPERATIONS_MAX:  requests, stores and gets that have not ended
 * @CAREFUL_SMALL_MAX:       messages that wait for credits; requests and gets leave a quarter of
 *                           the shared part, and half of the peer's own, to replies
 * @CAREFUL_BULK_MAX:        stores, and the data of gets; stores leave an eighth of the shared
 *                           part, and half of the peer's own, to the data of gets
 * @CAREFUL_REGIONS_MAX:     regions */
enum {
	CAREFUL_OPERATIONS_MAX = 4096,
	CAREFUL_SMALL_MAX = 1024,
	CAREFUL_BULK_MAX = 256,
	CAREFUL_REGIONS_MAX = 4096,
};

/* One line for a person; a function that fails at set-up fills it. `option` names the field of
 * struct careful_options that the text is about, or is NULL. The text does not repeat the name:
 * write the name first, as your users spell it. */
struct careful_error {
	char text[CAREFUL_ERROR_BYTES];
	const char *option;
};

enum careful_xdp_mode {
	/* Native if the driver supports it, else generic. carefuld measures which is faster. */
	CAREFUL_XDP_AUTO = 0,
	CAREFUL_XDP_NATIVE = 1,
	CAREFUL_XDP_GENERIC = 2,
};

/* How the XDP mode in effect was chosen. */
enum careful_xdp_by {
	CAREFUL_XDP_BY_OPTION = 0, /* the caller's option */
	CAREFUL_XDP_BY_DRIVER = 1, /* CAREFUL_XDP_AUTO: the mode that the driver supports */
	CAREFUL_XDP_BY_PENDING = 2, /* as BY_DRIVER, until carefuld measures with the first peer */
	CAREFUL_XDP_BY_MEASURED = 3,
	CAREFUL_XDP_BY_REMEMBERED = 4, /* measured by an earlier carefuld on this machine */
	CAREFUL_XDP_BY_LEFT = 5, /* measuring failed, and so did the return to the driver's mode */
};

enum careful_wait_mode {
	CAREFUL_WAIT_ADAPTIVE = 0, /* spin for spin_us, then block */
	CAREFUL_WAIT_SPIN = 1,
	CAREFUL_WAIT_BLOCK = 2,
};

/* The cost of a lost frame. Both ends of a session must use the same setting. */
enum careful_repair {
	CAREFUL_REPAIR_ON = 0, /* the frame is sent again */
	CAREFUL_REPAIR_OFF = 1, /* the epoch ends: P2's protocol to the letter */
};

/* Which threads copy file data into the page cache, for pieces of at least 64 KiB. */
enum careful_file_writes {
	CAREFUL_FILE_WRITES_ENGINE = 0,
	CAREFUL_FILE_WRITES_WORKERS = 1, /* the kernel's workers, on other CPUs */
};

/* How to open an instance. Zero selects the default, given in parentheses.
 *
 * @ifname:            interface
 * @instance:          name of the pin directory (ifname)
 * @name:              our name in the peers' status (instance, or the hostname if that is ifname)
 * @peers:             P: number of windows that R is divided into (8)
 * @queue:             RX and TX queue
 * @port:              UDP port (CAREFUL_PORT_DEFAULT)
 * @rx_buffers:        receive buffers, a power of two (512)
 * @tx_buffers:        send buffers (512)
 * @copyout_buffers:   size of the copy-out pool, in buffers (rx_buffers)
 * @xdp_mode:          enum careful_xdp_mode
 * @require_zerocopy:  1: fail rather than copy
 * @wait_mode:         enum careful_wait_mode
 * @spin_us:           adaptive: how long to spin before blocking (50)
 * @sync_ms:           silence with credits or replies outstanding before a sync (200)
 * @stall_ms:          silence before the peer counts as gone (30000)
 * @protocol:          enum careful_protocol of wire.h: 0 careful; 1 traditional (P2 section 5.2),
 *                     which keeps frames until they are acknowledged and sends lost ones again
 * @measure_burst:     1: measures the burst that the path from a peer can take, before the
 *                     session's first data and after a loss, and limits the peer's window to its
 *                     share of that burst (0)
 * @reserve:           receive buffers outside all windows, granted to peers that send a message
 *                     larger than their window (0)
 * @keys:              directory of keys (`carefulctl key`). NULL: /etc/careful/keys if this host
 *                     has a key there. With "none", or without a key, every peer gets a session
 * @seal:              how frames are sealed, by name (enum careful_seal of wire.h): "auth" or
 *                     "encrypt" for all peers, "encrypt@ADDRESS" for one; commas separate several.
 *                     Needs keys; both ends must use the same setting. NULL: "off"
 * @queues:            number of queues, from queue 0, that are used together, an instance each (1).
 *                     Open all instances with the same options except `queue`: queue 0 first.
 *                     Close queue 0 last. `port` is the port of queue 0; the other queues use the
 *                     ports that follow. `peers` counts the peers of all queues. The maps of the
 *                     other queues are pinned under instance+queue
 * @unpacked:          1: no two messages share a frame (0)
 * @file_writes:       enum careful_file_writes
 * @repair:            enum careful_repair */
struct careful_options {
	const char *ifname;
	const char *instance;
	const char *name;
	uint32_t peers;
	uint32_t queue;
	uint32_t port;
	uint32_t rx_buffers;
	uint32_t tx_buffers;
	uint32_t copyout_buffers;
	uint32_t xdp_mode;
	uint32_t require_zerocopy;
	uint32_t wait_mode;
	uint32_t spin_us;
	uint32_t sync_ms;
	uint32_t stall_ms;
	uint32_t protocol;
	uint32_t measure_burst;
	uint32_t reserve;
	const char *keys;
	const char *seal;
	uint32_t queues;
	uint32_t unpacked;
	uint32_t file_writes;
	uint32_t repair;
};

/* The resources that can bound R (DESIGN: Windows). */
enum careful_bound {
	CAREFUL_BOUND_UMEM = 0,
	CAREFUL_BOUND_FILL_RING,
	CAREFUL_BOUND_RX_RING,
	CAREFUL_BOUND_DEVICE_RING,
	CAREFUL_BOUND_BACKLOG, /* netdev_max_backlog, generic mode */
	CAREFUL_BOUNDS,
};

/* The device settings in effect. */
struct careful_device_info {
	char ifname[16];
	char driver[32];
	uint32_t ifindex;
	uint32_t queue;
	uint32_t mtu;
	uint32_t xdp_mode; /* CAREFUL_XDP_NATIVE or _GENERIC */
	uint32_t xdp_by; /* enum careful_xdp_by */
	uint32_t zerocopy; /* 1: the NIC writes into UMEM itself */
	uint32_t multibuffer; /* 1: a frame may fill several buffers */
	uint32_t need_wakeup;
	uint32_t hugepages; /* 1: UMEM lies in hugepages */
	uint32_t buffer_bytes;
	uint32_t frame_bytes;
	uint32_t bounds[CAREFUL_BOUNDS]; /* capacity of each resource, buffers; 0: no bound here */
	uint32_t receive_buffers; /* R: the smallest bound */
	uint32_t receive_bound; /* enum careful_bound of that smallest one */
	uint64_t umem_bytes;
	char native_refused[96]; /* why the driver refused native XDP; "" if it did not */
};

/* Frames that the device lost, as far as it reports them. */
struct careful_device_statistics {
	uint64_t rx_dropped;
	uint64_t rx_ring_full;
	uint64_t rx_fill_ring_empty; /* always 0 with zero-copy, even if frames were lost */
	/* Refused by XDP: from strangers, replayed, excess, or on another queue; XDP counts each
	 * kind. */
	uint64_t rx_refused;
	uint64_t rx_invalid_descs;
	uint64_t tx_invalid_descs;
	uint64_t kicks;
	uint64_t kicks_again; /* EAGAIN: the device was busy; no frame was lost */
	uint64_t kicks_failed; /* other errors: frames may be lost */
	uint64_t program_detached; /* 1: XDP is no longer on the interface; no frame arrives */
};

/* The engine's counters; each frame that is not delivered is counted under one of them. */
enum careful_counter {
	CAREFUL_C_RX_FRAMES = 0,
	CAREFUL_C_RX_BYTES,
	CAREFUL_C_TX_FRAMES,
	CAREFUL_C_TX_BYTES,
	CAREFUL_C_RX_UPDATES,
	CAREFUL_C_TX_UPDATES,
	CAREFUL_C_TX_GROWN, /* fragments enlarged beyond their plan because of backlog */
	CAREFUL_C_PULSES, /* kicks that the minpulse rule allowed */
	CAREFUL_C_COPIED_OUT, /* kept frames moved to ordinary memory */
	CAREFUL_C_CREDITS_WITHHELD, /* times that the copy-out pool was full */
	CAREFUL_C_DROP_MALFORMED, /* frame that does not parse */
	CAREFUL_C_DROP_CHECK, /* wrong header check */
	CAREFUL_C_DROP_COOKIE, /* no session with this cookie */
	CAREFUL_C_DROP_SEQ, /* frame already received, or beyond the window */
	CAREFUL_C_DROP_CRC, /* payload damaged */
	CAREFUL_C_DROP_MESSAGE, /* fragment that belongs to no message */
	CAREFUL_C_LOST_FRAMES, /* lost frames that ended an epoch: no copy arrived in time */
	CAREFUL_C_BAD_CREDITS, /* impossible credits */
	CAREFUL_C_EPOCHS_BROKEN, /* sessions that had to start again */
	CAREFUL_C_SYNCS,
	CAREFUL_C_STALLS, /* times that a peer was silent for sync_ms with something outstanding */
	CAREFUL_C_CTRL_MALFORMED,
	CAREFUL_C_CTRL_VERSION,
	CAREFUL_C_CTRL_UNKNOWN, /* from an unknown peer, or answers to no question */
	CAREFUL_C_CTRL_REFUSED,
	CAREFUL_C_CTRL_CHALLENGED, /* HELLOs answered with a challenge, without keeping state */
	CAREFUL_C_DIGEST_BAD, /* bulk messages whose digest did not match */
	CAREFUL_C_TX_BUFFERS_HELD, /* send buffers whose frames have not left yet (a gauge) */
	CAREFUL_C_PINGS_ANSWERED,
	CAREFUL_C_PINGS_LATE, /* those that a later ping overtook: no peer waits for the answer */
	CAREFUL_C_SENT_AGAIN, /* frames sent again because the receiver asked */
	CAREFUL_C_ASKED_AGAIN, /* frames that we asked the sender to send again */
	CAREFUL_C_TIMED_OUT, /* those of ASKED_AGAIN after silence; traditional: such questions */
	CAREFUL_C_DROP_TWICE, /* frames that had arrived before */
	CAREFUL_C_DROP_SHARE, /* frames beyond the peer's share of buffers */
	CAREFUL_C_ACKS_SENT, /* explicit acknowledgements */
	CAREFUL_C_ACKS_RECEIVED,
	CAREFUL_C_CTRL_PROTOCOL, /* HELLOs refused: the peer uses the other protocol */
	CAREFUL_C_GRANTED, /* buffers granted beyond windows */
	/* epochs ended because a grant lay unused while other peers waited */
	CAREFUL_C_GRANTS_ENDED,
	CAREFUL_C_TX_BROADCASTS, /* those of TX_FRAMES that went to a whole group */
	CAREFUL_C_CTRL_KEY, /* HELLOs refused: no trusted key was proved */
	CAREFUL_C_CTRL_LIMITED, /* control messages not answered because of the rate limit */
	CAREFUL_C_PATHS_DENIED, /* peers' requests for paths outside their directory */
	/* control messages of a keyed session that were forged or replayed */
	CAREFUL_C_CTRL_FORGED,
	CAREFUL_C_DROP_SEAL, /* sealed frames that were forged or replayed */
	CAREFUL_C_FILE_OPS, /* file reads and writes */
	CAREFUL_C_FILE_CALLS, /* system calls for FILE_OPS */
	CAREFUL_C_FILE_REGISTERED, /* those of FILE_OPS with a registered file or buffer */
	CAREFUL_COUNTERS,
};

struct careful_info {
	struct careful_device_info device;
	struct careful_device_statistics statistics;
	uint64_t counters[CAREFUL_COUNTERS];
	uint32_t peers_max; /* P */
	uint32_t window; /* W, buffers */
	uint32_t update_threshold; /* T, buffers */
	uint32_t rx_buffers;
	uint32_t tx_buffers;
	uint32_t copyout_buffers;
	uint32_t copyout_used;
	uint32_t wait_mode;
	uint32_t spin_us;
	uint32_t port;
	uint32_t protocol; /* enum careful_protocol */
	uint32_t reserve_buffers;
	uint32_t reserve_free;
	uint32_t keyed; /* 1: a session needs a key */
	/* errno of io_uring; threads read and write files instead; 0: io_uring works */
	uint32_t io_uring_denied;
	uint32_t repair; /* enum careful_repair */
};

enum careful_peer_state {
	CAREFUL_PEER_NONE = 0,
	CAREFUL_PEER_CONNECTING, /* no session yet */
	CAREFUL_PEER_UP,
	CAREFUL_PEER_STALLED, /* up, but silent while something is outstanding */
	CAREFUL_PEER_RENEWING, /* both ends agree on a new epoch, mostly after a loss */
	CAREFUL_PEER_FAILED, /* given up; last_errno has the reason */
};

/* Result of measuring the burst that the path from a peer can take. */
enum careful_burst_verdict {
	CAREFUL_BURST_UNKNOWN = 0, /* not measured, or the peer does not answer */
	CAREFUL_BURST_WHOLE, /* burst_frames arrived complete; no larger burst was tried */
	CAREFUL_BURST_SHORT, /* a queue on the path holds burst_frames and no more */
	CAREFUL_BURST_LOSSY, /* frames are lost, but not because a queue overflows */
};

enum {
	CAREFUL_PEER_IS_WITHHELD = 1, /* the copy-out pool is full, so the peer gets no credits */
	/* Data frames arrive, but no control message has for some seconds. */
	CAREFUL_PEER_IS_UNHEARD = 2,
	/* The path takes only smaller frames than both ends do. */
	CAREFUL_PEER_IS_NARROW = 4,
};

struct careful_peer_info {
	struct sockaddr_storage address;
	char name[32];
	uint8_t state; /* enum careful_peer_state */
	uint8_t flags; /* CAREFUL_PEER_IS_* */
	uint8_t burst; /* enum careful_burst_verdict */
	uint8_t bursts_measured; /* number of changes of burst, modulo 256 */
	uint16_t last_errno;
	uint8_t slot;
	uint8_t wire_minor; /* the lower CAREFUL_WIRE_MINOR of both ends */
	uint16_t burst_frames;
	uint8_t seal; /* enum careful_seal, in both directions */
	uint8_t cipher; /* enum careful_cipher; 0: not agreed yet */
	uint32_t window; /* credits that the peer has here, in our buffers */
	/* Credits that we may use, in the peer's buffers; traditional: room that the peer surely
	 * has. */
	uint32_t credits_free;
	uint32_t credits_window; /* total that credits_free is part of */
	uint32_t frame_bytes; /* largest frame towards the peer */
	/* Buffers consumed and not yet given back; traditional: frames not known to have
	 * arrived. */
	uint32_t buffers_owed;
	uint32_t buffers_kept; /* held by handlers, file writes and early frames */
	uint32_t messages_out; /* being sent, or waiting for credits */
	uint32_t operations; /* waiting for a reply */
	uint32_t epochs;
	uint64_t tx_frames, tx_bytes, rx_frames, rx_bytes;
	uint64_t lost_here; /* lost frames that ended an epoch, found here */
	uint64_t lost_there; /* the same, found by the peer; from its last handshake */
	uint64_t sent_again; /* our frames that the peer asked for and that we sent again */
	uint64_t asked_again; /* the peer's frames that we asked for */
	uint64_t late; /* of these, frames that were only late */
	uint32_t window_now; /* part of `window` that the peer has while the network is congested */
	uint32_t asked_silent; /* of asked_again, those for which no later frame had arrived */
	uint64_t away_ms; /* since it was up, or was first asked for; 0: up, or ended in order */
};

/* The peer's process, and the path to it. */
struct careful_peer_whereabouts {
	uint64_t incarnation; /* identifies the process; 0: never heard */
	uint8_t mac[6]; /* next hop; 0: unknown */
	uint8_t pad[2];
};

/* The source or destination of a payload: memory, or a file if base is NULL. */
struct careful_span {
	void *base;
	int fd;
	uint64_t offset; /* in the file */
};

/* A message, valid until its handler returns. */
struct careful_message {
	struct careful *instance;
	uint32_t peer;
	uint16_t handler;
	uint16_t keepable; /* 1: careful_keep() can hold on to the payload */
	uint32_t token; /* for careful_reply() */
	uint32_t args[4];
	const void *payload;
	uint32_t bytes;
	uint32_t region; /* store: the region that the payload is in */
	uint64_t region_off;
};

/* Identifies a request that is answered after its handler has returned. */
struct careful_reply_to {
	uint32_t peer;
	uint32_t token;
	uint64_t epoch;
};

/* The result of an operation. */
struct careful_result {
	int status; /* 0 or -errno; -ECONNRESET: the operation may have run */
	uint32_t args[4];
	const void *payload; /* of the reply; valid only in the callback */
	uint32_t bytes; /* of payload; get and store: bytes placed */
	uint64_t digest; /* get and store: XXH3 of the bytes moved */
};

typedef void careful_handler_fn(const struct careful_message *message, void *user);
typedef void careful_done_fn(const struct careful_result *result, void *user);

enum {
	CAREFUL_REGION_READ = 1, /* peers may get */
	CAREFUL_REGION_WRITE = 2, /* peers may store */
	CAREFUL_ANY_PEER = 0xffffffff,
	CAREFUL_NO_DIGEST = 1, /* flag of get and store: no digest over the payload */
};

/* A piece of memory or of a file that peers may get from or store to.
 *
 * @peer:     the only peer that may, or CAREFUL_ANY_PEER
 * @access:   CAREFUL_REGION_*
 * @bytes:    length */
struct careful_region {
	struct careful_span span;
	uint64_t bytes;
	uint32_t access;
	uint32_t peer;
};

/* The requirements of careful_open(), in the order in which it checks them. */
enum careful_check {
	CAREFUL_CHECK_KERNEL = 0, /* version */
	CAREFUL_CHECK_AF_XDP,
	CAREFUL_CHECK_PRIVILEGE,
	CAREFUL_CHECK_BPF, /* permission to load a program */
	CAREFUL_CHECK_FILES, /* limit of open files */
	CAREFUL_CHECK_MEMLOCK, /* limit of locked memory */
	CAREFUL_CHECK_BPFFS,
	CAREFUL_CHECK_RUN, /* /run/careful */
	CAREFUL_CHECK_OPENAT2,
	CAREFUL_CHECK_IO_URING, /* optional */
	CAREFUL_CHECK_OPTIONS,
	CAREFUL_CHECK_INTERFACE,
	CAREFUL_CHECK_MTU,
	CAREFUL_CHECK_QUEUE,
	CAREFUL_CHECK_STEERING, /* of the port to the queue, if there are several queues */
	CAREFUL_CHECK_PORT, /* UDP port is free */
	CAREFUL_CHECK_PROGRAM, /* no other program is on the interface */
	CAREFUL_CHECK_ZEROCOPY, /* if required */
	CAREFUL_CHECKS,
};

/* Checks one requirement of careful_open() and changes nothing. Returns what careful_open() would
 * return; *error then holds the message, or a line that describes what was found. Also returns 1
 * (careful works without it; the line explains this), -EXDEV (no rule steers the port) and -EAGAIN
 * (known only after opening). If an instance is already open, the last three checks find that
 * instance. */
int careful_check(const struct careful_options *options, uint32_t check,
		  struct careful_error *error);

/* Computes the window of each of `peers` peers: R / P, where `bound` (enum careful_bound) limits R.
 * A frame of this MTU fills `frame_buffers` buffers. Returns -ENOBUFS or -EMSGSIZE if the window is
 * too small; *error then says what to do. */
int careful_window(uint32_t receive_buffers, uint32_t bound, uint32_t peers, uint32_t mtu,
		   uint32_t frame_buffers, struct careful_error *error);

/* Opens the interface, loads and attaches XDP, and pins the maps. On failure *error holds a line
 * that says what to do.
 * The interface: -ENODEV (none of this name), -ENETDOWN, -EBUSY (another XDP program or instance,
 * or a bridge's port), -EMSGSIZE (its MTU), -EXDEV (no steering rule), -EOPNOTSUPP (no steering).
 * The rest: -EPERM, -EADDRINUSE (the port), -EINVAL (an option, or steering is off), -EMFILE,
 * -ENOBUFS (P too large for R, or the limit of locked memory too low). */
int careful_open(const struct careful_options *options, struct careful **instance,
		 struct careful_error *error);
/* How to attach to a carefuld. Zero selects the default, given in parentheses.
 *
 * @path:          carefuld's socket, /run/careful/INSTANCE/sock
 * @name:          the program's name in `carefulctl status` ("program")
 * @memory_bytes:  how much careful_memory() can give (16 MiB)
 * @wait_mode:     enum careful_wait_mode
 * @spin_us:       adaptive: how long to spin before blocking (50) */
struct careful_attach_options {
	const char *path;
	const char *name;
	uint64_t memory_bytes;
	uint32_t wait_mode;
	uint32_t spin_us;
};

/* Attaches to a running carefuld, whose interface and sessions the programs of this host share.
 * The instance supports the same calls as one from careful_open(), with these differences:
 *
 * - Peer numbers can be P or larger. The number of a peer that has gone is not reused soon.
 * - carefuld reads and writes regions in careful_memory() directly. It reaches other memory through
 *   the program's /proc/self/mem; if that file cannot be opened, the call returns -EOPNOTSUPP.
 * - A region for which careful_region_remove() returns -EBUSY is closed to peers at once.
 * - A get or store of other memory uses a copy in careful_memory(); if no copy fits, carefuld
 *   reaches the memory as it does a region's. For a file the program passes the descriptor to
 *   carefuld, which holds at most 64.
 * - Each handler number belongs to one program: careful_handle() returns -EBUSY if another has it.
 * - If the peer is gone or the payload too large, a request still succeeds and done gets the error;
 *   without done the error is lost. The same holds for -EINVAL, the error of a request to
 *   CAREFUL_HANDLERS_APP or above, apart from those of careful/memory.h.
 * - careful_peer_close() leaves the peer to the other programs. This program's operations with the
 *   peer end with -ECONNRESET; a get without a copy ends when nothing can reach its memory any
 *   longer. Nothing reaches the program's memory after careful_close().
 * - A kept message is a copy and holds no credit. A ping that cannot begin ends with the status
 *   that careful_ping() would have returned.
 * - careful_alloc() gives memory that carefuld copies into a send buffer. At most
 *   CAREFUL_RING_BUILT are lent at a time, of CAREFUL_RING_PAYLOAD_BYTES each.
 * - careful_keys_refresh() returns -EOPNOTSUPP, because the keys belong to carefuld. Events travel
 *   in requests, so all nodes of a group must do so (careful/event.h).
 * - After carefuld ends, operations end with -ECONNRESET, and then every call returns -ENOTCONN.
 *
 * At most CAREFUL_RING_OPERATIONS can be under way. If something waits for the program and the
 * program does not poll for 30 s, the program is stalled: carefuld answers requests to the program
 * with -ETIMEDOUT, or with -EBUSY if too much waits.
 * -ENOENT, -ECONNREFUSED: no carefuld there. -EACCES. -EUSERS: too many clients. -EPROTO: carefuld
 * is of another release.
 * -ETIMEDOUT: for 10 s no answer, for example while systemd starts carefuld, or no room among the
 * programs that wait to be accepted. */
int careful_attach(const struct careful_attach_options *options, struct careful **instance,
		   struct careful_error *error);

/* Closes the instance. Messages that were sent still leave; callbacks of unfinished operations
 * never run. In a child of fork(), releases what the child inherited; the parent's instance
 * continues. A result above 0 is the number of operations that hang in a file system; their memory
 * stays until the process ends. */
int careful_close(struct careful *instance);

/* Runs one round: receives, sends, returns credits, keeps timers. Returns the number of frames
 * handled, or -ENODEV if the interface was deleted; every peer has then failed. */
int careful_poll(struct careful *instance);
/* Polls until frames arrive, a callback runs, or timeout_ms passes; wait_mode says how to wait. The
 * wait also ends when extra_fd (or -1) is readable. An attached instance also ends the wait when
 * there is room again after an -EAGAIN. Returns as careful_poll() does. */
int careful_wait(struct careful *instance, int timeout_ms, int extra_fd);
/* Supports a program's own event loop: returns descriptors to poll() for reading, and the longest
 * time to wait. Call careful_poll() after the wait. Ask again before each wait. */
int careful_wait_fds(struct careful *instance, int *fds, uint32_t n, int *timeout_ms);

/* Adds a peer by address and starts the handshake; port 0 is the default port. Returns the peer's
 * index, the same one if the peer exists already.
 * -EADDRINUSE (all P indices are taken), -EAGAIN (an idle peer is being asked to give up its place:
 * poll and try again), -ENOTUNIQ (an address of this host), -ENETUNREACH (no route from this
 * interface), -ENODEV. */
int careful_peer(struct careful *instance, const struct sockaddr *address, uint32_t bytes);
/* As careful_peer(), but the session may use another queue. `queues` has a bit for each queue of
 * this interface on which the session is welcome (careful_options.queues). If the peer has several
 * queues too, the peer chooses. If the peer chooses other queues, this session fails with EREMCHG:
 * see careful_peer_moved(). */
int careful_peer_among(struct careful *instance, const struct sockaddr *address, uint32_t bytes,
		       uint32_t queues);
/* Gives our queue and the peer's port for a peer that failed with EREMCHG. Ask again there, from
 * the instance of that queue. -ENOENT: the peer did not move. */
int careful_peer_moved(struct careful *instance, uint32_t peer, uint32_t *queue, uint32_t *port);
/* Closes the session and frees the index. Operations under way end in the next round. */
int careful_peer_close(struct careful *instance, uint32_t peer);
/* Gives a peer's state and counters. */
int careful_peer_info(struct careful *instance, uint32_t peer, struct careful_peer_info *info);
int careful_peer_whereabouts(struct careful *instance, uint32_t peer,
			     struct careful_peer_whereabouts *where);
/* Gives the settings in effect and the counters of the instance. */
int careful_info(struct careful *instance, struct careful_info *info);
/* Measures the burst that the path from the peer can take. The measurement begins a new epoch,
 * which ends what the peer has under way here. The result is in careful_peer_info() when
 * bursts_measured has changed. -ENOENT, -ENOTCONN, -EBUSY (something is under way to the peer). */
int careful_peer_measure(struct careful *instance, uint32_t peer);

typedef void careful_peer_fn(struct careful *instance, uint32_t peer, uint32_t state, void *user);
/* Sets the instance's one function that is called when a peer's state (enum careful_peer_state)
 * changes. After FAILED or NONE, everything that belongs to the peer is gone; after NONE, its index
 * can also name another host. After RENEWING a new epoch follows, and regions stay. */
int careful_peer_watch(struct careful *instance, careful_peer_fn *fn, void *user);

/* Sets the handler of requests that name this index. */
int careful_handle(struct careful *instance, uint16_t handler, careful_handler_fn *fn, void *user);
/* Sets the handler of stores that name this index; it runs once the bytes are in place. The
 * message's payload lies in the region, or is NULL if the region is of a file. */
int careful_handle_store(struct careful *instance, uint16_t handler, careful_handler_fn *fn,
			 void *user);
/* Sends a request; the payload is copied before the call returns. done runs once. The request
 * leaves with the next careful_poll(), as far as credits allow. The first message to a peer then
 * has its own frame; the others share frames, up to CAREFUL_PACKED_MAX in each. A peer handles our
 * requests in the order in which we sent them; gets and stores are not ordered. Returns 0, -EAGAIN
 * (a limit above is reached), or -EMSGSIZE: the payload exceeds careful_payload_bytes(). Without a
 * session, or if a new one has smaller frames, done gets -EMSGSIZE. */
int careful_request(struct careful *instance, uint32_t peer, uint16_t handler, const uint32_t *args,
		    const void *payload, uint32_t bytes, careful_done_fn *done, void *user);
/* Lends a send buffer in which to build a message, and returns the bytes of payload that fit.
 * careful_send() sends the message as careful_request() does, but copies nothing if the message can
 * leave at once. The buffer belongs to the program until careful_send() returns 0, careful_free()
 * or careful_close(); do not write to the buffer after that. A receiver's handler also reads the
 * payload in place, and careful_keep() leaves it there.
 * -EAGAIN (no buffer is free, or the program has its share, a quarter of the send buffers),
 * -EINVAL (payload does not belong to the program, or no longer does). */
int careful_alloc(struct careful *instance, void **payload);
/* Sends a message built in a buffer of careful_alloc(). */
int careful_send(struct careful *instance, uint32_t peer, uint16_t handler, const uint32_t *args,
		 void *payload, uint32_t bytes, careful_done_fn *done, void *user);
/* Returns a buffer of careful_alloc() unsent. */
int careful_free(struct careful *instance, void *payload);
/* Answers a request within its handler. */
int careful_reply(const struct careful_message *message, int status, const uint32_t *args,
		  const void *payload, uint32_t bytes);
/* Answers a request later, by the name that careful_reply_name() gave. */
int careful_reply_late(struct careful *instance, const struct careful_reply_to *to, int status,
		       const uint32_t *args, const void *payload, uint32_t bytes);
/* Names a request for careful_reply_late(). */
void careful_reply_name(const struct careful_message *message, struct careful_reply_to *to);
/* Returns the largest payload of a request or reply to this peer. */
int careful_payload_bytes(struct careful *instance, uint32_t peer);

/* Returns zeroed memory in which regions can lie, for every kind of instance. The memory stays with
 * the program until the program ends, even after careful_close(), so reuse it.
 * -ENOMEM; -EINVAL (0 bytes). */
int careful_memory(struct careful *instance, uint64_t bytes, void **base);

/* Registers a region; *key names it to peers. */
int careful_region_add(struct careful *instance, const struct careful_region *region,
		       uint32_t *key);
/* Removes a region. -EBUSY while messages read or write the region; -ENOENT. */
int careful_region_remove(struct careful *instance, uint32_t key);

/* Copies bytes from local to a region of the peer. Then handler runs there (CAREFUL_HANDLERS: none)
 * and done runs here. If the peer has no such handler, done gets -ENOSYS although the bytes are in
 * place. Do not change local until done runs. Without done the peer sends no answer: do not change
 * local until the peer shows that it has the bytes, for example by a store back. */
int careful_store(struct careful *instance, uint32_t peer, uint32_t region, uint64_t region_off,
		  const struct careful_span *local, uint32_t bytes, uint16_t handler,
		  const uint32_t *args, uint32_t flags, careful_done_fn *done, void *user);
/* Copies bytes of a region of the peer to local, then runs done. */
int careful_get(struct careful *instance, uint32_t peer, uint32_t region, uint64_t region_off,
		const struct careful_span *local, uint32_t bytes, uint32_t flags,
		careful_done_fn *done, void *user);

struct careful_kept;
/* Keeps the payload of a message after its handler returns; NULL if that is not possible. The
 * receive buffer's credit returns when all messages of the frame have been released. The payload
 * moves if buffers run short: call careful_kept_payload() before each access. */
struct careful_kept *careful_keep(const struct careful_message *message);
/* Returns where the kept payload is now. */
const void *careful_kept_payload(struct careful_kept *kept);
/* Releases a kept payload, and its credit. */
void careful_release(struct careful *instance, struct careful_kept *kept);

/* Reads the key files again if they have changed (careful_options.keys). Returns 1 if they were
 * read; epochs whose peer's key is no longer trusted have then ended. Returns 0 if the files are
 * unchanged or absent, or -errno if they cannot be read; the known keys then stay in force. */
int careful_keys_refresh(struct careful *instance, struct careful_error *error);

enum { CAREFUL_SECRET_BYTES = 32 }; /* size of a private or public key */

/* Computes the public key of a private key, which is any 32 random bytes. */
int careful_key_public(const uint8_t *private_key, uint8_t *public_key);
/* Returns 0, or -EINVAL if the bytes are not a valid public key. */
int careful_key_check(const uint8_t *public_key);

const char *careful_version(void);

/* The inline functions of wire.h, for programs that cannot include it. */
uint32_t careful_wire_hdr_check(const void *hdr);
uint32_t careful_wire_message_check(const void *message, uint32_t bytes);
uint32_t careful_wire_crc32c(const void *data, uint32_t bytes);

#ifndef CAREFUL_CDEF
#ifdef __cplusplus
}
#endif
#endif
#endif /* CAREFUL_H */
