/* SPDX-License-Identifier: BSD-2-Clause */
/* Requests in the engine's thread: begins a job for each, and answers when it has ended. Each
 * export has a share of a peer's jobs, so a hanging export delays no request in others. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "files/private.h"
#include "storage/tree/tree.h"

static bool may_begin(const struct block_server *server, uint32_t index, uint8_t place)
{
	const struct block_peer *peer = &server->peers[index];

	return share_may(&peer->jobs, peer->jobs_at[place]);
}

static void take_share(struct block_server *server, const struct block_job *job)
{
	struct block_peer *peer = &server->peers[job->peer];

	share_take(&peer->jobs, &peer->jobs_at[job->place]);
}

static void free_job(struct block_server *server, struct block_job *job)
{
	job->next = server->jobs_free;
	server->jobs_free = job;
}

/* Frees a job that was answered, or of which a copy waits (block_wait()). */
static void release(struct block_server *server, struct block_job *job)
{
	if (!job->path) { /* the job is its handle's end_job */
		block_handle_destroy(server, job->handle);
		return;
	}
	free(job->reply);
	job->reply = NULL;
	if (job->fd >= 0) /* still open, because no worker ran the job */
		close(job->fd);
	if (job->dir_fd >= 0)
		close(job->dir_fd);
	share_put(&server->peers[job->peer].jobs, &server->peers[job->peer].jobs_at[job->place]);
	free_job(server, job);
}

static void count(struct block_server *server, const struct block_job *job)
{
	uint32_t denied = job->path && beneath_denied(job->status) ? 1 : job->denied;

	if (denied)
		engine_denied(server->instance, denied);
	if (job->place != BLOCK_EXPORTS && job->op != BLOCK_DISCARD) {
		struct careful_export_use *use = &server->use[job->place];

		use->requests++;
		use->failed += job->status != 0;
		use->denied += denied != 0;
	}
}

/* Answers a job. Returns false if the answer must be tried again. */
static bool answer(struct block_server *server, struct block_job *job)
{
	const void *payload = job->has_attr ? &job->attr : job->reply;
	uint32_t bytes = job->has_attr ? sizeof(job->attr) : job->reply_bytes;
	int rc = 0;

	if (job->status || !bytes) {
		payload = NULL;
		bytes = 0;
	}
	/* No check of the peer's life, because a new epoch's request can come before block_watch():
	 * the engine answers only requests of the current epoch. */
	if (job->op != BLOCK_DISCARD)
		rc = careful_reply_late(server->instance, &job->to, job->status, job->args, payload,
					bytes);
	if (rc == -EAGAIN || rc == -ENOBUFS)
		return false;
	count(server, job);
	/* Without an attempt's name, the client cannot ask for the lost key. */
	if (rc && job->path && job->handle && !job->status && !job->attempt)
		block_handle_end(server, job->handle, BLOCK_DISCARD);
	release(server, job);
	return true;
}

void block_answer(struct block_server *server, struct block_job *job)
{
	if (!answer(server, job))
		block_queue_put(&server->unsent, job);
}

/* Makes a worker's result visible to the peer. */
void block_finish(struct block_server *server, struct block_job *job)
{
	struct block_handle *handle = job->handle;
	bool gone = job->life != server->peers[job->peer].life;

	if (handle && !job->path)
		block_handle_report_end(server, handle);
	if (handle && job->path) { /* OPEN, LIST, BATCH */
		if (job->status) { /* the open failed, or the job is unwanted */
			block_handle_destroy(server, handle);
			job->handle = NULL;
			job->status = gone ? -ECONNRESET : job->status;
		} else {
			block_handle_return_excess(handle);
			job->status = gone ? -ECONNRESET : block_handle_publish(server, handle);
			if (job->status) {
				block_handle_end(server, handle, BLOCK_DISCARD);
				job->handle = NULL;
			}
		}
	} else if (handle && job->op != BLOCK_DISCARD && !gone) {
		block_handle_remember(server, job);
	}
	block_answer(server, job);
}

/* BATCH: duplicates the scratch's descriptors, because the scratch may end before the job. */
static int duplicate_scratch(struct block_server *server, struct block_job *job)
{
	struct block_handle *scratch = block_handle_find(server, job->peer, job->key);

	if (!scratch || scratch->state != BLOCK_OPEN || !scratch->scratch || scratch->dir_fd < 0)
		return -EBADF;
	if (job->bytes > scratch->bytes)
		return -EINVAL;
	job->may_write = scratch->may_write;
	job->squashed = scratch->squashed;
	job->fd = fcntl(scratch->fd, F_DUPFD_CLOEXEC, 3);
	job->dir_fd = fcntl(scratch->dir_fd, F_DUPFD_CLOEXEC, 3);
	return job->fd < 0 || job->dir_fd < 0 ? -EMFILE : 0;
}

