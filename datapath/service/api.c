// SPDX-License-Identifier: BSD-2-Clause
/*
 * What careful.h offers for moving data: requests, replies, stores and gets. Calls
 * operation.c, peers.c, live.c, attach.c, attach_ring.c, message's out.c and small.c, link's tx.c
 * and lend.c.
 */
#include "service/attach.h"
#include "service/engine.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

static void args_to(struct careful_am *am, const uint32_t *args)
{
	for (int i = 0; args && i < CAREFUL_AM_ARGS; i++)
		am->args[i] = htobe32(args[i]);
}

int careful_handle(struct careful *c, uint16_t handler, careful_handler_fn *fn, void *user)
{
	if (handler >= CAREFUL_HANDLERS)
		return -EINVAL;
	if (c->attached && !c->handlers[handler].fn != !fn) {
		int rc = attached_handle(c, handler, CAREFUL_IPC_OF_REQUESTS, fn);

		if (rc)
			return rc;
	}
	c->handlers[handler] = (struct handler){ .fn = fn, .user = user };
	return 0;
}

int careful_handle_store(struct careful *c, uint16_t handler, careful_handler_fn *fn, void *user)
{
	if (handler >= CAREFUL_HANDLERS)
		return -EINVAL;
	if (c->attached && !c->store_handlers[handler].fn != !fn) {
		int rc = attached_handle(c, handler, CAREFUL_IPC_OF_STORES, fn);

		if (rc)
			return rc;
	}
	c->store_handlers[handler] = (struct handler){ .fn = fn, .user = user };
	return 0;
}

int careful_payload_bytes(struct careful *c, uint32_t index)
{
	struct careful_ipc_peer found;
	struct link_peer *peer;
	int rc;

	if (c->attached) {
		rc = attached_peer_info(c, index, &found);
		return rc ? rc : found.payload_bytes;
	}
	peer = engine_peer(c, index);
	if (!peer)
		return -ENOENT;
	if (!link_knows(peer))
		return -EAGAIN;
	return (int)(link_body_single(peer) - MESSAGE_AM_BYTES);
}

static int payload_fits(const struct link_peer *peer, uint32_t bytes)
{
	uint32_t most = link_knows(peer) ? link_body_single(peer) : link_body_here(peer);

	return bytes <= most - MESSAGE_AM_BYTES ? 0 : -EMSGSIZE;
}

static struct link_peer *live_peer(struct careful *c, uint32_t index, int *rc)
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

/* lent: the body of a send buffer in which the payload stands already; or NULL. */
static inline int request(struct careful *c, uint32_t index, uint16_t handler, const uint32_t *args,
			  const void *payload, uint8_t *lent, uint32_t bytes, careful_done_fn *done,
			  void *user)
{
	struct careful_am am = { .kind = CAREFUL_AM_REQUEST, .handler = htobe16(handler) };
	struct operation *op = NULL;
	struct link_peer *peer;
	int rc;

	peer = live_peer(c, index, &rc);
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
	args_to(&am, args);
	rc = lent ? message_small_lent(&c->messages, peer, &am, lent, bytes) :
		    message_small(&c->messages, peer, &am, payload, bytes);
	if (rc && op)
		operation_drop(c, op);
	return rc;
}

int careful_request(struct careful *c, uint32_t index, uint16_t handler, const uint32_t *args,
		    const void *payload, uint32_t bytes, careful_done_fn *done, void *user)
{
	if (c->attached)
		return attached_request(c, index, handler, args, payload, bytes, done, user);
	return request(c, index, handler, args, payload, NULL, bytes, done, user);
}

int careful_alloc(struct careful *c, void **payload)
{
	uint8_t *body;

	if (c->attached)
		return attached_alloc(c, payload);
	body = link_lend(&c->link);
	if (!body)
		return -EAGAIN;
	*payload = body + MESSAGE_AM_BYTES;
	return (int)(c->link.body_most - MESSAGE_AM_BYTES);
}

/* The body of what careful_alloc() gave; NULL: it is not the application's. */
static uint8_t *body_of(struct careful *c, void *payload)
{
	uint8_t *body;

	if (!payload)
		return NULL;
	body = (uint8_t *)payload - MESSAGE_AM_BYTES;
	return link_is_lent(&c->link, body) ? body : NULL;
}

int careful_free(struct careful *c, void *payload)
{
	const uint8_t *body;

	if (c->attached)
		return attached_free(c, payload);
	body = body_of(c, payload);
	if (!body)
		return -EINVAL;
	link_unlend(&c->link, body);
	return 0;
}

