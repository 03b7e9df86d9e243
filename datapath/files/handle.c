/* SPDX-License-Identifier: BSD-2-Clause */
/* The block server's handles. A handle belongs to a peer, and lasts from OPEN until it was closed
 * and no message uses it. Workers open and close the files. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "files/private.h"

static bool has_ending_handle(const struct block_peer *peer)
{
	const struct block_handle *h = peer->handles;

	while (h && h->state <= BLOCK_OPEN)
		h = h->next;
	return h;
}

static bool is_scratch(const struct block_job *job)
{
	return job->op == CAREFUL_BLOCK_OPEN && job->flags & CAREFUL_BLOCK_SCRATCH;
}

static bool has_room(struct block_server *server, const struct block_job *job)
{
	const struct block_peer *peer = &server->peers[job->peer];
	const struct block_account *account = block_account(server, job->peer);

	if (!account || peer->handles_count >= BLOCK_HANDLES)
		return false;
	if (job->op == CAREFUL_BLOCK_OPEN)
		return !is_scratch(job) || account->scratches_count < BLOCK_SCRATCHES;
	return peer->listings_count < BLOCK_LISTINGS &&
	       (job->op != CAREFUL_BLOCK_BATCH ||
		account->answers_bytes + BLOCK_ANSWER_BYTES <= BLOCK_ANSWERS_BYTES);
}

/* Returns 0 if the peer may have another handle, -EMFILE if it has all that it may have, or -EAGAIN
 * if one of them is ending, so that there will be room soon. */
int block_handle_room(struct block_server *server, const struct block_job *job)
{
	const struct block_peer *peer = &server->peers[job->peer];

	if (has_room(server, job))
		return 0;
	return has_ending_handle(peer) ? -EAGAIN : -EMFILE;
}

/* Creates a handle for an OPEN, LIST or BATCH; a worker fills the handle. There must be room. */
int block_handle_create(struct block_server *server, struct block_job *job,
			struct block_handle **handle)
{
	struct block_peer *peer = &server->peers[job->peer];
	struct block_handle *h;

	h = calloc(1, sizeof(*h));
	if (!h)
		return -ENOMEM;
	h->state = BLOCK_OPENING;
	h->place = job->place;
	h->listing = job->op != CAREFUL_BLOCK_OPEN;
	h->scratch = is_scratch(job);
	h->batch = job->op == CAREFUL_BLOCK_BATCH;
	h->held = job->op == CAREFUL_BLOCK_BATCH ? BLOCK_ANSWER_BYTES : 0;
	h->peer = job->peer;
	h->life = job->life;
	h->attempt = job->attempt;
	h->job = job;
	h->fd = h->dir_fd = h->end_job.fd = h->end_job.dir_fd = -1;
	h->began_ns = clock_now_ns();
	/* The path is for end_fn, which is not called without it. It is a copy, because a worker
	 * may shorten the job's path. */
	h->path = job->op == CAREFUL_BLOCK_OPEN ? strdup(job->path) : NULL;
	h->next = peer->handles;
	peer->handles = h;
	peer->handles_count++;
	peer->listings_count += h->listing;
	block_account_add(block_account(server, job->peer), h);
	*handle = h;
	return 0;
}

void block_handle_destroy(struct block_server *server, struct block_handle *handle)
{
	struct block_peer *peer = &server->peers[handle->peer];
	struct block_handle **at = &peer->handles;

	assert(handle->fd < 0 && handle->dir_fd < 0 && !handle->memory && !handle->disk);
	while (*at != handle)
		at = &(*at)->next;
	*at = handle->next;
	peer->handles_count--;
	peer->listings_count -= handle->listing;
	block_account_remove(handle);
	free(handle->path);
	free(handle);
}

/* Lowers an answer's part of BLOCK_ANSWERS_BYTES from the reserved maximum to its size. */
void block_handle_return_excess(struct block_handle *handle)
{
	if (handle->held <= handle->bytes)
		return;
	handle->account->answers_bytes -= handle->held - handle->bytes;
	handle->held = handle->bytes;
}

struct block_handle *block_handle_find(struct block_server *server, uint32_t peer, uint32_t key)
{
	struct block_handle *h = server->peers[peer].handles;

	while (h && (h->state == BLOCK_OPENING || h->key != key))
		h = h->next;
	return h;
}

/* Returns the handle of an earlier request with the same attempt, or NULL. */
struct block_handle *block_handle_attempt(struct block_server *server, uint32_t peer,
					  uint64_t attempt)
{
	struct block_handle *h = attempt ? server->peers[peer].handles : NULL;

	while (h && (h->state > BLOCK_OPEN || h->attempt != attempt))
		h = h->next;
	return h;
}

