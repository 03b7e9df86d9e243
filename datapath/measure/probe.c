/* SPDX-License-Identifier: BSD-2-Clause */
/* Answers probes with their arrival times. The reply to a single probe always has the same size. */
#include "measure/probe.h"

#include <endian.h>
#include <errno.h>
#include <stddef.h>

bool probe_train_add(struct probe_train *train, const struct careful_message *message,
		     uint64_t now_ns)
{
	uint32_t number = message->args[0], index = message->args[1];

	if (index == 0) {
		train->number = number;
		train->count = 0;
	}
	if (train->number != number || train->count != index || index >= CAREFUL_PROBE_FRAMES)
		return false;
	train->stamps[train->count++] = htobe64(now_ns);
	return true;
}

static void on_probe(const struct careful_message *message, void *user)
{
	struct probe *probe = user;
	struct probe_train *train = &probe->trains[message->peer];
	uint64_t now_ns = probe->now_ns();
	uint32_t args[CAREFUL_AM_ARGS] = { (uint32_t)(now_ns >> 32), (uint32_t)now_ns };
	bool added;

	if (!message->args[0]) {
		careful_reply(message, 0, args, NULL, 0);
		return;
	}
	added = probe_train_add(train, message, now_ns);
	if (!message->token)
		return;
	train->number = 0;
	careful_reply(message, added ? 0 : -EAGAIN, args, added ? train->stamps : NULL,
		      added ? train->count * (uint32_t)sizeof(train->stamps[0]) : 0);
}

/* Begins to record a session's arrivals, unless a measurement of another session is under way. */
static int start_recording(struct probe *probe, uint64_t cookie)
{
	const uint64_t most_ns = CAREFUL_ARRIVALS_MS * UINT64_C(1000000);
	struct careful_arrivals *arrivals = probe->arrivals;

	if (arrivals->cookie == cookie) /* another measurement of the peer has begun it */
		return 0;
	if (arrivals->cookie && probe->now_ns() - probe->asked_ns < most_ns)
		return -EBUSY;
	/* The first arrival may be of the old recording, as XDP may still write it. */
	__atomic_store_n(&arrivals->cookie, 0, __ATOMIC_SEQ_CST);
	arrivals->others = 0;
	__atomic_store_n(&arrivals->count, 0, __ATOMIC_SEQ_CST);
	__atomic_store_n(&arrivals->cookie, cookie, __ATOMIC_RELEASE);
	return 0;
}

static struct careful_arrival in_network_order(const struct careful_arrival *at)
{
	return (struct careful_arrival){
		.at_ns = htobe64(at->at_ns),
		.bytes = htobe32(at->bytes),
		.others = htobe32(at->others),
	};
}

/* Copies up to `most` arrivals from number *first on. Moves *first to the oldest that is kept. */
static uint32_t copy_arrivals(const struct careful_arrivals *arrivals, uint32_t *first,
			      uint32_t count, struct careful_arrival *out, uint32_t most)
{
	/* XDP may overwrite the oldest arrivals meanwhile. */
	const uint32_t kept = CAREFUL_ARRIVALS_MAX / 2;
	uint32_t copied = 0;

	if (count > kept && *first < count - kept)
		*first = count - kept;
	for (uint32_t i = *first; i < count && copied < most; i++)
		out[copied++] = in_network_order(&arrivals->ring[i % CAREFUL_ARRIVALS_MAX]);
	return copied;
}

static void on_arrivals(const struct careful_message *message, void *user)
{
	static struct careful_arrival answer[CAREFUL_ARRIVALS_MAX];
	struct probe *probe = user;
	struct careful_arrivals *arrivals = probe->arrivals;
	const uint64_t cookie = probe->cookie_of(probe->instance, message->peer);
	const int most = careful_payload_bytes(probe->instance, message->peer);
	uint32_t args[CAREFUL_AM_ARGS] = { 0 }, copied = 0;
	int rc = most < 0 ? most : 0;

	if (!rc && !message->args[0])
		rc = start_recording(probe, cookie);
	else if (!rc && arrivals->cookie != cookie)
		rc = -ENOENT;
	if (!rc) {
		args[0] = __atomic_load_n(&arrivals->count, __ATOMIC_ACQUIRE);
		args[1] = message->args[0] ? message->args[0] - 1 : args[0];
		copied = copy_arrivals(arrivals, &args[1], args[0], answer,
				       (uint32_t)most / sizeof(answer[0]));
		__atomic_store_n(&arrivals->until, args[0] + CAREFUL_ARRIVALS_MORE,
				 __ATOMIC_RELAXED);
		probe->asked_ns = probe->now_ns();
	}
	careful_reply(message, rc, args, answer, copied * (uint32_t)sizeof(answer[0]));
}

int probe_serve(struct careful *instance, struct probe *probe)
{
	int rc;

	probe->instance = instance;
	rc = careful_handle(instance, CAREFUL_PROBE, on_probe, probe);
	return rc || !probe->arrivals ?
		       rc :
		       careful_handle(instance, CAREFUL_ARRIVALS, on_arrivals, probe);
}

/* Peers may write here at the same time: the contents are never used. */
static uint8_t scratch[SCRATCH_BYTES];

void *scratch_memory(void)
{
	return scratch;
}

static void on_scratch(const struct careful_message *message, void *user)
{
	uint32_t args[CAREFUL_AM_ARGS] = { (uint32_t)(uintptr_t)user, SCRATCH_BYTES };

	careful_reply(message, 0, args, NULL, 0);
}

int scratch_serve(struct careful *instance)
{
	const struct careful_region region = {
		.span = { .base = scratch, .fd = -1 },
		.bytes = SCRATCH_BYTES,
		.access = CAREFUL_REGION_READ | CAREFUL_REGION_WRITE,
		.peer = CAREFUL_ANY_PEER,
	};
	uint32_t key;
	int rc = careful_region_add(instance, &region, &key);

	return rc ? rc :
		    careful_handle(instance, CAREFUL_SCRATCH, on_scratch, (void *)(uintptr_t)key);
}
