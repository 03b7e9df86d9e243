// SPDX-License-Identifier: BSD-2-Clause
/* See queue_choice.h. A host with a session stays at its queue. Another host goes to the queue with
 * the fewest sessions; its address decides between equals. */
#include "link/session/queue_choice.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

#include "link/link_private.h"

/* Returns the FNV-1a hash of a host's address. Hosts with equal hashes just share a queue. */
uint64_t queue_choice_host(const union address *host)
{
	bool ipv4 = host->sa.sa_family == AF_INET;
	const uint8_t *bytes = ipv4 ? (const void *)&host->in.sin_addr :
				      (const void *)&host->in6.sin6_addr;
	uint64_t number = 14695981039346656037ull;

	for (int i = 0; i < (ipv4 ? 4 : 16); i++)
		number = (number ^ bytes[i]) * 1099511628211ull;
	return number | 1;
}

/* Returns the number of a queue's sessions; *known: the host has one of them. UINT32_MAX: the queue
 * is full or closed. Another process writes the entry, so it is not trusted. */
static uint32_t load_of(const struct careful_queue_entry *entry, uint64_t host, bool *known)
{
	const volatile struct careful_queue_entry *shared = entry;
	uint32_t slots = shared->slots, taken = 0;

	*known = false;
	if (slots > CAREFUL_PEERS_MAX)
		return UINT32_MAX;
	for (uint32_t i = 0; i < slots; i++) {
		uint64_t slot_host = shared->hosts[i];

		taken += !!slot_host;
		*known |= slot_host == host;
	}
	return taken < slots ? taken : UINT32_MAX;
}

struct queue_choice queue_choose(const struct spread *spread, const union address *host,
				 uint32_t among)
{
	uint64_t number = queue_choice_host(host);
	/* The low bits spread hosts with consecutive addresses evenly. */
	uint32_t first = (uint32_t)(number >> 1) % spread->count, least = UINT32_MAX;
	uint16_t best = 0;

	for (uint32_t i = 0; i < spread->count; i++) {
		uint16_t queue = (uint16_t)((first + i) % spread->count);
		bool known;
		uint32_t load;

		if (spread->straight && !(among >> queue & 1))
			continue;
		load = load_of(&spread->entries[queue], number, &known);
		if (known || load < least) {
			least = load;
			best = queue;
		}
		if (known)
			break;
	}
	/* Queue 0, which always exists, is the default. */
	return (struct queue_choice){ best, spread->straight ? 1u << best : among };
}

void queue_choice_answer(struct link *link, const union address *to,
			 const struct careful_ctrl *hello, struct careful_ctrl *challenge)
{
	const struct spread *spread = &link->port->spread;
	uint32_t among = be32toh(hello->opening.queues);
	struct queue_choice choice;

	if (spread->index || !among || link_peer_find(link, to))
		return;
	if (spread->entries)
		choice = queue_choose(spread, to, among);
	else
		choice = (struct queue_choice){ 0, spread->straight ? 1 : among };
	challenge->queue = htobe16(choice.queue);
	challenge->opening.queues = htobe32(choice.among);
}

bool queue_choice_redirects(struct link_peer *peer, const struct careful_ctrl *challenge)
{
	const union address *to = &peer->session->address;
	uint32_t ours = peer->link->port->spread.index, theirs = be16toh(challenge->queue);
	uint32_t offered = peer->session->handshake.among | 1;
	/* A host that names no queue has queue 0. */
	uint32_t named = be32toh(challenge->opening.queues), among = (named ? named : 1) & offered;
	uint32_t port = ntohs(to->sa.sa_family == AF_INET ? to->in.sin_port : to->in6.sin6_port);

	if (!peer->session->handshake.among || !among || theirs >= CAREFUL_SPREAD_MAX ||
	    port + theirs > UINT16_MAX)
		return false;
	if (!(among >> ours & 1))
		ours = among >> theirs & 1 ? theirs : (uint32_t)__builtin_ctz(among);
	if (ours == peer->link->port->spread.index && !theirs)
		return false;
	peer->session->moved_queue = (uint16_t)ours;
	peer->session->moved_port = (uint16_t)(port + theirs);
	link_close(peer, EREMCHG);
	return true;
}

void queue_choice_ask(struct link_peer *peer, uint32_t among)
{
	if (peer->phase == LINK_IDLE && !peer->session->dormant)
		peer->session->handshake.among = among;
}

bool queue_choice_target(const struct link_peer *peer, uint32_t *queue, uint32_t *port)
{
	*queue = peer->session->moved_queue;
	*port = peer->session->moved_port;
	return peer->session->last_errno == EREMCHG;
}

void queue_choice_tick(struct link *link)
{
	struct spread *spread = &link->port->spread;
	struct careful_queue_entry *entry;

	if (!spread->entries)
		return;
	entry = &spread->entries[spread->index];
	for (uint32_t i = 0; i < link->peers_max; i++) {
		const struct link_peer *peer = &link->peers[i];
		bool used = peer->state != CAREFUL_PEER_NONE &&
			    peer->state != CAREFUL_PEER_FAILED && !peer->session->dormant;

		entry->hosts[i] = used ? queue_choice_host(&peer->session->address) : 0;
	}
	__atomic_store_n(&entry->slots, link->peers_max, __ATOMIC_RELEASE);
}
