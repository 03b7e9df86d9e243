/* SPDX-License-Identifier: BSD-2-Clause */
/* Decides which bytes go into which frame and when. Small messages fit one frame. Bulk messages are
 * cut by the plan in the tune map, read in place from memory or a file, and placed directly at the
 * receiver. The engine knows what a message means. */
#pragma once

#include "link/link.h"
#include "message/plan.h"
#include "storage/storage.h"
#include "base/xxh3.h"

enum {
	MESSAGE_SLOTS = 16, /* bulk messages under way from one peer to another */
	MESSAGE_SLOT_WAITING = 0xff,
	/* Buffers filled at a time: a read has room for one more frame, however it is cut. */
	MESSAGE_BATCH = STORAGE_READ_SEGMENTS - DEVICE_SEGMENTS_MAX,
	MESSAGE_AM_BYTES = sizeof(struct careful_am),
	MESSAGE_COPY_BYTES = 64 << 10, /* size of a copy while a disk is slow */
	/* Messages up to this size are copied when they leave, so their source is not read again:
	 * few messages per peer may last until its credits confirm them. */
	MESSAGE_LOGGED_BYTES = 16 << 10,
	/* File fragments up to this size are copied; larger ones keep their receive buffer. Copying
	 * small ones costs no more, and a write of many is then one piece. */
	MESSAGE_SMALL_BYTES = 512,
};

/* A small message that could not leave at once. Its body follows, with careful_am first. */
struct message_small {
	struct message_small *next; /* in the queue of its peer, or of messages that cannot leave */
	struct link_peer *peer;
	uint64_t epoch;
	uint32_t bytes;
	_Alignas(struct careful_am) uint8_t body[];
};

/* A frame with send buffers that waits for hostTx, is being filled, or is filled. */
struct message_frame {
	struct message_frame *next;
	struct link_txframe tx;
	struct link_send_args args;
};

/* A bulk message being sent. */
struct message_out {
	struct message_out *next; /* in the queue of its peer, or of messages that have left */
	struct link_peer *peer;
	uint64_t epoch;
	struct careful_am am;
	struct careful_span source;
	uint32_t id;
	uint32_t bytes;
	uint32_t built; /* payload bytes in frames so far */
	uint32_t unsent; /* payload bytes that have not left */
	uint32_t region; /* being read; 0: none */
	uint32_t token; /* of its operation; 0: an answer */
	uint32_t question; /* token of the request that follows its last fragment; 0: none */
	uint8_t slot;
	bool waited; /* its unbuilt rest waited for other messages or for room */
	bool digest_wanted, started, done;
	bool asked; /* the question has left */
	bool lasts; /* some fragment was not copied, so its source may be read again */
	uint32_t seq_last; /* number of its last frame */
	int error; /* positive errno: the source failed, so the message is aborted */
	struct plan_cursor plan;
	uint64_t digest;
	struct xxh3 *hash;

	/* In order: filled frames that netTx has not taken, then those that hostTx works on.
	 *
	 * @ready_waited: some ready frame had to wait for netTx, so they may be joined
	 * @filled_off, @filled_count: the frames that hostTx took last
	 */
	struct message_frame *ready, **ready_tail;
	uint32_t ready_bytes;
	bool ready_waited;
	struct sink host_tx;
	struct message_frame *frames, **frames_tail;
	uint32_t filled_off, filled_count;
	uint64_t began_ns; /* start of the hostTx that filled them; 0: not traced, or reported */
	struct storage_io io;
	struct iovec iov[STORAGE_READ_SEGMENTS]; /* of io */
};

/* A received frame, or a copy of frames, whose payload waits to be copied or written.
 *
 * @kept:  the frame; NULL: a copy
 * @cost:  its buffers, if they count as held by a disk (message_peer)
 * @place: index of the copy, its first piece; @room: free bytes in it
 * @span:  its unfinished hostRx; begin_ns 0: not traced, or reported */
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

