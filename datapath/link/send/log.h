/* SPDX-License-Identifier: BSD-2-Clause */
/* The log of frames that have left and may be lost. A lost frame is sent again under its number,
 * with as many bytes. XDP admits each number of a window, so the repair takes the receive buffers
 * that the lost frame was charged for, and no account has to be corrected. The frame that arrives
 * first counts; the receiver drops the other.
 *
 * The log keeps no bulk data. It keeps where a fragment was read, and a copy of each small message.
 * A receiver hands frames on in their order, so the credits that it gave back prove that a number
 * has come. At most a window of numbers has not, and the log holds one.
 * Calls: log.c. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct link_peer;

/* The header fields that link_send() is given; it adds sequence, credits, cookie and check.
 *
 * @crc_bytes: how much of the body payload_crc covers (first segment)
 * @source:    tells message/ where to read the payload again; 0: the body is in one buffer and is
 *             copied */
struct link_send_args {
	uint8_t type;
	uint8_t flags;
	uint8_t stage_limit;
	uint32_t msg_id;
	uint32_t msg_bytes;
	uint32_t frag_off;
	uint16_t frag_bytes;
	uint32_t crc_bytes;
	uint32_t source;
};

enum {
	LOG_BODY_BYTES = 112, /* of a body that the entry can keep */
	LOG_BYTES = 0xffff, /* of log_entry.bytes_flags */
	LOG_WANTED = 1 << 16,
	LOG_BRIEF = 1 << 17,
	LOG_TIMES = 1 << 18, /* of the repairs, as far as they are counted */
	LOG_TIMES_MAX = 16, /* then the frame is given up, if the path takes others of its size */
};

/* One frame.
 *
 * @sent:        buffers that we had filled at the peer when it left, including its own
 * @again_us:    when this entry's frame was last sent again
 * @bytes_flags: bytes of its body, and LOG_WANTED: the peer requests it; LOG_BRIEF: a message of
 *               one frame by tx_small.c, short enough for @body; LOG_TIMES: number of its repairs
 * @args:        of any other frame */
struct log_entry {
	uint32_t sent;
	uint32_t again_us;
	uint32_t bytes_flags;
	union {
		_Alignas(16) uint8_t body[LOG_BODY_BYTES];
		struct link_send_args args;
	};
};

_Static_assert(sizeof(struct log_entry) == 128, "two cache lines, of which most use one");

/* When a missing number was noticed, and asked for first and last, on link_us()'s clock; 0: not
 * yet. */
struct link_asked {
	uint32_t noticed_us, first_us, last_us;
};

/* A peer's state of repairs.
 *
 * @log:         our frames, by number; NULL: nothing is repaired
 * @copies:      bodies of frames without a source
 * @log_mask:    entries of the log, a power of two, minus 1
 * @copy_bytes:  from one copy to the next
 * @acked:       the peer has confirmed all our numbers up to this
 * @wanted:      entries that the peer requests
 * @early:       by number of the peer: the frame that waits for earlier ones (reorder.c), counted
 *               from 1; or 0
 * @early_count: waiting frames
 * @highest:     the last number that the peer has certainly sent, if beyond seq_in
 * @asked:       when we requested each of the peer's missing numbers */
struct link_repair {
	struct log_entry *log;
	uint8_t *copies;
	uint32_t log_mask;
	uint32_t copy_bytes;
	uint32_t acked;
	uint32_t wanted;
	uint32_t *early;
	uint32_t early_count;
	uint32_t highest;
	struct link_asked *asked;
};
