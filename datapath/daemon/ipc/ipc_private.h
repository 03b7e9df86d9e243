/* SPDX-License-Identifier: BSD-2-Clause */
/* Shared by the files of the local socket's server. All functions run in the engine's thread,
 * except the threads of ipc_close.c. A file calls only files that are declared above it; the files
 * of ipc_program.h stand between ipc_peer.c and ipc_handles.c, and ipc.c comes last. */
#pragma once

#include <careful/abi.h>
#include <careful/careful.h>
#include <careful/ipc.h>

#include "base/pool.h"
#include "daemon/ipc/ipc.h"

enum {
	/* Most payload bytes of the answers that one client waits for or has not read. */
	IPC_ANSWER_BYTES = 256 << 10,
	IPC_HANDLES = 1024, /* remembered handles of one client, at all peers */
	/* Most handles of one client at one peer, for root and for other users. (A peer grants a
	 * host 128. Several clients of a user together may have more handles than one client.) */
	IPC_HANDLES_ROOT = 96,
	IPC_HANDLES_USER = 64,
	/* Most requests of one client that wait for a handle. The rest of CAREFUL_IPC_INFLIGHT
	 * remains for operations that move bytes or close handles. */
	IPC_OPENING = CAREFUL_IPC_INFLIGHT / 2,
	IPC_CLOSE_MS = 10, /* before a lost CLOSE is repeated */
	IPC_LEAVE_MS = 60000, /* longest wait for answers to CLOSE after a client has gone */
	IPC_CONNECT_MS = 5000, /* default time limit of CONNECT */
	IPC_PING_MS = 60000, /* longest wait for a ping's answer */
	IPC_BURST_AGAIN_MS = 10000, /* pause between two BURSTs to a peer; not for root */
	IPC_PROGRAM_OPS = CAREFUL_RING_OPERATIONS,
	/* Most bytes of a program's stores and gets under way, as in pace.py. A larger operation
	 * runs alone. */
	IPC_PROGRAM_BYTES = 8 << 20,
	IPC_STALL_MS = 30000, /* a program that reads no note for this long is stalled */
	IPC_STOP_MS = 2000, /* longest wait at the end for files that do not close */
	IPC_ROUND = 32, /* most questions read from one client before the next client's turn */
};

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

/* An operation: lasts from a question until its answer is in the socket. */
struct ipc_op {
	struct ipc_op *next; /* next free operation, or CONNECT under way */
	struct ipc_client *client;
	uint64_t id;
	uint32_t op;
	uint32_t peer; /* the client's name for the peer (ipc_name.c) */
	uint32_t file; /* GET, GETS, STORE: index of the file in use */
	uint32_t handler;
	uint32_t handle;
	uint64_t attempt; /* REQUEST: the attempt's name (block.h); 0: none */
	bool again; /* REQUEST: an earlier request of the same attempt has no answer */
	/* REQUEST: kind of handle that the request may open at the peer, until it is answered */
	enum ipc_opens opens_kind;
	uint32_t reserve; /* bytes of IPC_ANSWER_BYTES that are reserved for the answer */
	uint64_t until_ns; /* CONNECT: time limit */
	uint64_t began_ns; /* REQUEST, GET, STORE: start time */
};

/* A file that a client passed. */
struct ipc_file {
	int fd; /* -1: no such file */
	uint32_t users; /* operations that use it */
	struct ipc_op *remover; /* the FILE_REMOVE that waits for users, or NULL */
};

/* An answer that waits for room in the socket. */
struct ipc_answer {
	struct ipc_answer *next;
	struct ipc_op *op;
	struct careful_ipc head;
	unsigned char payload[];
};

/* A question as a client sent it. */
struct ipc_question {
	struct careful_ipc head;
	int fd; /* the descriptor passed with it, or -1 */
	uint32_t index; /* slot of the peer, if the question needs one */
	const void *payload;
};

/* A handle that the client opened at a peer and has not closed. */
struct ipc_handle {
	uint32_t peer;
	uint32_t key; /* 0 until an answer names the handle */
	uint64_t attempt; /* the attempt's name (block.h), until then */
	enum ipc_opens kind;
};

