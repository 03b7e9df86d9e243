// SPDX-License-Identifier: BSD-2-Clause
/* Bulk data that waits for a stage of the receiver, as frames held in their receive buffers. Frames
 * that wait for disks may hold only a share of their peer's window, so that a hanging disk stops no
 * other traffic. Beyond the share they are copied to memory, of which each peer has a share too. If
 * memory is at its bound, buffers are held after all, and only this peer waits for its disk. */
#include "message/message.h"

#include <assert.h>
#include <string.h>

static struct message_peer *peer_of(const struct message_in *in)
{
	return &in->state->peers[in->peer->slot];
}

/* Returns the last entry; NULL if the stage works on it, or there is none. */
static struct sink_queue_entry *last_waiting(const struct message_in *in)
{
	return in->queue_count > in->writing_entries ? in->queue_last : NULL;
}

static struct sink_queue_entry *take(struct message_in *in)
{
	struct sink_queue_entry *entry = in->state->entries_free;

	assert(entry); /* each holds a receive buffer at least or a copy, and there are as many */
	in->state->entries_free = entry->next;
	entry->next = NULL;
	entry->kept = NULL;
	entry->cost = 0;
	entry->place = -1;
	entry->room = 0;
	entry->span.begin_ns = 0;
	return entry;
}

static void add(struct message_in *in, struct sink_queue_entry *entry)
{
	if (in->queue_last)
		in->queue_last->next = entry;
	else
		in->queue = entry;
	in->queue_last = entry;
	in->queue_count++;
	in->pieces_count += entry->pieces;
}

static void count(struct message_in *in, struct sink_queue_entry *entry)
{
	entry->cost = entry->kept ? entry->kept->cost : 0;
	peer_of(in)->at_disks += entry->cost;
}

static void uncount(struct message_in *in, struct sink_queue_entry *entry)
{
	peer_of(in)->at_disks -= entry->cost;
	entry->cost = 0;
}

/* Holds a frame until its payload, in n pieces, is taken. */
void sink_queue_hold(struct message_in *in, struct link_rxframe *frame, const struct iovec *iov,
		     uint32_t n)
{
	struct sink_queue_entry *entry = take(in);

	entry->kept = link_hold(in->state->link, frame, false);
	entry->pieces = n;
	if (in->sink.base && frame->began_ns)
		entry->span = link_untold(frame);
	memcpy(entry->iov, iov, n * sizeof(*iov));
	add(in, entry);
	if (in->stage.busy)
		count(in, entry);
}

static void copy_behind(struct sink_queue_entry *to, const struct iovec *iov, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		memcpy((uint8_t *)to->iov[0].iov_base + to->iov[0].iov_len, iov[i].iov_base,
		       iov[i].iov_len);
		to->iov[0].iov_len += iov[i].iov_len;
		to->room -= (uint32_t)iov[i].iov_len;
	}
}

/* Makes the entry an empty copy. The peer has room for one. */
static void become_copy(struct message_in *in, struct sink_queue_entry *entry)
{
	struct message_state *state = in->state;

	entry->place = state->copies_free[state->copies_share.free - 1];
	share_take(&state->copies_share, &peer_of(in)->copies);
	entry->room = MESSAGE_COPY_BYTES;
	entry->pieces = 1;
	entry->iov[0] = (struct iovec){
		.iov_base = state->copies + (size_t)entry->place * MESSAGE_COPY_BYTES,
	};
}

static void give_place(struct message_in *in, int32_t place)
{
	struct message_state *state = in->state;

	state->copies_free[state->copies_share.free] = place;
	share_put(&state->copies_share, &peer_of(in)->copies);
}

static bool may_copy(const struct message_in *in, uint32_t bytes)
{
	return bytes <= MESSAGE_COPY_BYTES &&
	       share_may(&in->state->copies_share, peer_of(in)->copies);
}

/* Copies a frame that would wait for a disk beyond the share, or a small one, since one write then
 * takes several; but not a whole message. Returns false if the frame must be held. */
