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

/* The ping to a peer, and our answers to the peer's pings. */
struct link_ping {
	uint32_t last; /* number of our last one; 0: none in this epoch */
	uint8_t asked; /* enum careful_stage where ours ends; 0: none is under way */
	bool known; /* the peer has answered one in this epoch */
	bool done; /* result is complete */
	uint32_t answered; /* number of the peer's last one that ended at XDP */
	uint32_t unknown; /* frag_off of ours, secret until it leaves (wire.h) */
	uint64_t until_ns;
	struct careful_ping_result result;
};

/* Waits until every frame now in the RX ring is taken. Ends when the ring is empty, or when as many
 * frames were taken as the ring holds. All 0: no wait began. */
struct link_drain {
	uint64_t empties; /* link->rx_drains at the end */
	uint64_t taken; /* link->rx_taken at the end */
};

/* The peer's SYNC until it is answered. Control messages overtake frames, so earlier frames of the
 * peer may reach the RX ring a tick later; it is drained before the answer. */
struct link_sync_question {
	__be64 nonce; /* of the SYNC; 0: none */
	uint32_t ticks; /* since it arrived */
	uint32_t seq_sent; /* the last number that the peer has sent */
	struct link_drain drain; /* must end before the answer */
};

/* Our SYNC and its answers. */
struct link_sync {
	uint32_t token; /* upper half of each nonce of this epoch; 0: nothing was asked */
	bool asked; /* a question is unanswered */
	uint64_t first_us, last_us; /* when it was first and last asked; lower half of the nonce */
	bool awaited; /* the peer owed something at the last tick, so its silence counts */
	uint32_t wait_ms; /* silence before a question: link->sync_ms, or less after a loss */
	uint32_t disagreed; /* answers in a row with the same counts, which differ from ours */
	uint64_t disagreed_ns; /* arrival of the last of these */
	uint32_t seq_sent, seq_rcvd; /* the counts in them */
	uint64_t blocked_ns; /* since when frames may wait in a full TX ring; 0: none waits */
	bool refused; /* ICMP refused the last question or a frame */
	uint32_t refused_rounds; /* questions in a row that were refused */
	uint64_t refused_ns; /* session.asked_ns of the last of these */
};

/* Checks that control messages pass while frames do (control_watch.c). */
struct control_watch {
	uint64_t nonce; /* of the unanswered question; 0: none */
	uint64_t asked_ns; /* when the last question was due */
	uint64_t frames; /* frames received until then */
	uint32_t missed; /* questions in a row that were not answered, though frames came */
};

/* Trains (train.c): the known burst of the path from the peer, our trains, and the peer's. */
struct link_train {
	bool shared; /* other sessions were open when the measurement ended */
	bool wanted, measuring; /* in the next epoch, in this epoch */
	bool renews; /* our window changed, so a new epoch must begin */
	bool lost_some; /* frames were lost, or a user asked: trains get as long as R */
	bool ended; /* the peer has reported the end of the last train */
	uint8_t verdict; /* enum careful_burst_verdict */
	uint32_t burst; /* frames */
	uint32_t measured; /* how often */
	uint64_t measured_ns; /* when last */
	uint32_t again_ms; /* least time between two measurements after losses */
	uint32_t restarts; /* epochs that ended before their trains */
	uint32_t goal; /* frames of the longest train */
	uint32_t frames, number; /* of the last train */
	bool tiny; /* its frames are as small as possible; large ones came before */
	uint32_t seen; /* its frames that arrived */
	uint64_t asked_ns, seen_ns; /* when it was asked for, when a frame was last noticed */
	uint32_t best, least; /* most frames that arrived complete, fewest before a missing one */
	uint32_t broken, late; /* incomplete trains, trains without a frame or an end */
	uint64_t lost, behind; /* frames lost after the first missing one; all frames after it */
	uint64_t begun_ns; /* when the epoch began */
	uint32_t hold_ms; /* from the peer's HELLO or WELCOME */
	uint64_t hold_until_ns; /* from the peer's last message */
	uint32_t over; /* TRAIN_OVER messages still to send */
	uint32_t asks; /* trains that the peer asked for */
	uint32_t out_number, out_frames; /* the last one of these */
	bool out_tiny;
	uint32_t left; /* its frames that are not sent yet */
	bool end_due; /* the peer must still hear of its end */
};

