// SPDX-License-Identifier: BSD-2-Clause
/* The nodes' keys, drawn from the seed. Each node trusts the others' keys at their addresses. */
#include <string.h>

#include "cluster.h"
#include "engine/engine.h"

enum { STREAM_KEYS = 0x6b657973 };

static void private_key(const struct scenario *s, uint32_t port, uint8_t *key)
{
	for (uint64_t i = 0; i < NOISE_KEY_BYTES / 8; i++) {
		uint64_t word = sim_hash(s->seed, STREAM_KEYS + port, i);

		memcpy(key + 8 * i, &word, 8);
	}
}

/* Makes the node trust key_of's true key at the port's address. Not 0: it cannot. */
static int trust(const struct node *node, uint32_t port, uint32_t key_of)
{
	const struct scenario *s = &node->cluster->scenario;
	static const uint8_t none[NOISE_KEY_BYTES] = { 0 }, base[NOISE_KEY_BYTES] = { 9 };
	uint8_t ours[NOISE_KEY_BYTES], theirs[NOISE_KEY_BYTES], public[NOISE_KEY_BYTES];
	union address address;
	struct noise_pair pair;

	private_key(s,
		    (s->wrong_keys >> node->port & 1 ? NODES_DRAWN : 0) +
			    misdeeds_owner(s, node->port),
		    ours);
	private_key(s, key_of, theirs);
	/* The base point times the private key is the public one. */
	if (noise_pair_init(&pair, theirs, base, none))
		return -1;
	memcpy(public, pair.ours, sizeof(public));
	sim_address(node->cluster->world, port, &address);
	return keys_trust(&node->c->link.keys, &address, ours, public, none);
}

void keys_open(struct node *node)
{
	const struct scenario *s = &node->cluster->scenario;

	if (!(s->keyed >> node->port & 1))
		return;
	node->c->link.keyed = true;
	for (uint32_t port = 0; port < s->nodes; port++) {
		/* In some clusters the host's old key comes first. */
		if (s->old_keys && port != node->port)
			trust(node, port, 2 * NODES_DRAWN + port);
		if (port != node->port && trust(node, port, misdeeds_owner(s, port)))
			sim_fail(node->cluster->world, "node %u has no keys", node->port);
	}
}
