/* SPDX-License-Identifier: BSD-2-Clause */
/* Peers and the frames exchanged with them: sessions and epochs, credit windows,
 * the sequence check, receive buffers from arrival to the fill ring, send buffers
 * from allocation to completion. message/ interprets a frame's body. */
#pragma once

#include <linux/types.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include <careful/careful.h>
#include <careful/ping.h>
#include <careful/wire.h>

#include "device/device.h"
#include "device/trace.h"
#include "link/peer/rate_limit.h"
#include "link/share.h"
#include "link/sink.h"
#include "link/peer/peer.h"
#include "link/send/ping.h"
#include "link/send/reservation.h"
#include "link/peer/seal.h"
#include "link/traditional/traditional.h"
#include "link/peer/train.h"
#include "secure/keys.h"
#include "secure/seal_rule.h"

enum {
	LINK_MENDING = 8, /* ticks */
	LINK_BATCH = 64, /* descriptors taken from the device at a time */
	LINK_TX_QUEUE = 256, /* descriptors queued between two kicks */
	LINK_PAYLOAD_AT = 128, /* offset of a frame's body in its first chunk */
	LINK_HDR_BYTES = sizeof(struct careful_hdr),
	LINK_ETHERNET_BYTES = 14,
	LINK_IPV4_BYTES = 42, /* Ethernet, IPv4 and UDP, */
	LINK_IPV6_MORE = 20, /* added by IPv6 */
	LINK_CHUNKS_FREE_MIN = 1, /* send chunks that only window updates may take */
};

/* A received frame, valid until it is released or held and the next one is taken. */
struct link_rxframe {
	struct link_peer *peer;
	uint64_t epoch; /* of the peer at its arrival */
	struct careful_hdr hdr; /* a copy, since the received one is not aligned */
	const uint8_t *body; /* first segment's part of what follows the header */
	uint32_t body_bytes; /* of that part */
	uint32_t body_total; /* in all segments */
	uint32_t cost; /* buffers that it fills */
	bool checked; /* payload_crc was checked */
	uint16_t segments;
	struct device_desc desc[DEVICE_SEGMENTS_MAX];
	uint32_t parse_ns; /* while hostRx is traced: time to take it from the ring */
	uint64_t began_ns; /* start of its hostRx; 0: not traced, or reported */
};

/* A message of a held frame, as careful_keep() returns it: its index, and its offset in the
 * body. */
struct careful_kept {
	uint16_t nth, at;
};

/* Receive buffers held beyond the batch in which they arrived.
 *
 * @uses:     number of holders; the last one releases the buffers
 * @waits:    its messages that could not be served yet, a bit each
 * @messages: its messages that are kept */
struct link_held {
	struct link_held *next, *prev; /* the peer's frames that may be copied out, oldest first */
	struct link_peer *peer;
	uint64_t epoch;
	const uint8_t *body; /* in UMEM, or in the copy-out pool */
	uint32_t body_bytes;
	uint32_t cost; /* 0: copied out, the buffers were released */
	int32_t pool; /* index of its copy-out buffer, or -1 */
	uint16_t segments;
	uint16_t uses;
	uint16_t waits;
	struct careful_kept messages[CAREFUL_PACKED_MAX];
	uint64_t addr[DEVICE_SEGMENTS_MAX];
};

static inline struct link_held *link_held_of(struct careful_kept *kept)
{
	return (struct link_held *)((uint8_t *)(kept - kept->nth) -
				    offsetof(struct link_held, messages));
}

/* Messages of the control socket, and quotes in ICMP errors. All begin with version and type. */
union link_message {
	struct careful_ctrl ctrl;
	struct careful_keyed keyed;
	struct careful_proved proved;
	struct careful_hdr hdr;
	struct careful_ping_answer answer;
};

/* A frame being built in send buffers, with room for the header.
 *
 * @built: its buffers in flow.built */
struct link_txframe {
	struct link_peer *peer;
	uint32_t built;
	struct careful_hdr *hdr;
	uint8_t *umem;
	uint8_t *body; /* first segment's part of what follows the header */
	uint32_t body_bytes; /* of that part */
	uint32_t body_total;
	uint16_t segments;
	struct device_desc desc[DEVICE_SEGMENTS_MAX];
};

