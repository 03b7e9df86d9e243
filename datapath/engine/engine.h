/* SPDX-License-Identifier: BSD-2-Clause */
/* The inside of an instance: active messages (P4) on top of the layers below. */
#pragma once

#include <endian.h>
#include <string.h>
#include <sys/types.h>

#include <careful/careful.h>
#include <careful/ping.h>

#include "link/link.h"
#include "message/message.h"
#include "engine/sharing.h"
#include "engine/spin.h"

enum {
	ENGINE_TICK_NS = 500 * 1000, /* between two runs of tick() */
	ENGINE_CONTROL_NS = 100 * 1000, /* between two polls of the control socket, when idle */
	ENGINE_REPAIR_NS = 20 * 1000, /* during a repair; for a message that XDP announced */
	ENGINE_ANNOUNCED_MAX = ENGINE_TICK_NS / ENGINE_CONTROL_NS, /* most such polls per tick */
	ENGINE_POLLS_PER_CLOCK = 16, /* rounds between two reads of the clock */
	ENGINE_QUESTIONS = 8, /* most unanswered questions to a peer (live_latency.c) */
};

/* The sizes of an instance's tables. @operations and @regions are powers of two. */
struct engine_limits {
	uint32_t operations;
	uint32_t regions;
	struct message_limits messages;
};

/* A request, get or store that waits for its answer. */
struct operation {
	struct operation *next; /* in the list of ended operations that are not reported yet */
	uint32_t token; /* 0: free, or ended */
	uint32_t generation;
	struct link_peer *peer;
	uint64_t epoch;
	uint8_t kind; /* enum careful_am_kind */
	bool to_file; /* a get to a file, whose bytes count in message_peer's asked_bytes */
	bool placing; /* its data moves: only the end of the data's message ends the operation */
	bool stopped; /* a get that must write no more data */
	struct careful_span local;
	uint32_t bytes;
	uint64_t digest; /* store: digest of the bytes sent */
	/* The bulk message that the answer times (live_latency.c). */
	struct live_sample {
		uint64_t began_ns; /* start of the message; 0: times no message */
		uint8_t class;
		uint8_t version;
	} live;
	struct careful_result result;
	careful_done_fn *done;
	void *user;
};

struct region {
	struct careful_region region;
	uint32_t key; /* 0: free */
	uint32_t generation;
	uint32_t uses; /* messages that read or write the region */
	uint64_t read_bytes, written_bytes; /* bytes that peers got and stored */
};

struct handler {
	careful_handler_fn *fn;
	void *user;
};

/* The calls of careful.h that depend on the kind of instance: one with its own queue (own_ops), or
 * one attached to carefuld (attached_ops). */
struct engine_ops {
	__typeof__(careful_close) *close;
	__typeof__(careful_poll) *poll;
	__typeof__(careful_wait_fds) *wait_fds;
	uint64_t (*now_ns)(const struct careful *c);
	uint64_t (*random)(struct careful *c);
	__typeof__(careful_info) *info;
	__typeof__(careful_keys_refresh) *keys_refresh;
	__typeof__(careful_memory) *memory;

	__typeof__(careful_peer_among) *peer;
	__typeof__(careful_peer_close) *peer_close;
	__typeof__(careful_peer_info) *peer_info;
	__typeof__(careful_peer_measure) *peer_measure;
	__typeof__(careful_peer_whereabouts) *peer_whereabouts;
	__typeof__(careful_payload_bytes) *payload_bytes;

	/* Reports to carefuld that a handler begins or ends; NULL without carefuld. */
	int (*handle)(struct careful *c, uint16_t handler, bool stores, bool on);
	__typeof__(careful_request) *request;
	/* Reports whether a request of this many bytes can leave now; NULL: always. */
	bool (*may_ask)(struct careful *c, uint32_t peer, uint32_t bytes);
	/* Reports whether this many requests can begin. */
	bool (*may_begin)(struct careful *c, uint32_t requests);
	/* Reports whether all requests so far are sent even if this process ends; NULL: always. */
	bool (*handed_over)(const struct careful *c);
	__typeof__(careful_alloc) *alloc;
	__typeof__(careful_free) *free;
	__typeof__(careful_send) *send;
	__typeof__(careful_reply_late) *reply;
	__typeof__(careful_keep) *keep;
	__typeof__(careful_release) *release;

	__typeof__(careful_store) *store;
	__typeof__(careful_get) *get;
	__typeof__(careful_region_add) *region_add;
	__typeof__(careful_region_remove) *region_remove;
	__typeof__(careful_ping) *ping;
};

/* Calls from the engine up to the event service. */
struct engine_event_hooks {
	/* Handles a frame of the event service. */
	void (*arrived)(struct careful *c, struct link_rxframe *frame, const struct careful_am *am);
	/* Called when an epoch of a peer's session ends, if there is a group. */
	void (*epoch_over)(struct careful *c, struct link_peer *peer);
	/* Called in each poll, if there is a group. */
	void (*round)(struct careful *c);
	/* Called when the instance ends. */
	void (*end)(struct careful *c);
};

