/* SPDX-License-Identifier: BSD-2-Clause */
/* Answers probes with their arrival times. Frames give their buffers back at once. The reply to a
 * single probe is as small as possible, so that the way back is the same for all sizes. */
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

int probe_serve(struct careful *instance, struct probe *probe)
{
	return careful_handle(instance, CAREFUL_PROBE, on_probe, probe);
}

/* Peers may write there at the same time, because the contents are never used. */
static uint8_t scratch[SCRATCH_BYTES]; /* costs no memory until it is used */

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