struct link_heard; /* group.h, */
struct link_group; /* and this */

struct link {
	struct queue *queue;
	struct port *port; /* the queue's */
	struct link_peer *peers;
	struct session *sessions; /* each peer's */
	struct link_heard *heard; /* of each peer's group */
	struct traditional_link *traditional; /* NULL: the careful protocol */
	uint32_t peers_max;
	uint32_t window; /* W; a peer's link_peer_window() may be less */
	uint32_t body_most; /* the largest body in a send buffer, or waiting for one */
	struct reserve reserve;
	struct careful_peer_entry unused; /* for peers that never had a session */
	uint64_t counters[CAREFUL_COUNTERS];
	uint64_t now_ns; /* time of the last tick or wake-up */
	uint64_t incarnation;
	uint8_t secret[16]; /* of the challenge tokens */
	uint32_t challenges; /* challenges sent so far */
	struct rate_limit limit;
	uint64_t awaiting_ns; /* since when our programs wait for a slot; */
	uint64_t awaited_ns; /* when one of them last asked */
	bool crowded; /* too many control messages: they are read by the clock alone */
	struct keys keys;
	bool keyed; /* a session needs one of the keys */
	struct seal_rules seal_rules;
	struct seal *seals; /* by peer; NULL: no frames are sealed */
	uint8_t *seal_flat; /* to put a frame of several buffers together */
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
	/* Queued bytes that are not kicked yet; busy while kicked frames are not complete. On veth
	 * they are complete when the kick returns. */
	struct sink net_tx;
	uint32_t tx_leaving; /* descriptors kicked and not complete */
	bool tx_shut; /* netTx was busy when the round began: bulk frames wait (out.c) */
	bool tx_held; /* some do */
	uint32_t tx_pulse_payload, tx_pulse_frames; /* the same, for its trace */
	const struct link_peer *tx_last; /* peer of the last queued frame */
	bool kick_again; /* the device was busy at the last kick */
	uint64_t kicks; /* so far; written by tx.c alone */

	/* Released receive buffers, and their peers. */
	uint64_t *fill;
	uint32_t fill_count;
	struct link_peer **dirty;
	uint32_t dirty_count;
	struct device_desc rx_descs[LINK_BATCH]; /* taken from the device; rx_at of them are done */
	uint32_t rx_at, rx_got;
	uint32_t rx_follow; /* waiting frames that may still be handed on in this batch */
	bool following; /* some waiting frame's turn has come */
	uint32_t follow; /* the slot that is checked first */
	uint64_t rx_began_ns; /* start of the batch's hostRx; 0: not traced */
	uint64_t rx_drains; /* times that the device's RX ring was seen empty */
	uint64_t rx_taken; /* descriptors taken from it */
	bool draining; /* a handshake or answer waits for a drained ring */
	bool resting; /* no epoch may begin, since the device will change */
	const struct link_peer *alone; /* only this peer's epoch may begin; NULL: every peer's */

	/* Repairs (log.h, reorder.c). */
	bool repairs; /* a lost frame is sent again; else it ends the epoch */
	bool again; /* some peer requests frames */
	bool attentive; /* some peer may request or answer between two ticks */
	uint8_t mending; /* LINK_MENDING after a request for frames, either way; less 1 each tick */
	struct link_rxframe *early; /* waiting frames; @early_free: unused entries */
	uint32_t *early_free, early_free_count;
	uint32_t *early_at; /* each peer's link_repair.early */
	struct link_asked *asked; /* each peer's link_repair.asked */
	uint32_t early_mask; /* number of its entries, a power of two, minus 1 */

	/* Held frames and their copies. */
	struct link_held *kept;
	struct link_held **kept_free;
	uint32_t kept_free_count;
	struct link_held *kept_lists; /* by peer, list head of frames that may be copied out */
	uint8_t *pool;
	uint32_t pool_buffer_bytes;
	int32_t *pool_free;
	uint32_t pool_count;
	struct share pool_share;

	bool pings_done; /* some peer's ping ended */
	bool trains; /* some trains have frames to send */
	uint64_t stamps_until_ns; /* the device stamps arrivals until then; 0: it does not */
	/* Some peer's state or epoch changed. */
	bool changed;
};

