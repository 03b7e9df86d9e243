/* SPDX-License-Identifier: BSD-2-Clause */
/* The block server: start, poll, stop, and the end of a peer. */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "files/private.h"

void block_watch(struct careful *instance, uint32_t peer, uint32_t state, void *user)
{
	struct block_server *server = user;
	struct block_peer *p = &server->peers[peer];
	struct block_handle *next;

	(void)instance;
	if (state != CAREFUL_PEER_FAILED && state != CAREFUL_PEER_NONE) {
		if (p->tenant != p->life) /* the bytes are a former peer's */
			p->small_bytes = 0;
		p->tenant = p->life;
		return;
	}
	p->life++;
	memset(p->ended, 0, sizeof(p->ended));
	block_drop_parked(server, p);
	block_drop_waiters(server, peer);
	for (struct block_handle *h = p->handles; h; h = next) {
		next = h->next;
		if (h->state == BLOCK_OPEN)
			block_handle_end(server, h, BLOCK_DISCARD);
	}
}

uint32_t block_poll(struct block_server *server)
{
	struct block_job *job, *unsent;
	uint32_t n = 0;

	if (server->ending.head)
		n += block_handle_retry(server);
	unsent = server->unsent.head;
	block_queue_init(&server->unsent);
	while ((job = unsent)) {
		unsent = job->next;
		block_answer(server, job);
	}
	while ((job = block_work_take(server))) {
		block_finish(server, job);
		n++;
	}
	for (uint32_t i = 0; server->waiters_count && i < server->peers_count; i++)
		block_wake(server, i);
	for (uint32_t i = 0; server->parked_share.free < BLOCK_PARKED && i < server->peers_count;
	     i++)
		block_unpark(server, i);
	return n;
}

void block_on_end(struct block_server *server, block_end_fn *fn, void *user)
{
	server->end_fn = fn;
	server->end_user = user;
}

uint32_t block_use(const struct block_server *server, struct careful_export_use *uses)
{
	const struct block_exports *exports = server->exports;
	uint8_t index[BLOCK_PLACES];

	memset(index, BLOCK_EXPORTS, sizeof(index));
	for (uint32_t i = 0; i < exports->count; i++) {
		index[exports->all[i].place] = (uint8_t)i;
		uses[i] = server->use[exports->all[i].place];
	}
	for (uint32_t i = 0; i < server->peers_count; i++) {
		for (const struct block_handle *h = server->peers[i].handles; h; h = h->next) {
			uint8_t at = index[h->place];

			if ((h->state == BLOCK_OPEN || h->state == BLOCK_ENDING) && !h->listing &&
			    at < exports->count)
				engine_moved(server->instance, h->key, &uses[at].read_bytes,
					     &uses[at].written_bytes);
		}
	}
	return exports->count;
}

int block_fd(struct block_server *server)
{
	return server->work.pool.event_fd;
}

int block_timeout_ms(struct block_server *server)
{
	return server->ending.head || server->unsent.head ? 1 : -1;
}

static int allocate(struct block_server *server, const struct block_export_options *exports,
		    uint32_t n, struct careful_error *error)
{
	struct careful_info info;
	int rc = block_exports_take(server, exports, n, error);

	if (rc)
		return rc;
	explain(error, rc, "block service: cannot start"); /* for all failures below */
	rc = careful_info(server->instance, &info);
	if (rc)
		return rc;
	server->peers_count = info.peers_max;
	server->listing_disk = BLOCK_LISTING_DISK;
	assert(BLOCK_JOBS / info.peers_max);
	server->peers = calloc(info.peers_max, sizeof(*server->peers));
	server->jobs = calloc(BLOCK_JOBS + 1, sizeof(*server->jobs));
	server->parked = calloc(BLOCK_PARKED, sizeof(*server->parked));
	if (!server->peers || !server->jobs || !server->parked)
		return -ENOMEM;
	for (uint32_t i = 0; i < info.peers_max; i++) {
		struct block_peer *peer = &server->peers[i];

		peer->parked_tail = &peer->parked;
		share_init(&peer->jobs, BLOCK_JOBS / info.peers_max, server->places + 1);
	}
	for (uint32_t i = 0; i <= BLOCK_JOBS; i++) {
		server->jobs[i].job.path = server->jobs[i].path;
		server->jobs[i].job.next = server->jobs_free;
		server->jobs_free = &server->jobs[i].job;
	}
	share_init(&server->parked_share, BLOCK_PARKED, info.peers_max);
	for (uint32_t i = 0; i < BLOCK_PARKED; i++) {
		server->parked[i].next = server->parked_free;
		server->parked_free = &server->parked[i];
	}
	return block_work_init(server);
}

static void deallocate(struct block_server *server)
{
	block_accounts_deinit(server);
	block_exports_deinit(server);
	free(server->peers);
	free(server->jobs);
	free(server->parked);
	free(server);
}

int block_serve(struct careful *instance, const struct block_export_options *exports, uint32_t n,
		struct block_server **server, struct careful_error *error)
{
	struct block_server *s;
	int rc;

	if (n > BLOCK_EXPORTS)
		return explain(error, -E2BIG, "%u exports: at most %u are possible", n,
			       BLOCK_EXPORTS);
	s = calloc(1, sizeof(*s));
	if (!s)
		return explain(error, -ENOMEM, "block service: out of memory");
	s->instance = instance;
	block_queue_init(&s->unsent);
	block_queue_init(&s->ending);
	rc = allocate(s, exports, n, error);
	if (rc) {
		deallocate(s);
		return rc;
	}
	for (uint16_t i = CAREFUL_BLOCK_OPEN; !rc && i <= BLOCK_LAST; i++)
		rc = careful_handle(instance, i, block_on_request, s);
	assert(!rc);
	*server = s;
	return 0;
}

int block_replace(struct block_server *server, const struct block_export_options *exports,
		  uint32_t n, struct careful_error *error)
{
	int rc = block_exports_take(server, exports, n, error);

	for (uint32_t i = 0; !rc && i < server->peers_count; i++) {
		struct block_peer *peer = &server->peers[i];
		uint32_t held[BLOCK_PLACES];

		memcpy(held, peer->jobs_at, server->places * sizeof(held[0]));
		held[server->places] = peer->jobs_at[BLOCK_EXPORTS];
		share_divide(&peer->jobs, held, server->places + 1);
	}
	return rc;
}

/* Ends a peer's handles and removes its temporary files: workers no longer use them. Skips places
 * in which a worker hangs, because this thread would hang there, too. */
static void end_handles(struct block_server *server, struct block_peer *peer)
{
	struct block_handle *next;

	for (struct block_handle *handle = peer->handles; handle; handle = next) {
		next = handle->next;
		if (block_work_hangs(server, handle->place))
			continue;
		handle->end_job.op = BLOCK_DISCARD;
		handle->end_job.handle = handle;
		block_run(server, &handle->end_job);
		block_handle_destroy(server, handle);
	}
}

uint32_t block_stop(struct block_server *server)
{
	uint32_t left = block_work_stop(server);

	for (uint32_t i = 0; i < server->peers_count; i++) {
		block_drop_waiters(server, i);
		end_handles(server, &server->peers[i]);
	}
	if (left) /* hanging workers still use the server's memory */
		return left;
	block_work_deinit(server);
	deallocate(server);
	return 0;
}
