// SPDX-License-Identifier: BSD-2-Clause
/* Sends the trains that a peer asked for (train.c): back-to-back frames, between other work, and
 * then TRAIN_SENT. */
#include "link/link_private.h"

#include <endian.h>
#include <string.h>

enum {
	SLICE = 512, /* frames sent at a time */
	ASKS_MAX = 16, /* trains that a peer gets in one epoch */
};

static uint32_t body_of(const struct link_peer *peer)
{
	return peer->session->train.out_tiny ? 1 : link_body_single(peer);
}

/* Handles the request for a train. A host that had many trains gets a shorter one, as TRAIN_SENT
 * reports, or none. */
bool link_on_train_ask(struct link_peer *peer, const struct careful_ctrl *ctrl)
{
	struct link_train *train = &peer->session->train;
	uint32_t frames = be32toh(ctrl->train.frames);
	uint64_t number = be64toh(ctrl->nonce);

	if (peer->phase != LINK_HELD || be64toh(ctrl->cookie) != peer->cookie_in || !number ||
	    number > UINT32_MAX)
		return false;
	if (train->asks++ >= ASKS_MAX)
		return true;
	train_hold(peer, be32toh(ctrl->train.hold_ms));
	train->out_number = (uint32_t)number;
	train->out_tiny = ctrl->train.smallest;
	if (frames > CAREFUL_TRAIN_FRAMES)
		frames = CAREFUL_TRAIN_FRAMES;
	frames = rate_limit_train(peer->link, &peer->session->address, frames,
				  peer->beside + body_of(peer));
	train->out_frames = train->left = frames;
	train->end_due = true;
	peer->link->trains = true;
	return true;
}

/* Sends one frame of the train, zeroed because its buffer held other data. */
static bool send_one(struct link_peer *peer)
{
	struct link_train *train = &peer->session->train;
	uint32_t body = body_of(peer);
	struct link_send_args args = {
		.type = CAREFUL_TRAIN,
		.msg_id = train->out_number,
		.frag_off = train->out_frames - train->left,
		.frag_bytes = (uint16_t)body,
	};
	struct link_txframe frame;

	if (!link_tx_get(peer, body, &frame)) {
		link_kick(peer->link);
		if (peer->link->kick_again || !link_tx_get(peer, body, &frame))
			return false;
	}
	memset(frame.body, 0, body);
	link_send_outside(&frame, &args, 0);
	train->left--;
	return true;
}

void link_trains_send(struct link *link)
{
	link->trains = false;
	for (uint32_t i = 0; i < link->peers_max; i++) {
		struct link_peer *peer = &link->peers[i];
		struct link_train *train = &peer->session->train;
		uint32_t slice = SLICE;

		if (!train->left || !peer->llhdr.bytes)
			continue;
		while (train->left && slice-- && !link->kick_again && send_one(peer))
			;
		link->trains |= train->left != 0;
	}
}

/* Sends TRAIN_SENT when all frames of the train have left. */
void train_out_tick(struct link_peer *peer)
{
	struct link_train *train = &peer->session->train;
	struct link *link = peer->link;

	link->trains |= train->left != 0;
	if (!train->end_due || train->left || link->kick_again || link->tx_queued)
		return;
	train->end_due = false;
	train_say(peer, CAREFUL_TRAIN_SENT, train->out_number, train->out_frames);
}
