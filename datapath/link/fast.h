/* SPDX-License-Identifier: BSD-2-Clause */
/* The short functions of link.h, which includes this file. */
#pragma once

/* rx.c */
bool link_rx_take(struct link *link, struct link_rxframe *frame);
void link_trace_placed(struct link_rxframe *frame);

/* credit_return.c */
void link_publish_freed(struct link *link);

/* rx_hold.c */
void link_copy_out(struct link_peer *peer);

/* update.c */
void link_updates_due(struct link *link);

/* tx.c */
void link_kick_queued(struct link *link);
void link_complete(struct link *link);

/* tx_small.c */
bool link_small_careful(struct link_peer *peer, const struct careful_am *am, const void *payload,
			uint32_t bytes);
bool link_small_traditional(struct link_peer *peer, const struct careful_am *am,
			    const void *payload, uint32_t bytes);

static inline void link_count_many(struct link *link, enum careful_counter counter, uint32_t n)
{
	link->counters[counter] += n;
}

static inline void link_count(struct link *link, enum careful_counter counter)
{
	link_count_many(link, counter, 1);
}

/* Returns the buffers that a frame of this many bytes fills. Most fill one, without a division. */
static inline uint32_t link_buffers(uint32_t bytes, uint32_t buffer_bytes)
{
	return bytes <= buffer_bytes ? 1 : (bytes + buffer_bytes - 1) / buffer_bytes;
}

/* Returns the receive buffers that a frame with this body fills at the peer. */
static inline uint32_t link_cost(const struct link_peer *peer, uint32_t body_bytes)
{
	return link_buffers(peer->beside + body_bytes, peer->buffer_bytes);
}

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

/* Reports whether the peer may soon have no credit, because its buffers are held. */
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

/* Reports whether pings look for the largest frame that the path takes, while data goes on. */
static inline bool link_searches(const struct link_peer *peer)
{
	return peer->session->path.probing;
}

/* Returns the largest body of a frame to the peer; during a search, one that certainly passes. */
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

/* Reports whether bulk frames must wait until the device has completed kicked frames. Call it only
 * if there are bulk frames: the engine then polls the device. */
static inline bool link_tx_waits(struct link *link)
{
	link->tx_held |= link->tx_shut;
	return link->tx_shut;
}

/* Makes bulk frames wait for the rest of the round, because a pulse of exact size is queued. */
static inline void link_tx_shut(struct link *link)
{
	link->tx_shut = true;
}

/* Begins to send bulk messages in a round. netTx's present state counts for all peers. */
static inline void link_tx_begin(struct link *link)
{
	link->tx_held = false;
	if (link->net_tx.busy)
		link_complete(link);
	link->tx_shut = link->net_tx.busy;
}

/* Reports whether the size of frames to the peer is known. */
static inline bool link_knows_size(const struct link_peer *peer)
{
	return peer->frame_bytes && peer->llhdr.bytes;
}

/* Reports whether frames may leave in the session. */
static inline bool link_is_open(const struct link_peer *peer)
{
	return peer->phase == LINK_OPEN;
}

/* Reports whether this body exceeds a frame of one buffer in the existing session. */
static inline bool link_too_large(const struct link_peer *peer, uint32_t body_bytes)
{
	return peer->phase == LINK_OPEN && link_knows_size(peer) &&
	       body_bytes > link_body_single(peer);
}

/* Returns the window that the peer gave us, in buffers. */
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
