// SPDX-License-Identifier: BSD-2-Clause
/* Messages of one frame. A message that may leave at once is built in a send buffer; otherwise it
 * waits in ordinary memory, so that a peer without credits holds no send buffer. Parked messages
 * share frames (careful_am.next): many need one credit and one pass through the device. The first
 * message to a peer since the last kick leaves in its own frame, so that it neither waits for
 * others nor for their bytes on the wire. Later ones wait for the next kick anyway, and are parked
 * until just before it. */
#include "link/send/group.h"
#include "message/message.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

TRACE_COLD static void traced(const struct link_peer *peer, uint32_t bytes, uint64_t began_ns)
{
	trace_end((struct careful_trace){
		.stage = CAREFUL_STAGE_HOST_TX,
		.begin_ns = began_ns,
		.bytes = bytes,
		.frames = 1,
		.peer = peer->slot,
		.seq = link_seq_last(peer),
	});
}

/* began_ns: start of its hostTx; 0: not traced. */
static void send_small(struct link_peer *peer, struct link_txframe *frame, uint32_t bytes,
		       uint64_t began_ns)
{
	link_send(frame, &(struct link_send_args){
				 .type = CAREFUL_DATA,
				 .flags = CAREFUL_F_FIRST | CAREFUL_F_LAST,
				 .msg_bytes = bytes,
				 .frag_bytes = (uint16_t)bytes,
				 .crc_bytes = MESSAGE_AM_BYTES + bytes,
			 });
	if (began_ns)
		traced(peer, bytes, began_ns);
}

static bool is_question(const struct careful_am *am)
{
	return am->kind == CAREFUL_AM_REQUEST || am->kind == CAREFUL_AM_GET;
}

/*
 * Reports whether a get may leave. The other end keeps gets that it cannot serve yet, and has room
 * for W of each peer besides its receive buffers, so at most W gets may wait for data. With more,
 * gets could fill the buffers of both ends, and the data would never get a credit. */
static bool may_ask(const struct message_peer *mp, const struct link_peer *peer,
		    const struct careful_am *am)
{
	return am->kind != CAREFUL_AM_GET || mp->gets < link_room(peer);
}

static void count_get(struct message_peer *mp, const struct careful_am *am)
{
	if (am->kind == CAREFUL_AM_GET)
		mp->gets++;
}

void message_got(struct message_state *state, struct link_peer *peer)
{
	struct message_peer *mp = &state->peers[peer->slot];

	if (mp->gets)
		mp->gets--;
}

bool message_may_answer(const struct message_state *state, const struct link_peer *peer)
{
	return share_may(&state->parked_share, state->peers[peer->slot].parked);
}

/* Reports whether 1/part of the peer's share, or half of that part of the pool, stays free. */
static bool leaves(const struct share *share, uint32_t held, uint32_t part)
{
	return share_leaves(share, held, share->each / part, share->count / (2 * part));
}

/* Reports whether a message may be parked. Requests leave half of the peer's share, and a quarter
 * of the common room, to answers: more than must be free before a request is served. */
static bool may_park(const struct message_state *state, const struct message_peer *mp,
		     const struct careful_am *am)
{
	return is_question(am) ? leaves(&state->parked_share, mp->parked, 2) :
				 share_may(&state->parked_share, mp->parked);
}

/* Reports whether a message of the peer can be answered now. */
bool message_may_serve(const struct message_state *state, const struct link_peer *peer,
		       const struct careful_am *am)
{
	const struct message_peer *mp = &state->peers[peer->slot];

	return leaves(&state->parked_share, mp->parked, 4) &&
	       (am->kind != CAREFUL_AM_GET || share_may(&state->outs_share, mp->outs));
}

static int park(struct message_state *state, struct link_peer *peer, const struct careful_am *am,
		const void *payload, uint32_t bytes)
{
	struct message_peer *mp = &state->peers[peer->slot];
	struct message_queue *queue = is_question(am) ? &mp->questions : &mp->answers;
	struct message_small *small;

	if (!may_park(state, mp, am))
		return -EAGAIN;
	small = state->parked_free[state->parked_share.free - 1];
	share_take(&state->parked_share, &mp->parked);
	small->next = NULL;
	small->peer = peer;
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
	if (!link_is_open(peer))
		link_wake(peer);
	message_begun(state, mp);
	return 0;
}

