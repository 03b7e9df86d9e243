// SPDX-License-Identifier: BSD-2-Clause
/* Bulk data that waits for a stage of the receiver, in its receive buffers. Frames that wait for a
 * disk hold at most a share of their peer's window, so a hanging disk stops no other traffic. Beyond
 * the share they are copied to the peer's share of memory. If that is full, buffers are held after
 * all, and only this peer waits for its disk. */
#include "message/message.h"

#include <assert.h>
#include <string.h>

static struct message_peer *peer_of(const struct message_in *in)
{
	return &in->state->peers[in->peer->slot];
}

/* Returns the last entry, or NULL if the stage works on it or the queue is empty. */
static struct sink_queue_entry *last_waiting(const struct message_in *in)
{
	return in->queue_count > in->writing_entries ? in->queue_last : NULL;
}

static struct sink_queue_entry *entry_get(struct message_in *in)
{
	struct sink_queue_entry *entry = in->state->entries_free;

	assert(entry); /* one for each receive buffer and copy */
	in->state->entries_free = entry->next;
	entry->next = NULL;
	entry->frame = NULL;
	entry->cost = 0;
	entry->copy_index = -1;
	entry->room = 0;
	entry->span.begin_ns = 0;
	return entry;
}

static void append(struct message_in *in, struct sink_queue_entry *entry)
{
	if (in->queue_last)
		in->queue_last->next = entry;
	else
		in->queue = entry;
	in->queue_last = entry;
	in->queue_count++;
	in->pieces_count += entry->pieces;
}

static void count_disk_buffers(struct message_in *in, struct sink_queue_entry *entry)
{
	entry->cost = entry->frame->cost;
	peer_of(in)->disk_buffers += entry->cost;
}

/* Holds a frame until its payload, in n pieces, is taken. */
void sink_queue_hold(struct message_in *in, struct link_rxframe *frame, const struct iovec *iov,
		     uint32_t n)
{
	struct sink_queue_entry *entry = entry_get(in);

	entry->frame = link_hold(in->state->link, frame, false);
	entry->pieces = n;
	if (in->sink.base && frame->began_ns)
		entry->span = link_trace_held(frame);
	memcpy(entry->iov, iov, n * sizeof(*iov));
	append(in, entry);
	if (in->stage.busy)
		count_disk_buffers(in, entry);
}

static void append_copy(struct sink_queue_entry *to, const struct iovec *iov, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		memcpy((uint8_t *)to->iov[0].iov_base + to->iov[0].iov_len, iov[i].iov_base,
		       iov[i].iov_len);
		to->iov[0].iov_len += iov[i].iov_len;
		to->room -= (uint32_t)iov[i].iov_len;
	}
}

/* Makes the entry an empty copy, for which may_copy() has found room. */
static void begin_copy(struct message_in *in, struct sink_queue_entry *entry)
{
	struct message_state *state = in->state;

	entry->copy_index = state->copies_free[state->copies_share.free - 1];
	share_take(&state->copies_share, &peer_of(in)->copies);
	entry->room = MESSAGE_COPY_BYTES;
	entry->pieces = 1;
	entry->iov[0] = (struct iovec){
		.iov_base = state->copies + (size_t)entry->copy_index * MESSAGE_COPY_BYTES,
	};
}

static void copy_put(struct message_in *in, int32_t index)
{
	struct message_state *state = in->state;

	state->copies_free[state->copies_share.free] = index;
	share_put(&state->copies_share, &peer_of(in)->copies);
}

static bool may_copy(const struct message_in *in, uint32_t bytes)
{
	return bytes <= MESSAGE_COPY_BYTES &&
	       share_may(&in->state->copies_share, peer_of(in)->copies);
}

/* Copies a frame that would wait for a disk beyond the peer's share, or a small one: many small
 * fragments then become one piece of a write. Returns false if the frame must be held. */
bool sink_queue_copy(struct message_in *in, const struct iovec *iov, uint32_t n, uint32_t bytes)
{
	struct sink_queue_entry *entry = last_waiting(in);
	bool beyond = in->stage.busy && link_holds_share(in->peer, peer_of(in)->disk_buffers);
	bool small = bytes <= MESSAGE_SMALL_BYTES && bytes < in->bytes &&
		     !sink_exact(in->minpulse_bytes[CAREFUL_SINK_STORE]);

	if (in->sink.base || (!beyond && !small))
		return false;
	if (!entry || entry->room < bytes) {
		if (!may_copy(in, bytes))
			return false;
		entry = entry_get(in);
		begin_copy(in, entry);
		append(in, entry);
	}
	append_copy(entry, iov, n);
	if (beyond)
		link_count(in->state->link, CAREFUL_C_COPIED_OUT);
	return true;
}

