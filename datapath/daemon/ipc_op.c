/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the local socket's questions do: files, requests, gets and stores towards peers. GETS,
 * CONNECT, programs, SIGNATURE and MEASURE are ipc_gets.c's, ipc_peer.c's, ipc_program.c's,
 * ipc_signature.c's and ipc_measure.c's, answers ipc_answer.c's, closing ipc_close.c's, the account
 * of handles ipc_handles.c's: it calls all eight, and service's block.c.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <careful/wire.h>

#include "daemon/clock.h"
#include "daemon/ipc_private.h"
#include "service/also.h"
#include "service/block.h"

/* Files whose blocks can be named by offset. Others could hold the ring's workers
 * for ever; O_APPEND would put all that is written at the end. */
int ipc_file_check(int fd)
{
	struct statx st;
	int flags = fcntl(fd, F_GETFL);

	/* What never changes: whoever serves the file need not be asked, and may hang. */
	if (flags < 0 || statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE, &st))
		return -errno;
	if (flags & (O_APPEND | O_PATH))
		return -EINVAL;
	if (S_ISREG(st.stx_mode) || S_ISBLK(st.stx_mode))
		return 0;
	/* /dev/null, /dev/zero */
	if (S_ISCHR(st.stx_mode) && st.stx_rdev_major == 1 &&
	    (st.stx_rdev_minor == 3 || st.stx_rdev_minor == 5))
		return 0;
	return -ENOTSUP;
}

static void file_add(struct ipc_client *client, struct ipc_op *op, struct ipc_question *q)
{
	struct careful_ipc head = { 0 };
	int rc = q->fd < 0 ? -EBADF : ipc_file_check(q->fd);
	uint32_t i = 0;

	while (!rc && i < CAREFUL_IPC_FILES && client->files[i].fd >= 0)
		i++;
	if (!rc && i == CAREFUL_IPC_FILES)
		rc = -EMFILE;
	if (!rc) {
		client->files[i].fd = q->fd;
		q->fd = -1;
		engine_keep_file(client->ipc->instance, client->files[i].fd);
	}
	head.file = i;
	ipc_answer(op, rc, &head, NULL, 0);
}

static struct ipc_file *find_file(struct ipc_client *client, uint32_t index)
{
	struct ipc_file *file = index < CAREFUL_IPC_FILES ? &client->files[index] : NULL;

	return file && file->fd >= 0 && !file->remover ? file : NULL;
}

/* The descriptor of a file, which stays until ipc_file_unuse(); or -EBADF. */
int ipc_file_use(struct ipc_client *client, uint32_t index)
{
	struct ipc_file *file = find_file(client, index);

	if (!file)
		return -EBADF;
	file->users++;
	return file->fd;
}

static void close_file(struct ipc_client *client, struct ipc_file *file)
{
	struct ipc_op *remover = file->remover;

	if (client->ipc->instance)
		engine_lose_file(client->ipc->instance, file->fd);
	ipc_close(client, file->fd, remover);
	file->fd = -1;
	file->remover = NULL;
}

static void file_remove(struct ipc_client *client, struct ipc_op *op, uint32_t index)
{
	struct ipc_file *file = find_file(client, index);

	if (!file) {
		ipc_answer(op, -EBADF, NULL, NULL, 0);
		return;
	}
	file->remover = op;
	if (!file->users)
		close_file(client, file);
}

void ipc_file_unuse(struct ipc_client *client, uint32_t index)
{
	struct ipc_file *file = &client->files[index];

	assert(file->users);
	if (!--file->users && file->remover)
		close_file(client, file);
}

/* Of a client that has gone, and its operations too. */
void ipc_close_files(struct ipc_client *client)
{
	for (uint32_t i = 0; i < CAREFUL_IPC_FILES; i++) {
		assert(!client->files[i].users);
		if (client->files[i].fd >= 0)
			close_file(client, &client->files[i]);
	}
}

/* The end of an operation whose time counts: a GET, STORE or REQUEST. */
void ipc_count(struct ipc_client *client, uint32_t op, uint64_t began_ns, int status)
{
	struct careful_ipc_use *use = &client->ipc->use;
	struct careful_latency *kind = op == CAREFUL_IPC_GET   ? &use->get :
				       op == CAREFUL_IPC_STORE ? &use->store :
								 &use->request;
	uint64_t took_ns = clock_now_ns() - began_ns;
	uint32_t i = 0;

	if (status) {
		kind->failed++;
		return;
	}
	while (i < CAREFUL_IPC_BUCKETS - 1 && took_ns >= (uint64_t)CAREFUL_IPC_BUCKET_NS << i)
		i++;
	kind->buckets[i]++;
	kind->sum_ns += took_ns;
}

/* Reports whether the answer to a request has attributes at most. Little is reserved for these, so
 * that requests which wait leave room for those that end handles. */
