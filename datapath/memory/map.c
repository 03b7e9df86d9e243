// SPDX-License-Identifier: BSD-2-Clause
/* Maps of pieces: their memory, their faults, and the calls about them. */
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "memory/private.h"

enum { FAULTS = 16 };

/* Returns the map that serves an address, among those of one userfaultfd. */
static struct careful_memory_map *map_at(struct careful_memory_map *one, uint64_t address)
{
	struct careful_memory_map *map = one->remote->memory->maps;

	while (map && (map->ours != one->ours || (!map->ours && map->given != one->given) ||
		       address < map->base || address - map->base >= map->pages * MAP_PAGE))
		map = map->next;
	return map;
}

/* The owner of the memory gave up a range: it reads as zeros. */
static void take_removed(struct careful_memory_map *one, uint64_t at, uint64_t end)
{
	for (; at < end; at += MAP_PAGE) {
		struct careful_memory_map *map = map_at(one, at);
		uint8_t *state = map ? &map->states[(at - map->base) / MAP_PAGE] : NULL;

		if (!map)
			continue;
		map->local -= *state == PAGE_CLEAN;
		*state = PAGE_REMOVED;
	}
}

static void take_fault(struct careful_memory_map *one, const struct uffd_msg *message)
{
	const uint64_t address = message->arg.pagefault.address;
	const uint64_t flags = message->arg.pagefault.flags;
	struct careful_memory_map *map = map_at(one, address);
	uint64_t page;

	if (message->event == UFFD_EVENT_REMOVE && !one->ours)
		take_removed(one, message->arg.remove.start, message->arg.remove.end);
	if (message->event != UFFD_EVENT_PAGEFAULT || !map)
		return;
	page = (address - map->base) / MAP_PAGE;
	if (!(flags & UFFD_PAGEFAULT_FLAG_WP)) {
		fetch_fault(map, page, flags & UFFD_PAGEFAULT_FLAG_WRITE);
		return;
	}
	if (map->states[page] == PAGE_CLEAN || map->states[page] == PAGE_SAVING)
		map->states[page] = PAGE_DIRTY;
	if (map->states[page] == PAGE_DIRTY)
		uffd_protect(map->uffd, map->base + page * MAP_PAGE, MAP_PAGE, false);
	uffd_wake(map->uffd, map->base + page * MAP_PAGE, MAP_PAGE);
}

static void take_faults(struct careful_memory_map *map)
{
	struct uffd_msg messages[FAULTS];
	ssize_t n = read(map->uffd, messages, sizeof(messages));

	for (ssize_t i = 0; i < n / (ssize_t)sizeof(messages[0]); i++)
		take_fault(map, &messages[i]);
}

static void free_map(struct careful_memory_map *map)
{
	if (map->ours && map->base)
		munmap((void *)map->base, map->pages * MAP_PAGE);
	if (map->uffd >= 0)
		close(map->uffd);
	free(map->states);
	free(map);
}

/* Ends maps that nothing uses any longer. */
static void end_closed(struct careful_memory *memory)
{
	struct careful_memory_map **at = &memory->maps, *map;

	while ((map = *at)) {
		if (!map->closer || map->under_way) {
			at = &map->next;
			continue;
		}
		*at = map->next;
		map->remote->map = NULL;
		epoll_ctl(memory->extra_fd, EPOLL_CTL_DEL, map->uffd, NULL); /* may stay open */
		epoll_ctl(memory->sleep_fd, EPOLL_CTL_DEL, map->uffd, NULL);
		memory_end_job(map->closer, 0);
		free_map(map);
	}
}

void memory_map_poll(struct careful_memory *memory)
{
	bool closed = false;

	for (struct careful_memory_map *map = memory->maps; map; map = map->next) {
		closed |= map->closer != NULL;
		if (!memory->served)
			take_faults(map);
		fetch_late(map);
		fetch_ahead(map);
		save_flush(map);
	}
	if (closed)
		end_closed(memory);
}

void memory_map_evict(struct careful_memory *memory, uint64_t now_ns)
{
	for (struct careful_memory_map *map = memory->maps; map; map = map->next) {
		if (!map->local_most || map->local <= map->local_most + map->saving)
			continue;
		if (memory->flying)
			careful_poll(memory->instance);
		save_evict(map, now_ns);
	}
}

static int make_slots(struct careful_memory *memory)
{
	void *base;
	int rc = memory->slots ? 0 :
				 careful_memory(memory->instance,
						(uint64_t)MAP_SLOTS * MAP_SLOT_BYTES, &base);

	if (rc || memory->slots)
		return rc;
	memory->slots = calloc(MAP_SLOTS, sizeof(*memory->slots));
	if (!memory->slots)
		return -ENOMEM;
	for (uint32_t i = 0; i < MAP_SLOTS; i++) {
		struct map_slot *slot = &memory->slots[i];

		slot->memory = (uint8_t *)base + (size_t)i * MAP_SLOT_BYTES;
		slot->next = memory->slots_free;
		memory->slots_free = slot;
	}
	return 0;
}

