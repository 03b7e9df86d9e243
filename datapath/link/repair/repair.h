/* SPDX-License-Identifier: BSD-2-Clause */
/* Repairs: resend.c sends frames again, missing.c requests them, congestion.c reacts to losses. */
#pragma once

#include <string.h>

#include "link/link_private.h"

enum {
	/* most numbers in one CAREFUL_MISSING */
	MISSING_NAMED = 8 * sizeof(((struct careful_ctrl *)0)->missing.arrived),
};

/* Returns the time, in us; never 0. */
static inline uint32_t link_us(const struct link *link)
{
	return (uint32_t)(link->now_ns / 1000) | 1;
}

/* Returns the memory for the copy of a frame's body. */
static inline uint8_t *link_log_copy(const struct link_peer *peer, uint32_t seq)
{
	const struct link_repair *repair = &peer->repair;

	return repair->copies + (size_t)(seq & repair->log_mask) * repair->copy_bytes;
}

void link_log_keep_long(struct link_peer *peer, const uint8_t *body, uint32_t body_bytes);

/* Begins the log entry of the frame that was numbered last. */
static inline struct log_entry *log_next(struct link_peer *peer, uint32_t body_bytes,
					 uint32_t flags)
{
	struct log_entry *entry = &peer->repair.log[peer->flow.seq_out & peer->repair.log_mask];

	entry->sent = peer->flow.tx.sent;
	entry->bytes_flags = body_bytes | flags;
	return entry;
}

/* Keeps what a repair of the frame needs. */
static inline void link_log_keep(struct link_peer *peer, const struct link_send_args *args,
				 const void *body, uint32_t body_bytes)
{
	log_next(peer, body_bytes, 0)->args = *args;
	if (!args->source && args->type == CAREFUL_DATA)
		memcpy(link_log_copy(peer, peer->flow.seq_out), body, body_bytes);
}

/* Keeps a message of one frame, without a digest. The copy has a constant size, for speed; the send
 * buffer is larger. */
static inline void link_log_keep_small(struct link_peer *peer, const uint8_t *body,
				       uint32_t body_bytes)
{
	if (__builtin_expect(body_bytes > LOG_BODY_BYTES, false))
		link_log_keep_long(peer, body, body_bytes);
	else
		memcpy(log_next(peer, body_bytes, LOG_BRIEF)->body, body, LOG_BODY_BYTES);
}

/* Reports whether the frame of this number waits for earlier ones. */
static inline bool reorder_holds(const struct link_peer *peer, uint32_t seq)
{
	return peer->repair.early_count && peer->repair.early[seq & peer->link->early_mask];
}

/* Returns how many numbers are missing. */
static inline uint32_t reorder_missing(const struct link_peer *peer)
{
	uint32_t beyond = peer->repair.highest - peer->flow.seq_in;

	return (int32_t)beyond > 0 ? beyond - peer->repair.early_count : 0;
}

/* log.c */
struct link_send_args link_log_short_args(uint32_t body_bytes);
int link_log_open(struct link_peer *peer, uint32_t window, uint32_t reserve);
void link_log_free(struct link_repair *repair);
void link_again_tick(struct link_peer *peer);
bool link_log_came(struct link_peer *peer, uint32_t seq);
bool link_log_on_missing(struct link_peer *peer, const struct careful_ctrl *ctrl);

/* Returns w. */
static inline uint32_t congestion_now(const struct link_peer *peer)
{
	return peer->flow.rx.size - peer->session->missing.withheld;
}

/* congestion.c */
void congestion_early(struct link_peer *peer);
void congestion_check(struct link_peer *peer);
void congestion_lost(struct link_peer *peer);
void congestion_tick(struct link_peer *peer);
void congestion_late(struct link_peer *peer);

/* reorder.c */
int reorder_init(struct link *link);
void reorder_deinit(struct link *link);
void reorder_duplicate(struct link_rxframe *frame);
enum careful_counter reorder_take(struct link_rxframe *frame, uint32_t ahead);
void reorder_unwait(struct link_peer *peer, uint32_t *entry, struct link_rxframe *frame);
void reorder_open(struct link_peer *peer);
void reorder_forget(struct link_peer *peer);
void reorder_next(struct link_peer *peer);
bool reorder_sent(struct link_peer *peer, uint32_t seq);
bool reorder_said(struct link_peer *peer, uint32_t seq);

/* missing.c */
void missing_begin(struct link_peer *peer, uint32_t from, uint32_t to);
void missing_came(struct link_peer *peer, uint32_t seq);
uint32_t missing_silent_wait_us(const struct link_peer *peer);
void missing_ask(struct link_peer *peer);
bool missing_tick(struct link_peer *peer);
void missing_drained(struct link_peer *peer);
