// SPDX-License-Identifier: BSD-2-Clause
/* The terms of a session: each end describes its receive side in HELLO or WELCOME, and adopts the
 * other's. */
#include "link/link_private.h"
#include "link/peer/peers.h"
#include "link/repair/repair.h"
#include "link/session/session.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

enum {
	/* Limits of the buffer size that a peer may announce. With larger ones, frames would cost
	 * nothing. */
	BUFFER_BYTES_MIN = 256,
	BUFFER_BYTES_MAX = 1 << 16,
};

/* Returns the protocol flags of HELLO and WELCOME. */
uint32_t handshake_flags(const struct link *link)
{
	return link_protocol(link) | (link->repairs ? CAREFUL_SAYS_REPAIRS : 0);
}

/* Writes our receive side into HELLO or WELCOME. */
void handshake_describe(const struct link_peer *peer, struct careful_ctrl *ctrl)
{
	const struct link *link = peer->link;
	struct careful_terms *terms = &ctrl->terms;

	ctrl->cookie = htobe64(peer->cookie_in);
	ctrl->slot = htobe16(peer->slot);
	ctrl->queue = htobe16(link->queue->index);
	terms->window = htobe32(peer->flow.rx.size);
	terms->reserve = htobe32(link->reserve.count);
	terms->hold_ms = htobe32(link_train_hold_ms(peer));
	terms->buffer_bytes = htobe32(link->queue->buffer_bytes);
	terms->frame_bytes = htobe32(peer->session->taken_bytes);
	terms->lost = htobe32((uint32_t)(peer->session->lost_here - peer->session->lost_before));
	terms->protocol = htobe32(handshake_flags(link));
	memcpy(terms->name, link->name, sizeof(terms->name));
	terms->minor = CAREFUL_WIRE_MINOR;
}

/* Notes whether the peer is a new process. */
void handshake_note_incarnation(struct link_peer *peer, const struct careful_ctrl *ctrl)
{
	struct session *session = peer->session;
	if (session->incarnation == be64toh(ctrl->incarnation))
		return;
	session->incarnation = be64toh(ctrl->incarnation);
	session->lives++;
	session->lost_said = 0;
	session->lost_before = session->lost_here;
	peer->link->changed = true;
}

/* Takes the peer's count of lost frames, which may have restarted from 0. */
static void take_lost(struct link_peer *peer, const struct careful_ctrl *ctrl)
{
	struct session *session = peer->session;
	uint32_t lost = be32toh(ctrl->terms.lost);

	session->lost_there += lost < session->lost_said ? lost : lost - session->lost_said;
	session->lost_said = lost;
}

/* Adopts the peer's receive side, which decides how we may send. -EPROTO if it is unusable. */
int handshake_adopt(struct link_peer *peer, const union address *from,
		    const struct careful_ctrl *ctrl)
{
	const struct careful_terms *terms = &ctrl->terms;
	struct session *session = peer->session;
	uint32_t window = be32toh(terms->window);
	uint32_t reserve = be32toh(terms->reserve) / 2; /* most for one sender (reservation.c) */
	uint32_t buffer_bytes = be32toh(terms->buffer_bytes);
	uint32_t frame_bytes = be32toh(terms->frame_bytes);
	uint64_t limit;

	/* The peer may now use another of our addresses. */
	memcpy(session->address.ours, from->ours, sizeof(from->ours));
	if (window < WINDOW_MIN || window > 1u << 20 || !ctrl->cookie)
		return -EPROTO;
	if (buffer_bytes < BUFFER_BYTES_MIN || buffer_bytes > BUFFER_BYTES_MAX)
		return -EPROTO;
	limit = (uint64_t)window_cost_max(window) * buffer_bytes;
	if (frame_bytes > queue_frame_bytes(peer->link->queue))
		frame_bytes = queue_frame_bytes(peer->link->queue);
	if (frame_bytes > limit)
		frame_bytes = (uint32_t)limit;
	if (frame_bytes < DEVICE_FRAME_BYTES_MIN)
		return -EPROTO;
	reserve = reserve < LINK_GRANT_MAX ? reserve : LINK_GRANT_MAX;
	if (link_log_open(peer, window, reserve))
		return -EPROTO;
	peer->cookie_out = be64toh(ctrl->cookie);
	peer->slot_out = be16toh(ctrl->slot);
	peer->queue_out = be16toh(ctrl->queue);
	peer->buffer_bytes = buffer_bytes;
	peer->frame_bytes = session->frame_bytes = frame_bytes;
	memcpy(session->name, terms->name, sizeof(terms->name)); /* its last byte stays 0 */
	session->minor = terms->minor > CAREFUL_WIRE_MINOR ? CAREFUL_WIRE_MINOR : terms->minor;
	handshake_note_incarnation(peer, ctrl);
	take_lost(peer, ctrl);
	session->train.hold_ms = be32toh(terms->hold_ms);
	flow_grant(&peer->flow, window, reserve);
	return 0;
}

/* Opens our window. With keys the cookie follows from the message that grants the window, so the
 * message is made now and repeated unchanged. */
void handshake_begin(struct link_peer *peer, uint8_t type)
{
	struct careful_ctrl ctrl = { 0 };

	if (!peer->link->keyed) {
		epoch_begin(peer, link_random(peer->link));
		return;
	}
	epoch_begin(peer, keyed_begin(peer, type));
	handshake_describe(peer, &ctrl);
	seal_describe(peer, type, &ctrl);
	keyed_seal(peer, &ctrl);
}
