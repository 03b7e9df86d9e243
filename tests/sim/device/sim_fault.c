// SPDX-License-Identifier: BSD-2-Clause
/*
 * Faults and their times. Each opportunity of a fault draws its own random numbers, so that a cut
 * fault or hit changes no other.
 */
#include "device/sim_private.h"

#include <endian.h>
#include <stddef.h>
#include <string.h>

#include <careful/frame.h>
#include <careful/wire.h>

enum {
	STREAM_FAULT = 0x2000, /* + the fault's id */
	DRAWS = 64, /* random numbers of one opportunity */
};

static uint64_t draw(const struct sim_world *world, const struct sim_fault *fault,
		     uint32_t opportunity, uint32_t i)
{
	return sim_hash(world->config.seed, STREAM_FAULT + fault->id,
			(uint64_t)opportunity * DRAWS + i);
}

static bool lasts(const struct sim_world *world, const struct sim_fault *fault)
{
	return world->now_ns >= fault->at_ns && world->now_ns < fault->until_ns;
}

/* Reports whether the port has such a fault now; *amount: its amount. */
bool sim_fault_on(const struct sim_world *world, enum sim_fault_kind kind, uint32_t port,
		  uint64_t *amount)
{
	for (uint32_t i = 0; i < world->config.faults_count; i++) {
		struct sim_fault *fault = &world->config.faults[i];

		if (fault->kind != kind || (fault->to != port && fault->to != SIM_ANY) ||
		    !lasts(world, fault))
			continue;
		fault->hits++;
		if (amount)
			*amount = fault->amount;
		return true;
	}
	return false;
}

static bool touches(const struct sim_world *world, const struct sim_fault *fault,
		    const struct sim_slot *slot)
{
	return lasts(world, fault) && (fault->from == slot->from || fault->from == SIM_ANY) &&
	       (fault->to == slot->to || fault->to == SIM_ANY) &&
	       (fault->what & sim_wire_what(slot));
}

/* Reports whether the fault hits this opportunity; stores the opportunity's number. */
static bool hits(struct sim_world *world, struct sim_fault *fault, uint32_t *opportunity)
{
	bool hit = false;

	*opportunity = fault->seen++;
	if (fault->only) {
		for (uint32_t i = 0; i < fault->only_count; i++)
			hit |= fault->only[i] == *opportunity;
	} else {
		hit = draw(world, fault, *opportunity, 0) % fault->one_in == 0;
	}
	if (!hit)
		return false;
	fault->hits++;
	if (world->config.on_hit)
		world->config.on_hit(world->config.user, fault, *opportunity);
	return true;
}

/* Returns the time at which a frame that is ready may leave. */
uint64_t sim_fault_clog(const struct sim_world *world, const struct sim_slot *slot, uint64_t at_ns)
{
	for (uint32_t i = 0; i < world->config.faults_count; i++) {
		struct sim_fault *fault = &world->config.faults[i];

		if (fault->kind != SIM_CLOG || !touches(world, fault, slot))
			continue;
		fault->hits++;
		if (fault->until_ns > at_ns)
			at_ns = fault->until_ns;
	}
	return at_ns;
}

/* The UDP checksum of a control message, which the kernel's socket checks. */
static uint32_t checksum(const struct sim_slot *slot)
{
	uint32_t sum = 0;

	for (uint32_t i = 0; i < slot->bytes; i++)
		sum += (uint32_t)slot->data[i] << (i % 2 ? 0 : 8);
	sum = (sum & 0xffff) + (sum >> 16);
	return (sum & 0xffff) + (sum >> 16);
}

static void corrupt(struct sim_world *world, const struct sim_fault *fault, uint32_t opportunity,
		    struct sim_slot *slot)
{
	uint64_t bits = 1 + draw(world, fault, opportunity, 1) % fault->amount;

	for (uint32_t i = 0; i < bits && slot->bytes; i++) {
		uint64_t bit =
			draw(world, fault, opportunity, 2 + i % (DRAWS - 2)) % (slot->bytes * 8ull);

		slot->data[bit / 8] ^= (uint8_t)(1u << bit % 8);
	}
}

static void suffer(struct sim_world *world, const struct sim_fault *fault, uint32_t opportunity,
		   struct sim_slot *slot, struct sim_fate *fate)
{
	uint64_t random = draw(world, fault, opportunity, 1);
	uint32_t sum;