struct careful {
	const struct engine_ops *ops;
	struct queue *queue;
	struct port *port; /* the port of the queue */
	struct storage *storage;
	struct link link;
	struct message_state messages;
	struct careful_options options;
	struct engine_limits limits;
	char names[3][64];

	struct operation *operations;
	uint32_t *operations_free;
	uint32_t operations_free_count;
	struct operation *ended, **ended_tail;
	struct region *regions;
	/* handlers of requests; the last entry stands for unknown indices */
	struct handler handlers[CAREFUL_HANDLERS + 1];
	struct handler store_handlers[CAREFUL_HANDLERS];
	careful_peer_fn *watch;
	void *watch_user;
	struct engine_reported {
		uint64_t epoch;
		uint32_t lives;
		uint32_t tenants;
		uint8_t state;
	} * reported; /* each peer as @watch last reported the peer */

	/* Requests of each peer that wait (deferred.c). */
	struct engine_waiting {
		uint64_t since_ns; /* last progress, or start of the wait */
		uint64_t pass; /* deferred_pass in which a request last had to wait */
		uint32_t deferred; /* frames held for these requests */
	} * waiting;
	bool changed; /* a peer's state may differ from @reported */

	/* Pings of each peer (ping.c). */
	struct ping_slot {
		careful_ping_fn *done; /* of our ping to the peer */
		void *user;
		/* The other fields belong to the peer's ping that we write to the scratch file. */
		struct careful *c;
		struct link_held *kept; /* its frame; NULL: no ping is being written */
		struct link_peer *peer;
		uint64_t epoch, host_ns;
		__be32 frag_off; /* of its frame */
		struct careful_ping_answer answer;
		struct storage_io io;
		struct iovec iov; /* buffer of io */
		bool waiting; /* until there is a scratch file */
	} * pings;
	int scratch_fd; /* -1: no file yet */
	uint64_t scratch_asked; /* pings so far that ask for a write */

	/* Timed messages of each peer (live_latency.c). */
	struct live_peer {
		uint64_t at_ns, stored_at_ns; /* starts of the last ones, to and from the peer */
		uint32_t questions[ENGINE_QUESTIONS];
	} * live;
	uint8_t scratch; /* enum careful_scratch */

	/* The running handler's message, in a new frame or a held one; both NULL: none runs. */
	struct link_rxframe *handled_frame;
	struct link_held *handled_held;
	struct careful_kept handled; /* its place in the frame */
	struct careful_kept *handled_kept; /* set when the handler keeps it */
	uint8_t handled_alone; /* its CAREFUL_AM_ALONE, which the reply copies */

	/* Held frames with requests that wait. */
	struct link_held **deferred;
	uint32_t deferred_count, deferred_max;
	uint64_t deferred_pass; /* number of the next pass over all of them, from 1 */

	const struct engine_event_hooks *event_hooks; /* NULL until the first group */
	struct careful_events *events; /* the group of this instance, or NULL */
	struct careful_events *events_forgotten; /* list of closed groups with requests under way */

	uint64_t tick_ns, attended_ns;
	uint32_t control; /* port->control at the last poll after an announcement */
	uint64_t announced_ns; /* first time that port->control differed; 0: it does not */
	uint32_t announced_polls; /* polls after announcements since the last tick */
	uint64_t rx_frames; /* frames received until the last read of the clock */
	struct spin spin[2]; /* [0]: waits for answers of peers; [1]: other waits */
	uint64_t extra_ns; /* last poll of careful_wait()'s extra_fd */
	uint32_t polls;
	bool polling; /* a round is under way, so whoever calls us now is a callback */
	bool gone; /* the interface was deleted */
	uint32_t callbacks; /* calls of the application's functions so far */
	/* of an instance from careful_attach(), which uses few other fields; else NULL */
	struct attached *attached;
	/* Called in each round and before each wait: carefuld serves attached programs. */
	engine_each_round_fn *each_round;
	void *each_round_user;
	int store_refused; /* errno from the handler of the running store */
	pid_t owner; /* the process that opened the instance; a child of fork() has only a copy */
};

/* The simulator's queue, storage and limits, in place of AF_XDP, io_uring and default_limits.
 * engine_open() takes ownership of them, even if it fails. */
struct engine_base {
	struct queue *queue;
	struct storage *storage;
	struct engine_limits limits;
};

/* instance.c */
int engine_open(const struct careful_options *options, const struct engine_base *base,
		struct careful **instance, struct careful_error *error);

/* round.c */
void round_send(struct careful *c);
int own_poll(struct careful *c);

/* Reports whether callbacks are due, so that a wait must not begin. */
static inline bool engine_has_news(const struct careful *c)
{
	return c->ended || c->changed || c->link.changed || c->link.pings_done || c->link.trains;
}

