// SPDX-License-Identifier: BSD-2-Clause
/* Regions: memory and files that peers may get from and store to. */
#include "engine/sharing.h"
#include "engine/engine.h"

#include <endian.h>
#include <errno.h>

/* If a region is for one peer, adds `by` to that peer's count: a peer with regions is not idle. */
static void claim(struct careful *c, const struct region *region, int by)
{
	if (region->region.peer < c->link.peers_max)
		link_claim(&c->link.peers[region->region.peer], by);
}

int own_region_add(struct careful *c, const struct careful_region *region, uint32_t *key)
{
	if (!region->access || (!region->span.base && region->span.fd < 0))
		return -EINVAL;
	for (uint32_t i = 0; i < c->limits.regions; i++) {
		struct region *slot = &c->regions[i];

		if (slot->key || slot->uses)
			continue;
		if (!slot->generation)
			c->port->ops->random(c->port, &slot->generation, sizeof(slot->generation));
		/* Keys start at a random number, so that other peers cannot guess them. */
		slot->generation = slot->generation * 2654435761u + 1;
		slot->region = *region;
		slot->read_bytes = slot->written_bytes = 0;
		claim(c, slot, 1);
		if (!region->span.base)
			storage_keep(c->storage, region->span.fd);
		slot->key = (slot->generation | 1) * c->limits.regions + i;
		if (slot->key < c->limits.regions)
			slot->key += c->limits.regions;
		*key = slot->key;
		return 0;
	}
	return -ENOSPC;
}

struct region *region_find(struct careful *c, uint32_t key)
{
	struct region *region = &c->regions[key & (c->limits.regions - 1)];

	return key && region->key == key ? region : NULL;
}

void engine_moved(struct careful *c, uint32_t key, uint64_t *read_bytes, uint64_t *written_bytes)
{
	const struct region *region = region_find(c, key);

	*read_bytes += region ? region->read_bytes : 0;
	*written_bytes += region ? region->written_bytes : 0;
}

int own_region_remove(struct careful *c, uint32_t key)
{
	struct region *region = region_find(c, key);

	if (!region)
		return -ENOENT;
	if (region->uses)
		return -EBUSY;
	claim(c, region, -1);
	if (!region->region.span.base)
		storage_lose(c->storage, region->region.span.fd);
	region->key = 0;
	return 0;
}

void engine_revoke_region(struct careful *c, uint32_t key)
{
	struct region *region = region_find(c, key);

	if (region)
		region->region.access = 0;
}

uint32_t engine_stop_stores(struct careful *c, uint32_t key)
{
	uint32_t writing = 0;

	engine_revoke_region(c, key);
	for (uint32_t i = 0; i < c->messages.ins_count; i++) {
		struct message_in *in = &c->messages.ins[i];

		if (in->active && !in->finished && in->region == key)
			writing += message_in_stop(in, ENOENT);
	}
	return writing;
}

void engine_keep_file(struct careful *c, int fd)
{
	storage_keep(c->storage, fd);
}

void engine_lose_file(struct careful *c, int fd)
{
	storage_lose(c->storage, fd);
}

/* Finds the bytes that a message names. Returns a positive errno if the peer may not use them. */
int region_check(struct careful *c, const struct link_peer *peer, const struct careful_am *am,
		 uint32_t bytes, uint32_t access, struct region **found, struct careful_span *span)
{
	struct region *region = region_find(c, be32toh(am->region));
	uint64_t off = be64toh(am->region_off);

	if (!region || !region->region.access || /* revoked */
	    (region->region.peer != CAREFUL_ANY_PEER && region->region.peer != peer->slot))
		return ENOENT;
	if (!(region->region.access & access))
		return EACCES;
	if (off > region->region.bytes || bytes > region->region.bytes - off)
		return ERANGE;
	*found = region;
	*span = region->region.span;
	if (span->base)
		span->base = (uint8_t *)span->base + off;
	else
		span->offset += off;
	return 0;
}
