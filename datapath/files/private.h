/* SPDX-License-Identifier: BSD-2-Clause */
/* Jobs, handles and peers of the block server. The engine's thread owns a job, except between
 * block_work_put() and block_work_take(): then a worker owns the job and its handle. */
#pragma once

#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include <careful/block.h>
#include <careful/careful.h>
#include <careful/wire.h>

#include "base/pool.h"
#include "link/share.h"
#include "files/block.h"

enum {
	BLOCK_WORKERS = 4, /* most workers in one export: a hanging disk stops no more than these */
	/* most of these for slow jobs, such as syncs and lists: one stays free for opens */
	BLOCK_WORKERS_SLOW = BLOCK_WORKERS - 1,
	BLOCK_WORKERS_PEER = BLOCK_WORKERS - 1, /* most for one peer in one export */
	BLOCK_WORKERS_PEER_SLOW = BLOCK_WORKERS_SLOW - 1, /* most of these for slow jobs */
	BLOCK_PLACES = BLOCK_EXPORTS + 1, /* the exports, and one place for jobs in no export */
	BLOCK_STOP_MS = 2000, /* block_stop() waits this long for running jobs */
	BLOCK_JOBS = 512, /* jobs of all peers; there is one more, for parsing */
	BLOCK_PARKED = 2048, /* requests of all peers that wait for a job */
	BLOCK_ENDED = 64, /* remembered ends of handles of a peer */
	BLOCK_TEMPORARY_BYTES = 40,
	/* Limits of a host's listings: bytes of one listing in memory, of all listings in memory,
	 * and of all listings in unlinked files on disk, where larger listings go. */
	BLOCK_LISTING_MEMORY = 1 << 20,
	BLOCK_LISTINGS_MEMORY = 8 << 20,
	BLOCK_LISTING_DISK = 1 << 30,
	BLOCK_BATCH_BYTES = 4 << 20, /* most bytes of a batch, and of the contents in its answer */
	/* Answers have limits of their own, so that a client with an answer need not wait for
	 * anything, and requests that wait get their turn. */
	BLOCK_ANSWER_BYTES = 2 * BLOCK_BATCH_BYTES, /* one answer, with names and attributes */
	BLOCK_ANSWERS_BYTES = 32 << 20, /* all answers of a host */
	BLOCK_WAITING = 256, /* most requests of a peer that wait for a handle */
	BLOCK_WAITERS = 3, /* queues of waiters: for lists and answers, for scratches, for files */
};

struct block_handle;

/* The account of all sessions of a host. */
struct block_account {
	uint32_t users; /* number of sessions and handles that refer to the account */
	uint32_t scratches_count;
	uint64_t answers_bytes;
	_Atomic uint64_t memory, disk; /* bytes that listings use; also changed by workers */
};

/* A request under way.
 *
 * @tag, @tail_bytes: OPEN of a partial file
 * @offset, @bytes, @block_bytes, @algorithm: DIGEST, EXTENTS: the range */
struct block_job {
	struct pool_job pooled; /* for the workers */
	struct block_job *next;
	uint16_t op; /* enum careful_block_handler, or BLOCK_DISCARD */
	bool has_attr;
	uint8_t place; /* place of the job's export; BLOCK_EXPORTS: none */
	uint32_t peer;
	/* the peer's life at the request; once the peer's life differs, the job is unwanted */
	uint32_t life;
	struct careful_reply_to to;
	struct block_handle *handle;
	uint32_t flags, mode;
	uint64_t bytes, mtime_ns;
	/* the attempt's name in an OPEN, LIST or BATCH, or in a CLOSE without a key; 0: none */
	uint64_t attempt;
	uint64_t tag;
	uint32_t tail_bytes;
	uint32_t key; /* key of the handle that the request names */
	/* DIGEST, EXTENTS, BATCH, COPY: the job's own duplicate of the handle's file, else -1 */
	int fd;
	int dir_fd; /* BATCH: the job's own duplicate of the handle's directory, else -1 */
	bool may_write, squashed; /* BATCH: rights in the directory's export (see block_handle) */
	bool waited; /* the job has waited for a handle */
	const struct block_exports *exports; /* the exports when the job began */
	uint64_t visible; /* the exports that the peer may see, one bit each */
	uint64_t offset;
	uint32_t denied; /* BATCH: items denied for their paths */
	uint32_t umask, file_bytes_max; /* BATCH */
	uint32_t block_bytes, algorithm;
	char *path; /* NUL-terminated; NULL for a handle's end_job */
	int status; /* 0 or -errno */
	uint32_t args[CAREFUL_AM_ARGS];
	/* payload of the answer if has_attr is set and status is 0 */
	struct careful_block_attr attr;
	void *reply; /* DIGEST, EXTENTS: payload of the answer, reply_bytes of at most reply_max */
	uint32_t reply_bytes, reply_max;
};