/* Reports whether earlier messages must leave first. Usually a bit in one cache line for all peers
 * shows that none waits. */
static bool must_wait(const struct message_state *state, const struct link_peer *peer,
		      const struct careful_am *am)
{
	const struct message_peer *mp = &state->peers[peer->slot];

	if (!message_sends(state, peer->slot))
		return am->kind == CAREFUL_AM_GET && !may_ask(mp, peer, am);
	if (mp->answers.first)
		return true;
	return is_question(am) && (mp->questions.first || !may_ask(mp, peer, am));
}

/* Reports whether a message to the peer already waits for the next kick. Then this one can share a
 * frame with later ones without a delay. */
static bool has_company(const struct message_state *state, const struct message_peer *mp,
			const struct careful_am *am)
{
	return mp->left_at == state->link->kicks && state->packed_max > 1 &&
	       !(am->flags & CAREFUL_AM_ALONE);
}

/* Notes that a message has left before the next kick. */
static void has_left(struct message_state *state, struct message_peer *mp)
{
	mp->left_at = state->link->kicks;
}

/* Sends if there is room now. */
static inline __attribute__((always_inline)) bool
send_now(struct link_peer *peer, const struct careful_am *am, const void *payload, uint32_t bytes)
{
	uint32_t body = MESSAGE_AM_BYTES + bytes;
	uint64_t began_ns = trace_begin(CAREFUL_STAGE_HOST_TX);
	struct link_txframe frame;

	if (link_send_small(peer, am, payload, bytes)) {
		if (began_ns)
			traced(peer, bytes, began_ns);
		return true;
	}
	if (!link_may_send(peer, body) || !link_tx_get(peer, body, &frame))
		return false;
	memcpy(frame.body, am, MESSAGE_AM_BYTES);
	if (bytes)
		link_tx_write(&frame, MESSAGE_AM_BYTES, payload, bytes);
	send_small(peer, &frame, bytes, began_ns);
	return true;
}

/* Parks a message that may share a frame. Such messages fill at most one frame, and leave the rest
 * of the room to messages without credits. */
static int join(struct message_state *state, struct link_peer *peer, const struct careful_am *am,
		const void *payload, uint32_t bytes)
{
	struct message_peer *mp = &state->peers[peer->slot];
	int rc = park(state, peer, am, payload, bytes);

	if (rc || ++mp->together >= state->packed_max)
		message_small_pump(state, peer);
	if (!rc)
		return 0;
	if (must_wait(state, peer, am) || !send_now(peer, am, payload, bytes))
		return park(state, peer, am, payload, bytes);
	count_get(mp, am);
	return 0;
}

/* Sends or parks a message; the payload is copied either way. -EAGAIN: nothing is free.
 */
int message_small(struct message_state *state, struct link_peer *peer, const struct careful_am *am,
		  const void *payload, uint32_t bytes)
{
	struct message_peer *mp = &state->peers[peer->slot];

	if (MESSAGE_AM_BYTES + bytes > state->link->queue->buffer_bytes)
		return -EMSGSIZE;
	if (has_company(state, mp, am))
		return join(state, peer, am, payload, bytes);
	if (must_wait(state, peer, am) || !send_now(peer, am, payload, bytes))
		return park(state, peer, am, payload, bytes);
	has_left(state, mp);
	count_get(mp, am);
	return 0;
}

/* Sends or parks a message that was built in a lent send buffer, behind room for careful_am. The
 * loan ends. -EAGAIN: the buffer stays lent. */
