/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Fakes the functions of careful.h for the block server and the daemon. Asserts everything that the
 * real ones forbid.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include "fake_careful.h"
#include "engine/sharing.h"
#include "engine/xdp_mode.h"
#include "files/block.h"

struct careful_kept {
	uint32_t bytes;
	unsigned char *payload;
};

struct careful *fake_create(void)
{
	struct careful *c = calloc(1, sizeof(*c));

	assert(c);
	c->keepable = true;
	c->keys = 1000;
	c->payload_bytes = 3700;
	return c;
}

void fake_destroy(struct careful *c)
{
	for (uint32_t i = 0; i < FAKE_TOKENS; i++)
		free(c->answers[i]);
	free(c);
}

uint32_t fake_request(struct careful *c, uint32_t peer, uint16_t handler, const uint32_t *args,
		      const void *payload, uint32_t bytes)
{
	/* A copy of the exact size, so that reads beyond it are found. */
	void *copy = malloc(bytes ? bytes : 1);
	struct careful_message message = {
		.instance = c,
		.peer = peer,
		.handler = handler,
		.keepable = c->keepable,
		.token = c->tokens++,
		.payload = copy,
		.bytes = bytes,
	};

	assert(copy && c->tokens <= FAKE_TOKENS && c->handlers[handler].fn);
	if (bytes)
		memcpy(copy, payload, bytes);
	if (args)
		memcpy(message.args, args, sizeof(message.args));
	c->answers[message.token] = calloc(1, sizeof(struct fake_answer));
	c->handlers[handler].fn(&message, c->handlers[handler].user);
	free(copy);
	return message.token;
}

static void fake_give(struct careful *c, uint32_t token, int status, const uint32_t *args,
		      const void *payload, uint32_t bytes)
{
	struct fake_answer *a;

	assert(token < c->tokens && bytes <= FAKE_PAYLOAD);
	a = c->answers[token];
	assert(!a->given);
	a->given = true;
	a->status = status;
	a->bytes = bytes;
	if (args)
		memcpy(a->args, args, sizeof(a->args));
	if (bytes)
		memcpy(a->payload, payload, bytes);
}

int careful_handle(struct careful *instance, uint16_t handler, careful_handler_fn *fn, void *user)
{
	assert(handler < CAREFUL_HANDLERS);
	instance->handlers[handler].fn = fn;
	instance->handlers[handler].user = user;
	return 0;
}

int careful_handle_store(struct careful *instance, uint16_t handler, careful_handler_fn *fn,
			 void *user)
{
	(void)instance;
	(void)fn;
	(void)user;
	assert(handler < CAREFUL_HANDLERS);
	return 0;
}

/* test_attach.c tests attached programs. */
void engine_each_round(struct careful *c, engine_each_round_fn *fn, void *user)
{
	(void)c;
	(void)fn;
	(void)user;
}

void engine_refuse_store(struct careful *c, int error)
{
	(void)c;
	(void)error;
}

void engine_revoke_region(struct careful *c, uint32_t key)
{
	struct careful_region *region = fake_region(c, key);

	if (region)
		region->access = 0;
}

uint32_t engine_stop_stores(struct careful *c, uint32_t key)
{
	(void)c;
	(void)key;
	return 0;
}

uint32_t engine_stop_gets(struct careful *c, engine_match_fn *whose, const void *of)
{
	(void)c;
	(void)whose;
	(void)of;
	return 0;
}

uint32_t engine_waiting(const struct careful *c, uint32_t peer)
{
	(void)c;
	(void)peer;
	return 0;
}

static void fake_forget_ping(struct careful *c, engine_match_fn *whose, const void *of)
{
	const struct careful_ping_result result = { .status = -ECANCELED };
	careful_ping_fn *done = c->ping.done;

	if (!done || !whose(c->ping.user, of))
		return;
	c->ping.done = NULL;
	done(&result, c->ping.user);
}

void engine_forget(struct careful *c, engine_match_fn *whose, const void *of)
{
	for (uint32_t i = 0; i < 512; i++) {
		struct fake_operation *op = &c->operations[i];
		const struct careful_result result = { .status = -ECANCELED };

		if (op->kind == 'r' && whose(op->user, of)) {
			op->kind = 0;
			op->done(&result, op->user);
		}
	}
	fake_forget_ping(c, whose, of);
}

int careful_peer_whereabouts(struct careful *instance, uint32_t peer,
			     struct careful_peer_whereabouts *where)
{
	(void)instance;
	assert(peer < FAKE_PEERS);
	memset(where, 0, sizeof(*where));
	return 0;
}

