// SPDX-License-Identifier: BSD-2-Clause
/*
 * One node among three lies: what it sends is well formed, under the right cookie and with right
 * checks, and some fields of headers, messages and control messages are what a seed says. The
 * invariants of the simulator hold at every node, what the other two do with each other never
 * fails and takes no longer, and who begins anew where it was is served again.
 */
#include "sim.h"

#include <endian.h>

enum { SEEDS = 200, HOSTILE = 2, PAIR = 8 };

static const double lies_ms = 200;

static uint64_t lies; /* so far, of all seeds */
static uint64_t draws;

static uint64_t draw(void)
{
	return sim_hash(scene->seed, 0x5000, draws++);
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
	FIELD(careful_am, bytes), FIELD(careful_am, region_off),
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
static void alter(uint8_t *base, const struct field *fields, size_t n)
{
	const struct field *field = &fields[draw() % n];
	uint8_t *at = base + field->at;
	uint64_t random = draw();

	switch (draw() % 5) {
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

static void lie_in_frame(uint8_t *frame, uint32_t bytes)
{
	struct careful_hdr hdr;
	uint32_t body = bytes - (uint32_t)sizeof(hdr);
	uint32_t covered;

	memcpy(&hdr, frame, sizeof(hdr));
	covered = hdr.flags & CAREFUL_F_BULK ? MESSAGE_AM_BYTES : body;
	if (hdr.type == CAREFUL_DATA && hdr.flags & CAREFUL_F_FIRST && body >= MESSAGE_AM_BYTES &&
	    draw() % 2) {
		alter(frame + sizeof(hdr), message, sizeof(message) / sizeof(message[0]));
		hdr.payload_crc = htobe32(link_crc32c(frame + sizeof(hdr), covered));
	} else {
		alter((uint8_t *)&hdr, header, sizeof(header) / sizeof(header[0]));
	}
	hdr.check = 0;
	hdr.check = htobe32(careful_hdr_check(&hdr));
	memcpy(frame, &hdr, sizeof(hdr));
}

static void lie_in_control(uint8_t *bytes)
{
	struct careful_ctrl ctrl;

	memcpy(&ctrl, bytes, sizeof(ctrl));
	alter((uint8_t *)&ctrl, control, sizeof(control) / sizeof(control[0]));
	ctrl.check = 0;
	ctrl.check = htobe32(careful_ctrl_check(&ctrl));
	memcpy(bytes, &ctrl, sizeof(ctrl));
}

static bool lie(void *user, uint32_t from, bool is_control, void *what, uint32_t bytes)
{
	uint32_t one_in = 1 + (uint32_t)(sim_hash(scene->seed, 0x5001, 0) % 12);

	(void)user;
	if (from != HOSTILE || draw() % one_in ||
	    sim_now_ns(cluster->world) > SIM_START + (uint64_t)(lies_ms * 1e6) ||
	    bytes < (is_control ? sizeof(struct careful_ctrl) : sizeof(struct careful_hdr)))
		return false;
	lies++;
	if (is_control)
		lie_in_control(what);
	else
		lie_in_frame(what, bytes);
	return true;
}

static struct op *between(uint32_t i, uint32_t from, uint32_t to)
{
	struct op *op = sim_op((uint32_t)(sim_hash(scene->seed, 1, i) % OP_KINDS), from,
			       (uint32_t)(sim_hash(scene->seed, 2, i) % OP_BYTES_MAX),
			       1 + (double)(sim_hash(scene->seed, 3, i) % 30000) / 1000);

	op->to = (uint8_t)to;
	op->from_file = i & 1;
	op->to_file = i & 2;
	return op;
}

/* What two honest nodes do, and, where it is there, the third with both. Returns when the last
 * of theirs was done. */
static uint64_t play(uint64_t seed, bool hostile)
{
	uint64_t last_ns = 0;

	sim_scene(seed);
	scene->nodes = 3;
	scene->config.ipv6 = seed & 1;
	scene->limits.messages.copies = seed % 3;
	scene->files_delay_ns = seed % 5 ? 0 : 20000;
	for (uint32_t i = 0; i < PAIR; i++)
		between(i, i & 1, !(i & 1));
	if (hostile) {
		for (uint32_t i = PAIR; i < 3 * PAIR; i++)
			between(i, i & 1 ? HOSTILE : i / 2 & 1, i & 1 ? i / 2 & 1 : HOSTILE);
		scene->hostile = 1 << HOSTILE;
		scene->config.on_send = lie;
		draws = 0;
		/* Then it ends, and an honest one takes its place. */
		sim_fault(FAULT_KILL, 0, HOSTILE, lies_ms, lies_ms + 10);
	}
	EXPECT_WELL(sim_play());
	for (uint32_t i = 0; i < PAIR; i++) {
		CHECK_EQ(scene->ops[i].attempt, 1);
		CHECK_EQ(scene->ops[i].last_status, 0);
		if (scene->ops[i].done_ns > last_ns)
			last_ns = scene->ops[i].done_ns;
	}
	return last_ns - SIM_START;
}

static void test_hostile__harms_nobody_else(void)
{
	uint64_t worst = 0;

	for (uint64_t seed = 0; seed < SEEDS; seed++) {
		uint64_t alone_ns = play(seed, false), beside_ns = play(seed, true);

		if (beside_ns * 100 / alone_ns > worst)
			worst = beside_ns * 100 / alone_ns;
		CHECK(beside_ns * 2 <= alone_ns * 3);
	}
	CHECK(lies > SEEDS);
	printf("%llu lies, the others at worst %llu %% of their time alone\n",
	       (unsigned long long)lies, (unsigned long long)worst);
}

int main(void)
{
	sim_init();
	RUN(test_hostile__harms_nobody_else);
	cluster_destroy(cluster);
	return 0;
}
