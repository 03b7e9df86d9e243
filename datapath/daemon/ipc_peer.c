/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Peers as clients name them, and CONNECT. A name holds the slot and how often the
 * slot changed hands, so that a name kept too long meets an error, not another
 * host. Calls ipc_answer.c, ipc_handles.c and ipc_program.c.
 */
#include <errno.h>
#include <string.h>

#include "daemon/clock.h"
#include "daemon/ipc_private.h"

enum {
	LIFE_SHIFT = 16,
	LIFE_MASK = 0x7fff,
	PLACE_MS = 5000, /* until some peer that is idle has given up its place */
};

static uint32_t name_of(const struct ipc *ipc, uint32_t index)
{
	return index | (uint32_t)(ipc->lives[index] & LIFE_MASK) << LIFE_SHIFT;
}

uint32_t ipc_peer_name(const struct ipc *ipc, uint32_t index)
{
	return name_of(ipc, index);
}

/* The slot of a client's name for a peer, or -ENOTCONN. */
int ipc_peer_index(const struct ipc *ipc, uint32_t peer)
{
	uint32_t index = peer & 0xffff;

	if (index >= ipc->peers_max || peer != name_of(ipc, index))
		return -ENOTCONN;
	return (int)index;
}

void ipc_peer_changed(struct ipc *ipc, uint32_t peer, uint32_t state)
{
	if (ipc->programs)
		ipc_programs_peer(ipc, peer, state);
	if (state == CAREFUL_PEER_NONE || state == CAREFUL_PEER_FAILED)
		ipc_handles_over(ipc, peer);
	if (state == CAREFUL_PEER_NONE)
		ipc->lives[peer]++;
}

void ipc_hold(struct ipc *ipc, uint32_t peer, enum ipc_hold why, bool on)
{
	uint8_t was = ipc->held[peer];

	ipc->held[peer] = (uint8_t)(on ? was | why : was & ~(uint8_t)why);
	ipc->held_count += !!ipc->held[peer];
	ipc->held_count -= !!was;
}

bool ipc_holds(const struct ipc *ipc, uint32_t peer, enum ipc_hold why)
{
	return ipc->held[peer] & why;
}

static bool held(const struct ipc *ipc, uint32_t peer)
{
	int index = ipc_peer_index(ipc, peer);

	return index >= 0 && ipc->held[index];
}

static bool any_held(const struct ipc *ipc, const struct ipc_question *question)
{
	struct careful_signature s;

	if (question->head.payload_bytes != sizeof(s))
		return false;
	memcpy(&s, question->payload, sizeof(s));
	for (uint32_t i = 0; i < s.peers_count && i < CAREFUL_SIGNATURE_PEERS; i++)
		if (held(ipc, s.peers[i]))
			return true;
	return false;
}

/* Whether a question is to wait for the sake of a peer that it names. */
bool ipc_held(const struct ipc *ipc, const struct ipc_question *question)
{
	if (!ipc->held_count)
		return false;
	switch (question->head.op) {
	case CAREFUL_IPC_SIGNATURE:
		return any_held(ipc, question);
	case CAREFUL_IPC_REQUEST:
	case CAREFUL_IPC_GET:
	case CAREFUL_IPC_GETS:
	case CAREFUL_IPC_STORE:
	case CAREFUL_IPC_PING:
	case CAREFUL_IPC_MEASURE:
		return held(ipc, question->head.peer);
	default:
		return false;
	}
}

/* Whether a CONNECT other than `but` waits for this slot. */
static bool awaited(const struct ipc *ipc, uint32_t index, const struct ipc_op *but)
{
	for (const struct ipc_op *op = ipc->connects; op; op = op->next) {
		if (op != but && op->peer == name_of(ipc, index))
			return true;
	}
	return false;
}

/* Gives a slot back whose peer has failed; its name goes with it. */
static bool reclaim(struct ipc *ipc)
{
	struct careful_peer_info info;

	for (uint32_t i = 0; i < ipc->peers_max; i++) {
		if (careful_peer_info(ipc->instance, i, &info) == 0 &&
		    info.state == CAREFUL_PEER_FAILED && !awaited(ipc, i, NULL))
			return careful_peer_close(ipc->instance, i) == 0;
	}
	return false;
}

/* Returns the slot of a peer with this address, its handshake begun for a user. */
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
	/* An earlier failure is not the answer to this question. */
	if (careful_peer_info(ipc->instance, (uint32_t)rc, &info) == 0 &&
	    info.state == CAREFUL_PEER_FAILED && !awaited(ipc, (uint32_t)rc, NULL)) {
		careful_peer_close(ipc->instance, (uint32_t)rc);
		rc = careful_peer_among(ipc->instance, sa, bytes, queues);
	}
	if (rc >= 0)
		ipc_user_began(ipc, (uint32_t)rc, uid);
	return rc;
}

/* 0: the session is up; -EINPROGRESS; or why it will not be. */
static int state_of(struct ipc *ipc, uint32_t peer)
{
	struct careful_peer_info info;
	int index = ipc_peer_index(ipc, peer);

	if (peer == CAREFUL_IPC_PEER_NONE) /* its place went to another */
		return -EADDRINUSE;
	if (index < 0 || careful_peer_info(ipc->instance, (uint32_t)index, &info))
		return -ECONNRESET;
	switch (info.state) {
	case CAREFUL_PEER_UP:
	case CAREFUL_PEER_STALLED:
		/* What a client would count as its own are the epochs of a trial. */
		return ipc->held[index] ? -EINPROGRESS : 0;
	case CAREFUL_PEER_FAILED:
		return info.last_errno ? -(int)info.last_errno : -ECONNREFUSED;
	default:
		return -EINPROGRESS;
	}
}

