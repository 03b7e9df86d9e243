/* SPDX-License-Identifier: BSD-2-Clause */
/* Jobs, handles and peers of the block server. A job belongs to the engine's thread, except between
 * block_work_put() and block_work_take(): then it belongs to one worker, with its handle. */
#ifndef FILES_PRIVATE_H
#define FILES_PRIVATE_H

#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include <careful/block.h>
#include <careful/careful.h>
#include <careful/wire.h>

#include "link/share.h"
#include "files/block.h"

enum {
	BLOCK_WORKERS = 4, /* at a time in one export: a disk that hangs holds no more */
	/* One worker stays free for opens while the others sync or list. */
	BLOCK_WORKERS_SLOW = BLOCK_WORKERS - 1,
	BLOCK_WORKERS_PEER = BLOCK_WORKERS - 1, /* of them for one peer, */
	BLOCK_WORKERS_PEER_SLOW = BLOCK_WORKERS_SLOW - 1, /* of those that sync or list, too */
	BLOCK_PLACES = BLOCK_EXPORTS + 1, /* the exports, and what lies in none */
	BLOCK_STOP_MS = 2000, /* at the end, until what is under way is left to itself */
	BLOCK_JOBS = 512, /* with a path, for all peers together; one more is read into */
	BLOCK_PARKED = 2048, /* requests that wait for a job; peers have shares */
	BLOCK_ENDED = 64, /* ends that are remembered for each peer */
	BLOCK_TEMPORARY_BYTES = 40,
	/* Of a peer: a listing up to the first lies in memory while all such together stay below
	 * the second; what is larger, in unlinked files on disk, up to the third together. */
	BLOCK_LISTING_MEMORY = 1 << 20,
	BLOCK_LISTINGS_MEMORY = 8 << 20,
	BLOCK_LISTING_DISK = 1 << 30,
	BLOCK_BATCH_BYTES = 4 << 20, /* of a batch, and of the contents in its answer */
	/* Memory for batches that a peer has at a time. Their answers have room of their own:
	 * who holds an answer asks for nothing more, so those that wait get their turn. */
	BLOCK_ANSWER_BYTES = 2 * BLOCK_BATCH_BYTES, /* of one: names and attributes, too */
	BLOCK_ANSWERS_BYTES = 32 << 20, /* of all that a peer has */
	BLOCK_WAITING = 256, /* requests of a peer that wait for their turn */
	BLOCK_WAITERS = 3, /* queues of them: answers, scratches, other files */
};

struct block_handle;

/*
 * The account of all sessions of a host.
 *
 * @users: its sessions and handles
 * @memory, @disk: of its listings, in bytes; the workers change them, too
 */
struct block_account {
	uint32_t users;
	uint32_t scratches_count;
	uint64_t answers_bytes;
	_Atomic uint64_t memory, disk;
};

/*
 * One request under way.
 *
 * @op:       enum careful_block_handler, or BLOCK_DISCARD
 * @place:    of the export that it works in; BLOCK_EXPORTS: none
 * @life:     of the peer when it asked; if it has changed, what it opened is nobody's
 * @attempt:  OPEN, LIST, BATCH: the client's name for it; 0: none. CLOSE without a key: theirs
 * @tag, @tail_bytes: OPEN: of a partial file
 * @key:      COMMIT, CLOSE, DIGEST, EXTENTS, ZERO, BATCH: the handle as the client knows it
 * @again:    ZERO: it may have been asked before
 * @fd:       DIGEST, EXTENTS, ZERO, BATCH: the handle's file, a descriptor of the job's own;
 *            else -1
 * @dir_fd:   BATCH: likewise, the handle's directory; else -1
 * @may_write, @squashed: BATCH: what the export that the directory lies in lets it do
 * @waited:   its turn has come
 * @denied:   BATCH: items that were, for their paths
 * @among:    the exports when it began, and @exports: those that the peer may see, a bit each
 * @umask, @file_bytes_max: BATCH
 * @offset, @bytes, @block_bytes, @algorithm: DIGEST, EXTENTS, ZERO: the range
 * @path:     NUL-terminated; NULL in the end of a handle
 * @status:   0 or -errno
 * @attr:     what the answer carries where has_attr and status is 0
 * @reply:    DIGEST, EXTENTS: what it carries instead, reply_bytes of at most reply_max
 */
