// SPDX-License-Identifier: BSD-2-Clause
/* See mode.h. */
#include "engine/mode.h"

#include <errno.h>

#include "engine/engine.h"

void mode_alone(struct careful *c, uint32_t peer)
{
	struct link *link = &c->link;

	link->alone = peer < link->peers_max ? &link->peers[peer] : NULL;
	link->resting = false;
	link->draining = true; /* whoever waits may go on */
}

static void rest(struct link *link)
{
	if (link->resting)
		return;
	link->resting = true;
	for (uint32_t i = 0; i < link->peers_max; i++)
		link_renew(&link->peers[i]);
}

static bool at_rest(struct link *link)
{
	for (uint32_t i = 0; i < link->peers_max; i++)
		if (!epoch_quiet(&link->peers[i]))
			return false;
	return true;
}

/* R may be another now, and the window with it. A mode with too small a one is left again. */
static int change(struct careful *c, uint32_t mode, struct careful_error *error)
{
	uint32_t was = c->queue->info.xdp_mode;
	int rc = c->queue->ops->mode(c->queue, mode, error), back;
	struct careful_error unused;

	if (rc)
		return rc;
	rc = link_window(&c->link, &c->options, error);
	if (!rc)
		return 0;
	back = c->queue->ops->mode(c->queue, was, NULL);
	link_window(&c->link, &c->options, &unused);
	return back ? back : rc;
}

int mode_change(struct careful *c, uint32_t mode, struct careful_error *error)
{
	struct link *link = &c->link;
	int rc;

	if (!c->queue->ops->mode)
		return -EOPNOTSUPP;
	rest(link);
	if (!at_rest(link))
		return -EAGAIN;
	rc = change(c, mode, error);
	link->resting = false;
	link->draining = true;
	return rc;
}

uint32_t mode_link_downs(struct careful *c)
{
	struct port *port = c->queue->port;

	return port->ops->downs ? port->ops->downs(port) : 0;
}

uint32_t mode_qdiscs(struct careful *c)
{
	return c->queue->port->qdiscs;
}

void mode_decided(struct careful *c, uint32_t by)
{
	c->queue->info.xdp_by = by;
}
