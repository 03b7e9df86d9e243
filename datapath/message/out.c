// SPDX-License-Identifier: BSD-2-Clause
/* Sends bulk messages: filled frames leave while credits last, and are kicked by the minpulse rule
 * (P3 section 3). The plan is for an idle path: bytes that waited for netTx, other messages or room
 * leave in the largest frames (P5 figure 3). */
#include "message/host_tx.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

enum {
	/* Ready bytes that leave without waiting for a busy netTx: a device that completes them
	 * would idle until the next kick. */
	NET_TX_PULSE_MAX = 65536,
};

/* Reports whether a store may begin: it leaves half of the peer's share, and an eighth of the pool,
 * to the data of gets. */
bool message_may_store(const struct message_state *state, const struct link_peer *peer)
{
	const struct share *share = &state->outs_share;

	return share_leaves(share, state->peers[peer->slot].outs, share->each / 2,
			    share->count / 8);
}

struct message_out *message_out_get(struct message_state *state, struct link_peer *peer)
{
	struct message_out *out;
	struct xxh3 *hash;

	if (!share_may(&state->outs_share, state->peers[peer->slot].outs)) {
		message_resolve(state, peer);
		return NULL;
	}
	out = state->outs_free[state->outs_share.free - 1];
	share_take(&state->outs_share, &state->peers[peer->slot].outs);
	hash = out->hash;
	memset(out, 0, offsetof(struct message_out, frames));
	out->hash = hash;
	out->ready_tail = &out->ready;
	out->frames = NULL;
	out->frames_tail = &out->frames;
	out->host_tx = (struct sink){ 0 };
	out->io.kind = STORAGE_UNKNOWN;
	out->io.dev = 0;
	out->number = (uint32_t)(out - state->outs) + 1;
	out->peer = peer;
	out->epoch = peer->epoch;
	out->slot = MESSAGE_SLOT_WAITING;
	return out;
}

void message_out_put(struct message_state *state, struct message_out *out)
{
	out->id = 0;
	state->outs_free[state->outs_share.free] = out;
	share_put(&state->outs_share, &state->peers[out->peer->slot].outs);
}

void message_out_start(struct message_state *state, struct message_out *out)
{
	struct message_peer *mp = &state->peers[out->peer->slot];
	struct port *port = state->link->port;

	plan_take(port->ops->tune(port, out->peer->slot), out->bytes, &out->plan);
	if (out->digest_wanted)
		xxh3_reset(out->hash);
	out->next = NULL;
	out->waited = (mp->out_last && !mp->out_last->host_tx.busy) || link_busy(out->peer);
	if (mp->out_last)
		mp->out_last->next = out;
	else
		mp->out_first = out;
	mp->out_last = out;
	out->unsent = out->bytes;
	mp->unsent += out->bytes;
	if (!link_is_open(out->peer))
		link_wake(out->peer);
	message_begun(state, mp);
}

static bool take_slot(struct message_peer *mp, struct message_out *out)
{
	if (out->slot != MESSAGE_SLOT_WAITING)
		return true;
	if (mp->slots_busy == 0xffff)
		return false;
	out->slot = (uint8_t)__builtin_ctz(~(uint32_t)mp->slots_busy);
	mp->slots_busy |= (uint16_t)(1u << out->slot);
	out->id = ++mp->ids * MESSAGE_SLOTS + out->slot;
	return true;
}

/* Notes that the rest of the message waits for room. A message that waits for a session does not
 * count, since it will find an idle path. */
static void note_wait(struct message_out *out)
{
	out->waited = out->waited || link_is_open(out->peer);
}

static void remove_first_ready(struct message_state *state, struct message_out *out)
{
	struct message_frame *frame = out->ready;

	out->ready_bytes -= frame->args.frag_bytes;
	out->ready = frame->next;
	if (!out->ready) {
		out->ready_tail = &out->ready;
		out->ready_waited = false;
	}
	host_tx_put(state, frame);
}

static void drop_frames(struct message_state *state, struct message_out *out)
{
	struct message_frame *frame;

	while (out->ready) {
		link_tx_put(&out->ready->tx);
		remove_first_ready(state, out);
	}
	while ((frame = out->frames)) {
		out->frames = frame->next;
		link_tx_put(&frame->tx);
		host_tx_put(state, frame);
	}
	out->frames_tail = &out->frames;
}

