/* SPDX-License-Identifier: BSD-2-Clause */
/* Cuts messages into frames and reassembles them. Small messages fit one frame. The plan in the
 * tune map cuts bulk messages, which are read from memory or a file without a copy. */
#pragma once

#include "link/link.h"
#include "message/plan.h"
#include "storage/storage.h"
#include "base/xxh3.h"

enum {
	MESSAGE_SLOTS = 16, /* bulk messages under way from one peer to another */
	MESSAGE_SLOT_WAITING = 0xff,
	/* buffers filled by one read: room for one more frame of any size is left */
	MESSAGE_BATCH = STORAGE_READ_SEGMENTS - DEVICE_SEGMENTS_MAX,
	MESSAGE_AM_BYTES = sizeof(struct careful_am),
	MESSAGE_REREADS = 2, /* reads for the repairs of a peer */
	MESSAGE_COPY_BYTES = 64 << 10, /* size of a copy while a disk is slow */
	/* The log copies messages up to this size, so a repair does not read their source. */
	MESSAGE_LOGGED_BYTES = 16 << 10,
	/* File fragments up to this size are copied; larger ones keep their receive buffer. */
	MESSAGE_SMALL_BYTES = 512,
};

/* A small message that waits to be sent. The body starts with careful_am. */
struct message_small {
	struct message_small *next; /* in its peer's queue, or among those that failed */
	struct link_peer *peer;
	uint64_t epoch;
	uint32_t bytes;
	int error; /* positive errno of a failed one */
	_Alignas(struct careful_am) uint8_t body[];
};

/* A frame of a bulk message, before it is sent. */
struct message_frame {
	struct message_frame *next;
	struct link_txframe tx;
	struct link_send_args args;
};

/* A bulk message being sent. */
struct message_out {
	struct message_out *next; /* in the queue of its peer, or of messages that have ended */
	struct link_peer *peer;
	uint64_t epoch;
	struct careful_am am;
	struct careful_span source;
	uint32_t id;
	uint32_t number; /* its index in message_state.outs plus 1 */
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
	bool has_uncopied; /* some fragment is not in the log: a repair reads the source */
	uint32_t seq_last; /* number of its last frame */
	int error; /* positive errno: the source failed, so the message is aborted */
	struct plan_cursor plan;
	uint64_t digest;
	struct xxh3 *hash;

	struct message_frame *ready, **ready_tail; /* filled frames that wait for netTx */
	uint32_t ready_bytes;
	bool ready_waited; /* some ready frame waited for netTx, so they may be joined */
	struct sink host_tx;
	struct message_frame *frames, **frames_tail; /* frames that hostTx fills */
	uint32_t batch_off, batch_count; /* first payload byte and frames of hostTx's last batch */
	uint64_t began_ns; /* start of that batch; 0: not traced, or reported */
	struct storage_io io;
	struct iovec iov[STORAGE_READ_SEGMENTS]; /* of io */
};

/* A received frame, or a copy of several, whose payload waits for a sink. */
struct sink_queue_entry {
	struct sink_queue_entry *next;
	struct link_held *frame; /* NULL: a copy */
	uint32_t cost; /* its buffers in message_peer.disk_buffers */
	int32_t copy_index; /* in message_state.copies; -1: none */
	uint32_t room; /* free bytes of the copy */
	struct careful_trace span; /* its unfinished hostRx; begin_ns 0: not traced, or reported */
	uint32_t pieces; /* in iov */
	struct iovec iov[DEVICE_SEGMENTS_MAX];
};

enum {
	MESSAGE_WRITES = 4,
	MESSAGE_LATE = 256,
};

/* Times of a measured message's arrival and writes (engine/live_latency.c). */
struct message_stamps {
	uint64_t began_ns; /* arrival of the first fragment; 0: not measured */
	uint64_t came_ns; /* arrival of the last fragment */
	uint64_t write_ns; /* start of the write under way */
	uint32_t frames_count, writes_count;
	uint32_t version; /* of the settings in the tune entry */
	struct message_write {
		uint32_t bytes;
		uint64_t took_ns;
	} writes[MESSAGE_WRITES]; /* the first ones, then the last */
};

