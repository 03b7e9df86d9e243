// SPDX-License-Identifier: BSD-2-Clause
/* Reads lost fragments again from the file or memory of their message. A sent message is retained
 * until the peer's credits, or an answer, prove that all fragments have arrived. */
#include "message/message.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

/* A disk that takes longer hangs: the message fails, before the gap ends the epoch (missing.c). */
static const uint64_t READ_NS_MAX = 1000ull * 1000 * 1000;

/* Retains a message that was sent or failed, if a repair may need it. If so, returns true, and
 * message_out_resolved() returns the message later. */
bool message_retain(struct message_state *state, struct message_out *out)
{
	struct message_peer *mp = &state->peers[out->peer->slot];

	if (!out->has_uncopied || out->epoch != out->peer->epoch ||
	    link_resolved(out->peer, out->seq_last))
		return false;
	out->next = NULL;
	*mp->retained_tail = out;
	mp->retained_tail = &out->next;
	if (++state->retained > state->outs_share.count / 2)
		link_ask_arrived(out->peer);
	return true;
}

/* Returns the read of a message's fragment that is under way, or with out = NULL a free one; or
 * NULL. */
static struct message_reread *reading(struct message_peer *mp, const struct message_out *out)
{
	for (uint32_t i = 0; i < MESSAGE_REREADS; i++)
		if (mp->reread[i].busy ? mp->reread[i].out == out : !out)
			return &mp->reread[i];
	return NULL;
}

/* Ends the retention of a message. Returns false if its source is being read. */
static bool resolve(struct message_state *state, struct message_peer *mp, struct message_out **at)
{
	struct message_out *out = *at;

	if (reading(mp, out))
		return false;
	*at = out->next;
	if (!*at)
		mp->retained_tail = at;
	out->next = state->resolved;
	state->resolved = out;
	state->has_ended = true;
	state->retained--;
	return true;
}

/* Resolves the peer's messages that have arrived or belong to an old epoch. */
void message_resolve(struct message_state *state, struct link_peer *peer)
{
	struct message_peer *mp = &state->peers[peer->slot];

	while (mp->retained &&
	       (mp->retained->epoch != peer->epoch ||
		link_resolved(peer, mp->retained->seq_last)) &&
	       resolve(state, mp, &mp->retained))
		;
}

void message_tick(struct message_state *state)
{
	for (uint32_t i = 0; state->retained && i < state->link->peers_max; i++)
		message_resolve(state, &state->link->peers[i]);
}

/* Resolves the message of an operation that was answered. After an error the peer may still miss
 * fragments, so the message stays without its source. */
void message_answered(struct message_state *state, struct link_peer *peer, uint32_t token,
		      int error)
{
	struct message_peer *mp = &state->peers[peer->slot];

	for (struct message_out **at = &mp->retained; *at; at = &(*at)->next)
		if ((*at)->token == token) {
			(*at)->error = error;
			if (!error)
				resolve(state, mp, at);
			return;
		}
}

/* Returns the next resolved message, or NULL. */
struct message_out *message_out_resolved(struct message_state *state)
{
	struct message_out *out = state->resolved;

	if (out)
		state->resolved = out->next;
	return out;
}

/* Sends a fragment again. error: positive errno of a failed read; 0: the frame has the payload. */
static void send_fragment(struct message_out *out, struct link_txframe *frame,
			  struct link_send_args *args, uint32_t seq, int error)
{
	const uint8_t digest_flags = CAREFUL_F_LAST | CAREFUL_F_DIGEST;
	__be64 digest = htobe64(out->digest);

	if (args->flags & CAREFUL_F_FIRST)
		link_tx_write(frame, 0, &out->am, MESSAGE_AM_BYTES);
	if ((args->flags & digest_flags) == digest_flags)
		link_tx_write(frame, message_payload_at(args) + args->frag_bytes, &digest,
			      sizeof(digest));
	if (error) {
		message_void(frame, args, error);
		out->error = error;
	}
	link_send_repair(frame, args, seq);
}

/* Sends the fragment that was read, unless it has arrived meanwhile. */
static void on_read(struct storage_io *io)
{
	struct message_reread *reread =
		(struct message_reread *)((uint8_t *)io - offsetof(struct message_reread, io));
	struct message_out *out = message_source_of(reread->state, reread->tx.peer, &reread->args);
	int error = out && out->error		      ? out->error :
		    io->result < 0		      ? (int)-io->result :
		    (uint64_t)io->result != io->bytes ? ENODATA :
							0;

	reread->busy = false;
	if (out && link_wants(reread->tx.peer, reread->seq))
		send_fragment(out, &reread->tx, &reread->args, reread->seq, error);
	else
		link_tx_put(&reread->tx);
}

/* Reads the fragment in `reread` from its file. */
static void read_file(struct message_state *state, struct message_reread *reread,
		      struct message_out *out)
{
	int rc;

	reread->state = state;
	reread->out = out;
	reread->busy = true;
	reread->began_ns = state->link->now_ns;
	reread->io = (struct storage_io){
		.kind = STORAGE_UNKNOWN,
		.fd = out->source.fd,
		.iov = reread->iov,
		.offset = out->source.offset + reread->args.frag_off,
		.bytes = reread->args.frag_bytes,
		.done = on_read,
	};
	reread->io.iov_count = (uint16_t)link_tx_iov(&reread->tx, message_payload_at(&reread->args),
						     reread->args.frag_bytes, reread->iov);
	rc = state->storage->ops->submit(state->storage, &reread->io);
	if (rc == 0)
		return;
	if (rc < 0)
		reread->io.result = -EIO;
	on_read(&reread->io);
}

/* Sends one fragment again. Returns false if that is not possible now. */
static bool repair(struct message_state *state, struct link_peer *peer, struct link_send_args *args,
		   uint32_t seq, uint32_t body_bytes)
{
	struct message_peer *mp = &state->peers[peer->slot];
	struct message_reread *reread = NULL;
	struct message_out *out;
	struct link_txframe frame;

	if (link_given_up(peer, seq))
		return message_give_up(state, peer, args, seq, body_bytes);
	out = message_source_of(state, peer, args);
	if (!out) { /* the peer has answered, so the fragment arrived */
		link_again_done(peer, seq);
		return true;
	}
	if (!out->error && !out->source.base && args->frag_bytes) {
		reread = reading(mp, out);
		if (!reread) {
			reread = reading(mp, NULL);
			if (!reread)
				return false;
		} else if (state->link->now_ns - reread->began_ns < READ_NS_MAX) {
			return false;
		} else {
			out->error = EIO;
			reread = NULL;
		}
	}
	if (!link_tx_get(peer, body_bytes, &frame))
		return false;
	if (reread) {
		reread->tx = frame;
		reread->args = *args;
		reread->seq = seq;
		read_file(state, reread, out);
		return true;
	}
	/* The source of a message that failed may be gone. */
	if (!out->error && args->frag_bytes)
		link_tx_write(&frame, message_payload_at(args),
			      (const uint8_t *)out->source.base + args->frag_off, args->frag_bytes);
	send_fragment(out, &frame, args, seq, out->error);
	return true;
}

/* Repeats requested fragments while send buffers and the disk allow. */
void message_reread(struct message_state *state)
{
	struct link *link = state->link;

	for (uint32_t i = 0; i < link->peers_max; i++) {
		struct link_peer *peer = &link->peers[i];
		struct link_send_args args;
		uint32_t seq, body_bytes;

		while (link_again(peer, &args, &seq, &body_bytes) &&
		       repair(state, peer, &args, seq, body_bytes))
			;
	}
	link_again_over(link);
}
