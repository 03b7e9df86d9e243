/* SPDX-License-Identifier: BSD-2-Clause */
/* Shared by the files of the traditional protocol; nobody else includes this. */
#pragma once

#include "link/link.h"

/* traditional_tx.c: sent frames, until they have come. */
struct flow_stamp traditional_leave(struct link_peer *peer, const struct device_desc *desc,
				    uint32_t segments, enum careful_type type, uint8_t *flags);
void traditional_stamp(const struct link_peer *peer, struct careful_hdr *hdr);
void traditional_left(struct link *link, uint64_t addr);
bool traditional_come(struct link_peer *peer, uint32_t seq);
void traditional_come_selected(struct link_peer *peer, uint32_t after, const uint8_t *bits,
			       uint32_t bytes);
void traditional_again(struct link_peer *peer, uint32_t after, const uint8_t *bits, uint32_t bytes);
void traditional_forget_sent(struct link_peer *peer);
bool traditional_short(const struct link_peer *peer);
bool traditional_may_keep(const struct link_peer *peer, uint32_t more);

/* traditional_ack.c: acknowledgements and questions. */
uint32_t traditional_room(const struct link_peer *peer);
bool traditional_due(struct link_peer *peer);
bool traditional_wanted(const struct link_peer *peer, uint32_t seq);
bool traditional_tell(struct link_peer *peer);
void traditional_on_ack(struct link_peer *peer, const struct link_rxframe *frame);
void traditional_on_answered(struct link_peer *peer, uint16_t answered);

/* traditional_rx.c: frames that come, and those that do not. */
bool traditional_take(struct link *link, struct link_rxframe *frame);
bool traditional_follow(struct link *link, struct link_rxframe *frame);
void traditional_forget_received(struct link_peer *peer);
