// SPDX-License-Identifier: BSD-2-Clause
/* Sends the window updates and acknowledgements that no data frame has carried. */
#include "link/link_private.h"
#include "link/operation_timer.h"

/* Sends a window update, perhaps with the last credit and the last send buffer. */
bool link_send_update(struct link_peer *peer)
{
	static const struct link_send_args args = { .type = CAREFUL_UPDATE };
	struct link_txframe frame;

	if (!flow_may_update(&peer->flow) || !link_tx_get_own(peer, &frame))
		return false;
	link_send(&frame, &args);
	link_count(peer->link, CAREFUL_C_TX_UPDATES);
	return true;
}

static bool update_due(const struct link_peer *peer)
{
	return flow_update_due(&peer->flow) ||
	       (peer->kept &&
		window_rx_update_early(&peer->flow.rx, peer->kept, link_taken_cost(peer)));
}

/* Sends an update or acknowledgement if one is due. Returns true if it could not leave now and
 * remains due: the peer may send before our side of the session is open. */
static bool send_due_update(struct link_peer *peer)
{
	bool traditional = peer->link->traditional;

	OPERATION(OPERATION_TELL);
	if (!(traditional ? peer->link->traditional->ops->due(peer) : update_due(peer)))
		return false;
	if (peer->phase != LINK_OPEN)
		return peer->cookie_in != 0;
	return !peer->llhdr.bytes || !(traditional ? peer->link->traditional->ops->send_ack(peer) :
						     link_send_update(peer));
}

void link_updates_due(struct link *link)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < link->dirty_count; i++) {
		struct link_peer *peer = link->dirty[i];

		/* link_publish() needs the peers with buffers that were released meanwhile. */
		if (send_due_update(peer) || peer->flow.freeing)
			link->dirty[kept++] = peer;
		else
			peer->dirty = false;
	}
	link->dirty_count = kept;
}
