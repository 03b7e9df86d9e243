/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The traditional protocol of one peer (P2 section 5.2), for comparison with careful under the
 * same message layer. A frame leaves when it is ready: no window holds it back. Its send
 * buffers are kept until the peer is known to have it. Every frame that comes back says up to
 * which number all have come; where send buffers run short, or nothing comes back, an
 * explicit, selective acknowledgement is asked for. The receiver asks for missing frames
 * again: at once where a number is skipped, then when its question was answered and it is
 * missing still, and after a time without progress. Frames that come early wait in receive
 * buffers, of which each peer has a share; what finds none is dropped, and asked for later.
 *
 * An instance speaks one protocol (link->traditional is NULL with careful), so that its receive
 * buffers are a pool of its own (P2 section 4.1). The files of link have the common part; they call
 * these functions where the two differ.
 */
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

/*
 * A send buffer's part of the frame that is in it.
 *
 * @next:      buffer of the frame's next segment, counted from the first send buffer; or
 *             TRADITIONAL_NONE
 * @at, @bytes: where in the UMEM the segment is
 * @kept:      the peer may ask for it again
 * @away:      the device has it: it is neither free nor sent again before that ends
 */
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

/*
 * One peer's. flow counts the rest: seq_out, seq_in (all up to this one have been taken), tx.sent
 * and tx.credits (frames sent, and known to have come).
 *
 * Sent:
 * @copies:     of a number: its first send buffer, TRADITIONAL_NONE once it is known to have come
 * @copies_kept: send buffers of these
 * @asked_seq:  seq_out when an acknowledgement was asked for last
 * @answered:   the peer's last question that was answered
 * Received:
 * @highest:    the last number that the peer is known to have sent
 * @early:      of a number: the frame that waits for those before it, counted from 1; or 0
 * @early_frames, @early_buffers: that wait so
 * @asked:      of a number: our question in which it was asked for; 0: in none
 * @question:   the last one sent, @heard: the last one answered
 * @vain:       questions that were answered since something came
 * @answer_due, @question_due: an ACK frame is to be sent
 * @out_of_time: the question is asked even if nothing is known to be missing
 * @refused:    the frame that was due found no room: it is asked for when there is some
 * Time:
 * @entered:    a frame was handed on since the last tick, @entered_ns: when that was last so,
 *              or no frame was awaited
 * @come:       one of ours was acknowledged, @come_ns: likewise
 * @asked_ns:   when something was asked for lack of either
 * @wait_ns:    from then to the next question
 * @timed:      a question whose answer is timed; 0: none; @timed_ns: when it was sent
 * @round_ns:   from a question to its answer, smoothed; 0: not known
 */
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

/*
 * The operations in which the protocols differ. With careful none is called.
 *
 * @open, @close:   an epoch begins, is over
 * @tick:           the clock's; true: the session is over
 * @timeout_ms:     until the next tick is due, at most most_ms
 * @leave:          numbers a frame and keeps its send buffers
 * @stamp:          writes what the header says of what came
 * @left:           the device has sent a send buffer
 * @come:           all up to this number have come; false: that cannot be
 * @may_keep:       reports whether one more frame, beside `more`, may be kept
 * @take:           takes a frame that came; true: it is handed on
 * @follow:         hands on a frame that waited for one before it
 * @due, @tell:     an acknowledgement or a question is due; sends it
 */
struct traditional_ops {
	void (*open)(struct link_peer *peer);
	void (*close)(struct link_peer *peer);
	bool (*tick)(struct link_peer *peer);
	uint32_t (*timeout_ms)(const struct link_peer *peer, uint32_t most_ms);
	void (*info)(const struct link_peer *peer, struct careful_peer_info *info);
	struct flow_stamp (*leave)(struct link_peer *peer, const struct device_desc *desc,
				   uint32_t segments, enum careful_type type, uint8_t *flags);
	void (*stamp)(const struct link_peer *peer, struct careful_hdr *hdr);
	void (*left)(struct link *link, uint64_t addr);
	bool (*come)(struct link_peer *peer, uint32_t seq);
	bool (*may_keep)(const struct link_peer *peer, uint32_t more);
	bool (*take)(struct link *link, struct link_rxframe *frame);
	bool (*follow)(struct link *link, struct link_rxframe *frame);
	bool (*due)(struct link_peer *peer);
	bool (*tell)(struct link_peer *peer);
};

/*
 * State that all peers of a link share.
 *
 * @numbers_out, @numbers_in: of the rings, powers of two: more than frames can be kept, and
 *                            more than can wait
 * @copies_max:  each peer's share of the send buffers
 * @early_max:   each peer's share of the buffers that frames may fill which wait
 * @early_pool:  all of these
 * @chunk_shift: of a send buffer's address: its number
 * @follow:      the slot that is asked first for frames that need wait no more
 */
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
