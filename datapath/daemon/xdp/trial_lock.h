/* SPDX-License-Identifier: BSD-2-Clause */
/* The trial lock: while its holder tries XDP modes, only the trial moves data between both
 * hosts. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "daemon/xdp/xdp_trial.h"

/* Serves peers' requests for the lock. */
int xdp_trial_lock_serve(struct trial *trial);
/* Ends the lock of a peer, if the peer holds one. */
void xdp_trial_lock_end(struct trial *trial, uint32_t peer);
/* Asks all peers for the lock at once (xdp_trial_ask_all()). Returns -EBUSY if a peer refuses now,
 * or another -errno if a peer does not know the trial lock. */
int xdp_trial_lock_ask(const struct trial *trial, const uint32_t *peers, uint32_t count,
		       uint32_t *first);
/* Asks a peer to end our lock, without waiting. A lost request leaves CAREFUL_TRIAL_LOCK_MS. */
void xdp_trial_lock_release(const struct trial *trial, uint32_t peer);

/* Returns careful_peer_info(), or state CAREFUL_PEER_NONE if that fails. */
struct careful_peer_info xdp_trial_peer(const struct trial *trial, uint32_t peer);
bool xdp_trial_is_up(uint32_t state);
/* Reports whether nothing is under way with a peer, and no frame has moved since the last call. */
bool xdp_trial_is_quiet(struct trial *trial, uint32_t peer);
