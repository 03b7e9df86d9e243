/* SPDX-License-Identifier: BSD-2-Clause */
/* Trains measure the burst that a path takes. The receiver measures (train.c); the sender sends on
 * request (train_out.c). */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <careful/careful.h>
#include <careful/wire.h>

struct link;
struct link_peer;

enum {
	TRAIN_HOLD_MS = 2000, /* for which a peer holds its data without another message */
};

/* window_share.c */
uint32_t link_peer_window(const struct link_peer *peer);
bool link_peer_spares(const struct link_peer *peer);
uint32_t link_peer_room(const struct link_peer *peer);

/* train.c */
uint32_t link_train_hold_ms(const struct link_peer *peer);
bool link_train_begin(struct link_peer *peer);
void link_train_reset(struct link_peer *peer);
void link_train_lost(struct link_peer *peer);
void link_train_want(struct link_peer *peer);
bool link_on_train_sent(struct link_peer *peer, const struct careful_ctrl *ctrl);
bool link_on_train_over(struct link_peer *peer, const struct careful_ctrl *ctrl);
bool link_train_opens(struct link_peer *peer);
bool link_train_tick(struct link_peer *peer);
void link_train_info(const struct link_peer *peer, struct careful_peer_info *info);
void train_hold(struct link_peer *peer, uint32_t hold_ms);
void train_say(struct link_peer *peer, uint8_t type, uint32_t number, uint32_t frames);

/* train_out.c */
bool link_on_train_ask(struct link_peer *peer, const struct careful_ctrl *ctrl);
void link_trains_send(struct link *link);
void train_out_tick(struct link_peer *peer);
