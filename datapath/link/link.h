/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Peers and the frames exchanged with them: sessions and epochs, credit windows,
 * the sequence check, receive buffers from arrival to the fill ring, send buffers
 * from allocation to completion. message/ interprets a frame's body.
 */
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
#include "link/rate_limit.h"
#include "link/share.h"
#include "link/sink.h"
#include "link/peer.h"
#include "link/ping.h"
#include "link/reserve.h"
#include "link/seal.h"
#include "link/traditional.h"
#include "link/train.h"
#include "secure/keys.h"
#include "secure/seal_rule.h"

enum {
	LINK_BATCH = 64, /* descriptors taken from the device at a time */
	LINK_TX_QUEUE = 256, /* descriptors queued between two kicks */
	LINK_PAYLOAD_AT = 128, /* where the body of a frame starts in its first chunk */
	LINK_HDR_BYTES = sizeof(struct careful_hdr),
	LINK_ETHERNET_BYTES = 14,
	LINK_IPV4_BYTES = 42, /* Ethernet, IPv4 and UDP, */
	LINK_IPV6_MORE = 20, /* and how much longer they are with IPv6 */
	LINK_CHUNKS_FREE_MIN = 1, /* send chunks that only window updates may take */
};

/* A received frame, valid until link_release() or link_hold(), and the next one. */
struct link_rxframe {
	struct link_peer *peer;
	uint64_t epoch; /* the peer's when it arrived */
	struct careful_hdr hdr; /* a copy: where it arrived it is not aligned */
	const uint8_t *body; /* first segment's part of what follows the header */
	uint32_t body_bytes; /* of that part */
	uint32_t body_total; /* in all segments */
	uint32_t cost; /* buffers it counts for */
	bool checked; /* payload_crc is right: link has seen to it */
	uint16_t segments;
	struct device_desc desc[DEVICE_SEGMENTS_MAX];
	uint32_t parse_ns; /* while hostRx is traced: what taking it from the ring took */
	uint64_t began_ns; /* of its hostRx; 0: not traced, or told of */
};

/* A message of a frame that is held, as careful_keep() hands it out: which one, and where in the
 * body it begins. */
struct careful_kept {
	uint16_t nth, at;
};

/*
 * Receive buffers held beyond the batch in which they arrived.
 *
 * @uses:     of who holds them: they are let go with the last
 * @waits:    those of its messages that could not be served yet, a bit each
 * @messages: those that are kept
 */
struct link_held {
	struct link_held *next, *prev; /* among its peer's that may be copied out, oldest first */
	struct link_peer *peer;
	uint64_t epoch;
	const uint8_t *body; /* in UMEM, or in the copy-out pool */
	uint32_t body_bytes;
	uint32_t cost; /* 0: copied out, the buffers are back already */
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

/* Messages of the control socket, and quotes in ICMP errors; all begin with version, type. */
union link_message {
	struct careful_ctrl ctrl;
	struct careful_keyed keyed;
	struct careful_proved proved;
	struct careful_hdr hdr;
	struct careful_ping_answer answer;
};

/*
 * A frame being built in send buffers. The header's place is kept free.
 *
 * @built: what flow.built counts for it
 */
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
	struct traditional_link *traditional; /* NULL: careful is spoken here */
	uint32_t peers_max;
	uint32_t window; /* W; link_peer_window() of a peer may be less */
	uint32_t body_most; /* that a send buffer holds, and what waits for one */
	struct reserve reserve;
	struct careful_peer_entry unused; /* of peers that never had a session */
	uint64_t counters[CAREFUL_COUNTERS];
	uint64_t now_ns; /* as of the last tick or wake-up */
	uint64_t incarnation;
	uint8_t secret[16]; /* of the challenge tokens */
	uint32_t challenges; /* that were sent: the number of the last one */
	struct rate_limit limit;
	uint64_t awaiting_ns; /* since when our programs wait for a slot, */
	uint64_t awaited_ns; /* and when one of them asked last */
	bool crowded; /* more control messages than are read at once: the next come by time alone */
	struct keys keys;
	bool keyed; /* a session takes a key: keys has those that do */
	struct seal_rules seal_rules;
	struct seal *seals; /* each peer's; NULL: nobody's frames are sealed */
	uint8_t *seal_flat; /* a frame of several buffers, in one piece */
	uint32_t sync_ms, stall_ms;
	bool measures; /* the burst that paths take */
	char name[CAREFUL_NAME_BYTES];