/* A bulk message being received. */
struct message_in {
	struct message_state *state;
	struct message_in *next; /* among the finished */
	struct message_in **slot; /* its slot, until its last fragment arrives */
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
	bool blocked; /* its stage waits for a late write */
	/* the last frame or its copy, kept until the message is answered; NULL, -1: none */
	struct link_held *last_frame;
	int32_t last_copy;
	int error; /* positive errno */
	uint64_t digest;
	struct xxh3 *hash;

	struct sink_queue_entry *queue, *queue_last; /* payload that waits for the stage */
	uint32_t pieces_count, queue_count;
	struct sink stage; /* hostRx or store */
	uint64_t taken; /* bytes that the stage has taken */
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
	struct message_in *ins; /* the first ins_count of ins_max have been used */
	struct message_in **ins_free;
	uint8_t *hashes; /* of ins */
	uint32_t ins_count, ins_max, ins_free_count;
	uint32_t late[MESSAGE_LATE]; /* late messages by region; two regions may share a count */
	struct message_in **slots; /* MESSAGE_SLOTS for each peer: unfinished messages */
	struct message_in *finished, **finished_tail;
	uint32_t unanswered; /* stores whose answer waits, of all peers */
	bool has_ended; /* some list of ended messages may have an entry */
	struct message_out *ended, **ended_tail; /* messages that have left or failed */
	struct message_out *resolved; /* messages whose source is no longer needed */
	uint32_t retained; /* message_peer.retained of all peers */
	struct message_small *failed; /* too large for the frames of their session, or given up */
	struct sink_queue_entry *entries, *entries_free; /* one per receive buffer and copy */
	uint8_t *copies; /* payload that waits for a disk */
	int32_t *copies_free;
	struct share copies_share;
	uint8_t *parked;
	struct message_small **parked_free;
	struct share parked_share;
	uint32_t reading; /* messages whose file is being read */
	uint32_t messages; /* message_peer.messages of all peers */
	uint32_t packed_max; /* messages in one frame */
	uint64_t sending[CAREFUL_PEERS_MAX / 64]; /* a bit for each peer with waiting messages */
	struct message_peer {
		/* parked small messages; answers do not wait behind requests */
		struct message_queue {
			struct message_small *first, *last;
		} answers, questions;
		uint32_t gets; /* gets that left and have no data yet */
		uint32_t packable; /* parked only to share a frame */
		uint64_t sent_kick; /* link.kicks when a small message last left */
		struct message_out *out_first, *out_last;
		struct message_out *retained, **retained_tail; /* sent, oldest first; reread.c */
		uint32_t ids;
		uint16_t slots_busy;
		uint32_t messages; /* messages that wait or have not left completely */
		uint64_t unsent; /* bytes of its bulk messages */
		uint32_t outs, parked, copies; /* its entries of those pools */
		uint32_t disk_buffers; /* receive buffers that wait for disks */
		uint64_t asked_bytes; /* bytes of gets to files */
		struct message_in *unanswered, **unanswered_tail; /* stores; finished.c */
		/* the fragments that repairs read from their files: another one if a disk hangs */
		struct message_reread {
			struct message_state *state;
			bool busy; /* a read is under way, */
			uint64_t began_ns; /* since then */
			struct message_out *out;
			struct link_txframe tx;
			struct link_send_args args;
			uint32_t seq;
			struct storage_io io;
			struct iovec iov[DEVICE_SEGMENTS_MAX];
		} reread[MESSAGE_REREADS];
	} * peers;
};

/* Counts a message that waits to be sent; message_over() ends the count. */
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

/* Reports whether a peer has messages that wait or have not left completely. */
static inline bool message_sends(const struct message_state *state, uint32_t slot)
{
	return state->sending[slot / 64] >> slot % 64 & 1;
}

