/* SPDX-License-Identifier: BSD-2-Clause */
/* The log of frames that have left and may be lost. A lost frame is sent again under its number, with
 * as many bytes. The repair fills the receive buffers for which the lost frame had credits, so no
 * account changes. The receiver drops the copy that arrives second.
 *
 * The log copies small messages; of a bulk fragment it keeps where the fragment was read. A receiver
 * hands frames on in order, so returned credits prove that a number has arrived. The log holds a
 * window of numbers. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct link_peer;

/* The header fields for link_send(), which adds sequence, credits, cookie and check. */
struct link_send_args {
	uint8_t type;
	uint8_t flags;
	uint8_t stage_limit;
	uint32_t msg_id;
	uint32_t msg_bytes;
	uint32_t frag_off;
	uint16_t frag_bytes;
	uint32_t crc_bytes; /* bytes of the body, in its first segment, that payload_crc covers */
	uint32_t source; /* where message/ reads the payload again; 0: the log copies the body */
};

enum {
	LOG_BODY_BYTES = 112, /* the longest body that the entry itself keeps */
	LOG_BYTES = 0xffff, /* mask of the body's bytes */
	LOG_WANTED = 1 << 16, /* the peer requests it */
	LOG_BRIEF = 1 << 17, /* a message of one frame by tx_small.c, kept in log_entry.body */
	LOG_TIMES = 1 << 18, /* unit of the number of its repairs */
	LOG_TIMES_MAX = 16, /* then the frame is given up, if the path takes others of its size */
};

/* One frame. */
struct log_entry {
	uint32_t sent; /* flow.tx.sent when it left, including its own buffers */
	uint32_t again_us; /* when it was last sent again */
	uint32_t bytes_flags; /* bytes of its body, and LOG_* flags */
	union {
		_Alignas(16) uint8_t body[LOG_BODY_BYTES]; /* of a LOG_BRIEF frame */
		struct link_send_args args; /* of another frame */
	};
};

_Static_assert(sizeof(struct log_entry) == 128, "two cache lines; most entries use one");

/* When a missing number was noticed, and first and last requested (link_us()); 0: not yet. */
struct link_asked {
	uint32_t noticed_us, first_us, last_us;
};

/* A peer's state of repairs. */
struct link_repair {
	struct log_entry *log; /* our frames, by number; NULL: nothing is repaired */
	uint8_t *copies; /* bodies of frames without a source */
	uint32_t log_mask; /* entries of the log, a power of two, minus 1 */
	uint32_t copy_bytes; /* from one copy to the next */
	uint32_t acked; /* the peer has all our frames up to this number */
	uint32_t wanted; /* entries that the peer requests */
	uint32_t wanted_from; /* the first of them, or an earlier one */
	uint32_t may_repeat; /* frames that may leave again before the next tick */
	uint32_t *early; /* by the peer's number: index of a waiting frame (reorder.c) plus 1; or 0 */
	uint32_t early_count; /* waiting frames */
	uint32_t highest; /* the last number that the peer has certainly sent, if beyond seq_in */
	struct link_asked *asked; /* by the peer's number: when we requested it */
};
