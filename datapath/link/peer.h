/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The state of a peer: struct link_peer has what each frame touches, struct session the rest, which
 * control messages and the clock use. Only datapath/link reads the latter; those above ask link
 * (link.h).
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <careful/careful.h>
#include <careful/ping.h>
#include <careful/wire.h>

#include "device/device.h"
#include "link/flow.h"
#include "link/handshake.h"
#include "link/log.h"
#include "link/keyed.h"

/*
 * The ping to a peer, and what was answered to the peer's. The answer needs nothing
 * that is not here before the probe leaves.
 *
 * @last:      its number; 0: none was sent in this epoch
 * @asked:     where it is to end, enum careful_stage; 0: none is under way
 * @known:     the peer has answered one in this epoch
 * @answered:  number of the peer's last one that XDP ended
 * @unknown:   its frag_off, which nobody knows before it leaves (wire.h)
 */
struct link_ping {
	uint32_t last;
	uint8_t asked;
	bool known;
	bool done; /* result says how it ended */
	uint32_t answered;
	uint32_t unknown;
	uint64_t until_ns;
	struct careful_ping_result result;
};

/*
 * Waits until every frame is taken that lies in the RX ring at its start. Then the ring was seen
 * empty; at a busy receiver, as many frames were taken as it holds. All 0: no wait began.
 *
 * @empties: link->rx_drains then
 * @taken:   link->rx_taken then
 */
struct link_drain {
	uint64_t empties;
	uint64_t taken;
};

/*
 * The peer's SYNC, until it is answered: control messages come by another way than frames, and
 * faster, so what it sent before may not even be in the RX ring yet. That it is, a tick later,
 * and what the ring has then is taken before the answer counts.
 *
 * @nonce:  as it came; 0: none
 * @ticks:  since it came; the first is the one that read it
 * @drain:  answered when this is over
 * @seq_sent: the last number that the peer has sent, as it says
 */
struct link_sync_question {
	__be64 nonce;
	uint32_t ticks;
	uint32_t seq_sent;
	struct link_drain drain;
};

/*
 * Our SYNC, and what its answers said.
 *
 * @token:          in the upper half of each nonce of this epoch; 0: none was asked
 * @asked:          there is one without an answer,
 * @first_us:       when it was asked first: its lower half is the nonce's,
 * @last_us:        and last
 * @awaited:        something was, at the last tick: silence counts
 * @wait_ms:        silence before one: at most link->sync_ms, less after a loss
 * @disagreed:      answers in a row that disagree with the same counts,
 * @disagreed_ns:   when the last of them came that counts,
 * @seq_sent, @seq_rcvd: what those answers said
 * @blocked_ns:     since when frames may wait in a full TX ring; 0: they don't
 * @refused:        ICMP refused the last question, or a frame
 * @refused_rounds: questions in a row that were
 * @refused_ns:     session.asked_ns of the last one counted
 */
struct link_sync {
	uint32_t token;
	uint64_t first_us, last_us;
	bool asked;
	bool awaited;
	uint32_t wait_ms;
	uint32_t disagreed;
	uint64_t disagreed_ns;
	uint32_t seq_sent, seq_rcvd;
	uint64_t blocked_ns;
	uint64_t refused_ns;
	uint32_t refused_rounds;
	bool refused;
};

/*
 * Reports whether control messages pass while frames do (control_watch.c).
 *
 * @nonce:    of the question without an answer; 0: none
 * @asked_ns: when the last one was due
 * @frames:   that had come then
 * @missed:   questions in a row without an answer, though frames came after them
 */
struct control_watch {
	uint64_t nonce;
	uint64_t asked_ns;
	uint64_t frames;
	uint32_t missed;
};

/*
 * Trains (train.c): what is known of the path from the peer, those that we ask it for, and
 * the one that it asked us for.
 *
 * @wanted:     asked for at the next epoch's beginning; @measuring: in this one
 * @renews:     our window is another now: a new epoch is to begin
 * @lost_some:  frames were lost since, or somebody asked by hand: trains are as long as R
 * @ended:      the peer said how much of the last one has left
 * @verdict:    enum careful_burst_verdict; @burst: frames
 * @measured:   how often; @measured_ns: when last; @again_ms: not before, after a loss
 * @restarts:   epochs that ended before their trains did
 * @goal:       frames of the longest; @frames: of the last, asked for at @asked_ns
 * @number:     of the last one
 * @seen:       frames of it that came; @seen_ns: when the last of them was noticed
 * @best:       most frames that came whole; @least: fewest before one was missing
 * @broken:     trains that did not; @late: of which nothing or no end was heard
 * @tiny:       its frames are as small as can be: large ones came before
 * @lost:       of the @behind frames that followed the first missing one in each
 * @begun_ns:   when the epoch did
 * @hold_ms:    as the peer's HELLO or WELCOME said; @hold_until_ns: as its last word did
 * @over:       times that it is still to be told that ours are over
 * @asks:       trains that it asked for; @out_number, @out_frames, @out_tiny: the last one,
 * @left:       frames of it that are not sent yet; @unsaid: nor is it told that they are
 */
