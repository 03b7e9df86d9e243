/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The wire format, whole: the frame header, the active-message header that
 * opens a message, the control messages and the block service's payloads.
 * The only declaration of each; C and eBPF include it, the cffi binding and
 * the scapy layer are generated from it.
 *
 * Naturally aligned, big-endian, padded by name, never packed: cffi must be
 * able to parse it (it sees the file preprocessed with CAREFUL_CDEF).
 */
#ifndef CAREFUL_WIRE_H
#define CAREFUL_WIRE_H

#ifndef CAREFUL_CDEF
#include <linux/types.h>
#endif

enum {
	CAREFUL_WIRE_VERSION = 1,
	/* Default UDP port of frames (XDP) and of control (kernel socket). */
	CAREFUL_PORT_DEFAULT = 51966,
	/* A type with this bit set is a control message: XDP passes it. */
	CAREFUL_CTRL_BIT = 0x80,
	CAREFUL_NAME_BYTES = 32,
	CAREFUL_AM_ARGS = 4,
	CAREFUL_DIGEST_BYTES = 8,
};

enum careful_type {
	CAREFUL_DATA = 1, /* one fragment of a message */
	CAREFUL_UPDATE = 2, /* a window update alone: no payload */
	CAREFUL_PING = 3, /* the stage that stage_limit names answers */

	CAREFUL_HELLO = 0x80, /* asks for a session, or for a new epoch of it */
	CAREFUL_CHALLENGE = 0x81, /* shows that HELLO's sender is where it says */
	CAREFUL_WELCOME = 0x82, /* grants the session */
	CAREFUL_REFUSE = 0x83, /* does not; says why. Never changes format. */
	CAREFUL_SYNC = 0x84, /* "I sent up to s, I gave back n": the same of you? */
	CAREFUL_SYNC_ACK = 0x85, /* the answer */
	CAREFUL_GONE = 0x86, /* the answer where that session does not exist */
	CAREFUL_BYE = 0x87, /* the sender closes the session */
	CAREFUL_PING_ANSWER = 0x88, /* to a ping: struct careful_ping_answer */
};

/*
 * Stages of a host (P1 section 2), in the order of the way. The one numbering: of the pings'
 * stage limit, and of the probes in trace.h. A ping can end at NET_RX and behind it (P1
 * section 6): a ping of NET_RX stands outside the session: no sequence number, no credit; XDP
 * stamps and passes it, or drops it, and never redirects it. What goes further is in sequence
 * and costs credits as data does. One ping at a time from each end of a session; msg_id
 * numbers them from 1 in each epoch, so that none is answered twice.
 */
enum careful_stage {
	CAREFUL_STAGE_HOST_TX = 0, /* application memory or file to UMEM, header included */
	CAREFUL_STAGE_NET_TX = 1, /* UMEM to wire: the kick */
	CAREFUL_STAGE_NET_RX = 2, /* wire to UMEM; of a ping: XDP, on arrival */
	CAREFUL_STAGE_HOST_RX = 3, /* RX ring to where it goes next; the engine, CRC checked */
	CAREFUL_STAGE_STORE = 4, /* UMEM to file; of a ping: to a scratch file */
	CAREFUL_STAGES = 5,
};

/* Flags of a frame. */
enum {
	CAREFUL_F_FIRST = 0x01, /* struct careful_am stands before the payload */
	CAREFUL_F_LAST = 0x02, /* last fragment of its message */
	CAREFUL_F_BULK = 0x04, /* payload_crc covers careful_am alone, not the payload */
	CAREFUL_F_DIGEST = 0x08, /* the last fragment ends in the payload's XXH3 (8 bytes) */
	CAREFUL_F_BCAST_EVENT = 0x10, /* P2 section 5.1; reserved for the event service */
	CAREFUL_F_LARGE_EVENT = 0x20, /* likewise */
	CAREFUL_F_ABORT = 0x40, /* the sender cannot go on; payload: a positive errno, __be32 */
};

