// SPDX-License-Identifier: BSD-2-Clause
/*
 * One node lends memory, one uses it, and one lies (hostile.c). The liar makes, opens and deletes
 * pieces under the names and the identity of others. It reads and writes regions that it guesses.
 * The honest node's calls all succeed and find its bytes. Each region of a piece belongs to the
 * piece's owner, and no host exceeds a limit.
 *
 * Worker threads map the memory. A round of the lending node waits for them, so that they take no
 * virtual time and runs do not differ.
 */
#include <endian.h>
#include <poll.h>

#include "lend/private.h"
#include "sim.h"

enum {
	LENDER,
	OWNER,
	LIAR,
	SEEDS = 40,
	LENT = 1 << 20,
	HOST = 600 << 10,
	KEEP_MS = 60000, /* of real time: no piece is freed by itself */
	MINE = 40000, /* bytes of the honest node's piece */
	CALL_NS = 200000, /* between two calls */
	DONE_MS = 500, /* the honest node makes no call after this */
	LAST_MS = 550,
	NAMES = 4,
};

static struct lend_server *server;
static uint64_t asked, refused; /* of the liar, in all seeds */

/* The honest node: what it does next, and its piece. */
static struct {
	enum { CREATES, STORES, GETS, NOTIFIES, STATS } next;
	bool waits;
	uint32_t key, rounds;
	uint64_t at_ns;
	uint8_t stored[MINE], got[MINE];
} owner;

static uint64_t liar_at_ns, draws;
static uint8_t liar_memory[OP_BYTES_MAX];
static uint32_t liar_key; /* of the region that it opened last */

static uint32_t draw(uint32_t n)
{
	return (uint32_t)(sim_hash(scene->seed, 0x6000, draws++) % n);
}

static int peer_of(struct node *node, uint32_t port)
{
	union address address;

	sim_address(node->cluster->world, port, &address);
	return careful_peer(node->c, &address.sa, sizeof(address));
}

static uint32_t put_ask(uint8_t *to, uint64_t bytes, const char *name)
{
	const struct careful_memory_ask ask = {
		.bytes = htobe64(bytes),
		.name_bytes = htobe32((uint32_t)strlen(name)),
	};

	memcpy(to, &ask, sizeof(ask));
	return (uint32_t)(stpcpy((char *)to + sizeof(ask), name) - (char *)to);
}

static void on_owner(const struct careful_result *result, void *user)
{
	(void)user;
	CHECK_EQ(result->status, 0);
	owner.waits = false;
	if (owner.next == CREATES)
		owner.key = result->args[0];
	if (owner.next == GETS)
		CHECK(!memcmp(owner.got, owner.stored, MINE));
	owner.next = owner.next == STATS ? STORES : owner.next + 1;
	owner.rounds += owner.next == STORES;
}

/* Makes the honest node's next call: each must succeed. */
static void run_owner(struct node *node)
{
	static const uint16_t handlers[] = { [CREATES] = CAREFUL_MEMORY_CREATE,
					     [NOTIFIES] = CAREFUL_MEMORY_NOTIFY,
					     [STATS] = CAREFUL_MEMORY_STAT };
	const int peer = peer_of(node, LENDER);
	struct careful_span span = { .fd = -1 };
	uint8_t payload[128];
	int rc = 0;

	CHECK(peer >= 0);
	if (owner.next == STORES) {
		memset(owner.stored, (int)draw(256), MINE);
		span.base = owner.stored;
		rc = careful_store(node->c, (uint32_t)peer, owner.key, 0, &span, MINE,
				   CAREFUL_HANDLERS, NULL, 0, on_owner, NULL);
	} else if (owner.next == GETS) {
		memset(owner.got, 0, MINE);
		span.base = owner.got;
		rc = careful_get(node->c, (uint32_t)peer, owner.key, 0, &span, MINE, 0, on_owner,
				 NULL);
	} else {
		rc = careful_request(node->c, (uint32_t)peer, handlers[owner.next], NULL, payload,
				     put_ask(payload, MINE, "a"), on_owner, NULL);
	}
	CHECK(!rc || rc == -EAGAIN);
	owner.waits = !rc;
}

static void on_liar(const struct careful_result *result, void *user)
{
	(void)user;
	refused += result->status != 0;
	if (!result->status && result->bytes >= sizeof(struct careful_memory_piece))
		liar_key = result->args[0];
}

