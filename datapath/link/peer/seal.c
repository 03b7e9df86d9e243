// SPDX-License-Identifier: BSD-2-Clause
/* See seal.h. A frame in one buffer is sealed and opened in place; one in several buffers is first
 * copied to link->seal_flat. */
#include "link/link_private.h"
#include "link/peer/peers.h"
#include "base/error.h"

#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

enum {
	END_BYTES = sizeof(struct careful_seal_end),
	ASK_MS = 50, /* between two questions whether the peer has the keys */
};

int seal_init(struct link *link, const char *rules, struct careful_error *error)
{
	int rc = seal_rules_read(&link->seal_rules, rules, error);

	if (rc || !seal_rules_any(&link->seal_rules))
		return rc;
	link->seals = calloc(link->peers_max, sizeof(*link->seals));
	link->seal_flat = malloc(LINK_HDR_BYTES + (1 << 16) + END_BYTES);
	if (!link->seals || !link->seal_flat || !aead_ciphers())
		return explain(error, -ENOMEM, "out of memory");
	for (uint32_t i = 0; i < link->peers_max; i++)
		link->sessions[i].seal = &link->seals[i];
	return 0;
}

void seal_deinit(struct link *link)
{
	if (link->seals)
		sodium_memzero(link->seals, link->peers_max * sizeof(*link->seals));
	free(link->seals);
	free(link->seal_flat);
}

void seal_describe(const struct link_peer *peer, uint8_t type, struct careful_ctrl *ctrl)
{
	const struct seal *seal = peer->session->seal;

	if (!peer->trailer)
		return;
	ctrl->terms.seal = htobe32(seal->mode);
	ctrl->terms.cipher = htobe32(type == CAREFUL_HELLO ? aead_ciphers() : seal->cipher);
}

bool seal_agrees(const struct link *link, const union address *peer,
		 const struct careful_ctrl *theirs)
{
	uint32_t mode = seal_rules_mode(&link->seal_rules, peer);

	return be32toh(theirs->terms.seal) == mode &&
	       (!mode || aead_choose(be32toh(theirs->terms.cipher) & aead_ciphers()));
}

/* Chooses one of the ciphers that a HELLO offers. WELCOME has only that one. */
void seal_choose(struct link_peer *peer, const struct careful_ctrl *theirs)
{
	if (peer->trailer)
		peer->session->seal->cipher =
			aead_choose(be32toh(theirs->terms.cipher) & aead_ciphers());
}

void seal_keys(struct link_peer *peer, const struct noise *noise)
{
	struct seal *seal = peer->session->seal;
	uint8_t keys[2][NOISE_KEY_BYTES];

	if (!peer->trailer)
		return;
	noise_split(noise, keys);
	aead_begin(&seal->out, seal->cipher, keys[!noise->initiator]);
	aead_begin(&seal->in, seal->cipher, keys[noise->initiator]);
	sodium_memzero(keys, sizeof(keys));
}

void seal_over(struct link_peer *peer)
{
	struct seal *seal = peer->session->seal;
	uint8_t mode;

	if (!peer->trailer)
		return;
	mode = seal->mode;
	sodium_memzero(seal, sizeof(*seal));
	seal->mode = mode;
}

/* Copies `bytes` of a body in several buffers to or from `flat`. */
static void copy(uint8_t *umem, const struct device_desc *desc, uint8_t *body, uint32_t body_bytes,
		 uint8_t *flat, uint32_t bytes, bool to_flat)
{
	for (uint32_t i = 0; bytes; i++) {
		uint32_t piece;

		if (i) {
			body = umem + desc[i].addr;
			body_bytes = desc[i].bytes;
		}
		piece = body_bytes < bytes ? body_bytes : bytes;
		memcpy(to_flat ? flat : body, to_flat ? body : flat, piece);
		flat += piece;
		bytes -= piece;
	}
}

/* Seals a contiguous header and body. */
static void seal_flat(struct seal *seal, uint8_t *hdr, uint32_t bytes)
{
	struct careful_seal_end end = { .count = htobe64(++seal->sent) };
	bool encrypt = seal->mode == CAREFUL_SEAL_ENCRYPT;
	uint32_t plain = LINK_HDR_BYTES + (encrypt ? 0 : bytes);

	aead_seal(&seal->out, seal->sent, hdr, plain, hdr + plain, encrypt ? bytes : 0, end.tag);
	memcpy(hdr + LINK_HDR_BYTES + bytes, &end, sizeof(end));
}

static bool open_flat(const struct seal *seal, const struct aead *aead, uint8_t *hdr,
		      uint32_t bytes, const struct careful_seal_end *end)
{
	bool encrypt = seal->mode == CAREFUL_SEAL_ENCRYPT;
	uint32_t plain = LINK_HDR_BYTES + (encrypt ? 0 : bytes);

	return aead_open(aead, be64toh(end->count), hdr, plain, hdr + plain, encrypt ? bytes : 0,
			 end->tag);
}

