// SPDX-License-Identifier: BSD-2-Clause
/* Open pieces of other hosts' memory, and the gets and stores of their bytes. A session's end
 * removes the regions. A piece is then opened again, and moves under way are repeated. */
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "memory/private.h"

static void end_opening(struct careful_memory_remote *remote, int status)
{
	struct memory_job *opener = remote->opener;

	remote->opener = NULL;
	if (status && !memory_is_lost(status))
		remote->status = status;
	if (opener)
		memory_end_job(opener, status);
}

/* Takes the host's description of the piece. Returns 0 or -errno. */
static int take(struct careful_memory_remote *remote, const struct careful_result *result)
{
	struct careful_memory_piece said;

	if (result->status)
		return result->status;
	if (!result->payload || result->bytes < sizeof(said))
		return -EPROTO;
	memcpy(&said, result->payload, sizeof(said));
	if (be64toh(said.bytes) > INT64_MAX || !be64toh(said.bytes))
		return -EPROTO;
	if (remote->bytes &&
	    (be32toh(said.number) != remote->number || be64toh(said.bytes) != remote->bytes))
		return -ESTALE;
	remote->piece = said;
	remote->bytes = be64toh(said.bytes);
	remote->number = be32toh(said.number);
	remote->access = be32toh(said.access);
	remote->key = result->args[0];
	remote->stale = false;
	return 0;
}

static void opened(struct careful_memory *memory, const struct careful_result *result, void *user)
{
	struct careful_memory_remote *remote = user;
	int rc = take(remote, result);

	(void)memory;
	remote->opening = false;
	/* A piece that existed before is lost. */
	end_opening(remote, rc == -ENOENT && remote->bytes ? -ESTALE : rc);
}

static int open_remote(struct careful_memory *memory, struct careful_memory_remote *remote)
{
	struct memory_ask *asked = memory_ask_new(remote->host, CAREFUL_MEMORY_OPEN, NULL,
						  remote->ask, remote->ask_bytes);
	int rc;

	if (!asked)
		return -ENOMEM;
	asked->done = opened;
	asked->user = remote;
	remote->opening = true;
	rc = memory_ask_begin(memory, asked);
	remote->opening &= !rc;
	return rc;
}

void memory_move_put(struct careful_memory *memory, struct memory_move *move)
{
	move->next = NULL;
	move->flying = false;
	*memory->moves_tail = move;
	memory->moves_tail = &move->next;
}

static void land(struct careful_memory *memory, struct memory_move *move)
{
	struct memory_move **at = &memory->flights;

	while (*at != move)
		at = &(*at)->next;
	*at = move->next;
	memory->flying--;
	move->flying = false;
}

static void on_moved(const struct careful_result *result, void *user)
{
	struct memory_move *move = user;
	struct careful_memory_remote *remote = move->remote;
	struct careful_memory *memory = remote->memory;
	int status = result->status;

	land(memory, move);
	if (!status && result->bytes != move->bytes)
		status = -EPROTO;
	if (!memory_is_lost(status) || clock_now_ns() >= move->until_ns) {
		move->done(move, status);
		return;
	}
	remote->stale = true;
	if (status != -ENOENT && status != -EBADMSG)
		remote->host->peer = -1;
	memory_move_put(memory, move);
}

/* Begins a move. Returns 0 if it is under way, -EAGAIN, or -errno. */
static int begin(struct careful_memory *memory, struct memory_move *move)
{
	struct careful_memory_remote *remote = move->remote;
	const struct careful_span span = { .base = move->local, .fd = -1 };
	int rc = remote->status;

	if (rc)
		return rc;
	if (remote->stale && !remote->opening) {
		rc = open_remote(memory, remote);
		if (rc)
			return rc;
	}
	if (remote->stale)
		return -EAGAIN;
	rc = memory_host_peer(memory, remote->host);
	if (rc >= 0 && move->is_store)
		rc = careful_store(memory->instance, (uint32_t)rc, remote->key, move->offset, &span,
				   move->bytes, CAREFUL_HANDLERS, NULL, CAREFUL_NO_DIGEST, on_moved,
				   move);
	else if (rc >= 0)
		rc = careful_get(memory->instance, (uint32_t)rc, remote->key, move->offset, &span,
				 move->bytes, CAREFUL_NO_DIGEST, on_moved, move);
	if (memory_is_lost(rc)) {
		remote->stale = true;
		remote->host->peer = -1;
		return -EAGAIN;
	}
	return rc;
}

