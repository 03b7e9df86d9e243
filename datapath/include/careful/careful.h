/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * libcareful's public interface: an instance owns one NIC queue and exchanges
 * active messages (P4: request, reply, store, get) with its peers.
 *
 * One thread an instance. Nothing happens behind the caller's back: frames move and callbacks
 * run inside careful_poll() and careful_wait(); what watches peers, also inside careful_peer()
 * and careful_peer_close(). A callback may call everything but careful_poll(), careful_wait()
 * and careful_close(), which return -EDEADLK there. Functions return 0 (or a count) or -errno.
 */
#ifndef CAREFUL_H
#define CAREFUL_H

#ifndef CAREFUL_CDEF
#include <stdint.h>
#include <sys/socket.h>
#ifdef __cplusplus
extern "C" {
#endif
#endif

struct careful; /* an instance */

enum {
	CAREFUL_ERROR_BYTES = 256,
	CAREFUL_HANDLERS = 256, /* indices 0 .. 127 are the application's */
	CAREFUL_HANDLERS_APP = 128,
	CAREFUL_PATH_BYTES = 108,
	CAREFUL_MTU_MIN = 210, /* IPv4; IPv6 itself wants 1280 */
};

/*
 * What an instance has room for, all peers together; more is -EAGAIN until some have ended. Of
 * messages a quarter is shared out: each peer's part is its own, whatever the others do.
 *
 * @CAREFUL_OPERATIONS_MAX:  requests, stores and gets without their end
 * @CAREFUL_SMALL_MAX:       messages that wait for credits: requests and gets leave a quarter
 *                           of what is anybody's, and half of a peer's own, to answers
 * @CAREFUL_BULK_MAX:        stores and the data of gets: stores leave an eighth, and half, to it
 * @CAREFUL_REGIONS_MAX:     regions
 */
enum {
	CAREFUL_OPERATIONS_MAX = 4096,
	CAREFUL_SMALL_MAX = 1024,
	CAREFUL_BULK_MAX = 256,
	CAREFUL_REGIONS_MAX = 4096,
};

/* One line for a person, filled where a function fails at set-up. */
struct careful_error {
	char text[CAREFUL_ERROR_BYTES];
};

enum careful_xdp_mode {
	/* Native where the driver has it, else generic. carefuld measures which is better. */
	CAREFUL_XDP_AUTO = 0,
	CAREFUL_XDP_NATIVE = 1,
	CAREFUL_XDP_GENERIC = 2,
};

/* Who decided on the XDP mode in effect. */
enum careful_xdp_by {
	CAREFUL_XDP_BY_OPTION = 0, /* it was asked for */
	CAREFUL_XDP_BY_DRIVER = 1, /* CAREFUL_XDP_AUTO: what the driver has */
	CAREFUL_XDP_BY_PENDING = 2, /* the same, until carefuld measures with the first peer */
	CAREFUL_XDP_BY_MEASURED = 3,
	CAREFUL_XDP_BY_REMEMBERED = 4, /* measured by an earlier carefuld on this machine */
	CAREFUL_XDP_BY_LEFT = 5, /* measuring failed, and the way back to the driver's, too */
};

enum careful_wait_mode {
	CAREFUL_WAIT_ADAPTIVE = 0, /* spin for spin_us, then block */
	CAREFUL_WAIT_SPIN = 1,
	CAREFUL_WAIT_BLOCK = 2,
};

/* What a frame that the network loses costs. Both ends of a session must say the same. */
enum careful_repair {
	CAREFUL_REPAIR_ON = 0, /* it is sent again */
	CAREFUL_REPAIR_OFF = 1, /* the epoch: P2's protocol to the letter */
};

/* Who copies what comes for a file into the page cache, where that is 64 KiB or more at a time. */
enum careful_file_writes {
	CAREFUL_FILE_WRITES_ENGINE = 0,
	CAREFUL_FILE_WRITES_WORKERS = 1, /* of the kernel, on other CPUs */
};

/*
 * How to open an instance; zero is the default of each field.
 *
 * @ifname:            interface
 * @instance:          name of the pin directory (default: ifname)
 * @name:              what peers call us in their status (default: instance)
 * @peers:             P: windows that R is divided into (8)
 * @queue:             RX and TX queue
 * @port:              UDP port (CAREFUL_PORT_DEFAULT)
 * @rx_buffers:        receive buffers, a power of two (512)
 * @tx_buffers:        send buffers (512)
 * @copyout_buffers:   bound of the copy-out pool, buffers (rx_buffers)
 * @xdp_mode:          enum careful_xdp_mode
 * @require_zerocopy:  fail rather than copy
 * @wait_mode:         enum careful_wait_mode
 * @spin_us:           adaptive: how long to spin before blocking (50)
 * @sync_ms:           silence with credits or replies outstanding before a sync (200)
 * @stall_ms:          silence before the peer counts as gone (30000)
 * @protocol:          enum careful_protocol of wire.h: 0 careful, 1 traditional (P2 section 5.2),
 *                     with which frames are kept until they have come, and sent again
 * @measure_burst:     1: the burst that the path from a peer takes is measured, before the
 *                     session's first data and again after a loss, and the peer's window made
 *                     no larger than its share of that (0)
 * @reserve:           receive buffers that no window holds: they are granted to peers that have
 *                     a message larger than their window to send (0)
 * @keys:              directory of keys (`carefulctl key`); NULL: /etc/careful/keys, if this host
 *                     has one there; "none", or no key there: whoever asks gets a session
 * @seal:              how frames are sealed, enum careful_seal of wire.h by its name: "auth", or
 *                     "encrypt", of all peers; "encrypt@ADDRESS" of one; several with commas
 *                     between. Takes keys; both ends must say the same. NULL: "off"
 * @queues:            queues 0 to queues - 1 of the interface are used together, an instance each:
 *                     all are opened with the same options but `queue`, the first one first, which
 *                     is closed last. `port` is the first one's, the others have those that follow;
 *                     `peers` is of all together; the maps of the others are pinned under
 *                     instance+queue. (1)
 * @unpacked:          1: no two messages share a frame (0)
 * @file_writes:       enum careful_file_writes
 * @repair:            enum careful_repair
 */
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

/* What bounds R (DESIGN: Windows). */
enum careful_bound {
	CAREFUL_BOUND_UMEM = 0,
	CAREFUL_BOUND_FILL_RING,
	CAREFUL_BOUND_RX_RING,
	CAREFUL_BOUND_DEVICE_RING,
	CAREFUL_BOUND_BACKLOG, /* netdev_max_backlog, generic mode */
	CAREFUL_BOUNDS,
};

/* What is in effect on the device. */
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
	uint32_t bounds[CAREFUL_BOUNDS]; /* each resource, buffers; 0: not a bound here */
	uint32_t receive_buffers; /* R: the smallest of them */
	uint32_t receive_bound; /* enum careful_bound: which */
	uint64_t umem_bytes;
	char native_refused[96]; /* why XDP is generic where native was tried first; or "" */
};