/* Seals a frame whose header is complete. Its buffers have room for the tag. */
void seal_frame(struct link_txframe *frame)
{
	struct seal *seal = frame->peer->session->seal;
	uint32_t bytes = frame->body_total;
	uint8_t *flat = frame->peer->link->seal_flat;

	if (bytes + END_BYTES <= frame->body_bytes) {
		seal_flat(seal, (uint8_t *)frame->hdr, bytes);
		return;
	}
	memcpy(flat, frame->hdr, LINK_HDR_BYTES);
	copy(frame->umem, frame->desc, frame->body, frame->body_bytes, flat + LINK_HDR_BYTES, bytes,
	     true);
	seal_flat(seal, flat, bytes);
	copy(frame->umem, frame->desc, frame->body, frame->body_bytes, flat + LINK_HDR_BYTES,
	     bytes + END_BYTES, false);
}

/* Decrypts the body of a sealed frame, so that it can be sealed under another nonce. */
void seal_undo(struct link_txframe *frame)
{
	struct seal *seal = frame->peer->session->seal;
	uint32_t bytes = frame->body_total;
	uint8_t *flat = frame->peer->link->seal_flat;
	struct careful_seal_end end;
	bool good;

	if (seal->mode != CAREFUL_SEAL_ENCRYPT)
		return;
	memcpy(flat, frame->hdr, LINK_HDR_BYTES);
	copy(frame->umem, frame->desc, frame->body, frame->body_bytes, flat + LINK_HDR_BYTES,
	     bytes + END_BYTES, true);
	memcpy(&end, flat + LINK_HDR_BYTES + bytes, sizeof(end));
	good = open_flat(seal, &seal->out, flat, bytes, &end);
	assert(good); /* we sealed it */
	copy(frame->umem, frame->desc, frame->body, frame->body_bytes, flat + LINK_HDR_BYTES, bytes,
	     false);
}

/* Opens the body, which has `bytes` before the tag. Returns false if it is forged or a repeat. */
static bool open_body(struct link *link, struct link_rxframe *frame, uint32_t bytes)
{
	struct seal *seal = frame->peer->session->seal;
	bool single = frame->body_total <= frame->body_bytes;
	uint8_t *body = (uint8_t *)frame->body;
	uint8_t *hdr = body - LINK_HDR_BYTES;
	struct careful_seal_end end;

	if (!single) {
		hdr = link->seal_flat;
		memcpy(hdr, &frame->hdr, LINK_HDR_BYTES);
		copy(link->queue->umem, frame->desc, body, frame->body_bytes, hdr + LINK_HDR_BYTES,
		     frame->body_total, true);
	}
	memcpy(&end, hdr + LINK_HDR_BYTES + bytes, sizeof(end));
	if (!aead_is_new(&seal->seen, be64toh(end.count)) ||
	    !open_flat(seal, &seal->in, hdr, bytes, &end))
		return false;
	aead_mark_seen(&seal->seen, be64toh(end.count));
	if (!single && seal->mode == CAREFUL_SEAL_ENCRYPT)
		copy(link->queue->umem, frame->desc, body, frame->body_bytes, hdr + LINK_HDR_BYTES,
		     bytes, false);
	return true;
}

/* Finds the session of a sealed frame with a valid header and opens the frame. Returns the counter of
 * a drop, or CAREFUL_COUNTERS. bytes: of the frame as it arrived. */
enum careful_counter seal_take(struct link *link, struct link_rxframe *frame, uint32_t bytes)
{
	struct link_peer *peer = link_peer_with(link, &frame->hdr);

	if (!peer || !peer->trailer)
		return CAREFUL_C_DROP_COOKIE;
	frame->peer = peer;
	if (!open_body(link, frame, frame->body_total - END_BYTES)) {
		peer->flow.most += link_buffers(bytes, link->queue->buffer_bytes);
		link_dirty(peer);
		return CAREFUL_C_DROP_SEAL;
	}
	frame->body_total -= END_BYTES;
	if (frame->body_bytes > frame->body_total)
		frame->body_bytes = frame->body_total;
	frame->checked = true;
	seal_heard(peer);
	if (link->traditional)
		__atomic_store_n(&peer->entry->seq_taken, peer->flow.seq_in, __ATOMIC_RELEASE);
	return CAREFUL_COUNTERS;
}

void seal_wait(struct link_peer *peer)
{
	if (peer->trailer)
		peer->session->seal->waits = true;
}

bool seal_waits(const struct link_peer *peer)
{
	return peer->trailer && peer->session->seal->waits;
}

void seal_heard(struct link_peer *peer)
{
	if (peer->trailer)
		peer->session->seal->waits = false;
}

/* Returns the next step while the peer has not shown that it has the keys: a question, or the end of
 * the session, which nothing else would end if the peer is gone. */
enum seal_due seal_tick(struct link_peer *peer)
{
	struct session *session = peer->session;
	struct link *link = peer->link;

	if (!seal_waits(peer) || !link_has_epoch(peer))
		return SEAL_DUE_NONE;
	if (link->now_ns - session->moved_ns >= link->stall_ms * 1000000ull)
		return SEAL_DUE_END;
	if (link->now_ns - session->seal->asked_ns < ASK_MS * 1000000ull)
		return SEAL_DUE_NONE;
	session->seal->asked_ns = link->now_ns;
	return SEAL_DUE_QUESTION;
}
