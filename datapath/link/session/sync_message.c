// SPDX-License-Identifier: BSD-2-Clause
/* Writes SYNC messages: what this end of a session sent and received. */
#include "link/link_private.h"
#include "link/peer/peers.h"
#include "link/session/session.h"

#include <endian.h>

/* Asks the peer. The nonce contains the time, so the answer shows which question it answers. */
void link_sync_ask(struct link_peer *peer, enum careful_sync question)
{
	struct session *session = peer->session;
	struct link *link = peer->link;
	struct careful_ctrl ctrl = { .counts.question = htobe32(question) };
	struct link_sync *sync = &session->sync;
	uint64_t now_us = link->now_ns / 1000;

	if (!sync->token)
		sync->token = (uint32_t)link_random(link) | 1;
	sync->last_us = now_us > sync->last_us ? now_us : sync->last_us + 1;
	if (!sync->asked)
		sync->first_us = sync->last_us;
	sync->asked = true;
	ctrl.nonce = htobe64((uint64_t)sync->token << 32 | (uint32_t)sync->last_us);
	flow_describe(&peer->flow, &ctrl.counts);
	session->asked_ns = link->now_ns;
	link_count(link, CAREFUL_C_SYNCS);
	link_say(peer, &ctrl, CAREFUL_SYNC);
}