/* A client of the socket. It stays until its operations have ended. */
struct ipc_client {
	struct ipc_event event;
	struct ipc *ipc;
	struct ipc_client *next;
	int fd; /* its connection; -1: the client has gone */
	uid_t uid; /* the user who connected */
	bool failed; /* the connection has failed; ipc_poll() ends it */
	bool served; /* it began an operation, so other clients have their turn first */
	bool waits; /* @parked waits for room that all clients share */
	uint32_t ops_used; /* operations of ops[] that are taken */
	uint32_t opens_used; /* operations of ops[] that open a handle */
	uint32_t reserved; /* sum of the operations' reserves, in bytes */
	uint32_t armed; /* requested epoll events */
	/* a question to try again, or NULL; nothing is read meanwhile */
	struct ipc_question *parked;
	/* requests that wait for a handle; other questions are read meanwhile */
	struct ipc_opening *opening;
	uint32_t closing; /* its files that ipc_close() has not closed yet */
	struct pool_group closes; /* the client's group in the closer's pool */
	struct ipc_answer *answers, **answers_tail;
	struct ipc_op *ops_free;
	struct ipc_handle *handles;
	uint32_t handles_count;
	uint64_t close_ns; /* earliest time to repeat a CLOSE, after the client has gone */
	uint64_t leave_ns; /* when carefuld stops trying to close the handles of a gone client */
	uint64_t wanted_ns; /* when its CONNECT began to wait for a slot; 0: no CONNECT waits */
	struct ipc_program *program; /* after ATTACH, or NULL */
	struct ipc_issuer *issuer; /* after the first SIGNATURE, or NULL */
	struct ipc_measure *measure; /* the MEASURE under way, or NULL */
	struct ipc_file files[CAREFUL_IPC_FILES];
	struct ipc_op ops[CAREFUL_IPC_INFLIGHT];
};

/* A request that waits for a handle at the peer. */
struct ipc_opening {
	struct ipc_opening *next;
	struct ipc_op *op;
	struct ipc_question question;
};

/* A file to close. */
struct ipc_closing {
	struct pool_job job;
	struct ipc_client *client;
	struct ipc_op *op; /* operation to answer when the file is closed, or NULL */
	int fd;
};

/* The threads that close files. */
struct ipc_closer {
	struct ipc_event event;
	uint32_t files; /* those that are not closed yet */
	struct pool pool;
};

/* The last handshake that a local client began in a slot. */
struct ipc_handshake {
	bool used; /* false until the first handshake */
	uint32_t name; /* the peer's name; the slot's next peer has another */
	uid_t uid; /* user of the client */
	uint64_t at_ns; /* start time */
};

struct ipc {
	struct ipc_event event;
	struct careful *instance;
	int listen_fd;
	int epoll_fd;
	int spare_fd; /* closed to accept a connection when no other descriptor is free; -1: none */
	uint32_t peers_max;
	uint16_t port; /* UDP port of peers, unless a question names another */
	uint32_t clients_count;
	/* number of parked questions, requests that wait for a handle, gone clients, and unread
	 * notes about peers: while it is not 0, ipc_poll() is due soon */
	uint32_t poll_reasons;
	bool has_signed; /* a SIGNATURE ran in the current round of the main loop */
	/* in the order of their turns: the client that waits longest for its turn is first */
	struct ipc_client *clients;
	struct ipc_closer closer;
	struct ipc_op *connects; /* CONNECTs under way */
	uint32_t measures; /* clients with a MEASURE under way */
	const struct block_server *block; /* USE lists its exports; or NULL */
	const struct lend_server *lend; /* USE lists its memory; or NULL */
	ipc_reload_fn *reload; /* called for RELOAD; or NULL */
	void *reload_user;
	struct careful_ipc_use use;
	struct ipc_program *programs; /* attached programs that have not left */
	/* program that gets the requests to each handler, or NULL */
	struct ipc_program *owners[CAREFUL_HANDLERS_APP];
	/* number of peers that each slot has had, which is part of a peer's name */
	uint16_t generations[CAREFUL_PEERS_MAX];
	struct ipc_handshake handshakes[CAREFUL_PEERS_MAX]; /* the last handshake of each slot */
	/* when a user other than root may measure each peer's burst again */
	uint64_t bursts_ns[CAREFUL_PEERS_MAX];
	/* the reasons (enum ipc_hold, or'd) to hold each slot; @held_count slots have one */
	uint8_t held[CAREFUL_PEERS_MAX];
	uint32_t held_count;
	/* payload of the question that is being read */
	unsigned char buffer[CAREFUL_IPC_PAYLOAD_BYTES];
};

