// SPDX-License-Identifier: BSD-2-Clause
/*
 * Frames to a group, at both ends. The sender needs a credit of each member before one leaves, and
 * takes each as soon as it is there, so that no update takes it again before the others' come
 * (tests/spin/broadcast.pml). Credits that it owes all members alike go with the frame (P2 section
 * 5.3), in an account next to that of the session, so that credits of the one may overtake those of
 * the other. With it goes a little beyond that for each member: where nodes broadcast one after the
 * other, and not in step, the least is nothing, and small windows would need updates.
 */
#include "link/group.h"

#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "link/out.h"
#include "link/repair.h"

enum {
	EXTRA_MEMBERS = 16, /* that msg_id and frag_off have room for */
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

/* One frame goes to all members alike: to the same address, from the same one of ours. */
static int add_member(struct link_group *group, uint32_t at, struct link_peer *peer)
{
	struct port *port = group->link->port;
	struct llhdr llhdr = { 0 };
	int rc = port->ops->multicast(port, &peer->session->address, &llhdr);

	if (!rc && peer->trailer) /* its frames are for nobody else to open */
		rc = -EOPNOTSUPP;
	if (rc)
		return rc;
	if (at && memcmp(&llhdr, &group->llhdr, sizeof(llhdr)) != 0)
		return -EHOSTUNREACH;
	group->llhdr = llhdr;
	group->members[at] = (struct link_member){ peer, peer->epoch, 0 };
	return peer->llhdr.bytes == llhdr.bytes && is_member(&group->members[at]) ? 0 : -EOPNOTSUPP;
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

/* The header of a frame to all, but its check. */
static void write_hdr(const struct link_group *group, struct link_txframe *frame,
		      const struct link_send_args *args)
{
	out_llhdr(&group->llhdr, frame->hdr, frame->body_total);
	*frame->hdr = (struct careful_hdr){
		.version = CAREFUL_WIRE_VERSION,
		.type = args->type,
		.flags = args->flags | CAREFUL_F_BCAST_EVENT,
		.cookie = htobe64(group->cookie),
		.seq = htobe32(group->seq),
		.credits = htobe32(group->credits),
		.msg_id = htobe32(args->msg_id),
		.msg_bytes = htobe32(args->msg_bytes),
		.frag_off = htobe32(args->frag_off),
		.frag_bytes = htobe16(args->frag_bytes),
	};
}

static void leave(struct link_group *group, struct link_txframe *frame,
		  const struct link_send_args *args)
{
	write_hdr(group, frame, args);
	out_seal(frame, args->crc_bytes);
	out_queue(group->link, frame);
	group->link->tx_last = frame->peer;
}

void link_group_probe(struct link_group *group)
{
	const struct link_send_args args = { .type = CAREFUL_TRAIN, .msg_id = group->probes + 1 };
	struct link_txframe frame;

	if (!link_group_get(group, 0, &frame))
		return;
	group->probes++;
	leave(group, &frame, &args);
	link_kick(group->link);
}

bool link_group_hold(struct link_group *group, uint32_t at, uint32_t body_bytes)
{
	struct link_member *member = &group->members[at];
	uint32_t cost;

	if (!is_member(member))
		return false;
	cost = link_cost(member->peer, body_bytes);
	if (member->held == cost)
		return true;
	link_group_unhold(group, at);
	if (!link_may_send(member->peer, body_bytes))
		return false;
	member->held = cost;
	flow_hold(&member->peer->flow, cost);
	return true;
}

void link_group_unhold(struct link_group *group, uint32_t at)
{
	struct link_member *member = &group->members[at];

	if (is_member(member))
		flow_unhold(&member->peer->flow, member->held);
	member->held = 0;
}

bool link_group_get(struct link_group *group, uint32_t body_bytes, struct link_txframe *frame)
{
	return link_tx_get(group->members[0].peer, body_bytes, frame);
}

/* Returns the credits of a frame for one member beyond those for all, if its header has room for
 * that member. */
static uint32_t extra_in(const struct careful_hdr *hdr, uint32_t member)
{
	uint64_t extra = (uint64_t)be32toh(hdr->frag_off) << 32 | be32toh(hdr->msg_id);

	return member < EXTRA_MEMBERS ? extra >> member * EXTRA_BITS & EXTRA_MAX : 0;
}

/* The same, of what is owed beyond the least. */
static uint32_t extra_for(const struct link_group *group, uint32_t member, uint32_t least)
{
	uint32_t rest = window_rx_owed(&group->members[member].peer->flow.rx) - least;

	if (member >= EXTRA_MEMBERS || group->mute)
		return 0;
	return rest < EXTRA_MAX ? rest : EXTRA_MAX;
}

/* Returns the credits that can go to all: the least that any member is owed. */
static uint32_t least_owed(const struct link_group *group)
{
	uint32_t least = UINT32_MAX;

	for (uint32_t i = 0; i < group->count; i++) {
		uint32_t owed = window_rx_owed(&group->members[i].peer->flow.rx);

		least = owed < least ? owed : least;
	}
	return least;
}

void link_group_send(struct link_group *group, struct link_txframe *frame,
		     const struct link_send_args *args)
{
	struct link *link = group->link;
	uint32_t credits = group->mute ? 0 : least_owed(group);
	struct link_send_args all = *args;
	uint64_t extra = 0;

	group->seq++;
	group->credits += credits;
	for (uint32_t i = 0; i < group->count; i++) {
		struct link_peer *peer = group->members[i].peer;
		uint32_t more = extra_for(group, i, credits);

		assert(is_member(&group->members[i]) &&
		       group->members[i].held == link_cost(peer, frame->body_total));
		group->members[i].held = 0;
		flow_cast(&peer->flow, credits + more);
		extra |= i < EXTRA_MEMBERS ? (uint64_t)more << i * EXTRA_BITS : 0;
		peer->session->casts.out++;
		peer->tx_frames++;
		peer->tx_bytes += frame->body_total;
	}
	all.msg_id = (uint32_t)extra;
	all.frag_off = (uint32_t)(extra >> 32);
	leave(group, frame, &all);
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

uint32_t link_group_sent(const struct link_peer *peer)
{
	return peer->session->casts.out;
}

uint32_t link_group_missing(const struct link_peer *peer, uint32_t sent)
{
	return sent - peer->session->casts.in;
}

/* Returns the peer that sends to a group with this cookie; NULL: nobody. */
static struct link_peer *sender_of(struct link *link, uint64_t cookie)
{
	for (uint32_t i = 0; cookie && i < link->peers_max; i++)
		if (link->heard[i].cookie == cookie)
			return &link->peers[i];
	return NULL;
}

bool link_group_take(struct link *link, struct link_rxframe *frame, enum flow_verdict *verdict,
		     uint32_t *missing)
{
	struct link_peer *peer = sender_of(link, be64toh(frame->hdr.cookie));
	uint32_t ahead, credits = be32toh(frame->hdr.credits);
	struct link_heard *heard;

	if (!peer || !peer->cookie_plain)
		return false;
	heard = &link->heard[peer->slot];
	frame->peer = peer;
	frame->epoch = peer->epoch;
	ahead = careful_seq_ahead(be32toh(frame->hdr.seq), heard->seq, peer->flow.ahead);
	*verdict =
		flow_receive_cast(&peer->flow, ahead, frame->cost,
				  credits - heard->credits + extra_in(&frame->hdr, heard->member));
	if (*verdict == FLOW_NEXT) {
		heard->seq++;
		peer->session->casts.in++;
		heard->credits = credits;
	}
	*missing = ahead - 1;
	if (*verdict == FLOW_NEXT && early_missing(peer)) {
		*verdict = FLOW_GAP;
		*missing += early_missing(peer);
	}
	return true;
}
