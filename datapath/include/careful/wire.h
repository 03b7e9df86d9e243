/* SPDX-License-Identifier: BSD-2-Clause */
/* The only declaration of the wire format: the frame header, the active-message header that opens a
 * message, and the control messages. C and eBPF include this file; the cffi binding and the scapy
 * layer are generated from it. frame.h decides which frames are valid; block.h declares the block
 * service's messages.
 *
 * Layout is naturally aligned, big-endian and padded by name, never packed, because cffi must parse
 * it (it sees the file preprocessed with CAREFUL_CDEF). */
#ifndef CAREFUL_WIRE_H
#define CAREFUL_WIRE_H

#ifndef CAREFUL_CDEF
#include <linux/types.h>
#endif

enum {
	/* Rises with every change that breaks older peers: two versions have no session. */
	CAREFUL_WIRE_VERSION = 7,
	/* Rises with any other change of the format, and restarts at 0 with each version. HELLO and
	 * WELCOME carry it. A session uses the lower of the two ends' numbers, and neither end
	 * sends anything newer. */
	CAREFUL_WIRE_MINOR = 0,
	CAREFUL_WIRE_SEALED = 0x80 | CAREFUL_WIRE_VERSION, /* version of a sealed frame; below */
	/* Default UDP port of frames (XDP) and control messages (kernel socket). */
	CAREFUL_PORT_DEFAULT = 51966,
	/* A type with this bit is a control message, which XDP passes. */
	CAREFUL_CTRL_BIT = 0x80,
	CAREFUL_NAME_BYTES = 32,
	CAREFUL_AM_ARGS = 4,
	CAREFUL_DIGEST_BYTES = 8,
	CAREFUL_KEY_BYTES = 32,
	CAREFUL_PACKED_MAX = 16, /* messages in one frame */
};

enum careful_type {
	CAREFUL_DATA = 1, /* one fragment of a message */
	CAREFUL_UPDATE = 2, /* only a window update: no payload */
	CAREFUL_PING = 3, /* the stage named by stage_limit answers */
	CAREFUL_TRAIN = 4, /* frame of a train, or a group's probe: XDP notes and drops it */
	CAREFUL_ACK = 5, /* traditional: received or wanted numbers; below */

	/* Asks for a session or a new epoch. In every version a HELLO is at least as long as
	 * careful_ctrl, with the same fields up to nonce, so that a peer of another version can
	 * REFUSE it. */
	CAREFUL_HELLO = 0x80,
	CAREFUL_CHALLENGE = 0x81, /* proves that HELLO's sender has its address */
	CAREFUL_WELCOME = 0x82, /* grants the session */
	CAREFUL_REFUSE = 0x83, /* refuses the session and says why; its format never changes */
	CAREFUL_SYNC = 0x84, /* the sender's counts; asks for the peer's */
	CAREFUL_SYNC_ACK = 0x85, /* answers SYNC */
	CAREFUL_GONE = 0x86, /* answers a SYNC of an unknown session */
	CAREFUL_BYE = 0x87, /* the sender closes the session */
	CAREFUL_PING_ANSWER = 0x88, /* answers a ping: struct careful_ping_answer */
	CAREFUL_TRAIN_ASK = 0x89, /* asks the peer for a train */
	CAREFUL_TRAIN_SENT = 0x8a, /* answers TRAIN_ASK: this many frames have left */
	CAREFUL_TRAIN_OVER = 0x8b, /* no more trains: data may start */
	CAREFUL_MISSING = 0x8c, /* names frames to send again, each under its number */
};

/* Stages of a host (P1 section 2), in path order. Pings' stage limits and the probes of trace.h use
 * these numbers. A ping can end at NET_RX or a later stage (P1 section 6). A ping to NET_RX is
 * outside the session: it has no sequence number and costs no credit; XDP stamps and passes it, or
 * drops it, and never redirects it. A ping to a later stage is in sequence and costs credits like
 * data. Each end has one ping in flight per session; msg_id numbers them from 1 in each epoch, so
 * that none is answered twice. */
