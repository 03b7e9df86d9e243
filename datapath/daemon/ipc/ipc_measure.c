/* SPDX-License-Identifier: BSD-2-Clause */
/* MEASURE: carefuld sends and times probes for a client, which itself would need tens of
 * microseconds for each. A whole train is sent between two rounds of the main loop. Single probes
 * are sent one by one, each after the last answer. A silent peer delays only this measurement. */
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <careful/wire.h>

#include "base/clock.h"
#include "daemon/ipc/ipc_private.h"
#include "engine/sharing.h"

enum { SILENT_MS = 5000 }; /* longest wait for an answer */

/* A measurement. It ends when every answer has arrived and nothing is left to send. */
struct ipc_measure {
	struct ipc_op *op; /* the client's question */
	uint32_t index; /* the peer's slot */
	uint32_t bytes; /* size of payload, which every frame carries */
	uint32_t train; /* number of the train; 0: single probes */
	uint32_t count; /* frames to send; @sent of these have been sent */
	uint32_t sent;
	uint32_t awaited; /* answers that have not arrived */
	int status; /* 0, or -errno of the first failure; nothing is sent after it */
	uint64_t until_ns; /* time limit, which each sent or answered frame extends */
	struct careful_ipc_probe probes[CAREFUL_PROBE_FRAMES];
	unsigned char payload[];
};

static void take_arrivals(struct ipc_measure *m, const struct careful_result *result)
{
	uint32_t bytes = m->count * (uint32_t)sizeof(__be64);
	__be64 stamp;

	/* A peer of an older version, without trains, answers the last frame without arrivals. */
	if (result->bytes != bytes || !result->payload) {
		m->status = -EPROTO;
		return;
	}
	for (uint32_t i = 0; i < m->count; i++) {
		memcpy(&stamp, (const char *)result->payload + i * sizeof(stamp), sizeof(stamp));
		m->probes[i].arrived_ns = be64toh(stamp);
	}
}

static void on_answer(const struct careful_result *result, void *user)
{
	struct ipc_measure *m = user;
	struct careful_ipc_probe *probe = &m->probes[m->sent - 1];

	probe->back_ns = clock_now_ns();
	m->until_ns = clock_in_ms(SILENT_MS);
	probe->arrived_ns = (uint64_t)result->args[0] << 32 | result->args[1];
	m->awaited--;
	if (result->status)
		m->status = m->status ? m->status : result->status;
	else if (m->train)
		take_arrivals(m, result);
}

/* Sends one frame. Returns -EAGAIN if the engine has no room now. */
static int send_probe(struct ipc *ipc, struct ipc_measure *m)
{
	bool wants_answer = !m->train || m->sent + 1 == m->count;
	const uint32_t args[CAREFUL_AM_ARGS] = { m->train, m->train ? m->sent : 0 };
	int rc;

	m->probes[m->sent].sent_ns = clock_now_ns();
	/* The answer can arrive within the call. */
	m->sent++;
	m->awaited += wants_answer;
	rc = careful_request(ipc->instance, m->index, CAREFUL_PROBE, args, m->payload, m->bytes,
			     wants_answer ? on_answer : NULL, m);
	if (rc) {
		m->sent--;
		m->awaited -= wants_answer;
	} else {
		m->until_ns = clock_in_ms(SILENT_MS);
	}
	return rc;
}

/* Sends a whole train, or one probe. Kicks after each frame, before it builds the next. */
static void send_probes(struct ipc *ipc, struct ipc_measure *m)
{
	int rc = 0;

	do {
		rc = send_probe(ipc, m);
		careful_poll(ipc->instance);
	} while (!rc && m->train && m->sent < m->count && !m->status);
	if (rc && rc != -EAGAIN && !m->status)
		m->status = rc;
}

static bool may_send(const struct ipc_measure *m)
{
	return !m->status && m->op->client->fd >= 0 && m->sent < m->count &&
	       (m->train || !m->awaited);
}

static bool is_probe_of(const void *user, const void *of)
{
	return user == of;
}

static void poll_measure(struct ipc *ipc, struct ipc_client *client)
{
	struct ipc_measure *m = client->measure;

	if (may_send(m))
		send_probes(ipc, m);
	if (!m->status && clock_now_ns() >= m->until_ns) {
		m->status = -ETIMEDOUT;
		engine_forget(ipc->instance, is_probe_of, m);
	}
	if (m->awaited || may_send(m))
		return;
	client->measure = NULL;
	ipc->measures--;
	ipc_answer(m->op, m->status, NULL, m->probes,
		   m->status ? 0 : m->count * (uint32_t)sizeof(m->probes[0]));
	free(m);
}

void ipc_measure_poll(struct ipc *ipc)
{
	for (struct ipc_client *client = ipc->clients; client; client = client->next)
		if (client->measure)
			poll_measure(ipc, client);
}

int ipc_measure_timeout_ms(const struct ipc *ipc)
{
	uint64_t first_ns = UINT64_MAX;

	if (!ipc->measures)
		return -1;
	for (const struct ipc_client *client = ipc->clients; client; client = client->next) {
		if (client->measure && may_send(client->measure))
			return 0;
		if (client->measure && client->measure->until_ns < first_ns)
			first_ns = client->measure->until_ns;
	}
	return clock_until_ms(first_ns);
}

int ipc_measure(struct ipc_client *client, struct ipc_op *op, struct ipc_question *q)
{
	const struct careful_ipc *head = &q->head;
	struct ipc *ipc = client->ipc;
	int most = careful_payload_bytes(ipc->instance, q->index);
	static uint32_t trains;
	struct ipc_measure *m;

	if (most < 0)
		return most;
	if (head->bytes > (uint32_t)most)
		return -EMSGSIZE;
	if (!head->args[0] || head->args[0] > CAREFUL_PROBE_FRAMES ||
	    head->flags & ~(uint32_t)CAREFUL_IPC_TRAIN)
		return -EINVAL;
	/* One frame holds the answer to a train: a time stamp for each frame. */
	if (head->flags & CAREFUL_IPC_TRAIN && head->args[0] * sizeof(__be64) > (uint32_t)most)
		return -EMSGSIZE;
	if (client->measure)
		return -EAGAIN;
	m = calloc(1, sizeof(*m) + head->bytes);
	if (!m)
		return -ENOMEM;
	if (head->flags & CAREFUL_IPC_TRAIN)
		m->train = ++trains ? trains : ++trains;
	m->op = op;
	m->index = q->index;
	m->bytes = (uint32_t)head->bytes;
	m->count = head->args[0];
	op->peer = head->peer;
	m->until_ns = clock_in_ms(SILENT_MS);
	client->measure = m;
	ipc->measures++;
	return 0;
}
