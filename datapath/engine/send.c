// SPDX-License-Identifier: BSD-2-Clause
/* Sends requests, replies, stores and gets from the instance's own queue. */
#include "engine/engine.h"

#include <endian.h>
#include <errno.h>

static void set_args(struct careful_am *am, const uint32_t *args)
{
	for (int i = 0; args && i < CAREFUL_AM_ARGS; i++)
		am->args[i] = htobe32(args[i]);
}

int own_payload_bytes(struct careful *c, uint32_t index)
{
	const struct link_peer *peer = engine_peer(c, index);

	if (!peer)
		return -ENOENT;
	if (!link_knows_size(peer))
		return -EAGAIN;
	return (int)(link_body_single(peer) - MESSAGE_AM_BYTES);
}

static int payload_fits(const struct link_peer *peer, uint32_t bytes)
{
	uint32_t most = link_knows_size(peer) ? link_body_single(peer) : link_body_here(peer);

	return bytes <= most - MESSAGE_AM_BYTES ? 0 : -EMSGSIZE;
}

static struct link_peer *usable_peer(struct careful *c, uint32_t index, int *rc)
{
	struct link_peer *peer = engine_peer(c, index);

	*rc = 0;
	if (!peer) {
		*rc = -ENOENT;
	} else if (peer->state == CAREFUL_PEER_FAILED) {
		*rc = link_error(peer) ? -link_error(peer) : -ENOTCONN;
		return NULL;
	}
	return peer;
}

/* Sends a request. lent: the body of a send buffer that contains the payload, or NULL. */
static inline int request(struct careful *c, uint32_t index, uint16_t handler, const uint32_t *args,
			  const void *payload, uint8_t *lent, uint32_t bytes, careful_done_fn *done,
			  void *user)
{
	struct careful_am am = { .kind = CAREFUL_AM_REQUEST, .handler = htobe16(handler) };
	struct operation *op = NULL;
	struct link_peer *peer;
	int rc;

	peer = usable_peer(c, index, &rc);
	if (rc || !peer)
		return rc;
	rc = payload_fits(peer, bytes);
	if (rc)
		return rc;
	if (done) {
		op = operation_new(c, peer, CAREFUL_AM_REQUEST, done, user);
		if (!op)
			return -EAGAIN;
		am.token = htobe32(op->token);
	}
	if (handler == CAREFUL_PROBE)
		am.flags = CAREFUL_AM_ALONE;
	set_args(&am, args);
	rc = lent ? message_small_lent(&c->messages, peer, &am, lent, bytes) :
		    message_small(&c->messages, peer, &am, payload, bytes);
	if (rc && op)
		operation_drop(c, op);
	return rc;
}

int own_request(struct careful *c, uint32_t index, uint16_t handler, const uint32_t *args,
		const void *payload, uint32_t bytes, careful_done_fn *done, void *user)
{
	return request(c, index, handler, args, payload, NULL, bytes, done, user);
}

bool own_may_ask(struct careful *c, uint32_t index, uint32_t bytes)
{
	struct link_peer *peer = engine_peer(c, index);

	return peer && message_small_may(&c->messages, peer, MESSAGE_AM_BYTES + bytes);
}

bool own_may_begin(struct careful *c, uint32_t requests)
{
	return c->operations_free_count >= requests && link_tx_room(&c->link, requests);
}

int own_alloc(struct careful *c, void **payload)
{
	uint8_t *body = link_lend(&c->link);

	if (!body)
		return -EAGAIN;
	*payload = body + MESSAGE_AM_BYTES;
	return (int)(c->link.body_most - MESSAGE_AM_BYTES);
}

/* Returns the body of a payload from careful_alloc(), or NULL for any other memory. */
static uint8_t *body_of(struct careful *c, void *payload)
{
	uint8_t *body;

	if (!payload)
		return NULL;
	body = (uint8_t *)payload - MESSAGE_AM_BYTES;
	return link_is_lent(&c->link, body) ? body : NULL;
}

