// SPDX-License-Identifier: BSD-2-Clause
/* The calls of careful.h, which dispatch by the kind of instance (struct engine_ops). */
#include "engine/engine.h"

#include <errno.h>

int careful_close(struct careful *c)
{
	return c->polling ? -EDEADLK : c->ops->close(c);
}

int careful_poll(struct careful *c)
{
	return c->ops->poll(c);
}

int careful_wait_fds(struct careful *c, int *fds, uint32_t n, int *timeout_ms)
{
	return c->ops->wait_fds(c, fds, n, timeout_ms);
}

int careful_info(struct careful *c, struct careful_info *info)
{
	return c->ops->info(c, info);
}

int careful_keys_refresh(struct careful *c, struct careful_error *error)
{
	return c->ops->keys_refresh(c, error);
}

int careful_memory(struct careful *c, uint64_t bytes, void **base)
{
	return bytes ? c->ops->memory(c, bytes, base) : -EINVAL;
}

int careful_peer(struct careful *c, const struct sockaddr *address, uint32_t bytes)
{
	return c->ops->peer(c, address, bytes, 0);
}

int careful_peer_among(struct careful *c, const struct sockaddr *address, uint32_t bytes,
		       uint32_t queues)
{
	return c->ops->peer(c, address, bytes, queues);
}

int careful_peer_close(struct careful *c, uint32_t peer)
{
	return c->ops->peer_close(c, peer);
}

int careful_peer_watch(struct careful *c, careful_peer_fn *fn, void *user)
{
	c->watch = fn;
	c->watch_user = user;
	return 0;
}

int careful_peer_info(struct careful *c, uint32_t peer, struct careful_peer_info *info)
{
	return c->ops->peer_info(c, peer, info);
}

int careful_peer_measure(struct careful *c, uint32_t peer)
{
	return c->ops->peer_measure(c, peer);
}

int careful_peer_whereabouts(struct careful *c, uint32_t peer,
			     struct careful_peer_whereabouts *where)
{
	return c->ops->peer_whereabouts(c, peer, where);
}

int careful_payload_bytes(struct careful *c, uint32_t peer)
{
	return c->ops->payload_bytes(c, peer);
}

static int handle(struct careful *c, uint16_t handler, bool stores, careful_handler_fn *fn,
		  void *user)
{
	struct handler *slots = stores ? c->store_handlers : c->handlers;
	int rc = 0;

	if (handler >= CAREFUL_HANDLERS)
		return -EINVAL;
	if (c->ops->handle && !slots[handler].fn != !fn) /* begins or ends */
		rc = c->ops->handle(c, handler, stores, fn);
	if (!rc)
		slots[handler] = (struct handler){ .fn = fn, .user = user };
	return rc;
}

int careful_handle(struct careful *c, uint16_t handler, careful_handler_fn *fn, void *user)
{
	return handle(c, handler, false, fn, user);
}

int careful_handle_store(struct careful *c, uint16_t handler, careful_handler_fn *fn, void *user)
{
	return handle(c, handler, true, fn, user);
}

int careful_request(struct careful *c, uint32_t peer, uint16_t handler, const uint32_t *args,
		    const void *payload, uint32_t bytes, careful_done_fn *done, void *user)
{
	return c->ops->request(c, peer, handler, args, payload, bytes, done, user);
}

int careful_alloc(struct careful *c, void **payload)
{
	return c->ops->alloc(c, payload);
}

int careful_free(struct careful *c, void *payload)
{
	return c->ops->free(c, payload);
}

int careful_send(struct careful *c, uint32_t peer, uint16_t handler, const uint32_t *args,
		 void *payload, uint32_t bytes, careful_done_fn *done, void *user)
{
	return c->ops->send(c, peer, handler, args, payload, bytes, done, user);
}

/* In an attached program, which has no peers of its own, the epoch is 0: carefuld checks it. */
void careful_reply_name(const struct careful_message *message, struct careful_reply_to *to)
{
	const struct link_peer *peer = engine_peer(message->instance, message->peer);

	*to = (struct careful_reply_to){
		.peer = message->peer,
		.token = message->token,
		.epoch = peer ? peer->epoch : 0,
	};
}

int careful_reply_late(struct careful *c, const struct careful_reply_to *to, int status,
		       const uint32_t *args, const void *payload, uint32_t bytes)
{
	return to->token ? c->ops->reply(c, to, status, args, payload, bytes) : 0;
}

int careful_reply(const struct careful_message *message, int status, const uint32_t *args,
		  const void *payload, uint32_t bytes)
{
	struct careful_reply_to to;

	careful_reply_name(message, &to);
	return careful_reply_late(message->instance, &to, status, args, payload, bytes);
}

struct careful_kept *careful_keep(const struct careful_message *message)
{
	return message->keepable ? message->instance->ops->keep(message) : NULL;
}

const void *careful_kept_payload(struct careful_kept *kept)
{
	return link_held_of(kept)->body + kept->at + sizeof(struct careful_am);
}

void careful_release(struct careful *c, struct careful_kept *kept)
{
	c->ops->release(c, kept);
}

int careful_store(struct careful *c, uint32_t peer, uint32_t region, uint64_t region_off,
		  const struct careful_span *local, uint32_t bytes, uint16_t handler,
		  const uint32_t *args, uint32_t flags, careful_done_fn *done, void *user)
{
	return c->ops->store(c, peer, region, region_off, local, bytes, handler, args, flags, done,
			     user);
}

int careful_get(struct careful *c, uint32_t peer, uint32_t region, uint64_t region_off,
		const struct careful_span *local, uint32_t bytes, uint32_t flags,
		careful_done_fn *done, void *user)
{
	return c->ops->get(c, peer, region, region_off, local, bytes, flags, done, user);
}

int careful_region_add(struct careful *c, const struct careful_region *region, uint32_t *key)
{
	return c->ops->region_add(c, region, key);
}

int careful_region_remove(struct careful *c, uint32_t key)
{
	return c->ops->region_remove(c, key);
}

int careful_ping(struct careful *c, uint32_t peer, const struct careful_ping_ask *ask,
		 careful_ping_fn *done, void *user)
{
	return c->ops->ping(c, peer, ask, done, user);
}

const char *careful_version(void)
{
	return "0.3.0";
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
