/* SPDX-License-Identifier: BSD-2-Clause */
/* Peers and their frames: sessions and epochs, credit windows, the sequence check, receive and send
 * buffers. message/ interprets a frame's body. */
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
	LINK_MENDING = 8, /* initial value of link.mending */
	LINK_BATCH = 64, /* descriptors taken from the device at a time */
	LINK_TX_QUEUE = 256, /* descriptors queued between two kicks */
	LINK_PAYLOAD_AT = 128, /* offset of a frame's body in its first chunk */
	LINK_HDR_BYTES = sizeof(struct careful_hdr),
	LINK_ETHERNET_BYTES = 14,
	LINK_IPV4_BYTES = 42, /* headers of Ethernet, IPv4 and UDP */
	LINK_IPV6_MORE = 20, /* bytes by which an IPv6 header is longer */
	LINK_CHUNKS_FREE_MIN = 1, /* send chunks that only window updates may take */
};

/* A received frame, valid until it is released or held and the next one is taken. */
struct link_rxframe {
	struct link_peer *peer;
	uint64_t epoch; /* of the peer at its arrival */
	struct careful_hdr hdr; /* a copy, since the received one is not aligned */
	const uint8_t *body; /* in the first segment, after the header */
	uint32_t body_bytes; /* in the first segment */
	uint32_t body_total; /* in all segments */
	uint32_t cost; /* buffers that it fills */
	bool checked; /* payload_crc was checked */
	uint16_t segments;
	struct device_desc desc[DEVICE_SEGMENTS_MAX];
	uint32_t parse_ns; /* time to take it from the ring, while hostRx is traced */
	uint64_t began_ns; /* start of its hostRx; 0: not traced, or reported */
};

/* A message of a held frame, as careful_keep() returns it. */
struct careful_kept {
	uint16_t nth, at; /* index of the message, and its offset in the body */
};

