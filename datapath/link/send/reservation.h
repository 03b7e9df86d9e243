/* SPDX-License-Identifier: BSD-2-Clause */
/* Reservation (P2 section 7; NX/2): a pool of receive buffers that are granted for large messages, so
 * that windows can be small. A peer with more to send than a window holds asks in each frame's header
 * (careful_hdr.extra). A grant gives credits before buffers return; the next buffers that return
 * then go to the pool without a credit. So a grant is never revoked, its end needs no message, and
 * XDP's limit for the peer only grows. */
#pragma once

#include <stdint.h>

#include <linux/types.h>

struct link;
struct link_peer;

enum { RESERVE_MAX = 0xffff }; /* largest value of careful_hdr.extra */

/* The pool. */
struct reserve {
	uint32_t count; /* receive buffers that no window holds; 0: there is no reservation */
	uint32_t free; /* buffers of these that are not granted */
	struct link_peer **asking; /* peers that ask for more than they have */
	uint32_t asking_count;
};

int reservation_init(struct link *link, uint32_t count);
void reservation_deinit(struct link *link);
void reservation_asked(struct link_peer *peer, __be16 extra);
void reservation_settle(struct link *link);
void reservation_epoch_over(struct link_peer *peer);
void reservation_return(struct link_peer *peer);
bool reservation_tick(struct link_peer *peer);
void reservation_ask(struct link_peer *peer, uint64_t bytes, uint32_t beside);
