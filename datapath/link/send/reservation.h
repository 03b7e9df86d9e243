/* SPDX-License-Identifier: BSD-2-Clause */
/* Reservation (P2 section 7; NX/2): a pool of receive buffers that are granted for large messages,
 * next to the windows, which can then be small. A peer with more to send than a window holds asks
 * in each frame's header (careful_hdr.extra). A grant gives credits before as many buffers came
 * back. The next buffers that come back repay it: they return to the pool without a credit. So a
 * grant is never revoked, its end needs no message, and the limit of what XDP lets a peer fill only
 * grows. */
#pragma once

#include <stdint.h>

#include <linux/types.h>

struct link;
struct link_peer;

enum { RESERVE_MAX = 0xffff }; /* what careful_hdr.extra can ask for */

/* The pool.
 *
 * @count:  receive buffers that no window holds; 0: there is no reservation
 * @free:   buffers of these that are not granted
 * @asking: peers that ask for more than they have; @asking_count */
struct reserve {
	uint32_t count;
	uint32_t free;
	struct link_peer **asking;
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