	switch (fault->kind) {
	case SIM_LOSS:
		fate->lost = slot->bytes > fault->longer;
		break;
	case SIM_DUPLICATE:
		fate->copied = true;
		fate->copy_ns = 1 + random % fault->amount;
		break;
	case SIM_REORDER:
		fate->late_ns = 1 + random % fault->amount;
		break;
	case SIM_CORRUPT:
		sum = checksum(slot);
		corrupt(world, fault, opportunity, slot);
		fate->damaged = true;
		fate->lost = slot->control && sum != checksum(slot);
		break;
	case SIM_TRUNCATE:
		if (slot->bytes)
			slot->bytes = (uint32_t)(random % slot->bytes);
		fate->damaged = true;
		fate->lost = slot->control;
		break;
	case SIM_DELAY:
		fate->delay_ns += fault->amount;
		break;
	default:
		break;
	}
}

void sim_fault_fate(struct sim_world *world, struct sim_slot *slot, struct sim_fate *fate)
{
	for (uint32_t i = 0; i < world->config.faults_count; i++) {
		struct sim_fault *fault = &world->config.faults[i];
		uint32_t opportunity;

		if (fault->kind <= SIM_DELAY && !fate->lost && touches(world, fault, slot) &&
		    hits(world, fault, &opportunity))
			suffer(world, fault, opportunity, slot, fate);
	}
}

bool sim_fault_fill_empty(struct sim_world *world, const struct sim_slot *slot)
{
	for (uint32_t i = 0; i < world->config.faults_count; i++) {
		struct sim_fault *fault = &world->config.faults[i];
		uint32_t opportunity;

		if (fault->kind == SIM_FILL_EMPTY && touches(world, fault, slot) &&
		    hits(world, fault, &opportunity))
			return true;
	}
	return false;
}

/* Schedules the start and end of a fault. */
void sim_fault_begin(struct sim_world *world)
{
	for (uint32_t i = 0; i < world->config.faults_count; i++) {
		struct sim_fault *fault = &world->config.faults[i];

		fault->seen = fault->hits = 0;
		switch (fault->kind) {
		case SIM_LINK_DOWN:
		case SIM_MTU:
			sim_post(world, fault->until_ns, SIM_END, i);
			sim_post(world, fault->at_ns, SIM_BEGIN, i);
			break;
		case SIM_CLOCK:
			sim_post(world, fault->at_ns, SIM_BEGIN, i);
			break;
		case SIM_STRANGER:
		case SIM_REPLAY:
			world->taping |= fault->kind == SIM_REPLAY;
			sim_post(world, fault->at_ns, SIM_INJECT, i);
			break;
		default:
			break;
		}
	}
}

/* Tells the device that one of its faults begins or ends. */
void sim_fault_change(struct sim_world *world, uint32_t index, bool begin)
{
	struct sim_fault *fault = &world->config.faults[index];
	struct sim_device *sim = world->devices[fault->to];

	fault->hits += begin;
	if (fault->kind == SIM_CLOCK)
		world->clock_ns[fault->to] += fault->amount;
	else if (sim && fault->kind == SIM_MTU)
		sim->changed |= DEVICE_MTU;
	else if (sim)
		sim->changed |= begin ? DEVICE_DOWN : DEVICE_UP;
}

/* Makes a control message with a valid form and invented contents. */
static void made_up_control(struct sim_slot *slot, const uint64_t *random)
{
	struct careful_ctrl ctrl = {
		.version = random[0] % 8 ? CAREFUL_WIRE_VERSION : (uint8_t)(random[0] >> 8),
		.type = (uint8_t)(CAREFUL_HELLO + (random[0] >> 16) % 9),
		.bytes = htobe16(sizeof(ctrl)),
		.nonce = random[1],
		.token = random[2],
		.cookie = random[3],
		.incarnation = random[4],
		.terms.window = htobe32((uint32_t)random[5] % 64),
		.terms.buffer_bytes = htobe32((uint32_t)(random[5] >> 32) % 4096),
		.terms.frame_bytes = htobe32((uint32_t)random[6] % 9000),
		.terms.protocol = htobe32((uint32_t)random[7] % 5),
		.terms.seal = (uint32_t)random[8],
		.terms.cipher = (uint32_t)(random[8] >> 32),
		.terms.reserve = (uint32_t)random[9],
	};

	ctrl.check = htobe32(careful_ctrl_check(&ctrl));
	slot->control = true;
	slot->refused = (random[0] >> 32) % 4 == 0; /* the quotation is invented too, or missing */
	slot->bytes = slot->refused && random[0] >> 40 & 1 ? 0 : sizeof(ctrl);
	memcpy(slot->data, &ctrl, sizeof(ctrl));
}

