/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The wire format, whole: the frame header, the active-message header that
 * opens a message, and the control messages. The only declaration of each: C and
 * eBPF include it, the cffi binding and the scapy layer are generated from it.
 * Which frames are right is frame.h's; what the block service puts into messages, block.h's.
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
	/* Raised by what the other end must know: two with different ones have no session. */
	CAREFUL_WIRE_VERSION = 7,
	/* Raised by any other change of what is said, and 0 again with each new version. HELLO and
	 * WELCOME tell it: a session has the lesser of both, and nobody says in it what is newer. */
	CAREFUL_WIRE_MINOR = 0,
	CAREFUL_WIRE_SEALED = 0x80 | CAREFUL_WIRE_VERSION, /* of a sealed frame; below */
	/* Default UDP port of frames (XDP) and of control (kernel socket). */
	CAREFUL_PORT_DEFAULT = 51966,
	/* A type with this bit set is a control message: XDP passes it. */
	CAREFUL_CTRL_BIT = 0x80,
	CAREFUL_NAME_BYTES = 32,
	CAREFUL_AM_ARGS = 4,
	CAREFUL_DIGEST_BYTES = 8,
	CAREFUL_KEY_BYTES = 32,
	CAREFUL_PACKED_MAX = 16, /* messages in one frame */
};

enum careful_type {
	CAREFUL_DATA = 1, /* one fragment of a message */
	CAREFUL_UPDATE = 2, /* a window update alone: no payload; it may name missing frames, too */
	CAREFUL_PING = 3, /* the stage that stage_limit names answers */
	CAREFUL_TRAIN = 4, /* one of a train, or a group's probe: XDP notes it and drops it */
	CAREFUL_ACK = 5, /* traditional: what has come, or is wanted again; below */