/* Frames lost by the device, as far as it can tell, and why. */
struct careful_device_statistics {
	uint64_t rx_dropped;
	uint64_t rx_ring_full;
	uint64_t rx_fill_ring_empty; /* with zero-copy 0: it says nothing of a frame there */
	/* By XDP: strangers', replays, too many, or on a queue that is not ours; its counters say
	 * which. */
	uint64_t rx_refused;
	uint64_t rx_invalid_descs;
	uint64_t tx_invalid_descs;
	uint64_t kicks;
	uint64_t kicks_again; /* EAGAIN: the device was busy; nothing lost */
	uint64_t kicks_failed; /* any other error: frames may be lost */
	uint64_t program_detached; /* 1: XDP was taken off the interface: no frame arrives */
};

/* What the engine counted; each frame that is not delivered has a name here. */
enum careful_counter {
	CAREFUL_C_RX_FRAMES = 0,
	CAREFUL_C_RX_BYTES,
	CAREFUL_C_TX_FRAMES,
	CAREFUL_C_TX_BYTES,
	CAREFUL_C_RX_UPDATES,
	CAREFUL_C_TX_UPDATES,
	CAREFUL_C_TX_GROWN, /* fragments enlarged beyond their plan by backlog */
	CAREFUL_C_PULSES, /* kicks that the minpulse rule let go */
	CAREFUL_C_COPIED_OUT, /* kept frames moved to ordinary memory */
	CAREFUL_C_CREDITS_WITHHELD, /* times that the copy-out bound was met */
	CAREFUL_C_DROP_MALFORMED, /* a frame the parser does not take */
	CAREFUL_C_DROP_CHECK, /* wrong header check */
	CAREFUL_C_DROP_COOKIE, /* no session with this cookie */
	CAREFUL_C_DROP_SEQ, /* a replay or beyond the window */
	CAREFUL_C_DROP_CRC, /* payload damaged */
	CAREFUL_C_DROP_MESSAGE, /* a fragment that fits no message */
	CAREFUL_C_LOST_FRAMES, /* a gap: the network broke its promise */
	CAREFUL_C_BAD_CREDITS, /* credits that cannot be */
	CAREFUL_C_EPOCHS_BROKEN, /* sessions that had to start again */
	CAREFUL_C_SYNCS,
	CAREFUL_C_STALLS, /* peers silent for sync_ms with something outstanding */
	CAREFUL_C_CTRL_MALFORMED,
	CAREFUL_C_CTRL_VERSION,
	CAREFUL_C_CTRL_UNKNOWN, /* from no peer of ours, or to no question of ours */
	CAREFUL_C_CTRL_REFUSED,
	CAREFUL_C_CTRL_CHALLENGED, /* HELLOs answered without keeping anything of them */
	CAREFUL_C_DIGEST_BAD, /* bulk payload whose digest did not match */
	CAREFUL_C_TX_BUFFERS_HELD, /* send buffers whose frames have not left yet (a gauge) */
	CAREFUL_C_PINGS_ANSWERED, /* pings of peers */
	CAREFUL_C_PINGS_LATE, /* of them, that another one overtook: nobody waits for it */
	CAREFUL_C_SENT_AGAIN, /* traditional: frames that the receiver asked for again */
	CAREFUL_C_ASKED_AGAIN, /* frames that it was asked for again */
	CAREFUL_C_TIMED_OUT, /* times that it asked because nothing more came */
	CAREFUL_C_DROP_TWICE, /* frames that had come before */
	CAREFUL_C_DROP_SHARE, /* frames for which no buffer of the peer's share was left */
	CAREFUL_C_ACKS_SENT, /* explicit acknowledgements */
	CAREFUL_C_ACKS_RECEIVED,
	CAREFUL_C_CTRL_PROTOCOL, /* HELLOs of a peer with the other protocol, refused */
	CAREFUL_C_GRANTED, /* buffers granted beside windows */
	CAREFUL_C_GRANTS_ENDED, /* epochs ended because a grant lay unused while others waited */
	CAREFUL_C_TX_BROADCASTS, /* of TX_FRAMES: to all of a group at once */
	CAREFUL_C_CTRL_KEY, /* HELLOs refused: no key that is trusted here was proved */
	CAREFUL_C_CTRL_LIMITED, /* control messages too many: not answered (link/door.h) */
	CAREFUL_C_PATHS_DENIED, /* requests of peers for paths that lead out, or are not theirs */
	CAREFUL_C_CTRL_FORGED, /* messages of a session with keys that nothing proves, or seen before */
	CAREFUL_C_DROP_SEAL, /* frames of a sealed session that were forged, or seen before */
	CAREFUL_C_FILE_OPS, /* reads and writes of files */
	CAREFUL_C_FILE_CALLS, /* system calls made for them */
	CAREFUL_C_FILE_REGISTERED, /* of FILE_OPS: by a registered file, or from registered memory */
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
	uint32_t keyed; /* 1: a session takes a key */
	uint32_t io_uring_denied; /* errno: threads read and write files; 0: io_uring does */
	uint32_t pad;
};

