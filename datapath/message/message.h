/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which bytes go into which frame and when. Small messages are one frame each; bulk
 * messages are cut by the plan that the tune map holds, read in place from memory or
 * a file, and placed directly at the receiver. A message's meaning is the engine's
 * business.
 */
#pragma once

#include "link/link.h"
#include "message/plan.h"
#include "storage/storage.h"
#include "base/xxh3.h"

enum {
	MESSAGE_SLOTS = 16, /* bulk messages under way from one peer to another */
	MESSAGE_SLOT_WAITING = 0xff,
	/* Buffers that are filled at a time: a read has room for another frame, however it is cut. */
	MESSAGE_BATCH = STORAGE_READ_SEGMENTS - DEVICE_SEGMENTS_MAX,
	MESSAGE_AM_BYTES = sizeof(struct careful_am),
	MESSAGE_COPY_BYTES = 64 << 10, /* of one of the places for what a disk does not take */
	/* Messages up to this are copied as they leave, and their source is not read again: a peer
	 * has few that may last until its credits show that they have come. */
	MESSAGE_LOGGED_BYTES = 16 << 10,
	/* Largest fragment for a file that is copied behind others rather than held: that is no
	 * dearer, and a write of many has one piece, not one for each. */
	MESSAGE_SMALL_BYTES = 512,
};

/* A small message that could not leave at once; its body, which begins with careful_am, follows. */
struct message_small {
	struct message_small *next; /* of its peer's, or among those that cannot leave */
	struct link_peer *peer;
	uint64_t epoch;
	uint32_t bytes;
	_Alignas(struct careful_am) uint8_t body[];
};

/* A frame that waits for hostTx, is being filled, or is filled; it has send buffers. */
struct message_frame {
	struct message_frame *next;
	struct link_txframe tx;
	struct link_send_args args;
};

/* A bulk message being sent. */
struct message_out {
	struct message_out *next; /* of its peer's, or among those that have left */
	struct link_peer *peer;
	uint64_t epoch;
	struct careful_am am;
	struct careful_span source;
	uint32_t id;
	uint32_t bytes;
	uint32_t built; /* payload in frames so far */
	uint32_t unsent; /* payload that has not left */
	uint32_t region; /* being read; 0: none */
	uint32_t token; /* of the operation that this is; 0: an answer */
	uint32_t question; /* of the one that is asked behind its last fragment; 0: none */
	uint8_t slot;
	bool waited; /* what is not built yet waited for other messages, or for room */
	bool digest_wanted, started, done;
	bool asked; /* the question has left */
	bool lasts; /* a fragment of it is not copied: its source may be read again */
	uint32_t seq_last; /* number of its last frame */
	int error; /* positive errno: the source failed, the message is aborted */
	struct plan_cursor plan;
	uint64_t digest;
	struct xxh3 *hash;

	/* In their order; @filled_off, @filled_count: of those that hostTx took last. */
	struct sink host_tx;
	struct message_frame *frames, **frames_tail;
	uint32_t filled_off, filled_count;
	uint64_t began_ns; /* of the hostTx that filled them; 0: not traced, or told of */
	struct storage_io io;
	struct iovec iov[STORAGE_READ_SEGMENTS]; /* of io */
};

/*
 * A received frame whose payload waits to be copied or written, or the copy of some.
 *
 * @kept:   the frame; NULL: a copy
 * @cost:   of its buffers, where they count as a disk's (message_peer)
 * @place:  of a copy, whose first piece it is; @room: bytes that it has left
 * @span:   of its hostRx, as far as that has come; its begin_ns 0: not traced, or told of
 */
struct sink_queue_entry {
	struct sink_queue_entry *next;
	struct link_held *kept;
	uint32_t cost;
	int32_t place;
	uint32_t room;
	struct careful_trace span;
	uint32_t pieces;
	struct iovec iov[DEVICE_SEGMENTS_MAX];
};

enum {
	MESSAGE_WRITES = 4,
	MESSAGE_LATE = 256,
};

/*
 * How a message that is measured came and was written (engine/live_latency.c).
 *
 * @began_ns:      its first fragment was here; 0: it is not measured
 * @came_ns:       its last
 * @write_ns:      the write under way began
 * @writes:        the first, and the last one in the last entry
 * @version:       of the tune entry, its settings
 */
struct message_stamps {
	uint64_t began_ns, came_ns, write_ns;
	uint32_t frames_count, writes_count;
	uint32_t version;
	struct message_write {
		uint32_t bytes;
		uint64_t took_ns;
	} writes[MESSAGE_WRITES];
};

