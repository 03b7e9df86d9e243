/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the files of the local socket's server share. All in one thread. Calls go from
 * ipc.c to ipc_op.c, from there to ipc_gets.c, ipc_peer.c, ipc_program.c, ipc_signature.c and
 * ipc_measure.c, and from all of them to ipc_answer.c and ipc_user.c; from ipc_program.c to ipc_region.c and
 * ipc_ring.c; from ipc.c and ipc_op.c to ipc_handles.c, which asks as a client does. What closes
 * files is ipc_close.c's, the only one with threads.
 */
#ifndef DAEMON_IPC_PRIVATE_H
#define DAEMON_IPC_PRIVATE_H

#include <pthread.h>

#include <careful/abi.h>
#include <careful/careful.h>
#include <careful/ipc.h>

#include "daemon/ipc.h"

enum {
	/* Answers that one client may have coming or waiting, payload bytes; for all
	 * clients together 8 MiB of the 32 that the daemon may take beside its buffers. */
	IPC_ANSWER_BYTES = 256 << 10,
	IPC_HANDLES = 1024, /* open at peers for one client, as far as they are remembered */
	/* Handles that one client may have at one peer, which grants 128 to this host: root's, and
	 * any other user's, which is less than what the user may have. */
	IPC_HANDLES_ROOT = 96,
	IPC_HANDLES_USER = 64,
	/* Requests of one client that may wait for a handle. The others of CAREFUL_IPC_INFLIGHT
	 * stay for what moves bytes and closes. */
	IPC_OPENING = CAREFUL_IPC_INFLIGHT / 2,
	IPC_CLOSE_MS = 10, /* until a CLOSE that was not heard is asked again */
	IPC_LEAVE_MS = 60000, /* a client has gone: until peers' answers to CLOSE are given up */
	IPC_CONNECT_MS = 5000,
	IPC_PING_MS = 60000, /* longest wait for a ping's answer */
	IPC_PROGRAM_OPS = CAREFUL_RING_OPERATIONS,
	/* What stores and gets of a program may have under way, or one of them alone: as much as a
	 * transfer (pace.py). They go in their order, whoever asked. */
	IPC_PROGRAM_BYTES = 8 << 20,
	IPC_STALL_MS = 30000, /* unread for so long: a program is stalled */
	IPC_STOP_MS = 2000, /* at the end, until files that do not close are left */
	IPC_ROUND = 32, /* questions read from one client before the others' turn */
};

/* Things that a request opens at a peer's block service. */
enum ipc_opens {
	IPC_OPENS_NOTHING = 0,
	IPC_OPENS_FILE,
	IPC_OPENS_LISTING,
	IPC_OPENS_SCRATCH,
	IPC_OPENS,
};

struct ipc_client;
struct ipc_issuer;
struct ipc_program;

/*
 * A question under way, until its answer is in the socket.
 *
 * @peer:     as the client names it (see ipc_peer.c)
 * @file:     GET, STORE: which it uses; FILE_REMOVE: which it waits for
 * @reserve:  bytes of IPC_ANSWER_BYTES
 * @attempt:  REQUEST: its name, if the block service's
 * @opens:    REQUEST: what it may open at the peer, until the answer says whether it did
 * @until_ns: CONNECT: time limit
 * @began_ns: REQUEST, GET, STORE
 */
struct ipc_op {
	struct ipc_op *next;
	struct ipc_client *client;
	uint64_t id;
	uint32_t op;
	uint32_t peer;
	uint32_t file;
	uint32_t handler;
	uint32_t handle;
	uint64_t attempt;
	enum ipc_opens opens;
	uint32_t reserve;
	uint64_t until_ns;
	uint64_t began_ns;
};

/* @users: operations that use it; @remover: the FILE_REMOVE that waits for them */
struct ipc_file {
	int fd; /* -1: no such file */
	uint32_t users;
	struct ipc_op *remover;
};

/* An answer that the socket had no room for. */
struct ipc_answer {
	struct ipc_answer *next;
	struct ipc_op *op;
	struct careful_ipc head;
	unsigned char payload[];
};

/* A question that had to wait: for the engine, or for answers to be read. */
struct ipc_question {
	struct careful_ipc head;
	int fd; /* passed with it, or -1 */
	const void *payload;
};

/* Something that the client opened at a peer and has not closed.
 * @key: 0: no answer has named it yet; it has its attempt's name alone (block.h) */
struct ipc_handle {
	uint32_t peer;
	uint32_t key;
	uint64_t attempt;
	enum ipc_opens kind;
};

