/* SPDX-License-Identifier: BSD-2-Clause */
/* The state of a peer. struct link_peer has the fields that each frame touches. struct session has
 * the rest, for control messages and the clock; only datapath/link reads it. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <careful/careful.h>
#include <careful/ping.h>
#include <careful/wire.h>

#include "device/device.h"
#include "link/flow.h"
#include "link/session/handshake.h"
#include "link/send/log.h"
#include "link/peer/keyed.h"

/* The ping to a peer, and our answers to the peer's pings. All that the answer needs is set before
 * the probe leaves.
 *
 * @last:     number of our last one; 0: none was sent in this epoch
 * @asked:    the stage where it ends, enum careful_stage; 0: none is under way
 * @known:    the peer has answered one in this epoch
 * @answered: number of the peer's last one that XDP ended
 * @unknown:  frag_off of ours, secret until it leaves (wire.h) */
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

/* Waits until every frame is taken that lies in the RX ring at its start. Then the ring was seen
 * empty; at a busy receiver, as many frames were taken as it holds. All 0: no wait began.
 *
 * @empties: link->rx_drains then
 * @taken:   link->rx_taken then */
struct link_drain {
	uint64_t empties;
	uint64_t taken;
};

/* The peer's SYNC until it is answered. Control messages overtake frames, so frames that the peer
 * sent before may not be in the RX ring yet. A tick later they are; the ring is then drained before
 * we answer.
 *
 * @nonce:    of the SYNC; 0: none
 * @ticks:    since it came, counting the one that read it
 * @drain:    we answer when this is over
 * @seq_sent: the last number that the peer says it sent */
struct link_sync_question {
	__be64 nonce;
	uint32_t ticks;
	uint32_t seq_sent;
	struct link_drain drain;
};

/* Our SYNC and its answers.
 *
 * @token:        upper half of each nonce of this epoch; 0: nothing was asked
 * @asked:        a question is unanswered,
 * @first_us:     when it was first asked: the lower half of the nonce;
 * @last_us:      and last
 * @awaited:      something was awaited at the last tick, so silence counts
 * @wait_ms:      silence before a question: at most link->sync_ms, less after a loss
 * @disagreed:    answers in a row that disagree with the same counts
 * @disagreed_ns: when the last one that counts came
 * @seq_sent, @seq_rcvd: the counts in those answers
 * @blocked_ns:   since when frames may wait in a full TX ring; 0: none waits
 * @refused:      ICMP refused the last question or a frame
 * @refused_rounds: questions in a row that were refused
 * @refused_ns:   session.asked_ns of the last refused question */
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

/* Checks that control messages pass while frames do (control_watch.c).
 *
 * @nonce:    of the unanswered question; 0: none
 * @asked_ns: when the last question was due
 * @frames:   frames that had come then
 * @missed:   unanswered questions in a row, though frames came after them */
struct control_watch {
	uint64_t nonce;
	uint64_t asked_ns;
	uint64_t frames;
	uint32_t missed;
};

/* Trains (train.c): the known burst of the path from the peer, the trains that we ask for, and the
 * one that the peer asked for.
 *
 * @shared:    other sessions were open when it ended
 * @wanted:    measure in the next epoch; @measuring: in this one
 * @renews:    our window changed, so a new epoch must begin
 * @lost_some: frames were lost since, or a user asked: trains are as long as R
 * @ended:     the peer has reported how much of the last train left
 * @verdict:   enum careful_burst_verdict; @burst: frames
 * @measured:  how often; @measured_ns: when last; @again_ms: earliest next time, after a loss
 * @restarts:  epochs that ended before their trains
 * @goal:      frames of the longest train; @frames: of the last one, asked for at @asked_ns
 * @number:    of the last one
 * @seen:      frames of it that came; @seen_ns: when the last one was noticed
 * @best:      most frames that came complete; @least: fewest before a missing one
 * @broken:    incomplete trains; @late: trains without a frame or an end
 * @tiny:      its frames are as small as possible; large ones came before
 * @lost:      frames lost among the @behind frames after the first missing one
 * @begun_ns:  when the epoch began
 * @hold_ms:   from the peer's HELLO or WELCOME; @hold_until_ns: from its last message
 * @over:      messages still to send that our trains are over
 * @asks:      trains that the peer asked for; @out_number, @out_frames, @out_tiny: the last one
 * @left:      frames of it that are not sent yet; @unsaid: the peer must still hear of its end */
