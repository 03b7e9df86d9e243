/* SPDX-License-Identifier: BSD-2-Clause */
/* Dispatches the local socket's questions; answers gets, stores, pings and status itself. */
#include <errno.h>
#include <string.h>

#include <careful/wire.h>

#include "base/clock.h"
#include "daemon/ipc/ipc_program.h"
#include "engine/sharing.h"
#include "files/block.h"
#include "lend/lend.h"

static void bulk_done(const struct careful_result *result, void *user)
{
	struct ipc_op *op = user;
	struct careful_ipc head = { .bytes = result->bytes, .digest = result->digest };

	ipc_count(op->client, op->op, op->began_ns, result->status);
	memcpy(head.args, result->args, sizeof(head.args));
	ipc_file_unuse(op->client, op->file);
	ipc_answer(op, result->status, &head, NULL, 0);
}

static int get_or_store(struct ipc_client *client, struct ipc_op *op, struct ipc_question *q)
{
	const struct careful_ipc *h = &q->head;
	struct careful *instance = client->ipc->instance;
	struct careful_span span = { .offset = h->file_off };
	int rc;

	op->peer = h->peer;
	op->file = h->file;
	op->began_ns = clock_now_ns();
	span.fd = ipc_file_use(client, h->file);
	if (span.fd < 0)
		return span.fd;
	if (h->bytes > UINT32_MAX || h->file_off > INT64_MAX || h->handler > CAREFUL_HANDLERS)
		rc = -EINVAL;
	else if (h->op == CAREFUL_IPC_GET)
		rc = careful_get(instance, q->index, h->region, h->region_off, &span,
				 (uint32_t)h->bytes, h->flags, bulk_done, op);
	else
		rc = careful_store(instance, q->index, h->region, h->region_off, &span,
				   (uint32_t)h->bytes, (uint16_t)h->handler, h->args, h->flags,
				   bulk_done, op);
	if (rc)
		ipc_file_unuse(client, h->file);
	client->served |= !rc;
	return rc;
}

static void ping_done(const struct careful_ping_result *result, void *user)
{
	ipc_answer(user, result->status, NULL, result, sizeof(*result));
}

static int ping(struct ipc_client *client, struct ipc_op *op, struct ipc_question *q)
{
	const struct careful_ping_ask ask = {
		.stage = q->head.args[0],
		.ttl = q->head.args[1],
		.timeout_ms = q->head.args[2],
		.bytes = q->head.bytes > UINT32_MAX ? UINT32_MAX : (uint32_t)q->head.bytes,
	};

	if (ask.timeout_ms > IPC_PING_MS)
		return -EINVAL;
	return careful_ping(client->ipc->instance, q->index, &ask, ping_done, op);
}

static int measure_burst(struct ipc_client *client, struct ipc_op *op, struct ipc_question *q)
{
	uint64_t *next_ns = &client->ipc->bursts_ns[q->index];
	int rc;

	/* A burst measurement begins a new epoch, and delays the data of all clients. */
	if (client->uid && clock_now_ns() < *next_ns)
		return -EALREADY;
	rc = careful_peer_measure(client->ipc->instance, q->index);
	if (rc)
		return rc;
	*next_ns = clock_in_ms(IPC_BURST_AGAIN_MS);
	ipc_answer(op, 0, NULL, NULL, 0);
	return 0;
}

static int answer_info(struct ipc_client *client, struct ipc_op *op, struct ipc_question *q)
{
	struct careful_info info;
	int rc = careful_info(client->ipc->instance, &info);

	(void)q;
	if (!rc)
		ipc_answer(op, 0, NULL, &info, sizeof(info));
	return rc;
}

static int answer_peer_info(struct ipc_client *client, struct ipc_op *op, struct ipc_question *q)
{
	struct careful *instance = client->ipc->instance;
	int index = ipc_peer_index(client->ipc, q->head.peer);
	struct careful_ipc_peer found = { 0 };
	int rc = index < 0 ? -ENOENT : careful_peer_info(instance, (uint32_t)index, &found.info);

	if (rc)
		return rc;
	careful_peer_whereabouts(instance, (uint32_t)index, &found.where);
	found.payload_bytes = careful_payload_bytes(instance, (uint32_t)index);
	if (found.payload_bytes > CAREFUL_RING_PAYLOAD_BYTES)
		found.payload_bytes = CAREFUL_RING_PAYLOAD_BYTES;
	ipc_answer(op, 0, NULL, &found, sizeof(found));
	return 0;
}

static int answer_peers(struct ipc_client *client, struct ipc_op *op, struct ipc_question *q)
{
	static struct careful_peer_info infos[CAREFUL_PEERS_MAX];
	uint32_t n = 0;

	(void)q;
	_Static_assert(sizeof(infos) <= CAREFUL_IPC_PAYLOAD_BYTES, "all peers fit one answer");
	for (uint32_t i = 0; i < client->ipc->peers_max; i++)
		n += careful_peer_info(client->ipc->instance, i, &infos[n]) == 0;
	ipc_answer(op, 0, NULL, infos, n * (uint32_t)sizeof(infos[0]));
	return 0;
}

enum { LENDS_MAX = 256 };

struct use_answer {
	struct careful_ipc_use use;
	struct careful_export_use exports[BLOCK_EXPORTS];
	struct careful_lend_use lends[LENDS_MAX];
};

static int answer_use(struct ipc_client *client, struct ipc_op *op, struct ipc_question *q)
{
	static struct use_answer all;
	uint32_t n = client->ipc->block ? block_use(client->ipc->block, all.exports) : 0;
	struct careful_lend_use *lends = (struct careful_lend_use *)(all.exports + n);

	(void)q;
	all.use = client->ipc->use;
	all.use.exports_count = n;
	all.use.lends_count = lend_use(client->ipc->lend, lends, LENDS_MAX);
	ipc_answer(op, 0, NULL, &all,
		   (uint32_t)((uint8_t *)(lends + all.use.lends_count) - (uint8_t *)&all));
	return 0;
}