/*
 * @fd:         -1: the client has gone, its operations have not
 * @uid:        of the user who connected
 * @ops_used:   of ops[], taken
 * @reserved:   sum of their reserves
 * @armed:      epoll events asked for
 * @close_ns:   gone: not before then is a handle closed again
 * @leave_ns:   gone: from then on its handles are not closed any more
 * @parked:     waits, with its payload behind it; nothing is read meanwhile
 * @opening:    requests that wait for a handle; other questions are read meanwhile
 * @closing:    files handed to ipc_close() that are not closed yet; @closes: one of them is just
 *              being, under the closer's lock
 */
struct ipc_client {
	struct ipc_event event;
	struct ipc *ipc;
	struct ipc_client *next;
	int fd;
	uid_t uid;
	bool failed;
	uint32_t ops_used;
	uint32_t reserved;
	uint32_t armed;
	struct ipc_question *parked;
	struct ipc_opening *opening;
	uint32_t closing;
	bool closes;
	struct ipc_answer *answers, **answers_tail;
	struct ipc_op *ops_free;
	struct ipc_handle *handles;
	uint32_t handles_count;
	uint64_t close_ns, leave_ns;
	uint64_t wanted_ns; /* since when its CONNECT waits for a place; 0: it does not */
	struct ipc_program *program; /* ATTACH; or NULL */
	struct ipc_issuer *issuer; /* SIGNATURE; NULL before the first */
	struct ipc_measure *measure; /* MEASURE under way, or NULL */
	struct ipc_file files[CAREFUL_IPC_FILES];
	struct ipc_op ops[CAREFUL_IPC_INFLIGHT];
};

/* A request that waits for a handle at the peer. */
struct ipc_opening {
	struct ipc_opening *next;
	struct ipc_op *op;
	struct ipc_question question;
};

/* A file to be closed; @op: to be answered then, or NULL */
struct ipc_closing {
	struct ipc_closing *next;
	struct ipc_client *client;
	struct ipc_op *op;
	int fd;
};

/*
 * @clients, @threads_count: the engine's thread's alone: clients with files to close
 * @waiting, @closed, @living, @stop: under the lock
 */
struct ipc_closer {
	struct ipc_event event;
	uint32_t clients, threads_count;
	pthread_t threads[IPC_CLIENTS];
	pthread_mutex_t lock;
	pthread_cond_t wake, over;
	struct ipc_closing *waiting, **waiting_tail, *closed;
	uint32_t living;
	bool stop;
	int event_fd;
};

/*
 * The handshake that a local client began in a slot.
 *
 * @used:  false: none yet
 * @name:  of the peer; the slot's next peer has another
 * @uid:   whose client began it
 * @at_ns: when
 */
struct ipc_begun {
	bool used;
	uint32_t name;
	uid_t uid;
	uint64_t at_ns;
};

/*
 * @lives:     of each peer slot: changes when its peer is gone, so that a client's
 *             name for it is not taken for the next peer there
 * @connects:  CONNECTs under way
 * @busy:      clients that have something parked, or handles to close; @opening of all; news of
 *             peers that programs have not read
 * @has_signed: a SIGNATURE has had this round of the loop
 */
struct ipc {
	struct ipc_event event;
	struct careful *instance;
	int listen_fd;
	int epoll_fd;
	int spare_fd; /* given up to accept a connection when there is no other; -1: there is none */
	uint32_t peers_max;
	uint16_t port; /* that peers are asked at unless a question names one */
	uint32_t clients_count;
	uint32_t busy;
	bool has_signed;
	struct ipc_client *clients;
	struct ipc_closer closer;
	struct ipc_op *connects;
	uint32_t measures; /* clients with one under way */
	const struct block_server *block; /* whose exports USE tells of, or NULL */
	ipc_reload_fn *reload; /* or NULL */
	void *reload_user;
	struct careful_ipc_use use;
	struct ipc_program *programs; /* that are there */
	struct ipc_program *owners[CAREFUL_HANDLERS_APP]; /* of requests to each handler */
	uint16_t lives[CAREFUL_PEERS_MAX];
	struct ipc_begun begun[CAREFUL_PEERS_MAX];
	uint8_t held[CAREFUL_PEERS_MAX]; /* enum ipc_hold, or'd */
	uint32_t held_count; /* of them not 0 */
	unsigned char buffer[CAREFUL_IPC_PAYLOAD_BYTES];
};

/*
 * An operation of a program.
 *
 * @next:   that is free, or waits for others to end
 * @id:     0: free
 * @file:   +1, of the client's files[]; 0: none
 * @moves:  of a store or get under way: bytes; 0: none
 * @asked:  what it is, while it waits
 */
struct ipc_program_op {
	struct ipc_program_op *next;
	struct ipc_program *program;
	uint64_t id;
	uint32_t file;
	uint32_t moves;
	struct careful_ring_entry asked;
};

struct ipc_program_ask {
	struct careful_reply_to to;
	uint32_t id; /* 0: free */
};