/* Returns the buffers that a frame of this many bytes fills. Most fill one: no division. */
static inline uint32_t link_buffers(uint32_t bytes, uint32_t buffer_bytes)
{
	return bytes <= buffer_bytes ? 1 : (bytes + buffer_bytes - 1) / buffer_bytes;
}

/* Returns the buffers that the largest frame fills. */
static inline uint32_t link_frame_cost(const struct queue *queue)
{
	return link_buffers(queue_frame_bytes(queue), queue->buffer_bytes);
}

/* Begins to wait until the RX ring's present frames are taken: at most one per chunk. */
static inline struct link_drain link_drain_begin(const struct link *link)
{
	return (struct link_drain){ link->rx_drains + 1, link->rx_taken + link->queue->rx_chunks };
}

static inline bool link_drain_begun(const struct link_drain *drain)
{
	return drain->empties != 0;
}

static inline bool link_drain_over(const struct link *link, const struct link_drain *drain)
{
	return link->rx_drains >= drain->empties || link->rx_taken >= drain->taken;
}

static inline enum careful_protocol link_protocol(const struct link *link)
{
	return link->traditional ? CAREFUL_PROTOCOL_TRADITIONAL : CAREFUL_PROTOCOL_CAREFUL;
}

static inline void link_count_many(struct link *link, enum careful_counter counter, uint32_t n)
{
	link->counters[counter] += n;
}

static inline void link_count(struct link *link, enum careful_counter counter)
{
	link_count_many(link, counter, 1);
}

/* link.c: life, what is known */
int link_init(struct link *link, struct queue *queue, const struct careful_options *options,
	      struct careful_error *error);
void link_deinit(struct link *link);
/* Leaks the copy pool, since a hanging file operation still uses it. */
static inline void link_leave_pool(struct link *link)
{
	link->pool = NULL;
}

static inline void link_set_now(struct link *link, uint64_t now_ns)
{
	link->now_ns = now_ns;
}

static inline void link_set_times(struct link *link, uint32_t sync_ms, uint32_t stall_ms)
{
	link->sync_ms = sync_ms;
	link->stall_ms = stall_ms;
}

/* Reports, once, whether the state of a peer changed. */
static inline bool link_take_changed(struct link *link)
{
	const bool changed = link->changed;

	link->changed = false;
	return changed;
}

/* Reports, once, whether a ping has ended. */
static inline bool link_take_pings(struct link *link)
{
	const bool done = link->pings_done;

	link->pings_done = false;
	return done;
}
void link_frames_changed(struct link *link);
int link_window(struct link *link, const struct careful_options *options,
		struct careful_error *error);
void link_routes_changed(struct link *link);
void link_info(struct link *link, struct careful_info *info);
void link_peer_info(const struct link_peer *peer, struct careful_peer_info *info);
void link_peer_whereabouts(const struct link_peer *peer, struct careful_peer_whereabouts *where);

/* rx.c: frames in */
void link_rx(struct link *link);
bool link_rx_take(struct link *link, struct link_rxframe *frame);
void link_drop(struct link *link, const struct link_rxframe *frame);
void link_received(struct link *link, const struct link_rxframe *frame);
bool link_stale(const struct link_rxframe *frame);
void link_told(struct link_rxframe *frame);
struct careful_trace link_untold(struct link_rxframe *frame);

/* credit_return.c: buffers and credits */
void link_release(struct link *link, struct link_rxframe *frame);
void link_release_addrs(struct link *link, struct link_peer *peer, uint64_t epoch, uint32_t cost,
			const uint64_t *addrs, uint32_t n);
void link_publish_freed(struct link *link);

/* The peer needs an update at the end of the round, unless a data frame brings it. */
static inline void link_dirty(struct link_peer *peer)
{
	struct link *link = peer->link;

	if (peer->dirty)
		return;
	peer->dirty = true;
	link->dirty[link->dirty_count++] = peer;
}

/* Calls link_rx_take() if there may be a frame; most rounds find none. */
static inline bool link_rx_next(struct link *link, struct link_rxframe *frame)
{
	return (link->rx_at < link->rx_got || link->following) && link_rx_take(link, frame);
}