/* Receive buffers held beyond the batch in which they arrived. */
struct link_held {
	struct link_held *next, *prev; /* the peer's frames that may be copied out, oldest first */
	struct link_peer *peer;
	uint64_t epoch;
	const uint8_t *body; /* in UMEM, or in the copy-out pool */
	uint32_t body_bytes;
	uint32_t cost; /* 0: copied out, the buffers were released */
	int32_t pool; /* index of its copy-out buffer, or -1 */
	uint16_t segments;
	uint16_t uses; /* holders; the last one releases the buffers */
	uint16_t waits; /* a bit for each message that could not be served yet */
	struct careful_kept messages[CAREFUL_PACKED_MAX]; /* those that are kept */
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

/* A frame being built in send buffers, with room for the header. */
struct link_txframe {
	struct link_peer *peer;
	uint32_t built; /* its buffers in flow.built */
	struct careful_hdr *hdr;
	uint8_t *umem;
	uint8_t *body; /* in the first segment, after the header */
	uint32_t body_bytes; /* in the first segment */
	uint32_t body_total; /* in all segments */
	uint16_t segments;
	struct device_desc desc[DEVICE_SEGMENTS_MAX];
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

/* Returns the buffers that a frame of this many bytes fills. Most fill one, without a division. */
static inline uint32_t link_buffers(uint32_t bytes, uint32_t buffer_bytes)
{
	return bytes <= buffer_bytes ? 1 : (bytes + buffer_bytes - 1) / buffer_bytes;
}

/* Returns the buffers that the largest frame fills. */
static inline uint32_t link_frame_cost(const struct queue *queue)
{
	return link_buffers(queue_frame_bytes(queue), queue->buffer_bytes);
}

/* Begins to wait until the RX ring's present frames are taken. */
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

/* link.c */
int link_init(struct link *link, struct queue *queue, const struct careful_options *options,
	      struct careful_error *error);
void link_deinit(struct link *link);
/* Leaks the copy pool, which a hanging file operation still uses. */
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

/* Reports whether the state of a peer changed since the last call. */
static inline bool link_take_changed(struct link *link)
{
	const bool changed = link->changed;

	link->changed = false;
	return changed;
}

/* Reports whether a ping has ended since the last call. */
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

/* rx.c */
void link_rx(struct link *link);
bool link_rx_take(struct link *link, struct link_rxframe *frame);
void link_drop(struct link *link, const struct link_rxframe *frame);
void link_received(struct link *link, const struct link_rxframe *frame);
bool link_stale(const struct link_rxframe *frame);
void link_trace_placed(struct link_rxframe *frame);
struct careful_trace link_trace_held(struct link_rxframe *frame);

/* credit_return.c */
void link_release(struct link *link, struct link_rxframe *frame);
void link_release_addrs(struct link *link, struct link_peer *peer, uint64_t epoch, uint32_t cost,
			const uint64_t *addrs, uint32_t n);
void link_publish_freed(struct link *link);

/* Notes that the peer may need an update at the end of the round. */
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

/* Puts the released receive buffers into the fill ring. Only now are their credits owed. */
static inline void link_publish(struct link *link)
{
	if (link->fill_count || link->dirty_count)
		link_publish_freed(link);
}

/* Ends a traced frame's hostRx: its payload is in place. */
static inline void link_placed(struct link_rxframe *frame)
{
	if (frame->began_ns)
		link_trace_placed(frame);
}

/* rx_hold.c */
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

/* Copies held frames out if the peer may run out of credits. Called after a frame was held. */
static inline void link_relieve(struct link_peer *peer)
{
	if (link_holds_many(peer) || peer->withholding)
		link_copy_out(peer);
}

/* tx.c */
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

/* log.c, resend.c */
bool link_resolved(const struct link_peer *peer, uint32_t seq);
bool link_again(struct link_peer *peer, struct link_send_args *args, uint32_t *seq,
		uint32_t *body_bytes);
void link_again_done(struct link_peer *peer, uint32_t seq);
void link_again_over(struct link *link);
bool link_wants(const struct link_peer *peer, uint32_t seq);
const uint8_t *link_log_body(const struct link_peer *peer, uint32_t seq);
int link_given_up(const struct link_peer *peer, uint32_t seq);
void link_give_up(struct link_peer *peer, uint32_t seq, const struct link_send_args *args,
		  const void *body, uint32_t body_bytes);

static inline bool link_asked(const struct link_peer *peer)
{
	return peer->repair.wanted != 0;
}

/* app_buffers.c */
int link_lend_init(struct link *link);
uint8_t *link_lend(struct link *link);
bool link_is_lent(const struct link *link, const uint8_t *body);
void link_unlend(struct link *link, const uint8_t *body);
void link_tx_lent(struct link_peer *peer, uint8_t *body, uint32_t body_bytes,
		  struct link_txframe *frame);

/* tx_small.c */
bool link_small_careful(struct link_peer *peer, const struct careful_am *am, const void *payload,
			uint32_t bytes);
bool link_small_traditional(struct link_peer *peer, const struct careful_am *am,
			    const void *payload, uint32_t bytes);

/* Returns the receive buffers that a frame with this body fills at the peer. */
static inline uint32_t link_cost(const struct link_peer *peer, uint32_t body_bytes)
{
	return link_buffers(peer->beside + body_bytes, peer->buffer_bytes);
}

/* Reports whether pings look for the largest frame that the path takes, while data goes on. */
static inline bool link_searches(const struct link_peer *peer)
{
	return peer->session->path.probing;
}

/* Returns the largest body of a frame to the peer, or a smaller one that certainly passes. */
static inline uint32_t link_body_max(const struct link_peer *peer)
{
	const struct link_path *path = &peer->session->path;

	return (path->probing && path->high ? path->low : peer->frame_bytes) - peer->beside;
}

/* Returns the largest body that fits one buffer at both ends. */
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

/* Sends the due updates that no data frame has carried. */
static inline void link_updates(struct link *link)
{
	if (link->dirty_count)
		link_updates_due(link);
}

/* Sends a message of one frame on the fast path. Returns false if that is not possible. */
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

/* Begins a round. */
static inline void link_tx_round(struct link *link)
{
	link->tx_held = false;
}

/* Reports whether bulk frames must wait until the device has completed kicked frames. Call it only
 * if there are bulk frames: the engine then polls the device. */
static inline bool link_tx_waits(struct link *link)
{
	link->tx_held |= link->tx_shut;
	return link->tx_shut;
}

/* Makes bulk frames wait for the rest of the round: a pulse of its exact size is queued. */
static inline void link_tx_shut(struct link *link)
{
	link->tx_shut = true;
}

/* Begins to send bulk messages in a round. netTx's present state counts for all peers. */
static inline void link_tx_begin(struct link *link)
{
	if (link->net_tx.busy)
		link_complete(link);
	link->tx_shut = link->net_tx.busy;
}

/* Reports whether the size of frames to the peer is known. */
static inline bool link_knows_size(const struct link_peer *peer)
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
	return peer->phase == LINK_OPEN && link_knows_size(peer) &&
	       body_bytes > link_body_single(peer);
}

/* Returns how many of our frames the peer has room for. */
static inline uint32_t link_room(const struct link_peer *peer)
{
	return peer->flow.tx.size;
}

/* Asks the peer for buffers for `bytes` of large messages behind the next frame. beside: other
 * bytes in a frame's body. */
static inline void link_ask(struct link_peer *peer, uint64_t bytes, uint32_t beside)
{
	if (peer->flow.tx.reserve)
		reservation_ask(peer, bytes, beside);
}

/* Reports whether frames for the peer queue at the device, on the path, or at the peer. */
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

/* peer.c */
struct link_peer *link_peer_find(struct link *link, const union address *pair);
bool link_same_host(const struct link_peer *a, const struct link_peer *b);
/* Copies the key that a peer proved. Returns false if sessions need none. */
bool link_peer_key(const struct link_peer *peer, uint8_t *key);
/* Returns the cookie of the frames that the peer sends us; 0: none. */
uint64_t link_peer_cookie(const struct link_peer *peer);
struct link_peer *link_peer_get(struct link *link, const union address *address);
uint64_t link_random(struct link *link);

/* Returns the number of hosts that have had the peer's slot. */
static inline uint32_t link_tenants(const struct link_peer *peer)
{
	return peer->session->tenants;
}

/* Returns the number of the peer's processes that we have met. */
static inline uint32_t link_lives(const struct link_peer *peer)
{
	return peer->session->lives;
}

/* Returns the errno with which the peer's last session ended. */
static inline int link_error(const struct link_peer *peer)
{
	return peer->session->last_errno;
}

/* Returns the address that answered our HELLO in place of the peer's; family 0: none. */
static inline const union address *link_elsewhere(const struct link_peer *peer)
{
	return &peer->session->handshake.elsewhere;
}

/* Computes peer->beside after a change of the route or the sealing. */
static inline void link_set_beside(struct link_peer *peer)
{
	peer->beside = (uint16_t)(peer->llhdr.bytes + LINK_HDR_BYTES + peer->trailer);
}

/* Reports whether any frame of the peer arrived in this epoch. */
static inline bool link_used(const struct link_peer *peer)
{
	return peer->trailer ? flow_received(&peer->flow) : flow_used(&peer->flow);
}

/* Adds to the count of regions that only the peer may use. */
static inline void link_claim(struct link_peer *peer, int by)
{
	peer->session->claims += (uint32_t)by;
}

/* Notes that the engine waits for a reply; link_awaited() ends the wait. */
static inline void link_await(struct link_peer *peer)
{
	peer->operations++;
}

static inline void link_awaited(struct link_peer *peer)
{
	peer->operations--;
}

/* epoch.c */
void link_close(struct link_peer *peer, int error);

/* session.c */
void link_connect(struct link_peer *peer);
void link_break(struct link_peer *peer);
/* Lets epochs begin again: of one peer, or of all peers (NULL). */
void link_resume(struct link *link, const struct link_peer *alone);
/* Ends all epochs and lets none begin. Reports whether all frames are back. */
bool link_rest(struct link *link);
void link_wake(struct link_peer *peer);
void link_measure(struct link_peer *peer);
void link_keys_changed(struct link *link);

/* window_yield.c */
bool window_yield_await(struct link *link, const union address *to);

/* control.c */
bool link_quotes(const struct link_peer *peer, const union link_message *quoted);
void link_control(struct link *link);
void link_attend(struct link *link);
void link_drained(struct link *link);
void link_tick(struct link *link);
uint32_t link_timeout_ms(const struct link *link, uint32_t most_ms);

/* crc32c.c */
uint32_t link_crc32c(const void *data, uint32_t bytes);
