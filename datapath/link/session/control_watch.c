// SPDX-License-Identifier: BSD-2-Clause
/* Checks that control messages pass while frames do. A firewall sees control messages, but not the
 * frames that XDP takes, and steady traffic needs no control messages. So each end asks now and then
 * whether the peer hears it, and reports if it does not: the next loss would end the session. */
#include "link/link_private.h"
#include "link/peer/peers.h"
#include "link/session/session.h"

#include <endian.h>

enum {
	WATCH_SYNCS = 10, /* time between two questions, in sync_ms */
	WATCH_TIMES = 3, /* unanswered questions in a row before the report */
};

/* Begins at the end of a handshake, when control messages have passed. */
void control_watch_begin(struct link_peer *peer)
{
	peer->session->control_watch = (struct control_watch){
		.asked_ns = peer->link->now_ns,
		.frames = peer->rx_frames,
	};
}

/* Answers the peer's question, without counts or credits. */
void control_watch_answer(struct link_peer *peer, const struct careful_ctrl *sync)
{
	struct careful_ctrl ack = { .nonce = sync->nonce };

	if (link_has_epoch(peer))
		link_say(peer, &ack, CAREFUL_SYNC_ACK);
}

void control_watch_heard(struct link_peer *peer)
{
	struct control_watch *watch = &peer->session->control_watch;

	watch->nonce = 0;
	watch->missed = 0;
}

/* Reports whether a SYNC_ACK answers our question. */
bool control_watch_on_answer(struct link_peer *peer, const struct careful_ctrl *ack)
{
	struct control_watch *watch = &peer->session->control_watch;

	if (!watch->nonce || be64toh(ack->nonce) != watch->nonce)
		return false;
	control_watch_heard(peer);
	return true;
}

void control_watch_ask(struct link_peer *peer)
{
	struct control_watch *watch = &peer->session->control_watch;
	struct careful_ctrl ctrl = {
		.counts.question = htobe32(CAREFUL_SYNC_HEARD),
		.counts.seq_sent = htobe32(peer->flow.seq_out),
	};

	watch->nonce = link_random(peer->link);
	ctrl.nonce = htobe64(watch->nonce);
	link_say(peer, &ctrl, CAREFUL_SYNC);
}

/* Counts a question as missed only if frames came after it. If no frames come either, sync.c
 * acts. */
void control_watch_tick(struct link_peer *peer)
{
	struct control_watch *watch = &peer->session->control_watch;
	struct link *link = peer->link;
	bool came = peer->rx_frames != watch->frames;

	if (link->now_ns - watch->asked_ns < WATCH_SYNCS * link->sync_ms * 1000000ull)
		return;
	watch->missed += watch->nonce && came;
	watch->nonce = 0;
	watch->asked_ns = link->now_ns;
	watch->frames = peer->rx_frames;
	if (!came)
		return;
	control_watch_ask(peer);
}

bool control_watch_unheard(const struct link_peer *peer)
{
	return peer->phase == LINK_OPEN && peer->session->control_watch.missed >= WATCH_TIMES;
}
