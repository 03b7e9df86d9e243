// SPDX-License-Identifier: BSD-2-Clause
/* Broadcasts that may be lost. A member that misses one gets a repair in its session, which gives the
 * same credits (link/send/group.c). */
#include <endian.h>
#include <string.h>

#include "loss.h"
#include "state.h"

#include <careful/frame.h>

void loss_note_cast(struct world *world, int from, int to, const struct flight *flight)
{
	struct open *open = &world->open[from][to];
	uint32_t before = world_heard(world, to, from)->credits;

	for (uint32_t i = 0; i + 1 < open->count; i++)
		before += open->gives[i];
	if (flight->credits - before > world->setting.window)
		violation(world, FOUND_CREDITS);
	open->gives[open->count - 1] = (uint8_t)(flight->credits - before);
	open->more[open->count - 1] = (uint8_t)flight->ask;
}

void loss_check_again(struct world *world, int from, int to, const struct flight *flight,
		      const struct careful_hdr *hdr)
{
	const uint32_t at = flight->seq - world_peer(world, to, from)->flow.seq_in;
	const struct open *open = &world->open[from][to];

	if ((int32_t)at > 0 && (be32toh(hdr->frag_off) != open->gives[at - 1] ||
				be32toh(hdr->msg_id) != open->more[at - 1]))
		violation(world, FOUND_REPAIR);
}

bool loss_admits_cast(struct world *world, int from, int to, const struct flight *flight)
{
	const uint64_t cookie = world->node[from].group->cookie;
	const struct careful_hdr hdr = { .type = CAREFUL_DATA, .cookie = htobe64(cookie) };
	struct careful_peer_entry *entry = world_peer(world, to, from)->entry;
	const uint8_t ip[CAREFUL_FRAME_IPV4] = { 0x45, [12] = 10, [15] = (uint8_t)(from + 1) };

	entry->group_cookie = cookie;
	entry->group_source[6] = careful_frame_be16(ip + 12);
	entry->group_source[7] = careful_frame_be16(ip + 14);
	return careful_frame_admit_group(entry, &hdr, flight->cost * BUFFER_BYTES, ip,
					 ip + sizeof(ip)) == CAREFUL_XDP_ADMITTED;
}

uint32_t loss_given(const struct world *world, int from, int to)
{
	const struct open *open = &world->open[from][to];
	uint32_t n = 0;

	for (uint32_t i = 0; i < open->count; i++)
		n += open->gives[i] + open->more[i];
	return n;
}

uint32_t loss_to_others(const struct world *world, int from, int to)
{
	uint32_t n = 0;

	for (int other = 0; other < world->setting.nodes; other++)
		n += other == to ? 0 : world->wire[from][other].count;
	return n;
}

/* Returns the cumulative credits of the broadcast with this number. */
static uint32_t cast_credits(struct world *world, int from, int to, uint32_t at)
{
	uint32_t credits = world_heard(world, to, from)->credits;

	for (uint32_t i = 0; i < at; i++)
		credits += world->open[from][to].gives[i];
	return credits;
}

/* Turns a restored frame that waits into a broadcast, or its repair. */
static void put_waiting(struct world *world, int from, int to, uint32_t at)
{
	const struct open *open = &world->open[from][to];
	const struct link_peer *in = world_peer(world, to, from);
	const uint32_t seq = SEQ_BASE + at;
	struct careful_hdr *hdr =
		&in->link->early[in->repair.early[seq & in->link->early_mask] - 1].hdr;

	hdr->flags = CAREFUL_F_BCAST_EVENT;
	if (open->number[at - 1] & FLIGHT_AGAIN) {
		hdr->frag_off = htobe32(open->gives[at - 1]);
		hdr->msg_id = htobe32(open->more[at - 1]);
		return;
	}
	hdr->seq = 0;
	hdr->msg_bytes = htobe32(world->node[from].group->count);
	hdr->credits = htobe32(cast_credits(world, from, to, at));
	hdr->msg_id = htobe32((uint32_t)open->more[at - 1] << 4 * world_member_of(from, to));
}

/* Restores the credits of broadcasts under way. */
static void put_flying(struct world *world, int from, int to)
{
	struct wire *wire = &world->wire[from][to];

	for (uint32_t i = 0; i < wire->count; i++) {
		struct flight *flight = &wire->flight[i];
		const uint32_t at = flight->seq - SEQ_BASE;

		if (!flight->cast || (int32_t)at <= 0)
			continue;
		flight->credits = cast_credits(world, from, to, at);
		flight->ask = world->open[from][to].more[at - 1];
	}
}

/* Restores the rest of a broadcast's log entry. */
static void put_logged(struct world *world, int from, int to, uint32_t at)
{
	const struct open *open = &world->open[from][to];
	const struct link_group *group = world->node[from].group;
	const uint32_t cost = open->number[at - 1] & COST_MASK, seq = SEQ_BASE + at;
	struct log_entry *entry = loss_logged(world_peer(world, from, to), seq);
	struct link_send_args args = loss_cast_args(cost, link_group_bytes(group->count));

	args.flags = CAREFUL_F_BCAST_EVENT;
	args.msg_bytes = 0;
	args.frag_off = world->setting.fault == FAULT_CAST_ALONE ? 0 : open->gives[at - 1];
	args.msg_id = world->setting.fault == FAULT_CAST_ALONE ? 0 : open->more[at - 1];
	entry->args = args;
	entry->bytes_flags = (entry->bytes_flags & LOG_WANTED) | args.frag_bytes;
	memset(link_log_copy(world_peer(world, from, to), seq), (uint8_t)seq, args.frag_bytes);
}

void loss_put_casts(struct world *world, int from, int to)
{
	const struct open *open = &world->open[from][to];

	for (uint32_t at = 1; at <= open->count; at++) {
		if (!(open->number[at - 1] & FLIGHT_CAST))
			continue;
		put_logged(world, from, to, at);
		if (open->number[at - 1] & NUMBER_WAITS)
			put_waiting(world, from, to, at);
	}
	put_flying(world, from, to);
}