struct block_path_job {
	struct block_job job;
	char path[PATH_MAX];
};

enum block_handle_state {
	BLOCK_OPENING, /* a worker opens the handle, which has no key yet */
	BLOCK_OPEN,
	BLOCK_ENDING, /* until no message uses the region */
	BLOCK_CLOSING, /* a worker closes the handle */
};

/* An open file, a temporary file before its commit, a listing or memory for a batch.
 *
 * @args, @attr: the answer to its OPEN, LIST or BATCH, for a client that asks again
 * @dir_fd, @name, @temporary: of a file being created, else -1 and empty */
struct block_handle {
	struct block_handle *next;
	uint8_t state;
	uint8_t place; /* place of its export (block_job) */
	struct block_account *account;
	bool listing; /* an answer to a LIST or BATCH */
	bool scratch; /* memory for a batch: OPEN with SCRATCH */
	bool batch; /* an answer to a BATCH */
	bool partial; /* the temporary file stays when the handle ends */
	bool stream; /* COMMIT gives the size */
	bool writable; /* peers may store */
	bool may_write; /* SCRATCH: its batches may change files */
	/* SCRATCH: its batches may not set owners, or anything that only root may set */
	bool squashed;
	uint32_t peer;
	uint32_t life; /* the peer's life when it asked */
	uint32_t key;
	uint64_t attempt; /* the attempt's name in its OPEN, LIST or BATCH */
	struct block_job *job; /* OPENING: the job that opens it; ENDING, CLOSING: &end_job */
	struct block_job end_job;
	uint32_t args[CAREFUL_AM_ARGS];
	struct careful_block_attr attr;
	int fd, dir_fd;
	uint64_t bytes; /* bytes that peers may get or store */
	uint64_t file_bytes; /* size of the file after COMMIT */
	uint64_t memory; /* bytes that count towards BLOCK_LISTINGS_MEMORY */
	uint64_t disk; /* bytes that count towards BLOCK_LISTING_DISK */
	uint64_t held; /* bytes that count towards BLOCK_ANSWERS_BYTES */
	uint64_t began_ns, read_bytes, written_bytes; /* for block_end */
	char *path; /* as the peer named it; NULL for listings */
	char temporary[BLOCK_TEMPORARY_BYTES];
	char name[NAME_MAX + 1];
};

/* How a handle ended, for a client that missed the answer. */
struct block_ended {
	uint32_t key;
	uint16_t op;
	int status;
	struct careful_block_attr attr;
};

/* A request that waits for a job. Its payload stays in the receive buffer. The peer gets no credit
 * for that buffer, and so sends less. */
struct block_parked {
	struct block_parked *next;
	uint8_t place;
	struct careful_kept *kept;
	struct careful_reply_to to;
	uint16_t handler;
	uint32_t args[CAREFUL_AM_ARGS];
	uint32_t bytes;
};

/* Returns the attempt's name in an OPEN, LIST or BATCH; 0: none. */
static inline uint64_t block_attempt(const uint32_t *args)
{
	return (uint64_t)args[2] << 32 | args[3];
}

/* A request that waits until its peer has fewer handles or answers. */
struct block_waiter {
	struct block_waiter *next;
	struct block_job job; /* without its path */
	char path[];
};

/* The state of a peer slot. Each peer has limits of its own. */
struct block_peer {
	struct block_account *account; /* account of the slot's host at account_life, or NULL */
	uint32_t account_life;
	_Atomic uint32_t life; /* changes when the peer is gone; workers read it */
	/* life of the slot's present or last peer; a former peer's handles have another life */
	uint32_t tenant;
	struct share jobs; /* the peer's jobs, of which each place has a share */
	uint32_t jobs_at[BLOCK_PLACES], parked_at[BLOCK_PLACES]; /* counts for each place */
	uint32_t handles_count, listings_count;
	/* bytes read from answers to batches; no block_end has reported these yet */
	uint64_t small_bytes;
	/* BLOCK_WAITERS queues, in order of arrival; waiters_count in all */
	struct block_waiter *waiters[BLOCK_WAITERS];
	uint32_t waiters_count;
	struct block_handle *handles;
	struct block_parked *parked, **parked_tail;
	uint32_t parked_held;
	struct block_ended ended[BLOCK_ENDED];
	uint32_t ended_next;
};