/* Drops the built frames and moves the message back to their start. */
static void unbuild(struct message_state *state, struct message_out *out)
{
	const struct message_frame *first = out->ready ? out->ready : out->frames;

	if (!first)
		return;
	out->built = first->args.frag_off;
	out->started = !(first->args.flags & CAREFUL_F_FIRST);
	drop_frames(state, out);
}

/* Counts bytes that have left or failed, and asks for buffers for the rest. */
static void count_sent(struct message_peer *mp, struct message_out *out, uint32_t bytes)
{
	out->unsent -= bytes;
	mp->unsent -= bytes;
	link_ask(out->peer, mp->unsent, HOST_TX_EXTRA_BYTES);
}

void message_ahead(struct message_state *state, struct link_peer *peer, uint64_t more,
		   uint64_t less)
{
	struct message_peer *mp = &state->peers[peer->slot];

	mp->unsent += more - less;
	link_ask(peer, mp->unsent, HOST_TX_EXTRA_BYTES);
}

static bool send_abort(struct message_state *state, struct message_out *out)
{
	struct link_send_args args = {
		.type = CAREFUL_DATA,
		.msg_id = out->id,
		.msg_bytes = out->bytes,
		.flags = CAREFUL_F_BULK | CAREFUL_F_LAST | CAREFUL_F_ABORT,
		.frag_off = out->built,
		.frag_bytes = 4,
	};
	__be32 error = htobe32((uint32_t)out->error);
	struct link_txframe frame;

	count_sent(&state->peers[out->peer->slot], out, out->unsent);
	if (!out->started) {
		args.flags |= CAREFUL_F_FIRST;
		args.crc_bytes = MESSAGE_AM_BYTES;
	}
	if (!link_may_send(out->peer, args.crc_bytes + 4) ||
	    !link_tx_get(out->peer, args.crc_bytes + 4, &frame))
		return false;
	if (!out->started)
		link_tx_write(&frame, 0, &out->am, MESSAGE_AM_BYTES);
	link_tx_write(&frame, args.crc_bytes, &error, 4);
	link_send(&frame, &args);
	return true;
}

/* Joins the first ready frames into one of at most the peer's limit, to save the overhead per frame
 * (P3's eager pulses). Without free buffers nothing changes. */
static void join(struct message_state *state, struct message_out *out)
{
	struct message_frame *first = out->ready, *end = first->next, *frame;
	uint32_t bytes_max = link_body_max(out->peer) - HOST_TX_EXTRA_BYTES;
	uint32_t bytes = first->args.frag_bytes, body = first->tx.body_total, offset = 0;
	struct iovec iov[DEVICE_SEGMENTS_MAX];
	struct link_txframe joined;

	for (; end && bytes + end->args.frag_bytes <= bytes_max; end = end->next) {
		bytes += end->args.frag_bytes;
		body += end->tx.body_total;
	}
	if (end == first->next || !link_tx_get(out->peer, body, &joined))
		return;
	for (frame = first; frame != end; frame = frame->next) {
		uint32_t n = link_tx_iov(&frame->tx, 0, frame->tx.body_total, iov);

		for (uint32_t i = 0; i < n; offset += (uint32_t)iov[i++].iov_len)
			link_tx_write(&joined, offset, iov[i].iov_base, (uint32_t)iov[i].iov_len);
		first->args.flags |= frame->args.flags;
		link_tx_put(&frame->tx);
	}
	while ((frame = first->next) != end) {
		first->next = frame->next;
		host_tx_put(state, frame);
	}
	if (!end)
		out->ready_tail = &first->next;
	first->args.frag_bytes = (uint16_t)bytes;
	first->tx = joined;
	link_tx_built(&first->tx);
	host_tx_note_source(out, first);
	link_count(state->link, CAREFUL_C_TX_GROWN);
}

/* Reports whether ready frames should wait: until netTx is not busy, or until minpulse bytes are
 * ready if `more` bytes will be read. */
static bool net_tx_waits(struct link *link, const struct message_out *out, bool more)
{
	const uint32_t *minpulse = out->plan.settings.minpulse_bytes;

	if (out->ready_bytes >= NET_TX_PULSE_MAX)
		return false;
	return link_tx_waits(link) ||
	       (more && !out->source.base && minpulse[CAREFUL_SINK_HOST_TX] &&
		out->ready_bytes < sink_least(minpulse[CAREFUL_SINK_NET_TX]));
}