struct link_train {
	bool shared;
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

/* The largest frames that the path to the peer takes (path.c).
 *
 * @bytes:         the largest that pass, with the Ethernet header; 0: no limit is known
 * @lost:          lost frames of the session when the epoch began
 * @losing:        epochs in a row in which frames were lost
 * @told:          ICMP called a frame too large since the last search
 * @probing:       pings look for the limit, and data waits
 * @low, @high:    a ping of @low bytes passed; one of @high did not
 * @tried, @tries: size of the ping under way, and its unanswered pings
 * @wait_ms:       for an answer
 * @renews:        the limit is below this epoch's frames, so a new epoch must begin
 * @ended:         the ping ended; @passed: with an answer, after @round_trip_ns
 * @searched_ns:   when the last search ended; 0: there was none */
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

/* Steps of the search for frames that XDP admitted and the RX ring lost (missing.c). */
enum link_settle {
	LINK_SETTLED = 0,
	LINK_SETTLE_ADMITTED, /* until all admitted frames are in the RX ring, */
	LINK_SETTLE_DRAINED, /* and taken from it */
};

/* Missing frames and our requests for them (missing.c).
 *
 * @first:       the missing number that is due
 * @since_ns:    since when
 * @tries:       requests for @first that no repair answered in time
 * @repair_us:   from a request to the repair: the longest recent time, which decays; 0: unknown
 * @backoff:     how often the wait for a repair was doubled
 * @ahead:       the highest number that came ahead of a missing one
 * @came_us:     the latest request that a repair answered; 0: none
 * @round_ns:    from a SYNC to its answer, smoothed; 0: unknown
 * @said:        the last number that the peer reported as sent
 * @said_in:     flow.seq_in then
 * @said_ns:     when the peer first reported it
 * @most_before: flow.most when the epoch began
 * @lost:        numbers that were asked for since w was looked at last,
 * @checked:     and flow.rx.received then (congestion.c)
 * @withheld:    W - w; flow.rx.withheld is less while frames wait for a missing one
 * @settle:      enum link_settle
 * @filled:      buffers that XDP had charged when the search began */
struct link_missing {
	uint32_t first;
	uint64_t since_ns;
	uint32_t tries;
	uint32_t repair_us;
	uint32_t backoff;
	uint32_t ahead;
	uint32_t came_us;
	uint64_t round_ns;
	uint32_t said, said_in;
	uint64_t said_ns;
	uint32_t most_before;
	uint32_t lost;
	uint32_t checked;
	uint32_t withheld;
	uint8_t settle;
	uint32_t filled;
	struct link_drain drain;
};

/* The part of a session that frames do not touch.
 *
 * @minor:         minor wire version that both ends know
 * @incarnation:   the peer's
 * @lives:         incarnations of the peer so far
 * @tenants:       hosts that have had this slot
 * @epochs:        epochs opened so far
 * @frame_bytes:   the largest frame that both ends take, whatever the path takes
 * @taken_bytes:   the largest frame that we take in this epoch, whatever the MTU becomes
 * @cookie_was:    of the peer's frames in the epoch before
 * @ended_ns:      when that epoch ended
 * @closing:       XDP may still deliver frames of the last epoch
 * @drain:         the next window waits for this
 * @bye:           begun by a BYE: the session ends when it is over
 * @since_ns:      when the state or the silence began
 * @heard_ns:      last sign of life
 * @asked_ns:      last HELLO or SYNC sent
 * @proved_ns:     when its next handshake is due (rate_limit.h)
 * @no_way:        failed lookups of its link address; @no_way_ns: the last one
 * @distrusted_ns: when its link address was last looked up again in silence
 * @moved:         frames both ways when last counted
 * @moved_ns:      since when there are no more
 * @yield_ns:      when we last asked for its window
 * @dormant:       it gave its window up; the next message asks again
 * @want:          a program here wants the session
 * @doubted:       its slot is wanted, so check that it lives
 * @granted:       buffers beyond the window that the peer has, or had in its last epoch
 * @granted_ns:    since when a grant lies unused or nobody waits; @granted_frames: frames received
 *                 until then
 * @copied:        its frames in the copy-out pool
 * @claims:        regions that only this peer may use
 * @seal:          state of sealed frames; NULL: nobody's are sealed here
 * @unasked:       our request is withdrawn, and no frame after @unasked_seq has said so
 * @moved_queue, @moved_port: where a CHALLENGE sent us (queue_choice.h): our queue, the peer's port
 * @lost_here:     lost frames that were found here
 * @lost_before:   of these, before the peer was this process, which does not hear of them
 * @sent_again:    frames that the peer requested again; @asked_again: that we requested;
 *                 @late: of these, those that were only late
 * @lost_there:    lost frames that the peer found; @lost_said: as its last HELLO or WELCOME
 *                 reported */
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
	uint32_t taken_bytes;
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
	uint64_t late;
};

/* The phase of a session's handshake. */
enum link_phase {
	LINK_IDLE = 0, /* nothing asked, nothing granted */
	LINK_ASKING, /* HELLO sent, no token yet */
	LINK_ASKED, /* HELLO with token sent: our window is open to the peer */
	LINK_DRAINING, /* a HELLO is valid; waiting for old buffers before WELCOME */
	LINK_OPEN,
	LINK_HELD, /* open, but data waits for trains */
};

/* Steps of sending a frame besides its header. */
enum link_sends {
	LINK_SENDS_CAREFUL = 0, /* a credit */
	LINK_SENDS_TRADITIONAL = 1, /* a copy is kept */
	LINK_SENDS_SEALED = 2, /* either of them, and the frame is sealed */
};

enum {
	LINK_PEER_LINE = 64, /* of the cache, bytes */
	LINK_MAC_BYTES = 6, /* of an Ethernet address, with which a frame begins */
};

/* A host that wants a slot.
 *
 * @key: proved by the host; NULL: none
 * @way: route to the host; 0 bytes: unknown */
struct link_host {
	union address address;
	const uint8_t *key;
	struct llhdr way;
};

/* A peer. Its index in link->peers is its slot in the peers map.
 *
 * @entry:        the limits by which XDP checks its frames (abi.h)
 * @epoch:        number of ended epochs in this slot; operations of another epoch are void
 * @kept:         buffers of this epoch held by handlers or files
 * @kept_old:     held buffers of earlier epochs; no new window until 0
 * @operations:   replies that the engine waits for; keeps SYNC going
 * @asking:       in link->reserve.asking
 * @cookie_plain: cookie_in if frames are not sealed, else 0
 * @beside:       bytes of a frame besides its body: headers, and the tag of a sealed frame
 * @trailer:      bytes of that tag; 0: frames are not sealed
 * @sends:        enum link_sends */
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