static void made_up_frame(struct sim_device *sender, struct sim_slot *slot, const uint64_t *random)
{
	struct careful_hdr hdr = {
		.version = CAREFUL_WIRE_VERSION,
		.type = random[0] % 4 ? CAREFUL_DATA : CAREFUL_UPDATE,
		.flags = (uint8_t)(random[0] >> 8),
		.src_node = htobe16((uint16_t)(random[0] >> 16) % 4),
		.cookie = random[1],
		.seq = htobe32(1 + (uint32_t)random[2] % 64),
		.credits = (uint32_t)(random[2] >> 32),
	};
	union address to;
	struct llhdr llhdr;
	uint32_t udp = 8 + sizeof(hdr);

	sim_address(sender->world, slot->to, &to);
	if (sim_resolve(&sender->nic, &to, &llhdr))
		return;
	hdr.check = htobe32(careful_hdr_check(&hdr));
	memcpy(slot->data, llhdr.data, llhdr.bytes);
	slot->data[to.sa.sa_family == AF_INET6 ? 19 : 17] += sizeof(hdr);
	slot->data[llhdr.bytes - 3] = (uint8_t)udp;
	memcpy(slot->data + llhdr.bytes, &hdr, sizeof(hdr));
	slot->bytes = llhdr.bytes + (uint32_t)sizeof(hdr);
}

/* Fills a slot with a recorded message, a forger's (last) with the newest. Returns false if none
 * has the slot's sender and receiver. */
static bool from_tape(struct sim_world *world, struct sim_slot *slot, uint64_t random, bool last)
{
	uint32_t count = world->tape_count < SIM_TAPE ? world->tape_count : SIM_TAPE;

	for (uint32_t i = 0; i < count; i++) {
		uint64_t at = last ? world->tape_count + 2 * SIM_TAPE - 1 - i : random + i;
		const struct sim_slot *old = &world->tape[at % count];

		if (old->from != slot->from || old->to != slot->to)
			continue;
		memcpy(slot, old, offsetof(struct sim_slot, data) + old->bytes);
		return true;
	}
	return false;
}

/*
 * Forges a frame from a recorded one, like an attacker who reads the wire: another number, credits,
 * flags or sealed bytes, or no seal. The CRC is right.
 */
static void forge(struct sim_slot *slot, const uint64_t *random)
{
	struct careful_datagram datagram;
	struct careful_hdr hdr;
	uint8_t *at, *end;

	if (!careful_frame_find(slot->data, slot->data + slot->bytes, slot->bytes, &datagram) ||
	    careful_frame_readable(&datagram) != CAREFUL_XDP_ADMITTED)
		return;
	at = (uint8_t *)datagram.at;
	end = at + datagram.bytes;
	memcpy(&hdr, at, sizeof(hdr));
	if (hdr.version == CAREFUL_WIRE_SEALED && end - 24 >= at + sizeof(hdr)) {
		(end - 24)[random[1] % 24] ^= (uint8_t)(random[1] >> 8); /* count and tag */
		if (random[2] % 8 == 0) { /* its trailer becomes body */
			hdr.version = CAREFUL_WIRE_VERSION;
			hdr.frag_bytes = htobe16((uint16_t)(be16toh(hdr.frag_bytes) + 24));
		}
	}
	hdr.seq = htobe32(be32toh(hdr.seq) + (uint32_t)(random[3] % 12));
	if (random[4] % 2)
		hdr.credits = htobe32(be32toh(hdr.credits) + (uint32_t)(random[4] >> 8) % 64);
	if (random[5] % 4 == 0)
		hdr.flags ^= (uint8_t)(1u << (random[5] >> 8) % 8);
	if (random[6] % 4 == 0)
		hdr.extra ^= (__be16)(random[6] >> 8);
	if (random[7] % 4 == 0)
		hdr.msg_id ^= (__be32)(random[7] >> 8);
	if (random[8] % 2 && end > at + sizeof(hdr))
		at[sizeof(hdr) + random[8] / 2 % (size_t)(end - at - sizeof(hdr))] ^= 1;
	hdr.check = htobe32(careful_hdr_check(&hdr));
	memcpy(at, &hdr, sizeof(hdr));
}

