/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Sealed frames (wire.h, struct careful_seal_end): with which peers, that both ends agree on it,
 * and the sealing itself.
 *
 * XDP admits a frame before its tag can be checked. So that one which is forged, by whoever reads
 * the cookie on the wire, changes nothing for good:
 *
 * - its number counts nowhere: XDP keeps none of a sealed session, and asks that of the last frame
 *   whose tag the engine found right (seq_taken; careful_frame_admit_sealed);
 * - its credits count nowhere: flow.h sees a frame after its tag was right, and once;
 * - its buffers are charged by XDP as any frame's are, and go back to the fill ring; what was
 *   charged is added to what the peer may fill, so nothing is lost of its window;
 * - a true frame that comes behind it finds its number free, and room: of a sealed peer's buffers a
 *   quarter is in no window, as far as the least window leaves that (link_peer_room), and only who
 *   forges more than these between two looks at the RX ring has true frames dropped. That is a
 *   loss like any other: a new epoch, under another cookie; the buffers of other peers are their
 *   own.
 *
 * Trains and pings that end at XDP are not sealed: XDP, which counts and stamps them, has no keys.
 * A ping that is forged, or said again, moves no number here (careful_frame_admit); its answer is
 * the engine's and proved, by a key of the epoch (wire.h, careful_ping_answer), so nobody else
 * makes one. Nor can a true answer be had before it is asked and kept for then: it is also of
 * frag_off, which the asker draws. An attacker can then only hold either up, which nothing can tell
 * from a slow path, or take it away. Its 64 bits are enough: a forger has one guess or few at each
 * ping, and each is counted. A train's frames prove nothing: who forges them makes the burst look
 * larger.
 *
 * The end that answers a HELLO has the keys before the end that asked, whose WELCOME goes another
 * way than frames. So it holds its data back until the other shows that it has them: with a frame,
 * or the SYNC that it sends on WELCOME, whose cookie nobody can know before (seal_waits).
 */
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

/*
 * A peer's.
 *
 * @mode:     enum careful_seal, as it was asked for here
 * @cipher:   that both ends have in this epoch, enum careful_cipher; 0: not agreed yet
 * @waits:    data is held back until the peer shows that it has the keys
 * @asked_ns: when it was last asked to
 * @sent:     frames that were sealed in this epoch
 * @seen:     of the peer's frames, by their count
 * @out, @in: of our frames, and of the peer's
 */
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

/* The peer's slot is another host's now. */

/* Handshake: what is said, whether what was heard agrees, and the keys that follow. */
void seal_describe(const struct link_peer *peer, uint8_t type, struct careful_ctrl *ctrl);
bool seal_agrees(const struct link *link, const union address *with,
		 const struct careful_ctrl *said);
void seal_choose(struct link_peer *peer, const struct careful_ctrl *said);
void seal_keys(struct link_peer *peer, const struct noise *noise);
void seal_over(struct link_peer *peer);

/* Frames. seal_undo: one that was sealed is to be sealed again, by another number. */
void seal_frame(struct link_txframe *frame);
void seal_undo(struct link_txframe *frame);
enum careful_counter seal_take(struct link *link, struct link_rxframe *frame, uint32_t bytes);

/* Until the peer has the keys. */
void seal_wait(struct link_peer *peer);
bool seal_waits(const struct link_peer *peer);
void seal_heard(struct link_peer *peer);
enum seal_due {
	SEAL_DUE_NONE,
	SEAL_DUE_QUESTION,
	SEAL_DUE_END,
};
enum seal_due seal_tick(struct link_peer *peer);