	/* Send buffers: a stack of free chunks, the frames queued since the last kick. */
	uint64_t *tx_free;
	uint32_t tx_free_count;
	bool *lent; /* by send buffer: the application has it (lend.c) */
	uint32_t lent_count, lent_most;
	struct device_desc tx_queue[LINK_TX_QUEUE];
	uint32_t tx_queued;
	struct sink net_tx; /* of what is queued and not kicked */
	uint32_t tx_pulse_payload, tx_pulse_frames; /* the same, for its trace */
	const struct link_peer *tx_last; /* whose the last of them is */
	bool kick_again; /* the device was busy at the last kick */
	uint64_t kicks; /* so far; written by tx.c alone */

	/* Receive buffers on their way back, and the peers that they belong to. */
	uint64_t *fill;
	uint32_t fill_count;
	struct link_peer **dirty;
	uint32_t dirty_count;
	struct device_desc rx_descs[LINK_BATCH]; /* taken from the device: all but rx_at are left */
	uint32_t rx_at, rx_got;
	uint32_t rx_follow; /* frames that may be handed on after those before them, in this batch */
	bool following; /* some peer's frames need wait no more */
	uint32_t follow; /* the slot that is asked for them first */
	uint64_t rx_began_ns; /* of the batch's hostRx; 0: not traced */
	uint64_t rx_drains; /* times that the device's RX ring was seen empty */
	uint64_t rx_taken; /* descriptors of it that were seen to */
	bool draining; /* some handshake or answer waits for that */
	bool resting; /* no epoch begins: the device is about to change */
	const struct link_peer *alone; /* nobody else's epoch begins; NULL: everybody's may */

	/* Repairs (log.h, reorder.c). */
	bool repairs; /* a lost frame is sent again; else it ends the epoch */
	bool again; /* some peer asks for frames again */
	bool attentive; /* some peer may ask for frames, or answer, between two ticks */
	struct link_rxframe *early; /* that wait for others; @early_free: entries without one */
	uint32_t *early_free, early_free_count;
	uint32_t *early_at; /* each peer's link_repair.early */
	uint32_t early_mask; /* of its entries, a power of two, less 1 */

	/* Held frames and their copies. */
	struct link_held *kept;
	struct link_held **kept_free;
	uint32_t kept_free_count;
	struct link_held *kept_lists; /* of each peer, the head of those that may be copied out */
	uint8_t *pool;
	uint32_t pool_buffer_bytes;
	int32_t *pool_free;
	uint32_t pool_count;
	struct share pool_share;

	bool pings_done; /* some peer's ping ended */
	bool trains; /* frames of some are to be sent */
	uint64_t stamps_until_ns; /* the device notes arrivals until then; 0: it does not */
	/* Some peer's state or epoch changed: whoever cares compares with what it knew. */
	bool changed;
};

/* Buffers that so many bytes of a frame fill; most frames fill one, without a division. */
static inline uint32_t link_buffers(uint32_t bytes, uint32_t buffer_bytes)
{
	return bytes <= buffer_bytes ? 1 : (bytes + buffer_bytes - 1) / buffer_bytes;
}

/* Buffers that the largest frame fills. */
static inline uint32_t link_frame_cost(const struct queue *queue)
{
	return link_buffers(queue_frame_bytes(queue), queue->buffer_bytes);
}

/* Begins to wait for what the RX ring holds: each descriptor there has a chunk of its own. */
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

/* Which protocol is spoken here. */
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
/* Leaves the memory of copies to a file operation that hangs. */
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
bool link_rx_next(struct link *link, struct link_rxframe *frame);
void link_release(struct link *link, struct link_rxframe *frame);
void link_release_addrs(struct link *link, struct link_peer *peer, uint64_t epoch, uint32_t cost,
			const uint64_t *addrs, uint32_t n);
