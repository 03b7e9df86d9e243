// SPDX-License-Identifier: BSD-2-Clause
/* Receives bulk messages. An idle sink (memory or a file) takes all waiting bytes when minpulse
 * bytes wait, when the message ends, or when half of the window is held. Small fragments so become
 * large writes (P1 section 4.3). */
#include "message/message.h"

#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

static struct message_in **slot_of(struct message_state *state, const struct link_rxframe *frame)
{
	uint32_t slot = be32toh(frame->hdr.msg_id) % MESSAGE_SLOTS;

	return &state->slots[frame->peer->slot * MESSAGE_SLOTS + slot];
}

static struct message_in *take(struct message_state *state)
{
	struct message_in *in = &state->ins[state->ins_count];

	if (state->ins_free_count)
		return state->ins_free[--state->ins_free_count];
	assert(state->ins_count < state->ins_max); /* init_ins() bounds them */
	in->state = state;
	in->io.iov = in->iov;
	in->hash = (struct xxh3 *)(state->hashes + (size_t)state->ins_count++ * XXH3_BYTES);
	return in;
}

/* Begins a message with its first fragment. Returns NULL if the slot is in use or careful_am is
 * invalid. The caller sets sink, region and error. */
struct message_in *message_in_open(struct message_state *state, const struct link_rxframe *frame)
{
	struct message_in **slot = slot_of(state, frame);
	struct port *port = state->link->port;
	struct plan_cursor plan;
	struct message_in *in;

	if (*slot || frame->body_bytes < MESSAGE_AM_BYTES ||
	    (!frame->checked &&
	     be32toh(frame->hdr.payload_crc) != link_crc32c(frame->body, MESSAGE_AM_BYTES)))
		return NULL;
	in = take(state);
	*slot = in;
	in->slot = slot;
	memcpy(&in->am, frame->body, MESSAGE_AM_BYTES);
	in->next = NULL;
	in->peer = frame->peer;
	in->epoch = frame->epoch;
	in->sink = (struct careful_span){ .fd = -1 };
	in->id = be32toh(frame->hdr.msg_id);
	in->bytes = be32toh(frame->hdr.msg_bytes);
	in->received = 0;
	in->region = 0;
	in->active = true;
	in->last = in->finished = in->answers = in->late = in->blocked = false;
	in->digest_wanted = frame->hdr.flags & CAREFUL_F_DIGEST;
	in->last_frame = NULL;
	in->last_copy = -1;
	in->error = 0;
	in->digest = 0;
	in->queue = in->queue_last = NULL;
	in->pieces_count = in->queue_count = in->writing_entries = 0;
	in->stage = (struct sink){ 0 };
	in->taken = 0;
	in->io.kind = STORAGE_UNKNOWN;
	in->io.dev = 0;
	if (in->digest_wanted)
		xxh3_reset(in->hash);
	plan_take(port->ops->tune(port, frame->peer->slot), in->bytes, &plan);
	in->stamps.began_ns = 0;
	in->stamps.version = plan.version;
	memcpy(in->minpulse_bytes, plan.settings.minpulse_bytes, sizeof(in->minpulse_bytes));
	return in;
}

struct message_in *message_in_find(struct message_state *state, const struct link_rxframe *frame)
{
	struct message_in *in = *slot_of(state, frame);

	if (!in || in->finished || in->last || in->epoch != frame->epoch ||
	    in->id != be32toh(frame->hdr.msg_id) || in->bytes != be32toh(frame->hdr.msg_bytes))
		return NULL;
	return in;
}

