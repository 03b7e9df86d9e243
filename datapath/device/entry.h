/* SPDX-License-Identifier: BSD-2-Clause */
/* User space's access to a peer's entry (abi.h) while XDP, or the simulator, writes to it. */
#pragma once

#include <careful/abi.h>

#include "device/device.h"

/* Starts to count the train of this number. The 0 stops XDP, so that no frame of an older train is
 * counted. */
static inline void entry_train(struct careful_peer_entry *peer, uint32_t number)
{
	__atomic_store_n(&peer->train, 0, __ATOMIC_SEQ_CST);
	peer->train_frames = peer->train_whole = 0;
	peer->train_first_ns = peer->train_last_ns = 0;
	__atomic_store_n(&peer->train, number, __ATOMIC_RELEASE);
}

static inline void entry_trained(const struct careful_peer_entry *peer, struct train_seen *seen)
{
	seen->frames = __atomic_load_n(&peer->train_frames, __ATOMIC_ACQUIRE);
	seen->whole = peer->train_whole;
	seen->span_ns = peer->train_last_ns - peer->train_first_ns;
}
