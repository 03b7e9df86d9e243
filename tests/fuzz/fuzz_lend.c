// SPDX-License-Identifier: BSD-2-Clause
/*
 * Fuzzes the memory server over an instance without a network: requests of three hosts, sessions
 * that end, and regions in use. Each region lies in a piece that its peer may access, the lent
 * memory stays within its limits, and nothing is left at the end.
 *
 * Coverage guides the requests, and the server's state is checked after each. In the simulator
 * (test_sim_lend.c) a liar sends them over the network.
 */
#include <endian.h>
#include <poll.h>

#include "fake_careful.c" /* NOLINT(bugprone-suspicious-include) */
#include "input.h"
#include "lend/private.h"

enum { STEPS = 60, LENT = 1 << 20, HOST = 600 << 10, PATIENCE = 3000 };

static uint32_t put_ask(struct input *in, uint8_t *to)
{
	static const uint64_t sizes[] = {
		0, 1, 4096, 300 << 10, HOST, LENT, 1ull << 62, UINT64_MAX
	};
	struct careful_memory_ask head = {
		.bytes = htobe64(sizes[take8(in) & 7]),
		.owner = { .by = htobe32(take8(in) & 3), .id = { take8(in) & 7 } },
	};
	const uint32_t hosts = take8(in) & 3, name = take8(in) & 3;
	uint32_t at = sizeof(head);

	head.hosts = htobe32(hosts);
	head.name_bytes = htobe32(name);
	memcpy(to, &head, sizeof(head));
	for (uint32_t i = 0; i < hosts; i++) {
		const struct careful_memory_host host = {
			.by = htobe32(take8(in) & 1),
			.access = htobe32(take8(in)),
			.id = { take8(in) & 7 },
		};

		memcpy(to + at, &host, sizeof(host));
		at += sizeof(host);
	}
	memcpy(to + at, "abc", name);
	return at + name;
}

static void ask(struct careful *c, struct input *in)
{
	const uint16_t handler = CAREFUL_MEMORY_CREATE + take8(in) % 7;
	const uint8_t how = take8(in);
	const uint32_t args[4] = { how & 1 ? take8(in) : 0 };
	uint8_t payload[512] = { 0 };
	uint32_t bytes = put_ask(in, payload);

	for (uint32_t n = how >> 6; n; n--) /* corrupts a byte */
		payload[take8(in) % bytes] ^= take8(in);
	if (how & 2)
		bytes = take16(in) % (bytes + 1);
	fake_request(c, how >> 2 & 3, handler, args, payload, bytes);
}

/* Checks that each region's piece is open to the region's peer, for this access. */
static void check(const struct careful *c, const struct lend_server *server)
{
	uint64_t used = 0;

	for (const struct lend_piece *p = server->pieces; p; p = p->next) {
		used += p->mapped;
		for (const struct lend_open *open = p->opens; open; open = open->next) {
			const struct careful_region *region = &c->regions[open->key].region;
			const struct lend_peer *peer = &server->peers[open->peer];
			uint32_t access = 0;

			MUST(c->regions[open->key].used && region->span.base == p->memory);
			MUST(region->bytes == p->bytes && p->bytes <= p->mapped);
			if (lend_same(&p->owner, &peer->host))
				access = 3;
			for (uint32_t i = 0; i < p->hosts_count; i++)
				if (!p->hosts[i].by || lend_same(&p->hosts[i], &peer->host))
					access |= be32toh(p->hosts[i].access);
			MUST(!region->access ||
			     (peer->present && !open->closed && !(region->access & ~access)));
		}
	}
	MUST(used == server->used && used <= LENT);
}

static void settle(struct careful *c, struct lend_server *server, bool all)
{
	for (int i = 0; i < PATIENCE; i++) {
		struct pollfd pfd = { .fd = lend_fd(server), .events = POLLIN };
		bool busy = all && server->pieces;

		for (const struct lend_piece *p = server->pieces; p; p = p->next)
			busy |= p->state != LEND_READY;
		lend_poll(server);
		check(c, server);
		if (!busy)
			return;
		poll(&pfd, 1, 1);
	}
	MUST(!all || !server->pieces);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	const struct lend_options options = { LENT, HOST, 1 };
	struct careful_error error;
	struct lend_server *server;
	struct input in = { data, bytes };
	struct careful *c = fake_create();

	for (uint32_t i = 0; i < FAKE_PEERS; i++)
		c->peer_keys[i][0] = (uint8_t)(i < 3 ? i + 1 : 1);
	MUST(lend_serve(c, &options, &server, &error) == 0);
	for (int i = 0; i < STEPS && in.bytes; i++) {
		const uint8_t what = take8(&in);

		ask(c, &in);
		if (what & 1)
			settle(c, server, false);
		if ((what & 0xf0) == 0xf0) /* a peer's session ends */
			lend_watch(server, what >> 1 & 3, CAREFUL_PEER_FAILED);
		if ((what & 0xf0) == 0xe0) /* and another host takes its slot */
			c->peer_keys[what >> 1 & 3][0] = (what & 7) + 1;
		c->busy = what >> 2 & 3;
		c->reply_errno = -EAGAIN;
		c->reply_errors = what >> 3 & 1;
	}
	c->busy = 0;
	c->reply_errors = 0;
	for (uint32_t i = 0; i < FAKE_PEERS; i++)
		lend_watch(server, i, CAREFUL_PEER_NONE);
	settle(c, server, true);
	for (uint32_t i = 0; i < FAKE_REGIONS; i++)
		MUST(!c->regions[i].used);
	MUST(!server->used && lend_stop(server) == 0);
	fake_destroy(c);
	return 0;
}
