// SPDX-License-Identifier: BSD-2-Clause
/* Acknowledgements and requests of the traditional protocol. An answer leaves after the repeated
 * frames, on the same path. So frames that are missing when it arrives were lost again. */
#include "link/traditional/traditional_private.h"

#include <endian.h>
#include <string.h>

enum {
	BITMAP_BYTES = 64, /* most bytes of an acknowledgement */
	VAIN_MOST = 4, /* useless answers, before the next request waits */
};

static uint32_t slot_of(const struct link_peer *peer, uint32_t seq)
{
	return seq & (peer->link->traditional->numbers_in - 1);
}

/* Reports whether request a exists and is not later than b. */
static bool no_later(uint16_t a, uint16_t b)
{
	return a && (int16_t)(b - a) >= 0;
}

/* Returns the free buffers of the peer's share. */
uint32_t traditional_room(const struct link_peer *peer)
{
	uint32_t held = peer->kept + traditional_peer(peer)->early_buffers;
	uint32_t share = peer->flow.rx.size;

	return held < share ? share - held : 0;
}

/* Reports whether a number is missing, and was not requested or was requested in vain. */
bool traditional_wanted(const struct link_peer *peer, uint32_t seq)
{
	const struct traditional *t = traditional_peer(peer);
	uint16_t asked = t->asked[slot_of(peer, seq)];

	return !t->early[slot_of(peer, seq)] && (!asked || no_later(asked, t->heard));
}

/* Returns how many numbers to check: at most the bitmap's, and those that can wait here. */
static uint32_t numbers_to_check(const struct link_peer *peer)
{
	uint32_t numbers = traditional_peer(peer)->highest - peer->flow.seq_in;
	uint32_t most = peer->link->traditional->numbers_in - 1;

	most = most < BITMAP_BYTES * 8 ? most : BITMAP_BYTES * 8;
	return numbers < most ? numbers : most;
}

/* Returns how many numbers to request at a time: no more than there is room for (P2 section 5.2). */
static uint32_t ask_max(const struct link_peer *peer)
{
	const struct traditional_link *all = peer->link->traditional;
	uint32_t own = traditional_peer(peer)->early_buffers, half = all->early_pool / 2;
	uint32_t left = own < all->early_max ? all->early_max - own : 0;
	uint32_t shared = all->early_buffers < half ? half - all->early_buffers : 0;

	return 1 + (left > shared ? left : shared);
}

/* Returns the bytes of a bitmap up to its last set bit. */
static uint32_t used_bytes(const uint8_t *bits)
{
	uint32_t n = BITMAP_BYTES;

	while (n && !bits[n - 1])
		n--;
	return n;
}

static uint32_t write_wanted(struct link_peer *peer, uint8_t *bits)
{
	struct traditional *t = traditional_peer(peer);
	uint32_t count = 0, most = ask_max(peer);

	for (uint32_t i = 0; i < numbers_to_check(peer) && count < most; i++) {
		uint32_t seq = peer->flow.seq_in + 1 + i;

		if (!traditional_wanted(peer, seq))
			continue;
		bits[i / 8] |= (uint8_t)(1u << i % 8);
		t->asked[slot_of(peer, seq)] = t->question;
		count++;
	}
	return count;
}

static void write_arrived(const struct link_peer *peer, uint8_t *bits)
{
	for (uint32_t i = 0; i < numbers_to_check(peer); i++)
		if (traditional_peer(peer)->early[slot_of(peer, peer->flow.seq_in + 1 + i)])
			bits[i / 8] |= (uint8_t)(1u << i % 8);
}

static void number_request(struct link_peer *peer)
{
	struct traditional *t = traditional_peer(peer);

	if (!++t->question)
		t->question = 1;
	if (t->timed)
		return;
	t->timed = t->question;
	t->timed_ns = peer->link->now_ns;
}

/* Reports whether an acknowledgement or a request is due. A refused frame is requested once there
 * is room. */
bool traditional_due(struct link_peer *peer)
{
	struct traditional *t = traditional_peer(peer);

	if (t->refused && peer->kept < peer->flow.rx.threshold) {
		t->refused = false;
		t->question_due = true;
	}
	return t->answer_due || t->question_due;
}