struct block_export {
	char *path; /* of the directory, without symlinks */
	struct statx original; /* the directory when it was exported */
	uint8_t place; /* index of its counters and shares; the same after block_replace() */
	bool writable, owners, devices;
	struct block_host *hosts;
	uint32_t hosts_count;
	char name[NAME_MAX + 1];
};

/* A set of exports; never changed. block_replace() makes a new set. Older sets stay, because a job
 * may still use them; an export needs a few hundred bytes. */
struct block_exports {
	struct block_exports *older;
	uint32_t count;
	bool is_for_some; /* at least one export is not for every host */
	struct block_export all[];
};

struct block_queue {
	struct block_job *head, **tail;
};

/* The numbers of workers that run in a place. */
struct block_running {
	uint8_t all, slow;
};

/* The worker threads. The pool's lock protects the counts. */
struct block_work {
	struct pool pool;
	struct block_server *server;
	struct pool_group *peers; /* the jobs of each peer; peers take turns */
	struct block_running running[BLOCK_PLACES]; /* workers in each place, for all peers */
	/* workers in each place, for each peer (peer * BLOCK_PLACES + place) */
	struct block_running *running_of_peer;
};

struct block_server {
	struct careful *instance;
	struct block_exports *exports; /* the current exports; a worker uses its job's exports */
	/* places that exports have had; peers have a share for each, and one for no export */
	uint32_t places;
	/* use of each place; a handle's bytes are added when the handle ends */
	struct careful_export_use use[BLOCK_EXPORTS];
	uint64_t listing_disk; /* BLOCK_LISTING_DISK; smaller in tests */
	uint32_t peers_count;
	struct block_peer *peers;
	struct block_path_job *jobs;
	struct block_job *jobs_free;
	struct block_parked *parked, *parked_free;
	struct share parked_share;
	uint32_t waiters_count; /* of all peers */
	struct block_queue unsent; /* finished jobs whose answers the engine had no room for */
	struct block_queue ending; /* end_job of each handle in state ENDING */
	struct block_work work;
	block_end_fn *end_fn; /* or NULL */
	void *end_user;
};

static inline void block_queue_init(struct block_queue *q)
{
	q->head = NULL;
	q->tail = &q->head;
}

static inline void block_queue_put(struct block_queue *q, struct block_job *job)
{
	job->next = NULL;
	*q->tail = job;
	q->tail = &job->next;
}

/* work.c: the engine's thread calls put and take; workers call block_work_is_unwanted(). */
int block_work_init(struct block_server *server);
uint32_t block_work_stop(struct block_server *server);
bool block_work_hangs(struct block_server *server, uint8_t place);
void block_work_deinit(struct block_server *server);
void block_work_put(struct block_server *server, struct block_job *job);
struct block_job *block_work_take(struct block_server *server);

/* Reports whether nobody needs the job's result any longer. Long jobs check this now and then. */
static inline bool block_work_is_unwanted(const struct block_server *server,
					  const struct block_job *job)
{
	return atomic_load(&server->work.pool.stop) ||
	       atomic_load(&server->peers[job->peer].life) != job->life;
}

/* parse.c: the engine's thread. Reads a request into job, whose op is set; the payload may hold
 * anything. */
int block_parse(struct block_job *job, const uint32_t *args, const void *payload, uint32_t bytes);

/* wait.c: the engine's thread. */
/* Reports whether earlier requests wait in the job's queue. */
bool block_has_waiters(const struct block_server *server, const struct block_job *job);
/* Queues a copy of the job until the peer may have a handle. Returns -EINPROGRESS; 0 if the job may
 * not wait; or -ECANCELED if the job repeats a request that waits (block_supersede()). */
int block_wait(struct block_server *server, struct block_job *job);
/* Called when a client repeats a request whose reply is pending. Exchanges the addresses of both
 * replies, so that the later request gets the result: the client may have given up the earlier one.
 * Returns -ECANCELED, the answer to the earlier request. */
