// SPDX-License-Identifier: BSD-2-Clause
/* See door.h. Calls peer.c. */
#include "link/link.h"

#include <sodium/crypto_shorthash.h>

static bool take(struct link *link, uint64_t *due_ns, uint32_t rate, uint32_t burst)
{
	uint64_t interval_ns = 1000000000u / rate;

	if (*due_ns >= link->now_ns + burst * interval_ns) {
		link_count(link, CAREFUL_C_CTRL_LIMITED);
		return false;
	}
	*due_ns = (*due_ns > link->now_ns ? *due_ns : link->now_ns) + interval_ns;
	return true;
}

bool door_answers(struct link *link)
{
	return take(link, &link->door.answers_ns, DOOR_ANSWERS, DOOR_ANSWERS_BURST);
}

/* Which addresses share a place is not known to those who choose theirs. */
static uint32_t place_of(const struct link *link, const union address *from)
{
	bool ipv4 = from->sa.sa_family == AF_INET;
	const void *host = ipv4 ? (const void *)&from->in.sin_addr : &from->in6.sin6_addr;
	uint64_t hash;

	_Static_assert(crypto_shorthash_BYTES == sizeof(hash), "hash size");
	crypto_shorthash((uint8_t *)&hash, host,
			 ipv4 ? sizeof(from->in.sin_addr) : sizeof(from->in6.sin6_addr),
			 link->secret);
	return (uint32_t)(hash % DOOR_SOURCES);
}

bool door_admits(struct link *link, const union address *from)
{
	const struct link_peer *peer = link_peer_find(link, from);
	uint64_t *due_ns = peer ? &peer->session->proved_ns :
				  &link->door.proved_ns[place_of(link, from)];

	return take(link, due_ns, DOOR_PROVED, DOOR_PROVED_BURST);
}

void door_close(struct link *link, const union address *host)
{
	link->door.closed[place_of(link, host)]++;
}

uint32_t door_closed(const struct link *link, const union address *host)
{
	return link->door.closed[place_of(link, host)];
}