/* Gives the peer a region: the file that a worker opened. */
int block_handle_publish(struct block_server *server, struct block_handle *handle)
{
	struct careful_region region = {
		.span = { .fd = handle->fd },
		.bytes = handle->bytes,
		.access = CAREFUL_REGION_READ | (handle->writable ? CAREFUL_REGION_WRITE : 0U),
		.peer = handle->peer,
	};
	int rc = careful_region_add(server->instance, &region, &handle->key);

	if (rc)
		return rc;
	handle->state = BLOCK_OPEN;
	handle->job->args[0] = handle->key;
	memcpy(handle->args, handle->job->args, sizeof(handle->args));
	handle->attr = handle->job->attr;
	handle->job = NULL;
	return 0;
}

/* Lets a worker close a handle's files. Returns false if a message still uses the region. */
static bool try_end(struct block_server *server, struct block_handle *handle)
{
	handle->read_bytes = handle->written_bytes = 0;
	engine_moved(server->instance, handle->key, &handle->read_bytes, &handle->written_bytes);
	if (careful_region_remove(server->instance, handle->key) == -EBUSY)
		return false;
	if (handle->place != BLOCK_EXPORTS && !handle->listing) {
		server->use[handle->place].read_bytes += handle->read_bytes;
		server->use[handle->place].written_bytes += handle->written_bytes;
	}
	handle->state = BLOCK_CLOSING;
	block_work_put(server, &handle->end_job);
	return true;
}

/* Calls end_fn. For the scratch of small files, this includes the bytes read from answers to its
 * batches, whose handles ended earlier. */
void block_handle_report_end(struct block_server *server, const struct block_handle *handle)
{
	struct block_peer *peer = &server->peers[handle->peer];
	const bool is_former = handle->life != peer->tenant;
	struct block_end end = {
		.peer = handle->peer,
		.is_former = is_former,
		.path = handle->path,
		.small = handle->scratch,
		.writable = handle->writable && handle->place != BLOCK_EXPORTS,
		.op = handle->end_job.op,
		.status = handle->end_job.status,
		.bytes = handle->bytes,
		.read_bytes = handle->read_bytes,
		.written_bytes = handle->written_bytes,
		.took_ns = clock_now_ns() - handle->began_ns,
	};

	if (handle->scratch) {
		end.read_bytes = is_former ? 0 : peer->small_bytes;
		peer->small_bytes -= end.read_bytes;
	} else if (!handle->path) {
		peer->small_bytes += handle->batch && !is_former ? handle->read_bytes : 0;
		return;
	}
	if (server->end_fn && end.path &&
	    (end.read_bytes || end.written_bytes || end.op == CAREFUL_BLOCK_COMMIT || end.status))
		server->end_fn(&end, server->end_user);
}

/* Begins to end a handle by COMMIT, CLOSE or BLOCK_DISCARD (`op`). The caller has put the
 * request's other fields into the handle's end_job. */
void block_handle_end(struct block_server *server, struct block_handle *handle, uint16_t op)
{
	assert(handle->state <= BLOCK_OPEN);
	handle->end_job.op = op;
	handle->end_job.peer = handle->peer;
	handle->end_job.place = handle->place;
	handle->end_job.handle = handle;
	handle->end_job.key = handle->key;
	handle->job = &handle->end_job;
	if (handle->state == BLOCK_OPENING) { /* no region */
		handle->state = BLOCK_CLOSING;
		block_work_put(server, &handle->end_job);
		return;
	}
	handle->state = BLOCK_ENDING;
	if (!try_end(server, handle))
		block_queue_put(&server->ending, &handle->end_job);
}

uint32_t block_handle_retry(struct block_server *server)
{
	struct block_job *job = server->ending.head;
	uint32_t n = 0;

	block_queue_init(&server->ending);
	while (job) {
		struct block_job *next = job->next;

		if (try_end(server, job->handle))
			n++;
		else
			block_queue_put(&server->ending, job);
		job = next;
	}
	return n;
}

/* Records the answer to a COMMIT or CLOSE for a client that asks again. */
void block_handle_remember(struct block_server *server, const struct block_job *end)
{
	struct block_peer *peer = &server->peers[end->peer];
	struct block_ended *ended = &peer->ended[peer->ended_next++ % BLOCK_ENDED];

	ended->key = end->key;
	ended->op = end->op;
	ended->status = end->status;
	ended->attr = end->attr;
}

/* Returns how the latest handle with the key ended, or NULL if it did not end by `op`. */
const struct block_ended *block_handle_ended(struct block_server *server, uint32_t peer,
					     uint32_t key, uint16_t op)
{
	struct block_peer *p = &server->peers[peer];

	for (uint32_t i = 1; i <= BLOCK_ENDED; i++) {
		const struct block_ended *ended = &p->ended[(p->ended_next - i) % BLOCK_ENDED];

		if (ended->op && ended->key == key)
			return ended->op == op ? ended : NULL;
	}
	return NULL;
}
