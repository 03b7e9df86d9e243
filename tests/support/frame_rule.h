/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A table of valid headers for tests, in plain numbers instead of frame.h's names, and a walk over
 * all header values that could matter. Everything that judges frames is asked about each header.
 */
#ifndef CAREFUL_TESTS_FRAME_RULE_H
#define CAREFUL_TESTS_FRAME_RULE_H

#include <stdbool.h>
#include <stdint.h>

#include "frame.h"

/* The result of a frame, by its header. */
enum rule {
	RULE_IN, /* takes a receive buffer */
	RULE_PING, /* ends at XDP, and passes */
	RULE_TRAIN, /* ends at XDP, which counts it */
	RULE_TYPE, /* dropped: unknown type, or flags that it cannot have */
	RULE_LIMIT, /* dropped: a ping without a valid stage */
	RULE_LENGTH, /* dropped: wrong length */
};

/* Types, flags, limits: DATA 1, UPDATE 2, PING 3, TRAIN 4, ACK 5; FIRST 1, LAST 2, BULK 4,
 * DIGEST 8, BCAST_EVENT 16, ABORT 64, ASK 128; XDP 2, engine 3, file 4. */
static const struct {
	uint8_t flags_never; /* none of these */
	uint8_t limit_min, limit_max;
	uint16_t body_max;
} rule_types[6] = {
	[1] = { 0x20, 0, 0, 65535 }, [2] = { 0xff, 0, 0, 0 },	  [3] = { 0xff, 2, 4, 65535 },
	[4] = { 0xef, 0, 0, 65535 }, [5] = { 0x7f, 0, 0, 65535 },
};

/* Bytes besides the payload, by the flags FIRST, LAST and DIGEST. */
static const uint8_t rule_extra[2][2][2] = {
	{ { 0, 0 }, { 0, 8 } },
	{ { 48, 48 }, { 48, 56 } },
};

static inline uint32_t rule_body(uint8_t flags, uint16_t frag_bytes)
{
	return frag_bytes + rule_extra[flags & 1][flags >> 1 & 1][flags >> 3 & 1];
}

static inline enum rule rule_of(uint8_t type, uint8_t flags, uint8_t limit, uint16_t frag_bytes,
				uint32_t body_bytes)
{
	if (type < 1 || type > 5 || flags & rule_types[type].flags_never)
		return RULE_TYPE;
	if (limit < rule_types[type].limit_min || limit > rule_types[type].limit_max)
		return type == 3 ? RULE_LIMIT : RULE_TYPE;
	if (frag_bytes > rule_types[type].body_max || body_bytes != rule_body(flags, frag_bytes))
		return RULE_LENGTH;
	return type == 4 ? RULE_TRAIN : type == 3 && limit == 2 ? RULE_PING : RULE_IN;
}

/* A frame of the walk: header fields, and bytes that follow. */
struct rule_case {
	uint8_t type, flags, limit;
	uint16_t frag_bytes;
	uint32_t body_bytes;
};

enum {
	RULE_LENGTHS = 8,
	RULE_LIMITS = 7,
};

/* Moves to the walk's next case: all flags, lengths around the right one, every limit and a distant
 * one, types up to types_max. Returns false after the last. */
static inline bool rule_next(struct rule_case *at, uint32_t *step, uint32_t types_max)
{
	static const uint16_t frag_bytes[RULE_LENGTHS] = { 0, 0, 0, 1, 100, 100, 148, 100 };
	static const int16_t more[RULE_LENGTHS] = { 0, 1, 48, 0, 0, -1, -48, 8 };
	uint32_t n = (*step)++, length;

	length = n % RULE_LENGTHS;
	n /= RULE_LENGTHS;
	at->limit = (uint8_t)(n % RULE_LIMITS == RULE_LIMITS - 1 ? 0xfe : n % RULE_LIMITS);
	n /= RULE_LIMITS;
	at->flags = (uint8_t)(n & 0xff);
	n >>= 8;
	at->type = (uint8_t)n;
	at->frag_bytes = frag_bytes[length];
	at->body_bytes = rule_body(at->flags, at->frag_bytes) + (uint32_t)more[length];
	return n <= types_max;
}

/* Builds the frame of a case, which is due in its session. */
static inline void rule_frame(const struct rule_case *at, struct frame *frame)
{
	const struct shape shape = { .frag_bytes = at->body_bytes, .msg_id = 1 };
	struct careful_hdr hdr;

	frame_build(frame, &shape);
	memcpy(&hdr, frame->data + frame->hdr_at, sizeof(hdr));
	hdr.type = at->type;
	hdr.flags = at->flags;
	hdr.stage_limit = at->limit;
	hdr.frag_bytes = htobe16(at->frag_bytes);
	hdr.check = htobe32(careful_hdr_check(&hdr));
	memcpy(frame->data + frame->hdr_at, &hdr, sizeof(hdr));
}

#endif /* CAREFUL_TESTS_FRAME_RULE_H */