/* @gone: to be removed; messages read or write it yet */
struct ipc_program_region {
	uint32_t key; /* 0: free */
	uint32_t peer; /* slot, or CAREFUL_ANY_PEER */
	int fd; /* of a file; -1: of memory */
	uint64_t memory_off;
	bool gone;
};

/*
 * A program's knowledge of the peer in a slot.
 *
 * @known:  the program asked for the peer, or the peer sent it something
 * @peer:   its name then
 * @due:    @state is to be told, and @failed: that the session failed before
 * @unread: the last note of it is: told_put was @put behind it
 */
struct ipc_news {
	uint32_t peer;
	uint32_t put;
	uint8_t state;
	bool known, due, failed, unread;
};

/*
 * A program that is attached: our end of its rings. The numbers are ours; of those in the area we
 * write ours and believe none.
 *
 * @client:      whose connection it is
 * @area:        shared with the program, and so anybody's
 * @armed:       we said that we sleep
 * @asks_taken, @told_put: entries so far
 * @ops_used:    of ops[], taken; what is told keeps places for the ends of all of them
 * @moving:      bytes of its stores and gets under way
 * @later:       those that wait for them
 * @news:        it was told something since it was woken last
 * @blocked:     its next entry has to wait for room in the engine
 * @read_ns:     when it was seen to read, or had nothing to; @read: how far
 */
struct ipc_program {
	struct ipc_client *client;
	struct ipc_program *next;
	struct careful_area *area;
	uint64_t area_bytes;
	struct careful_ring_entry *asks, *told;
	uint8_t *asks_payload, *told_payload, *built;
	uint8_t *memory;
	uint64_t memory_bytes;
	uint32_t asks_taken;
	uint32_t told_put;
	uint32_t ops_used;
	uint32_t answers_used;
	uint32_t handlers;
	uint32_t regions_used;
	bool news;
	bool armed;
	bool blocked;
	bool stalled;
	bool quiet; /* it is about to go: QUIET */
	bool over; /* the program has gone */
	uint32_t read;
	uint64_t read_ns;
	uint64_t generation;
	uint32_t answer_generation;
	uint64_t moving;
	struct ipc_program_op *later, **later_tail;
	struct ipc_program_op *ops_free;
	struct ipc_program_op ops[IPC_PROGRAM_OPS];
	struct ipc_program_ask answers[CAREFUL_RING_ANSWERS];
	struct ipc_program_region regions[CAREFUL_AREA_REGIONS];
	bool stores[CAREFUL_HANDLERS_APP]; /* handlers of stores */
	bool wants[CAREFUL_PEERS_MAX]; /* peers that it asked for, and has not left */
	struct ipc_news peers[CAREFUL_PEERS_MAX];
	uint32_t news_count; /* peers with a note that is due or unread */
	struct careful_program_info info; /* name, pid, and counts */
};

/* ipc_close.c */
int ipc_closer_init(struct ipc_closer *closer, int epoll_fd);
uint32_t ipc_closer_stop(struct ipc_closer *closer);
void ipc_close(struct ipc_client *client, int fd, struct ipc_op *op);

/* Whether another question may be read: there is room for what it may leave. */
static inline bool ipc_may_ask(const struct ipc_client *client)
{
	return !client->parked && client->ops_free && client->closing < CAREFUL_IPC_FILES;
}

/* ipc_answer.c */
void ipc_arm(struct ipc_client *client);
struct ipc_op *ipc_op_take(struct ipc_client *client, const struct careful_ipc *head,
			   uint32_t reserve);
void ipc_op_free(struct ipc_op *op);
int ipc_send_packet(int fd, const struct careful_ipc *head, const void *payload);
void ipc_answer(struct ipc_op *op, int status, struct careful_ipc *head, const void *payload,
		uint32_t bytes);
void ipc_flush(struct ipc_client *client);

/* ipc_op.c */
/* Sends a REQUEST. 0: it is under way; -errno: it is not. */
int ipc_request(struct ipc_client *client, struct ipc_op *op, const struct ipc_question *q);
/* It takes the question's descriptor, or leaves it to who asks. */
int ipc_ask(struct ipc_client *client, struct ipc_question *question);
void ipc_file_unuse(struct ipc_client *client, uint32_t index);
int ipc_file_use(struct ipc_client *client, uint32_t index);
int ipc_file_check(int fd);
void ipc_close_files(struct ipc_client *client);
void ipc_count(struct ipc_client *client, uint32_t kind, uint64_t began_ns, int status);

/* ipc_handles.c */
/* A request is about to be sent. The name of its attempt is remembered before the answer comes: a
 * client that ends meanwhile leaves nothing open. */