static bool is_answer_short(uint32_t handler)
{
	switch (handler) {
	case CAREFUL_BLOCK_OPEN:
	case CAREFUL_BLOCK_LIST:
	case CAREFUL_BLOCK_BATCH:
	case CAREFUL_BLOCK_COMMIT:
	case CAREFUL_BLOCK_CLOSE:
		return true;
	default:
		return false;
	}
}

static void request_done(const struct careful_result *result, void *user)
{
	struct ipc_op *op = user;
	struct careful_ipc head = { .bytes = result->bytes };
	uint32_t bytes = result->bytes;

	ipc_count(op->client, op->op, op->began_ns, result->status);
	ipc_track_handles(op, result->status, result->args[0]);
	memcpy(head.args, result->args, sizeof(head.args));
	if (bytes > CAREFUL_IPC_PAYLOAD_BYTES)
		bytes = CAREFUL_IPC_PAYLOAD_BYTES;
	if (is_answer_short(op->handler) && bytes > op->reserve)
		bytes = op->reserve;
	ipc_answer(op, result->status, &head, result->payload, result->payload ? bytes : 0);
}

static void bulk_done(const struct careful_result *result, void *user)
{
	struct ipc_op *op = user;
	struct careful_ipc head = { .bytes = result->bytes, .digest = result->digest };

	ipc_count(op->client, op->op, op->began_ns, result->status);
	memcpy(head.args, result->args, sizeof(head.args));
	ipc_file_unuse(op->client, op->file);
	ipc_answer(op, result->status, &head, NULL, 0);
}

/* 0: it is under way; -errno: it is not, done() will not be called. */
int ipc_request(struct ipc_client *client, struct ipc_op *op, const struct ipc_question *q)
{
	struct careful *instance = client->ipc->instance;
	int index = ipc_peer_index(client->ipc, q->head.peer);

	if (index < 0)
		return index;
	if (q->head.handler >= CAREFUL_HANDLERS)
		return -EINVAL;
	/* carefulds agree on this among themselves: no client speaks for all of this host. */
	if (q->head.handler == CAREFUL_PEACE)
		return -EPERM;
	op->peer = q->head.peer;
	op->handler = q->head.handler;
	op->handle = q->head.args[0];
	op->attempt = (uint64_t)q->head.args[2] << 32 | q->head.args[3];
	op->began_ns = clock_now_ns();
	ipc_handle_asked(op);
	return careful_request(instance, (uint32_t)index, (uint16_t)q->head.handler, q->head.args,
			       q->payload, q->head.payload_bytes, request_done, op);
}

static int bulk(struct ipc_client *client, struct ipc_op *op, const struct ipc_question *q)
{
	const struct careful_ipc *h = &q->head;
	struct careful *instance = client->ipc->instance;
	struct ipc_file *file = find_file(client, h->file);
	int rc, index = ipc_peer_index(client->ipc, h->peer);
	struct careful_span span;

	if (index < 0)
		return index;
	if (!file)
		return -EBADF;
	if (h->bytes > UINT32_MAX || h->file_off > INT64_MAX || h->handler > CAREFUL_HANDLERS)
		return -EINVAL;
	op->peer = h->peer;
	op->file = h->file;
	op->began_ns = clock_now_ns();
	span = (struct careful_span){ .fd = file->fd, .offset = h->file_off };
	file->users++;
	if (h->op == CAREFUL_IPC_GET)
		rc = careful_get(instance, (uint32_t)index, h->region, h->region_off, &span,
				 (uint32_t)h->bytes, h->flags, bulk_done, op);
	else
		rc = careful_store(instance, (uint32_t)index, h->region, h->region_off, &span,
				   (uint32_t)h->bytes, (uint16_t)h->handler, h->args, h->flags,
				   bulk_done, op);
	if (rc)
		file->users--;
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
	int index = ipc_peer_index(client->ipc, q->head.peer);
	int rc = index < 0 ? index : careful_peer_measure(client->ipc->instance, (uint32_t)index);

	if (!rc)
		ipc_answer(op, 0, NULL, NULL, 0);
	return rc;
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

/* How much an answer's payload may be. */
static uint32_t reserve_of(struct ipc_client *client, const struct careful_ipc *head)
{
	int index, bytes;

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
		if (is_answer_short(head->handler))
			return sizeof(struct careful_block_attr);
		/* What we may send to it is about what it may send to us. */
		index = ipc_peer_index(client->ipc, head->peer);
		bytes = index < 0 ? 0 :
				    careful_payload_bytes(client->ipc->instance, (uint32_t)index);
		return bytes < 0 ? 0 : (uint32_t)bytes;
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

/*
 * Begins what a question asks for; its answer comes now or later. -EAGAIN: not yet,
 * ask again with the same question.
 */
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
		file_add(client, op, q);
		break;
	case CAREFUL_IPC_FILE_REMOVE:
		file_remove(client, op, q->head.file);
		break;
	case CAREFUL_IPC_REQUEST:
		rc = ipc_handles_ask(client, op, q);
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
		rc = ipc_peer_begin(client->ipc, op, q);
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