/* Publishes the released receive buffers; only now are their credits owed. */
static inline void link_publish(struct link *link)
{
	if (link->fill_count || link->dirty_count)
		link_publish_freed(link);
}

/* Ends the frame's hostRx for a trace: its payload is in place. */
static inline void link_placed(struct link_rxframe *frame)
{
	if (frame->began_ns)
		link_told(frame);
}

/* rx_hold.c: frames that stay */
struct link_held *link_hold(struct link *link, struct link_rxframe *frame, bool may_copy);
struct careful_kept *link_keep(struct link_held *held, struct careful_kept message);
void link_hold_pin(struct link_held *kept);
void link_unhold(struct link *link, struct link_held *kept);
void link_copy_out(struct link_peer *peer);
void link_copy_out_old(struct link_peer *peer);

/* Reports whether held buffers may soon leave the peer without a credit. */
static inline bool link_holds_many(const struct link_peer *peer)
{
	return flow_holds_many(&peer->flow, peer->kept);
}

/* Reports whether frames that wait for disks hold their share of the peer's window. */
static inline bool link_holds_share(const struct link_peer *peer, uint32_t held)
{
	return flow_holds_share(&peer->flow, held);
}

/* Called after a frame of the peer was held. */
static inline void link_relieve(struct link_peer *peer)
{
	if (link_holds_many(peer) || peer->withholding)
		link_copy_out(peer);
}

/* tx.c: frames out */
bool link_tx_get(struct link_peer *peer, uint32_t body_bytes, struct link_txframe *frame);
bool link_tx_build(struct link_peer *peer, uint32_t body_bytes, struct link_txframe *frame);
void link_tx_built(struct link_txframe *frame);
bool link_tx_room(struct link *link, uint32_t frames);
void link_tx_put(struct link_txframe *frame);
void link_tx_write(struct link_txframe *frame, uint32_t at, const void *data, uint32_t bytes);
uint32_t link_tx_iov(const struct link_txframe *frame, uint32_t at, uint32_t bytes,
		     struct iovec *iov);
void link_send(struct link_txframe *frame, const struct link_send_args *args);
bool link_tx_get_own(struct link_peer *peer, struct link_txframe *frame);
void link_send_own(struct link_txframe *frame, const struct link_send_args *args,
		   uint32_t body_bytes);
void link_send_again(struct link_txframe *frame, uint32_t bytes);
void link_send_repair(struct link_txframe *frame, const struct link_send_args *args, uint32_t seq);
void link_send_outside(struct link_txframe *frame, const struct link_send_args *args, uint8_t ttl);
bool link_send_update(struct link_peer *peer);
void link_updates_due(struct link *link);
void link_kick_queued(struct link *link);
void link_complete(struct link *link);
uint32_t link_body_here(const struct link_peer *peer);

/* log.c: frames that were lost are sent again */
bool link_resolved(const struct link_peer *peer, uint32_t seq);
bool link_again(struct link_peer *peer, struct link_send_args *args, uint32_t *seq,
		uint32_t *body_bytes);
void link_again_done(struct link_peer *peer, uint32_t seq);
void link_again_over(struct link *link);
bool link_wants(const struct link_peer *peer, uint32_t seq);

static inline bool link_asked(const struct link_peer *peer)
{
	return peer->repair.wanted != 0;
}

/* app_buffers.c: send buffers of the application */
int link_lend_init(struct link *link);
uint8_t *link_lend(struct link *link);
bool link_is_lent(const struct link *link, const uint8_t *body);
void link_unlend(struct link *link, const uint8_t *body);
void link_tx_lent(struct link_peer *peer, uint8_t *body, uint32_t body_bytes,
		  struct link_txframe *frame);

/* tx_small.c: the fast path of a message of one frame */
bool link_small_careful(struct link_peer *peer, const struct careful_am *am, const void *payload,
			uint32_t bytes);
bool link_small_traditional(struct link_peer *peer, const struct careful_am *am,
			    const void *payload, uint32_t bytes);

/* Returns the receive buffers that a frame with this body fills at the peer. */
static inline uint32_t link_cost(const struct link_peer *peer, uint32_t body_bytes)
{
	return link_buffers(peer->beside + body_bytes, peer->buffer_bytes);
}

