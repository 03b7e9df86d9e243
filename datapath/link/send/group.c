// SPDX-License-Identifier: BSD-2-Clause
/* Frames to a group, at both ends. A frame needs a credit of each member. The sender reserves each
 * credit when it arrives, so that no update uses it before the other members' arrive
 * (tests/spin/broadcast.pml). The frame returns the credits that are owed to all members (P2 section
 * 5.3), in an account next to the session's. It also returns a few more to each member: if nodes
 * broadcast in turn, no credit is owed to all, and small windows would need updates. */
#include "link/send/group.h"

#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "link/send/out.h"
#include "link/repair/repair.h"

enum {
	EXTRA_MEMBERS = 16, /* members for whose extra credits msg_id and frag_off have room */
	EXTRA_BITS = 4,
	EXTRA_MAX = (1 << EXTRA_BITS) - 1,
};

static bool is_member(const struct link_member *member)
{
	return member->peer->epoch == member->epoch && member->peer->phase == LINK_OPEN;
}

bool link_group_can(const struct link *link)
{
	return link->port->ops->multicast && !link->traditional;
}

/* Adds a member. One multicast frame from one of our addresses must reach all members. */
static int add_member(struct link_group *group, uint32_t index, struct link_peer *peer)
{
	struct port *port = group->link->port;
	struct llhdr llhdr = { 0 };
	int rc = port->ops->multicast(port, &peer->session->address, &llhdr);

	if (!rc && peer->trailer) /* only this peer could open a sealed frame */
		rc = -EOPNOTSUPP;
	if (rc)
		return rc;
	if (index && (llhdr.bytes != group->llhdr.bytes || llhdr.mtu != group->llhdr.mtu ||
		      memcmp(llhdr.data, group->llhdr.data, llhdr.bytes) != 0))
		return -EHOSTUNREACH;
	group->llhdr = llhdr;
	group->members[index] = (struct link_member){ peer, peer->epoch, 0 };
	return peer->llhdr.bytes == llhdr.bytes && is_member(&group->members[index]) ? 0 :
										       -EOPNOTSUPP;
}

int link_group_open(struct link *link, uint64_t cookie, struct link_peer **peers, uint32_t count,
		    struct link_group **out)
{
	struct link_group *group;
	int rc = 0;

	if (!link_group_can(link))
		return -EOPNOTSUPP;
	group = calloc(1, sizeof(*group) + count * sizeof(group->members[0]));
	if (!group)
		return -ENOMEM;
	group->link = link;
	group->count = count;
	for (uint32_t i = 0; !rc && i < count; i++)
		rc = add_member(group, i, peers[i]);
	if (rc) {
		free(group);
		return rc;
	}
	group->cookie = cookie;
	*out = group;
	return 0;
}

void link_group_close(struct link_group *group)
{
	for (uint32_t i = 0; group && i < group->count; i++)
		link_group_unhold(group, i);
	free(group);
}

/* Writes the headers of a frame, except payload_crc and check. */
static void write_hdr(const struct link_group *group, struct link_txframe *frame,
		      const struct link_send_args *args)
{
	out_llhdr(&group->llhdr, frame->hdr, frame->body_total);
	*frame->hdr = (struct careful_hdr){
		.version = CAREFUL_WIRE_VERSION,
		.type = args->type,
		.flags = args->flags | CAREFUL_F_BCAST_EVENT,
		.cookie = htobe64(group->cookie),
		.credits = htobe32(group->credits),
		.msg_id = htobe32(args->msg_id),
		.msg_bytes = htobe32(args->msg_bytes),
		.frag_off = htobe32(args->frag_off),
		.frag_bytes = htobe16(args->frag_bytes),
	};
}

static void queue_frame(struct link_group *group, struct link_txframe *frame,
			const struct link_send_args *args)
{
	write_hdr(group, frame, args);
	out_finish(frame, args->crc_bytes);
	out_queue(group->link, frame);
	group->link->tx_last = frame->peer;
}

void link_group_probe(struct link_group *group)
{
	const struct link_send_args args = { .type = CAREFUL_TRAIN, .msg_id = group->probes + 1 };
	struct link_txframe frame;

	if (!link_tx_get(group->members[0].peer, 0, &frame))
		return;
	group->probes++;
	queue_frame(group, &frame, &args);
	link_kick(group->link);
}

