// SPDX-License-Identifier: BSD-2-Clause
/* Received bulk messages that are complete or failed, until the engine closes them. Stores whose
 * answers lack credits keep their last receive buffer, so the peer's own window bounds them. */
#include "message/message.h"

#include <assert.h>

static struct message_peer *peer_of(const struct message_in *in)
{
	return &in->state->peers[in->peer->slot];
}

void message_in_finish(struct message_in *in)
{
	assert(in->active && !in->finished);
	in->finished = true;
	in->next = NULL;
	*in->state->finished_tail = in;
	in->state->finished_tail = &in->next;
}

/* Returns the next message that has finished, or NULL. */
struct message_in *message_in_finished(struct message_state *state)
{
	struct message_in *in = state->finished;

	if (!in)
		return NULL;
	state->finished = in->next;
	if (!state->finished)
		state->finished_tail = &state->finished;
	return in;
}

/* Queues a message whose answer waits for credits. */
void message_in_wait(struct message_in *in)
{
	struct message_peer *mp = peer_of(in);

	in->next = NULL;
	*mp->unanswered_tail = in;
	mp->unanswered_tail = &in->next;
	in->state->unanswered++;
}

/* Removes and returns the peer's first message whose answer waits. */
struct message_in *message_in_unanswered(struct message_state *state, struct message_peer *mp)
{
	struct message_in *in = mp->unanswered;

	mp->unanswered = in->next;
	if (!mp->unanswered)
		mp->unanswered_tail = &mp->unanswered;
	state->unanswered--;
	return in;
}

/* Releases a frame whose payload is placed or not wanted. */
void message_in_release(struct message_in *in, struct link_rxframe *frame)
{
	if (message_in_keeps_last(in))
		in->last_frame = link_hold(in->state->link, frame, false);
	else
		link_release(in->state->link, frame);
}

void message_in_close(struct message_in *in)
{
	assert(in->finished && !in->queue && !in->stage.busy);
	sink_queue_release(in);
	in->active = false;
	in->state->ins_free[in->state->ins_free_count++] = in;
}
