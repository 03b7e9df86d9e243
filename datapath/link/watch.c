// SPDX-License-Identifier: BSD-2-Clause
/*
 * Checks that control messages pass while frames do. They take another way: XDP takes frames before
 * a firewall sees them, the kernel's socket gets control after it. Traffic that goes on needs no
 * control for a long time, so each end asks once in a while whether it is heard, and says so where
 * it is not: the next loss would end the session.
 */
#include "link/link.h"

#include <endian.h>

enum {
	WATCH_SYNCS = 10, /* sync_ms between two questions, */
	WATCH_TIMES = 3, /* of which so many in a row have no answer before that is said */
};

/* A handshake is over: control messages passed. */
void watch_begin(struct link_peer *peer)
{
	peer->session->watch = (struct link_watch){
		.asked_ns = peer->link->now_ns,
		.frames = peer->rx_frames,
	};
}

/* At once, and without what is owed: that would be lost where it says nothing to the peer. */
void watch_answer(struct link_peer *peer, const struct careful_ctrl *sync)
{
	struct careful_ctrl ack = {
		.nonce = sync->nonce,
		.cookie = htobe64(peer->cookie_out),
	};

	if (link_has_epoch(peer))
		link_say(peer, &ack, CAREFUL_SYNC_ACK);
}

void watch_heard(struct link_peer *peer)
{
	struct link_watch *watch = &peer->session->watch;

	watch->nonce = 0;
	watch->missed = 0;
}

/* Reports whether the answer is one of ours, which says nothing of what is owed. */
bool watch_on_answer(struct link_peer *peer, const struct careful_ctrl *ack)
{
	struct link_watch *watch = &peer->session->watch;

	if (!watch->nonce || be64toh(ack->nonce) != watch->nonce)
		return false;
	watch_heard(peer);
	return true;
}

void watch_ask(struct link_peer *peer)
{
	struct session *session = peer->session;
	struct link_watch *watch = &session->watch;
	struct careful_ctrl ctrl = {
		.status = htobe32(CAREFUL_SYNC_HEARD),
		.cookie = htobe64(peer->cookie_out),
		.seq_sent = htobe32(peer->flow.seq_out),
	};

	watch->nonce = link_random(peer->link);
	ctrl.nonce = htobe64(watch->nonce);
	link_say(peer, &ctrl, CAREFUL_SYNC);
}

/* A question counts as missed where frames came after it; whose frames don't come either is
 * sync.c's business. */
void watch_tick(struct link_peer *peer)
{
	struct link_watch *watch = &peer->session->watch;
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
	watch_ask(peer);
}

bool watch_unheard(const struct link_peer *peer)
{
	return peer->phase == LINK_OPEN && peer->session->watch.missed >= WATCH_TIMES;
}
