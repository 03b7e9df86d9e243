/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Frames to a group (wire.h): one frame that each of several peers takes into a buffer of its
 * own. For each of them it is a frame of the session, with a number there, so a member that misses
 * it gets it again alone. The layers above decide who is in a group, and what its frames mean.
 */
#pragma once

#include "link/link.h"

/*
 * A member, at the sender.
 *
 * @epoch: the peer's when the group was opened: in another one it is no member
 * @held:  credits that are set aside for the next frame
 */
struct link_member {
	struct link_peer *peer;
	uint64_t epoch;
	uint32_t held;
};

/*
 * A group that we send to.
 *
 * @credits: buffers that its frames gave back
 * @probes:  sent so far
 * @mute:    its frames give nothing back: to measure what that is worth
 */
struct link_group {
	struct link *link;
	uint64_t cookie;
	uint32_t credits;
	uint32_t probes;
	uint32_t count;
	bool mute;
	struct llhdr llhdr;
	struct link_member members[];
};

/*
 * Frames of a peer to a group that we are in; all 0: none.
 *
 * @credits: of the last frame that was handed on
 * @heard:   a probe came
 * @member:  which one of its members we are
 */
struct link_heard {
	uint64_t cookie;
	uint32_t credits;
	uint32_t member;
	bool heard;
};

/* Reports whether frames to a group can leave here. */
bool link_group_can(const struct link *link);
/* Opens a group of open sessions with the caller's cookie. -ENOMEM; -EAGAIN: try later;
 * -EOPNOTSUPP; -EHOSTUNREACH: one frame cannot reach all members, since a router is on the way to
 * one or both address families occur. */
int link_group_open(struct link *link, uint64_t cookie, struct link_peer **peers, uint32_t count,
		    struct link_group **group);
void link_group_close(struct link_group *group);
/* Sends a probe: whoever hears it is reached by frames to the group. */
void link_group_probe(struct link_group *group);
/* Sets the credits of one member aside, where it has them to give; whether they are. */
bool link_group_hold(struct link_group *group, uint32_t member, uint32_t body_bytes);
void link_group_unhold(struct link_group *group, uint32_t member);
/* A send buffer, and what leaves in it; all credits have been set aside. */
bool link_group_get(struct link_group *group, uint32_t body_bytes, struct link_txframe *frame);
void link_group_send(struct link_group *group, struct link_txframe *frame,
		     const struct link_send_args *args);

/* Admits a peer's frames to a group, of which we are this member, and no other group's any more;
 * 0: none. -EEXIST, or what the
 * port refuses it with. */
int link_group_admit(struct link_peer *peer, uint64_t cookie, uint32_t member);
/* Reports whether a probe of the peer came; true once. */
bool link_group_heard(struct link_peer *peer);
/* Bytes that a frame to so many members has beside its payload: their numbers. */
static inline uint32_t link_group_bytes(uint32_t members)
{
	return members * (uint32_t)sizeof(__be16);
}

/* Reports whether a frame came as one to a group, and was not sent again to us alone. */
static inline bool link_group_is(const struct link_rxframe *frame)
{
	return frame->hdr.flags & CAREFUL_F_BCAST_EVENT && frame->hdr.msg_bytes;
}

/* Takes a frame to a group. false: the frame is of no group; else frame->peer is its sender, and
 * *missing counts frames before it if *verdict is a gap. */
bool link_group_take(struct link *link, struct link_rxframe *frame, enum flow_verdict *verdict,
		     uint32_t *missing);
/* Takes the credits that a frame to a group brings, when it is handed on; false: they cannot be. */
bool link_group_settle(const struct link_rxframe *frame);
