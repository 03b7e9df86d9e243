/* SPDX-License-Identifier: BSD-2-Clause */
/* The traditional protocol of one peer (P2 section 5.2), for comparison with careful under the same
 * message layer. No window holds a frame back. The send buffers of a frame are kept until the peer
 * acknowledges the frame. Every frame acknowledges all numbers up to one. If send buffers run
 * short, or nothing arrives, the sender asks for a selective acknowledgement. The receiver requests
 * a missing frame when a number is skipped, after an answer without the frame, and after a time
 * without progress. Early frames wait in receive buffers, of which each peer has a share; a frame
 * that finds none is dropped and requested later.
 *
 * An instance uses one protocol (link->traditional is NULL with careful), so all its receive buffers
 * belong to that protocol (P2 section 4.1). */
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

/* A segment of a frame, in one send buffer. */
struct traditional_copy {
	uint64_t at; /* address in the UMEM */
	uint32_t bytes;
	uint32_t next; /* index of the frame's next segment, or TRADITIONAL_NONE */
	bool kept; /* the peer may request it again */
	bool away; /* the device uses it, so it is neither free nor sent again */
};

enum {
	TRADITIONAL_NONE = 0xffffffff,
};

/* A peer's state. flow has the rest: seq_out, seq_in (the last number handed on), tx.sent and
 * tx.credits (frames sent and acknowledged). */
struct traditional {
	/* Sent frames. */
	uint32_t *copies; /* by number: first send buffer; TRADITIONAL_NONE once acknowledged */
	uint32_t copies_kept; /* send buffers that are kept */
	uint32_t asked_seq; /* seq_out at the last request for an acknowledgement */
	uint16_t answered; /* the peer's last request that we answered */

	/* Received frames. */
	uint32_t highest; /* the last number that the peer has certainly sent */
	uint32_t *early; /* by number: index of the waiting frame, plus 1; or 0 */
	uint32_t early_frames, early_buffers; /* that wait */
	uint16_t *asked; /* by number: our request that named it; 0: none */
	uint16_t question, heard; /* our last request, and the last one answered */
	uint32_t vain; /* requests answered since a frame arrived */
	bool answer_due, question_due; /* an ACK frame must be sent */
	bool out_of_time; /* request even if nothing is known to be missing */
	bool refused; /* the due frame found no room; it is requested when there is room */

	/* Time. */
	bool entered; /* a frame was handed on since the last tick */
	bool come; /* a frame of ours was acknowledged since the last tick */
	uint64_t entered_ns, come_ns; /* the last tick when that was so, or not awaited */
	uint64_t asked_ns; /* last request for lack of either */
	uint64_t wait_ns; /* from then to the next request */
	uint16_t timed; /* a request whose answer is timed; 0: none */
	uint64_t timed_ns; /* when it was sent */
	uint64_t round_ns; /* from a request to its answer, smoothed; 0: unknown */
};

/* The operations in which the protocols differ. The careful protocol calls none. */
struct traditional_ops {
	void (*open)(struct link_peer *peer); /* begins an epoch */
	void (*close)(struct link_peer *peer);
	bool (*tick)(struct link_peer *peer); /* true: the session has ended */
	uint32_t (*timeout_ms)(const struct link_peer *peer, uint32_t most_ms);
	void (*info)(const struct link_peer *peer, struct careful_peer_info *info);
	/* Numbers a frame and keeps its send buffers. */
	struct flow_stamp (*number_frame)(struct link_peer *peer, const struct device_desc *desc,
					  uint32_t segments, enum careful_type type,
					  uint8_t *flags);
	void (*write_ack)(const struct link_peer *peer, struct careful_hdr *hdr);
	void (*sent)(struct link *link, uint64_t addr); /* handles a sent send buffer */
	/* Handles the acknowledgement of all frames up to seq; false: impossible. */
	bool (*acked)(struct link_peer *peer, uint32_t seq);
	/* Reports whether one frame may be kept besides `more` buffers. */
	bool (*may_keep)(const struct link_peer *peer, uint32_t more);
	bool (*take)(struct link *link, struct link_rxframe *frame); /* true: hand it on */
	bool (*next_waiting)(struct link *link, struct link_rxframe *frame);
	bool (*due)(struct link_peer *peer); /* an acknowledgement or a request */
	bool (*send_ack)(struct link_peer *peer);
};

/* State that all peers of a link share. */
struct traditional_link {
	const struct traditional_ops *ops;
	struct traditional *peers;
	struct traditional_copy *copies;
	struct link_rxframe *early;
	uint32_t *early_free;
	uint32_t early_free_count;
	uint32_t numbers_out; /* size of `copies`, a power of two, above the frames kept */
	uint32_t numbers_in; /* size of `early`, a power of two, above the frames that wait */
	uint32_t copies_max; /* each peer's share of the send buffers */
	uint32_t early_max; /* each peer's share of the buffers for waiting frames */
	uint32_t early_pool, early_buffers; /* all of these, and those in use */
	uint32_t chunk_shift; /* from a send buffer's address to its number */
	uint32_t follow; /* the slot that is checked first for frames that are now due */
};

int traditional_init(struct link *link);
void traditional_deinit(struct link *link);