enum careful_stage {
	CAREFUL_STAGE_HOST_TX = 0, /* application memory or file to UMEM, header included */
	CAREFUL_STAGE_NET_TX = 1, /* UMEM to wire: the kick */
	CAREFUL_STAGE_NET_RX = 2, /* wire to UMEM; for a ping: arrival at XDP */
	/* RX ring to the destination; for a ping: the engine, after the CRC check */
	CAREFUL_STAGE_HOST_RX = 3,
	CAREFUL_STAGE_STORE = 4, /* UMEM to file; for a ping: to a scratch file */
	CAREFUL_STAGES = 5,
};

/* A train measures the burst that the path can take: frames back to back, as if whole windows were
 * sent. TRAIN_ASK says whether they fill a receive buffer or are as small as possible. The end that
 * grants a window asks for trains towards itself before the first data of an epoch, and its XDP
 * counts them. Like pings to NET_RX, trains are outside the session. msg_id: the train, as asked
 * for; frag_off: the frame's index. A peer that does not know trains drops the frames and does not
 * answer the question. */
enum {
	CAREFUL_TRAIN_FRAMES = 4096, /* most frames of a train */
};

/* The protocol of a session; both ends must use the same one (careful_ctrl).
 *
 * CAREFUL: a frame is sent once, and only into a buffer that waits for it (P2 section 5.3).
 *
 * TRADITIONAL (P2 section 5.2): a frame is sent when ready, kept until known to have arrived, and
 * sent again under its number when the receiver asks. Numbers may arrive late, twice or never. An
 * ACK frame has no number of its own: seq is the last number that its sender used. Its body is a
 * bitmap: bit 0 of byte 0 is the number after `credits`. With CAREFUL_F_ASK a set bit is a number
 * wanted again, and msg_id numbers the question; frames sent after all the wanted ones carry msg_id
 * in `extra`. Without the flag a set bit is a number that has arrived, and msg_bytes is the number
 * of free buffers. */
enum careful_protocol {
	CAREFUL_PROTOCOL_CAREFUL = 0,
	CAREFUL_PROTOCOL_TRADITIONAL = 1,
};

/* Added to careful_ctrl.terms.protocol: the sender repairs losses. */
enum { CAREFUL_SAYS_REPAIRS = 0x100 };

/* Flags of DATA frames; ACK frames may have the last one, other types none (frame.h). */
enum {
	CAREFUL_F_FIRST = 0x01, /* struct careful_am precedes the payload */
	CAREFUL_F_LAST = 0x02, /* last fragment of its message */
	CAREFUL_F_BULK = 0x04, /* payload_crc covers only careful_am */
	CAREFUL_F_DIGEST = 0x08, /* the last fragment ends in the payload's XXH3 (8 bytes) */
	CAREFUL_F_BCAST_EVENT = 0x10, /* P2 section 5.1: one frame to a group; below */
	CAREFUL_F_LARGE_EVENT = 0x20, /* reserved; careful_am has this flag instead */
	CAREFUL_F_ABORT = 0x40, /* the sender cannot continue; payload: a positive errno, __be32 */
	CAREFUL_F_ASK = 0x80, /* traditional: asks for an ACK frame */
};

/* A frame to a group (CAREFUL_F_BCAST_EVENT) reaches all members, if one link joins them. The
 * sender chose the cookie and told each member in its session with that member; src_node, queue and
 * seq are 0. In each of these sessions the frame has a number and is charged to the window. The
 * numbers come before the rest of the body, one __be16 (modulo 2^16) for each member in rank order;
 * msg_bytes counts the members. credits is cumulative and counts only what the group's frames
 * return. Each frame adds the least that any member is owed (P2 section 5.3). The first 16 members
 * by rank get what they are owed beyond that in 4 bits each: the first 8 in msg_id (lowest bits
 * first), the others in frag_off. A member that missed the frame gets it again in the session, with
 * the same flag: msg_bytes is 0 there, frag_off what the frame added for all, msg_id what it added
 * for this member. A TRAIN frame to a group is a probe: it has no number and costs no credit;
 * msg_id is the probe's number, from 1. XDP admits group frames only from their sender's address. A
 * member that forges that address ends only its victim's session with the sender. */

