/* SPDX-License-Identifier: BSD-2-Clause */
/* Requests of the memory service, and their answers. */
#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "lend/private.h"

/* A parsed request; hosts and name lie in the message. */
struct ask {
	const struct careful_message *message;
	struct careful_memory_host who, owner; /* who asks, and the owner that it names */
	uint64_t bytes;
	uint32_t hosts_count, name_bytes;
	const uint8_t *hosts;
	const char *name;
};

static int try_reply(struct lend_server *server, const struct lend_answer *answer)
{
	int rc = careful_reply_late(server->instance, &answer->to, answer->status, answer->args,
				    answer->payload, answer->bytes);

	if (rc == -EMSGSIZE)
		rc = careful_reply_late(server->instance, &answer->to, -EMSGSIZE, NULL, NULL, 0);
	return rc;
}

/* Answers a request now, or when the engine has room. */
static void reply(struct lend_server *server, const struct careful_reply_to *to, int status,
		  uint32_t arg, const void *payload, uint32_t bytes)
{
	struct lend_peer *peer = &server->peers[to->peer];
	struct lend_answer *answer = malloc(sizeof(*answer) + bytes);

	if (!answer)
		return;
	*answer = (struct lend_answer){
		.to = *to,
		.status = status,
		.args = { arg },
		.bytes = status ? 0 : bytes,
	};
	if (bytes)
		memcpy(answer->payload, payload, bytes);
	if (peer->answers >= LEND_ANSWERS_PEER || try_reply(server, answer) != -EAGAIN) {
		free(answer);
		return;
	}
	peer->answers++;
	*server->answers_tail = answer;
	server->answers_tail = &answer->next;
}

void lend_answer_retry(struct lend_server *server)
{
	struct lend_answer **at = &server->answers, *answer;

	while ((answer = *at)) {
		if (try_reply(server, answer) == -EAGAIN) {
			at = &answer->next;
			continue;
		}
		*at = answer->next;
		server->peers[answer->to.peer].answers--;
		free(answer);
	}
	server->answers_tail = at;
}

/* Returns the access that a host has to a piece; 0: the host must not see the piece. */
static uint32_t access_of(const struct lend_piece *piece, const struct careful_memory_host *host)
{
	uint32_t access = 0;

	if (piece->state != LEND_READY && piece->state != LEND_FILLING)
		return 0;
	if (lend_same(&piece->owner, host))
		return CAREFUL_MEMORY_READ | CAREFUL_MEMORY_WRITE;
	for (uint32_t i = 0; i < piece->hosts_count; i++)
		if (piece->hosts[i].by == htobe32(CAREFUL_MEMORY_ANY) ||
		    lend_same(&piece->hosts[i], host))
			access |= be32toh(piece->hosts[i].access);
	return access;
}

static struct careful_memory_piece describe(const struct lend_piece *piece,
					    const struct careful_memory_host *host)
{
	struct careful_memory_piece description = {
		.bytes = htobe64(piece->bytes),
		.number = htobe32(piece->number),
		.access = htobe32(access_of(piece, host)),
		.page_bytes = htobe32(piece->page_bytes),
		.name_bytes = htobe32(piece->name_bytes),
		.owner = piece->owner,
	};

	description.owner.access = htobe32(lend_same(&piece->owner, host));
	return description;
}

/* Opens a piece for the peer of a request and answers it. */
static void reply_open(struct lend_server *server, struct lend_piece *piece,
		       const struct careful_reply_to *to)
{
	const struct careful_memory_host *host = &server->peers[to->peer].host;
	struct careful_memory_piece description = describe(piece, host);
	uint32_t key = 0;
	int rc = lend_piece_open(piece, to->peer, access_of(piece, host), &key);

	reply(server, to, rc, key, &description, sizeof(description));
}

