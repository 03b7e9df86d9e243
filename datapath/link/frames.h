/* SPDX-License-Identifier: BSD-2-Clause */
/* Frames that are received, held, and built. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <careful/careful.h>
#include <careful/wire.h>

#include "device/device.h"

struct link_peer;

/* A received frame, valid until it is released or held and the next one is taken. */
struct link_rxframe {
	struct link_peer *peer;
	uint64_t epoch; /* of the peer at its arrival */
	struct careful_hdr hdr; /* a copy, since the received one is not aligned */
	const uint8_t *body; /* in the first segment, after the header */
	uint32_t body_bytes; /* in the first segment */
	uint32_t body_total; /* in all segments */
	uint32_t cost; /* buffers that it fills */
	bool checked; /* payload_crc was checked */
	uint16_t segments;
	struct device_desc desc[DEVICE_SEGMENTS_MAX];
	uint32_t parse_ns; /* time to take it from the ring, while hostRx is traced */
	uint64_t began_ns; /* start of its hostRx; 0: not traced, or reported */
};

/* A message of a held frame, as careful_keep() returns it. */
struct careful_kept {
	uint16_t nth, at; /* index of the message, and its offset in the body */
};

/* Receive buffers held beyond the batch in which they arrived. */
struct link_held {
	struct link_held *next, *prev; /* the peer's frames that may be copied out, oldest first */
	struct link_peer *peer;
	uint64_t epoch;
	const uint8_t *body; /* in UMEM, or in the copy-out pool */
	uint32_t body_bytes;
	uint32_t cost; /* 0: copied out, the buffers were released */
	int32_t pool; /* index of its copy-out buffer, or -1 */
	uint16_t segments;
	uint16_t uses; /* holders; the last one releases the buffers */
	uint16_t waits; /* a bit for each message that could not be served yet */
	struct careful_kept messages[CAREFUL_PACKED_MAX]; /* those that are kept */
	uint64_t addr[DEVICE_SEGMENTS_MAX];
};

static inline struct link_held *link_held_of(struct careful_kept *kept)
{
	return (struct link_held *)((uint8_t *)(kept - kept->nth) -
				    offsetof(struct link_held, messages));
}

/* A frame being built in send buffers, with room for the header. */
struct link_txframe {
	struct link_peer *peer;
	uint32_t built; /* its buffers in flow.built */
	struct careful_hdr *hdr;
	uint8_t *umem;
	uint8_t *body; /* in the first segment, after the header */
	uint32_t body_bytes; /* in the first segment */
	uint32_t body_total; /* in all segments */
	uint16_t segments;
	struct device_desc desc[DEVICE_SEGMENTS_MAX];
};