int message_small_lent(struct message_state *state, struct link_peer *peer,
		       const struct careful_am *am, uint8_t *body, uint32_t bytes)
{
	uint64_t began_ns = trace_begin(CAREFUL_STAGE_HOST_TX);
	struct link_txframe frame;
	int rc;

	if (must_wait(state, peer, am) || !link_may_send(peer, MESSAGE_AM_BYTES + bytes)) {
		rc = park(state, peer, am, body + MESSAGE_AM_BYTES, bytes);
		if (!rc)
			link_unlend(state->link, body);
		return rc;
	}
	memcpy(body, am, MESSAGE_AM_BYTES);
	link_tx_lent(peer, body, MESSAGE_AM_BYTES + bytes, &frame);
	send_small(peer, &frame, bytes, began_ns);
	has_left(state, &state->peers[peer->slot]);
	return 0;
}

/* Reports whether a message of this size could leave at once: it has credits, and no earlier one
 * waits. */
bool message_small_may(struct message_state *state, struct link_peer *peer, uint32_t bytes)
{
	const struct message_peer *mp = &state->peers[peer->slot];

	if (mp->together)
		message_small_pump(state, peer);
	return !mp->answers.first && !mp->questions.first &&
	       link_may_send(peer, MESSAGE_AM_BYTES + bytes);
}

/* Sends without parking. Returns false, and keeps nothing, if it cannot leave now. */
bool message_small_now(struct message_state *state, struct link_peer *peer,
		       const struct careful_am *am, const void *payload, uint32_t bytes)
{
	return message_small_may(state, peer, bytes) && send_now(peer, am, payload, bytes);
}

/* Sends to all members of a group, whose credits have been set aside. */
bool message_small_group(struct link_group *group, const struct careful_am *am, const void *payload,
			 uint32_t bytes)
{
	const struct link_send_args args = {
		.type = CAREFUL_DATA,
		.flags = CAREFUL_F_FIRST | CAREFUL_F_LAST,
		.msg_bytes = bytes,
		.frag_bytes = (uint16_t)bytes,
		.crc_bytes = MESSAGE_AM_BYTES + bytes,
	};
	uint64_t began_ns = trace_begin(CAREFUL_STAGE_HOST_TX);
	struct link_txframe frame;

	if (!link_group_get(group, MESSAGE_AM_BYTES + bytes, &frame))
		return false;
	memcpy(frame.body, am, MESSAGE_AM_BYTES);
	if (bytes)
		link_tx_write(&frame, MESSAGE_AM_BYTES, payload, bytes);
	link_group_send(group, &frame, &args);
	if (began_ns)
		traced(frame.peer, bytes, began_ns);
	return true;
}

/* Asks for confirmation that all earlier frames have come; now or never. Every engine answers a
 * request without a handler. */
bool message_ask(struct link_peer *peer, uint32_t token)
{
	const struct careful_am am = {
		.kind = CAREFUL_AM_REQUEST,
		.handler = htobe16(CAREFUL_HANDLERS),
		.token = htobe32(token),
	};
	struct link_txframe frame;

	if (!link_may_send(peer, MESSAGE_AM_BYTES) || !link_tx_get(peer, MESSAGE_AM_BYTES, &frame))
		return false;
	memcpy(frame.body, &am, MESSAGE_AM_BYTES);
	send_small(peer, &frame, 0, 0);
	return true;
}

static struct message_small *take_first(struct message_queue *queue)
{
	struct message_small *small = queue->first;

	queue->first = small->next;
	if (!queue->first)
		queue->last = NULL;
	return small;
}

static void put(struct message_state *state, struct message_small *small)
{
	state->parked_free[state->parked_share.free] = small;
	share_put(&state->parked_share, &state->peers[small->peer->slot].parked);
}

/* Takes out messages that are too large for the session's frames. Before there is a session only
 * our own frame size is known, and the peer's may be smaller. Such a frame would count as lost by
 * the network. */
static bool take_unfit(struct message_state *state, struct link_peer *peer,
		       struct message_queue *queue)
{
	struct message_small *small = queue->first;

	if (small->epoch != peer->epoch || !link_too_large(peer, MESSAGE_AM_BYTES + small->bytes))
		return false;
	message_over(state, &state->peers[peer->slot]);
	take_first(queue);
	small->next = state->unfit;
	state->unfit = small;
	state->untold = true;
	return true;
}

