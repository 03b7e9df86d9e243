// SPDX-License-Identifier: BSD-2-Clause
/* Sends bulk messages: fills frames from memory or a file, sends while credits last, and kicks by
 * the minpulse rule (P3 section 3). The plan is for an idle path: bytes that waited for netTx, other
 * messages or room leave in the largest frames (P5 figure 3). */
#include "message/message.h"

#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <string.h>

enum {
	EXTRA_BYTES = MESSAGE_AM_BYTES + CAREFUL_DIGEST_BYTES, /* most bytes beside the payload */
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

/* Returns the largest first fragment. A plan for one buffer assumes IPv4 headers: with those of IPv6
 * and careful_am, a fragment of the planned size would need a second buffer. */
static uint32_t first_max(const struct message_out *out, uint32_t cap)
{
	uint32_t single = link_body_single(out->peer) - EXTRA_BYTES;
	uint32_t planned = out->plan.next_bytes;

	return planned > single && planned - single <= LINK_IPV6_MORE ? single : cap;
}

/* Returns the payload bytes of the next fragment: the plan's, or the largest if it waited. */
static uint32_t next_bytes(struct message_out *out, bool *grown)
{
	uint32_t cap = link_body_max(out->peer) - EXTRA_BYTES;
	uint32_t rest = out->bytes - out->built;
	uint32_t bytes = plan_next(&out->plan, out->started ? cap : first_max(out, cap));

	*grown = out->waited && bytes < cap && bytes < rest;
	if (*grown)
		bytes = cap;
	return bytes < rest ? bytes : rest;
}

/* Notes that the rest of the message waits for room. A message that waits for a session does not
 * count, since it will find an idle path. */
static void note_wait(struct message_out *out)
{
	out->waited = out->waited || link_is_open(out->peer);
}

/* Notes the source of a frame that the log does not copy, so that a repair can read it again. */
static void note_source(const struct message_state *state, struct message_out *out,
			struct message_frame *frame)
{
	if (out->bytes <= MESSAGE_LOGGED_BYTES && frame->tx.segments == 1)
		return;
	frame->args.source = (uint32_t)(out - state->outs) + 1;
	out->has_uncopied = true;
}

/* Builds the next fragment's frame, all but its payload. Returns NULL if there is no room. */
static const struct message_frame *build(struct message_state *state, struct message_out *out)
{
	struct message_frame *frame = state->frames_free;
	uint8_t flags = CAREFUL_F_BULK;
	struct plan_cursor before = out->plan;
	bool grown;
	uint32_t bytes = next_bytes(out, &grown);
	uint32_t body = bytes;

	if (!out->started) {
		flags |= CAREFUL_F_FIRST;
		body += MESSAGE_AM_BYTES;
	}
	if (out->digest_wanted)
		flags |= CAREFUL_F_DIGEST;
	if (out->built + bytes == out->bytes) {
		flags |= CAREFUL_F_LAST;
		if (out->digest_wanted)
			body += CAREFUL_DIGEST_BYTES;
	}
	if (!frame || !link_tx_build(out->peer, body, &frame->tx)) {
		out->plan = before;
		return NULL;
	}
	state->frames_free = frame->next;
	frame->next = NULL;
	*out->frames_tail = frame;
	out->frames_tail = &frame->next;
	if (flags & CAREFUL_F_FIRST)
		link_tx_write(&frame->tx, 0, &out->am, MESSAGE_AM_BYTES);
	frame->args = (struct link_send_args){
		.type = CAREFUL_DATA,
		.flags = flags,
		.msg_id = out->id,
		.msg_bytes = out->bytes,
		.frag_off = out->built,
		.frag_bytes = (uint16_t)bytes,
		.crc_bytes = flags & CAREFUL_F_FIRST ? MESSAGE_AM_BYTES : 0,
	};
	note_source(state, out, frame);
	if (grown)
		link_count(state->link, CAREFUL_C_TX_GROWN);
	out->started = true;
	out->built += bytes;
	return frame;
}

static void frame_put(struct message_state *state, struct message_frame *frame)
{
	frame->next = state->frames_free;
	state->frames_free = frame;
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
	frame_put(state, frame);
}

/* Hashes a frame's payload, and appends the digest to the last frame. */
static void hash_frame(struct message_out *out, struct message_frame *filled)
{
	struct link_txframe *frame = &filled->tx;
	const struct link_send_args *args = &filled->args;
	struct iovec iov[DEVICE_SEGMENTS_MAX];
	uint32_t n;

	if (!out->digest_wanted)
		return;
	n = link_tx_iov(frame, message_payload_at(args), args->frag_bytes, iov);
	for (uint32_t k = 0; k < n; k++)
		xxh3_update(out->hash, iov[k].iov_base, iov[k].iov_len);
	if (args->flags & CAREFUL_F_LAST) {
		__be64 digest;

		out->digest = xxh3_end(out->hash);
		digest = htobe64(out->digest);
		link_tx_write(frame, message_payload_at(args) + args->frag_bytes, &digest,
			      sizeof(digest));
	}
}

TRACE_COLD static void trace_batch(struct message_out *out, uint32_t flags)
{
	trace_end((struct careful_trace){
		.stage = CAREFUL_STAGE_HOST_TX,
		.begin_ns = out->began_ns,
		.flags = flags,
		.bytes = out->built - out->batch_off,
		.frames = out->batch_count,
		.peer = out->peer->slot,
		.seq = out->ready ? 0 : link_seq_last(out->peer),
		.msg_id = out->id,
		.frag_off = out->batch_off,
	});
	out->began_ns = 0;
}

/* Ends a batch of hostTx: its frames become ready. */
static void host_tx_done(struct message_out *out)
{
	sink_idle(&out->host_tx);
	for (struct message_frame *frame = out->frames; frame && !out->error; frame = frame->next) {
		hash_frame(out, frame);
		out->ready_bytes += frame->args.frag_bytes;
	}
	if (out->frames && !out->error) {
		*out->ready_tail = out->frames;
		out->ready_tail = out->frames_tail;
		out->frames = NULL;
		out->frames_tail = &out->frames;
	}
}

static void copy(struct message_out *out)
{
	for (struct message_frame *frame = out->frames; frame; frame = frame->next) {
		const struct link_send_args *args = &frame->args;

		link_tx_write(&frame->tx, message_payload_at(args),
			      (const uint8_t *)out->source.base + args->frag_off, args->frag_bytes);
	}
}

/* Handles the end of a read. A short read means that the file shrank. */
static void read_done(struct message_out *out)
{
	if (out->io.result < 0)
		out->error = (int)-out->io.result;
	else if ((uint64_t)out->io.result != out->io.bytes)
		out->error = ENODATA;
	host_tx_done(out);
}

static void on_read(struct storage_io *io)
{
	struct message_out *out =
		(struct message_out *)((uint8_t *)io - offsetof(struct message_out, io));

	read_done(out);
	if (out->began_ns)
		trace_batch(out, CAREFUL_TRACE_WAITED);
}

static void start_read(struct message_state *state, struct message_out *out, uint64_t bytes)
{
	uint32_t n = 0;
	int rc;

	for (const struct message_frame *frame = out->frames; frame; frame = frame->next)
		n += link_tx_iov(&frame->tx, message_payload_at(&frame->args),
				 frame->args.frag_bytes, out->iov + n);
	out->io.fd = out->source.fd;
	out->io.write = false;
	out->io.iov_count = (uint16_t)n;
	out->io.offset = out->source.offset + out->batch_off;
	out->io.bytes = bytes;
	out->io.done = on_read;
	out->io.result = 0;
	rc = state->storage->ops->submit(state->storage, &out->io);
	if (rc == 0)
		return;
	if (rc < 0)
		out->io.result = -EIO;
	read_done(out);
}

/* Builds frames until hostTx is due, the message ends or there is no room. Returns false if there
 * is no room for one. */
static bool build_batch(struct message_state *state, struct message_out *out)
{
	const uint32_t *minpulse = out->plan.settings.minpulse_bytes;
	uint32_t pulse = minpulse[CAREFUL_SINK_HOST_TX];
	uint32_t segments = 0;
	const struct message_frame *frame;

	/* A read is a system call, so its default size is netTx's minpulse. */
	if (!out->source.base && !pulse)
		pulse = minpulse[CAREFUL_SINK_NET_TX];
	out->batch_off = out->built;
	out->batch_count = 0;
	while ((out->built < out->bytes || !out->started) && segments < MESSAGE_BATCH &&
	       (frame = build(state, out))) {
		segments += frame->tx.segments;
		out->batch_count++;
		sink_add(&out->host_tx, frame->args.frag_bytes);
		if (sink_due(&out->host_tx, pulse, false))
			break;
	}
	return out->batch_count;
}

/* Runs hostTx: one read or one batch of copies. Returns false if there is no room for a frame. */
static bool host_tx(struct message_state *state, struct message_out *out)
{
	uint64_t bytes;

	out->began_ns = trace_begin(CAREFUL_STAGE_HOST_TX);
	if (!build_batch(state, out))
		return false;
	bytes = out->host_tx.waiting_bytes;
	sink_take(&out->host_tx, bytes);
	if (bytes && !out->source.base) {
		start_read(state, out, bytes);
		return true;
	}
	if (bytes) /* an empty message has no base */
		copy(out);
	host_tx_done(out);
	return true;
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
		frame_put(state, frame);
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
	link_ask(out->peer, mp->unsent, EXTRA_BYTES);
}

void message_ahead(struct message_state *state, struct link_peer *peer, uint64_t more,
		   uint64_t less)
{
	struct message_peer *mp = &state->peers[peer->slot];

	mp->unsent += more - less;
	link_ask(peer, mp->unsent, EXTRA_BYTES);
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
	uint32_t bytes_max = link_body_max(out->peer) - EXTRA_BYTES;
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
		frame_put(state, frame);
	}
	if (!end)
		out->ready_tail = &first->next;
	first->args.frag_bytes = (uint16_t)bytes;
	first->tx = joined;
	link_tx_built(&first->tx);
	note_source(state, out, first);
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

/* Sends ready frames while there is room. Returns whether hostTx may continue.
 *
 * more: hostTx will make more frames ready */
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
	if (!out->host_tx.busy && out->began_ns)
		trace_batch(out, 0);
	if (sink_due(&link->net_tx, pulse, false))
		link_kick(link);
	return !out->ready || link->tx_shut;
}

/* Sends as much of the message as possible; without `more`, only built frames. Returns whether the
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