/* Ends moves that wait too long, and sessions whose moves are under way for too long. */
static void check_limits(struct careful_memory *memory, uint64_t now_ns)
{
	struct memory_move **at = &memory->moves, *move;

	while ((move = *at)) {
		if (!memory->failed && now_ns < move->until_ns) {
			at = &move->next;
			continue;
		}
		*at = move->next;
		if (!*at)
			memory->moves_tail = at;
		move->done(move, memory->failed ? memory->failed : -ECONNRESET);
	}
	for (move = memory->flights; move; move = move->next) {
		if (memory->failed || now_ns < move->until_ns || move->remote->host->peer < 0)
			continue;
		memory_host_leave(memory, move->remote->host); /* its operations end soon */
	}
	while (memory->failed && (move = memory->flights)) {
		land(memory, move);
		move->done(move, memory->failed);
	}
}

void memory_move_poll(struct careful_memory *memory, uint64_t now_ns)
{
	struct memory_move **at = &memory->moves, *move;

	if (now_ns - memory->tick_ns >= MEMORY_TICK_MS * UINT64_C(1000000) || memory->failed) {
		memory->tick_ns = now_ns;
		check_limits(memory, now_ns);
	}
	while ((move = *at) && memory->flying < MEMORY_FLYING_MAX) {
		int rc = begin(memory, move);

		if (rc == -EAGAIN) { /* others may have another host */
			at = &move->next;
			continue;
		}
		*at = move->next;
		if (!*at)
			memory->moves_tail = at;
		if (rc) {
			move->done(move, rc);
			continue;
		}
		move->flying = true;
		move->next = memory->flights;
		memory->flights = move;
		memory->flying++;
	}
}

struct open_job {
	struct memory_job job;
	const struct sockaddr *address;
	uint32_t address_bytes;
	struct careful_memory_remote *remote;
};

static void job_open(struct careful_memory *memory, struct memory_job *one)
{
	struct open_job *job = (struct open_job *)one;
	int rc = -ENOMEM;

	job->remote->host = memory_host_get(memory, job->address, job->address_bytes);
	job->remote->opener = one;
	if (job->remote->host)
		rc = open_remote(memory, job->remote);
	if (rc)
		memory_end_job(one, rc);
}

int careful_memory_open(struct careful_memory *memory, const struct sockaddr *host,
			uint32_t host_bytes, const void *ask, uint32_t bytes,
			struct careful_memory_piece *piece, struct careful_memory_remote **remote)
{
	struct careful_memory_remote *r = calloc(1, sizeof(*r) + bytes);
	struct open_job job = {
		.job.start = job_open,
		.address = host,
		.address_bytes = host_bytes,
		.remote = r,
	};
	int rc;

	if (!r)
		return -ENOMEM;
	r->memory = memory;
	r->stale = true;
	r->ask_bytes = bytes;
	memcpy(r->ask, ask, bytes);
	rc = memory_run(memory, &job.job);
	if (rc) {
		free(r);
		return rc;
	}
	*piece = r->piece;
	*remote = r;
	return 0;
}

struct close_job {
	struct memory_job job;
	struct careful_memory_remote *remote;
};

/* Cancels the asks of the piece that have no answer yet, because their answers would use it after
 * careful_memory_close() has freed it. */
static void job_close(struct careful_memory *memory, struct memory_job *one)
{
	struct careful_memory_remote *remote = ((struct close_job *)one)->remote;

	for (struct memory_ask *a = memory->asks; a; a = a->next)
		if (a->user == remote)
			a->over = true;
	memory_end_job(one, remote->map ? -EBUSY : 0);
}

