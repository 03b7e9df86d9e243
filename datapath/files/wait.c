/* SPDX-License-Identifier: BSD-2-Clause */
/* Queues of requests that wait. A parked request waits until its peer has a free job. A waiter
 * waits until its peer may have another handle. A waiter uses no job, so the peer can still send
 * the request that ends a handle. Three queues of waiters prevent deadlock: a client with a scratch
 * may wait for an answer, and a client with an answer or another file waits for nothing. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "files/private.h"

static int queue_of(const struct block_job *job)
{
	if (job->op != CAREFUL_BLOCK_OPEN)
		return 0;
	return job->flags & CAREFUL_BLOCK_SCRATCH ? 1 : 2;
}

static bool may_wait(const struct block_job *job)
{
	return job->op == CAREFUL_BLOCK_BATCH || job->flags & CAREFUL_BLOCK_WAIT;
}

bool block_has_waiters(const struct block_server *server, const struct block_job *job)
{
	return !job->waited && may_wait(job) && server->peers[job->peer].waiters[queue_of(job)];
}

int block_supersede(struct careful_reply_to *to, struct block_job *job)
{
	const struct careful_reply_to earlier = *to;

	*to = job->to;
	job->to = earlier;
	return -ECANCELED;
}

int block_wait(struct block_server *server, struct block_job *job)
{
	struct block_peer *peer = &server->peers[job->peer];
	struct block_waiter **at = &peer->waiters[queue_of(job)], *waiter;
	size_t path_bytes = strlen(job->path) + 1;

	if (!may_wait(job))
		return 0;
	for (; *at; at = &(*at)->next) {
		if (!job->attempt || (*at)->job.attempt != job->attempt)
			continue;
		return block_supersede(&(*at)->job.to, job);
	}
	waiter = peer->waiters_count < BLOCK_WAITING ? malloc(sizeof(*waiter) + path_bytes) : NULL;
	if (!waiter)
		return 0;
	waiter->next = NULL;
	waiter->job = *job;
	waiter->job.waited = true;
	memcpy(waiter->path, job->path, path_bytes);
	*at = waiter;
	peer->waiters_count++;
	server->waiters_count++;
	return -EINPROGRESS;
}

bool block_is_parked(const struct block_server *server, const struct block_job *job)
{
	const struct block_parked *parked = server->peers[job->peer].parked;

	while (parked && block_attempt(parked->args) != job->attempt)
		parked = parked->next;
	return parked;
}

void block_waiter_end(struct block_server *server, struct block_peer *peer,
		      struct block_waiter **at)
{
	struct block_waiter *waiter = *at;

	*at = waiter->next;
	peer->waiters_count--;
	server->waiters_count--;
	free(waiter);
}

int block_stop_waiting(struct block_server *server, const struct block_job *job)
{
	struct block_peer *peer = &server->peers[job->peer];

	for (int i = 0; i < BLOCK_WAITERS; i++) {
		struct block_waiter **at = &peer->waiters[i], *waiter;
		int rc;

		while ((waiter = *at) && waiter->job.attempt != job->attempt)
			at = &waiter->next;
		if (!waiter)
			continue;
		rc = careful_reply_late(server->instance, &waiter->job.to, -ECANCELED, NULL, NULL,
					0);
		if (rc == -EAGAIN || rc == -ENOBUFS)
			return -EAGAIN;
		block_waiter_end(server, peer, at);
	}
	return 0;
}

void block_drop_waiters(struct block_server *server, uint32_t index)
{
	struct block_peer *peer = &server->peers[index];

	for (int i = 0; i < BLOCK_WAITERS; i++) {
		while (peer->waiters[i])
			block_waiter_end(server, peer, &peer->waiters[i]);
	}
}

void block_park(struct block_server *server, const struct careful_message *message, uint8_t place)
{
	struct block_peer *peer = &server->peers[message->peer];
	bool may_park = share_may(&server->parked_share, peer->parked_held);
	struct careful_kept *kept = may_park ? careful_keep(message) : NULL;
	struct block_parked *parked = server->parked_free;

	if (!kept) {
		careful_reply(message, -EAGAIN, NULL, NULL, 0);
		return;
	}
	server->parked_free = parked->next;
	share_take(&server->parked_share, &peer->parked_held);
	parked->next = NULL;
	parked->place = place;
	parked->kept = kept;
	parked->handler = message->handler;
	parked->bytes = message->bytes;
	memcpy(parked->args, message->args, sizeof(parked->args));
	careful_reply_name(message, &parked->to);
	*peer->parked_tail = parked;
	peer->parked_tail = &parked->next;
	peer->parked_at[place]++;
}

void block_parked_end(struct block_server *server, struct block_peer *peer,
		      struct block_parked **at)
{
	struct block_parked *parked = *at;

	*at = parked->next;
	if (!*at)
		peer->parked_tail = at;
	peer->parked_at[parked->place]--;
	careful_release(server->instance, parked->kept);
	parked->next = server->parked_free;
	server->parked_free = parked;
	share_put(&server->parked_share, &peer->parked_held);
}

void block_drop_parked(struct block_server *server, struct block_peer *peer)
{
	while (peer->parked) {
		careful_reply_late(server->instance, &peer->parked->to, -ECONNRESET, NULL, NULL, 0);
		block_parked_end(server, peer, &peer->parked);
	}
}
