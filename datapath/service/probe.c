/* SPDX-License-Identifier: BSD-2-Clause */
/* One handler: says when requests came. A frame's buffer goes back at once, and the reply to
 * a single one is as small as a reply can be, so that the way back is the same for all sizes.
 * Calls api.c. */
#include "service/probe.h"

#include <endian.h>
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>

/* Whether the frame is the next of the train that is arriving; a first one begins it. */
static bool train_add(struct probe *probe, const struct careful_message *message, uint64_t now_ns)
{
	uint32_t train = message->args[0], index = message->args[1];

	if (index == 0) {
		probe->peer = message->peer;
		probe->train = train;
		probe->count = 0;
	}
	if (probe->train != train || probe->peer != message->peer || probe->count != index ||
	    index >= CAREFUL_PROBE_FRAMES)
		return false;
	probe->stamps[probe->count++] = htobe64(now_ns);
	return true;
}

static void on_probe(const struct careful_message *message, void *user)
{
	struct probe *probe = user;
	uint64_t now_ns = probe->now_ns();
	uint32_t args[CAREFUL_AM_ARGS] = { (uint32_t)(now_ns >> 32), (uint32_t)now_ns };
	bool added;

	if (!message->args[0]) {
		careful_reply(message, 0, args, NULL, 0);
		return;
	}
	added = train_add(probe, message, now_ns);
	if (!message->token)
		return;
	probe->train = 0;
	careful_reply(message, added ? 0 : -EAGAIN, args, added ? probe->stamps : NULL,
		      added ? probe->count * (uint32_t)sizeof(probe->stamps[0]) : 0);
}

int probe_serve(struct careful *instance, struct probe *probe)
{
	return careful_handle(instance, CAREFUL_PROBE, on_probe, probe);
}
