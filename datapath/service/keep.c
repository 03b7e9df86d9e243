// SPDX-License-Identifier: BSD-2-Clause
/*
 * Payloads that outlive their handlers, in their receive buffers: each message that is kept holds
 * its frame, which it may share with others. Calls attach_more.c, link's hold.c.
 */
#include "service/attach.h"
#include "service/engine.h"

struct careful_kept *careful_keep(const struct careful_message *message)
{
	struct careful *c = message->instance;

	if (c->attached)
		return attached_keep(message);
	if (!message->keepable)
		return NULL;
	if (!c->handled_held)
		c->handled_held = link_hold(&c->link, c->handled_frame, true);
	if (!c->handled_kept)
		c->handled_kept = link_keep(c->handled_held, c->handled);
	return c->handled_kept;
}

const void *careful_kept_payload(struct careful_kept *kept)
{
	return link_held_of(kept)->body + kept->at + sizeof(struct careful_am);
}

void careful_release(struct careful *c, struct careful_kept *kept)
{
	if (c->attached)
		attached_release(kept);
	else
		link_let_go(&c->link, link_held_of(kept));
}
