// SPDX-License-Identifier: BSD-2-Clause
/* Writes changed pages back, and drops pages beyond a map's limit. A page is write-protected while
 * it is saved: a write meanwhile makes the page REWRITTEN, so the page stays. It is saved again only
 * after the first save: of two saves under way, a lost frame could let the older one arrive last. */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "memory/private.h"

static void drop(struct careful_memory_map *map, uint64_t page, uint32_t pages)
{
	madvise((void *)(map->base + page * MAP_PAGE), pages * (size_t)MAP_PAGE, MADV_DONTNEED);
	memset(map->states + page, PAGE_ABSENT, pages);
	map->local -= pages;
}

static void end_flush(struct careful_memory_map *map, int status)
{
	struct memory_job *job = map->flush;

	map->flush = NULL;
	if (job)
		memory_end_job(job, status);
}

static void saved(struct memory_move *move, int status)
{
	struct map_slot *slot = move->user;
	struct careful_memory_map *map = slot->map;

	for (uint64_t page = slot->page; page < slot->page + slot->pages; page++) {
		if (map->states[page] == PAGE_REWRITTEN) {
			map->states[page] = PAGE_DIRTY;
			continue;
		}
		map->states[page] = status ? PAGE_DIRTY : PAGE_CLEAN;
		if (status)
			uffd_protect(map->uffd, map->base + page * MAP_PAGE, MAP_PAGE, false);
		else if (slot->evicts)
			drop(map, page, 1);
	}
	map->saving -= slot->pages;
	if (status) {
		map->rest_ns = clock_in_ms(1000);
		/* -EAGAIN, which a host may say, would repeat the flush. */
		end_flush(map, status == -EAGAIN ? -EPROTO : status);
	}
	slot_put(slot);
}

/* Begins to save a changed page and changed pages behind it. Returns their number; 0: no slot. */
static uint32_t save(struct careful_memory_map *map, uint64_t page, bool evicts)
{
	struct map_slot *slot;
	uint32_t n = 0;

	while (n < MAP_SLOT_BYTES / MAP_PAGE && page + n < map->pages &&
	       map->states[page + n] == PAGE_DIRTY)
		n++;
	slot = slot_take(map, page, n, MAP_SLOTS_SAVE);
	if (!slot)
		return 0;
	slot->evicts = evicts;
	slot->move.is_store = true;
	slot->move.done = saved;
	uffd_protect(map->uffd, map->base + page * MAP_PAGE, n * (uint64_t)MAP_PAGE, true);
	memset(map->states + page, PAGE_SAVING, n);
	memcpy(slot->memory, (void *)(map->base + page * MAP_PAGE), slot->move.bytes);
	map->saving += n;
	memory_move_queue(map->remote->memory, &slot->move);
	return n;
}

void save_evict(struct careful_memory_map *map, uint64_t now_ns)
{
	uint64_t left = map->pages; /* at most one round of the hand */

	if (!map->local_most || now_ns < map->rest_ns)
		return;
	while (left && map->local > map->local_most + map->saving) {
		const uint64_t most = map->local - map->local_most - map->saving;
		const uint64_t page = map->hand % map->pages;
		uint32_t n = 0;

		while (n < most && page + n < map->pages && map->states[page + n] == PAGE_CLEAN)
			n++;
		if (n)
			drop(map, page, n);
		else if (map->states[page] == PAGE_DIRTY && !save(map, page, true))
			return;
		n += !n;
		map->hand += n;
		left -= left < n ? left : n;
	}
}

void save_flush(struct careful_memory_map *map)
{
	for (; map->flush && map->flush_page < map->pages; map->flush_page++) {
		const uint8_t state = map->states[map->flush_page];

		if (state == PAGE_REWRITTEN ||
		    (state == PAGE_DIRTY && !save(map, map->flush_page, false)))
			return;
	}
	if (map->flush && !map->saving)
		end_flush(map, 0);
}