/*
 * The frame header, after UDP.
 *
 * @version:      CAREFUL_WIRE_VERSION
 * @type:         enum careful_type, without CAREFUL_CTRL_BIT
 * @flags:        CAREFUL_F_*
 * @stage_limit:  PING: the stage at which it ends, enum careful_stage; else 0: no limit
 * @src_node:     the slot that the receiver granted to the sender at the handshake
 * @queue:        the receiver's queue, as announced at the handshake
 * @cookie:       the session's epoch, chosen by the receiver
 * @seq:          frame number within the epoch, from 1, modulo 2^32
 * @credits:      receive buffers given back to the receiver of this frame since
 *                the epoch began, cumulative, modulo 2^32
 * @msg_id:       the message; unique among the sender's messages in flight
 * @msg_bytes:    payload of the whole message, without careful_am and digest
 * @frag_off:     where this fragment's payload stands in it
 * @payload_crc:  CRC32C of what follows the header (CAREFUL_F_BULK: of careful_am)
 * @frag_bytes:   payload of this fragment, without careful_am and digest
 * @pad:          0
 * @check:        careful_hdr_check() of the header with check = 0
 */
struct careful_hdr {
	__u8 version;
	__u8 type;
	__u8 flags;
	__u8 stage_limit;
	__be16 src_node;
	__be16 queue;
	__be64 cookie;
	__be32 seq;
	__be32 credits;
	__be32 msg_id;
	__be32 msg_bytes;
	__be32 frag_off;
	__be32 payload_crc;
	__be16 frag_bytes;
	__be16 pad;
	__be32 check;
};

/* What a message is, and what its first fragment asks the receiver to do (P4: GAM). */
enum careful_am_kind {
	CAREFUL_AM_REQUEST = 1, /* run handler; payload in this one frame */
	CAREFUL_AM_REPLY = 2, /* answers token: status, args, payload in one frame */
	CAREFUL_AM_STORE = 3, /* payload goes to region at region_off, then a REPLY */
	CAREFUL_AM_GET = 4, /* send bytes of region from region_off as GET_DATA */
	CAREFUL_AM_GET_DATA = 5, /* payload goes where the getter of token wants it */
};

/* Flags of careful_am. */
enum {
	CAREFUL_AM_WANT_DIGEST = 0x01, /* GET: let the data carry a digest */
};

/*
 * Opens a message: stands before the payload of its first fragment.
 *
 * @kind:        enum careful_am_kind
 * @flags:       CAREFUL_AM_*
 * @handler:     REQUEST: index of the handler; STORE: handler run when all is in place
 * @token:       the requester's name for the operation; REPLY and GET_DATA return it
 * @region:      STORE, GET: key that the other end's region_add gave
 * @status:      REPLY, GET_DATA: 0 or a positive errno
 * @region_off:  STORE, GET: where in the region, bytes
 * @bytes:       GET: how many
 * @pad:         0
 * @args:        four words for the handler
 */
struct careful_am {
	__u8 kind;
	__u8 flags;
	__be16 handler;
	__be32 token;
	__be32 region;
	__be32 status;
	__be64 region_off;
	__be32 bytes;
	__be32 pad;
	__be32 args[CAREFUL_AM_ARGS];
};

/* Why a HELLO is refused (careful_ctrl.status). */
enum careful_refusal {
	CAREFUL_REFUSED_VERSION = 1, /* version says which one is spoken here */
	CAREFUL_REFUSED_PEERS = 2, /* all P windows are taken; window says P */
	CAREFUL_REFUSED_FRAME = 3, /* the frames announced don't fit the window */
};

/*
 * A control message: one UDP datagram through the kernel's socket. One layout
 * for all; a field that a type does not name is 0.
 *
 * @version, @type:     as in careful_hdr
 * @bytes:              sizeof(struct careful_ctrl)
 * @check:              careful_ctrl_check() of the message with check = 0
 * @nonce:              HELLO: names the attempt, echoed by CHALLENGE, WELCOME and
 *                      REFUSE; SYNC: names the question, echoed by SYNC_ACK and GONE
 * @token:              CHALLENGE: proof of address, echoed in the second HELLO; in the
 *                      HELLO of a new epoch the cookie of the sender's frames in the old
 * @cookie:             HELLO, WELCOME: what the other end puts on its frames to us;
 *                      SYNC, SYNC_ACK, BYE: the cookie that the sender puts on its frames
 * @incarnation:        random, drawn when the sender started
 * @slot:               HELLO, WELCOME: src_node of the other end's frames to us
 * @queue:              HELLO, WELCOME: queue of the other end's frames to us
 * @window:             HELLO, WELCOME: credits that the other end gets, buffers
 * @buffer_bytes:       HELLO, WELCOME: bytes of a frame that one of our buffers holds
 * @frame_bytes:        HELLO, WELCOME: largest frame we take, Ethernet header included
 * @status:             REFUSE: enum careful_refusal; SYNC_ACK: 1 while frames counted in
 *                      seq_sent may wait in the sender's device: it proves no loss
 * @seq_sent:           SYNC, SYNC_ACK: frames sent in this epoch
 * @seq_rcvd:           SYNC, SYNC_ACK: frames received in this epoch
 * @returned:           SYNC, SYNC_ACK: buffers given back in this epoch
 * @lost:               HELLO, WELCOME: frames between the two that the sender found lost
 *                      so far
 * @pad:                0
 * @name:               HELLO, WELCOME: the sender's name, NUL-padded
 */
