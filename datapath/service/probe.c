/* SPDX-License-Identifier: BSD-2-Clause */
/* One handler: says when the request came. The frame's buffer goes back at once, and the
 * reply is as small as a reply can be, so that the way back is the same for all sizes. */
#include "service/probe.h"

#include <stddef.h>

#include <careful/wire.h>

static void on_probe(const struct careful_message *message, void *user)
{
	const struct careful_probe_clock *clock = user;
	uint64_t now_ns = clock->now_ns();
	uint32_t args[CAREFUL_AM_ARGS] = { (uint32_t)(now_ns >> 32), (uint32_t)now_ns };

	careful_reply(message, 0, args, NULL, 0);
}

int careful_probe_serve(struct careful *instance, const struct careful_probe_clock *clock)
{
	return careful_handle(instance, CAREFUL_PROBE, on_probe, (void *)clock);
}