/* Returns the largest body of a frame to the peer. */
static inline uint32_t link_body_max(const struct link_peer *peer)
{
	return peer->frame_bytes - peer->beside;
}

/* Returns the largest body that fits one buffer at both ends, as a handler needs. */
static inline uint32_t link_body_single(const struct link_peer *peer)
{
	uint32_t most = peer->link->body_most - peer->trailer;
	uint32_t frame = peer->frame_bytes < peer->buffer_bytes ? peer->frame_bytes :
								  peer->buffer_bytes;
	uint32_t body = frame - peer->beside;

	return body < most ? body : most;
}

/* Reports whether a frame with this body may leave now. May open the session after a train. */
static inline bool link_may_send(struct link_peer *peer, uint32_t body_bytes)
{
	if (peer->phase != LINK_OPEN && !link_train_opens(peer))
		return false;
	if (!peer->llhdr.bytes)
		return false;
	if (peer->link->traditional)
		return peer->link->traditional->ops->may_keep(peer, 0);
	return flow_may_send(&peer->flow, link_cost(peer, body_bytes));
}

/* Sends the due updates that no data frame carried. */
static inline void link_updates(struct link *link)
{
	if (link->dirty_count)
		link_updates_due(link);
}

/* Sends a message of one frame. Returns false, and does nothing, if the fast path cannot. */
static inline bool link_send_small(struct link_peer *peer, const struct careful_am *am,
				   const void *payload, uint32_t bytes)
{
	if (peer->sends == LINK_SENDS_CAREFUL)
		return link_small_careful(peer, am, payload, bytes);
	return peer->sends == LINK_SENDS_TRADITIONAL &&
	       link_small_traditional(peer, am, payload, bytes);
}

/* Sends the queued frames. */
static inline void link_kick(struct link *link)
{
	if (link->tx_queued || link->kick_again)
		link_kick_queued(link);
}

/* Begins a round, in which no bulk frame has waited for netTx so far. */
static inline void link_tx_round(struct link *link)
{
	link->tx_held = false;
}

/* Reports whether bulk frames wait until the device has completed what was kicked. Call it only if
 * there are such frames: the engine then polls for the device. */
static inline bool link_tx_waits(struct link *link)
{
	link->tx_held |= link->tx_shut;
	return link->tx_shut;
}

/* Lets bulk frames wait for the rest of the round: a pulse of its exact size is queued. */
static inline void link_tx_shut(struct link *link)
{
	link->tx_shut = true;
}

/* Begins to send large messages in a round. All that is ready in a round leaves, so netTx's state
 * at its begin counts for all peers. */
static inline void link_tx_begin(struct link *link)
{
	if (link->net_tx.busy)
		link_complete(link);
	link->tx_shut = link->net_tx.busy;
}

/* Reports whether the size of frames to the peer is known. */
static inline bool link_knows(const struct link_peer *peer)
{
	return peer->frame_bytes && peer->llhdr.bytes;
}

/* Returns the buffers that the peer's largest frame fills. */
static inline uint32_t link_taken_cost(const struct link_peer *peer)
{
	return link_buffers(peer->session->taken_bytes, peer->link->queue->buffer_bytes);
}

/* Reports whether both ends have agreed on an epoch; data may still wait for trains. */
static inline bool link_has_epoch(const struct link_peer *peer)
{
	return peer->phase >= LINK_OPEN;
}

/* Reports whether frames may leave in the session. */
static inline bool link_is_open(const struct link_peer *peer)
{
	return peer->phase == LINK_OPEN;
}

/* Reports whether a session exists whose frames in one buffer are too small for this body. */
static inline bool link_too_large(const struct link_peer *peer, uint32_t body_bytes)
{
	return peer->phase == LINK_OPEN && link_knows(peer) && body_bytes > link_body_single(peer);
}

/* Returns how many of our frames the peer has room for. */
static inline uint32_t link_room(const struct link_peer *peer)
{
	return peer->flow.tx.size;
}

/* Notes that `bytes` of large messages wait for the peer behind the next frame. beside: other bytes
 * in a frame's body. */
