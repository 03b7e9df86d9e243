/* SPDX-License-Identifier: BSD-2-Clause */
/* CONNECT and PEER_BEGIN: sessions that clients ask for. */
#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "daemon/ipc/ipc_program.h"

enum { SLOT_MS = 5000 }; /* longest wait for a slot of an idle peer */

/* Reports whether a CONNECT other than `except` waits for the peer in this slot. */
static bool is_awaited(const struct ipc *ipc, uint32_t index, const struct ipc_op *except)
{
	for (const struct ipc_op *op = ipc->connects; op; op = op->next) {
		if (op != except && op->peer == ipc_peer_name(ipc, index))
			return true;
	}
	return false;
}

/* Frees a slot whose peer has failed. */
static bool reclaim(struct ipc *ipc)
{
	struct careful_peer_info info;

	for (uint32_t i = 0; i < ipc->peers_max; i++) {
		if (careful_peer_info(ipc->instance, i, &info) == 0 &&
		    info.state == CAREFUL_PEER_FAILED && !is_awaited(ipc, i, NULL))
			return careful_peer_close(ipc->instance, i) == 0;
	}
	return false;
}

/* Begins a handshake with an address for a user. Returns the slot, or -errno. */
static int begin(struct ipc *ipc, uid_t uid, const struct sockaddr *sa, uint32_t bytes,
		 uint32_t queues)
{
	struct careful_peer_info info;
	int rc = ipc_user_make_room(ipc, uid, sa);

	if (rc)
		return rc;
	rc = careful_peer_among(ipc->instance, sa, bytes, queues);
	if (rc == -EADDRINUSE && reclaim(ipc))
		rc = careful_peer_among(ipc->instance, sa, bytes, queues);
	if (rc < 0)
		return rc;
	/* An earlier failure is no answer: this question asks for a new handshake. */
	if (careful_peer_info(ipc->instance, (uint32_t)rc, &info) == 0 &&
	    info.state == CAREFUL_PEER_FAILED && !is_awaited(ipc, (uint32_t)rc, NULL)) {
		careful_peer_close(ipc->instance, (uint32_t)rc);
		rc = careful_peer_among(ipc->instance, sa, bytes, queues);
	}
	if (rc >= 0)
		ipc_user_began(ipc, (uint32_t)rc, uid);
	return rc;
}

/* Returns 0 if the session is up, -EINPROGRESS, or the reason why the session failed. */
static int session_status(struct ipc *ipc, uint32_t peer)
{
	struct careful_peer_info info;
	int index = ipc_peer_index(ipc, peer);

	if (peer == CAREFUL_IPC_PEER_NONE) /* another peer has the slot */
		return -EADDRINUSE;
	if (index < 0 || careful_peer_info(ipc->instance, (uint32_t)index, &info))
		return -ECONNRESET;
	switch (info.state) {
	case CAREFUL_PEER_UP:
	case CAREFUL_PEER_STALLED:
		/* A trial's new epochs are hidden from clients. */
		return ipc->held[index] ? -EINPROGRESS : 0;
	case CAREFUL_PEER_FAILED:
		return info.last_errno ? -(int)info.last_errno : -ECONNREFUSED;
	default:
		return -EINPROGRESS;
	}
}

/* Adds the peer's other queue to an answer. Frees the slot unless another CONNECT waits for it. */
static void report_moved(struct ipc *ipc, const struct ipc_op *op, struct careful_ipc *head)
{
	int index = ipc_peer_index(ipc, op->peer);

	if (index < 0 ||
	    careful_peer_moved(ipc->instance, (uint32_t)index, &head->args[0], &head->args[1]))
		return;
	if (!is_awaited(ipc, (uint32_t)index, op))
		careful_peer_close(ipc->instance, (uint32_t)index);
}

void ipc_peer_answer(struct ipc *ipc, struct ipc_op *op, int status)
{
	struct careful_ipc head = { .peer = status ? CAREFUL_IPC_PEER_NONE : op->peer };

	if (status == -EREMCHG)
		report_moved(ipc, op, &head);
	ipc_answer(op, status, &head, NULL, 0);
}

/* Reports whether a question that found no slot may wait for one. */
static bool may_wait(struct ipc_client *client, int rc)
{
	uint64_t now_ns = clock_now_ns();

	if (rc != -EAGAIN) {
		client->wanted_ns = 0;
		return false;
	}
	if (!client->wanted_ns)
		client->wanted_ns = now_ns;
	return now_ns - client->wanted_ns < SLOT_MS * 1000000ull;
}