/* Forges an answer to a ping: with other times, or to the next ping. */
static void forge_answer(struct sim_slot *slot, const uint64_t *random)
{
	struct careful_ping_answer answer;

	memcpy(&answer, slot->data, sizeof(answer));
	if (random[1] % 2)
		answer.probe = htobe32(be32toh(answer.probe) + 1);
	if (random[2] % 2)
		answer.arrived_ns ^= random[3];
	if (random[4] % 2)
		answer.turn_ns ^= (__be32)random[5];
	if (random[6] % 4 == 0)
		answer.cookie ^= random[7];
	answer.check = 0;
	answer.check = htobe32(careful_message_check(&answer, sizeof(answer)));
	memcpy(slot->data, &answer, sizeof(answer));
}

/* Forges a control message: with another type, other counts, or unchanged. */
static void forge_control(struct sim_slot *slot, const uint64_t *random)
{
	static const uint8_t types[] = { CAREFUL_SYNC,	    CAREFUL_SYNC_ACK, CAREFUL_GONE,
					 CAREFUL_BYE,	    CAREFUL_REFUSE,   CAREFUL_TRAIN_OVER,
					 CAREFUL_CHALLENGE, CAREFUL_HELLO };
	struct careful_ctrl ctrl;

	if (slot->bytes == sizeof(struct careful_ping_answer)) {
		forge_answer(slot, random);
		return;
	}
	if (slot->bytes != sizeof(struct careful_ctrl) &&
	    slot->bytes != sizeof(struct careful_proved))
		return;
	memcpy(&ctrl, slot->data, sizeof(ctrl));
	if (random[1] % 4)
		ctrl.type = types[random[2] % sizeof(types)];
	if (random[7] % 2)
		ctrl.token ^= random[7];
	if (random[8] % 2)
		ctrl.cookie ^= random[8];
	ctrl.incarnation ^= random[9] % 2;
	ctrl.counts.seq_rcvd = htobe32(be32toh(ctrl.counts.seq_rcvd) + (uint32_t)random[3] % 3);
	ctrl.counts.returned = htobe32(be32toh(ctrl.counts.returned) + (uint32_t)random[4] % 3);
	if (random[5] % 4 == 0)
		slot->bytes = sizeof(ctrl); /* without a proof */
	else
		slot->data[sizeof(ctrl) + random[5] % 24] ^= (uint8_t)(random[6] % 2);
	ctrl.check = 0;
	ctrl.check = htobe32(careful_ctrl_check(&ctrl));
	memcpy(slot->data, &ctrl, sizeof(ctrl));
}

/* Sends the next message of a fault that replays, forges or makes up messages. No fault hits it. */
void sim_fault_inject(struct sim_world *world, uint32_t index)
{
	struct sim_fault *fault = &world->config.faults[index];
	struct sim_device *sender = world->devices[fault->from];
	uint32_t slot_index, opportunity;
	struct sim_slot *slot;
	uint64_t random[10];
	bool sends;

	if (!lasts(world, fault))
		return;
	sim_post(world, world->now_ns + fault->amount, SIM_INJECT, index);
	if (!hits(world, fault, &opportunity))
		return;
	for (uint32_t i = 0; i < 10; i++)
		random[i] = draw(world, fault, opportunity, 1 + i);
	slot = sim_slot_take(world, &slot_index);
	if (!slot)
		return;
	slot->from = fault->from;
	slot->to = fault->to;
	sends = fault->kind != SIM_REPLAY || from_tape(world, slot, random[0], fault->forges);
	if (fault->forges && sends && slot->control != (fault->what == SIM_CONTROL))
		sends = false;
	else if (fault->forges && sends && slot->control)
		forge_control(slot, random);
	else if (fault->forges && sends)
		forge(slot, random);
	if (fault->kind == SIM_STRANGER && (random[9] >> 40) % 2 && sender)
		made_up_frame(sender, slot, random);
	else if (fault->kind == SIM_STRANGER)
		made_up_control(slot, random);
	slot->stray = true;
	if (sends && (slot->bytes || slot->refused))
		sim_post(world, world->now_ns, SIM_ARRIVE, slot_index);
	else
		sim_slot_put(world, slot_index);
}
