/* SPDX-License-Identifier: BSD-2-Clause */
/* The state of a link; its files write the fields. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <careful/careful.h>

#include "device/device.h"
#include "link/frames.h"
#include "link/peer/peer.h"
#include "link/peer/rate_limit.h"
#include "link/peer/seal.h"
#include "link/send/reservation.h"
#include "link/share.h"
#include "link/sink.h"
#include "link/traditional/traditional.h"
#include "secure/keys.h"
#include "secure/seal_rule.h"

enum {
	LINK_BATCH = 64, /* descriptors taken from the device at a time */
	LINK_TX_QUEUE = 256, /* descriptors queued between two kicks */
};

struct link_heard; /* group.h */
struct link_group;

struct link {
	struct queue *queue;
	struct port *port; /* the queue's */
	struct link_peer *peers;
	struct session *sessions; /* by peer */
	struct link_heard *heard; /* by peer: what its group has sent */
	struct traditional_link *traditional; /* NULL: the careful protocol */
	uint32_t peers_max;
	uint32_t window; /* W; a peer's link_peer_window() may be less */
	uint32_t body_most; /* largest body in one send buffer that fits one receive buffer */
	struct reserve reserve;
	struct careful_peer_entry unused; /* for peers that never had a session */
	uint64_t counters[CAREFUL_COUNTERS];
	uint64_t now_ns; /* time of the last tick or wake-up */
	uint64_t incarnation;
	uint8_t secret[16]; /* of the challenge tokens */
	uint32_t challenges; /* challenges sent so far */
	struct rate_limit limit;
	uint64_t awaiting_ns; /* since when our programs wait for a slot */
	uint64_t awaited_ns; /* when one of them last asked */
	bool crowded; /* too many control messages: only the clock reads them */
	struct keys keys;
	bool keyed; /* a session needs one of the keys */
	struct seal_rules seal_rules;
	struct seal *seals; /* by peer; NULL: no frames are sealed */
	uint8_t *seal_flat; /* where a frame of several buffers is made contiguous */
	uint32_t sync_ms, stall_ms;
	bool measures; /* measures the burst of paths */
	char name[CAREFUL_NAME_BYTES];

	/* Send buffers: a stack of free chunks, and the frames queued since the last kick. */
	uint64_t *tx_free;
	uint32_t tx_free_count;
	bool *lent; /* by send buffer: lent to the application (app_buffers.c) */
	uint32_t lent_count, lent_most;
	struct device_desc tx_queue[LINK_TX_QUEUE];
	uint32_t tx_queued;
	struct sink net_tx; /* bytes not kicked yet; busy until kicked frames are complete */
	uint32_t tx_leaving; /* descriptors kicked and not complete */
	bool tx_shut; /* netTx was busy when the round began: bulk frames wait (out.c) */
	bool tx_held; /* some bulk frames wait */
	uint32_t tx_pulse_payload, tx_pulse_frames; /* of the present pulse, for its trace */
	const struct link_peer *tx_last; /* peer of the last queued frame */
	bool kick_again; /* the device was busy at the last kick */
	uint64_t kicks; /* so far; written by tx.c only */

	/* Released receive buffers, and their peers. */
	uint64_t *fill;
	uint32_t fill_count;
	struct link_peer **dirty;
	uint32_t dirty_count;
	struct device_desc rx_descs[LINK_BATCH]; /* taken from the device; rx_at of them are done */
	uint32_t rx_at, rx_got;
	uint32_t rx_follow; /* waiting frames that this batch may still hand on */
	bool following; /* some waiting frame is now the next in order */
	uint32_t follow; /* the slot that is checked first */
	uint64_t rx_began_ns; /* start of the batch's hostRx; 0: not traced */
	uint64_t rx_drains; /* times that the device's RX ring was seen empty */
	uint64_t rx_taken; /* descriptors taken from it */
	bool draining; /* a handshake or answer waits for a drained ring */
	bool resting; /* no epoch may begin, since the device will change */
	const struct link_peer *alone; /* only this peer's epoch may begin; NULL: all may */

	/* Repairs (log.h, reorder.c). */
	bool repairs; /* a lost frame is sent again; else it ends the epoch */
	bool again; /* some peer requests frames */
	bool attentive; /* some peer may request or answer between two ticks */
	uint8_t mending; /* ticks that count as repairing after a request, ours or a peer's */
	struct link_rxframe *early; /* waiting frames */
	uint32_t *early_free, early_free_count; /* their unused entries */
	uint32_t *early_at; /* by peer: link_repair.early */
	struct link_asked *asked; /* by peer: link_repair.asked */
	uint32_t early_mask; /* number of early's entries, a power of two, minus 1 */

	/* Held frames and their copies. */
	struct link_held *kept;
	struct link_held **kept_free;
	uint32_t kept_free_count;
	struct link_held *kept_lists; /* by peer: list head of frames that may be copied out */
	uint8_t *pool;
	uint32_t pool_buffer_bytes;
	int32_t *pool_free;
	uint32_t pool_count;
	struct share pool_share;

	bool pings_done; /* some peer's ping ended */
	bool trains; /* some trains have frames to send */
	uint64_t stamps_until_ns; /* the device stamps arrivals until then; 0: it does not */
	bool changed; /* some peer's state or epoch changed */
};