enum careful_peer_state {
	CAREFUL_PEER_NONE = 0,
	CAREFUL_PEER_CONNECTING, /* no session yet */
	CAREFUL_PEER_UP,
	CAREFUL_PEER_STALLED, /* up, but silent with something outstanding */
	CAREFUL_PEER_RENEWING, /* the promise broke: a new epoch is being agreed */
	CAREFUL_PEER_FAILED, /* gave up; last_errno says why */
};

/* What is known of the burst that the path from a peer takes. */
enum careful_burst_verdict {
	CAREFUL_BURST_UNKNOWN = 0, /* it was not measured, or the peer does not answer */
	CAREFUL_BURST_WHOLE, /* burst_frames came whole: more was not asked for */
	CAREFUL_BURST_SHORT, /* a queue on the way takes burst_frames at once, and no more */
	CAREFUL_BURST_LOSSY, /* frames are lost, but not as a queue loses them */
};

enum {
	CAREFUL_PEER_IS_WITHHELD = 1, /* its credits are withheld: the copy-out bound is met */
	/* Its frames come, and for some seconds none of its control messages did. */
	CAREFUL_PEER_IS_UNHEARD = 2,
	/* The way to it takes smaller frames than both ends do. */
	CAREFUL_PEER_IS_NARROW = 4,
};