void lend_created(struct lend_piece *piece)
{
	struct lend_server *server = piece->server;
	const struct lend_peer *peer = &server->peers[piece->peer];
	const bool asked = piece->asked && peer->present && lend_same(&peer->host, &piece->owner);

	piece->asked = false;
	if (asked && piece->status)
		reply(server, &piece->to, piece->status, 0, NULL, 0);
	if (piece->status) {
		lend_piece_free(piece);
		return;
	}
	piece->state = LEND_READY;
	if (asked)
		reply_open(server, piece, &piece->to);
}

void lend_deleted(struct lend_piece *piece)
{
	if (piece->asked)
		reply(piece->server, &piece->to, 0, 0, NULL, 0);
	lend_piece_free(piece);
}

/* Finds the piece that a request names. The asking host's own piece comes before others. Returns 0,
 * -ENOENT or -ENOTUNIQ. */
static int find(struct lend_server *server, const struct ask *ask, struct lend_piece **piece)
{
	const bool any_owner = ask->owner.by == htobe32(CAREFUL_MEMORY_ANY);
	bool is_unique = true;

	*piece = NULL;
	for (struct lend_piece *p = server->pieces; p; p = p->next) {
		if (p->name_bytes != ask->name_bytes ||
		    memcmp(p->name, ask->name, ask->name_bytes) != 0 || !access_of(p, &ask->who) ||
		    (!any_owner && !lend_same(&p->owner, &ask->owner)))
			continue;
		is_unique = is_unique && !*piece;
		*piece = p;
		if (lend_same(&p->owner, &ask->who))
			return 0;
	}
	if (!*piece)
		return -ENOENT;
	return is_unique ? 0 : -ENOTUNIQ;
}

/* Returns the asking host's own piece of the name, or NULL. */
static struct lend_piece *find_own(struct lend_server *server, const struct ask *ask)
{
	struct ask own = *ask;
	struct lend_piece *piece;

	own.owner = ask->who;
	find(server, &own, &piece);
	return piece;
}

static int check_name(const struct ask *ask)
{
	if (!ask->name_bytes || ask->name_bytes > CAREFUL_MEMORY_NAME_BYTES)
		return -EINVAL;
	for (uint32_t i = 0; i < ask->name_bytes; i++)
		if ((uint8_t)ask->name[i] < ' ' || ask->name[i] == 0x7f)
			return -EINVAL;
	return 0;
}

static uint64_t rest(uint64_t most, uint64_t used)
{
	return most > used ? most - used : 0;
}

/* Checks that there is room for a piece. Returns 0, and the bytes to map for it, or -errno. */
static int check_room(const struct lend_server *server, const struct ask *ask, uint64_t *mapped)
{
	uint64_t used, of_host, of_all;
	uint32_t pieces;

	if (!ask->bytes || ask->hosts_count > CAREFUL_MEMORY_HOSTS)
		return -EINVAL;
	lend_piece_count(server, &ask->who, &used, &pieces);
	of_host = rest(server->options.host_bytes, used);
	of_all = rest(server->options.bytes, server->used);
	*mapped = lend_piece_mapped(ask->bytes, of_host < of_all ? of_host : of_all);
	if (pieces >= LEND_PIECES_HOST || *mapped > of_host)
		return -EDQUOT;
	return server->pieces_count >= LEND_PIECES || *mapped > of_all ? -ENOSPC : 0;
}