static int reload(struct ipc_client *client, struct ipc_op *op, struct ipc_question *q)
{
	struct ipc *ipc = client->ipc;
	struct careful_error error = { 0 };

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

static int peer_begin(struct ipc_client *client, struct ipc_op *op, struct ipc_question *q)
{
	int rc = ipc_peer_begin(client->ipc, op, q);

	if (rc == -EAGAIN)
		return rc;
	if (rc >= 0 && client->program)
		ipc_program_wants(client->program, (uint32_t)rc);
	ipc_peer_answer(client->ipc, op, rc < 0 ? rc : 0);
	return 0;
}

/* @answer_bytes: most bytes of the answer's payload; REQUEST: see ipc_request_answer_max() */
static const struct {
	int (*ask)(struct ipc_client *client, struct ipc_op *op, struct ipc_question *q);
	enum { FROM_ANY, FROM_PROGRAM, TO_PEER } needs;
	uint32_t answer_bytes;
} kinds[] = {
	[CAREFUL_IPC_INFO] = { answer_info, FROM_ANY, sizeof(struct careful_info) },
	[CAREFUL_IPC_PEERS] = { answer_peers, FROM_ANY,
				CAREFUL_PEERS_MAX * sizeof(struct careful_peer_info) },
	[CAREFUL_IPC_CONNECT] = { ipc_connect, FROM_ANY, 0 },
	[CAREFUL_IPC_FILE_ADD] = { ipc_file_add, FROM_ANY, 0 },
	[CAREFUL_IPC_FILE_REMOVE] = { ipc_file_remove, FROM_ANY, 0 },
	[CAREFUL_IPC_REQUEST] = { ipc_request, FROM_ANY, 0 },
	[CAREFUL_IPC_GET] = { get_or_store, TO_PEER, 0 },
	[CAREFUL_IPC_STORE] = { get_or_store, TO_PEER, 0 },
	[CAREFUL_IPC_MEASURE] = { ipc_measure, TO_PEER,
				  CAREFUL_PROBE_FRAMES * sizeof(struct careful_ipc_probe) },
	[CAREFUL_IPC_PING] = { ping, TO_PEER, sizeof(struct careful_ping_result) },
	[CAREFUL_IPC_BURST] = { measure_burst, TO_PEER, 0 },
	[CAREFUL_IPC_SIGNATURE] = { ipc_signature, FROM_ANY, CAREFUL_IPC_PAYLOAD_BYTES },
	[CAREFUL_IPC_USE] = { answer_use, FROM_ANY, sizeof(struct use_answer) },
	[CAREFUL_IPC_ATTACH] = { ipc_program_attach, FROM_ANY, 0 },
	[CAREFUL_IPC_PEER_BEGIN] = { peer_begin, FROM_ANY, 0 },
	[CAREFUL_IPC_PEER_LEAVE] = { ipc_program_ask, FROM_PROGRAM, 0 },
	[CAREFUL_IPC_PEER_INFO] = { answer_peer_info, FROM_ANY, sizeof(struct careful_ipc_peer) },
	[CAREFUL_IPC_HANDLE] = { ipc_program_ask, FROM_PROGRAM, 0 },
	[CAREFUL_IPC_REGION_ADD] = { ipc_program_ask, FROM_PROGRAM, 0 },
	[CAREFUL_IPC_REGION_REMOVE] = { ipc_program_ask, FROM_PROGRAM, 0 },
	[CAREFUL_IPC_PROGRAMS] = { ipc_programs, FROM_ANY,
				   IPC_CLIENTS * sizeof(struct careful_program_info) },
	[CAREFUL_IPC_BELL] = { ipc_program_ask, FROM_PROGRAM, 0 },
	[CAREFUL_IPC_GETS] = { ipc_gets, TO_PEER, 0 },
	[CAREFUL_IPC_RELOAD] = { reload, FROM_ANY, sizeof(struct careful_error) },
	[CAREFUL_IPC_QUIET] = { ipc_program_ask, FROM_PROGRAM, 0 },
};

bool ipc_shares_room(uint32_t op)
{
	return op == CAREFUL_IPC_REQUEST || op == CAREFUL_IPC_GET || op == CAREFUL_IPC_STORE;
}

int ipc_ask(struct ipc_client *client, struct ipc_question *q)
{
	const uint32_t kind = q->head.op < sizeof(kinds) / sizeof(kinds[0]) ? q->head.op : 0;
	const uint32_t bytes = kind == CAREFUL_IPC_REQUEST ?
				       ipc_request_answer_max(client->ipc, &q->head) :
				       kinds[kind].answer_bytes;
	struct ipc_op *op = ipc_held(client->ipc, q) ? NULL : ipc_op_take(client, &q->head, bytes);
	int rc = 0;

	client->waits = false;
	if (!op)
		return -EAGAIN;
	if (!kinds[kind].ask)
		rc = -EOPNOTSUPP;
	else if (kinds[kind].needs == TO_PEER)
		rc = ipc_peer_index(client->ipc, q->head.peer);
	else if (kinds[kind].needs == FROM_PROGRAM && !client->program)
		rc = -ENOTCONN;
	q->index = (uint32_t)rc;
	if (rc >= 0)
		rc = kinds[kind].ask(client, op, q);
	client->waits = rc == -EAGAIN && ipc_shares_room(kind);
	if (rc == -EAGAIN)
		ipc_op_free(op);
	else if (rc)
		ipc_answer(op, rc, NULL, NULL, 0);
	return rc == -EAGAIN ? rc : 0;
}