static int begin_question(struct ipc *ipc, uid_t uid, const struct ipc_question *question)
{
	struct sockaddr_storage address = { 0 };
	uint32_t bytes = question->head.payload_bytes;
	uint32_t want;

	memcpy(&address, question->payload, bytes < sizeof(address) ? bytes : sizeof(address));
	want = address.ss_family == AF_INET6 ? 28 : 16;
	if (bytes > sizeof(address) || bytes < want)
		return -EPROTO;
	if (address.ss_family != AF_INET && address.ss_family != AF_INET6)
		return -EAFNOSUPPORT;
	return begin(ipc, uid, (struct sockaddr *)&address, want, question->head.args[0]);
}

int ipc_peer_begin(struct ipc *ipc, struct ipc_op *op, const struct ipc_question *question)
{
	int rc = begin_question(ipc, op->client->uid, question);

	if (may_wait(op->client, rc))
		return -EAGAIN;
	if (rc >= 0)
		op->peer = ipc_peer_name(ipc, (uint32_t)rc);
	return rc == -EAGAIN ? -EADDRINUSE : rc;
}

int ipc_connect(struct ipc_client *client, struct ipc_op *op, struct ipc_question *q)
{
	uint64_t limit_ms = q->head.bytes ? q->head.bytes : IPC_CONNECT_MS;
	struct ipc *ipc = client->ipc;
	int rc = ipc_peer_begin(ipc, op, q);

	if (rc == -EAGAIN)
		return rc;
	if (rc >= 0)
		rc = session_status(ipc, op->peer);
	if (rc != -EINPROGRESS) {
		ipc_peer_answer(ipc, op, rc);
		return 0;
	}
	if (limit_ms > 3600000)
		limit_ms = 3600000;
	op->until_ns = clock_now_ns() + limit_ms * 1000000;
	op->next = ipc->connects;
	ipc->connects = op;
	return 0;
}

/* Returns the status of a late CONNECT. Frees the slot unless another CONNECT waits for it. */
static int give_up(struct ipc *ipc, const struct ipc_op *op)
{
	struct careful_peer_info info = { 0 };
	uint32_t index = (uint32_t)ipc_peer_index(ipc, op->peer);

	careful_peer_info(ipc->instance, index, &info);
	if (info.state == CAREFUL_PEER_UP || info.state == CAREFUL_PEER_STALLED)
		return 0; /* the client's questions will wait */
	if (info.state == CAREFUL_PEER_CONNECTING && !is_awaited(ipc, index, op))
		careful_peer_close(ipc->instance, index);
	return info.last_errno ? -(int)info.last_errno : -ETIMEDOUT;
}

int ipc_peer_leave(struct ipc_program *p, uint32_t peer)
{
	struct ipc *ipc = p->client->ipc;
	struct careful_peer_info info;
	int index = ipc_peer_index(ipc, peer);

	if (index < 0)
		return index;
	p->wants[index] = false;
	for (const struct ipc_program *other = ipc->programs; other; other = other->next)
		if (other->wants[index])
			return 0;
	if (careful_peer_info(ipc->instance, (uint32_t)index, &info) == 0 &&
	    (info.state == CAREFUL_PEER_CONNECTING || info.state == CAREFUL_PEER_FAILED) &&
	    !is_awaited(ipc, (uint32_t)index, NULL))
		careful_peer_close(ipc->instance, (uint32_t)index);
	return 0;
}

void ipc_connects_poll(struct ipc *ipc)
{
	struct ipc_op **at = &ipc->connects, *op;
	const uint64_t now = clock_now_ns();

	while ((op = *at)) {
		int rc = session_status(ipc, op->peer);

		if (rc == -EINPROGRESS && now >= op->until_ns)
			rc = give_up(ipc, op);
		if (rc == -EINPROGRESS) {
			at = &op->next;
			continue;
		}
		*at = op->next;
		ipc_peer_answer(ipc, op, rc);
	}
}

int ipc_connects_timeout_ms(const struct ipc *ipc)
{
	uint64_t first_ns = UINT64_MAX;

	for (const struct ipc_op *op = ipc->connects; op; op = op->next)
		first_ns = op->until_ns < first_ns ? op->until_ns : first_ns;
	return clock_until_ms(first_ns);
}
