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
#ifndef LINK_LOG_H
#define LINK_LOG_H

#include <stdbool.h>
#include <stdint.h>

struct link_peer;

/*
 * What link_send() fills into the header; sequence, credits, cookie and check are its own.
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

/*
 * One frame.
 *
 * @args:       of the frame
 * @sent:       buffers that we had filled at the peer when it left, itself included
 * @body_bytes: of its body
 * @again_ms:   when it was sent again last; 0: never
 * @wanted:     the peer asks for it
 */
struct log_entry {
	struct link_send_args args;
	uint32_t sent;
	uint32_t body_bytes;
	uint32_t again_ms;
	bool wanted;
};

/*
 * A peer's part in repairs.
 *
 * @log:         of our frames, by number; NULL: nothing is repaired
 * @copies:      of the bodies of those that have no source
 * @log_mask:    entries of the log, a power of two, less 1
 * @copy_bytes:  from one copy to the next
 * @acked:       all our numbers up to this have come, as the peer said
 * @wanted:      entries that the peer asks for
 * @early:       of the peer's numbers: the frame that waits for those before it (early.c), counted
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

#endif /* LINK_LOG_H */
