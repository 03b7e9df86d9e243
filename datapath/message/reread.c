// SPDX-License-Identifier: BSD-2-Clause
/* Reads lost fragments again from the file or memory of their message. The source lasts until the
 * peer's credits, or an answer, prove that all fragments have come. */
#include "message/message.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

/* Keeps a sent message whose source may be read again. Returns true if message_out_resolved() will
 * return it when it is no longer needed, false if nothing is kept. */
bool message_lasts(struct message_state *state, struct message_out *out)
{
	struct message_peer *mp = &state->peers[out->peer->slot];

	if (!out->done || !out->lasts || out->epoch != out->peer->epoch ||
	    link_resolved(out->peer, out->seq_last))
		return false;
	out->next = NULL;
	*mp->lasting_tail = out;
	mp->lasting_tail = &out->next;
	state->lasting++;
	return true;
}

/* Removes a message whose source is no longer needed. Returns false if it is being read. */
static bool resolve(struct message_state *state, struct message_peer *mp, struct message_out **at)
{
	struct message_out *out = *at;

	if (state->again.busy && state->again.out == out)
		return false;
	*at = out->next;
	if (!*at)
		mp->lasting_tail = at;
	out->next = state->resolved;
	state->resolved = out;
	state->untold = true;
	state->lasting--;
	return true;
}

/* Finds the peer's messages that have arrived, or belong to an old epoch. */
void message_resolve(struct message_state *state, struct link_peer *peer)
{
	struct message_peer *mp = &state->peers[peer->slot];

	while (mp->lasting &&
	       (mp->lasting->epoch != peer->epoch || link_resolved(peer, mp->lasting->seq_last)) &&
	       resolve(state, mp, &mp->lasting))
		;
}

void message_tick(struct message_state *state)
{
	for (uint32_t i = 0; state->lasting && i < state->link->peers_max; i++)
		message_resolve(state, &state->link->peers[i]);
}

/* The message's operation has ended, so its owner may change or free the source. */
void message_answered(struct message_state *state, struct link_peer *peer, uint32_t token)
{
	struct message_peer *mp = &state->peers[peer->slot];

	for (struct message_out **at = &mp->lasting; *at; at = &(*at)->next)
		if ((*at)->token == token) {
			resolve(state, mp, at);
			return;
		}
}

/* Returns the next message whose source is no longer needed. */
struct message_out *message_out_resolved(struct message_state *state)
{
	struct message_out *out = state->resolved;

	if (out)
		state->resolved = out->next;
	return out;
}

/* Returns the message of a fragment; NULL if it is over. */
static struct message_out *source_of(struct message_state *state, const struct link_peer *peer,
				     const struct link_send_args *args)
{
	struct message_out *out = &state->outs[args->source - 1];

	return out->id == args->msg_id && out->peer == peer && out->epoch == peer->epoch ? out :
											   NULL;
}

static uint32_t payload_at(const struct link_send_args *args)
{
	return args->flags & CAREFUL_F_FIRST ? MESSAGE_AM_BYTES : 0;
}

/* Replaces a fragment that cannot be read again by one of the same length with the reason. The
 * message ends with an error, and the session continues. */
static void void_payload(struct link_txframe *frame, struct link_send_args *args, int error)
{
	__be32 reason = htobe32((uint32_t)error);
	struct iovec iov[DEVICE_SEGMENTS_MAX];
	uint32_t n = link_tx_iov(frame, payload_at(args), args->frag_bytes, iov);

	for (uint32_t i = 0; i < n; i++)
		memset(iov[i].iov_base, 0, iov[i].iov_len);
	if (args->frag_bytes >= sizeof(reason))
		link_tx_write(frame, payload_at(args), &reason, sizeof(reason));
	args->flags |= CAREFUL_F_ABORT;
}

/* Sends a fragment again. error: 0 if the payload is in the frame; else the positive errno of the
 * failed read, and the fragment carries the error. */
static void send_fragment(struct message_out *out, struct link_txframe *frame,
			  struct link_send_args *args, uint32_t seq, int error)
{
	const uint8_t digest_flags = CAREFUL_F_LAST | CAREFUL_F_DIGEST;
	__be64 digest = htobe64(out->digest);

	if (args->flags & CAREFUL_F_FIRST)
		link_tx_write(frame, 0, &out->am, MESSAGE_AM_BYTES);
	if ((args->flags & digest_flags) == digest_flags)
		link_tx_write(frame, payload_at(args) + args->frag_bytes, &digest, sizeof(digest));
	if (error) {
		void_payload(frame, args, error);
		out->error = error;
	}
	link_send_repair(frame, args, seq);
}

/* Sends the fragment that was read, if it is still wanted. */
static void read_done(struct message_reread *again)
{
	struct message_out *out = source_of(again->state, again->tx.peer, &again->args);
	int error = again->io.result < 0			  ? (int)-again->io.result :
		    (uint64_t)again->io.result != again->io.bytes ? ENODATA :
								    0;

	again->busy = false;
	if (out && link_wants(again->tx.peer, again->seq))
		send_fragment(out, &again->tx, &again->args, again->seq, error);
	else
		link_tx_put(&again->tx);
}

static void on_read(struct storage_io *io)
{
	struct message_reread *again =
		(struct message_reread *)((uint8_t *)io - offsetof(struct message_reread, io));

	read_done(again);
}

/* Reads a fragment from its file, one at a time. */
static void read_file(struct message_state *state, struct message_out *out)
{
	struct message_reread *again = &state->again;
	int rc;

	again->state = state;
	again->out = out;
	again->busy = true;
	again->io = (struct storage_io){
		.kind = STORAGE_UNKNOWN,
		.fd = out->source.fd,
		.iov = again->iov,
		.offset = out->source.offset + again->args.frag_off,
		.bytes = again->args.frag_bytes,
		.done = on_read,
	};
	again->io.iov_count = (uint16_t)link_tx_iov(&again->tx, payload_at(&again->args),
						    again->args.frag_bytes, again->iov);
	rc = state->storage->ops->submit(state->storage, &again->io);
	if (rc == 0)
		return;
	if (rc < 0)
		again->io.result = -EIO;
	read_done(again);
}

/* Sends one fragment again. Returns false if that is not possible now. */
static bool again(struct message_state *state, struct link_peer *peer, struct link_send_args *args,
		  uint32_t seq, uint32_t body_bytes)
{
	struct message_out *out = source_of(state, peer, args);
	struct link_txframe frame;

	if (!out) { /* the peer has answered, so it arrived */
		link_again_done(peer, seq);
		return true;
	}
	if (state->again.busy || !link_tx_get(peer, body_bytes, &frame))
		return false;
	if (!out->source.base && args->frag_bytes) {
		state->again.tx = frame;
		state->again.args = *args;
		state->again.seq = seq;
		read_file(state, out);
		return true;
	}
	if (args->frag_bytes)
		link_tx_write(&frame, payload_at(args),
			      (const uint8_t *)out->source.base + args->frag_off, args->frag_bytes);
	send_fragment(out, &frame, args, seq, 0);
	return true;
}

/* Repeats requested fragments as far as send buffers and disks allow. */
void message_reread(struct message_state *state)
{
	struct link *link = state->link;

	for (uint32_t i = 0; i < link->peers_max; i++) {
		struct link_peer *peer = &link->peers[i];
		struct link_send_args args;
		uint32_t seq, body_bytes;

		while (link_again(peer, &args, &seq, &body_bytes) &&
		       again(state, peer, &args, seq, body_bytes))
			;
	}
	link_again_over(link);
}