/* Gets the pieces that hold bytes [offset, offset + bytes) of a body; returns their number. */
static uint32_t body_iov(struct link *link, const struct link_rxframe *frame, uint32_t offset,
			 uint32_t bytes, struct iovec *iov)
{
	const uint8_t *segment = frame->body;
	uint32_t segment_bytes = frame->body_bytes;
	uint32_t n = 0;

	for (uint32_t i = 0; bytes && n < DEVICE_SEGMENTS_MAX; i++) {
		uint32_t piece;

		if (i) {
			assert(i < frame->segments);
			segment = link->queue->umem + frame->desc[i].addr;
			segment_bytes = frame->desc[i].bytes;
		}
		if (offset >= segment_bytes) {
			offset -= segment_bytes;
			continue;
		}
		piece = segment_bytes - offset < bytes ? segment_bytes - offset : bytes;
		iov[n++] = (struct iovec){ (void *)(segment + offset), piece };
		bytes -= piece;
		offset = 0;
	}
	return n;
}

static void copy_body(struct link *link, const struct link_rxframe *frame, uint32_t offset,
		      void *to, uint32_t bytes)
{
	struct iovec iov[DEVICE_SEGMENTS_MAX];
	uint32_t n = body_iov(link, frame, offset, bytes, iov);
	uint8_t *p = to;

	for (uint32_t i = 0; i < n; i++) {
		memcpy(p, iov[i].iov_base, iov[i].iov_len);
		p += iov[i].iov_len;
	}
}

TRACE_COLD static void trace_write(const struct message_in *in, uint32_t flags)
{
	trace_end((struct careful_trace){
		.stage = CAREFUL_STAGE_STORE,
		.begin_ns = in->began_ns,
		.flags = flags,
		.bytes = (uint32_t)in->io.bytes,
		.frames = in->writing_entries,
		.peer = in->peer->slot,
		.msg_id = in->id,
		.frag_off = (uint32_t)(in->io.offset - in->sink.offset),
	});
}

static uint64_t now_ns(const struct message_in *in)
{
	return in->state->link->port->ops->now_ns(in->state->link->port);
}

static void stamp_write(struct message_in *in)
{
	struct message_stamps *stamps = &in->stamps;
	uint32_t n = stamps->writes_count++;

	stamps->writes[n < MESSAGE_WRITES ? n : MESSAGE_WRITES - 1] = (struct message_write){
		.bytes = (uint32_t)in->io.bytes,
		.took_ns = now_ns(in) - stamps->write_ns,
	};
}

static void stamp_fragment(struct message_in *in)
{
	in->stamps.frames_count++;
	if (in->last)
		in->stamps.came_ns = now_ns(in);
}

static void end_write(struct message_in *in, uint32_t trace_flags)
{
	sink_idle(&in->stage);
	if (in->stamps.began_ns)
		stamp_write(in);
	if (in->began_ns)
		trace_write(in, trace_flags);
	if (in->io.result < 0)
		in->error = (int)-in->io.result;
	else if ((uint64_t)in->io.result != in->io.bytes)
		in->error = EIO;
	sink_queue_pop(in, in->writing_entries);
	in->writing_entries = 0;
}

static void run_stage(struct message_in *in);

static uint32_t *late_count(const struct message_in *in)
{
	return &in->state->late[in->region % MESSAGE_LATE];
}

/* Reports whether an old epoch is still writing to the message's region, where it could overwrite
 * new data. */
static bool has_late_write(const struct message_in *in)
{
	const struct message_state *state = in->state;

	for (uint32_t i = 0; *late_count(in) && in->region && i < state->ins_count; i++)
		if (state->ins[i].late && state->ins[i].region == in->region)
			return true;
	return false;
}

/* Unblocks the messages that waited for this late write. */
static void end_late_write(struct message_in *in)
{
	struct message_state *state = in->state;

	in->late = false;
	--*late_count(in);
	for (uint32_t i = 0; i < state->ins_count; i++) {
		struct message_in *other = &state->ins[i];

		if (!other->blocked || has_late_write(other))
			continue;
		other->blocked = false;
		sink_idle(&other->stage);
		run_stage(other);
	}
}

static void on_written(struct storage_io *io)
{
	struct message_in *in =
		(struct message_in *)((uint8_t *)io - offsetof(struct message_in, io));

	end_write(in, CAREFUL_TRACE_WAITED);
	if (in->late)
		end_late_write(in);
	run_stage(in);
}

