// SPDX-License-Identifier: BSD-2-Clause
/* Repeats frames whose body the log keeps (log.h). */
#include "link/link.h"
#include "link/repair/repair.h"

#include <string.h>

/* Repeats a frame that is whole in the log. Returns false if there is no send buffer. A ping, whose
 * time would be wrong, becomes an update: both fill one buffer. */
static bool send_copy(struct link_peer *peer, struct log_entry *entry, uint32_t seq)
{
	struct link_send_args args = entry->bytes_flags & LOG_BRIEF ?
					     link_log_short_args(entry->bytes_flags & LOG_BYTES) :
					     entry->args;
	uint32_t bytes = args.type == CAREFUL_DATA ? entry->bytes_flags & LOG_BYTES : 0;
	struct link_txframe frame;

	if (!link_tx_get(peer, bytes, &frame))
		return false;
	if (args.type == CAREFUL_DATA)
		memcpy(frame.body,
		       entry->bytes_flags & LOG_BRIEF ? entry->body : link_log_copy(peer, seq),
		       bytes);
	else
		args = (struct link_send_args){ .type = CAREFUL_UPDATE };
	link_send_repair(&frame, &args, seq);
	return true;
}

/* Notes whether peers still ask for frames. */
void link_again_over(struct link *link)
{
	link->again = false;
	for (uint32_t i = 0; i < link->peers_max; i++)
		link->again |= link_asked(&link->peers[i]);
}

/* Repeats requested frames up to the first that is not whole in the log, which message/ must read.
 * Returns false if there is none, or no send buffer. */
bool link_again(struct link_peer *peer, struct link_send_args *args, uint32_t *seq,
		uint32_t *body_bytes)
{
	struct link_repair *repair = &peer->repair;

	if (!repair->log || !link_has_epoch(peer) || !peer->llhdr.bytes)
		return false;
	for (uint32_t back = repair->log_mask + 1; repair->wanted && back--;) {
		uint32_t n = peer->flow.seq_out - back;
		struct log_entry *entry = &repair->log[n & repair->log_mask];

		if (!(entry->bytes_flags & LOG_WANTED))
			continue;
		if ((int32_t)(n - repair->acked) <= 0) {
			link_again_done(peer, n);
			continue;
		}
		if (!(entry->bytes_flags & LOG_BRIEF) && entry->args.source) {
			*args = entry->args;
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
