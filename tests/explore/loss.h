/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Lost, reordered, repeated and repaired frames. The world records which numbers have arrived
 * (world.h, struct open), and compares this with the code's view. Functions count numbers from the
 * last that the receiver has taken in order: 1 is due.
 */
#ifndef EXPLORE_LOSS_H
#define EXPLORE_LOSS_H

#include "link/repair/repair.h"
#include "steps.h"

/* The faults of the repair that a search can find (struct found.violated). */
#define FOUND_ORDER "order: a frame is handed on before an earlier one, or is held back"
#define FOUND_REFUSED "refused: XDP drops a frame that may come, and nothing will change that"
#define FOUND_WIDE "wide: XDP admits a number beyond the window"
#define FOUND_LOG "log: it does not have a frame that may be lost"
#define FOUND_REPAIR "repair: it is not the frame that was lost"
#define FOUND_NEVER "never: a frame leaves under a number that was not sent"
#define FOUND_UNKNOWN "unknown: a number that was not sent counts as asked for"
#define FOUND_MISSING "missing: all else is done, and a lost frame is not sent again"
#define FOUND_CREDITS "credits are not conserved"
#define FOUND_UNSAID "credits were announced and are on no frame"

/* Describes how a data frame of this many buffers is sent: the log copies a frame of one send
 * buffer. */
static inline struct link_send_args loss_args(uint32_t cost)
{
	return (struct link_send_args){
		.type = CAREFUL_DATA,
		.msg_bytes = body_of(cost),
		.frag_bytes = (uint16_t)body_of(cost),
		.source = cost > 1,
	};
}

/* Describes how a broadcast of this many buffers is sent. The log copies it, so it fills at most one
 * send buffer, together with the members' numbers. */
static inline struct link_send_args loss_cast_args(uint32_t cost, uint32_t numbers_bytes)
{
	const uint32_t most = CHUNK_BYTES - LINK_PAYLOAD_AT;
	const uint32_t body = (body_of(cost) < most ? body_of(cost) : most) - numbers_bytes;

	return (struct link_send_args){
		.type = CAREFUL_DATA,
		.msg_bytes = body,
		.frag_bytes = (uint16_t)body,
		.crc_bytes = body,
	};
}

/* Returns the sender's log entry of a frame. */
static inline struct log_entry *loss_logged(const struct link_peer *out, uint32_t seq)
{
	return &out->repair.log[seq & out->repair.log_mask];
}

/* Reports whether a number has arrived and waits for an earlier one. */
bool loss_waits(const struct world *world, int from, int to, uint32_t at);
/* Counts the buffers that XDP charged for frames that the ring lost. */
uint32_t loss_charged(const struct link_peer *in);
/* Reports whether XDP knows all returned charges. A round publishes them at the end of its batch,
 * before updates. */
bool loss_told(const struct node *node);
/* Reports whether the charges of frames that the ring lost are returned. */
bool loss_settles(const struct world *world, const struct link_peer *in);

/* Counts the copies of a number on a wire. */
uint32_t loss_flights(const struct world *world, int from, int to, uint32_t at);
/* Counts the missing numbers without a copy on the wire, and the frames on the wire besides the
 * first copy of each missing number. */
uint32_t loss_gone(const struct world *world, int from, int to);
uint32_t loss_copies(const struct world *world, int from, int to);
/* Returns the most buffers that a peer may still be granted: each number may request more than the
 * one before, and a repair may request another number. */
uint32_t loss_grants(struct world *world, int from, int to);
/* Returns the sum of a count over all flows. */
uint32_t loss_all(const struct world *world,
		  uint32_t (*count)(const struct world *world, int from, int to));

/* loss_cast.c */
/* Notes the credits that the last broadcast gives to a node. */
void loss_note_cast(struct world *world, int from, int to, const struct flight *flight);
/* Checks that the repair of a broadcast gives the same credits. */
void loss_check_again(struct world *world, int from, int to, const struct flight *flight,
		      const struct careful_hdr *hdr);
/* Reports whether XDP admits a broadcast, and charges its buffers. */
bool loss_admits_cast(struct world *world, int from, int to, const struct flight *flight);
/* Counts the credits of broadcasts that are not taken yet. */
uint32_t loss_given(const struct world *world, int from, int to);
/* Counts the frames under way to other nodes. A repair must not change them. */
uint32_t loss_to_others(const struct world *world, int from, int to);
/* Restores broadcasts, after their numbers. */
void loss_put_casts(struct world *world, int from, int to);

/* loss_steps.c */
struct step *loss_list(struct world *world, struct step *at, int from, int to);
bool loss_do(struct world *world, const struct step *step);
/* Takes a frame from its wire. Returns false if the step is impossible now. */
bool loss_arrive(struct world *world, const struct step *step);
void loss_print(const struct step *step);

/* loss_check.c */
void loss_check(struct world *world, int from, int to);
uint32_t loss_rank(struct world *world, int from, int to);
/* Reports whether a step repairs a frame that is not lost: it leads no nearer to rest. */
bool loss_needless(const struct world *world, const struct step *step);

#endif /* EXPLORE_LOSS_H */