int engine_elsewhere(struct careful *instance, uint32_t peer, struct sockaddr_storage *address)
{
	(void)instance;
	assert(peer < FAKE_PEERS);
	*(struct sockaddr_in *)(void *)address = (struct sockaddr_in){
		.sin_family = AF_INET,
		.sin_addr.s_addr = htobe32(0x0a4d0002),
	};
	return 0;
}

uint32_t xdp_mode_qdiscs(struct careful *instance)
{
	(void)instance;
	return 0;
}

bool engine_peer_key(const struct careful *c, uint32_t peer, uint8_t *key)
{
	memcpy(key, c->peer_keys[peer], CAREFUL_SECRET_BYTES);
	return c->peer_keys[peer][0];
}

bool engine_same_host(const struct careful *c, uint32_t a, uint32_t b)
{
	return a == b || c->one_host;
}

int careful_reply(const struct careful_message *message, int status, const uint32_t *args,
		  const void *payload, uint32_t bytes)
{
	fake_give(message->instance, message->token, status, args, payload, bytes);
	return 0;
}

void careful_reply_name(const struct careful_message *message, struct careful_reply_to *to)
{
	to->peer = message->peer;
	to->token = message->token;
	to->epoch = 1;
}

int careful_reply_late(struct careful *instance, const struct careful_reply_to *to, int status,
		       const uint32_t *args, const void *payload, uint32_t bytes)
{
	assert(to->epoch == 1);
	if (instance->reply_errors > 0) {
		instance->reply_errors--;
		return instance->reply_errno;
	}
	instance->answers_late++;
	fake_give(instance, to->token, status, args, payload, bytes);
	return 0;
}

int careful_region_add(struct careful *instance, const struct careful_region *region, uint32_t *key)
{
	assert(instance->keys < FAKE_REGIONS);
	assert(region->peer < FAKE_PEERS || region->peer == CAREFUL_ANY_PEER);
	assert(region->span.base || region->span.fd >= 0);
	*key = instance->keys++;
	instance->regions[*key].used = true;
	instance->regions[*key].region = *region;
	return 0;
}

int careful_region_remove(struct careful *instance, uint32_t key)
{
	assert(key < FAKE_REGIONS && instance->regions[key].used);
	if (instance->busy > 0) {
		instance->busy--;
		return -EBUSY;
	}
	instance->regions[key].used = false;
	return 0;
}

struct careful_region *fake_region(struct careful *c, uint32_t key)
{
	return key < FAKE_REGIONS && c->regions[key].used ? &c->regions[key].region : NULL;
}

void engine_keep_file(struct careful *c, int fd)
{
	assert(fd >= 0);
	c->files_kept++;
}

void engine_lose_file(struct careful *c, int fd)
{
	assert(c->files_kept && fcntl(fd, F_GETFD) >= 0); /* it is still open */
	c->files_kept--;
}

void engine_denied(struct careful *instance, uint32_t n)
{
	instance->denied += n;
}

void engine_moved(struct careful *instance, uint32_t key, uint64_t *read_bytes,
		  uint64_t *written_bytes)
{
	(void)instance;
	(void)key;
	*read_bytes += 3;
	*written_bytes += 2;
}

int careful_info(struct careful *instance, struct careful_info *info)
{
	(void)instance;
	memset(info, 0, sizeof(*info));
	info->peers_max = FAKE_PEERS;
	return 0;
}

struct careful_kept *careful_keep(const struct careful_message *message)
{
	struct careful_kept *kept;

	if (!message->keepable)
		return NULL;
	kept = malloc(sizeof(*kept));
	assert(kept);
	kept->bytes = message->bytes;
	kept->payload = malloc(message->bytes ? message->bytes : 1);
	assert(kept->payload);
	memcpy(kept->payload, message->payload, message->bytes);
	message->instance->kept++;
	return kept;
}

const void *careful_kept_payload(struct careful_kept *kept)
{
	return kept->payload;
}

void careful_release(struct careful *instance, struct careful_kept *kept)
{
	instance->kept--;
	free(kept->payload);
	free(kept);
}

/* Operations to a peer, for the daemon. */

static int fake_begin(struct careful *c, const struct fake_operation *template, const void *payload)
{
	if (c->begin_errno && !c->room)
		return c->begin_errno;
	for (uint32_t i = 0; i < 512; i++) {
		struct fake_operation *op = &c->operations[i];

		if (op->kind)
			continue;
		*op = *template;
		if (payload)
			memcpy(op->payload, payload, op->payload_bytes);
		c->room -= c->room > 0;
		return 0;
	}
	return -EAGAIN;
}

