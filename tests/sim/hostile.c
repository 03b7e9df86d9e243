// SPDX-License-Identifier: BSD-2-Clause
/*
 * A node that lies for a while: what it sends is well formed, under the right cookie and with right
 * checks, and some fields of headers, messages and control messages are what a seed says. Then it
 * is killed, and an honest one takes its place.
 */
#include "cluster.h"

#include <endian.h>
#include <string.h>

enum { STREAM_LIES = 0x5000, STREAM_RATE };

static const uint64_t lies_end_ns = 1200 * 1000000ull, again_ns = 1210 * 1000000ull;

static uint64_t draw(struct cluster *cluster)
{
	return sim_hash(cluster->scenario.seed, STREAM_LIES, cluster->draws++);
}

/* Fields that a sender sets as it likes: cookie and slot are what a session is found by. */
struct field {
	uint16_t at, bytes;
};

#define FIELD(type, name)                                                        \
	{                                                                        \
		offsetof(struct type, name), sizeof(((struct type *)NULL)->name) \
	}

static const struct field header[] = {
	FIELD(careful_hdr, flags),    FIELD(careful_hdr, stage_limit),
	FIELD(careful_hdr, seq),      FIELD(careful_hdr, credits),
	FIELD(careful_hdr, msg_id),   FIELD(careful_hdr, msg_bytes),
	FIELD(careful_hdr, frag_off), FIELD(careful_hdr, frag_bytes),
	FIELD(careful_hdr, extra),    FIELD(careful_hdr, type),
};

static const struct field message[] = {
	FIELD(careful_am, kind),  FIELD(careful_am, flags),	 FIELD(careful_am, handler),
	FIELD(careful_am, token), FIELD(careful_am, region),	 FIELD(careful_am, status),
	FIELD(careful_am, bytes), FIELD(careful_am, region_off), FIELD(careful_am, next),
};

static const struct field control[] = {
	FIELD(careful_ctrl, type),	   FIELD(careful_ctrl, nonce),
	FIELD(careful_ctrl, token),	   FIELD(careful_ctrl, cookie),
	FIELD(careful_ctrl, incarnation),  FIELD(careful_ctrl, slot),
	FIELD(careful_ctrl, queue),	   FIELD(careful_ctrl, window),
	FIELD(careful_ctrl, buffer_bytes), FIELD(careful_ctrl, status),
	FIELD(careful_ctrl, frame_bytes),  FIELD(careful_ctrl, seq_sent),
	FIELD(careful_ctrl, seq_rcvd),	   FIELD(careful_ctrl, returned),
	FIELD(careful_ctrl, lost),	   FIELD(careful_ctrl, hold_ms),
};

/* Big-endian: one more or less, none, all, or anything. */
static void alter(struct cluster *cluster, uint8_t *base, const struct field *fields, size_t n)
{
	const struct field *field = &fields[draw(cluster) % n];
	uint8_t *at = base + field->at;
	uint64_t random = draw(cluster);

	switch (draw(cluster) % 5) {
	case 0:
		at[field->bytes - 1]++;
		break;
	case 1:
		at[field->bytes - 1]--;
		break;
	case 2:
		memset(at, 0, field->bytes);
		break;
	case 3:
		memset(at, 0xff, field->bytes);
		break;
	default:
		memcpy(at, &random, field->bytes);
	}
}

static void lie_in_frame(struct cluster *cluster, uint8_t *frame, uint32_t bytes)
{
	struct careful_hdr hdr;
	uint32_t body = bytes - (uint32_t)sizeof(hdr);
	uint32_t covered;

	memcpy(&hdr, frame, sizeof(hdr));
	covered = hdr.flags & CAREFUL_F_BULK ? MESSAGE_AM_BYTES : body;
	if (hdr.type == CAREFUL_DATA && hdr.flags & CAREFUL_F_FIRST && body >= MESSAGE_AM_BYTES &&
	    draw(cluster) % 2) {
		alter(cluster, frame + sizeof(hdr), message, sizeof(message) / sizeof(message[0]));
		hdr.payload_crc = htobe32(link_crc32c(frame + sizeof(hdr), covered));
	} else {
		alter(cluster, (uint8_t *)&hdr, header, sizeof(header) / sizeof(header[0]));
	}
	hdr.check = 0;
	hdr.check = htobe32(careful_hdr_check(&hdr));
	memcpy(frame, &hdr, sizeof(hdr));
}

static void lie_in_control(struct cluster *cluster, uint8_t *bytes)
{
	struct careful_ctrl ctrl;

	memcpy(&ctrl, bytes, sizeof(ctrl));
	alter(cluster, (uint8_t *)&ctrl, control, sizeof(control) / sizeof(control[0]));
	ctrl.check = 0;
	ctrl.check = htobe32(careful_ctrl_check(&ctrl));
	memcpy(bytes, &ctrl, sizeof(ctrl));
}

static bool lie(void *user, uint32_t from, bool is_control, void *what, uint32_t bytes)
{
	struct cluster *cluster = user;
	const struct scenario *s = &cluster->scenario;
	uint32_t one_in = 1 + (uint32_t)(sim_hash(s->seed, STREAM_RATE, 0) % 12);

	if (!(s->hostile >> from & 1) || draw(cluster) % one_in ||
	    sim_now_ns(cluster->world) > lies_end_ns ||
	    bytes < (is_control ? sizeof(struct careful_ctrl) : sizeof(struct careful_hdr)))
		return false;
	cluster->lies++;
	if (is_control)
		lie_in_control(cluster, what);
	else
		lie_in_frame(cluster, what, bytes);
	return true;
}

void hostile_make(struct scenario *s, uint32_t port)
{
	struct sim_fault *end = &s->faults[s->faults_count];

	s->hostile = 1u << port;
	s->config.on_send = lie;
	*end = (struct sim_fault){
		.kind = FAULT_KILL,
		.to = (uint8_t)port,
		.what = SIM_ALL,
		.one_in = 1,
		.amount = 1,
		.id = s->faults_count++,
		.at_ns = lies_end_ns,
		.until_ns = again_ns,
	};
}