/* The frame header, after UDP.
 *
 * @version:      CAREFUL_WIRE_VERSION, or CAREFUL_WIRE_SEALED
 * @type:         enum careful_type, without CAREFUL_CTRL_BIT
 * @flags:        CAREFUL_F_*
 * @stage_limit:  PING: the stage at which it ends, enum careful_stage; else 0: no limit
 * @src_node:     the slot that the receiver granted to the sender at the handshake
 * @queue:        the receiver's queue, as announced at the handshake
 * @cookie:       the session's epoch, chosen by the receiver
 * @seq:          frame number within the epoch, from 1, modulo 2^32
 * @credits:      receive buffers given back to the receiver of this frame since the epoch began,
 *                and those granted in advance (link/send/reservation.h); cumulative, modulo 2^32.
 *                traditional: all numbers up to this one have arrived
 * @msg_id:       the message; unique among the sender's messages in flight
 * @msg_bytes:    payload of the whole message, without careful_am and digest
 * @frag_off:     offset of this fragment's payload in the message; PING: random, so that its answer
 *                cannot be forged in advance
 * @payload_crc:  CRC32C of what follows the header (CAREFUL_F_BULK: of careful_am); sealed: 0
 * @frag_bytes:   payload of this fragment, without careful_am and digest
 * @extra:        credits that the sender asks for beyond its window, at most what the receiver
 *                grants (careful_ctrl.terms.reserve); traditional: the receiver's last question
 *                that was answered before this frame was sent, from 1, modulo 2^16, never 0 again
 * @check:        careful_hdr_check() of the header with check = 0 */
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
	__be16 extra;
	__be32 check;
};

/* How the frames of a session are sealed. Both ends must use the same setting.
 *
 * In a sealed session each frame with a number, and each ACK, has version CAREFUL_WIRE_SEALED and
 * ends in struct careful_seal_end, which no header field counts. The AEAD covers the header (as it
 * leaves, with its check) and the bytes between: AUTH leaves these readable, ENCRYPT does not.
 * Trains, pings that end at XDP, and frames to a group are not sealed.
 *
 * The keys are the two of Noise's Split() (section 5.2); the first is for the frames of the end
 * that sent HELLO. The nonce is 4 bytes of 0, then `count`. */
enum careful_seal {
	CAREFUL_SEAL_OFF = 0,
	CAREFUL_SEAL_AUTH = 1,
	CAREFUL_SEAL_ENCRYPT = 2,
};

/* AEADs, one bit each: HELLO has the sender's bits, WELCOME the chosen one. */
enum careful_cipher {
	CAREFUL_CIPHER_CHACHA20_POLY1305 = 1, /* RFC 8439 */
	CAREFUL_CIPHER_AES256_GCM = 2, /* preferred; only if the CPU supports it */
};

/* The end of a sealed frame.
 *
 * @count: frames that the sender has sealed in this epoch, including this one; a frame that is sent
 *         again under its number gets a new count */
struct careful_seal_end {
	__be64 count;
	__u8 tag[16];
};

/* The kinds of messages (P4: GAM). */
enum careful_am_kind {
	CAREFUL_AM_REQUEST = 1, /* runs handler; the payload is in this one frame */
	CAREFUL_AM_REPLY = 2, /* answers token: status, args, payload in one frame */
	CAREFUL_AM_STORE = 3, /* puts the payload into region at region_off; a REPLY answers */
	CAREFUL_AM_GET = 4, /* asks for bytes of region from region_off, as GET_DATA */
	CAREFUL_AM_GET_DATA = 5, /* carries the payload for the getter of token */
	CAREFUL_AM_EVENT = 6, /* event service: handler is an enum careful_event_what */
};

/* Flags of careful_am. */
enum {
	CAREFUL_AM_WANT_DIGEST = 0x01, /* GET: the data shall carry a digest */
	CAREFUL_AM_EVENT_LAST = 0x02, /* EVENT: the sender's last fragment of it to this node */
	CAREFUL_AM_EVENT_CROWD = 0x04, /* EVENT: all others send to this node, too */
	CAREFUL_AM_EVENT_LARGE = 0x08, /* EVENT: one of several fragments */
	CAREFUL_AM_ALONE = 0x10, /* REQUEST, REPLY: shares its frame with no other message */
};

