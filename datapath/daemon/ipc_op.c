/* SPDX-License-Identifier: BSD-2-Clause */
/* Dispatches the local socket's questions, and answers short ones: gets, stores, pings and
 * status. */
#include <errno.h>
#include <string.h>

#include <careful/wire.h>

#include "daemon/clock.h"
#include "daemon/ipc_program.h"
#include "engine/also.h"
#include "files/block.h"

static void bulk_done(const struct careful_result *result, void *user)
{
	struct ipc_op *op = user;
	struct careful_ipc head = { .bytes = result->bytes, .digest = result->digest };

	ipc_count(op->client, op->op, op->began_ns, result->status);
	memcpy(head.args, result->args, sizeof(head.args));
	ipc_file_unuse(op->client, op->file);
	ipc_answer(op, result->status, &head, NULL, 0);
}

static int bulk(struct ipc_client *client, struct ipc_op *op, const struct ipc_question *q)
{
	const struct careful_ipc *h = &q->head;
	struct careful *instance = client->ipc->instance;
	int rc, index = ipc_peer_index(client->ipc, h->peer);
	struct careful_span span = { .offset = h->file_off };

	if (index < 0)
		return index;
	op->peer = h->peer;
	op->file = h->file;
	op->began_ns = clock_now_ns();
	span.fd = ipc_file_use(client, h->file);
	if (span.fd < 0)
		return span.fd;
	if (h->bytes > UINT32_MAX || h->file_off > INT64_MAX || h->handler > CAREFUL_HANDLERS)
		rc = -EINVAL;
	else if (h->op == CAREFUL_IPC_GET)
		rc = careful_get(instance, (uint32_t)index, h->region, h->region_off, &span,
				 (uint32_t)h->bytes, h->flags, bulk_done, op);
	else
		rc = careful_store(instance, (uint32_t)index, h->region, h->region_off, &span,
				   (uint32_t)h->bytes, (uint16_t)h->handler, h->args, h->flags,
				   bulk_done, op);
	if (rc)
		ipc_file_unuse(client, h->file);
	return rc;
}

static void ping_done(const struct careful_ping_result *result, void *user)
{
	ipc_answer(user, result->status, NULL, result, sizeof(*result));
}

static int ping(struct ipc_client *client, struct ipc_op *op, const struct ipc_question *q)
{
	int index = ipc_peer_index(client->ipc, q->head.peer);
	const struct careful_ping_ask ask = {
		.stage = q->head.args[0],
		.ttl = q->head.args[1],
		.timeout_ms = q->head.args[2],
		.bytes = q->head.bytes > UINT32_MAX ? UINT32_MAX : (uint32_t)q->head.bytes,
	};

	if (index < 0)
		return index;
	if (ask.timeout_ms > IPC_PING_MS)
		return -EINVAL;
	return careful_ping(client->ipc->instance, (uint32_t)index, &ask, ping_done, op);
}

static int burst(struct ipc_client *client, struct ipc_op *op, const struct ipc_question *q)
{
	int index = ipc_peer_index(client->ipc, q->head.peer), rc;

	if (index < 0)
		return index;
	/* Trains begin an epoch, and the data of all clients waits for their end. */
	if (client->uid && clock_now_ns() < client->ipc->bursts_ns[index])
		return -EALREADY;
	rc = careful_peer_measure(client->ipc->instance, (uint32_t)index);
	if (rc)
		return rc;
	client->ipc->bursts_ns[index] = clock_in_ms(IPC_BURST_AGAIN_MS);
	ipc_answer(op, 0, NULL, NULL, 0);
	return 0;
}

static void answer_info(struct ipc_client *client, struct ipc_op *op)
{
	struct careful_info info;
	int rc = careful_info(client->ipc->instance, &info);

	ipc_answer(op, rc, NULL, &info, rc ? 0 : sizeof(info));
}

static void answer_peers(struct ipc_client *client, struct ipc_op *op)
{
	static struct careful_peer_info infos[CAREFUL_PEERS_MAX];
	uint32_t n = 0;

	_Static_assert(sizeof(infos) <= CAREFUL_IPC_PAYLOAD_BYTES, "all peers fit one answer");
	for (uint32_t i = 0; i < client->ipc->peers_max; i++)
		n += careful_peer_info(client->ipc->instance, i, &infos[n]) == 0;
	ipc_answer(op, 0, NULL, infos, n * (uint32_t)sizeof(infos[0]));
}

struct use_answer {
	struct careful_ipc_use use;
	struct careful_export_use exports[BLOCK_EXPORTS];
};

static void answer_use(struct ipc_client *client, struct ipc_op *op)
{
	struct use_answer all = { .use = client->ipc->use };
	uint32_t n = client->ipc->block ? block_use(client->ipc->block, all.exports) : 0;

	all.use.exports_count = n;
	ipc_answer(op, 0, NULL, &all,
		   (uint32_t)(sizeof(all.use) + n * sizeof(struct careful_export_use)));
}

