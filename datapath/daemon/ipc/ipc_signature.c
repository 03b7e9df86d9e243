/* SPDX-License-Identifier: BSD-2-Clause */
/* SIGNATURE: issues a client's bursts of requests as fast as a program that owns the queue could.
 * The main loop does nothing else meanwhile; CAREFUL_SIGNATURE_MS bounds the time. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <careful/wire.h>

#include "base/clock.h"
#include "daemon/ipc/ipc_private.h"
#include "measure/probe.h"
#include "measure/signature.h"

/* The state of a client's bursts. It stays after the client has gone, until the last reply. */
struct ipc_issuer {
	struct signature_layer layer;
	struct careful *instance;
	struct careful_signature signature;
	uint32_t region;
	uint32_t indices[CAREFUL_SIGNATURE_PEERS]; /* slots of the peers */
	uint32_t turn; /* index in indices of the next peer */
	bool abandoned; /* the client has gone, or a burst has failed */
};

static void issuer_done(const struct careful_result *result, void *user)
{
	struct ipc_issuer *issuer = user;
	struct signature_layer *layer = &issuer->layer;

	layer->outstanding--;
	if (result->status && !layer->status)
		layer->status = result->status;
	layer->arrived_ns = (uint64_t)result->args[0] << 32 | result->args[1];
	if (issuer->abandoned && !layer->outstanding)
		free(issuer);
}

static int issuer_issue(struct signature_layer *layer)
{
	struct ipc_issuer *issuer = (struct ipc_issuer *)layer;
	const struct careful_signature *s = &issuer->signature;
	const struct careful_span local = { .base = scratch_memory(), .fd = -1 };
	uint32_t peer = issuer->indices[issuer->turn];
	int rc;

	switch (s->kind) {
	case CAREFUL_IPC_REQUEST:
		rc = careful_request(issuer->instance, peer, CAREFUL_PROBE, NULL, local.base,
				     s->bytes, issuer_done, issuer);
		break;
	case CAREFUL_IPC_STORE:
		rc = careful_store(issuer->instance, peer, issuer->region, 0, &local, s->bytes,
				   CAREFUL_HANDLERS, NULL, CAREFUL_NO_DIGEST, issuer_done, issuer);
		break;
	default:
		rc = careful_get(issuer->instance, peer, issuer->region, 0, &local, s->bytes,
				 CAREFUL_NO_DIGEST, issuer_done, issuer);
	}
	if (!rc)
		issuer->turn = (issuer->turn + 1) % s->peers_count;
	return rc;
}

static int issuer_poll(struct signature_layer *layer)
{
	return careful_poll(((struct ipc_issuer *)layer)->instance);
}

static struct ipc_issuer *issuer_of(struct ipc_client *client)
{
	if (!client->issuer) {
		client->issuer = calloc(1, sizeof(*client->issuer));
		if (!client->issuer)
			return NULL;
		client->issuer->instance = client->ipc->instance;
		client->issuer->layer = (struct signature_layer){
			.issue = issuer_issue,
			.poll = issuer_poll,
			.now_ns = clock_now_ns,
		};
	}
	return client->issuer;
}

void ipc_issuer_leave(struct ipc_client *client)
{
	struct ipc_issuer *issuer = client->issuer;

	client->issuer = NULL;
	if (!issuer)
		return;
	issuer->abandoned = true;
	if (!issuer->layer.outstanding)
		free(issuer);
}

static int prepare(struct ipc_client *client, const struct ipc_question *q,
		   struct ipc_issuer *issuer)
{
	struct careful_signature *s = &issuer->signature;

	if (q->head.payload_bytes != sizeof(*s))
		return -EINVAL;
	memcpy(s, q->payload, sizeof(*s));
	if (signature_check(s) || !s->peers_count || s->peers_count > CAREFUL_SIGNATURE_PEERS ||
	    s->bytes > SCRATCH_BYTES ||
	    (s->kind != CAREFUL_IPC_REQUEST && s->kind != CAREFUL_IPC_STORE &&
	     s->kind != CAREFUL_IPC_GET))
		return -EINVAL;
	for (uint32_t i = 0; i < s->peers_count; i++) {
		int index = ipc_peer_index(client->ipc, s->peers[i]);

		if (index < 0)
			return index;
		issuer->indices[i] = (uint32_t)index;
	}
	issuer->region = q->head.region;
	issuer->turn = 0;
	issuer->layer.capacity = s->capacity;
	return 0;
}

int ipc_signature(struct ipc_client *client, struct ipc_op *op, struct ipc_question *q)
{
	static uint64_t answers[CAREFUL_IPC_PAYLOAD_BYTES / sizeof(uint64_t)];
	struct ipc_issuer *issuer;
	int rc;

	if (client->uid)
		return -EPERM; /* no other client is served meanwhile */
	if (client->ipc->has_signed)
		return -EAGAIN;
	client->ipc->has_signed = true;
	issuer = issuer_of(client);
	rc = issuer ? prepare(client, q, issuer) : -ENOMEM;
	if (!rc)
		rc = signature_run(&issuer->layer, &issuer->signature, answers, sizeof(answers));
	if (rc < 0) {
		ipc_issuer_leave(client);
		return rc == -EAGAIN ? -EBUSY : rc; /* -EAGAIN would repeat all bursts */
	}
	ipc_answer(op, 0, NULL, answers, (uint32_t)rc * signature_burst_bytes(&issuer->signature));
	return 0;
}