/* Asks for anything, in the name of anybody. */
static void run_liar(struct node *node)
{
	static const uint64_t sizes[] = { 0, 1, 4096, MINE, HOST, LENT, 1ull << 62, UINT64_MAX };
	static const char *const names[NAMES] = { "a", "b", "", "a longer name" };
	const int peer = peer_of(node, LENDER);
	const uint32_t args[4] = { draw(4), draw(1 << 30) };
	const struct careful_span span = { .base = liar_memory, .fd = -1 };
	const uint32_t key = draw(2) ? liar_key : owner.key + draw(3) - 1;
	struct careful_memory_ask head;
	uint8_t payload[256] = { 0 };
	uint32_t bytes;
	int rc;

	if (peer < 0)
		return;
	if (!draw(3)) {
		bytes = 1 + draw(OP_BYTES_MAX);
		rc = draw(2) ? careful_get(node->c, (uint32_t)peer, key, draw(MINE), &span, bytes,
					   0, on_liar, NULL) :
			       careful_store(node->c, (uint32_t)peer, key, draw(MINE), &span, bytes,
					     (uint16_t)draw(CAREFUL_HANDLERS + 1), NULL, 0, on_liar,
					     NULL);
		asked += !rc;
		return;
	}
	bytes = put_ask(payload, sizes[draw(8)], names[draw(NAMES)]);
	memcpy(&head, payload, sizeof(head));
	head.owner = server->peers[draw(server->peers_count)].host; /* it may know these */
	head.owner.by = draw(4) ? head.owner.by : htobe32(draw(4));
	head.hosts = htobe32(draw(8) ? 0 : draw(1u << 31));
	head.name_bytes = draw(8) ? head.name_bytes : htobe32(draw(1u << 31));
	memcpy(payload, &head, sizeof(head));
	asked += !careful_request(node->c, (uint32_t)peer,
				  (uint16_t)(CAREFUL_MEMORY_CREATE + draw(7)), args, payload,
				  draw(8) ? bytes : draw(sizeof(payload)), on_liar, NULL);
}

/* Checks limits, and that the regions of the honest node's piece are its own. */
static void check_server(const struct careful *c)
{
	uint64_t used = 0, bytes;
	uint32_t pieces;

	for (const struct lend_piece *p = server->pieces; p; p = p->next) {
		used += p->mapped;
		lend_piece_count(server, &p->owner, &bytes, &pieces);
		CHECK(bytes <= HOST && pieces <= LEND_PIECES_HOST);
		for (const struct lend_open *open = p->opens; open; open = open->next)
			CHECK(open->closed ||
			      lend_same(&p->owner, &server->peers[open->peer].host));
	}
	CHECK(used == server->used && used <= LENT);
	CHECK(c->deferred_count <= c->limits.operations);
}

static bool is_at_work(void)
{
	for (const struct lend_piece *p = server->pieces; p; p = p->next)
		if (p->state == LEND_FILLING || p->state == LEND_FREEING)
			return true;
	return false;
}

static void on_peer(struct careful *c, uint32_t peer, uint32_t state, void *user)
{
	(void)c;
	(void)user;
	lend_watch(server, peer, state);
}

static void run_lender(struct node *node)
{
	const struct lend_options options = { LENT, HOST, KEEP_MS };
	struct careful_error error;

	if (!server) {
		CHECK_EQ(lend_serve(node->c, &options, &server, &error), 0);
		CHECK_EQ(careful_peer_watch(node->c, on_peer, NULL), 0);
	}
	do {
		struct pollfd pfd = { .fd = lend_fd(server), .events = POLLIN };

		if (is_at_work())
			poll(&pfd, 1, 1000);
		lend_poll(server);
	} while (is_at_work());
	check_server(node->c);
}

static void on_round(struct node *node)
{
	const uint64_t now_ns = sim_now_ns(node->cluster->world);

	if (node->port == LENDER)
		run_lender(node);
	if (node->port == OWNER && server && !owner.waits && owner.at_ns <= now_ns &&
	    now_ns < SIM_START + DONE_MS * SIM_MS) {
		owner.at_ns = now_ns + CALL_NS;
		run_owner(node);
	}
	if (node->port == LIAR && server && hostile_still(node->cluster, LIAR) &&
	    liar_at_ns <= now_ns) {
		liar_at_ns = now_ns + CALL_NS;
		run_liar(node);
	}
}

static void test_lend__harms_no_other(void)
{
	uint64_t lies = 0;

	for (uint64_t seed = 0; seed < SEEDS; seed++) {
		sim_scene(seed);
		scene->nodes = 3;
		scene->on_round = on_round;
		scene->config.ipv6 = seed & 1;
		scene->keyed = seed / 2 % 2 ? 7 : 0;
		scene->limits.regions = 64;
		hostile_make(scene, LIAR, LIES_MS);
		sim_op(OP_REQUEST, LENDER, 10, LAST_MS);
		memset(&owner, 0, sizeof(owner));
		liar_at_ns = draws = liar_key = 0;
		EXPECT_WELL(sim_play());
		lies += cluster->lies;
		CHECK(owner.rounds > 10 && owner.key);
		CHECK_EQ(lend_stop(server), 0);
		server = NULL;
	}
	printf("%llu requests, %llu of them refused; %llu lies\n", (unsigned long long)asked,
	       (unsigned long long)refused, (unsigned long long)lies);
	CHECK(lies > SEEDS && refused > SEEDS && asked > refused + SEEDS);
}

int main(void)
{
	sim_init();
	RUN(test_lend__harms_no_other);
	cluster_destroy(cluster);
	return 0;
}
