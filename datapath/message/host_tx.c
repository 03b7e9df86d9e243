// SPDX-License-Identifier: BSD-2-Clause
/* The stage hostTx of a bulk message: builds the frames of its fragments, and fills them from memory
 * or from a file. */
#include "message/host_tx.h"

#include <endian.h>
#include <errno.h>

/* Returns the largest first fragment. A plan for one buffer assumes IPv4 headers: with those of IPv6
 * and careful_am, a fragment of the planned size would need a second buffer. */
static uint32_t first_max(const struct message_out *out, uint32_t cap)
{
	uint32_t single = link_body_single(out->peer) - HOST_TX_EXTRA_BYTES;
	uint32_t planned = out->plan.next_bytes;

	return planned > single && planned - single <= LINK_IPV6_MORE ? single : cap;
}

/* Returns the payload bytes of the next fragment: the plan's, or the most if the message waited. */
static uint32_t next_bytes(struct message_out *out, bool *grown)
{
	uint32_t cap = link_body_max(out->peer) - HOST_TX_EXTRA_BYTES;
	uint32_t rest = out->bytes - out->built;
	uint32_t bytes = plan_next(&out->plan, out->started ? cap : first_max(out, cap));

	*grown = out->waited && bytes < cap && bytes < rest;
	if (*grown)
		bytes = cap;
	return bytes < rest ? bytes : rest;
}

/* Notes the source of a frame that the log does not copy, so that a repair can read it again. */
void host_tx_note_source(struct message_out *out, struct message_frame *frame)
{
	if (out->bytes <= MESSAGE_LOGGED_BYTES && frame->tx.segments == 1)
		return;
	frame->args.source = out->number;
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
	host_tx_note_source(out, frame);
	if (grown)
		link_count(state->link, CAREFUL_C_TX_GROWN);
	out->started = true;
	out->built += bytes;
	return frame;
}

/* Hashes a frame's payload, and appends the digest to the last frame. */
static void hash_frame(struct message_out *out, struct message_frame *filled)
{
	struct link_txframe *frame = &filled->tx;
	const struct link_send_args *args = &filled->args;
	const uint32_t at = message_payload_at(args);
	struct iovec iov[DEVICE_SEGMENTS_MAX];
	uint32_t n = 0;

	if (!out->digest_wanted)
		return;
	if (frame->segments == 1)
		xxh3_update(out->hash, frame->body + at, args->frag_bytes);
	else
		n = link_tx_iov(frame, at, args->frag_bytes, iov);
	for (uint32_t k = 0; k < n; k++)
		xxh3_update(out->hash, iov[k].iov_base, iov[k].iov_len);
	if (args->flags & CAREFUL_F_LAST) {
		__be64 digest;

		out->digest = xxh3_end(out->hash);
		digest = htobe64(out->digest);
		link_tx_write(frame, at + args->frag_bytes, &digest, sizeof(digest));
	}
}

TRACE_COLD void host_tx_trace(struct message_out *out, uint32_t flags)
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
	if (out->error)
		return;
	for (struct message_frame *frame = out->frames; frame; frame = frame->next)
		hash_frame(out, frame);
	out->ready_bytes += out->built - out->batch_off;
	*out->ready_tail = out->frames;
	out->ready_tail = out->frames_tail;
	out->frames = NULL;
	out->frames_tail = &out->frames;
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
		host_tx_trace(out, CAREFUL_TRACE_WAITED);
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
 * is no room for one frame. */
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
bool host_tx(struct message_state *state, struct message_out *out)
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