struct careful_ctrl {
	__u8 version;
	__u8 type;
	__be16 bytes;
	__be32 check;
	__be64 nonce;
	__be64 token;
	__be64 cookie;
	__be64 incarnation;
	__be16 slot;
	__be16 queue;
	__be32 window;
	__be32 buffer_bytes;
	__be32 frame_bytes;
	__be32 status;
	__be32 seq_sent;
	__be32 seq_rcvd;
	__be32 returned;
	__be32 lost;
	__be32 pad;
	__u8 name[CAREFUL_NAME_BYTES];
};

/* Where STORE probes are written. */
enum careful_scratch {
	CAREFUL_SCRATCH_NONE = 0, /* nowhere: they end at HOST_RX */
	CAREFUL_SCRATCH_FILE = 1, /* an unnamed file in an exported directory */
	CAREFUL_SCRATCH_MEMORY = 2, /* a memfd: nothing is exported for writing */
};

/*
 * The answer to a ping: a control message, so that it takes no receive buffer. It
 * goes to the session's peer, wherever the probe came from, and is never larger than the
 * probe. Times of the answering host, ns.
 *
 * @version, @type, @bytes, @check: as in careful_ctrl
 * @cookie:      what the answering host puts on its frames to the prober
 * @arrived_ns:  its monotonic clock when XDP saw the probe
 * @probe:       the probe's msg_id
 * @host_rx_ns:  from then until the engine had it
 * @store_ns:    from then until it was written
 * @turn_ns:     from the end of the last stage that it crossed until this left
 * @stage:       that stage, enum careful_stage
 * @scratch:     enum careful_scratch
 * @net_cpu, @host_cpu: where XDP and the engine ran
 * @store_inline: 1: the write ended within the engine's thread
 */
struct careful_ping_answer {
	__u8 version;
	__u8 type;
	__be16 bytes;
	__be32 check;
	__be64 cookie;
	__be64 arrived_ns;
	__be32 probe;
	__be32 host_rx_ns;
	__be32 store_ns;
	__be32 turn_ns;
	__u8 stage;
	__u8 scratch;
	__be16 net_cpu;
	__be16 host_cpu;
	__u8 store_inline;
	__u8 pad;
};