int block_supersede(struct careful_reply_to *to, struct block_job *job);
/* Removes the waiter at *at and frees it. */
void block_waiter_end(struct block_server *server, struct block_peer *peer,
		      struct block_waiter **at);
/* Ends the wait of the attempt that a CLOSE names, if there is one. Returns 0 or -EAGAIN. */
int block_stop_waiting(struct block_server *server, const struct block_job *job);
void block_drop_waiters(struct block_server *server, uint32_t peer);
/* Parks a request until its peer may begin a job in the place; -EAGAIN if too many are parked. */
void block_park(struct block_server *server, const struct careful_message *message, uint8_t place);
bool block_is_parked(const struct block_server *server, const struct block_job *job);
/* Removes the parked request at *at and frees it. */
void block_parked_end(struct block_server *server, struct block_peer *peer,
		      struct block_parked **at);
/* Refuses the parked requests of a slot whose peer is gone. (The next peer would repeat some.) */
void block_drop_parked(struct block_server *server, struct block_peer *peer);

/* request.c: the engine's thread. */
void block_on_request(const struct careful_message *message, void *user);
void block_answer(struct block_server *server, struct block_job *job);
void block_finish(struct block_server *server, struct block_job *job);
/* Begins those requests of a peer that waited for a handle and can have one now. */
void block_wake(struct block_server *server, uint32_t index);
/* Begins a peer's parked requests, in order within each place, while the peer may have jobs. */
void block_unpark(struct block_server *server, uint32_t index);

/* account.c: block_account() returns NULL without memory. */
struct block_account *block_account(struct block_server *server, uint32_t peer);
void block_account_add(struct block_account *account, struct block_handle *handle);
void block_account_remove(struct block_handle *handle);
void block_accounts_deinit(struct block_server *server);

/* handle.c: the engine's thread. */
int block_handle_room(struct block_server *server, const struct block_job *job);
void block_handle_return_excess(struct block_handle *handle);
int block_handle_create(struct block_server *server, struct block_job *job,
			struct block_handle **handle);
void block_handle_destroy(struct block_server *server, struct block_handle *handle);
struct block_handle *block_handle_find(struct block_server *server, uint32_t peer, uint32_t key);
struct block_handle *block_handle_attempt(struct block_server *server, uint32_t peer,
					  uint64_t attempt);
int block_handle_publish(struct block_server *server, struct block_handle *handle);
void block_handle_report_end(struct block_server *server, const struct block_handle *handle);
void block_handle_end(struct block_server *server, struct block_handle *handle, uint16_t op);
uint32_t block_handle_retry(struct block_server *server);
void block_handle_remember(struct block_server *server, const struct block_job *end);
const struct block_ended *block_handle_ended(struct block_server *server, uint32_t peer,
					     uint32_t key, uint16_t op);

/* export.c: block_export_open() may run in any thread. Returns a descriptor, -ENOLINK if the export
 * is gone, or another -errno. */
int block_exports_take(struct block_server *server, const struct block_export_options *exports,
		       uint32_t n, struct careful_error *error);
void block_exports_deinit(struct block_server *server);
int block_export_open(const struct block_export *export);
/* Returns the exports that a peer may see, one bit each. Called in the engine's thread. */
uint64_t block_exports_of(const struct block_server *server, uint32_t peer);
static inline bool block_export_is_seen(const struct block_job *job,
					const struct block_export *export)
{
	return job->visible >> (export - job->exports->all) & 1;
}

/* path.c: worker threads. */
int block_path_open(const struct block_job *job, const char *path, int flags, uint64_t resolve,
		    const struct block_export **from);
int block_path_parent(const struct block_job *job, const char **name,
		      const struct block_export **from);
uint8_t block_path_place(const struct block_job *job);
bool block_path_is_top(const struct block_job *job, const char *path);
int block_attr_of(int fd, struct block_job *job);
void block_attr_top(struct careful_block_attr *attr);

/* file.c, create.c, range.c, list.c, batch.c: worker threads. */
void block_run(struct block_server *server, struct block_job *job);
int block_create(struct block_server *server, struct block_job *job);
int block_commit(struct block_job *job);
int block_digest(struct block_job *job);
int block_extents(struct block_job *job);
int block_list(struct block_server *server, struct block_job *job);
int block_open_scratch(struct block_job *job);
int block_batch(struct block_server *server, struct block_job *job);
