// SPDX-License-Identifier: BSD-2-Clause
/*
 * What an attached program has beside messages and moves: messages that it keeps, and pings. Calls
 * attach_ring.c.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <careful/wire.h>

#include "service/attach.h"

/* A copy: the ring's place is the next message's, and its credit went back when carefuld told. */
struct careful_kept *attached_keep(const struct careful_message *message)
{
	struct careful_kept *kept;
	uint8_t *body;

	if (!message->keepable)
		return NULL;
	kept = calloc(1, sizeof(*kept) + sizeof(struct careful_am) + message->bytes);
	if (!kept)
		return NULL;
	body = (uint8_t *)(kept + 1);
	if (message->bytes)
		memcpy(body + sizeof(struct careful_am), message->payload, message->bytes);
	kept->body = body;
	kept->body_bytes = (uint32_t)sizeof(struct careful_am) + message->bytes;
	return kept;
}

void attached_release(struct careful_kept *kept)
{
	free(kept);
}

/* What an own queue refuses at once with -EAGAIN, done hears here. */
int attached_ping(struct careful *c, uint32_t peer, const struct careful_ping_ask *ask,
		  careful_ping_fn *done, void *user)
{
	const struct careful_ring_entry entry = {
		.kind = CAREFUL_RING_PING,
		.peer = peer,
		.args = { ask->stage, ask->ttl, ask->timeout_ms, ask->bytes },
	};

	return attached_probe(c, &entry, done, user);
}

/* What carefuld says of a ping; of one that did not begin, or whose answer is none, the status. */
void attached_ping_ended(careful_ping_fn *done, void *user, int status, const void *payload,
			 uint32_t bytes)
{
	struct careful_ping_result result = { .status = status };

	if (payload && bytes == sizeof(result))
		memcpy(&result, payload, sizeof(result));
	done(&result, user);
}
