/* SPDX-License-Identifier: BSD-2-Clause */
/* Pieces of lent memory: each is a new, locked mapping. The kernel zeroes its pages, so no peer
 * reads another peer's old data. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "engine/sharing.h"
#include "lend/private.h"

static uint64_t whole(uint64_t bytes, uint64_t page)
{
	return (bytes + page - 1) / page * page;
}

uint64_t lend_piece_mapped(uint64_t bytes, uint64_t room)
{
	if (bytes > room)
		return bytes;
	if (bytes >= LEND_HUGE_BYTES && whole(bytes, LEND_HUGE_BYTES) <= room)
		return whole(bytes, LEND_HUGE_BYTES);
	return whole(bytes, LEND_PAGE_BYTES);
}

struct lend_piece *lend_piece_create(struct lend_server *server, uint64_t bytes, uint64_t mapped)
{
	struct lend_piece *piece = calloc(1, sizeof(*piece)), **at = &server->pieces;

	if (!piece)
		return NULL;
	piece->server = server;
	piece->bytes = bytes;
	piece->mapped = mapped;
	piece->number = ++server->numbers;
	while (*at)
		at = &(*at)->next;
	*at = piece;
	server->used += piece->mapped;
	server->pieces_count++;
	return piece;
}

void lend_piece_count(const struct lend_server *server, const struct careful_memory_host *owner,
		      uint64_t *bytes, uint32_t *pieces)
{
	*bytes = 0;
	*pieces = 0;
	for (const struct lend_piece *p = server->pieces; p; p = p->next) {
		if (!lend_same(&p->owner, owner))
			continue;
		*bytes += p->mapped;
		++*pieces;
	}
}

int lend_piece_open(struct lend_piece *piece, uint32_t peer, uint32_t access, uint32_t *key)
{
	struct lend_server *server = piece->server;
	struct careful_region region = {
		.span = { .base = piece->memory, .fd = -1 },
		.bytes = piece->bytes,
		.access = (access & CAREFUL_MEMORY_READ ? CAREFUL_REGION_READ : 0U) |
			  (access & CAREFUL_MEMORY_WRITE ? CAREFUL_REGION_WRITE : 0U),
		.peer = peer,
	};
	struct lend_open *open = piece->opens;
	int rc;

	while (open && (open->peer != peer || open->closed))
		open = open->next;
	if (open) {
		*key = open->key;
		return 0;
	}
	if (server->peers[peer].opens >= server->opens_most)
		return -EMFILE;
	open = calloc(1, sizeof(*open));
	rc = open ? careful_region_add(server->instance, &region, &open->key) : -ENOMEM;
	if (rc) {
		free(open);
		return rc;
	}
	open->peer = peer;
	open->next = piece->opens;
	piece->opens = open;
	server->peers[peer].opens++;
	*key = open->key;
	return 0;
}

/* Removes a region unless a message uses it. */
static bool remove_open(struct lend_piece *piece, struct lend_open **at)
{
	struct lend_open *open = *at;
	struct lend_server *server = piece->server;

	if (careful_region_remove(server->instance, open->key) == -EBUSY)
		return false;
	server->peers[open->peer].opens--;
	server->closed -= open->closed;
	*at = open->next;
	free(open);
	return true;
}

static void free_memory(struct lend_piece *piece)
{
	piece->state = LEND_FREEING;
	pool_put(&piece->server->pool, &piece->server->frees, &piece->pooled);
}

void lend_piece_close(struct lend_piece *piece, uint32_t peer)
{
	struct lend_open **at = &piece->opens, *open;

	while ((open = *at)) {
		if ((peer != CAREFUL_ANY_PEER && open->peer != peer) || open->closed) {
			at = &open->next;
			continue;
		}
		engine_revoke_region(piece->server->instance, open->key);
		if (remove_open(piece, at))
			continue;
		open->closed = true;
		piece->server->closed++;
		at = &open->next;
	}
}

void lend_piece_end(struct lend_piece *piece)
{
	lend_piece_close(piece, CAREFUL_ANY_PEER);
	piece->state = LEND_ENDING;
	piece->server->waits_due_ns = 0;
	if (!piece->opens)
		free_memory(piece);
}

void lend_piece_retry(struct lend_server *server)
{
	for (struct lend_piece *p = server->pieces; p && server->closed; p = p->next) {
		struct lend_open **at = &p->opens;

		while (*at)
			if (!(*at)->closed || !remove_open(p, at))
				at = &(*at)->next;
		if (p->state == LEND_ENDING && !p->opens)
			free_memory(p);
	}
}

void lend_piece_free(struct lend_piece *piece)
{
	struct lend_server *server = piece->server;
	struct lend_piece **at = &server->pieces;

	while (*at != piece)
		at = &(*at)->next;
	*at = piece->next;
	server->used -= piece->mapped;
	server->pieces_count--;
	if (piece->memory)
		munmap(piece->memory, piece->mapped);
	free(piece);
}

/* Maps and locks memory. Returns 0 or -errno. */
static int fill(struct lend_piece *piece, const atomic_bool *stop)
{
	const int flags = MAP_PRIVATE | MAP_ANONYMOUS;
	void *memory = MAP_FAILED;

	piece->page_bytes = LEND_HUGE_BYTES;
	if (!(piece->mapped % LEND_HUGE_BYTES))
		memory = mmap(NULL, piece->mapped, PROT_READ | PROT_WRITE, flags | MAP_HUGETLB, -1,
			      0);
	if (memory == MAP_FAILED) {
		piece->page_bytes = LEND_PAGE_BYTES;
		memory = mmap(NULL, piece->mapped, PROT_READ | PROT_WRITE, flags, -1, 0);
		if (memory == MAP_FAILED)
			return -errno;
		madvise(memory, piece->mapped, MADV_HUGEPAGE);
	}
	piece->memory = memory;
	madvise(memory, piece->mapped, MADV_DONTDUMP); /* peers' data */
	for (uint64_t at = 0; at < piece->mapped; at += LEND_STEP_BYTES) {
		const uint64_t left = piece->mapped - at;

		if (atomic_load(stop))
			return -ECANCELED;
		if (mlock(piece->memory + at, left < LEND_STEP_BYTES ? left : LEND_STEP_BYTES))
			return errno == EAGAIN ? -ENOMEM : -errno;
	}
	return 0;
}

static void run(struct pool *pool, struct pool_job *job)
{
	struct lend_piece *piece = (struct lend_piece *)job;

	if (piece->state == LEND_FILLING)
		piece->status = fill(piece, &pool->stop);
	if (piece->memory && (piece->state == LEND_FREEING || piece->status)) {
		munmap(piece->memory, piece->mapped);
		piece->memory = NULL;
	}
}

/* Fills one piece of a peer at a time, so that a large piece does not delay other peers. */
const struct pool_rules lend_rules = {
	.workers_max = LEND_WORKERS,
	.group_max = 1,
	.run = run,
};
