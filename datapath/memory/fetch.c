// SPDX-License-Identifier: BSD-2-Clause
/* Fetches pages of maps: the touched page alone, then the pages behind it (P3's eager fragments).
 * The read-ahead doubles while faults are sequential. */
#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "memory/private.h"

struct map_slot *slot_take(struct careful_memory_map *map, uint64_t page, uint32_t pages,
			   uint32_t most)
{
	struct careful_memory *memory = map->remote->memory;
	struct map_slot *slot = memory->slots_free;

	if (memory->slots_used >= most)
		return NULL;
	memory->slots_used++;
	memory->slots_free = slot->next;
	slot->map = map;
	slot->page = page;
	slot->pages = pages;
	slot->wanted = slot->writes = slot->evicts = false;
	slot->move = (struct memory_move){
		.host = map->remote->host,
		.remote = map->remote,
		.offset = map->offset + page * MAP_PAGE,
		.local = slot->memory,
		.bytes = pages * MAP_PAGE,
		.until_ns = clock_now_ns() + map->patience_ns,
		.user = slot,
	};
	/* The piece's last page may be shorter. */
	if (slot->move.bytes > map->remote->bytes - slot->move.offset)
		slot->move.bytes = (uint32_t)(map->remote->bytes - slot->move.offset);
	map->under_way++;
	return slot;
}

void slot_put(struct map_slot *slot)
{
	struct careful_memory *memory = slot->map->remote->memory;

	slot->map->under_way--;
	memory->slots_used--;
	slot->next = memory->slots_free;
	memory->slots_free = slot;
}

/* Installs received pages, except those removed meanwhile. Returns 0 or -EAGAIN (uffd_copy()). */
static int install(struct careful_memory_map *map, struct map_slot *slot)
{
	const bool dirty = slot->writes && map->writable;
	const uint64_t end = slot->page + slot->pages;
	uint64_t page = slot->page;

	memset(slot->memory + slot->move.bytes, 0,
	       slot->pages * (size_t)MAP_PAGE - slot->move.bytes);
	while (page < end) {
		uint64_t n = 0;

		while (page + n < end && map->states[page + n] == PAGE_COMING)
			n++;
		if (n && uffd_copy(map->uffd, map->base + page * MAP_PAGE,
				   slot->memory + (page - slot->page) * MAP_PAGE, n * MAP_PAGE,
				   map->writable && !dirty) == -EAGAIN)
			return -EAGAIN;
		memset(map->states + page, dirty ? PAGE_DIRTY : PAGE_CLEAN, n);
		map->local += n;
		if (!n) /* removed: the thread that waits for it touches it again */
			uffd_wake(map->uffd, map->base + page * MAP_PAGE, MAP_PAGE);
		page += n ? n : 1;
	}
	return 0;
}

/* Handles a failed fetch: a wanted page is lost; threads that wait for other pages retry. */
static void fail(struct careful_memory_map *map, const struct map_slot *slot)
{
	const uint64_t address = map->base + slot->page * MAP_PAGE;
	const bool lost = slot->wanted && map->states[slot->page] == PAGE_COMING;

	for (uint64_t page = slot->page; page < slot->page + slot->pages; page++)
		if (map->states[page] == PAGE_COMING) /* not removed meanwhile */
			map->states[page] = lost ? PAGE_LOST : PAGE_ABSENT;
	if (lost)
		uffd_lose(map->uffd, address, map->ours);
	else
		uffd_wake(map->uffd, address, slot->pages * (uint64_t)MAP_PAGE);
}

static void fetched(struct memory_move *move, int status)
{
	struct map_slot *slot = move->user;

	if (status) {
		fail(slot->map, slot);
	} else if (install(slot->map, slot)) {
		slot->next = slot->map->late;
		slot->map->late = slot;
		return;
	}
	slot_put(slot);
}

void fetch_late(struct careful_memory_map *map)
{
	struct map_slot *slot = map->late, *next;

	map->late = NULL;
	for (; slot; slot = next) {
		next = slot->next;
		fetched(&slot->move, 0);
	}
}

static bool fetch(struct careful_memory_map *map, uint64_t page, uint32_t pages, bool wanted,
		  bool writes)
{
	struct map_slot *slot = slot_take(map, page, pages, wanted ? MAP_SLOTS : MAP_SLOTS_AHEAD);

	if (!slot)
		return false;
	slot->wanted = wanted;
	slot->writes = writes;
	slot->move.awaited = wanted;
	slot->move.done = fetched;
	memset(map->states + page, PAGE_COMING, pages);
	memory_move_queue(map->remote->memory, &slot->move);
	return true;
}

uint32_t fetch_window(struct map_stream *streams, uint64_t page, uint64_t most, bool begins)
{
	struct map_stream stream = { .next_page = page + 1 };
	uint32_t i = 0;

	while (i < MAP_STREAMS && (page > streams[i].next_page + MAP_SKIP_PAGES ||
				   page + streams[i].window < streams[i].next_page))
		i++;
	if (i < MAP_STREAMS) {
		stream = streams[i];
		stream.window = stream.window ? 2 * stream.window : MAP_WINDOW_FIRST;
		if (stream.window > most)
			stream.window = (uint32_t)most;
	} else if (begins) {
		i--; /* replaces the least recently used */
	} else {
		return 0;
	}
	memmove(streams + 1, streams, i * sizeof(stream));
	streams[0] = stream;
	return stream.window;
}

/* Chooses the pages to fetch ahead: those that follow a touched one. */
static void plan_ahead(struct careful_memory_map *map, uint64_t page, bool begins)
{
	uint64_t most = MAP_WINDOW_PAGES;
	uint32_t window;

	if (map->local_most && most > map->local_most / 8)
		most = map->local_most / 8;
	window = fetch_window(map->streams, page, most, begins);
	if (!window)
		return;
	map->ahead = page + 1;
	/* Two windows: one arrives while the program uses the other. */
	map->ahead_end = page + 1 + 2 * (uint64_t)window;
	if (map->ahead_end > map->pages)
		map->ahead_end = map->pages;
	map->streams[0].next_page = map->ahead_end;
}

void fetch_fault(struct careful_memory_map *map, uint64_t page, bool writes)
{
	const uint64_t address = map->base + page * MAP_PAGE;

	switch (map->states[page]) {
	case PAGE_ABSENT:
		/* Without a slot, the thread wakes and touches the page again. */
		if (!fetch(map, page, 1, true, writes))
			uffd_wake(map->uffd, address, MAP_PAGE);
		plan_ahead(map, page, true);
		break;
	case PAGE_COMING:
		plan_ahead(map, page, false);
		break;
	case PAGE_REMOVED:
		if (uffd_zero(map->uffd, address)) {
			map->states[page] = PAGE_CLEAN;
			map->local++;
		}
		break;
	case PAGE_LOST:
		uffd_lose(map->uffd, address, map->ours);
		break;
	default: /* the page arrived meanwhile */
		uffd_wake(map->uffd, address, MAP_PAGE);
	}
}

void fetch_ahead(struct careful_memory_map *map)
{
	while (map->ahead < map->ahead_end) {
		uint32_t n = 0;

		if (map->states[map->ahead] != PAGE_ABSENT) {
			map->ahead++;
			continue;
		}
		while (n < MAP_SLOT_BYTES / MAP_PAGE && map->ahead + n < map->ahead_end &&
		       map->states[map->ahead + n] == PAGE_ABSENT)
			n++;
		if (!fetch(map, map->ahead, n, false, false))
			return;
		map->ahead += n;
	}
}