void link_publish_freed(struct link *link);
void link_drop(struct link *link, const struct link_rxframe *frame);
void link_received(struct link *link, const struct link_rxframe *frame);
bool link_stale(const struct link_rxframe *frame);
void link_told(struct link_rxframe *frame);
struct careful_trace link_untold(struct link_rxframe *frame);

/* Something is to be told the peer by the end of the round, unless a data frame does it. */
static inline void link_dirty(struct link_peer *peer)
{
	struct link *link = peer->link;

	if (peer->dirty)
		return;
	peer->dirty = true;
	link->dirty[link->dirty_count++] = peer;
}

/* Publishes the receive buffers that were given back; only now are the credits owed. */
static inline void link_publish(struct link *link)
{
	if (link->fill_count || link->dirty_count)
		link_publish_freed(link);
}

/* The payload is where it belongs: tells whoever traces hostRx. */
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

/* Reports whether so many of the peer's buffers are held that it may soon have no credit. */
static inline bool link_holds_many(const struct link_peer *peer)
{
	return flow_holds_many(&peer->flow, peer->kept);
}

/* Reports whether what waits for disks holds its share of the peer's window. */
static inline bool link_holds_share(const struct link_peer *peer, uint32_t held)
{
	return flow_holds_share(&peer->flow, held);
}

/* After something of the peer's was held. */
static inline void link_relieve(struct link_peer *peer)
{
	if (link_holds_many(peer) || peer->withholding)
		link_copy_out(peer);
}

/* tx.c: frames out */
bool link_tx_get(struct link_peer *peer, uint32_t body_bytes, struct link_txframe *frame);
bool link_tx_build(struct link_peer *peer, uint32_t body_bytes, struct link_txframe *frame);
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

/* Reports whether the peer asks for frames again. */
static inline bool link_asked(const struct link_peer *peer)
{
	return peer->repair.wanted != 0;
}

/* lend.c: send buffers of the application */
int link_lend_init(struct link *link);
uint8_t *link_lend(struct link *link);
bool link_is_lent(const struct link *link, const uint8_t *body);
void link_unlend(struct link *link, const uint8_t *body);
void link_tx_lent(struct link_peer *peer, uint8_t *body, uint32_t body_bytes,
		  struct link_txframe *frame);

/* tx_small.c: the same of a message in one frame, in one go */
bool link_small_careful(struct link_peer *peer, const struct careful_am *am, const void *payload,
			uint32_t bytes);
bool link_small_traditional(struct link_peer *peer, const struct careful_am *am,
			    const void *payload, uint32_t bytes);

/* Receive buffers that a frame with this body fills at the peer. */
static inline uint32_t link_cost(const struct link_peer *peer, uint32_t body_bytes)
{
	return link_buffers(peer->beside + body_bytes, peer->buffer_bytes);
}

/* The largest body that a frame towards the peer can have. */
static inline uint32_t link_body_max(const struct link_peer *peer)
{
	return peer->frame_bytes - peer->beside;
}

/* The same for a frame in one buffer at both ends: what a handler can be handed. */
static inline uint32_t link_body_single(const struct link_peer *peer)
{
	uint32_t most = peer->link->body_most - peer->trailer;
	uint32_t frame = peer->frame_bytes < peer->buffer_bytes ? peer->frame_bytes :
								  peer->buffer_bytes;
	uint32_t body = frame - peer->beside;

	return body < most ? body : most;
}

/* Reports whether a frame with this body may leave now. Can open the session after a train. */
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

/* Sends the updates that are due and that no data frame carried. */
static inline void link_updates(struct link *link)
{
	if (link->dirty_count)
		link_updates_due(link);
}

/* A message in one frame. false: not now, or not so; nothing is done. */
static inline bool link_send_small(struct link_peer *peer, const struct careful_am *am,
				   const void *payload, uint32_t bytes)
{
	if (peer->sends == LINK_SENDS_CAREFUL)
		return link_small_careful(peer, am, payload, bytes);
	return peer->sends == LINK_SENDS_TRADITIONAL &&
	       link_small_traditional(peer, am, payload, bytes);
}