int own_free(struct careful *c, void *payload)
{
	const uint8_t *body = body_of(c, payload);

	if (!body)
		return -EINVAL;
	link_unlend(&c->link, body);
	return 0;
}

int own_send(struct careful *c, uint32_t index, uint16_t handler, const uint32_t *args,
	     void *payload, uint32_t bytes, careful_done_fn *done, void *user)
{
	uint8_t *body = body_of(c, payload);

	return body ? request(c, index, handler, args, payload, body, bytes, done, user) : -EINVAL;
}

int own_reply(struct careful *c, const struct careful_reply_to *to, int status,
	      const uint32_t *args, const void *payload, uint32_t bytes)
{
	struct careful_am am = {
		.kind = CAREFUL_AM_REPLY,
		.flags = c->handled_alone,
		.token = htobe32(to->token),
		.status = htobe32((uint32_t)(status < 0 ? -status : status)),
	};
	struct link_peer *peer = engine_peer(c, to->peer);
	int rc;

	if (!peer || peer->epoch != to->epoch)
		return -ECONNRESET;
	rc = payload_fits(peer, bytes);
	if (rc)
		return rc;
	set_args(&am, args);
	return message_small(&c->messages, peer, &am, payload, bytes);
}

void engine_denied(struct careful *c, uint32_t n)
{
	link_count_many(&c->link, CAREFUL_C_PATHS_DENIED, n);
}

int own_get(struct careful *c, uint32_t index, uint32_t region, uint64_t region_off,
	    const struct careful_span *local, uint32_t bytes, uint32_t flags, careful_done_fn *done,
	    void *user)
{
	struct careful_am am = {
		.kind = CAREFUL_AM_GET,
		.region = htobe32(region),
		.flags = flags & CAREFUL_NO_DIGEST ? 0 : CAREFUL_AM_WANT_DIGEST,
		.region_off = htobe64(region_off),
		.bytes = htobe32(bytes),
	};
	struct link_peer *peer;
	struct operation *op;
	int rc;

	peer = usable_peer(c, index, &rc);
	if (rc || !peer)
		return rc;
	if (!local->base && !message_may_ask(&c->messages, peer, bytes))
		return -EAGAIN;
	op = operation_new(c, peer, CAREFUL_AM_GET, done, user);
	if (!op)
		return -EAGAIN;
	op->local = *local;
	op->bytes = bytes;
	operation_count_asked(c, op);
	am.token = htobe32(op->token);
	rc = message_small(&c->messages, peer, &am, NULL, 0);
	if (rc)
		operation_drop(c, op);
	return rc;
}

int own_store(struct careful *c, uint32_t index, uint32_t region, uint64_t region_off,
	      const struct careful_span *local, uint32_t bytes, uint16_t handler,
	      const uint32_t *args, uint32_t flags, careful_done_fn *done, void *user)
{
	struct message_out *out;
	struct link_peer *peer;
	struct operation *op;
	int rc;

	peer = usable_peer(c, index, &rc);
	if (rc || !peer)
		return rc;
	if (!message_may_store(&c->messages, peer))
		return -EAGAIN;
	out = message_out_get(&c->messages, peer);
	if (!out)
		return -EAGAIN;
	op = operation_new(c, peer, CAREFUL_AM_STORE, done, user);
	if (!op) {
		message_out_put(&c->messages, out);
		return -EAGAIN;
	}
	op->bytes = bytes;
	op->placing = true; /* the source is read until bulk_sent() */
	out->token = op->token;
	out->source = *local;
	out->bytes = bytes;
	out->digest_wanted = !(flags & CAREFUL_NO_DIGEST);
	out->am = (struct careful_am){
		.kind = CAREFUL_AM_STORE,
		.handler = htobe16(handler),
		.region = htobe32(region),
		.region_off = htobe64(region_off),
	};
	set_args(&out->am, args);
	message_out_start(&c->messages, out);
	live_begin(c, out, op);
	/* Without a token the peer sends no answer. */
	if (done || op->live.began_ns)
		out->am.token = htobe32(op->token);
	return 0;
}