static inline void link_ask(struct link_peer *peer, uint64_t bytes, uint32_t beside)
{
	if (peer->flow.tx.reserve)
		reservation_ask(peer, bytes, beside);
}

/* Reports whether frames queue for the peer: there, on the path, or at the device. */
static inline bool link_busy(const struct link_peer *peer)
{
	return peer->phase == LINK_OPEN && (peer->link->kick_again || flow_busy(&peer->flow));
}

/* Returns the number of the last frame sent in this epoch, for traces. */
static inline uint32_t link_seq_last(const struct link_peer *peer)
{
	return peer->flow.seq_out;
}

/* Returns the peer of an unsealed frame, or NULL. */
static inline struct link_peer *link_peer_of(struct link *link, const struct careful_hdr *hdr)
{
	uint32_t slot = be16toh(hdr->src_node);
	struct link_peer *peer = &link->peers[slot];

	if (slot >= link->peers_max || !peer->cookie_plain ||
	    peer->cookie_plain != be64toh(hdr->cookie))
		return NULL;
	return peer;
}

/* peer.c: the table of peers, and messages to them */
struct link_peer *link_peer_find(struct link *link, const union address *pair);
bool link_same_host(const struct link_peer *a, const struct link_peer *b);
/* Gives the key that a peer proved. false: sessions need none. */
bool link_peer_key(const struct link_peer *peer, uint8_t *key);
/* Returns the cookie of the frames that the peer sends us; 0: none. */
uint64_t link_peer_cookie(const struct link_peer *peer);
struct link_peer *link_peer_get(struct link *link, const union address *address);
uint64_t link_random(struct link *link);

/* The hosts that have had the peer's slot, the processes met there, and the errno of its last
 * session's end. */
static inline uint32_t link_tenants(const struct link_peer *peer)
{
	return peer->session->tenants;
}

static inline uint32_t link_lives(const struct link_peer *peer)
{
	return peer->session->lives;
}

static inline int link_error(const struct link_peer *peer)
{
	return peer->session->last_errno;
}

/* Returns another address than the peer's that answered our HELLO; family 0: none. */
static inline const union address *link_elsewhere(const struct link_peer *peer)
{
	return &peer->session->handshake.elsewhere;
}

/* Called when the route to the peer, or its sealing, changed. */
static inline void link_way(struct link_peer *peer)
{
	peer->beside = (uint16_t)(peer->llhdr.bytes + LINK_HDR_BYTES + peer->trailer);
}

/* Reports whether any frame of the peer came in this epoch. */
static inline bool link_used(const struct link_peer *peer)
{
	return peer->trailer ? flow_received(&peer->flow) : flow_used(&peer->flow);
}

/* Counts a region that becomes the peer's own, or stops to be. */
static inline void link_claim(struct link_peer *peer, int by)
{
	peer->session->claims += (uint32_t)by;
}

/* Called when the engine begins to wait for a reply, and when the reply arrives or the wait is
 * cancelled. */
static inline void link_await(struct link_peer *peer)
{
	peer->operations++;
}

static inline void link_awaited(struct link_peer *peer)
{
	peer->operations--;
}

/* epoch.c: beginning and end */
void link_close(struct link_peer *peer, int error);

/* session.c: wanted, broken, given up (handshake.h: agreed) */
void link_connect(struct link_peer *peer);
void link_break(struct link_peer *peer);
/* Lets epochs begin again, of this peer alone or of all peers (NULL). */
void link_resume(struct link *link, const struct link_peer *alone);
/* Ends every epoch and lets none begin. Reports whether all frames are back. */
bool link_rest(struct link *link);
void link_wake(struct link_peer *peer);
void link_measure(struct link_peer *peer);
void link_keys_changed(struct link *link);

/* window_yield.c: idle sessions give up their windows */
bool window_yield_await(struct link *link, const union address *to);

/* control.c: the control socket, and time */
bool link_quotes(const struct link_peer *peer, const union link_message *quoted);
void link_control(struct link *link);
void link_attend(struct link *link);
void link_drained(struct link *link);
void link_tick(struct link *link);
uint32_t link_timeout_ms(const struct link *link, uint32_t most_ms);

/* crc32c.c */
uint32_t link_crc32c(const void *data, uint32_t bytes);
