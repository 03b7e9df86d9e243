/* SPDX-License-Identifier: BSD-2-Clause */
/* Frames to a group (wire.h): one frame that several peers receive. For each of them it has a
 * number in the session, so a member that misses it gets a repair alone. The layers above decide
 * who is in a group, and what its frames mean. */
#pragma once

#include "link/link.h"

/* A member, at the sender.
 *
 * @epoch: the peer's epoch when the group was opened; in another one it is no member
 * @held:  credits set aside for the next frame */
struct link_member {
	struct link_peer *peer;
	uint64_t epoch;
	uint32_t held;
};

/* A group that we send to.
 *
 * @credits: buffers that its frames returned
 * @probes:  probes sent so far
 * @mute:    its frames return no credits, to measure their worth */
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

/* Frames of a peer to a group that we are in; all 0: none.
 *
 * @credits: of the last frame that was handed on
 * @heard:   a probe came
 * @member:  which one of its members we are */
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
/* Sends a probe; a member that gets it can get frames to the group. */
void link_group_probe(struct link_group *group);
/* Sets credits of one member aside. Returns false if it has too few. */
bool link_group_hold(struct link_group *group, uint32_t member, uint32_t body_bytes);
void link_group_unhold(struct link_group *group, uint32_t member);
/* Takes a send buffer for a frame, whose credits have all been set aside. */
bool link_group_get(struct link_group *group, uint32_t body_bytes, struct link_txframe *frame);
void link_group_send(struct link_group *group, struct link_txframe *frame,
		     const struct link_send_args *args);

/* Admits a peer's frames to one group, of which we are this member; cookie 0: to none. -EEXIST, or
 * an error of the port. */
int link_group_admit(struct link_peer *peer, uint64_t cookie, uint32_t member);
/* Reports, once, whether a probe of the peer came. */
bool link_group_heard(struct link_peer *peer);
/* Returns the bytes of the members' numbers in a frame. */
static inline uint32_t link_group_bytes(uint32_t members)
{
	return members * (uint32_t)sizeof(__be16);
}

/* Reports whether a frame came to the whole group and is no repair. */
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
