// SPDX-License-Identifier: BSD-2-Clause
/* Calls that open, close, read and write pieces, and send requests. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "memory/private.h"

static void job_open(struct careful_memory *memory, struct memory_job *job)
{
	job->remote->host = memory_host_get(memory, job->address, job->address_bytes);
	job->remote->opener = job;
	if (job->remote->host)
		memory_piece_open(job->remote);
	else
		memory_end_job(job, -ENOMEM);
}

int careful_memory_open(struct careful_memory *memory, const struct sockaddr *host,
			uint32_t host_bytes, const void *ask, uint32_t bytes,
			struct careful_memory_piece *piece, struct careful_memory_remote **remote)
{
	struct careful_memory_remote *r = calloc(1, sizeof(*r) + bytes);
	struct memory_job job = {
		.start = job_open, .address = host, .address_bytes = host_bytes, .remote = r
	};
	int rc;

	if (!r)
		return -ENOMEM;
	r->memory = memory;
	r->stale = true;
	r->ask_bytes = bytes;
	memcpy(r->ask, ask, bytes);
	rc = memory_run(memory, &job);
	if (rc) {
		free(r);
		return rc;
	}
	*piece = r->piece;
	*remote = r;
	return 0;
}

/* Waits for the end of an OPEN that is under way, since opened() uses the piece. */
static void job_close(struct careful_memory *memory, struct memory_job *job)
{
	struct careful_memory_remote *remote = job->remote;

	(void)memory;
	if (remote->map || !remote->opening) {
		memory_end_job(job, remote->map ? -EBUSY : 0);
		return;
	}
	remote->closer = job;
	remote->open.until_ns = 0;
}

int careful_memory_close(struct careful_memory_remote *remote)
{
	struct memory_job job = { .start = job_close, .remote = remote };
	int rc = memory_run(remote->memory, &job);

	if (rc == -EBUSY)
		return rc;
	if (!remote->map) /* else the instance is gone, and the thread still serves the map */
		free(remote);
	return 0;
}

enum { VECTOR_MOVES = 64 }; /* moves of a vector under way at a time */

struct move_job {
	struct memory_job job;
	const struct careful_memory_part *parts;
	uint32_t n, flags;
	uint32_t part; /* index of the next move's part */
	uint64_t part_offset; /* of the next move in its part */
	uint32_t under_way, free_count;
	struct memory_move *free[VECTOR_MOVES];
	struct memory_move moves[VECTOR_MOVES];
};

static void part_moved(struct memory_move *move, int status);

/* Begins as many moves as possible. */
static void begin_parts(struct move_job *job)
{
	struct careful_memory *memory = job->job.remote->memory;
	const bool is_ordered = job->flags & CAREFUL_MEMORY_ORDERED;

	while (!job->job.status && job->part < job->n && job->free_count) {
		const struct careful_memory_part *part = &job->parts[job->part];
		const uint64_t left = part->bytes - job->part_offset;
		struct memory_move *move;

		if (!part->bytes) {
			job->part++;
			continue;
		}
		if (is_ordered && !job->part_offset && job->under_way)
			break;
		move = job->free[--job->free_count];
		*move = (struct memory_move){
			.host = job->job.remote->host,
			.remote = job->job.remote,
			.offset = part->offset + job->part_offset,
			.local = (uint8_t *)part->local + job->part_offset,
			.bytes = left < MEMORY_MOVE_BYTES ? (uint32_t)left : MEMORY_MOVE_BYTES,
			.is_store = job->flags & CAREFUL_MEMORY_STORE,
			.awaited = true,
			.until_ns = clock_now_ns() + memory->patience_ns,
			.done = part_moved,
			.user = job,
		};
		job->part_offset += move->bytes;
		if (job->part_offset >= part->bytes) {
			job->part++;
			job->part_offset = 0;
		}
		job->under_way++;
		memory_move_queue(memory, move);
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

/* Reports whether a part lies in a map, whose faults the client's thread could not serve. */
static bool is_in_map(const struct careful_memory *memory, const struct careful_memory_part *part)
{
	const uintptr_t local = (uintptr_t)part->local;

	for (const struct careful_memory_map *map = memory->maps; map; map = map->next)
		if (map->ours && local < map->base + map->pages * MAP_PAGE &&
		    local + part->bytes > map->base)
			return true;
	return false;
}

static void job_move(struct careful_memory *memory, struct memory_job *job)
{
	struct move_job *move_job = (struct move_job *)job;

	for (uint32_t i = 0; i < move_job->n; i++) {
		if (is_in_map(memory, &move_job->parts[i])) {
			memory_end_job(job, -EFAULT);
			return;
		}
	}
	begin_parts(move_job);
}

int careful_memory_move(struct careful_memory_remote *remote,
			const struct careful_memory_part *parts, uint32_t n, uint32_t flags)
{
	struct move_job job = {
		.job = { .start = job_move, .remote = remote },
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

struct ask_job {
	struct memory_job job;
	struct memory_move move;
	struct careful_memory_answer *answer;
};

static void answered(struct memory_move *move, int status)
{
	struct ask_job *job = move->user;
	struct careful_memory_answer *answer = job->answer;
	const struct careful_result *result = move->result;

	answer->status = status;
	if (result) {
		memcpy(answer->args, result->args, sizeof(answer->args));
		answer->bytes = result->payload ? result->bytes : 0;
		if (answer->bytes > sizeof(answer->payload))
			answer->bytes = sizeof(answer->payload);
		if (answer->bytes)
			memcpy(answer->payload, result->payload, answer->bytes);
	}
	memory_end_job(&job->job, status);
}

static void job_ask(struct careful_memory *memory, struct memory_job *job)
{
	struct memory_move *move = &((struct ask_job *)job)->move;

	move->host = memory_host_get(memory, job->address, job->address_bytes);
	move->until_ns = clock_now_ns() + memory->patience_ns;
	if (move->host)
		memory_move_queue(memory, move);
	else
		memory_end_job(job, -ENOMEM);
}

int careful_memory_ask(struct careful_memory *memory, const struct sockaddr *host,
		       uint32_t host_bytes, uint16_t handler, const uint32_t *args,
		       const void *payload, uint32_t bytes, struct careful_memory_answer *answer)
{
	struct ask_job job = {
		.job = { .start = job_ask, .address = host, .address_bytes = host_bytes },
		.move = { .handler = handler,
			  .args = args,
			  .local = (void *)payload,
			  .bytes = bytes,
			  .awaited = true,
			  .done = answered,
			  .user = &job },
		.answer = answer,
	};

	answer->bytes = 0;
	return memory_run(memory, &job.job);
}
