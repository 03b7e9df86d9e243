// SPDX-License-Identifier: BSD-2-Clause
#include "engine/xdp_mode.h"

#include <errno.h>

#include "engine/engine.h"

void xdp_mode_alone(struct careful *c, uint32_t peer)
{
	link_resume(&c->link, peer < c->link.peers_max ? &c->link.peers[peer] : NULL);
}

/* Changes the mode, and so R and the window. Restores the mode if the window becomes too small. */
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

int xdp_mode_change(struct careful *c, uint32_t mode, struct careful_error *error)
{
	int rc;

	if (!c->queue->ops->mode)
		return -EOPNOTSUPP;
	if (!link_rest(&c->link))
		return -EAGAIN;
	rc = change(c, mode, error);
	link_resume(&c->link, c->link.alone);
	return rc;
}

uint32_t xdp_mode_link_downs(struct careful *c)
{
	struct port *port = c->queue->port;

	return port->ops->downs ? port->ops->downs(port) : 0;
}

uint32_t xdp_mode_qdiscs(struct careful *c)
{
	return c->queue->port->qdiscs;
}

void xdp_mode_decided(struct careful *c, uint32_t by)
{
	c->queue->info.xdp_by = by;
}
