// SPDX-License-Identifier: BSD-2-Clause
#include "link/link_private.h"

#include <sodium/crypto_shorthash.h>

static bool take_token(struct link *link, uint64_t *due_ns, uint32_t rate, uint32_t burst)
{
	uint64_t interval_ns = 1000000000u / rate;

	if (*due_ns >= link->now_ns + burst * interval_ns) {
		link_count(link, CAREFUL_C_CTRL_LIMITED);
		return false;
	}
	*due_ns = (*due_ns > link->now_ns ? *due_ns : link->now_ns) + interval_ns;
	return true;
}

/* Returns the index of an address. The hash is secret, so a host cannot choose an address that
 * shares the index of another host. */
static uint32_t index_of(const struct link *link, const union address *from)
{
	bool ipv4 = from->sa.sa_family == AF_INET;
	const void *host = ipv4 ? (const void *)&from->in.sin_addr : &from->in6.sin6_addr;
	uint64_t hash;

	_Static_assert(crypto_shorthash_BYTES == sizeof(hash), "hash size");
	crypto_shorthash((uint8_t *)&hash, host,
			 ipv4 ? sizeof(from->in.sin_addr) : sizeof(from->in6.sin6_addr),
			 link->secret);
	return (uint32_t)(hash % RATE_LIMIT_SOURCES);
}

bool rate_limit_answer(struct link *link, const union address *to)
{
	struct rate_limit *limit = &link->limit;

	return take_token(link, &limit->asked_ns[index_of(link, to)], RATE_LIMIT_ANSWERS_HOST,
			  RATE_LIMIT_ANSWERS_HOST_BURST) &&
	       take_token(link, &limit->answers_ns[to->sa.sa_family == AF_INET6],
			  RATE_LIMIT_ANSWERS, RATE_LIMIT_ANSWERS_BURST);
}

bool rate_limit_handshake(struct link *link, const union address *from)
{
	const struct link_peer *peer = link_peer_find(link, from);
	uint64_t *due_ns = peer ? &peer->session->proved_ns :
				  &link->limit.proved_ns[index_of(link, from)];

	return take_token(link, due_ns, RATE_LIMIT_PROVED, RATE_LIMIT_PROVED_BURST);
}

/* Returns how many of the frames fit the rest of the burst. */
static uint32_t fit_burst(const struct link *link, uint64_t due_ns, uint32_t frames,
			  uint64_t frame_ns, uint64_t burst_ns)
{
	uint64_t ahead_ns = due_ns > link->now_ns ? due_ns - link->now_ns : 0;
	uint64_t frames_max = ahead_ns < burst_ns ? (burst_ns - ahead_ns) / frame_ns : 0;

	return frames_max < frames ? (uint32_t)frames_max : frames;
}

uint32_t rate_limit_train(struct link *link, const union address *host, uint32_t frames,
			  uint32_t bytes)
{
	const uint64_t all_ns = (uint64_t)RATE_LIMIT_TRAINS_BYTE_NS * bytes;
	const uint64_t host_ns = (uint64_t)RATE_LIMIT_TRAIN_BYTE_NS * bytes;
	uint64_t *all = &link->limit.trains_ns, *own = &link->limit.train_ns[index_of(link, host)];

	frames = fit_burst(link, *all, frames, all_ns,
			   (uint64_t)RATE_LIMIT_TRAINS_BURST * RATE_LIMIT_TRAINS_BYTE_NS);
	frames = fit_burst(link, *own, frames, host_ns,
			   (uint64_t)RATE_LIMIT_TRAIN_BURST * RATE_LIMIT_TRAIN_BYTE_NS);
	*all = (*all > link->now_ns ? *all : link->now_ns) + frames * all_ns;
	*own = (*own > link->now_ns ? *own : link->now_ns) + frames * host_ns;
	return frames;
}

void rate_limit_session_ended(struct link *link, const union address *host)
{
	link->limit.sessions_ended[index_of(link, host)]++;
}

uint32_t rate_limit_sessions_ended(const struct link *link, const union address *host)
{
	return link->limit.sessions_ended[index_of(link, host)];
}
