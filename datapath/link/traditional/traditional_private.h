/* SPDX-License-Identifier: BSD-2-Clause */
/* Shared by the files of the traditional protocol. */
#pragma once

#include "link/link_private.h"

static inline struct traditional *traditional_peer(const struct link_peer *peer)
{
	return &peer->link->traditional->peers[peer->slot];
}

/* traditional_tx.c */
struct flow_stamp traditional_number_frame(struct link_peer *peer, const struct device_desc *desc,
					   uint32_t segments, enum careful_type type,
					   uint8_t *flags);
void traditional_write_ack(const struct link_peer *peer, struct careful_hdr *hdr);
void traditional_sent(struct link *link, uint64_t addr);
bool traditional_acked(struct link_peer *peer, uint32_t seq);
void traditional_acked_selected(struct link_peer *peer, uint32_t after, const uint8_t *bits,
				uint32_t bytes);
void traditional_send_again(struct link_peer *peer, uint32_t after, const uint8_t *bits,
			    uint32_t bytes);
void traditional_forget_sent(struct link_peer *peer);
bool traditional_short(const struct link_peer *peer);
bool traditional_may_keep(const struct link_peer *peer, uint32_t more);

/* traditional_ack.c */
uint32_t traditional_room(const struct link_peer *peer);
bool traditional_due(struct link_peer *peer);
bool traditional_wanted(const struct link_peer *peer, uint32_t seq);
bool traditional_send_ack(struct link_peer *peer);
void traditional_on_ack(struct link_peer *peer, const struct link_rxframe *frame);
void traditional_on_answered(struct link_peer *peer, uint16_t answered);

/* traditional_rx.c */
bool traditional_take(struct link *link, struct link_rxframe *frame);
bool traditional_next_waiting(struct link *link, struct link_rxframe *frame);
void traditional_forget_received(struct link_peer *peer);