/* The kinds of EVENT (P2 section 5.1; careful/event.h). An EVENT of another group is dropped. A
 * node that opens a group sends JOIN to each other node until that node's JOIN arrives; a JOIN that
 * names no part of the receiver is answered with one. Fragments go to nodes that have joined. Each
 * time a node joins, its part has a new number. If a node still knows the old part and did not hear
 * of its end, the group has failed for that node. */
enum careful_event_what {
	CAREFUL_EVENT_FRAGMENT = 0, /* the payload is a piece of a message */
	/* args: the sender's rank, nodes of the group, number of the receiver's part (0: unknown),
	 * high word of a cookie. The cookie is that of the sender's frames to all (0: none), and
	 * its low word is in token. The number of the sender's part, not 0, is in bytes. */
	CAREFUL_EVENT_JOIN = 1,
	CAREFUL_EVENT_LEAVE = 2, /* the sender sends no more fragments */
	/* args: the rank that failed, a positive errno, and 1 if it is LEAVE as well */
	CAREFUL_EVENT_FAIL = 3,
	/* Answers a JOIN with a cookie; args: 0: a probe arrived; an errno: none will. */
	CAREFUL_EVENT_HEARD = 4,
	CAREFUL_EVENT_ONE_BY_ONE = 5, /* frames to all end here, as they do with LEAVE */
	/* Answered when the node leaves. Only in a group by requests (events/requests.c), where all
	 * but JOIN carry the number of the receiver's part in args[3]. */
	CAREFUL_EVENT_STAY = 6,
};

/* Opens a message: precedes the payload of its first fragment. Small messages that wait together
 * for the same receiver share a frame. The next message's careful_am then follows the payload, and
 * the frame's header counts everything after the first careful_am as payload.
 *
 * @kind:        enum careful_am_kind
 * @flags:       CAREFUL_AM_*
 * @handler:     REQUEST: index of the handler; STORE: handler to run when all is in place;
 *               EVENT: enum careful_event_what
 * @token:       the requester's name for the operation; REPLY and GET_DATA return it
 * @region:      STORE, GET: key from the other end's region_add; EVENT: the group
 * @status:      REPLY, GET_DATA: 0 or a positive errno
 * @region_off:  STORE, GET: offset in the region, bytes; EVENT: the event
 * @bytes:       GET: bytes wanted; EVENT: offset of the fragment in its message, bytes
 * @next:        REQUEST, REPLY, GET: bytes from here to the next careful_am in the frame; 0: last
 * @args:        four words for the handler; EVENT: enum careful_event_what */
struct careful_am {
	__u8 kind;
	__u8 flags;
	__be16 handler;
	__be32 token;
	__be32 region;
	__be32 status;
	__be64 region_off;
	__be32 bytes;
	__be32 next;
	__be32 args[CAREFUL_AM_ARGS];
};

/* Reasons to refuse a HELLO (careful_ctrl.refuse.why). */
enum careful_refusal {
	CAREFUL_REFUSED_VERSION = 1, /* another version; `version` is ours */
	/* All P windows are taken, or half of them by this address or key; peers is P. */
	CAREFUL_REFUSED_PEERS = 2,
	CAREFUL_REFUSED_FRAME = 3, /* the announced frames do not fit the window */
	CAREFUL_REFUSED_PROTOCOL = 4, /* the other protocol (careful_protocol) */
	CAREFUL_REFUSED_KEY = 5, /* no trusted key was proved, or keys are not supported */
	CAREFUL_REFUSED_SEAL = 6, /* another sealing (careful_seal) */
	CAREFUL_REFUSED_REPAIR = 7, /* only one end sends lost frames again */
};

/* The questions of a SYNC (careful_ctrl.counts.question). */
enum careful_sync {
	CAREFUL_SYNC_COUNTS = 0, /* the frames sent and received */
	/* The sender needs the window: if nothing is under way in the session, answer BYE. */
	CAREFUL_SYNC_YIELD = 1,
	CAREFUL_SYNC_HEARD = 2, /* only whether the peer hears us: the answer counts nothing */
};