bool link_group_hold(struct link_group *group, uint32_t index, uint32_t body_bytes)
{
	struct link_member *member = &group->members[index];
	uint32_t cost;

	if (!is_member(member))
		return false;
	body_bytes += link_group_bytes(group->count);
	cost = link_cost(member->peer, body_bytes);
	if (member->held == cost)
		return true;
	link_group_unhold(group, index);
	if (!link_may_send(member->peer, body_bytes))
		return false;
	member->held = cost;
	flow_hold(&member->peer->flow, cost);
	return true;
}

void link_group_unhold(struct link_group *group, uint32_t index)
{
	struct link_member *member = &group->members[index];

	if (is_member(member))
		flow_unhold(&member->peer->flow, member->held);
	member->held = 0;
}

bool link_group_get(struct link_group *group, uint32_t body_bytes, struct link_txframe *frame)
{
	const uint32_t numbers = link_group_bytes(group->count);

	if (!link_tx_get(group->members[0].peer, numbers + body_bytes, frame))
		return false;
	frame->body += numbers;
	frame->body_bytes -= numbers;
	return true;
}

/* Returns the extra credits that a received frame has for this member. */
static uint32_t extra_in(const struct careful_hdr *hdr, uint32_t member)
{
	uint64_t extra = (uint64_t)be32toh(hdr->frag_off) << 32 | be32toh(hdr->msg_id);

	return member < EXTRA_MEMBERS ? extra >> member * EXTRA_BITS & EXTRA_MAX : 0;
}

/* Returns the extra credits for a member: its owed credits beyond the common part. */
static uint32_t extra_for(const struct link_group *group, uint32_t member, uint32_t least)
{
	uint32_t rest = window_rx_owed(&group->members[member].peer->flow.rx) - least;

	if (member >= EXTRA_MEMBERS || group->mute)
		return 0;
	return rest < EXTRA_MAX ? rest : EXTRA_MAX;
}

/* Returns the credits that every member is owed. */
static uint32_t least_owed(const struct link_group *group)
{
	uint32_t least = UINT32_MAX;

	for (uint32_t i = 0; i < group->count; i++) {
		uint32_t owed = window_rx_owed(&group->members[i].peer->flow.rx);

		least = owed < least ? owed : least;
	}
	return least;
}

/* Accounts the frame in a member's session and returns its number there. The log keeps the frame as
 * a repair to this member would send it. */
static uint32_t account_frame(struct link_peer *peer, const struct link_txframe *frame,
			      const struct link_send_args *args, uint32_t credits, uint32_t more)
{
	struct link_send_args repair = *args;
	uint32_t seq = flow_cast(&peer->flow, credits + more);

	repair.flags |= CAREFUL_F_BCAST_EVENT;
	repair.frag_off = credits;
	repair.msg_id = more;
	repair.msg_bytes = 0;
	if (peer->repair.log)
		link_log_keep(peer, &repair, frame->body, args->crc_bytes);
	peer->tx_frames++;
	peer->tx_bytes += frame->body_total;
	return seq;
}

void link_group_send(struct link_group *group, struct link_txframe *frame,
		     const struct link_send_args *args)
{
	struct link *link = group->link;
	uint32_t credits = group->mute ? 0 : least_owed(group);
	uint8_t *numbers = frame->body - link_group_bytes(group->count);
	struct link_send_args all = *args;
	uint64_t extra = 0;

	group->credits += credits;
	for (uint32_t i = 0; i < group->count; i++) {
		struct link_peer *peer = group->members[i].peer;
		uint32_t more = extra_for(group, i, credits);
		__be16 number;

		assert(is_member(&group->members[i]) &&
		       group->members[i].held == link_cost(peer, frame->body_total));
		group->members[i].held = 0;
		number = htobe16((uint16_t)account_frame(peer, frame, args, credits, more));
		memcpy(numbers + link_group_bytes(i), &number, sizeof(number));
		extra |= i < EXTRA_MEMBERS ? (uint64_t)more << i * EXTRA_BITS : 0;
	}
	all.msg_id = (uint32_t)extra;
	all.frag_off = (uint32_t)(extra >> 32);
	all.msg_bytes = group->count;
	all.crc_bytes += link_group_bytes(group->count);
	frame->body = numbers;
	frame->body_bytes += link_group_bytes(group->count);
	queue_frame(group, frame, &all);
	link->tx_pulse_payload += args->frag_bytes;
	link_count(link, CAREFUL_C_TX_FRAMES);
	link_count(link, CAREFUL_C_TX_BROADCASTS);
	link->counters[CAREFUL_C_TX_BYTES] += frame->body_total;
}