/*
 * The block service: requests to these handlers. Handles are region keys: blocks
 * move with GET and STORE. Paths are relative to the export, without NUL.
 *
 * OPEN    payload careful_block_open, path. Reply: args[0] handle, payload
 *         careful_block_attr. With CREATE the handle is a temporary file beside
 *         path, of `bytes` bytes, that COMMIT gives its name. With a tag it is a
 *         partial file: its name follows from the tag, it stays when the handle
 *         ends without COMMIT, and one that is there already is continued (args[1]
 *         1; its size, if another than `bytes` and `tail_bytes`, is left as it is).
 *         -EBUSY: another handle has it.
 * COMMIT  args[0] handle, args[1] CAREFUL_BLOCK_*; payload careful_block_open (its
 *         path unused): cuts to size, syncs, sets mode and time, renames. The
 *         handle ends. Reply: payload careful_block_attr.
 * CLOSE   args[0] handle, args[1] CAREFUL_BLOCK_*: ends it (and removes an
 *         uncommitted temporary file; a partial one with DISCARD alone).
 *         Reply: payload careful_block_attr of the file as it is now.
 * LIST    args[0] CAREFUL_BLOCK_*; payload path. Reply: args[0] handle of the
 *         listing, args[1] and args[2] its bytes (high, low), args[3] entries that
 *         could not be read; careful_block_entry records, each padded to 8 bytes.
 * STAT    args[0] CAREFUL_BLOCK_*; payload path. Reply: payload careful_block_attr.
 * MKDIR   payload careful_block_open, path. Reply: status. An existing directory
 *         is no error.
 * DIGEST  args[0] handle; payload careful_block_range. Reply: args[0] n, payload the
 *         digests of the first n blocks of the range; n may be fewer than asked for.
 * EXTENTS args[0] handle; payload careful_block_range. Reply: args[0] n, payload n
 *         careful_block_extent: where the range holds data, in order; args[1] and
 *         args[2] where the answer ends (high, low), which is the range's end if all
 *         of it fitted.
 * BATCH   args[0] handle of an OPEN with SCRATCH, args[1] CAREFUL_BATCH_*, payload
 *         careful_block_batch: runs the careful_block_item records that were stored
 *         there, one after the other; names are relative to what was opened. Reply:
 *         args[0] handle of the answer, which has as many records in the same order,
 *         args[1] and args[2] its bytes (high, low), args[3] items that failed.
 *
 * Asking again after ECONNRESET does no harm: args[2] and args[3] of OPEN, LIST and BATCH name
 * the attempt (random; 0: no name), the same name is answered with the same handle; a
 * COMMIT or CLOSE that did end its handle is answered as it was then.
 */
enum careful_block_handler {
	CAREFUL_BLOCK_OPEN = 128,
	CAREFUL_BLOCK_COMMIT = 129,
	CAREFUL_BLOCK_CLOSE = 130,
	CAREFUL_BLOCK_LIST = 131,
	CAREFUL_BLOCK_STAT = 132,
	CAREFUL_BLOCK_MKDIR = 133,
	CAREFUL_BLOCK_DIGEST = 134,
	CAREFUL_BLOCK_EXTENTS = 135,
	CAREFUL_BLOCK_BATCH = 136,
};

enum careful_block_flag {
	CAREFUL_BLOCK_CREATE = 0x01, /* OPEN: to write a new file */
	CAREFUL_BLOCK_REPLACE = 0x02, /* OPEN, COMMIT: an existing file may be replaced */
	CAREFUL_BLOCK_RECURSIVE = 0x04, /* LIST: the whole tree, parents first */
	CAREFUL_BLOCK_NOSYNC = 0x08, /* COMMIT: without fsync */
	CAREFUL_BLOCK_SPARSE = 0x10, /* OPEN with CREATE: no room is taken in advance */
	CAREFUL_BLOCK_SEED = 0x20, /* OPEN with CREATE: begin with what path holds now */
	/* OPEN with CREATE: how long the file gets is said by COMMIT's `bytes`. */
	CAREFUL_BLOCK_STREAM = 0x40,
	/* OPEN: write into the file or block device itself; COMMIT syncs it. */
	CAREFUL_BLOCK_INPLACE = 0x80,
	/* OPEN: no file; `bytes` zeros to get, and room for what is not kept. */
	CAREFUL_BLOCK_NULL = 0x100,
	CAREFUL_BLOCK_DISCARD = 0x200, /* CLOSE: the partial file goes */
	/* OPEN: path is a directory; `bytes` of memory, for the items of a BATCH there. */
	CAREFUL_BLOCK_SCRATCH = 0x400,
};

/*
 * @flags:       CAREFUL_BLOCK_*
 * @mode:        permission bits of a new file or directory
 * @bytes:       OPEN with CREATE: size of the file; COMMIT: the same, for STREAM
 * @mtime_ns:    COMMIT: modification time, ns since 1970; 0: leave it
 * @tag:         OPEN with CREATE: names the partial file; 0: a temporary one
 * @tail_bytes:  OPEN with CREATE and tag: room behind the file, for the client's notes;
 *               COMMIT cuts it off
 * @path_bytes:  of the path that follows
 */
struct careful_block_open {
	__be32 flags;
	__be32 mode;
	__be64 bytes;
	__be64 mtime_ns;
	__be64 tag;
	__be32 tail_bytes;
	__be32 path_bytes;
};

/* What stat says of a file; mode with its type bits.
 * @allocated: bytes that it takes up where it lies */