static void start_write(struct message_in *in)
{
	struct storage *storage = in->state->storage;
	int rc;

	in->began_ns = trace_begin(CAREFUL_STAGE_STORE);
	in->io.fd = in->sink.fd;
	in->io.write = true;
	in->io.iov_count = (uint16_t)sink_queue_write(in);
	in->io.offset = in->sink.offset + in->taken;
	in->io.done = on_written;
	in->taken += in->io.bytes;
	sink_take(&in->stage, in->io.bytes);
	if (in->stamps.began_ns)
		in->stamps.write_ns = now_ns(in);
	rc = storage->ops->submit(storage, &in->io);
	if (rc == 0)
		return;
	if (rc < 0)
		in->io.result = rc;
	end_write(in, 0);
}

static void copy_pieces(struct message_in *in, const struct iovec *iov, uint32_t n)
{
	uint8_t *to = (uint8_t *)in->sink.base + in->taken;

	for (uint32_t i = 0; i < n; i++) {
		memcpy(to, iov[i].iov_base, iov[i].iov_len);
		to += iov[i].iov_len;
		in->taken += iov[i].iov_len;
	}
}

static void copy_all(struct message_in *in)
{
	sink_take(&in->stage, in->stage.waiting_bytes);
	for (struct sink_queue_entry *entry = in->queue; entry; entry = entry->next) {
		uint64_t began_ns = entry->span.begin_ns ? clock_now_ns() : 0;

		copy_pieces(in, entry->iov, entry->pieces);
		if (began_ns) {
			entry->span.begin_ns = began_ns;
			trace_end(entry->span);
		}
	}
	sink_idle(&in->stage);
	sink_queue_pop(in, in->queue_count);
}

/* Reports whether the stage must take bytes before more can come. */
static bool must_drain(const struct message_in *in)
{
	return in->last || in->pieces_count >= STORAGE_IO_SEGMENTS || link_holds_many(in->peer) ||
	       in->epoch != in->peer->epoch;
}

static inline bool stage_due(const struct message_in *in)
{
	enum careful_sink sink = in->sink.base ? CAREFUL_SINK_HOST_RX : CAREFUL_SINK_STORE;

	return in->stage.waiting_bytes &&
	       (sink_due(&in->stage, in->minpulse_bytes[sink], false) || /* cheap, so first */
		sink_due(&in->stage, in->minpulse_bytes[sink], must_drain(in)));
}

/* Lets the stage take what is due, and finishes the message after its last bytes. */
static void run_stage(struct message_in *in)
{
	if (in->slot && (in->last || in->epoch != in->peer->epoch)) {
		*in->slot = NULL; /* the sender may use the slot again */
		in->slot = NULL;
	}
	while (!in->stage.busy) {
		bool over = in->last || in->epoch != in->peer->epoch;

		if (in->error || in->epoch != in->peer->epoch) {
			sink_queue_pop(in, in->queue_count);
			in->stage.waiting_bytes = 0;
		}
		if (stage_due(in)) {
			if (in->sink.base) {
				copy_all(in);
			} else if (has_late_write(in)) {
				in->blocked = true;
				sink_take(&in->stage, 0); /* busy until end_late_write() */
			} else {
				start_write(in);
			}
			continue;
		}
		if (over && !in->finished)
			message_in_finish(in);
		return;
	}
}

static void place_payload(struct message_in *in, struct link_rxframe *frame,
			  const struct iovec *iov, uint32_t n, uint32_t bytes)
{
	if (in->error || !bytes) {
		message_in_release(in, frame);
		return;
	}
	sink_add(&in->stage, bytes);
	if (in->sink.base && !in->queue && stage_due(in)) { /* copy now, hold no frame */
		sink_take(&in->stage, bytes);
		copy_pieces(in, iov, n);
		sink_idle(&in->stage);
		message_in_release(in, frame);
		return;
	}
	if (sink_queue_copy(in, iov, n, bytes))
		message_in_release(in, frame);
	else
		sink_queue_hold(in, frame, iov, n);
}

