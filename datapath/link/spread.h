/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Peers of an interface with several queues: each queue has an engine, with a UDP port of its own,
 * and a HELLO to the first one's port that is ready to go elsewhere is told where. As it says so in
 * a CHALLENGE, who asks has no state here yet; who asks not is served where it asked.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <careful/wire.h>

#include "device/device.h"

struct link;
struct link_peer;

/* The place of a host. @queue: of ours; @among: queues of its own that reach it, a bit each; 0:
 * nothing is to be said */
struct spread_place {
	uint16_t queue;
	uint32_t among;
};

/* The number of a host's address, not 0 (abi.h: struct careful_queue_entry). */
uint64_t spread_host(const union address *host);
/* Chooses a queue for the host at an address, which can use one of its queues `among`. */
struct spread_place spread_choose(const struct spread *spread, const union address *host,
				  uint32_t among);
/* Puts the place of who said HELLO into the CHALLENGE. */
void spread_tell(struct link *link, const union address *to, const struct careful_ctrl *hello,
		 struct careful_ctrl *challenge);
/* Reports whether a CHALLENGE sends us elsewhere: the peer is closed, EREMCHG, and moved_* say where to. */
bool spread_sends_away(struct link_peer *peer, const struct careful_ctrl *challenge);
/* Before the first HELLO: which of our queues would do. */
void spread_ask(struct link_peer *peer, uint32_t among);
/* Finds the place of a peer that failed with EREMCHG; false: it did not. */
bool spread_moved(const struct link_peer *peer, uint32_t *queue, uint32_t *port);
/* Says who has a session here. */
void spread_tick(struct link *link);