int careful_request(struct careful *instance, uint32_t peer, uint16_t handler, const uint32_t *args,
		    const void *payload, uint32_t bytes, careful_done_fn *done, void *user)
{
	struct fake_operation op = {
		.kind = 'r',
		.peer = peer,
		.handler = handler,
		.payload_bytes = bytes,
		.done = done,
		.user = user,
	};

	if (bytes > FAKE_PAYLOAD)
		return -EMSGSIZE;
	if (args)
		memcpy(op.args, args, sizeof(op.args));
	if (!done) {
		instance->unanswered += !instance->begin_errno;
		return instance->begin_errno;
	}
	return fake_begin(instance, &op, payload);
}

int careful_ping(struct careful *instance, uint32_t peer, const struct careful_ping_ask *ask,
		 careful_ping_fn *done, void *user)
{
	if (instance->begin_errno)
		return instance->begin_errno;
	if (instance->ping.done)
		return -EAGAIN;
	instance->ping.ask = *ask;
	instance->ping.peer = peer;
	instance->ping.done = done;
	instance->ping.user = user;
	return 0;
}

int careful_peer_measure(struct careful *instance, uint32_t peer)
{
	if (instance->begin_errno)
		return instance->begin_errno;
	instance->measured[peer]++;
	return 0;
}

int careful_poll(struct careful *instance)
{
	struct careful_result result = { .status = instance->poll_status, .args = { 0, 7 } };
	int n = 0;

	instance->polls++;
	for (uint32_t i = 0; i < 512 && instance->answering; i++) {
		struct fake_operation op;

		if (!instance->operations[i].kind)
			continue;
		op = instance->operations[i];
		instance->operations[i].kind = 0;
		op.done(&result, op.user);
		n++;
	}
	return n;
}

int careful_store(struct careful *instance, uint32_t peer, uint32_t region, uint64_t region_off,
		  const struct careful_span *local, uint32_t bytes, uint16_t handler,
		  const uint32_t *args, uint32_t flags, careful_done_fn *done, void *user)
{
	struct fake_operation op = {
		.kind = 's',
		.peer = peer,
		.region = region,
		.region_off = region_off,
		.span = *local,
		.bytes = bytes,
		.handler = handler,
		.done = done,
		.user = user,
	};

	(void)flags;
	if (args)
		memcpy(op.args, args, sizeof(op.args));
	return fake_begin(instance, &op, NULL);
}

int careful_get(struct careful *instance, uint32_t peer, uint32_t region, uint64_t region_off,
		const struct careful_span *local, uint32_t bytes, uint32_t flags,
		careful_done_fn *done, void *user)
{
	struct fake_operation op = {
		.kind = 'g',
		.peer = peer,
		.region = region,
		.region_off = region_off,
		.span = *local,
		.bytes = bytes,
		.done = done,
		.user = user,
	};

	(void)flags;
	return fake_begin(instance, &op, NULL);
}

int careful_payload_bytes(struct careful *instance, uint32_t peer)
{
	(void)peer;
	return instance->payload_bytes;
}

int careful_peer(struct careful *instance, const struct sockaddr *address, uint32_t bytes)
{
	if (bytes < sizeof(*address))
		return -EINVAL;
	if (instance->peer_errno)
		return instance->peer_errno;
	for (int i = 0; i < FAKE_PEERS; i++) {
		if (instance->peers[i].state != CAREFUL_PEER_NONE)
			continue;
		memset(&instance->peers[i], 0, sizeof(instance->peers[i]));
		memcpy(&instance->peers[i].address, address, bytes);
		instance->peers[i].state = CAREFUL_PEER_CONNECTING;
		return i;
	}
	return -EADDRINUSE;
}

int careful_peer_among(struct careful *instance, const struct sockaddr *address, uint32_t bytes,
		       uint32_t queues)
{
	instance->among = queues;
	return careful_peer(instance, address, bytes);
}

int careful_peer_moved(struct careful *instance, uint32_t peer, uint32_t *queue, uint32_t *port)
{
	if (instance->peers[peer].last_errno != EREMCHG)
		return -ENOENT;
	*queue = instance->moved[0];
	*port = instance->moved[1];
	return 0;
}

int careful_peer_close(struct careful *instance, uint32_t peer)
{
	assert(peer < FAKE_PEERS);
	if (instance->peers[peer].state == CAREFUL_PEER_NONE)
		return -ENOENT;
	instance->peers[peer].state = CAREFUL_PEER_NONE;
	if (instance->watch)
		instance->watch(instance, peer, CAREFUL_PEER_NONE, instance->watch_user);
	return 0;
}

int careful_peer_info(struct careful *instance, uint32_t peer, struct careful_peer_info *info)
{
	if (peer >= FAKE_PEERS || instance->peers[peer].state == CAREFUL_PEER_NONE)
		return -ENOENT;
	*info = instance->peers[peer];
	return 0;
}

int careful_peer_watch(struct careful *instance, careful_peer_fn *fn, void *user)
{
	instance->watch = fn;
	instance->watch_user = user;
	return 0;
}
