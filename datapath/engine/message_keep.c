// SPDX-License-Identifier: BSD-2-Clause
/* Keeps a payload after its handler returns. The whole frame stays in its receive buffer. */
#include "engine/engine.h"

struct careful_kept *own_keep(const struct careful_message *message)
{
	struct careful *c = message->instance;

	if (!c->handled_held)
		c->handled_held = link_hold(&c->link, c->handled_frame, true);
	if (!c->handled_kept)
		c->handled_kept = link_keep(c->handled_held, c->handled);
	return c->handled_kept;
}

void own_release(struct careful *c, struct careful_kept *kept)
{
	link_unhold(&c->link, link_held_of(kept));
}
