// SPDX-License-Identifier: BSD-2-Clause
/* SYNC messages: what this end of a session sent and received, and the question about theirs. */
#include "link/link.h"

#include <endian.h>

/* Says what we sent and received in this epoch. */
void link_question_describe(const struct link_peer *peer, struct careful_ctrl *ctrl)
{
	ctrl->cookie = htobe64(peer->cookie_out);
	flow_describe(&peer->flow, ctrl);
}

/* Asks what the peer sent and received, or for what else the status says (SYNC). */
void link_question_ask(struct link_peer *peer, uint32_t status)
{
	struct session *session = peer->session;
	struct link *link = peer->link;
	struct careful_ctrl ctrl = { .status = htobe32(status) };

	if (!session->sync.nonce) {
		link->port->ops->random(link->port, &session->sync.nonce,
					sizeof(session->sync.nonce));
		session->sync.began_ns = link->now_ns;
	}
	session->sync.nonce |= 1;
	ctrl.nonce = htobe64(session->sync.nonce);
	link_question_describe(peer, &ctrl);
	session->asked_ns = link->now_ns;
	link_count(link, CAREFUL_C_SYNCS);
	link_say(peer, &ctrl, CAREFUL_SYNC);
}