/* Returns the next message that is too large for its session. */
bool message_small_unfit(struct message_state *state, struct careful_am *am,
			 struct link_peer **peer, uint64_t *epoch)
{
	struct message_small *small = state->unfit;

	if (!small)
		return false;
	state->unfit = small->next;
	memcpy(am, small->body, sizeof(*am));
	*peer = small->peer;
	*epoch = small->epoch;
	put(state, small);
	return true;
}

static const struct careful_am *am_of(const struct message_small *small)
{
	return (const struct careful_am *)small->body;
}

/* Returns how many messages at the head of a queue fit one frame, and its body's bytes. */
static uint32_t gather(const struct message_state *state, const struct link_peer *peer,
		       const struct message_small *small, uint32_t *body_bytes)
{
	uint32_t most = link_knows(peer) ? link_body_single(peer) : 0;
	uint32_t n_max = am_of(small)->flags & CAREFUL_AM_ALONE ? 1 : state->packed_max;
	uint32_t gets = state->peers[peer->slot].gets;
	uint32_t n = 0;

	*body_bytes = 0;
	do {
		gets += am_of(small)->kind == CAREFUL_AM_GET;
		*body_bytes += MESSAGE_AM_BYTES + small->bytes;
		n++;
		small = small->next;
	} while (n < n_max && small && small->epoch == peer->epoch &&
		 !(am_of(small)->flags & CAREFUL_AM_ALONE) &&
		 *body_bytes + MESSAGE_AM_BYTES + small->bytes <= most &&
		 (am_of(small)->kind != CAREFUL_AM_GET || gets < link_room(peer)));
	return n;
}

static void drop_first(struct message_state *state, struct link_peer *peer,
		       struct message_queue *queue)
{
	message_over(state, &state->peers[peer->slot]);
	put(state, take_first(queue));
}

static void pack(struct message_state *state, struct message_queue *queue, uint32_t n,
		 struct link_txframe *frame)
{
	struct message_peer *mp = &state->peers[frame->peer->slot];
	uint32_t at = 0;

	for (uint32_t i = 0; i < n; i++) {
		struct message_small *small = queue->first;
		struct careful_am *am = (struct careful_am *)small->body;
		uint32_t bytes = MESSAGE_AM_BYTES + small->bytes;

		am->next = htobe32(i + 1 < n ? bytes : 0);
		link_tx_write(frame, at, small->body, bytes);
		count_get(mp, am);
		at += bytes;
		drop_first(state, frame->peer, queue);
	}
}

/* Sends a queue's messages as far as credits allow. Returns false if some still wait. */
static bool pump_queue(struct message_state *state, struct link_peer *peer,
		       struct message_queue *queue)
{
	struct message_peer *mp = &state->peers[peer->slot];
	struct link_txframe frame;

	while (queue->first) {
		uint32_t body_bytes, n;
		uint64_t began_ns;

		if (take_unfit(state, peer, queue))
			continue;
		if (queue->first->epoch != peer->epoch) {
			drop_first(state, peer, queue);
			continue;
		}
		began_ns = trace_begin(CAREFUL_STAGE_HOST_TX);
		if (!may_ask(mp, peer, am_of(queue->first)))
			return true; /* it waits for data, not for credits */
		n = gather(state, peer, queue->first, &body_bytes);
		if (!link_may_send(peer, body_bytes) || !link_tx_get(peer, body_bytes, &frame))
			return false;
		pack(state, queue, n, &frame);
		send_small(peer, &frame, body_bytes - MESSAGE_AM_BYTES, began_ns);
		has_left(state, mp);
	}
	return true;
}

/* Sends parked messages. Returns false if some still wait for credits or send buffers.
 */
bool message_small_pump(struct message_state *state, struct link_peer *peer)
{
	struct message_peer *mp = &state->peers[peer->slot];

	mp->together = 0;
	return pump_queue(state, peer, &mp->answers) && pump_queue(state, peer, &mp->questions);
}