static void send_ack(struct link_peer *peer, struct link_txframe *frame, const uint8_t *bits,
		     bool ask)
{
	uint32_t bytes = used_bytes(bits);
	struct link_send_args args = {
		.type = CAREFUL_ACK,
		.flags = ask ? CAREFUL_F_ASK : 0,
		.msg_id = ask ? traditional_peer(peer)->question : 0,
		.msg_bytes = traditional_room(peer),
		.frag_bytes = (uint16_t)bytes,
		.crc_bytes = bytes,
	};

	memcpy(frame->body, bits, bytes);
	link_send_own(frame, &args, bytes);
	link_count(peer->link, CAREFUL_C_ACKS_SENT);
}

/* Sends a request for missing numbers, after time_out() even if none is missing. */
static bool ask(struct link_peer *peer)
{
	struct traditional *t = traditional_peer(peer);
	uint8_t bits[BITMAP_BYTES] = { 0 };
	struct link_txframe frame;
	uint16_t before = t->question;
	uint32_t n;

	if (!link_tx_get_own(peer, &frame))
		return false;
	number_request(peer);
	n = write_wanted(peer, bits);
	t->question_due = false;
	if (!n && !t->out_of_time) {
		t->timed = t->timed == t->question ? 0 : t->timed;
		t->question = before;
		link_tx_put(&frame);
		return true;
	}
	t->out_of_time = false;
	peer->link->counters[CAREFUL_C_ASKED_AGAIN] += n;
	peer->session->asked_again += n;
	send_ack(peer, &frame, bits, true);
	return true;
}

static bool answer(struct link_peer *peer)
{
	uint8_t bits[BITMAP_BYTES] = { 0 };
	struct link_txframe frame;

	if (!link_tx_get_own(peer, &frame))
		return false;
	write_arrived(peer, bits);
	traditional_peer(peer)->answer_due = false;
	send_ack(peer, &frame, bits, false);
	return true;
}

/* Sends what is due. Returns false if there is no send buffer. */
bool traditional_send_ack(struct link_peer *peer)
{
	if (traditional_peer(peer)->question_due && !ask(peer))
		return false;
	return !traditional_peer(peer)->answer_due || answer(peer);
}

void traditional_on_ack(struct link_peer *peer, const struct link_rxframe *frame)
{
	const struct careful_hdr *hdr = &frame->hdr;
	struct traditional *t = traditional_peer(peer);
	uint32_t after = be32toh(hdr->credits);
	uint32_t bytes = frame->body_total;

	link_count(peer->link, CAREFUL_C_ACKS_RECEIVED);
	if (!(hdr->flags & CAREFUL_F_ASK)) {
		traditional_acked_selected(peer, after, frame->body, bytes);
		/* A peer without room must not end the session. */
		if (!be32toh(hdr->msg_bytes))
			t->come_ns = peer->link->now_ns;
		return;
	}
	traditional_send_again(peer, after, frame->body, bytes);
	if (!t->answered || no_later(t->answered, (uint16_t)be32toh(hdr->msg_id)))
		t->answered = (uint16_t)be32toh(hdr->msg_id);
	t->answer_due = true;
	link_dirty(peer);
}

/* Times the answer to the timed request. The answer to a later request gives no time. */
static void time_answer(struct link_peer *peer, uint16_t answered)
{
	struct traditional *t = traditional_peer(peer);
	uint64_t took_ns = peer->link->now_ns - t->timed_ns;

	if (answered == t->timed)
		t->round_ns = t->round_ns ? (7 * t->round_ns + took_ns) / 8 : took_ns;
	t->timed = 0;
}

/* Handles the answer to our requests up to this one: their frames are here, or lost again. */
void traditional_on_answered(struct link_peer *peer, uint16_t answered)
{
	struct traditional *t = traditional_peer(peer);

	if (!no_later(answered, t->question))
		return;
	if (no_later(t->timed, answered))
		time_answer(peer, answered);
	if (t->heard && no_later(answered, t->heard))
		return;
	t->heard = answered;
	/* Without room here, the request comes later. */
	if (peer->flow.seq_in != t->highest && !t->refused && t->vain++ < VAIN_MOST) {
		t->question_due = true;
		link_dirty(peer);
	}
}