struct careful_peer_info {
	struct sockaddr_storage address;
	char name[32];
	uint8_t state; /* enum careful_peer_state */
	uint8_t flags; /* CAREFUL_PEER_IS_* */
	uint8_t burst; /* enum careful_burst_verdict, */
	uint8_t bursts_measured; /* which changed so often, modulo 256 */
	uint16_t last_errno;
	uint8_t slot;
	uint8_t wire_minor; /* CAREFUL_WIRE_MINOR, the lesser of both ends' */
	uint16_t burst_frames;
	uint8_t seal; /* enum careful_seal: how its frames and ours are sealed, */
	uint8_t cipher; /* by which enum careful_cipher; 0: not agreed yet */
	uint32_t window; /* credits that it has here, our buffers */
	/* What we may send, the peer's buffers; traditional: what it certainly has room for. */
	uint32_t credits_free;
	uint32_t credits_window; /* of these */
	uint32_t frame_bytes; /* largest frame towards it */
	/* Consumed, not yet given back; traditional: frames that it is not known to have. */
	uint32_t buffers_owed;
	uint32_t buffers_kept; /* held by handlers, by files being written, by early frames */
	uint32_t messages_out; /* being sent or waiting to be */
	uint32_t operations; /* waiting for a reply */
	uint32_t epochs;
	uint64_t tx_frames, tx_bytes, rx_frames, rx_bytes;
	uint64_t lost_here; /* frames between the two, found here */
	uint64_t lost_there; /* the same found by the peer, as its last handshake said */
};

/* Which process a peer is, and the way to it. */
struct careful_peer_whereabouts {
	uint64_t incarnation; /* of the process; 0: nothing was heard of it */
	uint8_t mac[6]; /* where frames to it go next; 0: not known */
	uint8_t pad[2];
};

/* Where payload comes from or goes to: memory, or a file where base is NULL. */
struct careful_span {
	void *base;
	int fd;
	uint64_t offset; /* in the file */
};

/* A message as its handler sees it; valid until the handler returns. */
struct careful_message {
	struct careful *instance;
	uint32_t peer;
	uint16_t handler;
	uint16_t keepable; /* 1: careful_keep() can hold on to the payload */
	uint32_t token; /* for careful_reply() */
	uint32_t args[4];
	const void *payload;
	uint32_t bytes;
	uint32_t region; /* store: where the payload was put */
	uint64_t region_off;
};

/* What names a request so that it can be answered later. */
struct careful_reply_to {
	uint32_t peer;
	uint32_t token;
	uint64_t epoch;
};

