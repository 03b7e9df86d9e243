// SPDX-License-Identifier: BSD-2-Clause
/* Receives bulk messages: every fragment goes straight to its place in memory or a file. Both are
 * sinks that obey the minpulse rule: an idle sink takes all waiting bytes when minpulse bytes wait,
 * or the tail, or half of the window is held. So small fragments become large writes (P1 section
 * 4.3). */
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

/* Begins a message with its first fragment. Returns NULL if the slot is still in use or careful_am
 * is incomplete. The caller sets sink, region and error. */
struct message_in *message_in_open(struct message_state *state, const struct link_rxframe *frame)
{
	struct message_in **at = slot_of(state, frame);
	struct port *port = state->link->port;
	struct plan_cursor plan;
	struct message_in *in;

	if (*at || frame->body_bytes < MESSAGE_AM_BYTES ||
	    (!frame->checked &&
	     be32toh(frame->hdr.payload_crc) != link_crc32c(frame->body, MESSAGE_AM_BYTES)))
		return NULL;
	assert(state->ins_free_count); /* message.c: as many as windows allow */
	in = state->ins_free[--state->ins_free_count];
	*at = in;
	in->at = at;
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
	in->last = in->finished = in->answers = in->late = in->held_up = false;
	in->digest_wanted = frame->hdr.flags & CAREFUL_F_DIGEST;
	in->kept = NULL;
	in->place = -1;
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

/* Finds where bytes [at, at + bytes) of a received frame's body lie. */
static uint32_t body_iov(struct link *link, const struct link_rxframe *frame, uint32_t at,
			 uint32_t bytes, struct iovec *iov)
{
	const uint8_t *start = frame->body;
	uint32_t have = frame->body_bytes;
	uint32_t n = 0;

	for (uint32_t i = 0; bytes && n < DEVICE_SEGMENTS_MAX; i++) {
		uint32_t part;

		if (i) {
			assert(i < frame->segments);
			start = link->queue->umem + frame->desc[i].addr;
			have = frame->desc[i].bytes;
		}
		if (at >= have) {
			at -= have;
			continue;
		}
		part = have - at < bytes ? have - at : bytes;
		iov[n++] = (struct iovec){ .iov_base = (void *)(start + at), .iov_len = part };
		bytes -= part;
		at = 0;
	}
	return n;
}

static void copy_from(struct link *link, const struct link_rxframe *frame, uint32_t at, void *to,
		      uint32_t bytes)
{
	struct iovec iov[DEVICE_SEGMENTS_MAX];
	uint32_t n = body_iov(link, frame, at, bytes, iov);
	uint8_t *p = to;

	for (uint32_t i = 0; i < n; i++) {
		memcpy(p, iov[i].iov_base, iov[i].iov_len);
		p += iov[i].iov_len;
	}
}

TRACE_COLD static void traced(const struct message_in *in, uint32_t flags)
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

/* Ends the traced span of a write, with these flags. */
static void written(struct message_in *in, uint32_t flags)
{
	sink_idle(&in->stage);
	if (in->stamps.began_ns)
		stamp_write(in);
	if (in->began_ns)
		traced(in, flags);
	if (in->io.result < 0)
		in->error = (int)-in->io.result;
	else if ((uint64_t)in->io.result != in->io.bytes)
		in->error = EIO;
	sink_queue_put(in, in->writing_entries);
	in->writing_entries = 0;
}

static void move_on(struct message_in *in);

static uint32_t *late_at(const struct message_in *in)
{
	return &in->state->late[in->region % MESSAGE_LATE];
}

/* Reports whether a late write of an old epoch is under way at the same region. It could overwrite
 * data of the new epoch, which does not wait for all such writes. Other regions are not
 * affected. */
static bool is_behind(const struct message_in *in)
{
	const struct message_state *state = in->state;

	for (uint32_t i = 0; *late_at(in) && in->region && i < state->ins_count; i++)
		if (state->ins[i].late && state->ins[i].region == in->region)
			return true;
	return false;
}

static void late_written(struct message_in *in)
{
	struct message_state *state = in->state;

	in->late = false;
	--*late_at(in);
	for (uint32_t i = 0; i < state->ins_count; i++) {
		struct message_in *other = &state->ins[i];

		if (!other->held_up || is_behind(other))
			continue;
		other->held_up = false;
		sink_idle(&other->stage);
		move_on(other);
	}
}

static void on_written(struct storage_io *io)
{
	struct message_in *in =
		(struct message_in *)((uint8_t *)io - offsetof(struct message_in, io));

	written(in, CAREFUL_TRACE_WAITED);
	if (in->late)
		late_written(in);
	move_on(in);
}

static void start_write(struct message_in *in)
{
	struct storage *storage = in->state->storage;
	uint32_t n;
	int rc;

	in->began_ns = trace_begin(CAREFUL_STAGE_STORE);
	in->io.fd = in->sink.fd;
	in->io.write = true;
	n = sink_queue_write(in);
	in->io.iov_count = (uint16_t)n;
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
	written(in, 0);
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
	sink_queue_put(in, in->queue_count);
}

/* Reports whether no more bytes can come before some waiting ones are taken. */
static bool no_more(const struct message_in *in)
{
	return in->last || in->pieces_count >= STORAGE_IO_SEGMENTS || link_holds_many(in->peer) ||
	       in->epoch != in->peer->epoch;
}

static inline bool due(const struct message_in *in)
{
	enum careful_sink sink = in->sink.base ? CAREFUL_SINK_HOST_RX : CAREFUL_SINK_STORE;

	return in->stage.waiting_bytes &&
	       (sink_due(&in->stage, in->minpulse_bytes[sink], false) ||
		sink_due(&in->stage, in->minpulse_bytes[sink], no_more(in)));
}

/* Lets the stage take what is due. After the last bytes the message is finished. */
static void move_on(struct message_in *in)
{
	if (in->at && (in->last || in->epoch != in->peer->epoch)) {
		*in->at = NULL; /* the sender may use the slot again */
		in->at = NULL;
	}
	while (!in->stage.busy) {
		bool over = in->last || in->epoch != in->peer->epoch;

		if (in->error || in->epoch != in->peer->epoch) {
			sink_queue_put(in, in->queue_count);
			in->stage.waiting_bytes = 0;
		}
		if (due(in)) {
			if (in->sink.base) {
				copy_all(in);
			} else if (is_behind(in)) {
				in->held_up = true;
				sink_take(&in->stage, 0);
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

static void place(struct message_in *in, struct link_rxframe *frame, const struct iovec *iov,
		  uint32_t n, uint32_t bytes)
{
	if (in->error || !bytes) {
		message_in_release(in, frame);
		return;
	}
	sink_add(&in->stage, bytes);
	if (in->sink.base && !in->queue && due(in)) { /* without holding it */
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

/* Handles an abort: the sender cannot continue, or cannot read this fragment again; in the second
 * case the others follow. */
static void take_abort(struct message_in *in, struct link_rxframe *frame, uint32_t at)
{
	uint32_t bytes = be16toh(frame->hdr.frag_bytes);
	__be32 error = 0;

	if (bytes >= sizeof(error))
		copy_from(in->state->link, frame, at, &error, sizeof(error));
	in->error = (int)be32toh(error);
	if (in->error <= 0 || in->error > 4095)
		in->error = EIO;
	in->last = frame->hdr.flags & CAREFUL_F_LAST;
	if (bytes <= in->bytes - in->received)
		in->received += bytes;
	message_in_release(in, frame);
}

static void end_digest(struct message_in *in, const struct link_rxframe *frame, uint32_t at)
{
	__be64 theirs = 0;

	copy_from(in->state->link, frame, at, &theirs, sizeof(theirs));
	in->digest = xxh3_end(in->hash);
	if (in->digest != be64toh(theirs) && !in->error) {
		link_count(in->state->link, CAREFUL_C_DIGEST_BAD);
		in->error = EBADMSG;
	}
}

/* Takes a fragment. Its buffers are released, or held until written. */
void message_in_add(struct message_in *in, struct link_rxframe *frame)
{
	uint8_t flags = frame->hdr.flags;
	uint32_t bytes = be16toh(frame->hdr.frag_bytes);
	uint32_t at = flags & CAREFUL_F_FIRST ? MESSAGE_AM_BYTES : 0;
	struct iovec iov[DEVICE_SEGMENTS_MAX] = { 0 };
	uint32_t n;

	if (flags & CAREFUL_F_ABORT) {
		take_abort(in, frame, at);
		move_on(in);
		return;
	}
	/* Frames come in order, and a message is cut from front to back. Each frame says whether
	 * the last one ends in a digest. */
	if (be32toh(frame->hdr.frag_off) != in->received || bytes > in->bytes - in->received ||
	    (bool)(flags & CAREFUL_F_DIGEST) != in->digest_wanted ||
	    (bool)(flags & CAREFUL_F_LAST) != (in->received + bytes == in->bytes)) {
		link_count(in->state->link, CAREFUL_C_DROP_MESSAGE);
		if (!in->error)
			in->error = EPROTO;
		in->last = true;
		message_in_release(in, frame);
		move_on(in);
		return;
	}
	n = body_iov(in->state->link, frame, at, bytes, iov);
	if (in->digest_wanted)
		for (uint32_t i = 0; i < n; i++)
			xxh3_update(in->hash, iov[i].iov_base, iov[i].iov_len);
	if (flags & CAREFUL_F_LAST) {
		in->last = true;
		if (in->digest_wanted)
			end_digest(in, frame, at + bytes);
	}
	if (in->stamps.began_ns)
		stamp_fragment(in);
	place(in, frame, iov, n, bytes);
	link_placed(frame);
	in->received += bytes;
	move_on(in);
}

/* Stops a message, so that nothing more is placed. Reports whether a disk is still writing. */
bool message_in_stop(struct message_in *in, int error)
{
	if (!in->error)
		in->error = error;
	move_on(in);
	return in->stage.busy && !in->held_up;
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
			if (in->stage.busy && !in->held_up && !in->late) {
				in->late = true;
				++*late_at(in);
			}
			move_on(in);
		}
	}
}
