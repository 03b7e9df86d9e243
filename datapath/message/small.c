// SPDX-License-Identifier: BSD-2-Clause
/*
 * Messages of one frame: built in a send buffer when one may leave at once, else
 * staged in ordinary memory, so that a peer without credits holds no send buffer.
 */
#include "message/message.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

static void send_small(struct link_peer *peer, struct link_txframe *frame, uint32_t bytes)
{
	link_send(peer, frame,
		  &(struct link_send_args){
			  .type = CAREFUL_DATA,
			  .flags = CAREFUL_F_FIRST | CAREFUL_F_LAST,
			  .msg_bytes = bytes,
			  .frag_bytes = (uint16_t)bytes,
			  .crc_bytes = MESSAGE_AM_BYTES + bytes,
		  });
}

/*
 * Requests and gets: the other end may have to keep them until it can answer. It has
 * room for W of each peer beside its receive buffers, so no more may be without an
 * answer; else the buffers of both ends could fill with questions, and nothing that is
 * an answer would come through.
 */
static bool is_question(const struct careful_am *am)
{
	return am->kind == CAREFUL_AM_REQUEST || am->kind == CAREFUL_AM_GET;
}

/* Of those that want one. */
static bool may_ask(const struct message_peer *mp, const struct link_peer *peer)
{
	return mp->asked < peer->tx.size;
}

static void count_asked(struct message_peer *mp, const struct careful_am *am)
{
	mp->asked += is_question(am) && am->token;
}

void message_answered(struct message_state *state, struct link_peer *peer)
{
	struct message_peer *mp = &state->peers[peer->slot];

	if (mp->asked)
		mp->asked--;
}

static int stage(struct message_state *state, struct link_peer *peer, const struct careful_am *am,
		 const void *payload, uint32_t bytes)
{
	struct message_peer *mp = &state->peers[peer->slot];
	struct message_queue *queue = is_question(am) ? &mp->questions : &mp->answers;
	struct message_small *small;

	/* The last quarter is for answers. */
	if (state->staged_free_count <= (is_question(am) ? state->staged_count / 4 : 0))
		return -EAGAIN;
	small = state->staged_free[--state->staged_free_count];
	small->next = NULL;
	small->epoch = peer->epoch;
	small->bytes = bytes;
	memcpy(small->body, am, MESSAGE_AM_BYTES);
	if (bytes)
		memcpy(small->body + MESSAGE_AM_BYTES, payload, bytes);
	if (queue->last)
		queue->last->next = small;
	else
		queue->first = small;
	queue->last = small;
	mp->messages++;
	return 0;
}

/* Whether others wait that must leave before. */
static bool must_wait(const struct message_peer *mp, const struct link_peer *peer,
		      const struct careful_am *am)
{
	if (mp->answers.first)
		return true;
	return is_question(am) && (mp->questions.first || !may_ask(mp, peer));
}

/* Sends, or stages; the payload is copied either way. -EAGAIN: nothing is free.
 */
int message_small(struct message_state *state, struct link_peer *peer, const struct careful_am *am,
		  const void *payload, uint32_t bytes)
{
	struct message_peer *mp = &state->peers[peer->slot];
	uint32_t body = MESSAGE_AM_BYTES + bytes;
	struct link_txframe frame;

	if (body > state->link->dev->buffer_bytes)
		return -EMSGSIZE;
	if (must_wait(mp, peer, am) || !link_may_send(peer, body) ||
	    !link_tx_get(peer, body, &frame))
		return stage(state, peer, am, payload, bytes);
	memcpy(frame.body, am, MESSAGE_AM_BYTES);
	if (bytes)
		link_tx_write(&frame, MESSAGE_AM_BYTES, payload, bytes);
	count_asked(mp, am);
	send_small(peer, &frame, bytes);
	return 0;
}

/* Sends what waits in a queue, as far as credits go; false: something still
 * waits. */
static bool pump_queue(struct message_state *state, struct link_peer *peer,
		       struct message_queue *queue)
{
	struct message_peer *mp = &state->peers[peer->slot];
	struct link_txframe frame;

	while (queue->first) {
		struct message_small *small = queue->first;
		uint32_t body = MESSAGE_AM_BYTES + small->bytes;
		struct careful_am am;

		if (small->epoch == peer->epoch) {
			if (queue == &mp->questions && !may_ask(mp, peer))
				return true; /* it waits for an answer, not for credits */
			if (!link_may_send(peer, body) || !link_tx_get(peer, body, &frame))
				return false;
			link_tx_write(&frame, 0, small->body, body);
			memcpy(&am, small->body, sizeof(am));
			count_asked(mp, &am);
			send_small(peer, &frame, small->bytes);
		}
		queue->first = small->next;
		if (!queue->first)
			queue->last = NULL;
		mp->messages--;
		state->staged_free[state->staged_free_count++] = small;
	}
	return true;
}

/* Sends what was staged; false: some of it waits for credits or send buffers.
 */
bool message_small_pump(struct message_state *state, struct link_peer *peer)
{
	struct message_peer *mp = &state->peers[peer->slot];

	return pump_queue(state, peer, &mp->answers) && pump_queue(state, peer, &mp->questions);
}