/* Times of a measured message's arrival and writes (engine/live_latency.c).
 *
 * @began_ns: its first fragment arrived; 0: it is not measured
 * @came_ns:  its last
 * @write_ns: start of the write under way
 * @writes:   the first writes; the last entry is the last write
 * @version:  of the settings in the tune entry */
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
	struct message_in **at; /* its slot, until its last fragment arrives */
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
	bool answers; /* it is the data of a get: its end ends the operation */
	bool late; /* its epoch is over, but a write is under way */
	bool held_up; /* its stage waits for a late write */
	struct link_held *kept; /* its last frame, until the message is closed; NULL: released, */
	int32_t place; /* or its copy; -1: none */
	int error; /* positive errno */
	uint64_t digest;
	struct xxh3 *hash;

	/* Payload that waits in order for its stage, hostRx or store. */
	struct sink_queue_entry *queue, *queue_last;
	uint32_t pieces_count, queue_count;
	struct sink stage;
	uint64_t taken;
	uint32_t writing_entries; /* the first entries, which io is writing */
	uint64_t began_ns; /* start of that write; 0: not traced */
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
	uint32_t late[MESSAGE_LATE]; /* late messages by region; two regions may share a count */
	struct message_in **slots; /* MESSAGE_SLOTS for each peer: unfinished messages */
	struct message_in *finished, **finished_tail;
	uint32_t unanswered; /* of all peers */
	bool untold; /* message_out_left() and its like may return something */
	struct message_out *left, **left_tail;
	struct message_out *resolved; /* messages whose source is no longer needed */
	uint32_t lasting; /* message_peer.lasting of all peers */
	/* The repair that reads a file. */
	struct message_reread {
		struct message_state *state;
		bool busy; /* there is one */
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
	uint8_t *copies; /* payload that waits for a disk */
	int32_t *copies_free;
	struct share copies_share;
	uint8_t *parked;
	struct message_small **parked_free;
	struct share parked_share;
	uint32_t reading; /* messages whose file is being read */
	uint32_t messages; /* of all peers */
	uint32_t packed_max; /* messages in one frame */
	uint64_t sending[CAREFUL_PEERS_MAX / 64]; /* a bit for each peer with waiting messages */
	struct message_peer {
		/* Waiting small messages. Answers do not wait behind requests. */
		struct message_queue {
			struct message_small *first, *last;
		} answers, questions;
		uint32_t gets; /* gets that left and have no data yet */
		uint32_t together; /* small ones that only wait to share a frame */
		uint64_t left_at; /* last kick before a small one left; later ones wait */
		struct message_out *out_first, *out_last;
		/* Messages that have left and may be read again, oldest first. */
		struct message_out *lasting, **lasting_tail;
		uint32_t ids;
		uint16_t slots_busy;
		uint32_t messages; /* messages that wait or have not left completely */
		uint64_t unsent; /* bytes of its bulk messages */
		uint32_t outs, parked, copies; /* its entries of those pools */
		uint32_t at_disks; /* receive buffers held by disks */
		uint64_t asked_bytes; /* bytes of gets to files */
		/* Complete stores whose answers find no room. */
		struct message_in *unanswered, **unanswered_tail;
	} * peers;
};

/* Counts a message that waits for the peer; message_over() one that has left or failed. */
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

/* Reports whether messages wait for a peer or have not left completely. */
static inline bool message_sends(const struct message_state *state, uint32_t slot)
{
	return state->sending[slot / 64] >> slot % 64 & 1;
}

/* Limits of messages on their way out, for all peers together; each peer has a share.
 *
 * @outs:   bulk messages being sent or waiting
 * @parked: small messages that wait for credits
 * @copies: copies of MESSAGE_COPY_BYTES while disks are slow; 0: none */
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
/* More or fewer bytes than known here will leave for the peer behind the next frame: asks for the
 * buffers that they need beyond its window. */
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

/* out.c. message_out_left() returns messages that have left or failed. */
bool message_may_store(const struct message_state *state, const struct link_peer *peer);
struct message_out *message_out_get(struct message_state *state, struct link_peer *peer);
void message_out_start(struct message_state *state, struct message_out *out);
void message_pump(struct message_state *state, struct link_peer *peer);
struct message_out *message_out_left(struct message_state *state);
void message_out_put(struct message_state *state, struct message_out *out);

/* reread.c: reads the source of a message again if a frame was lost */
bool message_lasts(struct message_state *state, struct message_out *out);
void message_answered(struct message_state *state, struct link_peer *peer, uint32_t token);
void message_tick(struct message_state *state);
void message_resolve(struct message_state *state, struct link_peer *peer);
struct message_out *message_out_resolved(struct message_state *state);
void message_reread(struct message_state *state);

/* sink_queue.c: payload that waits for a stage of the receiver */
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

/* finished.c: messages that are complete or failed */
void message_in_finish(struct message_in *in);
struct message_in *message_in_finished(struct message_state *state);
void message_in_wait(struct message_in *in);
struct message_in *message_in_unanswered(struct message_state *state, struct message_peer *mp);
void message_in_release(struct message_in *in, struct link_rxframe *frame);
bool message_in_stays(const struct message_in *in);
void message_in_close(struct message_in *in);
