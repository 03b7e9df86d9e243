/* SPDX-License-Identifier: BSD-2-Clause */
/* The traditional protocol of one peer (P2 section 5.2), for comparison with careful under the same
 * message layer. A frame leaves when it is ready: no window holds it back. Its send buffers are
 * kept until the peer acknowledges it. Every frame acknowledges all numbers up to one. If send
 * buffers run short, or nothing comes back, the sender asks for a selective acknowledgement. The
 * receiver requests a missing frame when a number is skipped, again if it is still missing after an
 * answer, and after a time without progress. Early frames wait in receive buffers, of which each
 * peer has a share; a frame that finds none is dropped and requested later.
 *
 * An instance uses one protocol (link->traditional is NULL with careful), so its receive buffers
 * are a pool of their own (P2 section 4.1). Other files of link call these functions if the
 * protocols differ. */
#pragma once

#include <linux/types.h>
#include <stdbool.h>
#include <stdint.h>

#include <careful/careful.h>
#include <careful/wire.h>

struct device_desc;
struct flow_stamp;
struct link;
struct link_peer;
struct link_rxframe;

/* The part of a frame in one send buffer.
 *
 * @next:       index of the buffer with the frame's next segment, or TRADITIONAL_NONE
 * @at, @bytes: the segment in the UMEM
 * @kept:       the peer may ask for it again
 * @away:       the device uses it, so it is neither free nor sent again */
struct traditional_copy {
	uint64_t at;
	uint32_t bytes;
	uint32_t next;
	bool kept;
	bool away;
};

enum {
	TRADITIONAL_NONE = 0xffffffff,
};

/* A peer's state. flow has the rest: seq_out, seq_in (all up to it were taken), tx.sent and
 * tx.credits (frames sent and acknowledged).
 *
 * Sent:
 * @copies:      by number: its first send buffer, TRADITIONAL_NONE once acknowledged
 * @copies_kept: send buffers that are kept
 * @asked_seq:   seq_out at the last request for an acknowledgement
 * @answered:    the peer's last request that we answered
 * Received:
 * @highest:     the last number that the peer has certainly sent
 * @early:       of a number: the frame that waits for those before it, counted from 1; or 0
 * @early_frames, @early_buffers: that wait so
 * @asked:       by number: our request that named it; 0: none
 * @question:    our last request; @heard: the last one answered
 * @vain:        requests answered since a frame came
 * @answer_due, @question_due: an ACK frame must be sent
 * @out_of_time: request even if nothing is known to be missing
 * @refused:     the due frame found no room; it is requested when there is some
 * Time:
 * @entered:  a frame was handed on since the last tick; @entered_ns: the last tick when that was
 *            so, or no frame was awaited
 * @come:     a frame of ours was acknowledged; @come_ns: likewise
 * @asked_ns: last request for lack of either
 * @wait_ns:  from then to the next request
 * @timed:    a request whose answer is timed; 0: none; @timed_ns: when it was sent
 * @round_ns: from a request to its answer, smoothed; 0: unknown */
struct traditional {
	uint32_t *copies;
	uint32_t copies_kept;
	uint32_t asked_seq;
	uint16_t answered;

	uint32_t highest;
	uint32_t *early;
	uint32_t early_frames, early_buffers;
	uint16_t *asked;
	uint16_t question, heard;
	uint32_t vain;
	bool answer_due, question_due, out_of_time, refused;

	bool entered, come;
	uint64_t entered_ns, come_ns, asked_ns, wait_ns;
	uint16_t timed;
	uint64_t timed_ns, round_ns;
};

/* The operations in which the protocols differ. The careful protocol calls none.
 *
 * @open, @close: an epoch begins, ends
 * @tick:         called by the clock; true: the session has ended
 * @timeout_ms:   until the next tick is due, at most most_ms
 * @number_frame: numbers a frame and keeps its send buffers
 * @write_ack:    writes the header's acknowledgement
 * @sent:         the device has sent a send buffer
 * @acked:        the peer has all frames up to this number; false: impossible
 * @may_keep:     reports whether one frame may be kept besides `more` buffers
 * @take:         takes a received frame; true: it is handed on
 * @next_waiting: hands on the next frame that waited for an earlier one
 * @due:          an acknowledgement or a request for frames is due
 * @send_ack:     sends it */
struct traditional_ops {
	void (*open)(struct link_peer *peer);
	void (*close)(struct link_peer *peer);
	bool (*tick)(struct link_peer *peer);
	uint32_t (*timeout_ms)(const struct link_peer *peer, uint32_t most_ms);
	void (*info)(const struct link_peer *peer, struct careful_peer_info *info);
	struct flow_stamp (*number_frame)(struct link_peer *peer, const struct device_desc *desc,
					  uint32_t segments, enum careful_type type,
					  uint8_t *flags);
	void (*write_ack)(const struct link_peer *peer, struct careful_hdr *hdr);
	void (*sent)(struct link *link, uint64_t addr);
	bool (*acked)(struct link_peer *peer, uint32_t seq);
	bool (*may_keep)(const struct link_peer *peer, uint32_t more);
	bool (*take)(struct link *link, struct link_rxframe *frame);
	bool (*next_waiting)(struct link *link, struct link_rxframe *frame);
	bool (*due)(struct link_peer *peer);
	bool (*send_ack)(struct link_peer *peer);
};

/* State that all peers of a link share.
 *
 * @numbers_out, @numbers_in: sizes of the rings, powers of two, larger than the frames that can be
 *               kept and that can wait
 * @copies_max:  each peer's share of the send buffers
 * @early_max:   each peer's share of the buffers for waiting frames
 * @early_pool:  all of these
 * @chunk_shift: shifts a send buffer's address to its number
 * @follow:      the slot that is checked first for frames whose turn has come */
struct traditional_link {
	const struct traditional_ops *ops;
	struct traditional *peers;
	struct traditional_copy *copies;
	struct link_rxframe *early;
	uint32_t *early_free;
	uint32_t early_free_count;
	uint32_t numbers_out, numbers_in;
	uint32_t copies_max;
	uint32_t early_max, early_pool, early_buffers;
	uint32_t chunk_shift;
	uint32_t follow;
};

int traditional_init(struct link *link);
void traditional_deinit(struct link *link);