struct block_job {
	struct block_job *next;
	uint16_t op;
	bool has_attr;
	uint8_t place;
	uint32_t peer, life;
	struct careful_reply_to to;
	struct block_handle *handle;
	uint32_t flags, mode;
	uint64_t bytes, mtime_ns;
	uint64_t attempt, tag;
	uint32_t tail_bytes, key;
	int fd, dir_fd;
	bool again, may_write, squashed, waited;
	const struct block_exports *among;
	uint64_t exports, offset;
	uint32_t denied, umask, file_bytes_max, block_bytes, algorithm;
	char *path;
	int status;
	uint32_t args[CAREFUL_AM_ARGS];
	struct careful_block_attr attr;
	void *reply;
	uint32_t reply_bytes, reply_max;
};

struct block_path_job {
	struct block_job job;
	char path[PATH_MAX];
};

enum block_handle_state {
	BLOCK_OPENING, /* a worker has it; no key yet */
	BLOCK_OPEN,
	BLOCK_ENDING, /* waits until no message uses its region */
	BLOCK_CLOSING, /* a worker has it, for the last time */
};

/*
 * An open file, a temporary file on its way to its name, or a listing.
 *
 * @attempt:   of its OPEN or LIST
 * @job:       OPENING: the OPEN or LIST; ENDING, CLOSING: &end
 * @args, @attr: OPEN: what its OPEN or LIST was answered
 * @place:     where it lies (block_job)
 * @life:      of the peer when it asked
 * @listing:   it is the answer to a LIST or BATCH
 * @scratch:   it is memory for a batch: OPEN with SCRATCH
 * @batch:     it is the answer to a BATCH
 * @writable:  peers may store
 * @may_write: SCRATCH: its batches may change something
 * @squashed:  SCRATCH: but no owners, and nothing that is root's to give
 * @zeroing:   ZEROs of it that workers have
 * @partial:   the temporary file stays when the handle ends
 * @stream:    COMMIT says the size
 * @path:      that the peer named; NULL: of a listing
 * @began_ns, @read_bytes, @written_bytes: what block_end tells of
 * @dir_fd, @name, @temporary: of a file being created, else -1 and empty
 * @bytes:     what peers may get or store
 * @file_bytes: of these, what the file keeps in the end
 * @memory:    bytes that count towards BLOCK_LISTINGS_MEMORY
 * @disk:      bytes that count towards BLOCK_LISTING_DISK
 * @held:      bytes that count towards BLOCK_ANSWERS_BYTES
 */
struct block_handle {
	struct block_handle *next;
	uint8_t state;
	uint8_t place;
	struct block_account *account;
	bool listing, scratch, batch, partial, stream;
	bool writable, may_write, squashed;
	uint32_t zeroing;
	uint32_t peer, life, key;
	uint64_t attempt;
	struct block_job *job;
	struct block_job end;
	uint32_t args[CAREFUL_AM_ARGS];
	struct careful_block_attr attr;
	int fd, dir_fd;
	uint64_t bytes, file_bytes;
	uint64_t memory, disk, held;
	uint64_t began_ns, read_bytes, written_bytes;
	char *path;
	char temporary[BLOCK_TEMPORARY_BYTES];
	char name[NAME_MAX + 1];
};

/* How a handle ended, for a client that did not hear the answer. */
struct block_ended {
	uint32_t key;
	uint16_t op;
	int status;
	struct careful_block_attr attr;
};

/* A request that waits for a job, its payload kept in the receive buffer: then its
 * credit is not given back, which is what slows the peer down. */
struct block_parked {
	struct block_parked *next;
	uint8_t place;
	struct careful_kept *kept;
	struct careful_reply_to to;
	uint16_t handler;
	uint32_t args[CAREFUL_AM_ARGS];
	uint32_t bytes;
};

/* The client's name for what an OPEN, LIST or BATCH may have opened; 0: none. */
static inline uint64_t block_attempt(const uint32_t *args)
{
	return (uint64_t)args[2] << 32 | args[3];
}

/* A request that waits until the peer has fewer handles, or answers. */
struct block_waiter {
	struct block_waiter *next;
	struct block_job job; /* but its path */
	char path[];
};

/*
 * What a peer has; all that it may have is bounded for each alone.
 *
 * @life:    changes when the peer is gone; the workers look, too
 * @tenant:  the life of who was there last, or is: a handle of another life is a former one's
 * @jobs:    with a path, under way: each place has a share
 * @jobs_at, @parked_at: of each place
 * @waiters: in order, BLOCK_WAITERS of them
 */