/* Sizes of the pools that all peers share. */
struct message_limits {
	uint32_t outs; /* bulk messages being sent or waiting */
	uint32_t parked; /* small messages that wait for credits */
	uint32_t copies; /* copies of MESSAGE_COPY_BYTES while disks are slow; 0: none */
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
/* Adds to the bytes that wait for the peer, and asks it for the buffers that they need. */
void message_ahead(struct message_state *state, struct link_peer *peer, uint64_t more,
		   uint64_t less);
bool message_small_may(struct message_state *state, struct link_peer *peer, uint32_t bytes);
bool message_small_now(struct message_state *state, struct link_peer *peer,
		       const struct careful_am *am, const void *payload, uint32_t bytes);
bool message_small_group(struct link_group *group, const struct careful_am *am, const void *payload,
			 uint32_t bytes);
bool message_ask(struct link_peer *peer, uint32_t token);
bool message_small_pump(struct message_state *state, struct link_peer *peer);
int message_small_failed(struct message_state *state, struct careful_am *am,
			 struct link_peer **peer, uint64_t *epoch);
void message_got(struct message_state *state, struct link_peer *peer);
bool message_may_answer(const struct message_state *state, const struct link_peer *peer);
bool message_may_serve(const struct message_state *state, const struct link_peer *peer,
		       const struct careful_am *am);

/* out.c */
bool message_may_store(const struct message_state *state, const struct link_peer *peer);
struct message_out *message_out_get(struct message_state *state, struct link_peer *peer);
void message_out_start(struct message_state *state, struct message_out *out);
void message_pump(struct message_state *state, struct link_peer *peer);
struct message_out *message_out_ended(struct message_state *state);
void message_out_put(struct message_state *state, struct message_out *out);

/* reread.c */
bool message_retain(struct message_state *state, struct message_out *out);
void message_answered(struct message_state *state, struct link_peer *peer, uint32_t token,
		      int error);
void message_tick(struct message_state *state);
void message_resolve(struct message_state *state, struct link_peer *peer);
struct message_out *message_out_resolved(struct message_state *state);
void message_reread(struct message_state *state);

/* Returns the message of a fragment with a source, or NULL if the message has ended. */
static inline struct message_out *message_source_of(struct message_state *state,
						    const struct link_peer *peer,
						    const struct link_send_args *args)
{
	struct message_out *out = &state->outs[args->source - 1];

	if (out->id != args->msg_id || out->peer != peer || out->epoch != peer->epoch)
		return NULL;
	return out;
}

/* Returns where a fragment's payload begins in the body of its frame. */
static inline uint32_t message_payload_at(const struct link_send_args *args)
{
	return args->flags & CAREFUL_F_FIRST ? MESSAGE_AM_BYTES : 0;
}

/* given_up.c */
void message_void(struct link_txframe *frame, struct link_send_args *args, int error);
bool message_give_up(struct message_state *state, struct link_peer *peer,
		     struct link_send_args *args, uint32_t seq, uint32_t body_bytes);

/* sink_queue.c */
void sink_queue_hold(struct message_in *in, struct link_rxframe *frame, const struct iovec *iov,
		     uint32_t n);
bool sink_queue_copy(struct message_in *in, const struct iovec *iov, uint32_t n, uint32_t bytes);
uint32_t sink_queue_write(struct message_in *in);
void sink_queue_pop(struct message_in *in, uint32_t n);
void sink_queue_release(struct message_in *in);
bool message_may_ask(const struct message_state *state, const struct link_peer *peer,
		     uint32_t bytes);

/* in.c */
struct message_in *message_in_open(struct message_state *state, const struct link_rxframe *frame);
struct message_in *message_in_find(struct message_state *state, const struct link_rxframe *frame);
void message_in_add(struct message_in *in, struct link_rxframe *frame);
bool message_in_stop(struct message_in *in, int error);

/* finished.c */
void message_in_finish(struct message_in *in);
struct message_in *message_in_finished(struct message_state *state);
void message_in_wait(struct message_in *in);
struct message_in *message_in_unanswered(struct message_state *state, struct message_peer *mp);
void message_in_release(struct message_in *in, struct link_rxframe *frame);
bool message_in_keeps_last(const struct message_in *in);
void message_in_close(struct message_in *in);
