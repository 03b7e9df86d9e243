// SPDX-License-Identifier: BSD-2-Clause
/* Gets, stores and requests of the memory client. A session's end removes the regions. A piece is
 * then opened again, and moves under way are repeated. */
#include <endian.h>
#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "memory/private.h"

void memory_move_put(struct careful_memory *memory, struct memory_move *move)
{
	move->next = NULL;
	move->memory = memory;
	move->flying = false;
	*memory->moves_tail = move;
	memory->moves_tail = &move->next;
}

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

static void opened(struct memory_move *move, int status)
{
	struct careful_memory_remote *remote = move->user;
	struct memory_job *closer = remote->closer;
	int rc = status ? status : take(remote, move->result);

	remote->opening = false;
	/* A piece that existed before is lost. */
	end_opening(remote, rc == -ENOENT && remote->bytes ? -ESTALE : rc);
	if (closer) /* else another thread may have freed the piece */
		memory_end_job(closer, 0);
}

void memory_piece_open(struct careful_memory_remote *remote)
{
	struct careful_memory *memory = remote->memory;

	remote->open = (struct memory_move){
		.host = remote->host,
		.handler = CAREFUL_MEMORY_OPEN,
		.local = remote->ask,
		.bytes = remote->ask_bytes,
		.awaited = true,
		.until_ns = clock_now_ns() + memory->patience_ns,
		.done = opened,
		.user = remote,
	};
	remote->opening = true;
	memory_move_put(memory, &remote->open);
}

static void land(struct careful_memory *memory, struct memory_move *move)
{
	struct memory_move **at = &memory->flights;

	while (*at != move)
		at = &(*at)->next;
	*at = move->next;
	memory->flying -= move->remote != NULL;
	memory->awaited -= move->awaited;
	move->flying = false;
}

static void on_moved(const struct careful_result *result, void *user)
{
	struct memory_move *move = user;
	struct careful_memory *memory = move->memory;
	int status = result->status;
	bool is_lost = memory_is_lost(status);

	land(memory, move);
	if (move->remote && !status && result->bytes != move->bytes)
		status = -EPROTO;
	if (!move->remote) {
		move->result = result;
		is_lost &= status != -ENOENT;
	}
	if ((!is_lost && (move->remote || status != -EAGAIN)) || clock_now_ns() >= move->until_ns) {
		move->done(move, status);
		return;
	}
	move->result = NULL;
	if (move->remote)
		move->remote->stale = true;
	else
		move->again_ns = clock_in_ms(MEMORY_AGAIN_MS);
	if (is_lost && status != -ENOENT && status != -EBADMSG)
		move->host->peer = -1;
	memory_move_put(memory, move);
}

/* Begins a move. Returns 0 if it is under way, -EAGAIN, or -errno. */
static int begin(struct careful_memory *memory, struct memory_move *move)
{
	struct careful_memory_remote *remote = move->remote;
	const struct careful_span span = { .base = move->local, .fd = -1 };
	int rc;

	if (remote && remote->status)
		return remote->status;
	if (remote && remote->stale && !remote->opening)
		memory_piece_open(remote);
	if (remote && remote->stale)
		return -EAGAIN;
	rc = memory_host_peer(memory, move->host);
	if (rc >= 0 && !remote)
		rc = careful_request(memory->instance, (uint32_t)rc, move->handler, move->args,
				     move->local, move->bytes, on_moved, move);
	else if (rc >= 0 && move->is_store)
		rc = careful_store(memory->instance, (uint32_t)rc, remote->key, move->offset, &span,
				   move->bytes, CAREFUL_HANDLERS, NULL, CAREFUL_NO_DIGEST, on_moved,
				   move);
	else if (rc >= 0)
		rc = careful_get(memory->instance, (uint32_t)rc, remote->key, move->offset, &span,
				 move->bytes, CAREFUL_NO_DIGEST, on_moved, move);
	if (!memory_is_lost(rc))
		return rc;
	if (remote)
		remote->stale = true;
	move->host->peer = -1;
	return -EAGAIN;
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
		if (memory->failed || now_ns < move->until_ns || move->host->peer < 0)
			continue;
		memory_host_leave(memory, move->host); /* its operations end soon */
	}
	while (memory->failed && (move = memory->flights)) {
		land(memory, move);
		move->done(move, memory->failed);
	}
}

void memory_move_poll(struct careful_memory *memory, uint64_t now_ns)
{
	struct memory_move **at = &memory->moves, *move;
	uint32_t begun = 0;

	if (now_ns - memory->tick_ns >= MEMORY_TICK_MS * UINT64_C(1000000) || memory->failed) {
		memory->tick_ns = now_ns;
		check_limits(memory, now_ns);
	}
	while ((move = *at)) {
		const bool may = move->remote ? memory->flying < MEMORY_FLYING_MAX :
						now_ns >= move->again_ns;
		int rc = may ? begin(memory, move) : -EAGAIN;

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
		memory->flying += move->remote != NULL;
		memory->awaited += move->awaited;
		if (move->awaited && ++begun == MEMORY_BEGIN_FIRST)
			careful_poll(memory->instance); /* may add moves to the list */
	}
}
