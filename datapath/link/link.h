/* SPDX-License-Identifier: BSD-2-Clause */
/* Peers and their frames: sessions and epochs, credit windows, the sequence check, receive and send
 * buffers. message/ interprets a frame's body. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include <careful/careful.h>
#include <careful/trace.h>
#include <careful/wire.h>

#include "device/device.h"
#include "device/trace.h"
#include "link/frames.h"
#include "link/peer/peer.h"
#include "link/peer/train.h"
#include "link/send/ping.h"
#include "link/state.h"

enum {
	LINK_HDR_BYTES = sizeof(struct careful_hdr),
	LINK_IPV4_BYTES = 42, /* headers of Ethernet, IPv4 and UDP */
	LINK_IPV6_MORE = 20, /* bytes by which an IPv6 header is longer */
	LINK_CHUNKS_FREE_MIN = 1, /* send chunks that only window updates may take */
};

/* link.c */
int link_init(struct link *link, struct queue *queue, const struct careful_options *options,
	      struct careful_error *error);
void link_deinit(struct link *link);
void link_frames_changed(struct link *link);
int link_window(struct link *link, const struct careful_options *options,
		struct careful_error *error);
void link_routes_changed(struct link *link);
void link_info(struct link *link, struct careful_info *info);
void link_peer_info(const struct link_peer *peer, struct careful_peer_info *info);
void link_peer_whereabouts(const struct link_peer *peer, struct careful_peer_whereabouts *where);

/* rx.c */
void link_rx(struct link *link);
bool link_stale(const struct link_rxframe *frame);
struct careful_trace link_trace_held(struct link_rxframe *frame);

/* credit_return.c */
void link_release(struct link *link, struct link_rxframe *frame);

/* rx_hold.c */
struct link_held *link_hold(struct link *link, struct link_rxframe *frame, bool may_copy);
struct careful_kept *link_keep(struct link_held *held, struct careful_kept message);
void link_hold_pin(struct link_held *kept);
void link_unhold(struct link *link, struct link_held *kept);

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
void link_send_repair(struct link_txframe *frame, const struct link_send_args *args, uint32_t seq);
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

/* app_buffers.c */
uint8_t *link_lend(struct link *link);
bool link_is_lent(const struct link *link, const uint8_t *body);
void link_unlend(struct link *link, const uint8_t *body);
void link_tx_lent(struct link_peer *peer, uint8_t *body, uint32_t body_bytes,
		  struct link_txframe *frame);

/* peer.c */
struct link_peer *link_peer_find(struct link *link, const union address *pair);
bool link_same_host(const struct link_peer *a, const struct link_peer *b);
/* Copies the key that a peer proved. Returns false if sessions need none. */
bool link_peer_key(const struct link_peer *peer, uint8_t *key);
/* Returns the cookie of the frames that the peer sends us; 0: none. */
uint64_t link_peer_cookie(const struct link_peer *peer);
struct link_peer *link_peer_get(struct link *link, const union address *address);
uint64_t link_random(struct link *link);

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

/* sync.c */
void link_ask_arrived(struct link_peer *peer);

/* window_yield.c */
bool window_yield_await(struct link *link, const union address *to);

/* control.c */
void link_control(struct link *link);
void link_attend(struct link *link);
void link_drained(struct link *link);
void link_tick(struct link *link);
uint32_t link_timeout_ms(const struct link *link, uint32_t most_ms);

/* crc32c.c */
uint32_t link_crc32c(const void *data, uint32_t bytes);

#include "link/fast.h"