/* How an operation ended. */
struct careful_result {
	int status; /* 0; -errno: -ECONNRESET means that it may have run */
	uint32_t args[4];
	const void *payload; /* of the reply; valid in the callback alone */
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

/*
 * A piece of memory or of a file that peers may get from or store to.
 *
 * @peer:     the only peer that may, or CAREFUL_ANY_PEER
 * @access:   CAREFUL_REGION_*
 * @bytes:    accesses end here
 */
struct careful_region {
	struct careful_span span;
	uint64_t bytes;
	uint32_t access;
	uint32_t peer;
};

/* What careful_open() needs, in the order in which it looks. */
enum careful_check {
	CAREFUL_CHECK_KERNEL = 0, /* its number */
	CAREFUL_CHECK_AF_XDP,
	CAREFUL_CHECK_PRIVILEGE,
	CAREFUL_CHECK_BPF, /* loading a program */
	CAREFUL_CHECK_FILES, /* that may be open at once */
	CAREFUL_CHECK_MEMLOCK, /* memory that may be locked */
	CAREFUL_CHECK_BPFFS,
	CAREFUL_CHECK_RUN, /* /run/careful */
	CAREFUL_CHECK_OPENAT2,
	CAREFUL_CHECK_IO_URING, /* files can do without */
	CAREFUL_CHECK_OPTIONS,
	CAREFUL_CHECK_INTERFACE,
	CAREFUL_CHECK_MTU,
	CAREFUL_CHECK_QUEUE,
	CAREFUL_CHECK_STEERING, /* the port to the queue, where there are several */
	CAREFUL_CHECK_PORT, /* UDP */
	CAREFUL_CHECK_PROGRAM, /* another one on the interface */
	CAREFUL_CHECK_ZEROCOPY, /* where it is required */
	CAREFUL_CHECKS,
};

/* One of them, which changes nothing: what careful_open() would return for it, and its line
 * in *error; where nothing is in the way, a line that says what is there. 1: careful
 * does without, and the line says how. -EXDEV: no rule steers the port. -EAGAIN: opening alone tells. Of an instance that is open, the
 * last three find itself. */
int careful_check(const struct careful_options *options, uint32_t check,
		  struct careful_error *error);

/* The window of each of `peers` peers: R / P, where R is bounded by `bound` (enum
 * careful_bound), and a frame of this MTU fills so many buffers. -ENOBUFS, -EMSGSIZE: it is
 * too small, and *error says what to do. */
int careful_window(uint32_t receive_buffers, uint32_t bound, uint32_t peers, uint32_t mtu,
		   uint32_t frame_buffers, struct careful_error *error);

/* Opens the interface, loads and attaches XDP, pins the maps. On failure *error
 * holds a line that says what to do.
 * -ENODEV no such interface, -ENETDOWN, -EPERM, -EBUSY (another XDP program or
 * instance, or a bridge's port), -EADDRINUSE (the port), -EINVAL (an option), -EXDEV (no
 * steering rule), -EMFILE, -ENOBUFS (P too large for R, or too little memory may be locked),
 * -EMSGSIZE (MTU). */
int careful_open(const struct careful_options *options, struct careful **instance,
		 struct careful_error *error);
/*
 * How to attach to a carefuld; zero is the default of each field.
 *
 * @path:          its socket, /run/careful/INSTANCE/sock
 * @name:          what `carefulctl status` calls the program ("program")
 * @memory_bytes:  what careful_memory() can give (16 MiB)
 * @wait_mode:     enum careful_wait_mode
 * @spin_us:       adaptive: how long to spin before blocking (50)
 */
struct careful_attach_options {
	const char *path;
	const char *name;
	uint64_t memory_bytes;
	uint32_t wait_mode;
	uint32_t spin_us;
};

/*
 * Shares the interface of a carefuld that runs, and its sessions, with other programs. The
 * instance takes the calls of one that careful_open() gave, but for these differences:
 *
 * - Peers' numbers are not below P; the one of a peer that has gone is not given again soon.
 * - Regions of careful_memory() are read and written where they lie. Those of other memory pass
 *   through /proc/self/mem, which carefuld is given; -EOPNOTSUPP where that cannot be opened.
 * - A region that careful_region_remove() leaves for -EBUSY is refused to peers from then on.
 * - A get or store of other memory goes through a copy in careful_memory(); without room for one,
 *   as a region's bytes. For one of a file carefuld is passed the descriptor: 64 at a time.
 * - A handler's number is one program's: careful_handle() says -EBUSY if another has it.
 * - A request that finds its peer gone, or payload too large, hears of it in done; without
 *   done nobody does. So does one to CAREFUL_HANDLERS_APP or beyond, which is -EINVAL.
 * - careful_peer_close() leaves the peer to the others. What this program has under way to it
 *   ends with -ECONNRESET; a get without a copy, when nothing comes into its memory any more.
 *   Nor does anything after careful_close().
 * - A message that is kept is a copy, and holds no credit. A ping that cannot begin ends with the
 *   status that careful_ping() would have had.
 * - careful_alloc() gives memory from which carefuld copies into a send buffer: CAREFUL_RING_BUILT
 *   at a time, with room for CAREFUL_RING_PAYLOAD_BYTES whatever the peer takes.
 * - careful_keys_refresh() is -EOPNOTSUPP: the keys are carefuld's. Events go by requests, in
 *   groups whose other nodes do so, too (careful/event.h).
 * - carefuld's end is -ENOTCONN, from every call; operations end with -ECONNRESET before.
 *
 * CAREFUL_RING_OPERATIONS may be under way at a time. A program that has not polled for 30 s while
 * something waits for it is stalled: requests for it are answered with -ETIMEDOUT; and with
 * -EBUSY, where too much waits for it. -ENOENT, -ECONNREFUSED: no carefuld there; -EACCES;
 * -EUSERS; -EPROTO: it is of another release; -ETIMEDOUT: no answer for 10 s, of one that systemd
 * is starting, say, or no room for 10 s among those that wait to be taken.
 */
int careful_attach(const struct careful_attach_options *options, struct careful **instance,
		   struct careful_error *error);

/* What was sent leaves; operations without their end never hear of it. In a child of fork():
 * lets go of what the child inherited; the parent's instance goes on. Above 0: so many operations
 * hang in a file system, and what they use stays, until the process ends. */
int careful_close(struct careful *instance);

/* One round: receive, send, give back, keep time. Returns the frames handled;
 * -ENODEV: the interface was deleted, and every peer has failed. */
int careful_poll(struct careful *instance);
/* Polls until frames came, a callback ran, or timeout_ms passed, waiting as wait_mode says.
 * extra_fd (or -1) ends the wait when readable. Of careful_attach() it ends, too, when there is
 * room for what got -EAGAIN. Returns as careful_poll(). */
int careful_wait(struct careful *instance, int timeout_ms, int extra_fd);
/* For an event loop of one's own: descriptors to poll() for reading, and for how long at
 * most; then careful_poll(). Asked anew before each wait. */
int careful_wait_fds(struct careful *instance, int *fds, uint32_t n, int *timeout_ms);

/* Names a peer by address (port 0: the default) and starts the handshake. Returns
 * its index; -EADDRINUSE if all P are taken, -EAGAIN if one of those that is idle was asked for its
 * place, or will be: poll, and ask again; -ENOTUNIQ if that is an address of this host;
 * -ENETUNREACH if no route leads there from this interface, -ENODEV. Idempotent. */
int careful_peer(struct careful *instance, const struct sockaddr *address, uint32_t bytes);
/*
 * As careful_peer(), for who would use another queue: `queues` are those of this interface, a bit
 * each, on which a session is as welcome as on this one (careful_options.queues). Where the peer
 * has several queues, too, it chooses. If it chooses others than were asked, this peer fails with
 * EREMCHG, and careful_peer_moved() says by which of our queues, and at which port, it is to be
 * asked: that is for the instance which has that queue. -ENOENT: it was not sent away.
 */
int careful_peer_among(struct careful *instance, const struct sockaddr *address, uint32_t bytes,
		       uint32_t queues);
int careful_peer_moved(struct careful *instance, uint32_t peer, uint32_t *queue, uint32_t *port);
/* Closes the session and frees the slot. What is under way ends in the next round. */
int careful_peer_close(struct careful *instance, uint32_t peer);
int careful_peer_info(struct careful *instance, uint32_t peer, struct careful_peer_info *info);
int careful_peer_whereabouts(struct careful *instance, uint32_t peer,
			     struct careful_peer_whereabouts *where);
int careful_info(struct careful *instance, struct careful_info *info);
/* Measures the burst that the path from the peer takes, in a new epoch: what the peer has
 * under way here ends as at any other one. careful_peer_info() tells what was found, when
 * bursts_measured has changed. -ENOENT, -ENOTCONN; -EBUSY: something is under way to it. */
int careful_peer_measure(struct careful *instance, uint32_t peer);

/* Sets the function that hears of a peer's state (enum careful_peer_state) whenever
 * it changes. FAILED and NONE: whatever belongs to the peer is gone; NONE: its index may
 * name another host next; RENEWING: a new epoch follows, regions stay. One function an instance. */
typedef void careful_peer_fn(struct careful *instance, uint32_t peer, uint32_t state, void *user);
int careful_peer_watch(struct careful *instance, careful_peer_fn *fn, void *user);

/* Sets the function for requests that name this index. */
int careful_handle(struct careful *instance, uint16_t handler, careful_handler_fn *fn, void *user);
/* The same for stores whose bytes are in their place: no other function runs for one. Its
 * payload lies in the region, and is NULL where that is of a file. */
int careful_handle_store(struct careful *instance, uint16_t handler, careful_handler_fn *fn,
			 void *user);
/* Sends a request; payload is copied before the call returns. done runs once. It leaves with the
 * next careful_poll(), as far as there are credits: the first to a peer in a frame of its own,
 * those after it up to CAREFUL_PACKED_MAX in a frame. A peer handles our requests in the order in
 * which they were asked; gets and stores go beside them.
 * -EMSGSIZE: payload exceeds careful_payload_bytes(), which done is told where there was no
 * session yet, or a reply waited for one with smaller frames; -EAGAIN: no room (above). */
int careful_request(struct careful *instance, uint32_t peer, uint16_t handler, const uint32_t *args,
		    const void *payload, uint32_t bytes, careful_done_fn *done, void *user);
/*
 * A message that is built where it leaves from: careful_alloc() gives room for its payload in a
 * send buffer of the device, and returns how many bytes; careful_send() sends it as
 * careful_request() does, and nothing is copied where it can leave at once. The buffer is the
 * program's until careful_send() returns 0, or careful_free(), or careful_close(); what is sent or
 * freed is written no more. -EAGAIN: the program has its share, a quarter of the send buffers, or
 * none is free; -EINVAL: payload is not the program's (any more). The other end reads in place,
 * too: a handler's payload lies where it came, and stays there where it is kept.
 */
int careful_alloc(struct careful *instance, void **payload);
int careful_send(struct careful *instance, uint32_t peer, uint16_t handler, const uint32_t *args,
		 void *payload, uint32_t bytes, careful_done_fn *done, void *user);
int careful_free(struct careful *instance, void *payload);
/* Answers: within the handler, or later by careful_reply_to. */
int careful_reply(const struct careful_message *message, int status, const uint32_t *args,
		  const void *payload, uint32_t bytes);
int careful_reply_late(struct careful *instance, const struct careful_reply_to *to, int status,
		       const uint32_t *args, const void *payload, uint32_t bytes);
void careful_reply_name(const struct careful_message *message, struct careful_reply_to *to);
/* Most payload that a request or reply to this peer can have. */
int careful_payload_bytes(struct careful *instance, uint32_t peer);

/* Memory, zeroed, that regions can lie in however the instance was made. It stays the program's
 * until that ends, whatever becomes of the instance: one that needs some anew uses it again.
 * -ENOMEM; -EINVAL: 0 bytes. */
int careful_memory(struct careful *instance, uint64_t bytes, void **base);

/* Registers a region; *key names it to peers. */
int careful_region_add(struct careful *instance, const struct careful_region *region,
		       uint32_t *key);
/* -EBUSY while messages read or write it; -ENOENT. */
int careful_region_remove(struct careful *instance, uint32_t key);

/* Moves bytes from local to a region of the peer; then handler (or
 * CAREFUL_HANDLERS for none) runs there and done here; it hears -ENOSYS if there is no
 * such handler, the bytes in place. local must stay as it is until done. Without done no answer
 * is sent: local must stay until the peer shows that the bytes are there, as by a store back. */
int careful_store(struct careful *instance, uint32_t peer, uint32_t region, uint64_t region_off,
		  const struct careful_span *local, uint32_t bytes, uint16_t handler,
		  const uint32_t *args, uint32_t flags, careful_done_fn *done, void *user);
/* Moves bytes of a region of the peer to local, then runs done. */
int careful_get(struct careful *instance, uint32_t peer, uint32_t region, uint64_t region_off,
		const struct careful_span *local, uint32_t bytes, uint32_t flags,
		careful_done_fn *done, void *user);

/* Keeps the payload of a message beyond its handler. The receive buffer's credit
 * returns with the release, of the last of those that share its frame. The payload may move when
 * buffers run short: ask careful_kept_payload() each time. NULL where the message cannot be kept. */
struct careful_kept;
struct careful_kept *careful_keep(const struct careful_message *message);
const void *careful_kept_payload(struct careful_kept *kept);
void careful_release(struct careful *instance, struct careful_kept *kept);

/*
 * Looks whether the files of keys are others than they were (careful_options.keys). 1: they were
 * read again, and epochs whose peer proved a key that is trusted no longer have ended; 0: they
 * are not, or there are none; -errno: they cannot be, and what was known of them stays.
 */
int careful_keys_refresh(struct careful *instance, struct careful_error *error);

enum { CAREFUL_SECRET_BYTES = 32 }; /* of a private or public key */

/* The public key of a private one, which is any 32 random bytes. */
int careful_key_public(const uint8_t *private_key, uint8_t *public_key);
/* 0; -EINVAL: it is nobody's public key. */
int careful_key_check(const uint8_t *public_key);

const char *careful_version(void);

/* What wire.h computes inline, for those who cannot include it. */
uint32_t careful_wire_hdr_check(const void *hdr);
uint32_t careful_wire_message_check(const void *message, uint32_t bytes);
uint32_t careful_wire_crc32c(const void *data, uint32_t bytes);

#ifndef CAREFUL_CDEF
#ifdef __cplusplus
}
#endif
#endif
#endif /* CAREFUL_H */
