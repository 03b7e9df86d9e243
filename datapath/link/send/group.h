/* SPDX-License-Identifier: BSD-2-Clause */
/* Frames to a group (wire.h): one frame that several peers receive. It has a number in each member's
 * session, so only members that miss it get a repair. */
#pragma once

#include "link/link.h"

/* A member, at the sender. */
struct link_member {
	struct link_peer *peer;
	uint64_t epoch; /* of the peer when the group was opened; in another it is no member */
	uint32_t held; /* credits reserved for the next frame */
};

/* A group that we send to. */
struct link_group {
	struct link *link;
	uint64_t cookie;
	uint32_t credits; /* buffers that its frames returned */
	uint32_t probes; /* sent so far */
	uint32_t count;
	bool mute; /* its frames return no credits, for a comparison */
	struct llhdr llhdr;
	struct link_member members[];
};

/* Frames of a peer to a group that we are in; all 0: none. */
struct link_heard {
	uint64_t cookie;
	uint32_t credits; /* of the last frame that was handed on */
	uint32_t member; /* our index among the members */
	bool heard; /* a probe arrived */
};

/* Reports whether frames to a group can leave here. */
bool link_group_can(const struct link *link);
/* Opens a group of open sessions with the caller's cookie. -ENOMEM; -EAGAIN: try later;
 * -EOPNOTSUPP; -EHOSTUNREACH: one frame cannot reach all members, because a router is on the way or
 * their address families differ. */
int link_group_open(struct link *link, uint64_t cookie, struct link_peer **peers, uint32_t count,
		    struct link_group **group);
void link_group_close(struct link_group *group);
/* Sends a probe; a member that gets it can get frames to the group. */
void link_group_probe(struct link_group *group);
/* Reserves a member's credits. Returns false if it has too few. */
bool link_group_hold(struct link_group *group, uint32_t member, uint32_t body_bytes);
void link_group_unhold(struct link_group *group, uint32_t member);
/* Takes a send buffer for a frame whose credits are all reserved. */
bool link_group_get(struct link_group *group, uint32_t body_bytes, struct link_txframe *frame);
void link_group_send(struct link_group *group, struct link_txframe *frame,
		     const struct link_send_args *args);

/* Admits a peer's frames to one group, of which we are this member; cookie 0: to none. -EEXIST, or
 * an error of the port. */
int link_group_admit(struct link_peer *peer, uint64_t cookie, uint32_t member);
/* Reports whether the first probe of the peer has arrived since the last call. */
bool link_group_heard(struct link_peer *peer);
/* Returns the bytes of the members' numbers in a frame. */
static inline uint32_t link_group_bytes(uint32_t members)
{
	return members * (uint32_t)sizeof(__be16);
}

/* Reports whether a frame went to the whole group, that is, is no repair. */
static inline bool link_group_is(const struct link_rxframe *frame)
{
	return frame->hdr.flags & CAREFUL_F_BCAST_EVENT && frame->hdr.msg_bytes;
}

/* Takes a frame to a group. Returns false if it belongs to no group; else frame->peer is its
 * sender, and *missing counts frames before it if *verdict is a gap. */
bool link_group_take(struct link *link, struct link_rxframe *frame, enum flow_verdict *verdict,
		     uint32_t *missing);
/* Takes the credits of a frame to a group when it is handed on; false if they are impossible. */
bool link_group_settle(const struct link_rxframe *frame);
