// SPDX-License-Identifier: BSD-2-Clause
/*
 * Bulk data that waits for a stage of the receiver: frames, held in their receive buffers. Frames
 * that wait for disks may hold a share of their peer's window, so that a disk that hangs stops
 * nobody else; beyond the share they are copied to memory, which peers have shares of, too. If
 * memory is at its bound, buffers are held after all, and only this peer waits for its disk.
 */
#include "message/message.h"

#include <assert.h>
#include <string.h>

static struct message_peer *peer_of(const struct message_in *in)
{
	return &in->state->peers[in->peer->slot];
}

/* The last that waits; NULL where the stage has it, or there is none. */
static struct message_part *last_waiting(const struct message_in *in)
{
	return in->parts_count > in->writing_parts ? in->parts_last : NULL;
}

static struct message_part *take(struct message_in *in)
{
	struct message_part *part = in->state->parts_free;

	assert(part); /* each holds a receive buffer at least or a copy, and there are as many */
	in->state->parts_free = part->next;
	part->next = NULL;
	part->kept = NULL;
	part->cost = 0;
	part->place = -1;
	part->room = 0;
	part->span.begin_ns = 0;
	return part;
}

static void add(struct message_in *in, struct message_part *part)
{
	if (in->parts_last)
		in->parts_last->next = part;
	else
		in->parts = part;
	in->parts_last = part;
	in->parts_count++;
	in->pieces_count += part->pieces;
}

/* From now on a disk holds it. */
static void count(struct message_in *in, struct message_part *part)
{
	part->cost = part->kept ? part->kept->cost : 0;
	peer_of(in)->at_disks += part->cost;
}

static void uncount(struct message_in *in, struct message_part *part)
{
	peer_of(in)->at_disks -= part->cost;
	part->cost = 0;
}

/* Holds a frame until its payload, in n pieces, is taken. */
void message_part_hold(struct message_in *in, struct link_rxframe *frame, const struct iovec *iov,
		       uint32_t n)
{
	struct message_part *part = take(in);

	part->kept = link_hold(in->state->link, frame, false);
	part->pieces = n;
	if (in->sink.base && frame->began_ns)
		part->span = link_untold(frame);
	memcpy(part->iov, iov, n * sizeof(*iov));
	add(in, part);
	if (in->stage.busy)
		count(in, part);
}

static void copy_behind(struct message_part *to, const struct iovec *iov, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		memcpy((uint8_t *)to->iov[0].iov_base + to->iov[0].iov_len, iov[i].iov_base,
		       iov[i].iov_len);
		to->iov[0].iov_len += iov[i].iov_len;
		to->room -= (uint32_t)iov[i].iov_len;
	}
}