/* Sends ready frames while there is room. Reports whether hostTx may continue. more:
 * hostTx will make more frames ready. */
static bool send_ready(struct message_state *state, struct message_out *out, bool more)
{
	uint32_t pulse = out->plan.settings.minpulse_bytes[CAREFUL_SINK_NET_TX];
	struct link *link = state->link;
	struct message_frame *frame;

	if (!out->ready)
		return true;
	if (net_tx_waits(link, out, more)) {
		out->ready_waited = true;
		return true;
	}
	while ((frame = out->ready)) {
		if (out->ready_waited && !sink_exact(pulse))
			join(state, out);
		if (!link_may_send(out->peer, frame->tx.body_total)) {
			note_wait(out);
			break;
		}
		count_sent(&state->peers[out->peer->slot], out, frame->args.frag_bytes);
		link_send(&frame->tx, &frame->args);
		/* before the kick, so that the kick sends both */
		if (out->question && frame->args.flags & CAREFUL_F_LAST)
			out->asked = message_ask(out->peer, out->question);
		remove_first_ready(state, out);
		if (sink_exact(pulse) && sink_due(&link->net_tx, pulse, false)) {
			link_tx_shut(link);
			break;
		}
	}
	if (out->began_ns && !out->host_tx.busy)
		host_tx_trace(out, 0);
	if (sink_due(&link->net_tx, pulse, false))
		link_kick(link);
	return !out->ready || link->tx_shut;
}

/* Sends as much of the message as possible; without `more`, only built frames. Reports whether the
 * message has ended. */
static bool advance(struct message_state *state, struct message_out *out, bool more)
{
	for (;;) {
		bool built = out->started && out->built == out->bytes;

		if (out->error && !out->host_tx.busy) {
			unbuild(state, out);
			return send_abort(state, out);
		}
		if (!send_ready(state, out, more && (out->host_tx.busy || !built)) ||
		    out->host_tx.busy)
			return false;
		if (built)
			return !out->ready;
		/* A short rest in memory waits for a busy netTx: then it leaves in larger frames. */
		if (!more || (out->source.base && out->unsent < NET_TX_PULSE_MAX &&
			      link_tx_waits(state->link))) {
			note_wait(out);
			return false;
		}
		if (!host_tx(state, out)) {
			send_ready(state, out, false);
			note_wait(out);
			return false;
		}
	}
}

/* Advances all messages of a peer: small ones first, then bulk messages in order. A message whose
 * file is being read does not delay the next. While small ones wait, bulk messages only send built
 * frames: these may hold the buffers that the small ones need. */
void message_pump(struct message_state *state, struct link_peer *peer)
{
	struct message_peer *mp = &state->peers[peer->slot];
	struct message_out **at = &mp->out_first;
	struct message_out *last = NULL;
	bool more = message_small_pump(state, peer);

	while (*at) {
		struct message_out *out = *at;
		bool stale = out->epoch != peer->epoch;
		bool over = false;

		if (stale) {
			over = !out->host_tx.busy;
			if (over)
				drop_frames(state, out);
		} else if ((more || out->started) && take_slot(mp, out)) {
			over = advance(state, out, more);
		}
		if (!over) {
			last = out;
			at = &out->next;
			continue;
		}
		*at = out->next;
		count_sent(mp, out, out->unsent);
		message_over(state, mp);
		if (out->slot != MESSAGE_SLOT_WAITING && !stale)
			mp->slots_busy &= (uint16_t) ~(1u << out->slot);
		out->done = !stale && !out->error;
		out->seq_last = link_seq_last(peer);
		out->next = NULL;
		*state->ended_tail = out;
		state->ended_tail = &out->next;
		state->has_ended = true;
	}
	mp->out_last = last;
}

/* Returns the next message that has left completely (done) or failed, or NULL. */
struct message_out *message_out_ended(struct message_state *state)
{
	struct message_out *out = state->ended;

	if (!out)
		return NULL;
	state->ended = out->next;
	if (!state->ended)
		state->ended_tail = &state->ended;
	return out;
}