/* Begins a CREATE. Returns 0 if it is answered now or later, -errno if the caller must answer. */
static int create(struct lend_server *server, const struct ask *ask,
		  const struct careful_reply_to *to)
{
	const uint32_t *args = ask->message->args;
	const uint64_t attempt = (uint64_t)args[0] << 32 | args[1];
	struct lend_piece *piece = find_own(server, ask);
	uint64_t mapped = 0;
	int rc;

	if (piece && (!attempt || piece->attempt != attempt))
		return -EEXIST;
	if (piece && piece->state == LEND_READY) {
		reply_open(server, piece, to);
		return 0;
	}
	rc = piece ? 0 : check_room(server, ask, &mapped);
	if (rc)
		return rc;
	if (!piece) {
		piece = lend_piece_create(server, ask->bytes, mapped);
		if (!piece)
			return -ENOMEM;
		piece->owner = ask->who;
		piece->attempt = attempt;
		piece->hosts_count = ask->hosts_count;
		memcpy(piece->hosts, ask->hosts, ask->hosts_count * sizeof(piece->hosts[0]));
		piece->name_bytes = ask->name_bytes;
		memcpy(piece->name, ask->name, ask->name_bytes);
		pool_put(&server->pool, &server->peers[to->peer].fills, &piece->pooled);
	}
	if (piece->asked)
		reply(server, &piece->to, -ECANCELED, 0, NULL, 0);
	piece->to = *to;
	piece->peer = to->peer;
	piece->asked = true;
	return 0;
}

static int delete (struct lend_server *server, const struct ask *ask,
		   const struct careful_reply_to *to)
{
	struct lend_piece *piece = find_own(server, ask);

	if (!piece)
		return -ENOENT;
	if (piece->state == LEND_FILLING)
		return -EAGAIN;
	piece->to = *to;
	piece->asked = true;
	lend_piece_end(piece);
	return 0;
}

static void list(struct lend_server *server, const struct careful_message *message,
		 const struct careful_memory_host *who, const struct careful_reply_to *to)
{
	static uint8_t entries[16384];
	int payload_max = careful_payload_bytes(server->instance, message->peer);
	const uint32_t room = payload_max < 0			 ? 0 :
			      payload_max < (int)sizeof(entries) ? (uint32_t)payload_max :
								   (uint32_t)sizeof(entries);
	uint32_t used = 0;
	bool more = false;

	for (const struct lend_piece *p = server->pieces; p && !more; p = p->next) {
		struct careful_memory_piece entry = describe(p, who);
		const uint32_t bytes = (uint32_t)(sizeof(entry) + p->name_bytes + 7) / 8 * 8;

		if (p->number <= message->args[0] || !entry.access || p->state != LEND_READY)
			continue;
		more = bytes > room - used;
		if (more)
			break;
		memset(entries + used, 0, bytes);
		memcpy(entries + used, &entry, sizeof(entry));
		memcpy(entries + used + sizeof(entry), p->name, p->name_bytes);
		used += bytes;
	}
	reply(server, to, 0, more, entries, used);
}

static void reply_room(struct lend_server *server, const struct careful_memory_host *who,
		       const struct careful_reply_to *to)
{
	struct careful_memory_room room;
	uint64_t mine;
	uint32_t pieces;

	lend_piece_count(server, who, &mine, &pieces);
	room = (struct careful_memory_room){
		.bytes = htobe64(server->options.bytes),
		.free = htobe64(server->options.bytes - server->used),
		.mine = htobe64(mine),
		.mine_most = htobe64(server->options.host_bytes),
		.pieces = htobe32(pieces),
		.pieces_most = htobe32(LEND_PIECES_HOST),
		.keep_ms = htobe32(server->options.keep_ms),
	};
	reply(server, to, 0, 0, &room, sizeof(room));
}

static int parse(struct ask *ask)
{
	const struct careful_message *message = ask->message;
	const uint8_t *payload = message->payload;
	struct careful_memory_ask head;
	uint64_t hosts_bytes;

	if (message->bytes < sizeof(head))
		return -EINVAL;
	memcpy(&head, payload, sizeof(head));
	ask->owner = head.owner;
	ask->bytes = be64toh(head.bytes);
	ask->hosts_count = be32toh(head.hosts);
	ask->name_bytes = be32toh(head.name_bytes);
	hosts_bytes = ask->hosts_count * (uint64_t)sizeof(struct careful_memory_host);
	if (hosts_bytes + ask->name_bytes > message->bytes - sizeof(head))
		return -EINVAL;
	ask->hosts = payload + sizeof(head);
	ask->name = (const char *)payload + sizeof(head) + hosts_bytes;
	return check_name(ask);
}