/* ipc_answer.c */
/* Sets the client's epoll events: readable while it may ask, writable while answers wait. */
void ipc_arm(struct ipc_client *client);
/* Takes a free operation for a question and reserves room for its answer; NULL: no room now. */
struct ipc_op *ipc_op_take(struct ipc_client *client, const struct careful_ipc *head,
			   uint32_t reserve);
void ipc_op_free(struct ipc_op *op);
/* Answers a question by head and payload. The operation ends when the answer is in the socket. */
void ipc_answer(struct ipc_op *op, int status, struct careful_ipc *head, const void *payload,
		uint32_t bytes);
void ipc_flush(struct ipc_client *client);
/* Counts the end of a GET, STORE or REQUEST, and its time. */
void ipc_count(struct ipc_client *client, uint32_t kind, uint64_t began_ns, int status);

/* Reports whether the client has room for another question: for its operation and its file. */
static inline bool ipc_may_ask(const struct ipc_client *client)
{
	return !client->parked && client->ops_free && client->closing < CAREFUL_IPC_FILES;
}

/* ipc_close.c */
int ipc_closer_init(struct ipc_closer *closer, int epoll_fd);
/* Returns 0 when all files are closed, or the number of threads that hang after IPC_STOP_MS. */
uint32_t ipc_closer_stop(struct ipc_closer *closer);
/* Hands a client's descriptor to the closing threads. op, unless NULL, is answered afterwards. */
void ipc_close(struct ipc_client *client, int fd, struct ipc_op *op);

/* ipc_name.c */
uint32_t ipc_peer_name(const struct ipc *ipc, uint32_t index);
/* Returns the slot of the peer with a name, or -ENOTCONN. */
int ipc_peer_index(const struct ipc *ipc, uint32_t peer);
/* Reports whether a question waits because a peer that it names is held. */
bool ipc_held(const struct ipc *ipc, const struct ipc_question *question);

/* ipc_file.c */
/* Returns 0 if the file is read and written at offsets: other kinds can block for ever. */
int ipc_file_check(int fd);
int ipc_file_add(struct ipc_client *client, struct ipc_op *op, struct ipc_question *q);
int ipc_file_remove(struct ipc_client *client, struct ipc_op *op, struct ipc_question *q);
/* Returns the file's descriptor, which stays open until ipc_file_unuse(), or -EBADF. */
int ipc_file_use(struct ipc_client *client, uint32_t index);
void ipc_file_unuse(struct ipc_client *client, uint32_t index);
/* Closes all files of a client that has gone and has no operations left. */
void ipc_close_files(struct ipc_client *client);

/* ipc_user.c */
/* Returns the user who connected a socket; -1: not known. */
uid_t ipc_user(int fd);
/* Reports whether a user may take another place of a pool: `used` are the user's, `free` are free,
 * and `reserved` of these are for root. A user can hold at most two thirds of the places that
 * others leave, so others always find some. */
bool ipc_user_may_take(uid_t uid, uint32_t used, uint32_t free, uint32_t reserved);
/* Reports whether the user may have another client; *held: the clients that the user has. */
bool ipc_user_may_connect(const struct ipc *ipc, uid_t uid, uint32_t *held);
/* Records which user began the handshake of a slot: root if root asked for it, else the first. */
void ipc_user_began(struct ipc *ipc, uint32_t index, uid_t uid);
/* Makes room for a handshake, if needed by ending an unanswered one. Unanswered handshakes of users
 * other than root can fill half of the slots; the rest is for hosts that begin sessions with us.
 * Returns 0, or -EAGAIN if there is no room now. */
int ipc_user_make_room(struct ipc *ipc, uid_t uid, const struct sockaddr *to);