int careful_send(struct careful *c, uint32_t index, uint16_t handler, const uint32_t *args,
		 void *payload, uint32_t bytes, careful_done_fn *done, void *user)
{
	uint8_t *body;
	int built;

	if (c->attached) {
		built = attached_built(c->attached, payload);
		return built < 0 ? built :
				   attached_send(c, index, handler, args, (uint32_t)built, bytes,
						 done, user);
	}
	body = body_of(c, payload);
	if (!body)
		return -EINVAL;
	return request(c, index, handler, args, payload, body, bytes, done, user);
}

void careful_reply_name(const struct careful_message *message, struct careful_reply_to *to)
{
	struct careful *c = message->instance;
	struct link_peer *peer = c->attached ? NULL : engine_peer(c, message->peer);

	*to = (struct careful_reply_to){
		.peer = message->peer,
		.token = message->token,
		.epoch = peer ? peer->epoch : 0,
	};
}

int careful_reply_late(struct careful *c, const struct careful_reply_to *to, int status,
		       const uint32_t *args, const void *payload, uint32_t bytes)
{
	struct careful_am am = {
		.kind = CAREFUL_AM_REPLY,
		.flags = c->handled_alone,
		.token = htobe32(to->token),
		.status = htobe32((uint32_t)(status < 0 ? -status : status)),
	};
	struct link_peer *peer;
	int rc;

	if (c->attached)
		return attached_reply(c, to, status, args, payload, bytes);
	if (!to->token)
		return 0;
	peer = engine_peer(c, to->peer);
	if (!peer || peer->epoch != to->epoch)
		return -ECONNRESET;
	rc = payload_fits(peer, bytes);
	if (rc)
		return rc;
	args_to(&am, args);
	return message_small(&c->messages, peer, &am, payload, bytes);
}

void engine_denied(struct careful *c, uint32_t n)
{
	c->link.counters[CAREFUL_C_PATHS_DENIED] += n;
}

int careful_reply(const struct careful_message *message, int status, const uint32_t *args,
		  const void *payload, uint32_t bytes)
{
	struct careful_reply_to to;

	careful_reply_name(message, &to);
	return careful_reply_late(message->instance, &to, status, args, payload, bytes);
}

int careful_get(struct careful *c, uint32_t index, uint32_t region, uint64_t region_off,
		const struct careful_span *local, uint32_t bytes, uint32_t flags,
		careful_done_fn *done, void *user)
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

	if (c->attached) {
		const struct careful_ring_entry asked = {
			.kind = CAREFUL_RING_GET,
			.peer = index,
			.region = region,
			.region_off = region_off,
			.bytes = bytes,
			.flags = flags,
		};

		return attached_move(c, &asked, local, done, user);
	}
	peer = live_peer(c, index, &rc);
	if (rc || !peer)
		return rc;
	if (!local->base && !message_may_ask(&c->messages, peer, bytes))
		return -EAGAIN;
	op = operation_new(c, peer, CAREFUL_AM_GET, done, user);
	if (!op)
		return -EAGAIN;
	op->local = *local;
	op->bytes = bytes;
	operation_asks(c, op);
	am.token = htobe32(op->token);
	rc = message_small(&c->messages, peer, &am, NULL, 0);
	if (rc)
		operation_drop(c, op);
	return rc;
}

int careful_store(struct careful *c, uint32_t index, uint32_t region, uint64_t region_off,
		  const struct careful_span *local, uint32_t bytes, uint16_t handler,
		  const uint32_t *args, uint32_t flags, careful_done_fn *done, void *user)
{
	struct message_out *out;
	struct link_peer *peer;
	struct operation *op;
	int rc;

	if (c->attached) {
		struct careful_ring_entry asked = {
			.kind = CAREFUL_RING_STORE,
			.peer = index,
			.handler = handler,
			.region = region,
			.region_off = region_off,
			.bytes = bytes,
			.flags = flags,
		};

		if (args)
			memcpy(asked.args, args, sizeof(asked.args));
		return attached_move(c, &asked, local, done, user);
	}
	peer = live_peer(c, index, &rc);
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
	op->placing = true; /* the source is read until am_sent() */
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
	args_to(&out->am, args);
	message_out_start(&c->messages, out);
	live_begin(c, out, op);
	/* An answer that nobody waits for would be a frame more. */
	if (done || op->live.began_ns)
		out->am.token = htobe32(op->token);
	return 0;
}

uint32_t careful_wire_hdr_check(const void *hdr)
{
	return careful_hdr_check(hdr);
}

uint32_t careful_wire_message_check(const void *message, uint32_t bytes)
{
	return careful_message_check(message, bytes);
}

uint32_t careful_wire_crc32c(const void *data, uint32_t bytes)
{
	return link_crc32c(data, bytes);
}