static int reload(struct ipc_client *client, struct ipc_op *op, const struct ipc_question *q)
{
	struct ipc *ipc = client->ipc;
	struct careful_error error = { "" };

	if (client->uid)
		return -EPERM;
	if (!ipc->reload)
		return -EOPNOTSUPP;
	if (ipc->reload(q->payload, q->head.payload_bytes, &error, ipc->reload_user))
		ipc_answer(op, 0, NULL, error.text, (uint32_t)strlen(error.text));
	else
		ipc_answer(op, 0, NULL, NULL, 0);
	return 0;
}

/* Returns the most bytes that an answer's payload may have. */
static uint32_t reserve_of(struct ipc_client *client, const struct careful_ipc *head)
{
	switch (head->op) {
	case CAREFUL_IPC_INFO:
		return sizeof(struct careful_info);
	case CAREFUL_IPC_USE:
		return sizeof(struct use_answer);
	case CAREFUL_IPC_PING:
		return sizeof(struct careful_ping_result);
	case CAREFUL_IPC_PEERS:
		return client->ipc->peers_max * (uint32_t)sizeof(struct careful_peer_info);
	case CAREFUL_IPC_MEASURE:
		return CAREFUL_PROBE_FRAMES * (uint32_t)sizeof(struct careful_ipc_probe);
	case CAREFUL_IPC_REQUEST:
		return ipc_request_reserve(client->ipc, head);
	case CAREFUL_IPC_SIGNATURE:
		return CAREFUL_IPC_PAYLOAD_BYTES;
	case CAREFUL_IPC_RELOAD:
		return sizeof(struct careful_error);
	case CAREFUL_IPC_PEER_INFO:
		return sizeof(struct careful_ipc_peer);
	case CAREFUL_IPC_PROGRAMS:
		return ipc_programs_bytes(client->ipc);
	default:
		return 0;
	}
}

static int peer_begin(struct ipc_client *client, struct ipc_op *op, const struct ipc_question *q)
{
	int rc = ipc_peer_begin(client->ipc, op, q);

	if (rc == -EAGAIN)
		return rc;
	if (rc >= 0 && client->program)
		ipc_program_wants(client->program, (uint32_t)rc);
	ipc_peer_answer(client->ipc, op, rc < 0 ? rc : 0);
	return 0;
}

int ipc_ask(struct ipc_client *client, struct ipc_question *q)
{
	struct ipc_op *op = NULL;
	int rc = 0;

	if (!ipc_held(client->ipc, q))
		op = ipc_op_take(client, &q->head, reserve_of(client, &q->head));
	if (!op)
		return -EAGAIN;
	switch (q->head.op) {
	case CAREFUL_IPC_INFO:
		answer_info(client, op);
		break;
	case CAREFUL_IPC_PEERS:
		answer_peers(client, op);
		break;
	case CAREFUL_IPC_USE:
		answer_use(client, op);
		break;
	case CAREFUL_IPC_CONNECT:
		rc = ipc_connect(client->ipc, op, q);
		break;
	case CAREFUL_IPC_FILE_ADD:
		ipc_file_add(client, op, q);
		break;
	case CAREFUL_IPC_FILE_REMOVE:
		ipc_file_remove(client, op, q->head.file);
		break;
	case CAREFUL_IPC_REQUEST:
		rc = ipc_request(client, op, q);
		break;
	case CAREFUL_IPC_GET:
	case CAREFUL_IPC_STORE:
		rc = bulk(client, op, q);
		break;
	case CAREFUL_IPC_GETS:
		rc = ipc_gets(client, op, q);
		break;
	case CAREFUL_IPC_PING:
		rc = ping(client, op, q);
		break;
	case CAREFUL_IPC_BURST:
		rc = burst(client, op, q);
		break;
	case CAREFUL_IPC_SIGNATURE:
		rc = ipc_signature(client, op, q);
		break;
	case CAREFUL_IPC_RELOAD:
		rc = reload(client, op, q);
		break;
	case CAREFUL_IPC_PEER_BEGIN:
		rc = peer_begin(client, op, q);
		break;
	case CAREFUL_IPC_BELL:
	case CAREFUL_IPC_ATTACH:
	case CAREFUL_IPC_PEER_LEAVE:
	case CAREFUL_IPC_PEER_INFO:
	case CAREFUL_IPC_HANDLE:
	case CAREFUL_IPC_REGION_ADD:
	case CAREFUL_IPC_REGION_REMOVE:
	case CAREFUL_IPC_QUIET:
	case CAREFUL_IPC_PROGRAMS:
		rc = ipc_program_ask(client, op, q);
		break;
	case CAREFUL_IPC_MEASURE:
		rc = ipc_measure(client->ipc, op, &q->head);
		break;
	default:
		rc = -EOPNOTSUPP;
	}
	if (rc == -EAGAIN) {
		ipc_op_free(op);
		return rc;
	}
	if (rc)
		ipc_answer(op, rc, NULL, NULL, 0);
	return 0;
}