	/* Asks for a session, or for a new epoch of it. Of every version: no smaller than
	 * careful_ctrl, and as that up to nonce, so that whoever speaks another one can REFUSE it. */
	CAREFUL_HELLO = 0x80,
	CAREFUL_CHALLENGE = 0x81, /* shows that HELLO's sender is where it says */
	CAREFUL_WELCOME = 0x82, /* grants the session */
	CAREFUL_REFUSE = 0x83, /* does not; says why. Never changes format. */
	CAREFUL_SYNC = 0x84, /* "I sent up to s, I gave back n": the same of you? */
	CAREFUL_SYNC_ACK = 0x85, /* the answer */
	CAREFUL_GONE = 0x86, /* the answer where that session does not exist */
	CAREFUL_BYE = 0x87, /* the sender closes the session */
	CAREFUL_PING_ANSWER = 0x88, /* to a ping: struct careful_ping_answer */
	CAREFUL_TRAIN_ASK = 0x89, /* asks the other end for a train */
	CAREFUL_TRAIN_SENT = 0x8a, /* the answer: so much of it has left */
	CAREFUL_TRAIN_OVER = 0x8b, /* no more trains: data may go */
	CAREFUL_MISSING = 0x8c, /* names frames to be sent again, each under its number */
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

/*
 * A train shows what burst the path takes: frames as large as one receive buffer holds, or as
 * small as can be (TRAIN_ASK says which), back to back, as if windows were sent whole. Whoever
 * grants a window asks for trains towards itself, before the first data of an epoch, and its
 * XDP counts them. They stand outside the session, as a ping of NET_RX does. msg_id: the train,
 * as asked for; frag_off: the frame's index. Who does not know trains drops the frames and
 * leaves the question unanswered.
 */
enum {
	CAREFUL_TRAIN_FRAMES = 4096, /* of one, at most */
};

/*
 * The protocols that a session can follow; both of its ends have the same one (careful_ctrl).
 *
 * CAREFUL: a frame is sent only into a buffer that waits for it, and once (P2 section 5.3).
 *
 * TRADITIONAL (P2 section 5.2): a frame is sent when it is ready, kept until it is known to
 * have come, and sent again, under its number, when the receiver asks. Numbers may come late,
 * twice or not at all. An ACK frame has no number of its own: its seq is the last one that its
 * sender gave, and its body is a bitmap: bit 0 of byte 0 is the number after `credits`. With
 * CAREFUL_F_ASK a set bit is a number that is wanted again, and msg_id numbers the question;
 * frames sent after all that it wanted carry it in `extra`. Without, a set bit is a number
 * that has come, and msg_bytes is the buffers that are left for more.
 */
enum careful_protocol {
	CAREFUL_PROTOCOL_CAREFUL = 0,
	CAREFUL_PROTOCOL_TRADITIONAL = 1,
};

/* Beside the protocol in careful_ctrl.status of HELLO and WELCOME: lost frames are sent again. */
enum { CAREFUL_SAYS_REPAIRS = 0x100 };

/* Flags of a DATA frame, and of an ACK frame the last; the other types have none (frame.h). */
enum {
	CAREFUL_F_FIRST = 0x01, /* struct careful_am stands before the payload */
	CAREFUL_F_LAST = 0x02, /* last fragment of its message */
	CAREFUL_F_BULK = 0x04, /* payload_crc covers careful_am alone, not the payload */
	CAREFUL_F_DIGEST = 0x08, /* the last fragment ends in the payload's XXH3 (8 bytes) */
	CAREFUL_F_BCAST_EVENT = 0x10, /* P2 section 5.1: one frame to a group; below */
	CAREFUL_F_LARGE_EVENT = 0x20, /* reserved; careful_am has it */
	CAREFUL_F_ABORT = 0x40, /* the sender cannot go on; payload: a positive errno, __be32 */
	CAREFUL_F_ASK = 0x80, /* traditional: an ACK frame is wanted */
};

/*
 * A frame to a group (CAREFUL_F_BCAST_EVENT) reaches all of its members, where one link joins
 * them. Its sender chose the cookie, and told it to each member through their session; src_node
 * and queue are 0. seq is of the group, from 1. Each member's window is charged with it, as with a
 * frame of the session. credits are those that the group's frames have given back, cumulative: each
 * frame adds the least that is owed to any member (P2 section 5.3), and no frame of the
 * session counts them. What is owed beyond to one of the first 16 members, in the order of their
 * ranks, is in 4 bits of msg_id (the first 8; the lowest are the first's) or frag_off. A TRAIN
 * frame to a group is a probe: it has no seq, and costs no credit; msg_id is its number, from 1.
 * XDP admits them from their sender's address alone. A member that forges it can send in the
 * sender's name: that ends the session of these two, and no other.
 */

/*
 * The frame header, after UDP.
 *
 * @version:      CAREFUL_WIRE_VERSION, or CAREFUL_WIRE_SEALED
 * @type:         enum careful_type, without CAREFUL_CTRL_BIT
 * @flags:        CAREFUL_F_*
 * @stage_limit:  PING: the stage at which it ends, enum careful_stage; else 0: no limit
 * @src_node:     the slot that the receiver granted to the sender at the handshake
 * @queue:        the receiver's queue, as announced at the handshake
 * @cookie:       the session's epoch, chosen by the receiver
 * @seq:          frame number within the epoch, from 1, modulo 2^32
 * @credits:      receive buffers given back to the receiver of this frame since
 *                the epoch began, cumulative, modulo 2^32, and before that what was granted
 *                (link/reserve.h); traditional: all numbers up to this one have come
 * @msg_id:       the message; unique among the sender's messages in flight; UPDATE: the number
 *                before the first that is named
 * @msg_bytes:    payload of the whole message, without careful_am and digest; UPDATE: so many
 *                numbers are named, at most 32
 * @frag_off:     UPDATE: a bit for each of these, the lowest first: 1: it has come; else where this fragment's payload stands in it; PING: random, so that no answer to it
 *               can be had before it is asked
 * @payload_crc:  CRC32C of what follows the header (CAREFUL_F_BULK: of careful_am); sealed: 0
 * @frag_bytes:   payload of this fragment, without careful_am and digest
 * @extra:        credits that the sender asks for beside its window, as far as the receiver has
 *                said that it grants any (careful_ctrl.returned); traditional: the receiver's
 *                last question that was answered before this frame was sent, from 1, modulo
 *                2^16, never 0 again
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
	__be16 extra;
	__be32 check;
};

/*
 * How the frames of a session are sealed. Both ends say the same, or there is no session.
 *
 * Of a sealed session each frame that has a number, and each ACK, is CAREFUL_WIRE_SEALED, and what
 * follows its header ends in struct careful_seal_end, which no field of the header counts. An AEAD
 * of the header (as it leaves, with its check) and of what is between: AUTH leaves that readable,
 * ENCRYPT does not. Trains, and pings that end at XDP, stand outside the session and are not
 * sealed; nor is anything sent to a group.
 *
 * The keys are the two of Noise's Split() (section 5.2), the first for the frames of who said
 * HELLO; the nonce is 0 in its first 4 bytes and `count` in the rest.
 */
enum careful_seal {
	CAREFUL_SEAL_OFF = 0,
	CAREFUL_SEAL_AUTH = 1,
	CAREFUL_SEAL_ENCRYPT = 2,
};

/* AEADs, a bit each: HELLO says which its sender has, WELCOME the one that is taken. */
enum careful_cipher {
	CAREFUL_CIPHER_CHACHA20_POLY1305 = 1, /* RFC 8439 */
	CAREFUL_CIPHER_AES256_GCM = 2, /* wanted first: only where the CPU has it */
};

/*
 * The end of a sealed frame.
 *
 * @count: frames that its sender has sealed in this epoch, this one included: another one each
 *         time, also where a frame is sent again under its number
 */
struct careful_seal_end {
	__be64 count;
	__u8 tag[16];
};

/* What a message is, and what its first fragment asks the receiver to do (P4: GAM). */
enum careful_am_kind {
	CAREFUL_AM_REQUEST = 1, /* run handler; payload in this one frame */
	CAREFUL_AM_REPLY = 2, /* answers token: status, args, payload in one frame */
	CAREFUL_AM_STORE = 3, /* payload goes to region at region_off, then a REPLY */
	CAREFUL_AM_GET = 4, /* send bytes of region from region_off as GET_DATA */
	CAREFUL_AM_GET_DATA = 5, /* payload goes where the getter of token wants it */
	CAREFUL_AM_EVENT =
		6, /* of the event service: what handler says, of enum careful_event_what */
};

/* Flags of careful_am. */
enum {
	CAREFUL_AM_WANT_DIGEST = 0x01, /* GET: let the data carry a digest */
	CAREFUL_AM_EVENT_LAST = 0x02, /* EVENT: the sender's last fragment of it to this node */
	CAREFUL_AM_EVENT_CROWD = 0x04, /* EVENT: all others send to this node, too */
	CAREFUL_AM_EVENT_LARGE = 0x08, /* EVENT: of several fragments */
	CAREFUL_AM_ALONE = 0x10, /* REQUEST, REPLY: it shares its frame with no other */
};

/*
 * What an EVENT is (P2 section 5.1; careful/event.h). Those of another group are dropped.
 * Whoever opens a group says JOIN to each of the others until it has heard one from there; a
 * JOIN that says that none was heard is answered by one. Fragments follow to who has joined. A
 * part that ended, and was begun anew, has another number: to whoever knows the one before, and
 * was not told of its end, the group has failed.
 */
enum careful_event_what {
	CAREFUL_EVENT_FRAGMENT = 0, /* the payload is a piece of a message */
	/* args: the sender's rank, nodes of the group, the number of the receiver's part where that
	 * was heard, else 0; the cookie of its frames to all, high, and in token low; 0: it sends
	 * none. bytes: the number of its part, not 0 */
	CAREFUL_EVENT_JOIN = 1,
	/* No more fragments come from the sender; args: the frames to groups that left there in
	 * this epoch. */
	CAREFUL_EVENT_LEAVE = 2,
	CAREFUL_EVENT_FAIL = 3, /* args: the rank that failed, a positive errno, 1: and LEAVE */
	/* To who said JOIN with a cookie: args: 0: a probe with it came; else (errno): none will. */
	CAREFUL_EVENT_HEARD = 4,
	CAREFUL_EVENT_ONE_BY_ONE = 5, /* no more frames to all come; nor after LEAVE */
	/* Of a group by requests (events/requests.c), where all but JOIN has the number of
	 * the receiver's part in args[3]: answered when the node leaves. */
	CAREFUL_EVENT_STAY = 6,
};

/*
 * Opens a message: stands before the payload of its first fragment. Messages of one frame each that
 * wait together for the same receiver share a frame: then the next one's stands behind the payload,
 * and all but the first count as payload in the frame's header.
 *
 * @kind:        enum careful_am_kind
 * @flags:       CAREFUL_AM_*
 * @handler:     REQUEST: index of the handler; STORE: handler run when all is in place;
 *               EVENT: enum careful_event_what
 * @token:       the requester's name for the operation; REPLY and GET_DATA return it
 * @region:      STORE, GET: key that the other end's region_add gave; EVENT: the group
 * @status:      REPLY, GET_DATA: 0 or a positive errno
 * @region_off:  STORE, GET: where in the region, bytes; EVENT: the event
 * @bytes:       GET: how many; EVENT: where in its message the fragment stands, bytes
 * @next:        REQUEST, REPLY, GET: bytes from here to the next one's in the frame; 0: none
 *               follows
 * @args:        four words for the handler; EVENT: enum careful_event_what
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
	__be32 next;
	__be32 args[CAREFUL_AM_ARGS];
};

/* Why a HELLO is refused (careful_ctrl.status). */
enum careful_refusal {
	CAREFUL_REFUSED_VERSION = 1, /* version says which one is spoken here */
	/* All P windows are taken, or half of them by this address, or key; window says P. */
	CAREFUL_REFUSED_PEERS = 2,
	CAREFUL_REFUSED_FRAME = 3, /* the frames announced don't fit the window */
	CAREFUL_REFUSED_PROTOCOL = 4, /* another one is spoken here (careful_protocol) */
	CAREFUL_REFUSED_KEY =
		5, /* no key that is trusted here was proved; or keys are not spoken */
	CAREFUL_REFUSED_SEAL = 6, /* frames are sealed otherwise here, or not (careful_seal) */
	CAREFUL_REFUSED_REPAIR = 7, /* lost frames are sent again here alone, or there alone */
};

/* What a SYNC asks (careful_ctrl.status). */
enum careful_sync {
	CAREFUL_SYNC_COUNTS = 0, /* what was sent and received */
	/* Its window is wanted: if nothing is under way in the session, a BYE is the answer. */
	CAREFUL_SYNC_YIELD = 1,
	/* Whether it is heard: the answer comes at once, and counts frames to groups alone. */
	CAREFUL_SYNC_HEARD = 2,
};

/*
 * A control message: one UDP datagram through the kernel's socket. One layout
 * for all; a field that a type does not name is 0.
 *
 * @version, @type:     as in careful_hdr
 * @bytes:              of the message: sizeof(struct careful_ctrl), or of careful_proved
 * @check:              careful_ctrl_check() of the message with check = 0
 * @nonce:              HELLO: names the attempt, echoed by CHALLENGE, WELCOME and
 *                      REFUSE; SYNC: names the question, echoed by SYNC_ACK and GONE;
 *                      TRAIN_ASK: the train's number, below 2^32, echoed by TRAIN_SENT
 * @token:              CHALLENGE: proof of address, echoed in the second HELLO; in the
 *                      HELLO of a new epoch the cookie of the sender's frames in the old
 * @cookie:             HELLO, WELCOME: what the other end puts on its frames to us;
 *                      SYNC, SYNC_ACK, MISSING, BYE, TRAIN_*: the cookie that the sender puts on
 *                      its frames; GONE: that of the question
 * @incarnation:        random, drawn when the sender started
 * @slot:               HELLO, WELCOME: src_node of the other end's frames to us
 * @queue:              HELLO, WELCOME: queue of the other end's frames to us; CHALLENGE: that of
 *                      ours which the asker is to use: its port is as much higher
 * @window:             HELLO, WELCOME: credits that the other end gets, buffers; a HELLO without
 *                      token: of which of its queues the sender may use any, a bit each;
 *                      CHALLENGE: of those, such as reach our queue; 0: ask on as you did;
 *                      TRAIN_ASK: frames wanted, TRAIN_SENT: that left; MISSING: the number before
 *                      the first that is named
 * @buffer_bytes:       HELLO, WELCOME: bytes of a frame that one of our buffers holds; SYNC,
 *                      SYNC_ACK: frames to groups sent to the other end in this epoch
 * @frame_bytes:        HELLO, WELCOME: largest frame we take, Ethernet header included;
 *                      TRAIN_ASK: 1: frames as small as can be; 0: as fill a buffer; SYNC,
 *                      SYNC_ACK: frames to groups received from it in this epoch
 * @status:             HELLO, WELCOME: the sender's protocol, enum careful_protocol, and
 *                      CAREFUL_SAYS_REPAIRS; REFUSE:
 *                      enum careful_refusal; SYNC: enum careful_sync; SYNC_ACK: 1 while frames
 *                      counted in seq_sent may wait in the sender's device: it proves no loss;
 *                      2 to CAREFUL_SYNC_HEARD: seq_rcvd are frames to a group
 * @seq_sent:           SYNC, SYNC_ACK: frames sent in this epoch, but to groups; MISSING: the last
 *                      number that is named; HELLO, WELCOME: enum
 *                      careful_seal; CHALLENGE: how many its sender has sent, so that one that is
 *                      overtaken is known
 * @seq_rcvd:           SYNC, SYNC_ACK: frames received in their order in this epoch, but to
 *                      groups; MISSING: the same; HELLO, WELCOME: enum
 *                      careful_cipher where frames are sealed
 * @returned:           SYNC, SYNC_ACK: buffers given back in this epoch, as careful_hdr.credits;
 *                      HELLO, WELCOME: buffers that may be granted beside all windows
 * @lost:               HELLO, WELCOME: frames between the two processes that the sender
 *                      found lost so far
 * @hold_ms:            HELLO, WELCOME: for how long at most the other end is to hold its
 *                      data back, for trains are asked for first; 0: not at all
 * @name:               HELLO, WELCOME: the sender's name, NUL-padded; MISSING: a bit for each
 *                      number that is named, the lowest first: 1: it has come
 * @minor:              HELLO, WELCOME: the sender's CAREFUL_WIRE_MINOR; of 6.0 the name's last
 *                      byte, which was 0
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
	__be32 hold_ms;
	__u8 name[CAREFUL_NAME_BYTES - 1];
	__u8 minor;
};

/*
 * Between hosts with keys: the HELLO that has a token, and WELCOME. They are the two messages of
 * Noise_KKpsk0_25519_ChaChaPoly_SHA256, whose prologue is "careful", version, nonce and token (of
 * the HELLO both times). No cookie is sent: that of the frames to whoever says HELLO is taken
 * from the chaining key after the first message, the other after the second (link/keyed.c).
 *
 * @version, @type, @nonce, @token: as in careful_ctrl
 * @bytes:     sizeof(struct careful_keyed)
 * @check:     as in careful_ctrl
 * @mac:       HMAC-SHA256 of the whole message with check and mac 0, by a key that follows from
 *             both static keys; the first bytes of it. What is not from one of the two costs
 *             no more than this.
 * @ephemeral: the message's public key
 * @sealed:    careful_ctrl from incarnation on, encrypted, and its tag
 */
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

/*
 * Between hosts with keys all other messages are proved, too: what has no mac, or a wrong one, is
 * not believed. Only a REFUSE may come from who has no key to prove it by, or speaks another
 * version: it counts when HELLO after HELLO got no other answer.
 *
 * @ctrl:  as without keys, but for its `bytes`; its check is of it alone
 * @count: messages that its sender has proved in this epoch, this one included; 0: HELLO,
 *         CHALLENGE, GONE, REFUSE, of which the last three have the question's nonce
 * @mac:   HMAC-SHA256 of all before it, the first bytes of it. The key follows from the handshake,
 *         another one each way (link/keyed.c); where count is 0, from both static keys, and the
 *         sender's public key is added to what it is of
 */
struct careful_proved {
	struct careful_ctrl ctrl;
	__be64 count;
	__u8 mac[CAREFUL_TAG_BYTES];
};

/* Where pings that end at STORE are written. */
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
 * @cookie:      what the answering host puts on its frames to the prober. With keys instead a
 *               proof: HMAC-SHA256 of the answer with check and cookie 0, then the probe's
 *               frag_off, the first bytes of it; the key is careful_proved's
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

/*
 * Peace for a measurement: the sender is about to find out how its interface works best, in
 * epochs of their own. args[0]: for how many ms; 0: it is over. args[1], args[2]: the sender's
 * ticket, high and low. Answered with 0: nothing is under way from here to the sender, and
 * nothing begins until it is over or that time has passed. EBUSY: something is, or this host
 * measures; where both ask at once, the larger ticket is granted.
 */
enum careful_peace_handler {
	CAREFUL_PEACE = 176,
	CAREFUL_PEACE_MS = 3000, /* at most; who asks for more gets this */
};

#ifndef CAREFUL_CDEF

_Static_assert(sizeof(struct careful_hdr) == 48, "careful_hdr is 48 bytes");
_Static_assert(sizeof(struct careful_am) == 48, "careful_am is 48 bytes");
_Static_assert(sizeof(struct careful_seal_end) == 24, "careful_seal_end is 24 bytes");
_Static_assert(sizeof(struct careful_ctrl) == 112, "careful_ctrl is 112 bytes");
_Static_assert(sizeof(struct careful_proved) == 136, "careful_proved is 136 bytes");
_Static_assert(sizeof(struct careful_keyed) == 168, "careful_keyed fits the smallest MTU");
_Static_assert(sizeof(struct careful_ctrl) - __builtin_offsetof(struct careful_ctrl, incarnation) ==
		       CAREFUL_SEALED_BYTES,
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
#ifdef __bpf__ /* which would read byte by byte */
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