/* Makes an empty copy of the part. The peer has room for one. */
static void become_copy(struct message_in *in, struct message_part *part)
{
	struct message_state *state = in->state;

	part->place = state->copies_free[state->copies_share.free - 1];
	share_take(&state->copies_share, &peer_of(in)->copies);
	part->room = MESSAGE_COPY_BYTES;
	part->pieces = 1;
	part->iov[0] = (struct iovec){
		.iov_base = state->copies + (size_t)part->place * MESSAGE_COPY_BYTES,
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

/* Copies a frame that would wait for a disk beyond the share, or one of few bytes, which a write
 * takes with others in one piece, but a whole message; false: it is to be held. */
bool message_part_copy(struct message_in *in, const struct iovec *iov, uint32_t n, uint32_t bytes)
{
	struct message_part *part = last_waiting(in);
	bool beyond = in->stage.busy && link_holds_share(in->peer, peer_of(in)->at_disks);
	bool small = bytes <= MESSAGE_SMALL_BYTES && bytes < in->bytes;

	if (in->sink.base || (!beyond && !small))
		return false;
	if (!part || part->room < bytes) {
		if (!may_copy(in, bytes))
			return false;
		part = take(in);
		become_copy(in, part);
		add(in, part);
	}
	copy_behind(part, iov, n);
	if (beyond)
		link_count(in->state->link, CAREFUL_C_COPIED_OUT);
	return true;
}

static uint32_t bytes_of(const struct message_part *part)
{
	uint32_t bytes = 0;

	for (uint32_t i = 0; i < part->pieces; i++)
		bytes += (uint32_t)part->iov[i].iov_len;
	return bytes;
}

/* A held frame becomes a copy, behind the one before it if that is one and has room. Returns the
 * copy it is in; NULL: it stays as it is, for there is no room. */
static struct message_part *copy_held(struct message_in *in, struct message_part *before,
				      struct message_part *part)
{
	struct iovec iov[DEVICE_SEGMENTS_MAX];
	uint32_t n = part->pieces;
	bool behind = before && before->room >= bytes_of(part);

	if (!behind && !may_copy(in, bytes_of(part)))
		return NULL;
	memcpy(iov, part->iov, n * sizeof(*iov));
	link_let_go(in->state->link, part->kept);
	part->kept = NULL;
	in->pieces_count -= n;
	if (!behind) {
		become_copy(in, part);
		in->pieces_count++;
		before = part;
	}
	copy_behind(before, iov, n);
	link_count(in->state->link, CAREFUL_C_COPIED_OUT);
	return before;
}

/* Takes the part behind `before` out, which holds nothing any more. */
static void take_out(struct message_in *in, struct message_part *before, struct message_part *part)
{
	before->next = part->next;
	if (!part->next)
		in->parts_last = before;
	in->parts_count--;
	part->next = in->state->parts_free;
	in->state->parts_free = part;
}

/* Frames that wait for a slow disk stay within their share of the window, or are copied. */
static void share_out(struct message_in *in)
{
	struct message_part *before = NULL, *next;

	for (struct message_part *part = in->parts; part; part = next) {
		struct message_part *copy = NULL;

		next = part->next;
		if (part->kept && !part->cost) {
			if (link_holds_share(in->peer, peer_of(in)->at_disks))
				copy = copy_held(in, before, part);
			if (!copy)
				count(in, part);
		}
		if (copy && copy == before)
			take_out(in, before, part);
		else
			before = part;
	}
}

/* The disk is to have what waits: in->io gets its pieces. Returns how many. */
uint32_t message_parts_write(struct message_in *in)
{
	struct storage *storage = in->state->storage;
	uint32_t n = 0;

	if (storage->ops->waits(storage, &in->io))
		share_out(in);
	in->io.bytes = 0;
	in->writing_parts = 0;
	for (const struct message_part *part = in->parts; part; part = part->next) {
		if (n + part->pieces > STORAGE_IO_SEGMENTS)
			break;
		for (uint32_t i = 0; i < part->pieces; i++, n++) {
			in->iov[n] = part->iov[i];
			in->io.bytes += part->iov[i].iov_len;
		}
		in->writing_parts++;
	}
	return n;
}

/* Reports whether the buffers of the message's last frame stay until the message is answered. */
bool message_in_stays(const struct message_in *in)
{
	return in->last && peer_of(in)->unanswered && !in->kept && in->place < 0;
}

/* Gives back the first n that wait or were taken. */
void message_parts_put(struct message_in *in, uint32_t n)
{
	while (n--) {
		struct message_part *part = in->parts;

		assert(part);
		in->parts = part->next;
		if (!in->parts)
			in->parts_last = NULL;
		in->parts_count--;
		in->pieces_count -= part->pieces;
		uncount(in, part);
		if (!in->parts && message_in_stays(in)) {
			in->kept = part->kept;
			in->place = part->place;
		} else if (part->kept) {
			link_let_go(in->state->link, part->kept);
		} else {
			give_place(in, part->place);
		}
		part->next = in->state->parts_free;
		in->state->parts_free = part;
	}
}

/* Releases what stayed of a message until it was answered. */
void message_part_release(struct message_in *in)
{
	if (in->kept)
		link_let_go(in->state->link, in->kept);
	else if (in->place >= 0)
		give_place(in, in->place);
	in->kept = NULL;
	in->place = -1;
}

/* Reports whether the peer may be asked for so much more that goes to files: as much as half the room
 * for copies holds, or one get. */
bool message_may_ask(const struct message_state *state, const struct link_peer *peer,
		     uint32_t bytes)
{
	uint64_t asked = state->peers[peer->slot].asked_bytes;
	uint64_t most = (uint64_t)state->copies_share.count * MESSAGE_COPY_BYTES / 2;

	return !asked || !most || asked + bytes <= most;
}