/* Makes the memory of a map; in small pages, because they come one by one. */
static int make_memory(struct careful_memory_map *map)
{
	const uint64_t bytes = map->pages * MAP_PAGE;
	void *base = mmap(NULL, bytes, PROT_READ | (map->writable ? PROT_WRITE : 0),
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (base == MAP_FAILED)
		return -errno;
	map->base = (uintptr_t)base;
	madvise(base, bytes, MADV_NOHUGEPAGE);
	if (madvise(base, bytes, MADV_DONTFORK))
		return -errno;
	map->uffd = uffd_open();
	return map->uffd < 0 ? map->uffd :
			       uffd_register(map->uffd, map->base, bytes, map->writable);
}

static void job_map(struct careful_memory *memory, struct memory_job *one)
{
	struct careful_memory_map *map = one->map;
	struct epoll_event event = { .events = EPOLLIN };
	int rc = one->remote->map ? -EBUSY : make_slots(memory);

	if (!rc && (epoll_ctl(memory->extra_fd, EPOLL_CTL_ADD, map->uffd, &event) ||
		    epoll_ctl(memory->sleep_fd, EPOLL_CTL_ADD, map->uffd, &event)))
		rc = -errno;
	if (!rc) {
		map->next = memory->maps;
		memory->maps = map;
		one->remote->map = map;
	}
	memory_end_job(one, rc);
}

int careful_memory_map(struct careful_memory_remote *remote,
		       const struct careful_memory_map_options *options, void **base)
{
	struct careful_memory_map *map = calloc(1, sizeof(*map));
	struct memory_job job = { .start = job_map, .remote = remote, .map = map };
	int rc = 0;

	if (!map)
		return -ENOMEM;
	map->remote = remote;
	map->given = options->uffd;
	map->uffd = options->uffd < 0 ? -1 : fcntl(options->uffd, F_DUPFD_CLOEXEC, 0);
	map->ours = options->uffd < 0;
	map->writable = options->writable && map->ours;
	map->base = options->base;
	map->offset = options->offset;
	map->bytes = options->bytes;
	map->patience_ns = options->patience_ms * UINT64_C(1000000);
	map->local_most = options->local_bytes / MAP_PAGE;
	if (map->offset % MAP_PAGE || map->base % MAP_PAGE || map->offset >= remote->bytes ||
	    map->bytes > remote->bytes - map->offset)
		rc = -ERANGE;
	if (!map->bytes)
		map->bytes = remote->bytes - map->offset;
	if (map->writable && !(remote->access & CAREFUL_MEMORY_WRITE))
		rc = -EACCES;
	map->pages = (map->bytes + MAP_PAGE - 1) / MAP_PAGE;
	map->states = rc ? NULL : calloc(map->pages, 1);
	if (!rc && !map->states)
		rc = -ENOMEM;
	if (!rc && map->ours)
		rc = make_memory(map);
	else if (!rc && fcntl(map->uffd, F_SETFL, O_NONBLOCK))
		rc = -errno;
	if (!rc) {
		*base = (void *)map->base;
		rc = memory_run(remote->memory, &job);
	}
	if (rc)
		free_map(map);
	return rc;
}

static void job_flush(struct careful_memory *memory, struct memory_job *one)
{
	struct careful_memory_map *map = one->remote->map;

	(void)memory;
	if (!map || map->flush) {
		memory_end_job(one, map ? -EAGAIN : -ENOENT);
		return;
	}
	map->flush = one;
	map->flush_page = 0;
}

int careful_memory_flush(struct careful_memory_remote *remote)
{
	int rc;

	do { /* one at a time */
		struct memory_job job = { .start = job_flush, .remote = remote };

		rc = memory_run(remote->memory, &job);
	} while (rc == -EAGAIN && !usleep(1000));
	return rc;
}

static void job_prefetch(struct careful_memory *memory, struct memory_job *one)
{
	struct careful_memory_map *map = one->remote->map;

	(void)memory;
	if (!map || one->offset > map->bytes || one->bytes > map->bytes - one->offset) {
		memory_end_job(one, map ? -ERANGE : -ENOENT);
		return;
	}
	map->ahead = one->offset / MAP_PAGE;
	map->ahead_end = (one->offset + one->bytes + MAP_PAGE - 1) / MAP_PAGE;
	memory_end_job(one, 0);
}

int careful_memory_prefetch(struct careful_memory_remote *remote, uint64_t offset, uint64_t bytes)
{
	struct memory_job job = {
		.start = job_prefetch, .remote = remote, .offset = offset, .bytes = bytes
	};

	return memory_run(remote->memory, &job);
}

static void job_unmap(struct careful_memory *memory, struct memory_job *one)
{
	struct careful_memory_map *map = one->remote->map;

	(void)memory;
	if (!map || map->closer) {
		memory_end_job(one, -ENOENT);
		return;
	}
	map->ahead = map->ahead_end = 0;
	map->local_most = 0;
	map->closer = one;
}

int careful_memory_unmap(struct careful_memory_remote *remote)
{
	struct memory_job job = { .start = job_unmap, .remote = remote };

	return memory_run(remote->memory, &job);
}