/* A control message: one UDP datagram through the kernel's socket. Its type decides which member of
 * the union is its body; all have the same size. Fields that a type does not use are 0.
 *
 * @version, @type:     as in careful_hdr
 * @bytes:              of the message: sizeof(struct careful_ctrl), or of careful_proved
 * @check:              careful_ctrl_check() of the message with check = 0
 * @nonce:              HELLO: names the attempt; SYNC: names the question; TRAIN_ASK: the train's
 *                      number, below 2^32. Answers echo it
 * @token:              CHALLENGE: proof of address, which the second HELLO echoes; HELLO of a new
 *                      epoch: cookie of the sender's frames in the old one
 * @cookie:             HELLO, WELCOME: cookie for the other end's frames to us; SYNC, SYNC_ACK,
 *                      MISSING, BYE, TRAIN_*: cookie of the sender's frames; GONE: the question's
 * @incarnation:        random, drawn when the sender started
 * @slot, @queue:       HELLO, WELCOME: src_node and queue for the other end's frames to us;
 *                      CHALLENGE: our queue that the asker must use; its port is higher by as much
 * @terms:              HELLO with a token, WELCOME:
 *   @window:           credits for the other end, buffers
 *   @buffer_bytes:     bytes of a frame that one of our buffers holds
 *   @frame_bytes:      largest frame that we accept, Ethernet header included
 *   @protocol:         the sender's enum careful_protocol, and CAREFUL_SAYS_REPAIRS
 *   @seal, @cipher:    enum careful_seal; enum careful_cipher if frames are sealed
 *   @reserve:          buffers that may be granted beyond all windows
 *   @lost:             frames between the two processes that the sender found lost
 *   @hold_ms:          longest time that the other end shall hold its data back for trains
 *   @name, @minor:     the sender's name, NUL-padded; its CAREFUL_WIRE_MINOR
 * @opening:            HELLO without a token, CHALLENGE:
 *   @queues:           bit set: HELLO: the sender's queues that may be used; CHALLENGE: those that
 *                      reach our queue; 0: no change
 *   @challenges:       CHALLENGE: how many its sender has sent; shows if a later one overtook it
 * @refuse:             REFUSE: @why: enum careful_refusal; @peers: windows that the sender has
 * @counts:             SYNC, SYNC_ACK, of this epoch:
 *   @question:         SYNC: enum careful_sync
 *   @in_device:        SYNC_ACK: 1: frames of seq_sent may wait in the sender's device, not lost
 *   @seq_sent, @seq_rcvd: frames sent, and received in order
 *   @returned:         buffers given back, as careful_hdr.credits; @withheld: credits held back
 * @train:              TRAIN_ASK, TRAIN_SENT: @frames: wanted, or sent. TRAIN_ASK: @smallest: 1:
 *                      smallest frames; 0: frames that fill a buffer; @hold_ms: as in terms
 * @missing:            MISSING: the numbers after @before, up to @last. @arrived: a bit for each,
 *                      the lowest first: 1: it has arrived. @seq_rcvd: as in counts */
struct careful_ctrl {
	__u8 version, type;
	__be16 bytes;
	__be32 check;
	__be64 nonce, token, cookie, incarnation;
	__be16 slot, queue;
	union {
		struct careful_terms {
			__be32 window, buffer_bytes, frame_bytes, protocol, seal, cipher, reserve;
			__be32 lost, hold_ms;
			__u8 name[CAREFUL_NAME_BYTES - 1], minor;
		} terms;
		struct careful_opening {
			__be32 queues, unused[3], challenges, unused2[12];
		} opening;
		struct careful_refuse {
			__be32 peers, unused[2], why, unused2[13];
		} refuse;
		struct careful_counts {
			__be32 withheld, unused[2];
			union {
				__be32 question, in_device;
			};
			__be32 seq_sent, seq_rcvd, returned, unused2[10];
		} counts;
		struct careful_train {
			__be32 frames, unused, smallest, unused2[5], hold_ms, unused3[8];
		} train;
		struct careful_missing {
			__be32 before, unused[3], last, seq_rcvd, unused2[3];
			__u8 arrived[CAREFUL_NAME_BYTES - 1], unused3;
		} missing;
	};
};

