// SPDX-License-Identifier: BSD-2-Clause
/* Checks states with lost frames, and computes their distance from rest. */
#include <endian.h>

#include "loss.h"
#include "state.h"

/* Checks that a request for unsent numbers changes nothing, and that XDP admits nothing beyond the
 * window. */
static void check_beyond(struct world *world, int from, int to)
{
	struct link_peer *out = world_peer(world, from, to), *in = world_peer(world, to, from);
	const uint32_t wanted = out->repair.wanted, seq = out->flow.seq_out;
	const struct careful_peer_entry was = *in->entry;
	const struct flight beyond = { .cost = 1, .seq = was.seq_taken + in->flow.ahead + 1 };
	struct careful_ctrl ctrl = {
		.missing.seq_rcvd = htobe32(in->flow.seq_in),
		.missing.before = htobe32(seq),
		.missing.last = htobe32(seq + 1),
	};

	if (link_log_on_missing(out, &ctrl) || out->repair.wanted != wanted)
		violation(world, FOUND_UNKNOWN);
	in->entry->may_fill += 1u << 16;
	if (world_admits(world, from, to, &beyond))
		violation(world, FOUND_WIDE);
	*in->entry = was;
}

/* Reports whether the log has a broadcast as its repair sends it. */
static bool logs_cast(const struct log_entry *entry, uint32_t gives, uint32_t more)
{
	const struct link_send_args *args = &entry->args;

	return args->flags & CAREFUL_F_BCAST_EVENT && args->frag_off == gives &&
	       args->msg_id == more && !args->msg_bytes &&
	       (entry->bytes_flags & LOG_BYTES) == args->frag_bytes;
}

/* Checks that each missing number can be repaired. Returns the buffers of these; *waiting: of
 * numbers that wait. */
static uint32_t check_log(struct world *world, int from, int to, uint32_t *waiting)
{
	const struct link_peer *out = world_peer(world, from, to);
	const struct open *open = &world->open[from][to];
	uint32_t sent = out->flow.tx.sent, n = 0;

	*waiting = 0;
	if (open->count > out->repair.log_mask + 1)
		violation(world, FOUND_LOG);
	for (uint32_t at = open->count; at; at--) {
		const uint32_t seq = out->flow.seq_out - (open->count - at);
		const uint32_t cost = open->number[at - 1] & COST_MASK;
		const struct log_entry *entry = loss_logged(out, seq);

		/* Frames to a group change this account on their way. */
		if (world->setting.fault < FAULT_CHARGED_AGAIN &&
		    ((entry->sent != sent && !world->setting.casters) || link_resolved(out, seq) ||
		     (open->number[at - 1] & FLIGHT_CAST &&
		      !logs_cast(entry, open->gives[at - 1], open->more[at - 1]))))
			violation(world, FOUND_LOG);
		sent -= cost;
		if (open->number[at - 1] & NUMBER_WAITS)
			*waiting += cost;
		else
			n += cost;
	}
	return n;
}

/* Checks that announced credits are known, or that a missing frame carries them. */
static void check_told(struct world *world, int from, int to)
{
	const struct link_peer *out = world_peer(world, from, to);
	const struct link_peer *in = world_peer(world, to, from);
	const struct open *back = &world->open[to][from];
	uint32_t n = 0;

	for (uint32_t at = 1; at <= back->count; at++)
		n += !(back->number[at - 1] & (NUMBER_WAITS | FLIGHT_CAST));
	if (in->flow.rx.announced != out->flow.tx.credits && !n)
		violation(world, FOUND_UNSAID);
}

void loss_check(struct world *world, int from, int to)
{
	const struct link_peer *out = world_peer(world, from, to);
	const struct link_peer *in = world_peer(world, to, from);
	const struct window_rx *rx = &in->flow.rx;
	const struct open *open = &world->open[from][to];
	const uint32_t granted = in->session->granted;
	const uint32_t most = out->flow.tx.size + world->setting.reserve;
	const struct link_member *member = world_member(world, from, to);
	uint32_t waiting, flying = check_log(world, from, to, &waiting);

	flying += (member ? member->held : 0) + loss_given(world, to, from);

	if (out->flow.seq_out - in->flow.seq_in != open->count)
		violation(world, "frames are not numbered one by one");
	if (out->flow.tx.sent - rx->received != flying ||
	    rx->received + granted - rx->returned != in->kept + in->flow.freeing + waiting ||
	    window_tx_free(&out->flow.tx) > most || rx->returned - rx->announced > most)
		violation(world, FOUND_CREDITS);
	check_told(world, from, to);
	check_beyond(world, from, to);
	if (granted && !open->count && !in->kept && !in->flow.freeing && !world->left[from][to])
		violation(world, FOUND_UNPAID);
	if (out->phase != LINK_OPEN || in->phase != LINK_OPEN)
		violation(world, "a session broke");
}

/* Returns the progress of a number's repair. */
static uint32_t stage(const struct link_peer *in, const struct link_peer *out, uint32_t seq)
{
	if (link_wants(out, seq))
		return 1;
	return reorder_missing(in) && (int32_t)(in->repair.highest - seq) >= 0 ? 2 : 3;
}

/* Each buffer of a missing frame counts RANK_FRAME, a little less if it waits. Received frames
 * count in steps_rank(). Needless copies and their traces count little. */
uint32_t loss_rank(struct world *world, int from, int to)
{
	const struct link_peer *out = world_peer(world, from, to);
	const struct link_peer *in = world_peer(world, to, from);
	const struct open *open = &world->open[from][to];
	uint32_t rank = 4 * loss_charged(in), buffers = 0;

	for (uint32_t i = 0; i < world->wire[from][to].count; i++)
		buffers += world->wire[from][to].flight[i].cost;
	for (uint32_t at = 1; at <= open->count; at++) {
		const uint32_t cost = open->number[at - 1] & COST_MASK;

		if (open->number[at - 1] & NUMBER_WAITS) {
			rank += (RANK_FRAME - 2) * RANK_SCALE * cost;
			continue;
		}
		rank += RANK_FRAME * RANK_SCALE * cost;
		if (loss_flights(world, from, to, at))
			buffers -= cost;
		else
			rank += stage(in, out, in->flow.seq_in + at);
	}
	return rank + 8 * buffers +
	       2 * (in->flow.rx.returned + in->flow.most - in->entry->may_fill);
}

bool loss_needless(const struct world *world, const struct step *step)
{
	if (world->setting.fault == FAULT_ASKED_ONCE || world->setting.fault == FAULT_COPY_KEPT)
		return true; /* that search looks for frames that stay missing or refused */
	switch ((enum act)step->act) {
	case ACT_LOSE:
	case ACT_LOSE_IN_RING:
	case ACT_COPY:
		return true;
	case ACT_SUSPECT:
	case ACT_ASK:
		return world->wire[step->other][step->node].count;
	case ACT_AGAIN:
		return world->wire[step->node][step->other].count;
	default:
		return false;
	}
}