/* OPEN with COPY: duplicates the source's descriptor: its handle may end before the job does. */
static int duplicate_source(struct block_server *server, struct block_job *job)
{
	struct block_handle *from = block_handle_find(server, job->peer, job->key);

	if (!from || from->state != BLOCK_OPEN || from->fd < 0)
		return -EBADF;
	job->fd = fcntl(from->fd, F_DUPFD_CLOEXEC, 3);
	return job->fd < 0 ? -EMFILE : 0;
}

/* OPEN, LIST, BATCH: creates a handle when there is room. */
static int start_new(struct block_server *server, struct block_job *job)
{
	int rc = block_handle_room(server, job);

	if (rc || block_has_waiters(server, job)) {
		int waits = block_wait(server, job);

		if (waits == -EINPROGRESS)
			release(server, job);
		if (waits)
			return waits;
	}
	if (!rc && job->op == CAREFUL_BLOCK_BATCH)
		rc = duplicate_scratch(server, job);
	else if (!rc && job->op == CAREFUL_BLOCK_OPEN && job->flags & CAREFUL_BLOCK_COPY)
		rc = duplicate_source(server, job);
	if (!rc)
		rc = block_handle_create(server, job, &job->handle);
	if (rc)
		return rc;
	block_work_put(server, job);
	return -EINPROGRESS;
}

/* OPEN, LIST, BATCH: finds the handle if the client asks again; else creates one. */
static int start_open(struct block_server *server, struct block_job *job)
{
	struct block_handle *handle = block_handle_attempt(server, job->peer, job->attempt);

	if (!handle)
		return start_new(server, job);
	if (handle->state == BLOCK_OPENING)
		return block_supersede(&handle->job->to, job);
	memcpy(job->args, handle->args, sizeof(job->args));
	job->attr = handle->attr;
	job->has_attr = !handle->listing && !handle->scratch;
	return 0;
}

/* CLOSE without a key: finds the handle by its attempt. */
static int find_named_handle(struct block_server *server, struct block_job *job)
{
	const struct block_handle *handle = block_handle_attempt(server, job->peer, job->attempt);

	if (block_is_parked(server, job) || (handle && handle->state == BLOCK_OPENING) ||
	    block_stop_waiting(server, job))
		return -EAGAIN;
	job->key = handle ? handle->key : 0;
	return handle ? 0 : -EBADF;
}

static int start_end(struct block_server *server, struct block_job *job)
{
	int rc = job->attempt ? find_named_handle(server, job) : 0;
	struct block_handle *handle = rc ? NULL : block_handle_find(server, job->peer, job->key);
	const struct block_ended *ended;
	struct block_job *end;

	if (rc)
		return rc;
	if (!handle) {
		ended = block_handle_ended(server, job->peer, job->key, job->op);
		if (!ended)
			return -EBADF;
		job->attr = ended->attr;
		job->has_attr = true;
		return ended->status;
	}
	end = &handle->end_job;
	if (handle->state == BLOCK_OPEN) {
		if (job->op == CAREFUL_BLOCK_COMMIT && !handle->writable)
			return -EINVAL;
		*end = *job;
		end->path = NULL;
		release(server, job);
		block_handle_end(server, handle, end->op);
		return -EINPROGRESS;
	}
	if (end->op != job->op || end->life != job->life)
		return -EBADF;
	return block_supersede(&end->to, job);
}

/* DIGEST, EXTENTS: duplicates the descriptor: the handle may end before the job does. */
static int start_range(struct block_server *server, struct block_job *job)
{
	struct block_handle *handle = block_handle_find(server, job->peer, job->key);
	int room = careful_payload_bytes(server->instance, job->peer);

	if (!handle || handle->state != BLOCK_OPEN)
		return -EBADF;
	if (room < 0)
		return room;
	job->reply_max = (uint32_t)room;
	job->fd = fcntl(handle->fd, F_DUPFD_CLOEXEC, 3);
	if (job->fd < 0)
		return -errno;
	block_work_put(server, job);
	return -EINPROGRESS;
}

static void start(struct block_server *server, struct block_job *job, int status)
{
	take_share(server, job);
	if (!status) {
		switch (job->op) {
		case CAREFUL_BLOCK_OPEN:
		case CAREFUL_BLOCK_LIST:
		case CAREFUL_BLOCK_BATCH:
			status = start_open(server, job);
			break;
		case CAREFUL_BLOCK_COMMIT:
		case CAREFUL_BLOCK_CLOSE:
			status = start_end(server, job);
			break;
		case CAREFUL_BLOCK_DIGEST:
		case CAREFUL_BLOCK_EXTENTS:
			status = start_range(server, job);
			break;
		default:
			block_work_put(server, job);
			status = -EINPROGRESS;
		}
	}
	if (status == -EINPROGRESS)
		return;
	job->status = status;
	block_answer(server, job);
}