/* A bulk message being received. */
struct message_in {
	struct message_state *state;
	struct message_in *next; /* among the finished */
	struct message_in **at; /* its slot, until its last fragment came */
	struct link_peer *peer;
	uint64_t epoch;
	struct careful_am am;
	struct careful_span sink;
	uint32_t id;
	uint32_t bytes;
	uint32_t received;
	uint32_t region; /* being written; 0: none */
	uint32_t minpulse_bytes[CAREFUL_SINKS];
	bool active, last, digest_wanted, finished;
	bool answers; /* it is the data of a get: its end is the operation's */
	bool late; /* its epoch is over, and a write of it under way */
	bool held_up; /* its stage waits for such a write */
	struct link_held *kept; /* its last frame, until it has ended; NULL: given back, */
	int32_t place; /* or a copy of that; -1: none */
	int error; /* positive errno */
	uint64_t digest;
	struct xxh3 *hash;

	/* Payload that waits, in its order, for the stage that takes it: hostRx, or store. */
	struct sink_queue_entry *queue, *queue_last;
	uint32_t pieces_count, queue_count;
	struct sink stage;
	uint64_t taken;
	uint32_t writing_entries; /* of the first of them, io is reading */
	uint64_t began_ns; /* of that, its store; 0: not traced */
	struct message_stamps stamps;
	struct storage_io io;
	struct iovec iov[STORAGE_IO_SEGMENTS]; /* of io */
};

struct message_state {
	struct link *link;
	struct storage *storage;
	struct message_out *outs;
	struct message_out **outs_free;
	struct message_frame *frames, *frames_free; /* one for each send buffer */
	struct share outs_share;
	struct message_in *ins;
	struct message_in **ins_free;
	uint32_t ins_count, ins_free_count;
	uint32_t late[MESSAGE_LATE]; /* of them, by region; two regions may share a count */
	struct message_in **slots; /* MESSAGE_SLOTS of each peer: messages that still grow */
	struct message_in *finished, **finished_tail;
	uint32_t unanswered; /* of all peers */
	bool untold; /* message_out_left() and its like may have something to tell */
	struct message_out *left, **left_tail;
	struct message_out *resolved; /* whose source nobody reads again */
	uint32_t lasting; /* of all peers: message_peer.lasting */
	/* The repair that waits for a file. */
	struct message_reread {
		struct message_state *state;
		bool busy; /* else there is none */
		struct message_out *out;
		struct link_txframe tx;
		struct link_send_args args;
		uint32_t seq;
		struct storage_io io;
		struct iovec iov[DEVICE_SEGMENTS_MAX];
	} again;
	struct message_small *unfit;
	/* One for each receive buffer, and each copy. */
	struct sink_queue_entry *entries, *entries_free;
	uint8_t *copies; /* of what waits for a disk */
	int32_t *copies_free;
	struct share copies_share;
	uint8_t *parked;
	struct message_small **parked_free;
	struct share parked_share;
	uint32_t reading; /* messages whose file is being read */
	uint32_t messages; /* of all peers */
	uint32_t packed_max; /* messages in one frame */
	uint64_t sending[CAREFUL_PEERS_MAX / 64]; /* a bit for each peer that has some */
	struct message_peer {
		/* Small ones that wait. Answers do not wait behind questions. */
		struct message_queue {
			struct message_small *first, *last;
		} answers, questions;
		uint32_t gets; /* that left and have no data yet */
		uint32_t together; /* small ones that wait for company alone, since the last pump */
		uint64_t left_at; /* the kick before which one of them left: later ones wait for it */
		struct message_out *out_first, *out_last;
		/* Those that have left and may be read again, oldest first. */
		struct message_out *lasting, **lasting_tail;
		uint32_t ids;
		uint16_t slots_busy;
		uint32_t messages; /* that wait, or have not left whole */
		uint64_t unsent; /* of all its bulk messages */
		uint32_t outs, parked, copies; /* that it holds of those pools */
		uint32_t at_disks; /* receive buffers of its frames that disks hold */
		uint64_t asked_bytes; /* by gets to files */
		/* Stores that came whole: their answers find no room. */
		struct message_in *unanswered, **unanswered_tail;
	} * peers;
};

/* One more message to a peer waits; one of them has left, or will not. */
static inline void message_begun(struct message_state *state, struct message_peer *mp)
{
	uint32_t slot = (uint32_t)(mp - state->peers);

	mp->messages++;
	state->messages++;
	state->sending[slot / 64] |= 1ull << slot % 64;
}