static uint32_t bytes_of(const struct sink_queue_entry *entry)
{
	uint32_t bytes = 0;

	for (uint32_t i = 0; i < entry->pieces; i++)
		bytes += (uint32_t)entry->iov[i].iov_len;
	return bytes;
}

/* Copies a held frame, to the preceding copy if that has room, and releases its buffers. Returns
 * the copy, or NULL if there is no memory and the frame stays held. */
static struct sink_queue_entry *copy_held(struct message_in *in, struct sink_queue_entry *before,
					  struct sink_queue_entry *entry)
{
	struct iovec iov[DEVICE_SEGMENTS_MAX];
	uint32_t n = entry->pieces;
	bool fits_before = before && before->room >= bytes_of(entry);

	if (!fits_before && !may_copy(in, bytes_of(entry)))
		return NULL;
	memcpy(iov, entry->iov, n * sizeof(*iov));
	link_unhold(in->state->link, entry->frame);
	entry->frame = NULL;
	in->pieces_count -= n;
	if (!fits_before) {
		begin_copy(in, entry);
		in->pieces_count++;
		before = entry;
	}
	append_copy(before, iov, n);
	link_count(in->state->link, CAREFUL_C_COPIED_OUT);
	return before;
}

/* Removes the entry behind `before`, whose payload `before` now has. */
static void unlink_entry(struct message_in *in, struct sink_queue_entry *before,
			 struct sink_queue_entry *entry)
{
	before->next = entry->next;
	if (!entry->next)
		in->queue_last = before;
	in->queue_count--;
	entry->next = in->state->entries_free;
	in->state->entries_free = entry;
}

/* Copies the frames that wait for a slow disk beyond the peer's share of the window. */
static void copy_excess(struct message_in *in)
{
	struct sink_queue_entry *before = NULL, *next;

	for (struct sink_queue_entry *entry = in->queue; entry; entry = next) {
		struct sink_queue_entry *copy = NULL;

		next = entry->next;
		if (entry->frame && !entry->cost) {
			if (link_holds_share(in->peer, peer_of(in)->disk_buffers))
				copy = copy_held(in, before, entry);
			if (!copy)
				count_disk_buffers(in, entry);
		}
		if (copy && copy == before)
			unlink_entry(in, before, entry);
		else
			before = entry;
	}
}

/* Fills in->io with waiting pieces for the disk. Returns the number of pieces. */
uint32_t sink_queue_write(struct message_in *in)
{
	struct storage *storage = in->state->storage;
	uint32_t pulse = in->minpulse_bytes[CAREFUL_SINK_STORE], n = 0;

	if (storage->ops->waits(storage, &in->io))
		copy_excess(in);
	in->io.bytes = 0;
	in->writing_entries = 0;
	for (const struct sink_queue_entry *entry = in->queue; entry; entry = entry->next) {
		if (n + entry->pieces > STORAGE_IO_SEGMENTS ||
		    (sink_exact(pulse) && in->io.bytes >= sink_least(pulse)))
			break;
		for (uint32_t i = 0; i < entry->pieces; i++, n++) {
			in->iov[n] = entry->iov[i];
			in->io.bytes += entry->iov[i].iov_len;
		}
		in->writing_entries++;
	}
	return n;
}

/* Reports whether the message keeps its last frame until it is answered. */
bool message_in_keeps_last(const struct message_in *in)
{
	return in->last && peer_of(in)->unanswered && !in->last_frame && in->last_copy < 0;
}

void sink_queue_pop(struct message_in *in, uint32_t n)
{
	while (n--) {
		struct sink_queue_entry *entry = in->queue;

		assert(entry);
		in->queue = entry->next;
		if (!in->queue)
			in->queue_last = NULL;
		in->queue_count--;
		in->pieces_count -= entry->pieces;
		peer_of(in)->disk_buffers -= entry->cost;
		if (!in->queue && message_in_keeps_last(in)) {
			in->last_frame = entry->frame;
			in->last_copy = entry->copy_index;
		} else if (entry->frame) {
			link_unhold(in->state->link, entry->frame);
		} else {
			copy_put(in, entry->copy_index);
		}
		entry->next = in->state->entries_free;
		in->state->entries_free = entry;
	}
}

void sink_queue_release(struct message_in *in)
{
	if (in->last_frame)
		link_unhold(in->state->link, in->last_frame);
	else if (in->last_copy >= 0)
		copy_put(in, in->last_copy);
	in->last_frame = NULL;
	in->last_copy = -1;
}

/* Reports whether we may get this many more bytes for files from the peer: at most half of the
 * memory for copies, or one get. */
bool message_may_ask(const struct message_state *state, const struct link_peer *peer,
		     uint32_t bytes)
{
	uint64_t asked = state->peers[peer->slot].asked_bytes;
	uint64_t most = (uint64_t)state->copies_share.count * MESSAGE_COPY_BYTES / 2;

	return !asked || !most || asked + bytes <= most;
}
