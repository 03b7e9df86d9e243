/* SPDX-License-Identifier: BSD-2-Clause */
/* Spreads peers over the queues of an interface. Each queue has an engine with its own UDP port. A
 * HELLO to the first port can offer to use another queue; the CHALLENGE then names the queue.
 * Without the offer, a peer stays at the queue that it asked. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <careful/wire.h>

#include "device/device.h"

struct link;
struct link_peer;

struct queue_choice {
	uint16_t queue; /* of ours */
	uint32_t among; /* the host's queues that reach it, a bit each; 0: not told to the host */
};

/* Returns a hash of a host's address, never 0 (abi.h: struct careful_queue_entry). */
uint64_t queue_choice_host(const union address *host);
/* Chooses a queue for a host. among: the host's queues, a bit each */
struct queue_choice queue_choose(const struct spread *spread, const union address *host,
				 uint32_t among);
/* Writes the choice for a host into the CHALLENGE. */
void queue_choice_answer(struct link *link, const union address *to,
			 const struct careful_ctrl *hello, struct careful_ctrl *challenge);
/* Reports whether a CHALLENGE sends us to another queue. Then the peer is closed with EREMCHG, and
 * moved_* name the queue. */
bool queue_choice_redirects(struct link_peer *peer, const struct careful_ctrl *challenge);
/* Offers other queues in the first HELLO. among: our queues that reach the peer, a bit each */
void queue_choice_ask(struct link_peer *peer, uint32_t among);
/* Returns the queue and port of a peer that failed with EREMCHG; false: it did not. */
bool queue_choice_target(const struct link_peer *peer, uint32_t *queue, uint32_t *port);
void queue_choice_tick(struct link *link); /* writes our entry of the spread map */