struct link_train {
	bool wanted, measuring, renews, lost_some, ended, unsaid, tiny, out_tiny;
	uint8_t verdict;
	uint32_t burst;
	uint32_t measured;
	uint64_t measured_ns;
	uint32_t again_ms;
	uint32_t restarts;
	uint32_t goal;
	uint32_t frames;
	uint32_t number;
	uint32_t seen;
	uint64_t asked_ns, seen_ns;
	uint32_t best, least;
	uint32_t broken, late;
	uint64_t lost, behind;
	uint64_t begun_ns;
	uint32_t hold_ms;
	uint64_t hold_until_ns;
	uint32_t over;
	uint32_t asks;
	uint32_t out_number, out_frames;
	uint32_t left;
};

/*
 * The size of frames that the way to the peer takes (path.c).
 *
 * @bytes:    largest that pass, with their Ethernet header; 0: no limit is known
 * @lost:     frames of the session that were lost when the epoch began
 * @losing:   epochs in a row in which frames were lost
 * @told:     ICMP said that a frame was too large, since the last search
 * @probing:  pings look for the limit, and data waits
 * @low, @high: a ping of @low bytes passed, one of @high did not
 * @tried, @tries: size of the ping under way, and how many of that size got no answer
 * @wait_ms:  for an answer
 * @renews:   the limit is below the frames of this epoch: a new epoch is to begin
 * @ended:    the ping has; @passed: with an answer, after @round_trip_ns
 * @searched_ns: when the last search ended; 0: there was none
 */
struct link_path {
	uint32_t bytes;
	uint64_t lost;
	uint32_t losing;
	bool told, probing, renews, ended, passed;
	uint32_t low, high;
	uint32_t tried, tries;
	uint32_t wait_ms;
	uint64_t round_trip_ns;
	uint64_t searched_ns;
};

/* How far the wait is for what XDP admitted and the RX ring lost (reorder.c). */
enum link_settle {
	LINK_SETTLED = 0,
	LINK_SETTLE_ADMITTED, /* until what XDP has admitted is in the RX ring, */
	LINK_SETTLE_DRAINED, /* and is taken from there */
};

/*
 * The frames that are missing, and the asking for them (reorder.c).
 *
 * @first:       the number that is due, and missing
 * @since_ns:    when it became so
 * @asked_ns:    when the peer was asked last
 * @wait_ns:     from then to the next time
 * @tries:       times that it was asked for @first
 * @round_ns:    from a question to its answer, smoothed; 0: not known
 * @said:        the last number that the peer has sent, as it said last,
 * @said_in:     and flow.seq_in then,
 * @said_ns:     when it said so first
 * @most_before: flow.most when the epoch began
 * @settle:      enum link_settle
 * @filled:      buffers that XDP had charged when the wait began
 */
struct link_missing {
	uint32_t first;
	uint64_t since_ns;
	uint64_t asked_ns;
	uint64_t wait_ns;
	uint32_t tries;
	uint64_t round_ns;
	uint32_t said, said_in;
	uint64_t said_ns;
	uint32_t most_before;
	uint8_t settle;
	uint32_t filled;
	struct link_drain drain;
};

/*
 * A session beside its frames.
 *
 * @minor:       of the wire, what both know: nothing newer is said
 * @incarnation: the peer's
 * @lives:       incarnations of it that were met
 * @tenants:     hosts that this slot has been given to
 * @epochs:      that were opened
 * @frame_bytes: largest frame that both ends take, whatever the way between them
 * @cookie_was:  of its frames in the epoch before this
 * @ended_ns:    when that epoch ended
 * @closing:     XDP may still bring frames of the last epoch
 * @drain:       no new window before this, which begins then, is over
 * @bye:         a BYE came: the session ends when this is over
 * @since_ns:    the state's, or the silence's, beginning
 * @heard_ns:    when the peer last gave a sign
 * @asked_ns:    last HELLO, SYNC sent
 * @proved_ns:   when the next of its handshakes is due (rate_limit.h)
 * @no_way:      how often its frames' link address was looked for in vain, @no_way_ns: last
 * @distrusted_ns: when its link address was last asked for anew, in silence
 * @moved:       frames of the session, both ways, when they were counted last,
 * @moved_ns:    since when there were no more
 * @yield_ns:    when its window was last asked for
 * @dormant:     it gave its window up: the next message asks for another
 * @want:        somebody here wants the session: ask for it
 * @doubted:     its slot is wanted: is it still there?
 * @granted:     buffers that the peer has, or had in its last epoch, beside its window
 * @granted_ns:  since when a grant lies unused, or nobody waits: frames received then,
 *               @granted_frames
 * @copied:      its frames that lie in the copy-out pool
 * @claims:      regions that it alone may use
 * @seal:        how its frames and ours are sealed; NULL: no peer's are here
 * @unasked:     what was asked for is not any more, and no frame after @unasked_seq had said so
 * @moved_queue, @moved_port: where a CHALLENGE sent us (spread.h): our queue, and its port
 * @lost_here:   frames between the two that were found lost here,
 * @lost_before: of them before the peer was this process: it is not told of those
 * @sent_again:  frames that it asked for, @asked_again: and that it was asked for
 * @lost_there:  found by the peer; @lost_said: what its last HELLO or WELCOME said of that
 */