void lend_wait_poll(struct lend_server *server)
{
	const uint64_t now_ns = clock_now_ns();
	struct lend_wait **at = &server->waits, *wait;

	if (now_ns < server->waits_due_ns)
		return;
	server->waits_due_ns = UINT64_MAX;
	while ((wait = *at)) {
		const struct lend_piece *p = server->pieces;

		while (p && p->number != wait->number)
			p = p->next;
		if (p && p->state == LEND_READY && p->notified == wait->seen &&
		    now_ns < wait->until_ns) {
			if (server->waits_due_ns > wait->until_ns)
				server->waits_due_ns = wait->until_ns;
			at = &wait->next;
			continue;
		}
		reply(server, &wait->to, p ? 0 : -ENOENT, p ? p->notified : 0, NULL, 0);
		server->peers[wait->to.peer].waits--;
		*at = wait->next;
		free(wait);
	}
}

/* Begins a WAIT. Returns 0 if it is answered later, -errno if the caller must answer. */
static int wait_for(struct lend_server *server, const struct ask *ask,
		    const struct lend_piece *piece, const struct careful_reply_to *to)
{
	const uint32_t *args = ask->message->args;
	struct lend_peer *peer = &server->peers[to->peer];
	struct lend_wait *wait;

	if (peer->waits >= LEND_WAITS_PEER)
		return -EAGAIN;
	wait = malloc(sizeof(*wait));
	if (!wait)
		return -ENOMEM;
	*wait = (struct lend_wait){
		.next = server->waits,
		.to = *to,
		.number = piece->number,
		.seen = args[0],
		.until_ns = clock_in_ms(args[1] < LEND_WAIT_MS ? args[1] : LEND_WAIT_MS),
	};
	server->waits = wait;
	server->waits_due_ns = 0;
	peer->waits++;
	return 0;
}

/* Serves OPEN, STAT, WAIT and NOTIFY. */
static int serve_existing(struct lend_server *server, const struct ask *ask,
			  const struct careful_reply_to *to)
{
	struct careful_memory_piece description;
	struct lend_piece *piece;
	int rc = find(server, ask, &piece);

	if (rc)
		return rc;
	if (piece->state == LEND_FILLING)
		return -EAGAIN;
	switch (ask->message->handler) {
	case CAREFUL_MEMORY_OPEN:
		reply_open(server, piece, to);
		return 0;
	case CAREFUL_MEMORY_WAIT:
		return wait_for(server, ask, piece, to);
	case CAREFUL_MEMORY_NOTIFY:
		if (!(access_of(piece, &ask->who) & CAREFUL_MEMORY_WRITE))
			return -EACCES;
		server->waits_due_ns = 0;
		reply(server, to, 0, ++piece->notified, NULL, 0);
		return 0;
	default:
		description = describe(piece, &ask->who);
		reply(server, to, 0, 0, &description, sizeof(description));
		return 0;
	}
}

void lend_on_request(const struct careful_message *message, void *user)
{
	struct lend_server *server = user;
	struct careful_reply_to to;
	struct ask ask = { .message = message };
	int rc;

	assert(message->peer < server->peers_count);
	lend_meet(server, message->peer);
	ask.who = server->peers[message->peer].host;
	careful_reply_name(message, &to);
	if (message->handler == CAREFUL_MEMORY_LIST) {
		list(server, message, &ask.who, &to);
		return;
	}
	if (message->handler == CAREFUL_MEMORY_STAT && !message->bytes) {
		reply_room(server, &ask.who, &to);
		return;
	}
	rc = parse(&ask);
	if (!rc && message->handler == CAREFUL_MEMORY_CREATE)
		rc = create(server, &ask, &to);
	else if (!rc && message->handler == CAREFUL_MEMORY_DELETE)
		rc = delete (server, &ask, &to);
	else if (!rc)
		rc = serve_existing(server, &ask, &to);
	if (rc)
		reply(server, &to, rc, 0, NULL, 0);
}
