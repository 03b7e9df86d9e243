// SPDX-License-Identifier: BSD-2-Clause
/* Repeats frames whose body the log keeps (log.h), and gives up those that never arrive. */
#include "link/link_private.h"
#include "link/repair/repair.h"
#include "link/peer/path_search.h"

#include <errno.h>
#include <string.h>

static struct link_send_args args_of(const struct log_entry *entry)
{
	return entry->bytes_flags & LOG_BRIEF ?
		       link_log_short_args(entry->bytes_flags & LOG_BYTES) :
		       entry->args;
}

/* Returns the copied body of a frame without a source. */
const uint8_t *link_log_body(const struct link_peer *peer, uint32_t seq)
{
	const struct log_entry *entry = &peer->repair.log[seq & peer->repair.log_mask];

	return entry->bytes_flags & LOG_BRIEF ? entry->body : link_log_copy(peer, seq);
}

/* Reports why a requested frame is not sent again: EMSGSIZE, the path takes only smaller ones;
 * ECOMM, it is a fragment and was lost LOG_TIMES_MAX times; or 0. Updates and pings have nothing to
 * give up. A small message that the path takes is sent until the epoch ends: if a request was
 * executed and its answer is given up, nobody knows what the request has changed at the peer. */
int link_given_up(const struct link_peer *peer, uint32_t seq)
{
	const struct log_entry *entry = &peer->repair.log[seq & peer->repair.log_mask];

	const bool brief = entry->bytes_flags & LOG_BRIEF;

	if (!brief && entry->args.type != CAREFUL_DATA)
		return 0;
	if (path_search_blocks(peer, entry->bytes_flags & LOG_BYTES))
		return EMSGSIZE;
	if (brief || !(entry->args.flags & CAREFUL_F_BULK) || peer->session->path.probing)
		return 0;
	return entry->bytes_flags / LOG_TIMES >= LOG_TIMES_MAX ? ECOMM : 0;
}

/* Replaces a frame that is given up by a shorter one under its number. Takes back the credits for
 * buffers that the shorter one does not fill. */
void link_give_up(struct link_peer *peer, uint32_t seq, const struct link_send_args *args,
		  const void *body, uint32_t body_bytes)
{
	struct link_repair *repair = &peer->repair;
	struct log_entry *entry = &repair->log[seq & repair->log_mask];
	uint32_t less =
		link_cost(peer, entry->bytes_flags & LOG_BYTES) - link_cost(peer, body_bytes);

	entry->args = *args;
	entry->bytes_flags = body_bytes | (entry->bytes_flags & LOG_WANTED);
	memcpy(link_log_copy(peer, seq), body, body_bytes);
	peer->flow.tx.sent -= less;
	for (uint32_t n = seq; n != peer->flow.seq_out + 1; n++)
		repair->log[n & repair->log_mask].sent -= less;
}

/* Repeats a frame that the log copied. Returns false if there is no send buffer. A ping, whose time
 * would be wrong, becomes an update: both fill one buffer. */
static bool send_copy(struct link_peer *peer, struct log_entry *entry, uint32_t seq)
{
	struct link_send_args args = args_of(entry);
	uint32_t bytes = args.type == CAREFUL_DATA ? entry->bytes_flags & LOG_BYTES : 0;
	struct link_txframe frame;

	if (!link_tx_get(peer, bytes, &frame))
		return false;
	if (args.type == CAREFUL_DATA)
		memcpy(frame.body, link_log_body(peer, seq), bytes);
	else
		args = (struct link_send_args){ .type = CAREFUL_UPDATE };
	link_send_repair(&frame, &args, seq);
	return true;
}

/* Notes whether peers still request frames. */
void link_again_over(struct link *link)
{
	link->again = false;
	for (uint32_t i = 0; i < link->peers_max; i++)
		link->again |= link_wants_any(&link->peers[i]);
}

/* Repeats requested frames up to the first that message/ must handle: one that the log has no copy
 * of, or that is given up. Returns false if there is none, or no send buffer. */
bool link_again(struct link_peer *peer, struct link_send_args *args, uint32_t *seq,
		uint32_t *body_bytes)
{
	struct link_repair *repair = &peer->repair;

	if (!repair->log || !link_has_epoch(peer) || !peer->llhdr.bytes)
		return false;
	if (peer->flow.seq_out - repair->wanted_from > repair->log_mask)
		repair->wanted_from = peer->flow.seq_out - repair->log_mask;
	for (; repair->wanted && (int32_t)(peer->flow.seq_out - repair->wanted_from) >= 0;
	     repair->wanted_from++) {
		uint32_t n = repair->wanted_from;
		struct log_entry *entry = &repair->log[n & repair->log_mask];

		if (!(entry->bytes_flags & LOG_WANTED))
			continue;
		if ((int32_t)(n - repair->acked) <= 0) {
			link_again_done(peer, n);
			continue;
		}
		if (!repair->may_repeat)
			return false;
		if (link_given_up(peer, n) ||
		    (!(entry->bytes_flags & LOG_BRIEF) && entry->args.source)) {
			*args = args_of(entry);
			*seq = n;
			*body_bytes = entry->bytes_flags & LOG_BYTES;
			return true;
		}
		if (!send_copy(peer, entry, n))
			return false;
	}
	repair->wanted = 0;
	return false;
}