static inline struct link_peer *engine_peer(struct careful *c, uint32_t peer)
{
	if (peer >= c->link.peers_max || c->link.peers[peer].state == CAREFUL_PEER_NONE)
		return NULL;
	return &c->link.peers[peer];
}

/* send.c */
bool own_may_ask(struct careful *c, uint32_t peer, uint32_t bytes);
bool own_may_begin(struct careful *c, uint32_t requests);
__typeof__(careful_payload_bytes) own_payload_bytes;
__typeof__(careful_request) own_request;
__typeof__(careful_alloc) own_alloc;
__typeof__(careful_free) own_free;
__typeof__(careful_send) own_send;
__typeof__(careful_reply_late) own_reply;
__typeof__(careful_store) own_store;
__typeof__(careful_get) own_get;

/* message_keep.c */
struct careful_kept *own_keep(const struct careful_message *message);
void own_release(struct careful *c, struct careful_kept *kept);

/* Reads the message at a place in a frame's body. Returns its size, with its payload. */
static inline uint32_t am_at(const uint8_t *body, uint32_t body_bytes, struct careful_kept place,
			     struct careful_am *am)
{
	memcpy(am, body + place.at, sizeof(*am));
	return am->next ? be32toh(am->next) : body_bytes - place.at;
}

static inline void am_step(struct careful_kept *place, uint32_t bytes)
{
	place->at += (uint16_t)bytes;
	place->nth++;
}

/* am.c */
struct link_held *am_take(struct careful *c, struct link_rxframe *frame);
bool am_must_wait(struct careful *c, const struct link_peer *peer, const struct careful_am *am);
void am_handle(struct careful *c, struct link_peer *peer, const struct careful_am *am,
	       const void *payload, uint32_t bytes);

static inline void am_args(const struct careful_am *am, uint32_t *args)
{
#pragma GCC unroll 4
	for (int i = 0; i < CAREFUL_AM_ARGS; i++)
		args[i] = be32toh(am->args[i]);
}

/* bulk.c */
void bulk_take(struct careful *c, struct link_rxframe *frame);
void bulk_finished(struct careful *c, struct message_in *in);
void bulk_sent(struct careful *c);
void bulk_answered(struct careful *c, const struct operation *op, int error);

/* deferred.c */
/* Reports whether there is room for an answer, if the message needs one. */
static inline bool deferred_room(const struct careful *c, const struct link_peer *peer,
				 const struct careful_am *am)
{
	return !am->token || message_may_serve(&c->messages, peer, am);
}

void deferred_put(struct careful *c, struct link_held *held);
void deferred_stores(struct careful *c);
void deferred_serve(struct careful *c);

/* operation.c */
int operation_over_status(const struct link_peer *peer);
struct operation *operation_new(struct careful *c, struct link_peer *peer, uint8_t kind,
				careful_done_fn *done, void *user);
struct operation *operation_find(struct careful *c, uint32_t token, const struct link_peer *peer,
				 uint64_t epoch);
void operation_count_asked(struct careful *c, struct operation *op);
void operation_end(struct careful *c, struct operation *op, const struct careful_result *result);
void operation_end_now(struct careful *c, struct operation *op,
		       const struct careful_result *result);
void operation_drop(struct careful *c, struct operation *op);
void operations_report(struct careful *c);
void operation_answer(struct careful *c, struct link_peer *peer, __be32 token, int status);
void operations_end_failed(struct careful *c);
void operations_reset(struct careful *c, struct link_peer *peer, int status);

/* live_latency.c */
void live_begin(struct careful *c, struct message_out *out, struct operation *op);
void live_sent(struct careful *c, struct message_out *out);
bool live_answered(struct careful *c, struct operation *op, int status);
void live_arrives(struct careful *c, struct message_in *in);
void live_stored(struct careful *c, const struct message_in *in);

/* region.c */
int own_region_add(struct careful *c, const struct careful_region *region, uint32_t *key);
int own_region_remove(struct careful *c, uint32_t key);
struct region *region_find(struct careful *c, uint32_t key);
int region_check(struct careful *c, const struct link_peer *peer, const struct careful_am *am,
		 uint32_t bytes, uint32_t access, struct region **found, struct careful_span *span);

/* ping.c */
__typeof__(careful_ping) own_ping;
void ping_receive(struct careful *c, struct link_rxframe *frame);
void ping_finish(struct careful *c);
void ping_forget(struct careful *c, engine_match_fn *match, const void *of);

/* peers.c */
int own_peer(struct careful *c, const struct sockaddr *address, uint32_t bytes, uint32_t queues);
int own_peer_close(struct careful *c, uint32_t peer);
int own_peer_info(struct careful *c, uint32_t peer, struct careful_peer_info *info);
int own_peer_measure(struct careful *c, uint32_t peer);
__typeof__(careful_peer_whereabouts) own_peer_whereabouts;
void peers_epochs(struct careful *c);
void peers_report(struct careful *c);
