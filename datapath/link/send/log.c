// SPDX-License-Identifier: BSD-2-Clause
/* The log of frames that have left, and the peer's requests for them (log.h). */
#include "link/link_private.h"
#include "link/repair/repair.h"
#include "link/peer/path_search.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
	CACHE_LINE = 64,
	AGAIN_MIN_US = 32, /* between two repairs of a frame; doubled for each repair, */
	AGAIN_DOUBLED_MAX = 5, /* at most this often: up to 1 ms */
	REPEATED_EACH_TICK = 16,
};

/* Returns the smallest power of two that is at least n, and at least 8. */
static uint32_t power_from(uint32_t n)
{
	uint32_t size = 8;

	while (size < n)
		size *= 2;
	return size;
}

/* Returns the distance of copies: an odd number of cache lines, so that consecutive copies use
 * different sets of the cache. */
static uint32_t copy_bytes(const struct link *link)
{
	uint32_t body = link->queue->chunk_bytes - LINK_PAYLOAD_AT;

	return ((body + CACHE_LINE - 1) / CACHE_LINE | 1) * CACHE_LINE;
}

/* Returns link_send()'s arguments for a message that tx_small.c builds. */
struct link_send_args link_log_short_args(uint32_t body_bytes)
{
	uint32_t bytes = body_bytes - (uint32_t)sizeof(struct careful_am);

	return (struct link_send_args){
		.type = CAREFUL_DATA,
		.flags = CAREFUL_F_FIRST | CAREFUL_F_LAST,
		.msg_bytes = bytes,
		.frag_bytes = (uint16_t)bytes,
		.crc_bytes = body_bytes,
	};
}

void link_log_keep_long(struct link_peer *peer, const uint8_t *body, uint32_t body_bytes)
{
	const struct link_send_args args = link_log_short_args(body_bytes);

	link_log_keep(peer, &args, body, body_bytes);
}

/* Makes room for the peer's window and the most that it grants. -EPROTO: no host has such a window;
 * -ENOMEM. */
int link_log_open(struct link_peer *peer, uint32_t window, uint32_t reserve)
{
	struct link_repair *repair = &peer->repair;
	uint32_t size = power_from(window + 2 * reserve);

	repair->acked = repair->wanted = 0;
	repair->may_repeat = window;
	if (!peer->link->repairs)
		return 0;
	if (window > LINK_WINDOW_MAX || reserve > LINK_GRANT_MAX)
		return -EPROTO;
	if (repair->log && size <= repair->log_mask + 1)
		return 0;
	link_log_free(repair);
	repair->copy_bytes = copy_bytes(peer->link);
	repair->log = calloc(size, sizeof(*repair->log));
	repair->copies = calloc(size, repair->copy_bytes);
	if (!repair->log || !repair->copies) {
		link_log_free(repair);
		return -ENOMEM;
	}
	repair->log_mask = size - 1;
	return 0;
}

void link_log_free(struct link_repair *repair)
{
	free(repair->log);
	free(repair->copies);
	repair->log = NULL;
	repair->copies = NULL;
	repair->log_mask = 0;
}

/* Reports whether a frame of ours needs no repair: it has arrived, is too old for the log, or belongs
 * to another epoch. */
bool link_resolved(const struct link_peer *peer, uint32_t seq)
{
	const struct link_repair *repair = &peer->repair;
	const struct window_tx *tx = &peer->flow.tx;

	if (!repair->log || (int32_t)(seq - repair->acked) <= 0 ||
	    peer->flow.seq_out - seq > repair->log_mask)
		return true;
	return (int32_t)(tx->credits - tx->reserve - repair->log[seq & repair->log_mask].sent) >= 0;
}

/* Notes that the peer has all our frames up to this number. Returns false if that is impossible. */
bool link_log_came(struct link_peer *peer, uint32_t seq)
{
	if (!peer->repair.log)
		return true;
	if ((int32_t)(seq - peer->flow.seq_out) > 0)
		return false;
	if ((int32_t)(seq - peer->repair.acked) > 0)
		peer->repair.acked = seq;
	return true;
}

/* Reports whether a frame was sent again so recently that a repair may be under way. This bounds the
 * copies that a peer gets, whatever it requests. */
static bool sent_lately(const struct log_entry *entry, uint32_t now_us)
{
	uint32_t times = entry->bytes_flags / LOG_TIMES;
	uint32_t doubled = times < AGAIN_DOUBLED_MAX ? times : AGAIN_DOUBLED_MAX;

	return times && now_us - entry->again_us < (uint32_t)AGAIN_MIN_US << doubled;
}

/* Notes that the peer requests a frame. */
static void want(struct link_peer *peer, uint32_t seq, uint32_t now_us)
{
	struct log_entry *entry = &peer->repair.log[seq & peer->repair.log_mask];

	if ((int32_t)(seq - peer->repair.acked) <= 0 || entry->bytes_flags & LOG_WANTED ||
	    sent_lately(entry, now_us))
		return;
	path_search_doubt(peer, seq, entry->bytes_flags & LOG_BYTES,
			  entry->bytes_flags / LOG_TIMES);
	entry->bytes_flags |= LOG_WANTED;
	if (!peer->repair.wanted++ || (int32_t)(seq - peer->repair.wanted_from) < 0)
		peer->repair.wanted_from = seq;
	peer->link->again = true;
	peer->link->mending = LINK_MENDING;
}

/* Takes the numbers that the peer misses. Returns false if one was never sent. */
bool link_log_on_missing(struct link_peer *peer, const struct careful_ctrl *ctrl)
{
	uint32_t from = be32toh(ctrl->missing.before), to = be32toh(ctrl->missing.last);
	uint32_t now_us = (uint32_t)(peer->link->now_ns / 1000);

	if ((int32_t)(to - peer->flow.seq_out) > 0 || to - from > MISSING_NAMED ||
	    !link_log_came(peer, be32toh(ctrl->missing.seq_rcvd)))
		return false;
	for (uint32_t i = 0; i < to - from; i++)
		if (!(ctrl->missing.arrived[i / 8] >> i % 8 & 1))
			want(peer, from + 1 + i, now_us);
	return true;
}

void link_again_done(struct link_peer *peer, uint32_t seq)
{
	struct log_entry *entry = &peer->repair.log[seq & peer->repair.log_mask];

	peer->repair.wanted -= (entry->bytes_flags & LOG_WANTED) != 0;
	peer->repair.may_repeat -= peer->repair.may_repeat > 0;
	entry->bytes_flags &= ~(uint32_t)LOG_WANTED;
	if (entry->bytes_flags / LOG_TIMES < LOG_TIMES_MAX)
		entry->bytes_flags += LOG_TIMES;
	entry->again_us = (uint32_t)(peer->link->now_ns / 1000);
}

/* Lets more repairs leave: of at most a window at once, and of a few each tick. Without this, a peer
 * that requests without end takes the time and the send buffers of the others. */
void link_again_tick(struct link_peer *peer)
{
	if (peer->repair.may_repeat < peer->flow.tx.size)
		peer->repair.may_repeat += REPEATED_EACH_TICK;
}

bool link_wants(const struct link_peer *peer, uint32_t seq)
{
	const struct link_repair *repair = &peer->repair;

	return repair->wanted && (repair->log[seq & repair->log_mask].bytes_flags & LOG_WANTED);
}