/* The HELLO with a token, and WELCOME, between hosts with keys: the two messages of
 * Noise_KKpsk0_25519_ChaChaPoly_SHA256. The prologue is "careful", version, nonce and token (both
 * times the HELLO's). No cookie is sent: the cookie of frames to the sender of HELLO derives from
 * the chaining key after the first message, the other cookie from the one after the second
 * (link/peer/keyed.c).
 *
 * @version, @type, @nonce, @token: as in careful_ctrl
 * @bytes:     sizeof(struct careful_keyed)
 * @check:     as in careful_ctrl
 * @mac:       first bytes of the HMAC-SHA256 of the whole message with check and mac 0; both static
 *             keys determine its key. A message from a stranger costs no more than this check.
 * @ephemeral: the message's public key
 * @sealed:    careful_ctrl from incarnation on, encrypted, and its tag */
enum {
	CAREFUL_SEALED_BYTES = 80,
	CAREFUL_TAG_BYTES = 16,
};

struct careful_keyed {
	__u8 version;
	__u8 type;
	__be16 bytes;
	__be32 check;
	__be64 nonce;
	__be64 token;
	__u8 mac[CAREFUL_TAG_BYTES];
	__u8 ephemeral[CAREFUL_KEY_BYTES];
	__u8 sealed[CAREFUL_SEALED_BYTES + CAREFUL_TAG_BYTES];
};

/* All other messages between hosts with keys carry a proof, too; a message without a valid mac is
 * ignored. Only a REFUSE may come without proof, from a peer without a key or of another version.
 * It counts when repeated HELLOs got no other answer.
 *
 * @ctrl:  as without keys, except for `bytes`; its check covers ctrl alone
 * @count: messages that the sender has proved in this epoch, including this one; 0: HELLO,
 *         CHALLENGE, GONE, REFUSE, of which the last three echo the question's nonce
 * @mac:   first bytes of the HMAC-SHA256 of all before it. The key derives from the handshake, one
 *         for each direction (link/peer/keyed.c). If count is 0, it derives from both static keys, and
 *         the MAC also covers the sender's public key */
struct careful_proved {
	struct careful_ctrl ctrl;
	__be64 count;
	__u8 mac[CAREFUL_TAG_BYTES];
};

/* Destination of pings to STORE. */
enum careful_scratch {
	CAREFUL_SCRATCH_NONE = 0, /* none: pings end at HOST_RX */
	CAREFUL_SCRATCH_FILE = 1, /* an unnamed file in an exported directory */
	CAREFUL_SCRATCH_MEMORY = 2, /* a memfd: nothing is exported for writing */
};

/* The answer to a ping: a control message, so that it takes no receive buffer. It goes to the
 * session's peer, wherever the probe came from, and is never larger than the probe. Times are in
 * ns, by the answering host's clock.
 *
 * @version, @type, @bytes, @check: as in careful_ctrl
 * @cookie:      cookie of the answering host's frames to the prober. With keys a proof instead: the
 *               first bytes of the HMAC-SHA256 of the answer with check and cookie 0, then the
 *               probe's frag_off; the key is careful_proved's
 * @arrived_ns:  its monotonic clock when XDP saw the probe
 * @probe:       the probe's msg_id
 * @host_rx_ns:  from arrived_ns until the engine had the probe
 * @store_ns:    from arrived_ns until the probe was written
 * @turn_ns:     from the end of the probe's last stage until the answer left
 * @stage:       the last stage, enum careful_stage
 * @scratch:     enum careful_scratch
 * @net_cpu, @host_cpu: CPU of XDP and of the engine
 * @store_inline: 1: the write ended within the engine's thread */
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

/* The probe service (P1 section 5.3.2): a request to this handler, with any payload, is answered at
 * once and without payload. Reply: args[0] and args[1], high and low, are the answering host's
 * monotonic clock when its handler ran, ns.
 *
 * A train is timed on arrival, because an answer to each frame would be work for both ends. args[0]
 * is its number (not 0), args[1] a frame's index, from 0. Only the last frame wants a reply, whose
 * payload is a __be64 for each frame, the clock as above. EAGAIN: another train came between; there
 * can be one at a time. */
enum careful_probe_handler {
	CAREFUL_PROBE = 160,
	CAREFUL_PROBE_FRAMES = 400, /* most frames of a train */
};