int link_group_admit(struct link_peer *peer, uint64_t cookie, uint32_t member)
{
	struct link *link = peer->link;
	struct port *port = link->port;
	int rc = 0;

	if (cookie && link->heard[peer->slot].cookie == cookie)
		return 0;
	if (link->heard[peer->slot].cookie)
		port->ops->group(port, peer->slot, 0, NULL);
	link->heard[peer->slot] = (struct link_heard){ 0 };
	if (!cookie)
		return 0;
	if (!port->ops->group || link->traditional || !peer->cookie_plain)
		return -EOPNOTSUPP;
	for (uint32_t i = 0; i < link->peers_max; i++)
		if (link->heard[i].cookie == cookie)
			return -EEXIST;
	rc = port->ops->group(port, peer->slot, cookie, &peer->session->address);
	if (!rc)
		link->heard[peer->slot] = (struct link_heard){ .cookie = cookie, .member = member };
	return rc;
}

bool link_group_heard(struct link_peer *peer)
{
	struct link_heard *heard = &peer->link->heard[peer->slot];
	struct port *port = peer->link->port;

	if (!heard->cookie || heard->heard || !port->ops->grouped(port, peer->slot))
		return false;
	heard->heard = true;
	return true;
}

/* Returns the peer that sends to the group with this cookie, or NULL. */
static struct link_peer *sender_of(struct link *link, uint64_t cookie)
{
	for (uint32_t i = 0; cookie && i < link->peers_max; i++)
		if (link->heard[i].cookie == cookie)
			return &link->peers[i];
	return NULL;
}

/* Returns how far the frame is ahead of the last one in order; 0: an old or invalid frame. Cuts the
 * numbers off the body. */
static uint32_t ahead_of(struct link_rxframe *frame, uint32_t member)
{
	uint32_t members = be32toh(frame->hdr.msg_bytes), seq_in = frame->peer->flow.seq_in;
	__be16 number;

	if (member >= members || members > frame->body_bytes / sizeof(number))
		return 0;
	frame->checked = frame->body_bytes == frame->body_total;
	if (frame->checked &&
	    be32toh(frame->hdr.payload_crc) != link_crc32c(frame->body, frame->body_bytes))
		return 0;
	memcpy(&number, frame->body + link_group_bytes(member), sizeof(number));
	frame->body += link_group_bytes(members);
	frame->body_bytes -= link_group_bytes(members);
	frame->body_total -= link_group_bytes(members);
	return careful_seq_ahead(seq_in + (uint16_t)(be16toh(number) - seq_in), seq_in,
				 frame->peer->flow.ahead);
}

bool link_group_take(struct link *link, struct link_rxframe *frame, enum flow_verdict *verdict,
		     uint32_t *missing)
{
	struct link_peer *peer = sender_of(link, be64toh(frame->hdr.cookie));
	uint32_t ahead;

	if (!peer || !peer->cookie_plain)
		return false;
	frame->peer = peer;
	frame->epoch = peer->epoch;
	ahead = ahead_of(frame, link->heard[peer->slot].member);
	*missing = ahead - 1;
	*verdict = !ahead ? FLOW_OLD : ahead > 1 ? FLOW_GAP : FLOW_NEXT;
	if (*verdict != FLOW_NEXT)
		return true;
	if (window_rx_receive(&peer->flow.rx, frame->cost) || !link_group_settle(frame))
		*verdict = FLOW_BAD;
	peer->flow.seq_in++;
	return true;
}

bool link_group_settle(const struct link_rxframe *frame)
{
	struct link_heard *heard = &frame->peer->link->heard[frame->peer->slot];
	uint32_t credits = be32toh(frame->hdr.frag_off), more = be32toh(frame->hdr.msg_id);

	if (link_group_is(frame)) {
		credits = be32toh(frame->hdr.credits) - heard->credits;
		more = extra_in(&frame->hdr, heard->member);
	}
	heard->credits += credits;
	return !window_tx_settle(&frame->peer->flow.tx, credits + more);
}
