// SPDX-License-Identifier: BSD-2-Clause
/* Gets, stores and requests of the memory client. The end of a session removes its regions: pieces
 * are then opened again, and their moves repeated. */
#include <endian.h>
#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "memory/private.h"

void memory_move_queue(struct careful_memory *memory, struct memory_move *move)
{
	move->next = NULL;
	move->memory = memory;
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

/* Takes the reply to OPEN. Returns 0 or -errno. */
static int take_piece(struct careful_memory_remote *remote, const struct careful_result *result)
{
	struct careful_memory_piece piece;

	if (!result->payload || result->bytes < sizeof(piece))
		return -EPROTO;
	memcpy(&piece, result->payload, sizeof(piece));
	if (be64toh(piece.bytes) > INT64_MAX || !be64toh(piece.bytes))
		return -EPROTO;
	if (remote->bytes &&
	    (be32toh(piece.number) != remote->number || be64toh(piece.bytes) != remote->bytes))
		return -ESTALE;
	remote->piece = piece;
	remote->bytes = be64toh(piece.bytes);
	remote->number = be32toh(piece.number);
	remote->access = be32toh(piece.access);
	remote->key = result->args[0];
	remote->stale = false;
	return 0;
}

static void opened(struct memory_move *move, int status)
{
	struct careful_memory_remote *remote = move->user;
	struct memory_job *closer = remote->closer;
	int rc = status ? status : take_piece(remote, move->result);

	remote->opening = false;
	if (rc == -ENOENT && remote->bytes) /* the piece existed before */
		rc = -ESTALE;
	end_opening(remote, rc);
	if (closer) /* without a closer, the opener may have freed the piece by now */
		memory_end_job(closer, 0);
}

/* Opens a piece for the first time, or again in a new session. */
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
	memory_move_queue(memory, &remote->open);
}

static void count_flying(struct careful_memory *memory, const struct memory_move *move, int by)
{
	if (!move->remote)
		return;
	memory->flying += (uint32_t)by;
	move->host->flying += (uint32_t)by;
}

static void remove_flight(struct careful_memory *memory, struct memory_move *move)
{
	struct memory_move **at = &memory->flights;

	while (*at != move)
		at = &(*at)->next;
	*at = move->next;
	count_flying(memory, move, -1);
	memory->awaited -= move->awaited;
}

static void on_moved(const struct careful_result *result, void *user)
{
	struct memory_move *move = user;
	struct careful_memory *memory = move->memory;
	int status = result->status;
	bool is_lost = memory_is_lost(status);

	remove_flight(memory, move);
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
		move->retry_ns = clock_in_ms(MEMORY_RETRY_MS);
	if (is_lost && status != -ENOENT && status != -EBADMSG)
		move->host->peer = -1;
	memory_move_queue(memory, move);
}

/* Begins a move. Returns 0, -EAGAIN to try again later, or -errno. */
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

/* Ends moves that wait too long, and sessions whose moves take too long. */
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
		memory_host_leave(memory, move->host);
	}
	while (memory->failed && (move = memory->flights)) {
		remove_flight(memory, move);
		move->done(move, memory->failed);
	}
}

void memory_move_poll(struct careful_memory *memory, uint64_t now_ns)
{
	struct memory_move **at = &memory->moves, *move;
	uint32_t awaited = 0;

	if (now_ns - memory->tick_ns >= MEMORY_TICK_MS * UINT64_C(1000000) || memory->failed) {
		memory->tick_ns = now_ns;
		check_limits(memory, now_ns);
	}
	while ((move = *at)) {
		const bool may = move->remote ? move->host->flying < MEMORY_FLYING_MAX :
						now_ns >= move->retry_ns;
		int rc = may ? begin(memory, move) : -EAGAIN;

		if (rc == -EAGAIN) { /* the next move may have another host */
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
		move->next = memory->flights;
		memory->flights = move;
		count_flying(memory, move, 1);
		memory->awaited += move->awaited;
		if (move->awaited && ++awaited == MEMORY_FIRST_MOVES)
			careful_poll(memory->instance); /* may add moves to the list */
	}
}
