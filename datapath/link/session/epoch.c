// SPDX-License-Identifier: BSD-2-Clause
/* Begins and ends epochs, and ends sessions. Each end drains the old epoch first: it closes the slot
 * in the peers map, takes all frames out of the RX ring, and returns all held buffers to the fill
 * ring. If a disk hangs, the new epoch's window is smaller by the buffers that the disk holds. */
#include "link/send/group.h"
#include "link/link_private.h"
#include "link/repair/repair.h"
#include "link/peer/peers.h"
#include "link/session/session.h"

#include <assert.h>
#include <endian.h>

enum { HANG_MS = 200 }; /* longest wait for buffers that a disk holds */

/* Reports whether the RX ring has all frames admitted in the old epoch; then begins its drain. */
static bool is_closed(struct link_peer *peer)
{
	struct port *port = peer->link->port;

	if (peer->session->closing && (!port->ops->closed || port->ops->closed(port, peer->slot))) {
		peer->session->closing = false;
		peer->session->drain = link_drain_begin(peer->link);
	}
	return !peer->session->closing;
}

/* Ends the epoch on our side. XDP then admits no frames of the peer. */
void epoch_end(struct link_peer *peer)
{
	struct session *session = peer->session;
	struct link *link = peer->link;
	bool used = peer->phase == LINK_OPEN || link_used(peer);

	peer->phase = LINK_IDLE;
	session->bye = (struct link_drain){ 0 };
	session->question.nonce = 0;
	session->sync.token = 0;
	session->sync.asked = false;
	session->sync.disagreed = 0;
	session->sync.refused_rounds = 0;
	session->sync.refused = false;
	peer->withholding = false;
	link_ping_reset(peer);
	if (link->traditional)
		link->traditional->ops->close(peer);
	reorder_forget(peer);
	peer->repair.wanted = 0;
	link_train_reset(peer);
	flow_close(&peer->flow);
	reservation_epoch_over(peer);
	seal_over(peer);
	keyed_over(peer);
	if (!peer->cookie_in)
		return;
	link_group_admit(peer, 0, 0);
	link->port->ops->admit(link->port, peer->slot, 0, 0, 0, false);
	session->closing = true;
	session->cookie_was = peer->cookie_in;
	session->ended_ns = link->now_ns;
	peer->cookie_in = peer->cookie_plain = 0;
	/* If both ends asked at once, the window was never used: the next epoch sends the messages
	 * that waited for this one. */
	if (used) {
		peer->epoch++;
		link->changed = true;
	}
	peer->kept_old += peer->kept;
	peer->kept = 0;
	is_closed(peer); /* may begin the drain */
}

/* Reports whether enough held buffers are back for a new epoch. */
static bool buffers_are_back(const struct link_peer *peer)
{
	return !peer->kept_old ||
	       (link_peer_spares(peer) &&
		peer->link->now_ns - peer->session->ended_ns >= HANG_MS * 1000000ull);
}

/* Reports whether the buffers of the old epoch are back in the fill ring. */
bool epoch_quiet(struct link_peer *peer)
{
	const struct link *link = peer->link;

	return !peer->cookie_in && is_closed(peer) && buffers_are_back(peer) && !link->fill_count &&
	       link_drain_over(link, &peer->session->drain);
}

bool epoch_drained(struct link_peer *peer)
{
	const struct link *link = peer->link;

	return !link->resting && (!link->alone || link->alone == peer) && epoch_quiet(peer);
}

/* Opens our window to the peer. The message that grants it leaves later. */
void epoch_begin(struct link_peer *peer, uint64_t cookie)
{
	struct link *link = peer->link;
	uint32_t room = link_peer_room(peer);

	assert(epoch_drained(peer) && !peer->cookie_in);
	reservation_return(peer);
	peer->cookie_in = cookie;
	peer->cookie_plain = peer->trailer ? 0 : cookie;
	peer->session->unasked = false;
	peer->session->taken_bytes = queue_frame_bytes(link->queue);
	flow_open(&peer->flow, link_peer_window(peer), link->reserve.count);
	peer->flow.most += room;
	if (link->traditional)
		link->traditional->ops->open(peer);
	reorder_open(peer);
	peer->entry = link->port->ops->admit(link->port, peer->slot, peer->cookie_in,
					     link->traditional ? CAREFUL_WINDOW_ANY :
								 peer->flow.ahead + room,
					     link->queue->buffer_bytes, peer->trailer);
	/* Without a grant, frames fill at most the window. */
	if (!link->traditional)
		__atomic_store_n(&peer->entry->may_fill, peer->flow.most, __ATOMIC_RELEASE);
}

/* Begins to send: both ends know both windows. */
void epoch_opened(struct link_peer *peer)
{
	struct session *session = peer->session;
	struct link *link = peer->link;
	bool held;

	held = link_path_begin(peer);
	held |= link_train_begin(peer);
	peer->phase = held || seal_waits(peer) ? LINK_HELD : LINK_OPEN;
	session->epochs++;
	session->dormant = false;
	session->moved_ns = link->now_ns;
	session->heard_ns = link->now_ns;
	peer->heard = true;
	session->last_errno = 0;
	if (link->port->ops->resolve(link->port, &session->address, &peer->llhdr))
		peer->llhdr.bytes = 0;
	link_path_fit(peer);
	session->no_way = 0;
	control_watch_begin(peer);
	if (peer->phase == LINK_OPEN)
		link_state(peer, CAREFUL_PEER_UP);
}

/* Ends the session with an errno. */
void link_close(struct link_peer *peer, int error)
{
	struct session *session = peer->session;
	struct careful_ctrl ctrl = { 0 };
	struct link *link = peer->link;

	if (link_has_epoch(peer) && peer->cookie_out)
		link_say(peer, &ctrl, CAREFUL_BYE);
	epoch_end(peer);
	link_log_free(&peer->repair);
	rate_limit_session_ended(link, &session->address);
	handshake_forget(&session->handshake);
	session->want = false;
	session->dormant = false;
	peer->cookie_out = 0;
	session->last_errno = error;
	/* also ends messages that were queued before the session began */
	peer->epoch++;
	link_state(peer, error ? CAREFUL_PEER_FAILED : CAREFUL_PEER_NONE);
	link->changed = true;
}

/* Ends a session after a BYE and all earlier frames. */
void link_bye(struct link_peer *peer)
{
	peer->cookie_out = 0; /* so that link_close() sends no BYE */
	link_close(peer, ECONNRESET);
}
