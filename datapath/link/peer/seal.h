/* SPDX-License-Identifier: BSD-2-Clause */
/* Sealed frames (struct careful_seal_end in wire.h): which peers use them, how both ends agree, and
 * the sealing itself.
 *
 * XDP admits a frame before its tag is checked. Anybody who reads the cookie on the wire can forge
 * a frame, which must not change anything for good:
 *
 * - its number does not count: XDP keeps none for a sealed session, but uses that of the last frame
 *   whose tag was right (seq_taken; careful_frame_admit_sealed);
 * - its credits do not count: flow.h sees a frame once, after its tag was checked;
 * - XDP charges its buffers like any frame's, and they go back to the fill ring. The charge is
 *   added to what the peer may fill, so its window loses nothing;
 * - a true frame behind it finds its number free, and room: a quarter of a sealed peer's buffers is
 *   in no window, unless the window would be too small (link_peer_room). An attacker must forge
 *   more frames than that between two looks at the RX ring to have true frames dropped. That is a
 *   loss like any other. Other peers' buffers are not affected.
 *
 * Trains and pings that end at XDP are not sealed, since XDP has no keys. A forged or repeated ping
 * moves no number here (careful_frame_admit). The engine proves its answer with a key of the epoch
 * (careful_ping_answer in wire.h), so nobody else can make one. An answer cannot be obtained in
 * advance either: it depends on frag_off, which the asker draws. So an attacker can only delay or
 * drop pings and answers, like a slow path. A proof of 64 bits is enough: a forger has few guesses
 * at each ping, and each is counted. Train frames prove nothing: forged ones make the burst look
 * larger.
 *
 * The end that answers a HELLO has the keys first, and its frames may overtake its WELCOME. So it
 * holds its data back until the other end shows that it has the keys too (seal_waits): by a frame,
 * or by the SYNC that it sends after WELCOME, whose cookie was secret before. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <careful/careful.h>
#include <careful/wire.h>

#include "device/device.h"
#include "secure/aead.h"
#include "secure/noise.h"

struct link;
struct link_peer;
struct link_rxframe;
struct link_txframe;

/* Sealing with a peer.
 *
 * @mode:     enum careful_seal, as configured here
 * @cipher:   the cipher of this epoch, enum careful_cipher; 0: not agreed yet
 * @waits:    data is held back until the peer shows that it has the keys
 * @asked_ns: when we last asked the peer to show its keys
 * @sent:     frames sealed in this epoch
 * @seen:     the peer's frames, by their count
 * @out, @in: keys of our frames, and of the peer's */
struct seal {
	uint8_t mode;
	bool waits;
	uint32_t cipher;
	uint64_t asked_ns;
	uint64_t sent;
	struct aead_seen seen;
	struct aead out, in;
};

int seal_init(struct link *link, const char *rules, struct careful_error *error);
void seal_deinit(struct link *link);

/* Handshake: describe our settings, check the peer's, derive the keys. */
void seal_describe(const struct link_peer *peer, uint8_t type, struct careful_ctrl *ctrl);
bool seal_agrees(const struct link *link, const union address *with,
		 const struct careful_ctrl *said);
void seal_choose(struct link_peer *peer, const struct careful_ctrl *said);
void seal_keys(struct link_peer *peer, const struct noise *noise);
void seal_over(struct link_peer *peer);

/* Frames. seal_undo() opens a frame that must be sealed again under another number. */
void seal_frame(struct link_txframe *frame);
void seal_undo(struct link_txframe *frame);
enum careful_counter seal_take(struct link *link, struct link_rxframe *frame, uint32_t bytes);

/* While the peer may lack the keys. */
void seal_wait(struct link_peer *peer);
bool seal_waits(const struct link_peer *peer);
void seal_heard(struct link_peer *peer);
enum seal_due {
	SEAL_DUE_NONE,
	SEAL_DUE_QUESTION,
	SEAL_DUE_END,
};
enum seal_due seal_tick(struct link_peer *peer);