int careful_memory_close(struct careful_memory_remote *remote)
{
	struct close_job job = { .job.start = job_close, .remote = remote };
	int rc = memory_run(remote->memory, &job.job);

	if (rc != -EBUSY)
		free(remote);
	return rc == -EBUSY ? rc : 0;
}

/* Moves of a vector that are under way at a time; each moves at most MEMORY_MOVE_BYTES. */
enum { VECTOR_MOVES = 64 };

/*
 * @part, @at: what begins next
 * @free:     moves that are not under way
 */
struct move_job {
	struct memory_job job;
	struct careful_memory_remote *remote;
	const struct careful_memory_part *parts;
	uint32_t n, flags, part;
	uint64_t at;
	uint32_t under_way, free_count;
	struct memory_move *free[VECTOR_MOVES];
	struct memory_move moves[VECTOR_MOVES];
};

static void part_moved(struct memory_move *move, int status);

/* Begins as many moves as possible. */
static void begin_parts(struct move_job *job)
{
	struct careful_memory *memory = job->remote->memory;
	const bool is_ordered = job->flags & CAREFUL_MEMORY_ORDERED;

	while (!job->job.status && job->part < job->n && job->free_count) {
		const struct careful_memory_part *part = &job->parts[job->part];
		const uint64_t left = part->bytes - job->at;
		struct memory_move *move;

		if (!part->bytes) {
			job->part++;
			continue;
		}
		if (is_ordered && !job->at && job->under_way)
			break;
		move = job->free[--job->free_count];
		*move = (struct memory_move){
			.remote = job->remote,
			.offset = part->offset + job->at,
			.local = (uint8_t *)part->local + job->at,
			.bytes = left < MEMORY_MOVE_BYTES ? (uint32_t)left : MEMORY_MOVE_BYTES,
			.is_store = job->flags & CAREFUL_MEMORY_STORE,
			.until_ns = clock_now_ns() + memory->patience_ns,
			.done = part_moved,
			.user = job,
		};
		job->at += move->bytes;
		if (job->at >= part->bytes) {
			job->part++;
			job->at = 0;
		}
		job->under_way++;
		memory_move_put(memory, move);
	}
	if (!job->under_way)
		memory_end_job(&job->job, job->job.status);
}

static void part_moved(struct memory_move *move, int status)
{
	struct move_job *job = move->user;

	if (status && !job->job.status)
		job->job.status = status;
	job->free[job->free_count++] = move;
	job->under_way--;
	begin_parts(job);
}

/* Reports whether a part lies in a map of this thread, which cannot serve its own faults. */
static bool is_in_map(const struct careful_memory *memory, const struct careful_memory_part *part)
{
	const uintptr_t at = (uintptr_t)part->local;

	for (const struct careful_memory_map *map = memory->maps; map; map = map->next)
		if (map->ours && at < map->base + map->pages * MAP_PAGE &&
		    at + part->bytes > map->base)
			return true;
	return false;
}

static void job_move(struct careful_memory *memory, struct memory_job *one)
{
	struct move_job *job = (struct move_job *)one;

	for (uint32_t i = 0; i < job->n; i++) {
		if (is_in_map(memory, &job->parts[i])) {
			memory_end_job(one, -EFAULT);
			return;
		}
	}
	begin_parts(job);
}

int careful_memory_move(struct careful_memory_remote *remote,
			const struct careful_memory_part *parts, uint32_t n, uint32_t flags)
{
	struct move_job job = {
		.job.start = job_move,
		.remote = remote,
		.parts = parts,
		.n = n,
		.flags = flags,
	};
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < n; i++) {
		if (parts[i].offset > remote->bytes ||
		    parts[i].bytes > remote->bytes - parts[i].offset)
			return -ERANGE;
		bytes |= parts[i].bytes;
	}
	if (!bytes)
		return 0;
	while (job.free_count < VECTOR_MOVES) {
		job.free[job.free_count] = &job.moves[job.free_count];
		job.free_count++;
	}
	return memory_run(remote->memory, &job.job);
}