void ipc_handle_asked(struct ipc_op *op);
/* Keeps account of what the block service opened for this client. @key: of what was opened */
void ipc_track_handles(struct ipc_op *op, int status, uint32_t key);
/* The session with the peer in a slot has ended, and all handles there with it. */
void ipc_handles_over(struct ipc *ipc, uint32_t index);
bool ipc_close_handles(struct ipc_client *client);
/* Sends a REQUEST when its user may have another handle at the peer. */
int ipc_handles_ask(struct ipc_client *client, struct ipc_op *op, const struct ipc_question *q);
/* Asks again what waits for a handle. */
void ipc_handles_retry(struct ipc_client *client);
/* Drops what waits for a handle: its client has gone. */
void ipc_handles_drop(struct ipc_client *client);

/* ipc_gets.c */
int ipc_gets(struct ipc_client *client, struct ipc_op *op, const struct ipc_question *q);

/* ipc_peer.c */
int ipc_peer_index(const struct ipc *ipc, uint32_t peer);
bool ipc_held(const struct ipc *ipc, const struct ipc_question *question);
int ipc_connect(struct ipc *ipc, struct ipc_op *op, const struct ipc_question *question);
void ipc_connects_poll(struct ipc *ipc);
int ipc_connects_timeout_ms(const struct ipc *ipc);

int ipc_peer_begin(struct ipc *ipc, struct ipc_op *op, const struct ipc_question *question);
int ipc_peer_leave(struct ipc_program *p, uint32_t peer);
uint32_t ipc_peer_name(const struct ipc *ipc, uint32_t index);

/* ipc_program.c */
int ipc_program_ask(struct ipc_client *client, struct ipc_op *op, struct ipc_question *q);
void ipc_programs_poll(struct ipc *ipc);
void ipc_program_leave(struct ipc_client *client);
bool ipc_program_over(struct ipc_client *client);
void ipc_program_free(struct ipc_client *client);
uint32_t ipc_programs_bytes(const struct ipc *ipc);

/* ipc_news.c */
/* A peer's state changed; before its name goes to another. */
void ipc_programs_peer(struct ipc *ipc, uint32_t index, uint32_t state);
/* The program hears of the peer in a slot from now on. */
void ipc_news_know(struct ipc_program *p, uint32_t index);
void ipc_news_poll(struct ipc_program *p);
void ipc_news_forget(struct ipc_program *p);

/* ipc_region.c */
struct ipc_program_region *ipc_region_find(struct ipc_program *p, uint32_t key);
int ipc_region_add(struct ipc_program *p, struct ipc_question *q, uint32_t *key);
int ipc_region_remove(struct ipc_program *p, struct ipc_program_region *region);
void ipc_regions_remove_gone(struct ipc_program *p);

/* ipc_ring.c */
uint32_t ipc_ring_room(const struct ipc_program *p);
void ipc_ring_tell(struct ipc_program *p, const struct careful_ring_entry *entry,
		   const void *payload);
void ipc_ring_bell(struct ipc_program *p);
void ipc_ring_wake(struct ipc_program *p);
void ipc_ring_forget(struct ipc_program *p);
void ipc_ring_fail(struct ipc_program *p, const char *why);
uint32_t ipc_ring_round(struct ipc_program *p);
bool ipc_ring_waits(struct ipc_program *p);

/* ipc_user.c */
/* Returns the user who connected a socket; -1 is nobody. */
uid_t ipc_user(int fd);
/* Reports whether a user who holds some of a pool may take one more. A user can hold two thirds of
 * what the others leave, so another user always finds some; the last `roots` are for root. */
bool ipc_user_may_take(uid_t uid, uint32_t held, uint32_t free, uint32_t roots);
/* Reports whether the user may have one more client, and how many the user has. */
bool ipc_user_may_connect(const struct ipc *ipc, uid_t uid, uint32_t *held);
/* Notes that a client of this user asked for the peer in a slot. Root's stays root's. */
void ipc_user_began(struct ipc *ipc, uint32_t index, uid_t uid);
/* Makes room for a handshake: one without an answer may have to yield. Users other than root can
 * fill half of the places with such handshakes, so that hosts that ask us find the other half. 0;
 * -EAGAIN: not now. */
int ipc_user_make_room(struct ipc *ipc, uid_t uid, const struct sockaddr *to);

/* ipc_signature.c */
int ipc_signature(struct ipc_client *client, struct ipc_op *op, const struct ipc_question *q);
void ipc_issuer_leave(struct ipc_client *client);

/* ipc_measure.c */
int ipc_measure(struct ipc *ipc, struct ipc_op *op, const struct careful_ipc *head);
void ipc_measure_poll(struct ipc *ipc);
/* Returns how many ms may pass before the next poll; -1: until an event arrives. */
int ipc_measure_timeout_ms(const struct ipc *ipc);

#endif /* DAEMON_IPC_PRIVATE_H */
