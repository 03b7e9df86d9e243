// SPDX-License-Identifier: BSD-2-Clause
/* Messages of one frame. A message that may leave now is built in a send buffer. Otherwise it is
 * parked in ordinary memory, so that a peer without credits holds no send buffer. Parked messages
 * share frames (careful_am.next), and so one credit. The first message to a peer since the last
 * kick leaves in its own frame, without delay. Later ones have to wait for the next kick, so they
 * are parked until just before it. */
#include "link/send/group.h"
#include "message/message.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

TRACE_COLD static void trace_small(const struct link_peer *peer, uint32_t bytes, uint64_t began_ns)
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
		trace_small(peer, bytes, began_ns);
}

static bool is_question(const struct careful_am *am)
{
	return am->kind == CAREFUL_AM_REQUEST || am->kind == CAREFUL_AM_GET;
}

/* Reports whether a get may leave; other messages always may. The peer queues gets that it cannot
 * serve yet: W of ours, besides those in its receive buffers. With more than W, gets could fill the
 * buffers of both ends, and the data would never get a credit. */
static bool may_get(const struct message_peer *mp, const struct link_peer *peer,
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
static bool stays_free(const struct share *share, uint32_t held, uint32_t part)
{
	return share_leaves(share, held, share->each / part, share->count / (2 * part));
}

/* Reports whether a message may be parked. Requests leave room for answers, and more of it than
 * message_may_serve() needs. */
static bool may_park(const struct message_state *state, const struct message_peer *mp,
		     const struct careful_am *am)
{
	return is_question(am) ? stays_free(&state->parked_share, mp->parked, 2) :
				 share_may(&state->parked_share, mp->parked);
}

/* Reports whether a message of the peer can be answered now. */
bool message_may_serve(const struct message_state *state, const struct link_peer *peer,
		       const struct careful_am *am)
{
	const struct message_peer *mp = &state->peers[peer->slot];

	return stays_free(&state->parked_share, mp->parked, 4) &&
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

/* Reports whether a message must wait: for earlier ones, or a get for its limit. Usually none
 * waits, as the peer's bit shows; the bits of all peers share a cache line. */
static bool must_wait(const struct message_state *state, const struct link_peer *peer,
		      const struct careful_am *am)
{
	const struct message_peer *mp = &state->peers[peer->slot];

	if (!message_sends(state, peer->slot))
		return am->kind == CAREFUL_AM_GET && !may_get(mp, peer, am);
	if (mp->answers.first)
		return true;
	return is_question(am) && (mp->questions.first || !may_get(mp, peer, am));
}

/* Reports whether a message can wait for others to share its frame: the peer's last message still
 * waits for the next kick, so this causes no delay. */
static bool may_pack(const struct message_state *state, const struct message_peer *mp,
		     const struct careful_am *am)
{
	return mp->sent_kick == state->link->kicks && state->packed_max > 1 &&
	       !(am->flags & CAREFUL_AM_ALONE);
}

static void note_sent(struct message_state *state, struct message_peer *mp)
{
	mp->sent_kick = state->link->kicks;
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
			trace_small(peer, bytes, began_ns);
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

/* Parks a message that may share a frame. A full frame of them leaves now, so that parking space is
 * left for messages without credits. */
static int park_packable(struct message_state *state, struct link_peer *peer,
			 const struct careful_am *am, const void *payload, uint32_t bytes)
{
	struct message_peer *mp = &state->peers[peer->slot];
	int rc = park(state, peer, am, payload, bytes);

	if (rc || ++mp->packable >= state->packed_max)
		message_small_pump(state, peer);
	if (!rc)
		return 0;
	if (must_wait(state, peer, am) || !send_now(peer, am, payload, bytes))
		return park(state, peer, am, payload, bytes);
	count_get(mp, am);
	return 0;
}

/* Sends or parks a message; the payload is copied either way. -EAGAIN: no room. */
int message_small(struct message_state *state, struct link_peer *peer, const struct careful_am *am,
		  const void *payload, uint32_t bytes)
{
	struct message_peer *mp = &state->peers[peer->slot];

	if (MESSAGE_AM_BYTES + bytes > state->link->queue->buffer_bytes)
		return -EMSGSIZE;
	if (may_pack(state, mp, am))
		return park_packable(state, peer, am, payload, bytes);
	if (must_wait(state, peer, am) || !send_now(peer, am, payload, bytes))
		return park(state, peer, am, payload, bytes);
	note_sent(state, mp);
	count_get(mp, am);
	return 0;
}

/* Sends or parks a message that was built in a lent send buffer, behind space for careful_am. Ends
 * the loan. -EAGAIN: no room; the buffer stays lent. */
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
	note_sent(state, &state->peers[peer->slot]);
	return 0;
}

/* Sends waiting messages, then reports whether one of this size could leave, too. */
bool message_small_may(struct message_state *state, struct link_peer *peer, uint32_t bytes)
{
	const struct message_peer *mp = &state->peers[peer->slot];

	if (mp->packable)
		message_small_pump(state, peer);
	return !mp->answers.first && !mp->questions.first &&
	       link_may_send(peer, MESSAGE_AM_BYTES + bytes);
}

/* Sends a message now. Returns false if it cannot leave without waiting. */
bool message_small_now(struct message_state *state, struct link_peer *peer,
		       const struct careful_am *am, const void *payload, uint32_t bytes)
{
	return message_small_may(state, peer, bytes) && send_now(peer, am, payload, bytes);
}

/* Sends to all members of a group, whose credits the group has reserved. */
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
		trace_small(frame.peer, bytes, began_ns);
	return true;
}

/* Asks the peer to confirm that all earlier frames have arrived. Returns false if the request
 * cannot leave now. Every engine answers a request for this unused handler. */
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

/* Moves the queue's first message to state->failed if it exceeds the session's frames. Before
 * the session only our own limit was known. */
static bool take_too_large(struct message_state *state, struct link_peer *peer,
			   struct message_queue *queue)
{
	struct message_small *small = queue->first;

	if (small->epoch != peer->epoch || !link_too_large(peer, MESSAGE_AM_BYTES + small->bytes))
		return false;
	message_over(state, &state->peers[peer->slot]);
	take_first(queue);
	small->error = EMSGSIZE;
	small->next = state->failed;
	state->failed = small;
	state->has_ended = true;
	return true;
}

/* Finds the next message that failed. Returns a positive errno; 0: there is none. */
int message_small_failed(struct message_state *state, struct careful_am *am,
			 struct link_peer **peer, uint64_t *epoch)
{
	struct message_small *small = state->failed;

	if (!small)
		return 0;
	state->failed = small->next;
	memcpy(am, small->body, sizeof(*am));
	*peer = small->peer;
	*epoch = small->epoch;
	put(state, small);
	return small->error;
}

static const struct careful_am *am_of(const struct message_small *small)
{
	return (const struct careful_am *)small->body;
}

/* Returns the number of messages from `small` on that fit one frame, and the bytes of its body. */
static uint32_t count_fitting(const struct message_state *state, const struct link_peer *peer,
			      const struct message_small *small, uint32_t *body_bytes)
{
	uint32_t body_max = link_knows_size(peer) ? link_body_single(peer) : 0;
	bool alone = am_of(small)->flags & CAREFUL_AM_ALONE || link_searches(peer);
	uint32_t n_max = alone ? 1 : state->packed_max;
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
		 *body_bytes + MESSAGE_AM_BYTES + small->bytes <= body_max &&
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
	uint32_t offset = 0;

	for (uint32_t i = 0; i < n; i++) {
		struct message_small *small = queue->first;
		struct careful_am *am = (struct careful_am *)small->body;
		uint32_t bytes = MESSAGE_AM_BYTES + small->bytes;

		am->next = htobe32(i + 1 < n ? bytes : 0);
		link_tx_write(frame, offset, small->body, bytes);
		count_get(mp, am);
		offset += bytes;
		drop_first(state, frame->peer, queue);
	}
}

/* Sends a queue's messages while credits last. Returns false if some still wait for credits. */
static bool pump_queue(struct message_state *state, struct link_peer *peer,
		       struct message_queue *queue)
{
	struct message_peer *mp = &state->peers[peer->slot];
	struct link_txframe frame;

	while (queue->first) {
		uint32_t body_bytes, n;
		uint64_t began_ns;

		if (take_too_large(state, peer, queue))
			continue;
		if (queue->first->epoch != peer->epoch) {
			drop_first(state, peer, queue);
			continue;
		}
		began_ns = trace_begin(CAREFUL_STAGE_HOST_TX);
		if (!may_get(mp, peer, am_of(queue->first)))
			return true; /* the get waits for data, not for credits */
		n = count_fitting(state, peer, queue->first, &body_bytes);
		if (!link_may_send(peer, body_bytes) || !link_tx_get(peer, body_bytes, &frame))
			return false;
		pack(state, queue, n, &frame);
		send_small(peer, &frame, body_bytes - MESSAGE_AM_BYTES, began_ns);
		note_sent(state, mp);
	}
	return true;
}

/* Sends parked messages. Returns false if some still wait for credits or send buffers. */
bool message_small_pump(struct message_state *state, struct link_peer *peer)
{
	struct message_peer *mp = &state->peers[peer->slot];

	mp->packable = 0;
	return pump_queue(state, peer, &mp->answers) && pump_queue(state, peer, &mp->questions);
}
