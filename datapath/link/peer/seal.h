/* SPDX-License-Identifier: BSD-2-Clause */
/* Sealed frames (struct careful_seal_end in wire.h).
 *
 * XDP admits a frame before its tag is checked. Anybody who reads the cookie on the wire can forge
 * a frame, which must have no lasting effect:
 *
 * - its number does not count: for a sealed session XDP uses the number of the last frame whose tag
 *   was valid (seq_taken; careful_frame_admit_sealed);
 * - its credits do not count: flow.h sees only frames with a valid tag;
 * - XDP charges its buffers, which return to the fill ring. The charge is added to the buffers that
 *   the peer may fill, so the peer's window loses nothing;
 * - it does not use up the room of true frames: a quarter of a sealed peer's buffers is in no window,
 *   unless the window would be too small (link_peer_room). Only an attacker who forges more frames
 *   between two reads of the RX ring causes drops, which are losses like any other. Other peers'
 *   buffers are not affected.
 *
 * Trains and pings that end at XDP are not sealed, since XDP has no keys. A forged or repeated ping
 * changes no number (careful_frame_admit). The engine proves its answer with a key of the epoch
 * (careful_ping_answer in wire.h). An answer cannot be obtained in advance: it depends on frag_off,
 * which the asker draws. So an attacker can only delay or drop pings and answers. A proof of 64 bits
 * is enough: a forger has few guesses at each ping, and each is counted. Forged train frames make
 * the burst look larger.
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

/* Sealing with a peer. */
struct seal {
	uint8_t mode; /* enum careful_seal, as configured here */
	bool waits; /* data is held back until the peer shows that it has the keys */
	uint32_t cipher; /* enum careful_cipher of this epoch; 0: not agreed yet */
	uint64_t asked_ns; /* when we last asked the peer to show its keys */
	uint64_t sent; /* frames sealed in this epoch */
	struct aead_seen seen; /* the peer's frames, by their count */
	struct aead out, in; /* keys of our frames, and of the peer's */
};

int seal_init(struct link *link, const char *rules, struct careful_error *error);
void seal_deinit(struct link *link);

/* Handshake: describe our settings, check the peer's, derive the keys. */
void seal_describe(const struct link_peer *peer, uint8_t type, struct careful_ctrl *ctrl);
bool seal_agrees(const struct link *link, const union address *peer,
		 const struct careful_ctrl *theirs);
void seal_choose(struct link_peer *peer, const struct careful_ctrl *theirs);
void seal_keys(struct link_peer *peer, const struct noise *noise);
void seal_over(struct link_peer *peer);

/* Frames. */
void seal_frame(struct link_txframe *frame);
void seal_undo(struct link_txframe *frame);
enum careful_counter seal_take(struct link *link, struct link_rxframe *frame, uint32_t bytes);

/* Data waits until the peer shows that it has the keys. */
void seal_wait(struct link_peer *peer);
bool seal_waits(const struct link_peer *peer);
void seal_heard(struct link_peer *peer);
enum seal_due {
	SEAL_DUE_NONE,
	SEAL_DUE_QUESTION,
	SEAL_DUE_END,
};
enum seal_due seal_tick(struct link_peer *peer);