/* Arrivals of the requester's frames, for a measurement under traffic: the space between frames
 * that queued at the bottleneck is its g + G·bytes (P1 section 5.3.2), whatever they carry.
 *
 * args[0] is 0: the host records the next frames of the requester (abi.h), from number args[0] of
 * the reply on. EBUSY: it records another peer. Else args[0] is 1 + the number of an arrival; the
 * reply has the arrivals from there on, as many as fit, each a struct careful_arrival in network
 * byte order. Its args[0] is the number of all so far, and args[1] that of the first in the
 * payload: the host keeps the last CAREFUL_ARRIVALS_MAX. ENOENT: nothing of the requester is
 * recorded. */
enum careful_arrivals_handler {
	CAREFUL_ARRIVALS = 161,
	CAREFUL_ARRIVALS_MS = 2000, /* without a question for this long, another peer may record */
	CAREFUL_ARRIVALS_MORE = 1 << 16, /* recorded after a question */
};

/* Memory for measuring stores and gets (P4, `Bulk-transfer microbenchmark`). In the reply, args[0]
 * is a region's key and args[1] its bytes. Any peer may write there at any time. */
enum careful_scratch_handler {
	CAREFUL_SCRATCH = 168,
};

/* Asks for quiet during a measurement. The sender is about to compare the modes of its interface,
 * in epochs of their own. args[0]: duration in ms; 0: it is over. args[1], args[2]: the sender's
 * ticket, high and low. Answer 0: nothing is under way from here to the sender, and nothing begins
 * until the measurement is over or that time has passed. EBUSY: something is under way, or this
 * host measures; if both ask at once, the larger ticket is granted. */
enum careful_trial_lock_handler {
	CAREFUL_TRIAL_LOCK = 176,
	CAREFUL_TRIAL_LOCK_MS = 3000, /* upper limit of the duration */
};

#ifndef CAREFUL_CDEF

_Static_assert(sizeof(struct careful_hdr) == 48, "careful_hdr is 48 bytes");
_Static_assert(sizeof(struct careful_am) == 48, "careful_am is 48 bytes");
_Static_assert(sizeof(struct careful_seal_end) == 24, "careful_seal_end is 24 bytes");
_Static_assert(sizeof(struct careful_ctrl) == 112, "careful_ctrl is 112 bytes");
_Static_assert(sizeof(struct careful_terms) == 68 && sizeof(struct careful_opening) == 68 &&
		       sizeof(struct careful_refuse) == 68 && sizeof(struct careful_counts) == 68 &&
		       sizeof(struct careful_train) == 68 && sizeof(struct careful_missing) == 68,
	       "whoever initializes a body sets all its bytes");
_Static_assert(sizeof(struct careful_proved) == 136, "careful_proved is 136 bytes");
_Static_assert(sizeof(struct careful_keyed) == 168, "careful_keyed fits the smallest MTU");
_Static_assert(__builtin_offsetof(struct careful_ctrl, incarnation) + CAREFUL_SEALED_BYTES == 112,
	       "what is sealed of careful_ctrl");
_Static_assert(sizeof(struct careful_ping_answer) <= sizeof(struct careful_hdr),
	       "an answer is never larger than its probe");

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define CAREFUL_BE16(x) __builtin_bswap16(x)
#define CAREFUL_BE32(x) __builtin_bswap32(x)
#define CAREFUL_BE64(x) __builtin_bswap64(x)
#else
#define CAREFUL_BE16(x) (x)
#define CAREFUL_BE32(x) (x)
#define CAREFUL_BE64(x) (x)
#endif

static inline __u64 careful_mix(__u64 h, __u64 word)
{
	/* A bijection of h for a given word, and of word for a given h, so that a change within one
	 * word always shows in h. */
	h = (h ^ word) * 0x9e3779b97f4a7c15ULL;
	return h ^ (h >> 29);
}

/* Computes the 32-bit check of the header, with its own field taken as 0. Plain 64-bit arithmetic,
 * so that BPF computes the same. The check finds accidents, not attacks: strangers do not know the
 * cookie. */
static inline __u32 careful_hdr_check(const void *hdr)
{
#ifdef __bpf__ /* BPF would read byte by byte */
	const __u8 *p = __builtin_assume_aligned(hdr, 8);
#else
	const __u8 *p = hdr;
#endif
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

/* Computes the check of a control message of `bytes` bytes (a multiple of 8), with its own field
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
