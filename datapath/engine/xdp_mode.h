/* SPDX-License-Identifier: BSD-2-Clause */
/* Changes the XDP mode of an open instance, and keeps other peers quiet while carefuld measures. */
#pragma once

#include <stdint.h>

#include <careful/careful.h>

/* Lets only this peer begin sessions; other peers wait. CAREFUL_ANY_PEER: lets all peers begin
 * sessions, and ends a change under way. */
void xdp_mode_alone(struct careful *instance, uint32_t peer);

/* Ends every epoch, drains the RX ring, switches the device to another mode, and begins new epochs.
 * Call it in each round until it no longer returns -EAGAIN. Returns 0, or -errno with *error. After
 * an error the mode is unchanged, unless the statistics report that no program is on the interface.
 * Operations under way fail, as in any new epoch. */
int xdp_mode_change(struct careful *instance, uint32_t mode, struct careful_error *error);

/* Returns how often the link lost its carrier since the instance was opened. */
uint32_t xdp_mode_link_downs(struct careful *instance);
/* Returns how often our qdisc was restored after another program removed it. */
uint32_t xdp_mode_qdiscs(struct careful *instance);

/* Sets xdp_by of careful_info(), enum careful_xdp_by. */
void xdp_mode_decided(struct careful *instance, uint32_t by);