/* Returns a free job to parse a request into. There is always one: peers may begin all but one. */
static struct block_job *get_job(struct block_server *server, uint32_t peer, uint16_t op,
				 const struct careful_reply_to *to)
{
	struct block_job *job = server->jobs_free;
	char *path = job->path;

	server->jobs_free = job->next;
	*job = (struct block_job){
		.op = op,
		.place = BLOCK_EXPORTS,
		.peer = peer,
		.life = server->peers[peer].life,
		.exports = server->exports,
		.visible = block_exports_of(server, peer),
		.to = *to,
		.fd = -1,
		.dir_fd = -1,
		.path = path,
	};
	return job;
}

static uint8_t place_of(struct block_server *server, const struct block_job *job)
{
	const struct block_handle *handle;

	switch (job->op) {
	case CAREFUL_BLOCK_COMMIT: /* the job is the handle's end_job */
	case CAREFUL_BLOCK_CLOSE:
		return BLOCK_EXPORTS;
	case CAREFUL_BLOCK_DIGEST:
	case CAREFUL_BLOCK_EXTENTS:
	case CAREFUL_BLOCK_BATCH:
		handle = block_handle_find(server, job->peer, job->key);
		return handle ? handle->place : BLOCK_EXPORTS;
	default:
		return job->flags & CAREFUL_BLOCK_NULL && job->op == CAREFUL_BLOCK_OPEN ?
			       BLOCK_EXPORTS :
			       block_path_place(job);
	}
}

/* Begins a job that waited. Returns false if the peer may not begin another job now. */
static bool start_again(struct block_server *server, const struct block_waiter *waiter)
{
	const struct block_job *was = &waiter->job;
	struct block_job *job;
	char *path;

	if (!may_begin(server, was->peer, was->place))
		return false;
	job = get_job(server, was->peer, was->op, &was->to);
	path = job->path;
	*job = *was;
	job->path = path;
	strcpy(path, waiter->path); /* NOLINT: both have PATH_MAX */
	start(server, job, 0);
	return true;
}

void block_wake(struct block_server *server, uint32_t index)
{
	struct block_peer *peer = &server->peers[index];

	for (int i = 0; i < BLOCK_WAITERS; i++) {
		while (peer->waiters[i] && !block_handle_room(server, &peer->waiters[i]->job) &&
		       start_again(server, peer->waiters[i]))
			block_waiter_end(server, peer, &peer->waiters[i]);
	}
}

/* Reads a job's path from the scratch to which the client stored the path. */
static int read_stored_path(struct block_server *server, struct block_job *job, uint32_t key)
{
	const struct block_handle *scratch = block_handle_find(server, job->peer, key);
	ssize_t bytes;

	if (!scratch || scratch->state != BLOCK_OPEN || !scratch->scratch || scratch->dir_fd >= 0)
		return -EBADF;
	if (scratch->bytes >= PATH_MAX)
		return -ENAMETOOLONG;
	bytes = pread(scratch->fd, job->path, scratch->bytes, 0);
	if (bytes != (ssize_t)scratch->bytes)
		return bytes < 0 ? -errno : -EINVAL;
	job->path[bytes] = 0;
	return strlen(job->path) == scratch->bytes ? 0 : -EINVAL;
}

static int parse(struct block_server *server, struct block_job *job, const uint32_t *args,
		 const void *payload, uint32_t bytes)
{
	int rc = block_parse(job, args, payload, bytes);

	switch (job->op) {
	case CAREFUL_BLOCK_OPEN:
	case CAREFUL_BLOCK_LIST:
	case CAREFUL_BLOCK_STAT:
	case CAREFUL_BLOCK_MKDIR:
		/* args[1]: key of the scratch that holds the path; 0: the payload holds it */
		return rc || !args[1] ? rc : read_stored_path(server, job, args[1]);
	default:
		return rc;
	}
}

void block_unpark(struct block_server *server, uint32_t index)
{
	struct block_peer *peer = &server->peers[index];
	struct block_parked **at = &peer->parked, *parked;

	while ((parked = *at)) {
		struct block_job *job;
		int rc;

		if (!may_begin(server, index, parked->place)) {
			at = &parked->next;
			continue;
		}
		job = get_job(server, index, parked->handler, &parked->to);
		rc = parse(server, job, parked->args, careful_kept_payload(parked->kept),
			   parked->bytes);
		job->place = parked->place;
		block_parked_end(server, peer, at);
		start(server, job, rc);
	}
}

void block_on_request(const struct careful_message *message, void *user)
{
	struct block_server *server = user;
	struct block_peer *peer = &server->peers[message->peer];
	struct careful_reply_to to;
	struct block_job *job;
	int rc;

	assert(message->peer < server->peers_count);
	careful_reply_name(message, &to);
	job = get_job(server, message->peer, message->handler, &to);
	rc = parse(server, job, message->args, message->payload, message->bytes);
	if (!rc)
		job->place = place_of(server, job);
	if (!peer->parked_at[job->place] && may_begin(server, message->peer, job->place)) {
		start(server, job, rc);
		return;
	}
	free_job(server, job);
	block_park(server, message, job->place);
}