/* The largest frames that the path to the peer takes (path.c). */
struct link_path {
	uint32_t bytes; /* the largest that pass, with the Ethernet header; 0: no known limit */
	uint64_t lost; /* lost frames of the session when the epoch began */
	uint32_t losing; /* epochs in a row in which frames were lost */
	bool told; /* ICMP called a frame too large since the last search */
	bool probing; /* pings search for the limit */
	uint32_t lost_bytes; /* the frame whose losses began the search; 0: data waits for it */
	uint32_t lost_seq; /* its number */
	uint64_t began_ns; /* when the search began; 0: after ICMP */
	bool asks; /* the search's ping is under way */
	bool renews; /* the limit is below this epoch's frames, so a new epoch must begin */
	bool ended, passed; /* the ping has ended, with an answer */
	uint64_t round_trip_ns; /* of that answer */
	uint32_t low, high; /* a ping of `low` bytes passed; one of `high` bytes did not */
	uint32_t tried, tries; /* size of the present ping, and how often it was not answered */
	uint32_t wait_ms; /* for an answer */
	uint64_t searched_ns; /* when the last search ended; 0: there was none */
};

/* Steps of the search for frames that XDP admitted and the RX ring lost (missing.c). */
enum link_settle {
	LINK_SETTLED = 0,
	LINK_SETTLE_ADMITTED, /* until all admitted frames are in the RX ring */
	LINK_SETTLE_DRAINED, /* until they are taken from it */
};

/* Missing frames and our requests for them (missing.c). */
struct link_missing {
	uint32_t first; /* the first missing number */
	uint64_t since_ns; /* since when it is the first */
	uint32_t tries; /* requests for it that no repair answered in time */
	uint32_t repair_us; /* longest recent time from request to repair; decays; 0: unknown */
	uint32_t backoff; /* how often the wait for a repair was doubled */
	uint32_t ahead; /* the highest number that arrived ahead of a missing one */
	uint32_t came_us; /* the latest request that a repair answered; 0: none */
	uint64_t round_ns; /* from a SYNC to its answer, smoothed; 0: unknown */
	uint32_t said; /* the last number that the peer reported as sent */
	uint32_t said_in; /* flow.seq_in when it first reported that number */
	uint64_t said_ns; /* and the time */
	uint32_t most_before; /* flow.most when the epoch began */
	uint32_t lost; /* numbers asked for since the last change of w (congestion.c) */
	uint32_t checked; /* flow.rx.received at that change */
	bool loses; /* a number was asked for lately, */
	uint64_t lost_ns; /* last at this time */
	uint32_t withheld; /* W - w; flow.rx.withheld is less while frames wait for a missing one */
	uint8_t settle; /* enum link_settle */
	uint32_t filled; /* buffers that XDP had charged when the search began */
	struct link_drain drain;
};

/* The part of a session that frames do not touch. */
struct session {
	union address address;
	char name[CAREFUL_NAME_BYTES];
	uint8_t minor; /* minor wire version that both ends know */
	struct handshake handshake;
	struct keyed keyed;
	uint64_t incarnation; /* of the peer */
	uint32_t lives; /* incarnations of the peer so far */
	uint32_t tenants; /* hosts that have had this slot */
	uint32_t epochs; /* epochs opened so far */
	uint32_t frame_bytes; /* largest frame that both ends take, whatever the path takes */
	uint32_t taken_bytes; /* largest frame that we take in this epoch, whatever the MTU becomes */
	uint64_t cookie_was; /* of the peer's frames in the last epoch */
	uint64_t ended_ns; /* when that epoch ended */
	bool closing; /* XDP may still deliver its frames */
	struct link_drain drain; /* must end before the next window opens */
	struct link_drain bye; /* began with a BYE; the session ends with it */
	uint64_t since_ns; /* when the state or the silence began */
	uint64_t heard_ns; /* last sign of life */
	uint64_t away_ns; /* when it was last up or was first asked for; 0: up, or ended in order */
	uint64_t asked_ns; /* last HELLO or SYNC sent */
	uint64_t proved_ns; /* when its next handshake is due (rate_limit.h) */
	uint32_t no_way; /* failed lookups of its link address */
	uint64_t no_way_ns; /* the last of them */
	uint64_t distrusted_ns; /* when its link address was last looked up again in silence */
	int last_errno;
	uint64_t moved; /* frames in both directions when last counted */
	uint64_t moved_ns; /* when that count last changed */
	uint64_t yield_ns; /* when we last asked for its window */
	bool dormant; /* it gave up its window; the next message asks again */
	bool want; /* a program here wants the session */
	bool doubted; /* its slot is wanted, so check that it lives */
	uint32_t granted; /* buffers beyond the window that the peer has, or had in its last epoch */
	uint64_t granted_ns; /* since when a grant lies unused or nobody waits */
	uint64_t granted_frames; /* frames received until then */
	uint32_t copied; /* its frames in the copy-out pool */
	uint32_t claims; /* regions that only this peer may use */
	struct seal *seal; /* state of sealed frames; NULL: no peer's are sealed here */
	bool unasked; /* our request is withdrawn, and no frame after unasked_seq has said so */
	uint32_t unasked_seq;
	uint16_t moved_queue; /* our queue to which a CHALLENGE moved us (queue_choice.h) */
	uint16_t moved_port; /* and the peer's port */
	struct link_sync_question question;
	struct link_sync sync;
	struct control_watch control_watch;
	struct link_ping ping;
	struct link_train train;
	struct link_path path;
	struct link_missing missing;
	uint64_t lost_here; /* lost frames found here */
	uint64_t lost_before; /* of these, before the peer was this process */
	uint64_t lost_there; /* lost frames found by the peer */
	uint32_t lost_said; /* the same, as its last HELLO or WELCOME reported it */
	uint64_t sent_again; /* frames that the peer requested again */
	uint64_t asked_again; /* frames that we requested again, */
	uint32_t asked_silent; /* of them, those for which no later frame had arrived */
	uint64_t late; /* of these, frames that were only late */
};