/* Handles an abort. Without CAREFUL_F_LAST, only this fragment's repair failed and the rest of the
 * message follows. */
static void take_abort(struct message_in *in, struct link_rxframe *frame, uint32_t offset)
{
	uint32_t bytes = be16toh(frame->hdr.frag_bytes);
	__be32 error = 0;

	if (bytes >= sizeof(error))
		copy_body(in->state->link, frame, offset, &error, sizeof(error));
	in->error = (int)be32toh(error);
	if (in->error <= 0 || in->error > 4095)
		in->error = EIO;
	in->last = frame->hdr.flags & CAREFUL_F_LAST;
	message_in_release(in, frame);
}

static void check_digest(struct message_in *in, const struct link_rxframe *frame, uint32_t offset)
{
	__be64 sent = 0;

	copy_body(in->state->link, frame, offset, &sent, sizeof(sent));
	in->digest = xxh3_end(in->hash);
	if (in->digest != be64toh(sent) && !in->error) {
		link_count(in->state->link, CAREFUL_C_DIGEST_BAD);
		in->error = EBADMSG;
	}
}

/* Takes a fragment. Its buffers are released, or held until written. */
void message_in_add(struct message_in *in, struct link_rxframe *frame)
{
	uint8_t flags = frame->hdr.flags;
	uint32_t bytes = be16toh(frame->hdr.frag_bytes);
	uint32_t offset = flags & CAREFUL_F_FIRST ? MESSAGE_AM_BYTES : 0;
	uint32_t frag_off = be32toh(frame->hdr.frag_off);
	struct iovec iov[DEVICE_SEGMENTS_MAX] = { 0 };
	uint32_t n;

	if (flags & CAREFUL_F_ABORT) {
		take_abort(in, frame, offset);
		run_stage(in);
		return;
	}
	if (in->error && frag_off > in->received && frag_off < in->bytes)
		in->received = frag_off; /* an abort replaced the fragments before */
	/* Fragments come in order, all with the same digest flag. */
	if (frag_off != in->received || bytes > in->bytes - in->received ||
	    (bool)(flags & CAREFUL_F_DIGEST) != in->digest_wanted ||
	    (bool)(flags & CAREFUL_F_LAST) != (in->received + bytes == in->bytes)) {
		link_count(in->state->link, CAREFUL_C_DROP_MESSAGE);
		if (!in->error)
			in->error = EPROTO;
		in->last = true;
		message_in_release(in, frame);
		run_stage(in);
		return;
	}
	n = body_iov(in->state->link, frame, offset, bytes, iov);
	if (in->digest_wanted)
		for (uint32_t i = 0; i < n; i++)
			xxh3_update(in->hash, iov[i].iov_base, iov[i].iov_len);
	if (flags & CAREFUL_F_LAST) {
		in->last = true;
		if (in->digest_wanted)
			check_digest(in, frame, offset + bytes);
	}
	if (in->stamps.began_ns)
		stamp_fragment(in);
	place_payload(in, frame, iov, n, bytes);
	link_placed(frame);
	in->received += bytes;
	run_stage(in);
}

/* Places nothing more of a message. Reports whether a disk is still writing. */
bool message_in_stop(struct message_in *in, int error)
{
	if (!in->error)
		in->error = error;
	run_stage(in);
	return in->stage.busy && !in->blocked;
}

void message_forget(struct message_state *state, struct link_peer *peer)
{
	message_resolve(state, peer);
	state->peers[peer->slot].slots_busy = 0;
	state->peers[peer->slot].gets = 0;
	for (uint32_t i = 0; i < state->ins_count; i++) {
		struct message_in *in = &state->ins[i];

		if (in->active && in->peer == peer && !in->finished && in->epoch != peer->epoch) {
			if (!in->error)
				in->error = ECONNRESET;
			if (in->stage.busy && !in->blocked && !in->late) {
				in->late = true;
				++*late_count(in);
			}
			run_stage(in);
		}
	}
}