/* ipc_peer.c */
/* Begins a handshake with a question's address. Returns the slot, or -errno; -EAGAIN: try again. */
int ipc_peer_begin(struct ipc *ipc, struct ipc_op *op, const struct ipc_question *question);
void ipc_peer_answer(struct ipc *ipc, struct ipc_op *op, int status);
/* Begins a handshake; answers when the session is up or has failed. -EAGAIN: try again. */
int ipc_connect(struct ipc_client *client, struct ipc_op *op, struct ipc_question *q);
/* Ends a program's interest in a peer. Ends the handshake if no other client needs it. */
int ipc_peer_leave(struct ipc_program *p, uint32_t peer);
void ipc_connects_poll(struct ipc *ipc);
/* Returns the ms until the next time limit of a CONNECT, or -1. */
int ipc_connects_timeout_ms(const struct ipc *ipc);

/* ipc_handles.c */
/* Stores the name of a request's attempt before the answer arrives, so that the handle can be
 * closed if the client ends first. */
void ipc_handle_asked(struct ipc_op *op);
/* Returns the handle that an unanswered request of the same attempt asked for, or NULL. No bound
 * applies to such a request: its attempt may already have the handle. */
const struct ipc_handle *ipc_handle_asked_again(struct ipc_client *client,
						const struct careful_ipc *head);
/* Sets the kind of handle that an operation opens. */
void ipc_op_opens(struct ipc_op *op, enum ipc_opens kind);
/* Updates the client's handles after a request that opened one (`key`) or closed one. */
void ipc_track_handles(struct ipc_op *op, int status, uint32_t key);
/* Forgets the handles at the peer in a slot: the peer's session has ended. */
void ipc_handles_over(struct ipc *ipc, uint32_t index);
/* Returns 0 if the client may ask for another handle, -EMFILE if it has too many handles at the
 * peer, or -EAGAIN if too many of its requests wait for handles. Both limits leave room for its
 * CLOSE, which ends such a wait. */
int ipc_handles_room(const struct ipc_client *client, uint32_t peer);
/* Reports whether the client's user may have another handle at the peer. */
bool ipc_handles_may_open(const struct ipc_client *client, uint32_t peer, enum ipc_opens kind);

/* ipc_request.c */
/* Sends a REQUEST or queues it until a handle is free. Returns -errno if the caller must answer. */
int ipc_request(struct ipc_client *client, struct ipc_op *op, struct ipc_question *q);
/* Returns the most bytes that the answer to a REQUEST can have. */
uint32_t ipc_request_answer_max(const struct ipc *ipc, const struct careful_ipc *head);
/* Tries to send the requests that wait for a handle. */
void ipc_requests_retry(struct ipc_client *client);
void ipc_requests_drop(struct ipc_client *client);
/* Closes the handles of a client that has gone. Returns false until all are closed or given up. */
bool ipc_requests_close_left(struct ipc_client *client);

/* ipc_gets.c */
/* Begins a GETS. Returns 0, or -errno if the caller must answer. */
int ipc_gets(struct ipc_client *client, struct ipc_op *op, struct ipc_question *q);

/* ipc_signature.c */
/* Runs a client's bursts. -EAGAIN: another client's bursts ran in this round of the loop. */
int ipc_signature(struct ipc_client *client, struct ipc_op *op, struct ipc_question *q);
void ipc_issuer_leave(struct ipc_client *client);

/* ipc_measure.c */
/* Begins a measurement. -EAGAIN: the client has one under way. */
int ipc_measure(struct ipc_client *client, struct ipc_op *op, struct ipc_question *q);
void ipc_measure_poll(struct ipc *ipc);
/* Returns the ms until the next poll; -1: when an event arrives. */
int ipc_measure_timeout_ms(const struct ipc *ipc);

/* ipc_op.c */
/* Reports whether questions of this kind need room in the engine that all clients share. */
bool ipc_shares_room(uint32_t op);
/* Begins the operation of a question. -EAGAIN: try the question again. The function for the kind of
 * question answers now or later, or returns -errno for ipc_ask() to send. That function keeps the
 * question's descriptor by setting question->fd to -1; otherwise the caller closes it. */
int ipc_ask(struct ipc_client *client, struct ipc_question *question);
