/* SPDX-License-Identifier: BSD-2-Clause */
/* Repairs: log.c sends frames again, early.c finds them missing. */
#ifndef LINK_REPAIR_H
#define LINK_REPAIR_H

#include <string.h>

#include "link/link.h"

enum {
	/* Numbers that one CAREFUL_MISSING names. */
	MISSING_NAMED = 8 * sizeof(((struct careful_ctrl *)0)->name),
};

/* A frame has left: what is needed to send it again. */
static inline void link_log_keep(struct link_peer *peer, const struct link_send_args *args,
				 const void *body, uint32_t body_bytes)
{
	uint32_t at = peer->flow.seq_out & peer->repair.log_mask;
	struct log_entry *entry = &peer->repair.log[at];

	entry->args = *args;
	entry->sent = peer->flow.tx.sent;
	entry->body_bytes = body_bytes;
	entry->again_ms = 0;
	entry->wanted = false;
	if (!args->source && args->type == CAREFUL_DATA)
		memcpy(peer->repair.copies + (size_t)at * peer->repair.copy_bytes, body,
		       body_bytes);
}

/* Reports whether a number beyond the one that is due has come. */
static inline bool early_is(const struct link_peer *peer, uint32_t seq)
{
	return peer->repair.early_count && peer->repair.early[seq & peer->link->early_mask];
}

/* Numbers that are missing. */
static inline uint32_t early_missing(const struct link_peer *peer)
{
	uint32_t beyond = peer->repair.highest - peer->flow.seq_in;

	return (int32_t)beyond > 0 ? beyond - peer->repair.early_count : 0;
}

/* log.c */
int link_log_open(struct link_peer *peer, uint32_t window, uint32_t reserve);
void link_log_free(struct link_repair *repair);
bool link_log_came(struct link_peer *peer, uint32_t seq);
bool link_log_on_missing(struct link_peer *peer, const struct careful_ctrl *ctrl);

/* early.c */
int early_init(struct link *link);
void early_deinit(struct link *link);
void early_twice(struct link_rxframe *frame);
enum careful_counter early_take(struct link_rxframe *frame, uint32_t ahead);
bool early_follow(struct link *link, struct link_rxframe *frame);
void early_open(struct link_peer *peer);
void early_forget(struct link_peer *peer);
bool early_sent(struct link_peer *peer, uint32_t seq);
bool early_said(struct link_peer *peer, uint32_t seq);
void early_ask(struct link_peer *peer);
bool early_tick(struct link_peer *peer);
void early_drained(struct link_peer *peer);

#endif /* LINK_REPAIR_H */