static inline void message_over(struct message_state *state, struct message_peer *mp)
{
	uint32_t slot = (uint32_t)(mp - state->peers);

	state->messages--;
	if (!--mp->messages)
		state->sending[slot / 64] &= ~(1ull << slot % 64);
}

/* Reports whether some of a peer's wait, or have not left whole. */
static inline bool message_sends(const struct message_state *state, uint32_t slot)
{
	return state->sending[slot / 64] >> slot % 64 & 1;
}

/*
 * How many messages may be on their way out, all peers together; each peer has a share.
 *
 * @outs:    bulk messages being sent or waiting
 * @parked:  small messages that wait for credits
 * @copies:  places of MESSAGE_COPY_BYTES for what a disk does not take; 0: none
 */
struct message_limits {
	uint32_t outs;
	uint32_t parked;
	uint32_t copies;
};

int message_init(struct message_state *state, struct link *link, struct storage *storage,
		 const struct message_limits *limits);
void message_deinit(struct message_state *state);
void message_forget(struct message_state *state, struct link_peer *peer);

/* small.c */
int message_small(struct message_state *state, struct link_peer *peer, const struct careful_am *am,
		  const void *payload, uint32_t bytes);
int message_small_lent(struct message_state *state, struct link_peer *peer,
		       const struct careful_am *am, uint8_t *body, uint32_t bytes);
/* So many bytes more or fewer are to leave for the peer than is known here, behind the next frame:
 * what they will need beside its window is asked for. */
void message_ahead(struct message_state *state, struct link_peer *peer, uint64_t more,
		   uint64_t less);
bool message_small_may(struct message_state *state, struct link_peer *peer, uint32_t bytes);
bool message_small_now(struct message_state *state, struct link_peer *peer,
		       const struct careful_am *am, const void *payload, uint32_t bytes);
bool message_small_group(struct link_group *group, const struct careful_am *am, const void *payload,
			 uint32_t bytes);
bool message_ask(struct link_peer *peer, uint32_t token);
bool message_small_pump(struct message_state *state, struct link_peer *peer);
bool message_small_unfit(struct message_state *state, struct careful_am *am,
			 struct link_peer **peer, uint64_t *epoch);
void message_got(struct message_state *state, struct link_peer *peer);
bool message_may_answer(const struct message_state *state, const struct link_peer *peer);
bool message_may_serve(const struct message_state *state, const struct link_peer *peer,
		       const struct careful_am *am);

/* out.c. A message that has left, or will not, comes out of message_out_left(). */
bool message_may_store(const struct message_state *state, const struct link_peer *peer);
struct message_out *message_out_get(struct message_state *state, struct link_peer *peer);
void message_out_start(struct message_state *state, struct message_out *out);
void message_pump(struct message_state *state, struct link_peer *peer);
struct message_out *message_out_left(struct message_state *state);
void message_out_put(struct message_state *state, struct message_out *out);

/* reread.c: the source of a message that has left is read again where a frame was lost. */
bool message_lasts(struct message_state *state, struct message_out *out);
void message_answered(struct message_state *state, struct link_peer *peer, uint32_t token);
void message_tick(struct message_state *state);
void message_resolve(struct message_state *state, struct link_peer *peer);
struct message_out *message_out_resolved(struct message_state *state);
void message_reread(struct message_state *state);

/* sink_queue.c: what waits for a stage of the receiver */
void sink_queue_hold(struct message_in *in, struct link_rxframe *frame, const struct iovec *iov,
		     uint32_t n);
bool sink_queue_copy(struct message_in *in, const struct iovec *iov, uint32_t n, uint32_t bytes);
uint32_t sink_queue_write(struct message_in *in);
void sink_queue_put(struct message_in *in, uint32_t n);
void sink_queue_release(struct message_in *in);
bool message_may_ask(const struct message_state *state, const struct link_peer *peer,
		     uint32_t bytes);

/* in.c */
struct message_in *message_in_open(struct message_state *state, const struct link_rxframe *frame);
struct message_in *message_in_find(struct message_state *state, const struct link_rxframe *frame);
void message_in_add(struct message_in *in, struct link_rxframe *frame);
bool message_in_stop(struct message_in *in, int error);

/* finished.c: messages that came whole, or failed */
void message_in_finish(struct message_in *in);
struct message_in *message_in_finished(struct message_state *state);
void message_in_wait(struct message_in *in);
struct message_in *message_in_unanswered(struct message_state *state, struct message_peer *mp);
void message_in_release(struct message_in *in, struct link_rxframe *frame);
bool message_in_stays(const struct message_in *in);
void message_in_close(struct message_in *in);
