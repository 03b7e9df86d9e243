// SPDX-License-Identifier: BSD-2-Clause
/* Ends messages whose frames never arrive (link_given_up()). A short frame replaces each such frame
 * under its number, so that the session continues. */
#include "message/message.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

/* Turns a fragment that cannot be read or sent again into an abort of the same length. Only the
 * message fails; the session continues. */
void message_void(struct link_txframe *frame, struct link_send_args *args, int error)
{
	__be32 reason = htobe32((uint32_t)error);
	struct iovec iov[DEVICE_SEGMENTS_MAX];
	uint32_t n = link_tx_iov(frame, message_payload_at(args), args->frag_bytes, iov);

	for (uint32_t i = 0; i < n; i++)
		memset(iov[i].iov_base, 0, iov[i].iov_len);
	if (args->frag_bytes >= sizeof(reason))
		link_tx_write(frame, message_payload_at(args), &reason, sizeof(reason));
	args->flags |= CAREFUL_F_ABORT;
}

/* Returns the careful_am of a message's first fragment. */
static const void *am_of(const struct link_peer *peer, const struct message_out *out, uint32_t seq)
{
	return out ? (const uint8_t *)&out->am : link_log_body(peer, seq);
}

static uint32_t digest_bytes(const struct link_send_args *args)
{
	const uint8_t flags = CAREFUL_F_LAST | CAREFUL_F_DIGEST;

	return (args->flags & flags) == flags ? CAREFUL_DIGEST_BYTES : 0;
}

/* Sends the reason in place of a fragment that is too large for the path. */
static void end_too_large(struct link_peer *peer, const struct message_out *out,
			  struct link_send_args *args, uint32_t seq, int error)
{
	uint32_t at = message_payload_at(args);
	__be32 reason = htobe32((uint32_t)error);
	uint8_t body[MESSAGE_AM_BYTES + sizeof(reason) + CAREFUL_DIGEST_BYTES] = { 0 };

	memcpy(body, am_of(peer, out, seq), at);
	memcpy(body + at, &reason, sizeof(reason));
	args->flags |= CAREFUL_F_ABORT;
	args->frag_bytes = sizeof(reason);
	args->crc_bytes = at;
	args->source = 0;
	link_give_up(peer, seq, args, body, at + (uint32_t)sizeof(reason) + digest_bytes(args));
}

/* Sends the reason in place of a fragment. Copies of the fragment may still be under way, so the
 * new frame fills as many buffers. Returns false if there is no send buffer. */
static bool end_lost(struct link_peer *peer, const struct message_out *out,
		     struct link_send_args *args, uint32_t seq, uint32_t body_bytes, int error)
{
	static const uint8_t digest[CAREFUL_DIGEST_BYTES];
	uint32_t at = message_payload_at(args);
	struct link_txframe frame;

	if (!link_tx_get(peer, body_bytes, &frame))
		return false;
	link_tx_write(&frame, 0, am_of(peer, out, seq), at);
	link_tx_write(&frame, at + args->frag_bytes, digest, digest_bytes(args));
	message_void(&frame, args, error);
	link_send_repair(&frame, args, seq);
	return true;
}

/* Ends a bulk message at both ends. Returns false if that is not possible now. */
static bool end_bulk(struct message_state *state, struct link_peer *peer,
		     struct link_send_args *args, uint32_t seq, uint32_t body_bytes)
{
	struct message_out *out = args->source ? message_source_of(state, peer, args) : NULL;
	int error = link_given_up(peer, seq);

	if (args->source && !out)
		link_again_done(peer, seq); /* the peer has answered, so the fragment arrived */
	else if (error == EMSGSIZE)
		end_too_large(peer, out, args, seq, error);
	else if (!end_lost(peer, out, args, seq, body_bytes, error))
		return false;
	if (out)
		out->error = error;
	return true;
}

/* Reads a message of a frame. Returns the offset of the next one; 0: this was the last. */
static uint32_t read_am(const uint8_t *body, uint32_t offset, struct careful_am *am)
{
	memcpy(am, body + offset, sizeof(*am));
	return am->next ? offset + be32toh(am->next) : 0;
}

/* Counts the messages of a frame. Returns 0 if one of them wants no answer: its loss would go
 * unnoticed. */
static uint32_t count_messages(const uint8_t *body)
{
	uint32_t offset = 0, n = 0;
	struct careful_am am;

	do {
		offset = read_am(body, offset, &am);
		n++;
		if (am.kind == CAREFUL_AM_EVENT || !am.token)
			return 0;
	} while (offset);
	return n;
}

/* Ends the small messages of a frame, and replaces the frame by an update. Returns false if there is
 * no room for the messages, or the epoch had to end. */
static bool end_small(struct message_state *state, struct link_peer *peer, uint32_t seq, int error)
{
	static const struct link_send_args update = { .type = CAREFUL_UPDATE };
	const uint8_t *body = link_log_body(peer, seq);
	uint32_t n = count_messages(body), offset = 0;
	struct careful_am am;

	if (!n)
		link_break(peer);
	if (!n || state->parked_share.free < n)
		return false;
	do {
		struct message_small *small = state->parked_free[state->parked_share.free - 1];

		offset = read_am(body, offset, &am);
		share_take(&state->parked_share, &state->peers[peer->slot].parked);
		small->next = state->failed;
		small->peer = peer;
		small->epoch = peer->epoch;
		small->error = error;
		memcpy(small->body, &am, sizeof(am));
		state->failed = small;
	} while (offset);
	state->has_ended = true;
	link_give_up(peer, seq, &update, body, 0);
	return true;
}

/* Ends the messages of a requested frame that is given up. Returns false if that is not possible
 * now. */
bool message_give_up(struct message_state *state, struct link_peer *peer,
		     struct link_send_args *args, uint32_t seq, uint32_t body_bytes)
{
	return args->flags & CAREFUL_F_BULK ? end_bulk(state, peer, args, seq, body_bytes) :
					      end_small(state, peer, seq, link_given_up(peer, seq));
}