/* The phase of a session's handshake. */
enum link_phase {
	LINK_IDLE = 0,
	LINK_ASKING, /* HELLO sent, no token yet */
	LINK_ASKED, /* HELLO with token sent: our window is open to the peer */
	LINK_DRAINING, /* a HELLO is valid; waiting for old buffers before WELCOME */
	LINK_OPEN,
	LINK_HELD, /* open, but data waits for trains, a path search or keys */
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

/* A host that wants a slot. */
struct link_host {
	union address address;
	const uint8_t *key; /* proved by the host; NULL: none */
	struct llhdr way; /* route to the host; 0 bytes: unknown */
};

/* A peer. Its index in link->peers is its slot in the peers map. */
struct link_peer {
	struct link *link;
	uint64_t epoch; /* ended epochs in this slot; operations of another epoch are void */
	uint64_t cookie_in; /* of the peer's frames; 0: none is admitted */
	uint64_t cookie_plain; /* cookie_in if frames are not sealed, else 0 */
	uint64_t cookie_out; /* of our frames */
	uint32_t buffer_bytes; /* of the peer's receive buffers */
	uint32_t frame_bytes; /* largest frame towards it */
	uint16_t slot;
	uint16_t slot_out; /* src_node of our frames */
	uint16_t queue_out;
	uint16_t beside; /* bytes of a frame besides its body: headers, and the tag if sealed */
	uint8_t trailer; /* bytes of that tag; 0: frames are not sealed */
	uint8_t sends; /* enum link_sends */
	uint8_t state; /* enum careful_peer_state */
	uint8_t phase; /* enum link_phase */
	bool dirty; /* in link->dirty: something was freed for it */
	bool heard; /* a frame or control message arrived since the last tick */
	bool withholding;
	bool asking; /* in link->reserve.asking */
	struct flow flow;
	struct llhdr llhdr;
	uint32_t kept; /* buffers of this epoch held by handlers or files */
	uint32_t kept_old; /* held buffers of earlier epochs; no new window until 0 */
	uint32_t operations; /* replies that the engine waits for; keeps SYNC going */
	uint64_t tx_frames, tx_bytes, rx_frames, rx_bytes;
	struct careful_peer_entry *entry; /* limits by which XDP checks its frames (abi.h) */
	struct session *session;
	struct link_repair repair;
} __attribute__((aligned(LINK_PEER_LINE)));

_Static_assert(sizeof(struct link_peer) == 5 * (size_t)LINK_PEER_LINE &&
		       offsetof(struct link_peer, flow) == LINK_PEER_LINE &&
		       offsetof(struct link_peer, llhdr) == 2 * LINK_PEER_LINE &&
		       offsetof(struct link_peer, repair) == 4 * LINK_PEER_LINE,
	       "identity, flow, headers, counts and repair start a cache line each");