/* Moves what is queued to the wire. */
static inline void link_kick(struct link *link)
{
	if (link->tx_queued || link->kick_again)
		link_kick_queued(link);
}

/* Reports whether it is known what a frame towards the peer can hold. */
static inline bool link_knows(const struct link_peer *peer)
{
	return peer->frame_bytes && peer->llhdr.bytes;
}

/* Reports whether there is a session, and both ends have said so: data may wait for its trains. */
static inline bool link_has_epoch(const struct link_peer *peer)
{
	return peer->phase >= LINK_OPEN;
}

/* Reports whether there is a session, in which frames may leave. */
static inline bool link_is_open(const struct link_peer *peer)
{
	return peer->phase == LINK_OPEN;
}

/* Reports whether there is a session in which no frame in one buffer has such a body. */
static inline bool link_too_large(const struct link_peer *peer, uint32_t body_bytes)
{
	return peer->phase == LINK_OPEN && link_knows(peer) && body_bytes > link_body_single(peer);
}

/* Frames of ours that the peer has room for, beside those that it has handled. */
static inline uint32_t link_room(const struct link_peer *peer)
{
	return peer->flow.tx.size;
}

/* So many bytes of large messages wait for the peer, behind the frame that leaves next; what a
 * frame's body holds beside them. */
static inline void link_ask(struct link_peer *peer, uint64_t bytes, uint32_t beside)
{
	if (peer->flow.tx.reserve)
		reserve_ask(peer, bytes, beside);
}

/* Reports whether a queue stands before the peer: there, on the way, or at the device. */
static inline bool link_busy(const struct link_peer *peer)
{
	return peer->phase == LINK_OPEN && (peer->link->kick_again || flow_busy(&peer->flow));
}

/* Number of the last frame sent in this epoch; for traces. */
static inline uint32_t link_seq_last(const struct link_peer *peer)
{
	return peer->flow.seq_out;
}

/* The peer whose session a frame that is not sealed is of, or NULL. */
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
bool link_peer_at(const struct link_peer *peer, const union address *address);
struct link_peer *link_peer_find(struct link *link, const union address *pair);
struct link_peer *link_peer_from(struct link *link, const union address *from,
				 const struct careful_ctrl *ctrl);
bool link_peer_belongs(const struct link_peer *peer, const struct link_host *host);
uint32_t link_peer_taken(const struct link *link, const struct link_host *host);
bool link_peer_welcome(struct link *link, const struct link_host *host);
bool link_peer_free(const struct link_peer *peer);
/* Reports whether two peers are sessions of one host. */
bool link_same_host(const struct link_peer *a, const struct link_peer *b);
struct link_peer *link_peer_get(struct link *link, const union address *address);
struct link_peer *link_peer_with(struct link *link, const struct careful_hdr *hdr);
void link_state(struct link_peer *peer, uint8_t state);
bool link_say(struct link_peer *peer, struct careful_ctrl *ctrl, uint8_t type);
bool link_ctrl_send(struct link *link, const union address *to, struct careful_ctrl *ctrl,
		    uint8_t type);
void link_unheard(struct link_peer *peer, uint64_t since_ns);
uint64_t link_random(struct link *link);

/* Hosts that the peer's slot was given to, processes that were met there, and the errno that
 * its last session ended with. */
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

/* The address that our HELLO was answered from, if not the peer's; family 0: none. */
static inline const union address *link_elsewhere(const struct link_peer *peer)
{
	return &peer->session->handshake.elsewhere;
}

/* The way to the peer is another, or how its frames are sealed. */
static inline void link_way(struct link_peer *peer)
{
	peer->beside = (uint16_t)(peer->llhdr.bytes + LINK_HDR_BYTES + peer->trailer);
}

/* Reports whether anything of the peer's came in this epoch. */
static inline bool link_used(const struct link_peer *peer)
{
	return peer->trailer ? flow_received(&peer->flow) : flow_used(&peer->flow);
}