bool sink_queue_copy(struct message_in *in, const struct iovec *iov, uint32_t n, uint32_t bytes)
{
	struct sink_queue_entry *entry = last_waiting(in);
	bool beyond = in->stage.busy && link_holds_share(in->peer, peer_of(in)->at_disks);
	bool small = bytes <= MESSAGE_SMALL_BYTES && bytes < in->bytes &&
		     !sink_exact(in->minpulse_bytes[CAREFUL_SINK_STORE]);

	if (in->sink.base || (!beyond && !small))
		return false;
	if (!entry || entry->room < bytes) {
		if (!may_copy(in, bytes))
			return false;
		entry = take(in);
		become_copy(in, entry);
		add(in, entry);
	}
	copy_behind(entry, iov, n);
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

/* Copies a held frame, behind the entry before it if that is a copy with room. Returns the copy;
 * NULL if there is no room, and the frame stays held. */
static struct sink_queue_entry *copy_held(struct message_in *in, struct sink_queue_entry *before,
					  struct sink_queue_entry *entry)
{
	struct iovec iov[DEVICE_SEGMENTS_MAX];
	uint32_t n = entry->pieces;
	bool behind = before && before->room >= bytes_of(entry);

	if (!behind && !may_copy(in, bytes_of(entry)))
		return NULL;
	memcpy(iov, entry->iov, n * sizeof(*iov));
	link_unhold(in->state->link, entry->kept);
	entry->kept = NULL;
	in->pieces_count -= n;
	if (!behind) {
		become_copy(in, entry);
		in->pieces_count++;
		before = entry;
	}
	copy_behind(before, iov, n);
	link_count(in->state->link, CAREFUL_C_COPIED_OUT);
	return before;
}

/* Removes the entry behind `before`, which holds nothing any longer. */
static void take_out(struct message_in *in, struct sink_queue_entry *before,
		     struct sink_queue_entry *entry)
{
	before->next = entry->next;
	if (!entry->next)
		in->queue_last = before;
	in->queue_count--;
	entry->next = in->state->entries_free;
	in->state->entries_free = entry;
}

/* Keeps the frames that wait for a slow disk within their share of the window; copies the
 * others. */
static void share_out(struct message_in *in)
{
	struct sink_queue_entry *before = NULL, *next;

	for (struct sink_queue_entry *entry = in->queue; entry; entry = next) {
		struct sink_queue_entry *copy = NULL;

		next = entry->next;
		if (entry->kept && !entry->cost) {
			if (link_holds_share(in->peer, peer_of(in)->at_disks))
				copy = copy_held(in, before, entry);
			if (!copy)
				count(in, entry);
		}
		if (copy && copy == before)
			take_out(in, before, entry);
		else
			before = entry;
	}
}

/* Fills in->io with waiting pieces for the disk. Returns how many. */
uint32_t sink_queue_write(struct message_in *in)
{
	struct storage *storage = in->state->storage;
	uint32_t pulse = in->minpulse_bytes[CAREFUL_SINK_STORE], n = 0;

	if (storage->ops->waits(storage, &in->io))
		share_out(in);
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

/* Reports whether the buffers of the message's last frame stay until the message is answered. */
bool message_in_stays(const struct message_in *in)
{
	return in->last && peer_of(in)->unanswered && !in->kept && in->place < 0;
}

void sink_queue_put(struct message_in *in, uint32_t n)
{
	while (n--) {
		struct sink_queue_entry *entry = in->queue;

		assert(entry);
		in->queue = entry->next;
		if (!in->queue)
			in->queue_last = NULL;
		in->queue_count--;
		in->pieces_count -= entry->pieces;
		uncount(in, entry);
		if (!in->queue && message_in_stays(in)) {
			in->kept = entry->kept;
			in->place = entry->place;
		} else if (entry->kept) {
			link_unhold(in->state->link, entry->kept);
		} else {
			give_place(in, entry->place);
		}
		entry->next = in->state->entries_free;
		in->state->entries_free = entry;
	}
}

void sink_queue_release(struct message_in *in)
{
	if (in->kept)
		link_unhold(in->state->link, in->kept);
	else if (in->place >= 0)
		give_place(in, in->place);
	in->kept = NULL;
	in->place = -1;
}

/* Reports whether we may ask the peer for this many more bytes for files: at most half of the room
 * for copies, or one get. */
bool message_may_ask(const struct message_state *state, const struct link_peer *peer,
		     uint32_t bytes)
{
	uint64_t asked = state->peers[peer->slot].asked_bytes;
	uint64_t most = (uint64_t)state->copies_share.count * MESSAGE_COPY_BYTES / 2;

	return !asked || !most || asked + bytes <= most;
}
