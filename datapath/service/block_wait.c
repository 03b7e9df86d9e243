/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Requests that wait until their peer has room for another handle, in order. They hold no job, so
 * that what frees a handle can be asked for meanwhile. Scratches wait apart from answers: a
 * scratch's holder may wait for an answer, an answer's for nothing. So do other files, whose
 * holders wait for nothing here either. Calls block_request.c.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "service/block_private.h"

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

/* Whether others came before it. */
bool block_has_waiters(const struct block_server *server, const struct block_job *job)
{
	return !job->waited && may_wait(job) && server->peers[job->peer].waiters[queue_of(job)];
}

/* Whether the job, for which there is no room, waits; it is a copy that does. */
bool block_wait(struct block_server *server, const struct block_job *job)
{
	struct block_peer *peer = &server->peers[job->peer];
	struct block_waiter **at = &peer->waiters[queue_of(job)], *waiter;
	size_t path_bytes = strlen(job->path) + 1;

	if (!may_wait(job))
		return false;
	for (; *at; at = &(*at)->next) {
		if (!job->attempt || (*at)->job.attempt != job->attempt)
			continue;
		(*at)->job.to = job->to; /* its answer goes to who asked last */
		return true;
	}
	waiter = peer->waiters_count < BLOCK_WAITING ? malloc(sizeof(*waiter) + path_bytes) : NULL;
	if (!waiter)
		return false;
	waiter->next = NULL;
	waiter->job = *job;
	waiter->job.waited = true;
	memcpy(waiter->path, job->path, path_bytes);
	*at = waiter;
	peer->waiters_count++;
	server->waiters_count++;
	return true;
}

/* Reports whether the attempt that the job names waits for a job. */
bool block_is_parked(const struct block_server *server, const struct block_job *job)
{
	const struct block_parked *parked = server->peers[job->peer].parked;

	while (parked && block_attempt(parked->args) != job->attempt)
		parked = parked->next;
	return parked;
}

static struct block_waiter *take_first(struct block_server *server, struct block_peer *peer,
				       struct block_waiter **at)
{
	struct block_waiter *waiter = *at;

	*at = waiter->next;
	peer->waiters_count--;
	server->waiters_count--;
	return waiter;
}

/* Begins what has room by now. */
void block_wake(struct block_server *server, uint32_t index)
{
	struct block_peer *peer = &server->peers[index];

	for (int i = 0; i < BLOCK_WAITERS; i++) {
		while (peer->waiters[i] && !block_handle_room(server, &peer->waiters[i]->job) &&
		       block_start_again(server, peer->waiters[i]))
			free(take_first(server, peer, &peer->waiters[i]));
	}
}

/* Ends the wait of the attempt that the job names: its client closes it. Returns 0, also if it does
 * not wait, or -EAGAIN. */
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
		free(take_first(server, peer, at));
	}
	return 0;
}

/* The peer is gone: nobody hears an answer. */
void block_drop_waiters(struct block_server *server, uint32_t index)
{
	struct block_peer *peer = &server->peers[index];

	for (int i = 0; i < BLOCK_WAITERS; i++) {
		while (peer->waiters[i])
			free(take_first(server, peer, &peer->waiters[i]));
	}
}