/* The peer has sent us to another queue: its slot here is free again, unless others wait. */
static void say_moved(struct ipc *ipc, const struct ipc_op *op, struct careful_ipc *head)
{
	int index = ipc_peer_index(ipc, op->peer);

	if (index < 0 ||
	    careful_peer_moved(ipc->instance, (uint32_t)index, &head->args[0], &head->args[1]))
		return;
	if (!awaited(ipc, (uint32_t)index, op))
		careful_peer_close(ipc->instance, (uint32_t)index);
}

static void answer(struct ipc *ipc, struct ipc_op *op, int status)
{
	struct careful_ipc head = { .peer = status ? CAREFUL_IPC_PEER_NONE : op->peer };

	if (status == -EREMCHG)
		say_moved(ipc, op, &head);
	ipc_answer(op, status, &head, NULL, 0);
}

/* Whether a client's question waits for a place. */
static bool waits(struct ipc_client *client, int rc)
{
	uint64_t now_ns = clock_now_ns();

	if (rc != -EAGAIN) {
		client->wanted_ns = 0;
		return false;
	}
	if (!client->wanted_ns)
		client->wanted_ns = now_ns;
	return now_ns - client->wanted_ns < PLACE_MS * 1000000ull;
}

/* The slot of the peer whose address a question has, its handshake begun; or -errno. */
static int begin_asked(struct ipc *ipc, uid_t uid, const struct ipc_question *question)
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

/* Answers when there is a place, or none in time; a program is told how it goes on. -EAGAIN: ask
 * again with the same question. */
int ipc_peer_begin(struct ipc *ipc, struct ipc_op *op, const struct ipc_question *question)
{
	int rc = begin_asked(ipc, op->client->uid, question);

	if (waits(op->client, rc))
		return -EAGAIN;
	if (rc >= 0) {
		op->peer = name_of(ipc, (uint32_t)rc);
		if (op->client->program) {
			op->client->program->wants[rc] = true;
			ipc_news_know(op->client->program, (uint32_t)rc);
		}
		rc = 0;
	}
	answer(ipc, op, rc == -EAGAIN ? -EADDRINUSE : rc);
	return 0;
}

/* -EAGAIN: ask again with the same question. */
int ipc_connect(struct ipc *ipc, struct ipc_op *op, const struct ipc_question *question)
{
	uint64_t limit_ms = question->head.bytes ? question->head.bytes : IPC_CONNECT_MS;
	int rc = begin_asked(ipc, op->client->uid, question);

	if (waits(op->client, rc))
		return -EAGAIN;
	rc = rc == -EAGAIN ? -EADDRINUSE : rc;
	if (rc >= 0) {
		op->peer = name_of(ipc, (uint32_t)rc);
		rc = state_of(ipc, op->peer);
	}
	if (rc != -EINPROGRESS) {
		answer(ipc, op, rc);
		return 0;
	}
	if (limit_ms > 3600000)
		limit_ms = 3600000;
	op->until_ns = clock_now_ns() + limit_ms * 1000000;
	op->next = ipc->connects;
	ipc->connects = op;
	return 0;
}

/* Why a handshake got nowhere in time. Its slot is free again, unless others wait. */
static int give_up(struct ipc *ipc, const struct ipc_op *op)
{
	struct careful_peer_info info = { 0 };
	uint32_t index = (uint32_t)ipc_peer_index(ipc, op->peer);

	careful_peer_info(ipc->instance, index, &info);
	if (info.state == CAREFUL_PEER_UP || info.state == CAREFUL_PEER_STALLED)
		return 0; /* its questions will wait */
	if (info.state == CAREFUL_PEER_CONNECTING && !awaited(ipc, index, op))
		careful_peer_close(ipc->instance, index);
	return info.last_errno ? -(int)info.last_errno : -ETIMEDOUT;
}

/* A program needs the peer no more; one that has no session is given up, where nobody else wants
 * it. */
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
	    !awaited(ipc, (uint32_t)index, NULL))
		careful_peer_close(ipc->instance, (uint32_t)index);
	return 0;
}

void ipc_connects_poll(struct ipc *ipc)
{
	struct ipc_op **at = &ipc->connects, *op;
	const uint64_t now = clock_now_ns();

	while ((op = *at)) {
		int rc = state_of(ipc, op->peer);

		if (rc == -EINPROGRESS && now >= op->until_ns)
			rc = give_up(ipc, op);
		if (rc == -EINPROGRESS) {
			at = &op->next;
			continue;
		}
		*at = op->next;
		answer(ipc, op, rc);
	}
}

/* The nearest time limit; the session's own progress wakes us by itself. */
int ipc_connects_timeout_ms(const struct ipc *ipc)
{
	uint64_t now, first = UINT64_MAX;

	for (const struct ipc_op *op = ipc->connects; op; op = op->next)
		first = op->until_ns < first ? op->until_ns : first;
	if (first == UINT64_MAX)
		return -1;
	now = clock_now_ns();
	return first <= now ? 0 : (int)((first - now) / 1000000 + 1);
}