/* A region is the peer's own, or no more. */
static inline void link_claim(struct link_peer *peer, int by)
{
	peer->session->claims += (uint32_t)by;
}

/* Service waits for a reply, and has it, or waits no more. */
static inline void link_await(struct link_peer *peer)
{
	peer->operations++;
}

static inline void link_awaited(struct link_peer *peer)
{
	peer->operations--;
}

/* epoch.c: beginning and end */
void epoch_begin(struct link_peer *peer, uint64_t cookie);
void epoch_opened(struct link_peer *peer);
void epoch_end(struct link_peer *peer);
bool epoch_drained(struct link_peer *peer);
bool epoch_quiet(struct link_peer *peer);
void link_close(struct link_peer *peer, int error);
void link_bye(struct link_peer *peer);

/* session.c: wanted, broken, given up (handshake.h: agreed) */
void link_connect(struct link_peer *peer);
void link_break(struct link_peer *peer);
void link_renew(struct link_peer *peer);
/* Lets epochs begin again: those of this peer alone, or of all peers (NULL). */
void link_resume(struct link *link, const struct link_peer *alone);
/* Ends every epoch and lets none begin. Reports whether all frames are back. */
bool link_rest(struct link *link);
void link_wake(struct link_peer *peer);
void link_way_changed(struct link_peer *peer);
void link_measure(struct link_peer *peer);
void link_keys_changed(struct link *link);
void link_lost(struct link_peer *peer, uint32_t frames);
void session_tick(struct link_peer *peer);

/* window_yield.c: idle sessions give up their windows */
bool window_yield_ask(struct link *link);
bool window_yield_await(struct link *link, const union address *to);
bool window_evict(struct link *link, const struct link_host *newcomer);
bool window_yield(struct link_peer *peer, const struct careful_ctrl *sync);
void window_yield_tick(struct link_peer *peer);

/* sync_message.c: what we sent and received */
void link_sync_describe(const struct link_peer *peer, struct careful_ctrl *ctrl);
void link_sync_ask(struct link_peer *peer, uint32_t status);

/* sync.c: what silence means */
bool link_on_sync(struct link_peer *peer, const struct careful_ctrl *ctrl);
bool link_sync_answer(struct link_peer *peer);
void link_sync_question_tick(struct link_peer *peer);
bool link_on_sync_ack(struct link_peer *peer, const struct careful_ctrl *ctrl);
bool link_on_gone(struct link_peer *peer, const struct careful_ctrl *ctrl);
bool link_on_refused(struct link_peer *peer);
bool link_awaits(const struct link_peer *peer);
bool link_sync_tick(struct link_peer *peer);

/* control_watch.c: whether control messages pass */
void control_watch_begin(struct link_peer *peer);
void control_watch_ask(struct link_peer *peer);
void control_watch_answer(struct link_peer *peer, const struct careful_ctrl *sync);
bool control_watch_on_answer(struct link_peer *peer, const struct careful_ctrl *ack);
void control_watch_heard(struct link_peer *peer);
void control_watch_tick(struct link_peer *peer);
bool control_watch_unheard(const struct link_peer *peer);

/* path.c: the largest frame that the way to a peer takes */
void link_path_fit(struct link_peer *peer);
int link_path_again(struct link_peer *peer);
bool link_path_narrow(const struct link_peer *peer);
bool link_path_begin(struct link_peer *peer);
bool link_path_told(struct link_peer *peer);
enum link_path_state {
	LINK_PATH_KNOWN,
	LINK_PATH_PROBES, /* data waits for it */
	LINK_PATH_RENEWS, /* frames are to be smaller, in a new epoch */
};
enum link_path_state link_path_tick(struct link_peer *peer);

/* control.c: the control socket, and time */
bool link_quotes(const struct link_peer *peer, const union link_message *quoted);
void link_control(struct link *link);
void link_attend(struct link *link);
void link_drained(struct link *link);
void link_tick(struct link *link);
uint32_t link_timeout_ms(const struct link *link, uint32_t most_ms);

/* crc32c.c */
uint32_t link_crc32c(const void *data, uint32_t bytes);