struct session {
	union address address;
	char name[CAREFUL_NAME_BYTES];
	uint8_t minor;
	struct handshake handshake;
	struct keyed keyed;
	uint64_t incarnation;
	uint32_t lives;
	uint32_t tenants;
	uint32_t epochs;
	uint32_t frame_bytes;
	uint64_t cookie_was;
	uint64_t ended_ns;
	bool closing;
	struct link_drain drain;
	struct link_drain bye;
	uint64_t since_ns;
	uint64_t heard_ns;
	uint64_t asked_ns;
	uint64_t proved_ns;
	uint64_t no_way_ns;
	uint32_t no_way;
	uint64_t distrusted_ns;
	int last_errno;
	uint64_t moved;
	uint64_t moved_ns;
	uint64_t yield_ns;
	bool dormant;
	bool want;
	bool doubted;
	uint32_t granted;
	uint64_t granted_ns;
	uint64_t granted_frames;
	uint32_t copied;
	uint32_t claims;
	struct seal *seal;
	bool unasked;
	uint32_t unasked_seq;
	uint16_t moved_queue;
	uint16_t moved_port;
	struct link_sync_question question;
	struct link_sync sync;
	struct control_watch control_watch;
	struct link_ping ping;
	struct link_train train;
	struct link_path path;
	struct link_missing missing;
	uint64_t lost_here;
	uint64_t lost_there;
	uint64_t lost_before;
	uint32_t lost_said;
	uint64_t sent_again;
	uint64_t asked_again;
};

/* The phase of a session's handshake. */
enum link_phase {
	LINK_IDLE = 0, /* nothing asked, nothing granted */
	LINK_ASKING, /* HELLO sent, no token yet */
	LINK_ASKED, /* HELLO with token sent: our window is open to the peer */
	LINK_DRAINING, /* a HELLO is valid; waiting for old buffers before WELCOME */
	LINK_OPEN,
	LINK_HELD, /* open, but for data: trains go first */
};

/* A frame's needs as it leaves, besides its header. */
enum link_sends {
	LINK_SENDS_CAREFUL = 0, /* a credit */
	LINK_SENDS_TRADITIONAL = 1, /* a copy is kept */
	LINK_SENDS_SEALED = 2, /* either of them, and to be sealed */
};

enum {
	LINK_PEER_LINE = 64, /* of the cache, bytes */
	LINK_MAC_BYTES = 6, /* of an Ethernet address, with which a frame begins */
};

/*
 * A host that wants a slot.
 *
 * @key: that the host proved; NULL: none
 * @way: to the host; 0 bytes: not known
 */
struct link_host {
	union address address;
	const uint8_t *key;
	struct llhdr way;
};

/*
 * One peer. The index in link->peers is its slot in the peers map.
 *
 * @entry:      what XDP holds its frames to (abi.h)
 * @epoch:      counts the ends of epochs in this slot: what was begun in another is void
 * @kept:       buffers of this epoch held by handlers or files
 * @kept_old:   buffers of earlier epochs still held: no new window until 0
 * @operations: replies that service waits for: keeps the sync going
 * @asking:     in link->reserve.asking
 * @cookie_plain: cookie_in where frames are not sealed, else 0
 * @beside:     bytes of a frame that are not its body: headers, and the end of a sealed one
 * @trailer:    of them, those of that end; 0: frames are not sealed
 * @sends:      enum link_sends
 */
struct link_peer {
	struct link *link;
	uint64_t epoch;
	uint64_t cookie_in; /* of its frames; 0: none admitted */
	uint64_t cookie_plain;
	uint64_t cookie_out; /* of ours */
	uint32_t buffer_bytes; /* of the peer's receive buffers */
	uint32_t frame_bytes; /* largest frame towards it */
	uint16_t slot;
	uint16_t slot_out; /* src_node of our frames */
	uint16_t queue_out;
	uint16_t beside;
	uint8_t trailer;
	uint8_t sends;
	uint8_t state; /* enum careful_peer_state */
	uint8_t phase; /* enum link_phase */
	bool dirty; /* in link->dirty: something was freed for it */
	bool heard; /* a frame or control message arrived since the last tick */
	bool withholding;
	bool asking;
	struct flow flow;
	struct llhdr llhdr;
	uint32_t kept;
	uint32_t kept_old;
	uint32_t operations;
	uint64_t tx_frames, tx_bytes, rx_frames, rx_bytes;
	struct careful_peer_entry *entry;
	struct session *session;
	struct link_repair repair;
} __attribute__((aligned(LINK_PEER_LINE)));

_Static_assert(sizeof(struct link_peer) == 5 * (size_t)LINK_PEER_LINE &&
		       offsetof(struct link_peer, flow) == LINK_PEER_LINE &&
		       offsetof(struct link_peer, llhdr) == 2 * LINK_PEER_LINE &&
		       offsetof(struct link_peer, repair) == 4 * LINK_PEER_LINE,
	       "who it is, the protocol, the headers, the counts, the repair: a cache line each");