struct block_peer {
	struct block_account *account; /* of the host, as of @account_life; or NULL */
	uint32_t account_life;
	_Atomic uint32_t life;
	uint32_t tenant;
	struct share jobs;
	uint32_t jobs_at[BLOCK_PLACES], parked_at[BLOCK_PLACES];
	uint32_t handles_count, listings_count;
	uint64_t small_bytes; /* read from answers to batches, not told of yet */
	struct block_waiter *waiters[BLOCK_WAITERS];
	uint32_t waiters_count; /* of all */
	struct block_handle *handles;
	struct block_parked *parked, **parked_tail;
	uint32_t parked_held;
	struct block_ended ended[BLOCK_ENDED];
	uint32_t ended_next;
};

/*
 * @path:  of the directory, without symlinks
 * @was:   what stood there when it was exported
 * @place: its index in what is kept of each; it stays when exports are replaced
 */
struct block_export {
	char *path;
	struct statx was;
	uint8_t place;
	bool writable, owners, devices;
	struct block_host *hosts;
	uint32_t hosts_count;
	char name[NAME_MAX + 1];
};

/*
 * All exports at a time; nothing in it changes. Those that others have replaced stay until the
 * end, for a job may be at them: some hundred bytes an export.
 *
 * @is_for_some: one of them is not everybody's
 */
struct block_exports {
	struct block_exports *older;
	uint32_t count;
	bool is_for_some;
	struct block_export all[];
};

struct block_queue {
	struct block_job *head, **tail;
};

/* Workers in one place. */
struct block_running {
	uint8_t all, slow;
};

/*
 * The worker threads and what they are given; everything under lock but `ready` and `stop`. Threads
 * are begun when all the others have something to do.
 *
 * @queues:   what waits, of each peer; they take turns
 * @running:  workers in each place, for all peers
 * @of_peer:  the same for each peer: BLOCK_PLACES of the first one, then the second's
 * @over:     some thread has ended
 */
struct block_work {
	pthread_t threads[BLOCK_WORKERS * BLOCK_PLACES];
	uint32_t threads_count, threads_living, idle;
	pthread_mutex_t lock;
	pthread_cond_t wake, over;
	struct block_queue *queues, done;
	uint32_t queued, turn;
	struct block_running running[BLOCK_PLACES];
	struct block_running *of_peer;
	bool abandoned;
	atomic_bool stop;
	atomic_bool ready; /* done is not empty */
	int event_fd;
};

/*
 * @exports: those of now; workers have them from their jobs
 * @places:  that exports have, or had; the shares of a peer are these and one more
 * @use:     of each place; what open handles moved counts when they end
 */