struct careful_block_attr {
	__be32 mode;
	__be32 nlink;
	__be32 uid;
	__be32 gid;
	__be64 bytes;
	__be64 mtime_ns;
	__be64 ctime_ns;
	__be64 inode;
	__be64 device;
	__be64 allocated;
};

enum careful_block_algorithm {
	CAREFUL_BLOCK_XXH3 = 1, /* 8 bytes, big-endian */
	/* 32 bytes: the chaining value of the range as a subtree of its file. Block sizes
	 * are powers of two from 1024 and ranges begin at multiples of them. */
	CAREFUL_BLOCK_BLAKE3 = 2,
	CAREFUL_BLOCK_BLAKE3_ROOT = 3, /* 32 bytes: of the range as a file of its own */
};

/* DIGEST: one digest for each block_bytes of the range (the last may be shorter). */
struct careful_block_range {
	__be64 offset;
	__be64 bytes;
	__be32 block_bytes;
	__be32 algorithm;
};

struct careful_block_extent {
	__be64 offset;
	__be64 bytes;
};

enum careful_block_item_op {
	/* Answered with the item that makes the same elsewhere: FILE, with the contents, where
	 * attr.bytes is not 0 and the file is not too large, DIRECTORY, SYMLINK, or META. */
	CAREFUL_ITEM_READ = 1,
	CAREFUL_ITEM_FILE = 2, /* a regular file with these contents */
	/* A directory is there; of one that was the answer says META. */
	CAREFUL_ITEM_DIRECTORY = 3,
	CAREFUL_ITEM_SYMLINK = 4, /* text: its target */
	CAREFUL_ITEM_LINK = 5, /* another name of the file `text` */
	CAREFUL_ITEM_META = 6, /* attributes of what is there */
	/* A file, a link or an empty directory; none is no error. EBUSY: a partial file that
	 * a transfer has. */
	CAREFUL_ITEM_REMOVE = 7,
	CAREFUL_ITEM_SYNC = 8, /* the file system that name's directory lies in */
	/* Answered as READ of a file is, but with the digest alone. EOVERFLOW: it is too
	 * large; ENOTSUP: it is no regular file. */
	CAREFUL_ITEM_DIGEST = 9,
};

/* Of a BATCH: what of attr is set, and how. */
enum careful_batch_flag {
	CAREFUL_BATCH_MODE = 0x01, /* all of it; else permissions of what is new */
	CAREFUL_BATCH_OWNER = 0x02, /* as far as the receiver may */
	CAREFUL_BATCH_TIME = 0x04,
	CAREFUL_BATCH_XATTRS = 0x08, /* READ: answered with them */
	CAREFUL_BATCH_REPLACE = 0x10, /* an existing file may be replaced */
	CAREFUL_BATCH_SYNC = 0x20, /* files are synced before they get their names */
	CAREFUL_BATCH_NODIGEST = 0x40,
};

/*
 * @bytes:           of the items in the handle's memory
 * @file_bytes_max:  READ: of a file whose contents are sent
 * @umask:           taken from new modes where CAREFUL_BATCH_MODE is not set
 */
struct careful_block_batch {
	__be64 bytes;
	__be32 file_bytes_max;
	__be32 umask;
};

/*
 * One item of a batch; name, text, extended attributes and data follow, then 0s to 8
 * bytes. In an answer, what was given is left out, but the name of READ and DIGEST.
 *
 * @attr:          what is to be set; in READ's and DIGEST's answer, what was found
 * @op:            enum careful_block_item_op
 * @status:        answer: 0 or a positive errno; an item that has one is not done
 * @xattrs_bytes:  careful_block_xattr records, without padding
 * @digest:        XXH3 of the data, unless CAREFUL_BATCH_NODIGEST; DIGEST's answer: in any
 *                 case, of what was not sent
 */
struct careful_block_item {
	struct careful_block_attr attr;
	__be16 op;
	__be16 pad;
	__be32 status;
	__be32 name_bytes;
	__be32 text_bytes;
	__be32 xattrs_bytes;
	__be32 pad2;
	__be64 data_bytes;
	__be64 digest;
};

/* An extended attribute; its name and value follow. */
struct careful_block_xattr {
	__be32 name_bytes;
	__be32 value_bytes;
};

/* One record of a listing; the name, relative to the listed path, follows (name_bytes
 * of it, no NUL), for a symlink then its target (target_bytes), then 0s to 8 bytes.
 * @error: a positive errno where the entry could not be read; then attr is 0, unless it is
 * a directory or a symlink whose contents alone could not be read. */
