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

static int stage(struct message_state *state, struct link_peer *peer, const struct careful_am *am,
		 const void *payload, uint32_t bytes)
{
	struct message_peer *mp = &state->peers[peer->slot];
	struct message_small *small;

	if (!state->staged_free_count)
		return -EAGAIN;
	small = state->staged_free[--state->staged_free_count];
	small->next = NULL;
	small->epoch = peer->epoch;
	small->bytes = bytes;
	memcpy(small->body, am, MESSAGE_AM_BYTES);
	if (bytes)
		memcpy(small->body + MESSAGE_AM_BYTES, payload, bytes);
	if (mp->small_last)
		mp->small_last->next = small;
	else
		mp->small_first = small;
	mp->small_last = small;
	mp->messages++;
	return 0;
}

/* Sends, or stages; the payload is copied either way. -EAGAIN: nothing is free. */
int message_small(struct message_state *state, struct link_peer *peer, const struct careful_am *am,
		  const void *payload, uint32_t bytes)
{
	uint32_t body = MESSAGE_AM_BYTES + bytes;
	struct link_txframe frame;

	if (body > state->link->dev->buffer_bytes)
		return -EMSGSIZE;
	if (state->peers[peer->slot].small_first || !link_may_send(peer, body) ||
	    !link_tx_get(peer, body, &frame))
		return stage(state, peer, am, payload, bytes);
	memcpy(frame.body, am, MESSAGE_AM_BYTES);
	if (bytes)
		link_tx_write(&frame, MESSAGE_AM_BYTES, payload, bytes);
	send_small(peer, &frame, bytes);
	return 0;
}

/* Sends what was staged, as far as credits go; false: something still waits. */
bool message_small_pump(struct message_state *state, struct link_peer *peer)
{
	struct message_peer *mp = &state->peers[peer->slot];
	struct link_txframe frame;

	while (mp->small_first) {
		struct message_small *small = mp->small_first;
		uint32_t body = MESSAGE_AM_BYTES + small->bytes;

		if (small->epoch == peer->epoch) {
			if (!link_may_send(peer, body) || !link_tx_get(peer, body, &frame))
				return false;
			link_tx_write(&frame, 0, small->body, body);
			send_small(peer, &frame, small->bytes);
		}
		mp->small_first = small->next;
		if (!mp->small_first)
			mp->small_last = NULL;
		mp->messages--;
		state->staged_free[state->staged_free_count++] = small;
	}
	return true;
}