struct block_server {
	struct careful *instance;
	struct block_exports *exports;
	uint32_t places;
	struct careful_export_use use[BLOCK_EXPORTS];
	uint64_t listing_disk; /* BLOCK_LISTING_DISK; tests have less */
	uint32_t peers_count;
	struct block_peer *peers;
	struct block_path_job *jobs;
	struct block_job *jobs_free;
	struct block_parked *parked, *parked_free;
	struct share parked_share;
	uint32_t waiters_count; /* of all peers */
	struct block_queue unsent; /* answered, but the engine had no room */
	struct block_queue ending; /* ends of handles in state ENDING */
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

static inline struct block_job *block_queue_take(struct block_queue *q)
{
	struct block_job *job = q->head;

	if (job) {
		q->head = job->next;
		if (!q->head)
			q->tail = &q->head;
	}
	return job;
}

/* work.c: put, take: the engine's thread. vain: a worker. */
int block_work_init(struct block_server *server);
uint32_t block_work_stop(struct block_server *server);
bool block_work_hangs(struct block_server *server, uint8_t place);
void block_work_deinit(struct block_server *server);
void block_work_put(struct block_server *server, struct block_job *job);
struct block_job *block_work_take(struct block_server *server);

/* Reports whether nobody waits for the job's result any more. Long work asks now and then. */
static inline bool block_work_vain(const struct block_server *server, const struct block_job *job)
{
	return atomic_load(&server->work.stop) ||
	       atomic_load(&server->peers[job->peer].life) != job->life;
}

/* parse.c: the engine's thread. Reads a request into job, whose op is known; its payload
 * may be anything. */
int block_parse(struct block_job *job, const uint32_t *args, const void *payload, uint32_t bytes);

/* wait.c: the engine's thread. */
/* Reports whether other requests wait that came before the job. */
bool block_has_waiters(const struct block_server *server, const struct block_job *job);
/* Lets a copy of the job wait for a handle. Returns false if it may not wait. */
bool block_wait(struct block_server *server, const struct block_job *job);
/* Takes the waiter at *at out and frees it. */
void block_waiter_end(struct block_server *server, struct block_peer *peer,
		      struct block_waiter **at);
/* Ends the wait of the attempt that the job names: its client closes it. Returns 0, also if the
 * attempt does not wait, or -EAGAIN. */
int block_stop_waiting(struct block_server *server, const struct block_job *job);
/* Drops the waiters of a peer that is gone. */
void block_drop_waiters(struct block_server *server, uint32_t peer);
/* Lets a request wait for a job in a place, or refuses it. */
void block_park(struct block_server *server, const struct careful_message *message, uint8_t place);
/* Reports whether the attempt that the job names is parked. */
bool block_is_parked(const struct block_server *server, const struct block_job *job);
/* Takes the parked request at *at out and frees it. */
void block_parked_end(struct block_server *server, struct block_peer *peer,
		      struct block_parked **at);
/* Refuses the parked requests of a peer that is gone. If the next peer sent some of them, it asks
 * again. */
void block_drop_parked(struct block_server *server, struct block_peer *peer);

/* request.c: the engine's thread. */
void block_on_request(const struct careful_message *message, void *user);
void block_answer(struct block_server *server, struct block_job *job);
void block_finish(struct block_server *server, struct block_job *job);
/* Begins the jobs of a peer that wait for handles, as far as there is room. */
void block_wake(struct block_server *server, uint32_t index);
/* Begins a peer's parked requests, in order in each place, as far as the peer may have jobs. */
void block_unpark(struct block_server *server, uint32_t index);

/* account.c */
/* Returns the account of a peer's host; NULL: no memory. */
struct block_account *block_account(struct block_server *server, uint32_t peer);
void block_account_add(struct block_account *account, struct block_handle *handle);
void block_account_remove(struct block_handle *handle);
void block_accounts_deinit(struct block_server *server);

/* handle.c: the engine's thread. */
int block_handle_room(struct block_server *server, const struct block_job *job);
void block_handle_settle(struct block_handle *handle);
int block_handle_create(struct block_server *server, struct block_job *job,
			struct block_handle **handle);
void block_handle_destroy(struct block_server *server, struct block_handle *handle);
struct block_handle *block_handle_find(struct block_server *server, uint32_t peer, uint32_t key);
struct block_handle *block_handle_attempt(struct block_server *server, uint32_t peer,
					  uint64_t attempt);
int block_handle_publish(struct block_server *server, struct block_handle *handle);
void block_handle_tell(struct block_server *server, const struct block_handle *handle);
void block_handle_end(struct block_server *server, struct block_handle *handle, uint16_t op);
uint32_t block_handle_retry(struct block_server *server);
void block_handle_remember(struct block_server *server, const struct block_job *end);
const struct block_ended *block_handle_ended(struct block_server *server, uint32_t peer,
					     uint32_t key, uint16_t op);

/* export.c: open: any thread. A descriptor, or -errno; -ENOLINK: it is gone. */
int block_exports_take(struct block_server *server, const struct block_export_options *exports,
		       uint32_t n, struct careful_error *error);
void block_exports_deinit(struct block_server *server);
int block_export_open(const struct block_export *export);
/* The engine's thread: the exports that a peer may see. */
uint64_t block_exports_of(const struct block_server *server, uint32_t peer);
static inline bool block_export_is_seen(const struct block_job *job,
					const struct block_export *export)
{
	return job->exports >> (export - job->among->all) & 1;
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
bool block_has_room(int fd, uint64_t bytes);
int block_commit(struct block_job *job);
int block_digest(struct block_job *job);
int block_extents(struct block_job *job);
int block_zero(struct block_server *server, struct block_job *job);
int block_list(struct block_server *server, struct block_job *job);
int block_open_scratch(struct block_job *job);
int block_batch(struct block_server *server, struct block_job *job);

#endif /* FILES_PRIVATE_H */
