/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The log of frames that have left and may be lost. A lost frame is sent again under its number,
 * with as many bytes. XDP admits each number of a window, so the repair takes the receive buffers
 * that the lost frame was charged for, and no account has to be corrected. The frame that arrives
 * first counts; the receiver drops the other.
 *
 * The log keeps no bulk data. It keeps where a fragment was read, and a copy of each small message.
 * A receiver hands frames on in their order, so the credits that it gave back prove that a number
 * has come. At most a window of numbers has not, and the log holds one.
 * Calls: log.c.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct link_peer;

/*
 * The header fields that link_send() is given; it adds sequence, credits, cookie and check.
 *
 * @crc_bytes: how much of the body payload_crc covers (first segment)
 * @source:    names, for message/, where the payload is read again; 0: the body is copied, for it
 *             is in one buffer
 */
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
	LOG_BODY_BYTES = 112, /* of a body that the entry itself keeps */
	LOG_BYTES = 0xffff, /* of log_entry.bytes_flags */
	LOG_WANTED = 1 << 16,
	LOG_BRIEF = 1 << 17,
};

/*
 * One frame.
 *
 * @sent:        buffers that we had filled at the peer when it left, itself included
 * @again_ms:    when this entry's frames were sent again last
 * @bytes_flags: bytes of its body, and LOG_WANTED: the peer asks for it; LOG_BRIEF: it is a
 *               message of one frame, as tx_small.c builds it, and so short that @body has it
 * @args:        of another frame
 */
struct log_entry {
	uint32_t sent;
	uint32_t again_ms;
	uint32_t bytes_flags;
	union {
		_Alignas(16) uint8_t body[LOG_BODY_BYTES];
		struct link_send_args args;
	};
};

_Static_assert(sizeof(struct log_entry) == 128, "two cache lines, of which most use one");

/*
 * A peer's part in repairs.
 *
 * @log:         of our frames, by number; NULL: nothing is repaired
 * @copies:      of the bodies of those that have no source
 * @log_mask:    entries of the log, a power of two, less 1
 * @copy_bytes:  from one copy to the next
 * @acked:       all our numbers up to this have come, as the peer said
 * @wanted:      entries that the peer asks for
 * @early:       of the peer's numbers: the frame that waits for those before it (reorder.c), counted
 *               from 1; or 0
 * @early_count: frames that wait so
 * @highest:     the last number that the peer is known to have sent, if it is beyond seq_in
 * @asked:       the last number that the peer was asked for
 */
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
	uint32_t asked;
};