struct careful_block_entry {
	struct careful_block_attr attr;
	__be16 name_bytes;
	__be16 target_bytes;
	__be32 error;
};

/*
 * The probe service (P1 section 5.3.2): a request to this handler, of any payload, is
 * answered at once and without payload. Reply: args[0] and args[1], high and low, are
 * the answering host's monotonic clock when its handler ran, ns.
 *
 * A train is timed where it arrives, without an answer to each frame, which would be work
 * for both ends: args[0] is its number (not 0), args[1] a frame's index, from 0. The last
 * frame alone wants a reply, whose payload is a __be64 for each frame, the clock as above.
 * EAGAIN: another train came between; one at a time.
 */
enum careful_probe_handler {
	CAREFUL_PROBE = 160,
	CAREFUL_PROBE_FRAMES = 400, /* of a train at most */
};

/*
 * Memory for measuring stores and gets (P4, `Bulk-transfer microbenchmark`). A request to
 * this handler is answered with args[0], a region's key, and args[1], its bytes. Anyone may
 * write there at any time: what is in it means nothing.
 */
enum careful_scratch_handler {
	CAREFUL_SCRATCH = 168,
};

#ifndef CAREFUL_CDEF

_Static_assert(sizeof(struct careful_block_open) == 40, "careful_block_open is 40 bytes");
_Static_assert(sizeof(struct careful_block_attr) == 64, "careful_block_attr is 64 bytes");
_Static_assert(sizeof(struct careful_block_item) == 104, "careful_block_item is 104 bytes");
_Static_assert(sizeof(struct careful_block_entry) == 72, "careful_block_entry is 72 bytes");
_Static_assert(sizeof(struct careful_hdr) == 48, "careful_hdr is 48 bytes");
_Static_assert(sizeof(struct careful_am) == 48, "careful_am is 48 bytes");
_Static_assert(sizeof(struct careful_ctrl) == 112, "careful_ctrl is 112 bytes");
_Static_assert(sizeof(struct careful_ping_answer) <= sizeof(struct careful_hdr),
	       "an answer is never larger than its probe");

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define CAREFUL_BE64(x) __builtin_bswap64(x)
#else
#define CAREFUL_BE64(x) (x)
#endif

static inline __u64 careful_mix(__u64 h, __u64 word)
{
	/* A bijection of h for a given word and of word for a given h, so that
	 * a change within one word always shows in h. */
	h = (h ^ word) * 0x9e3779b97f4a7c15ULL;
	return h ^ (h >> 29);
}

/*
 * The 32-bit check over the header, its own field taken as 0. Plain 64-bit
 * arithmetic, so that BPF computes the same. It finds accidents, not attacks:
 * the cookie is what a stranger cannot know.
 */
static inline __u32 careful_hdr_check(const void *hdr)
{
	const __u8 *p = hdr;
	__u64 h = 0x63617265666c7931ULL;
	__u64 w;

#pragma GCC unroll 8
	for (int i = 0; i < 5; i++) {
		__builtin_memcpy(&w, p + 8 * i, 8);
		h = careful_mix(h, CAREFUL_BE64(w));
	}
	__builtin_memcpy(&w, p + 40, 8);
	h = careful_mix(h, CAREFUL_BE64(w) >> 32);
	return (__u32)(h ^ (h >> 32));
}

/* The same over a control message of `bytes` bytes (a multiple of 8); its own field
 * (bytes 4 to 7) taken as 0. */
static inline __u32 careful_message_check(const void *message, __u32 bytes)
{
	const __u8 *p = message;
	__u64 h = 0x63617265666c7932ULL;
	__u64 w;

	__builtin_memcpy(&w, p, 8);
	h = careful_mix(h, CAREFUL_BE64(w) >> 32);
	for (__u32 i = 8; i < bytes; i += 8) {
		__builtin_memcpy(&w, p + i, 8);
		h = careful_mix(h, CAREFUL_BE64(w));
	}
	return (__u32)(h ^ (h >> 32));
}

static inline __u32 careful_ctrl_check(const struct careful_ctrl *ctrl)
{
	return careful_message_check(ctrl, sizeof(*ctrl));
}

#endif /* CAREFUL_CDEF */
#endif /* CAREFUL_WIRE_H */
