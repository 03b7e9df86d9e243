// SPDX-License-Identifier: BSD-2-Clause
/* Maps of pieces: memory, faults and calls. */
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

enum { EVENTS = 16 };

/* Returns the map that serves an address, among those of the reader's userfaultfd, or NULL. */
static struct careful_memory_map *map_at(struct careful_memory_map *reader, uint64_t address)
{
	struct careful_memory_map *map = reader->remote->memory->maps;

	while (map && (map->ours != reader->ours ||
		       (!map->ours && map->caller_uffd != reader->caller_uffd) ||
		       address < map->base || address - map->base >= map->pages * MAP_PAGE))
		map = map->next;
	return map;
}

/* Handles madvise() of the memory's process: the pages are zeros now. */
static void take_removed(struct careful_memory_map *reader, uint64_t address, uint64_t end)
{
	for (; address < end; address += MAP_PAGE) {
		struct careful_memory_map *map = map_at(reader, address);
		uint8_t *state = map ? &map->states[(address - map->base) / MAP_PAGE] : NULL;

		if (!map)
			continue;
		map->local -= *state == PAGE_CLEAN;
		*state = PAGE_REMOVED;
	}
}

/* Handles an event that the reader's userfaultfd reported. */
static void take_event(struct careful_memory_map *reader, const struct uffd_msg *message)
{
	const uint64_t address = message->arg.pagefault.address;
	const uint64_t flags = message->arg.pagefault.flags;
	struct careful_memory_map *map = map_at(reader, address);
	uint64_t page;

	if (message->event == UFFD_EVENT_REMOVE && !reader->ours)
		take_removed(reader, message->arg.remove.start, message->arg.remove.end);
	if (message->event != UFFD_EVENT_PAGEFAULT || !map)
		return;
	page = (address - map->base) / MAP_PAGE;
	if (!(flags & UFFD_PAGEFAULT_FLAG_WP)) {
		fetch_fault(map, page, flags & UFFD_PAGEFAULT_FLAG_WRITE);
		return;
	}
	if (map->states[page] == PAGE_CLEAN)
		map->states[page] = PAGE_DIRTY;
	else if (map->states[page] == PAGE_SAVING)
		map->states[page] = PAGE_REWRITTEN;
	if (map->states[page] == PAGE_DIRTY || map->states[page] == PAGE_REWRITTEN)
		uffd_protect(map->uffd, map->base + page * MAP_PAGE, MAP_PAGE, false);
	uffd_wake(map->uffd, map->base + page * MAP_PAGE, MAP_PAGE);
}

static void read_events(struct careful_memory_map *map)
{
	struct uffd_msg messages[EVENTS];
	ssize_t n = read(map->uffd, messages, sizeof(messages));

	for (ssize_t i = 0; i < n / (ssize_t)sizeof(messages[0]); i++)
		take_event(map, &messages[i]);
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

/* Ends closed maps whose slots are free and whose flush has ended. */
static void end_closed(struct careful_memory *memory)
{
	struct careful_memory_map **at = &memory->maps, *map;

	while ((map = *at)) {
		if (!map->closer || map->flush || map->under_way) {
			at = &map->next;
			continue;
		}
		*at = map->next;
		map->remote->map = NULL;
		/* epoll would keep a userfaultfd of which the caller has a duplicate */
		epoll_ctl(memory->extra_fd, EPOLL_CTL_DEL, map->uffd, NULL);
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
			read_events(map);
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
	int rc;

	if (memory->slots)
		return 0;
	rc = careful_memory(memory->instance, (uint64_t)MAP_SLOTS * MAP_SLOT_BYTES, &base);
	if (rc)
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

/* Makes the memory of a map, in small pages because they arrive one by one. */
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

static void job_map(struct careful_memory *memory, struct memory_job *job)
{
	struct careful_memory_map *map = job->map;
	struct epoll_event event = { .events = EPOLLIN };
	int rc = job->remote->map ? -EBUSY : make_slots(memory);

	if (!rc && (epoll_ctl(memory->extra_fd, EPOLL_CTL_ADD, map->uffd, &event) ||
		    epoll_ctl(memory->sleep_fd, EPOLL_CTL_ADD, map->uffd, &event)))
		rc = -errno;
	if (!rc) {
		map->next = memory->maps;
		memory->maps = map;
		job->remote->map = map;
	}
	memory_end_job(job, rc);
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
	map->caller_uffd = options->uffd;
	map->uffd = options->uffd < 0 ? -1 : fcntl(options->uffd, F_DUPFD_CLOEXEC, 0);
	map->ours = options->uffd < 0;
	map->writable = options->writable;
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
	if (!map->ours && (options->writable || options->local_bytes))
		rc = -EINVAL;
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

static void job_flush(struct careful_memory *memory, struct memory_job *job)
{
	struct careful_memory_map *map = job->remote->map;

	(void)memory;
	if (!map || map->flush) {
		memory_end_job(job, map ? -EAGAIN : -ENOENT);
		return;
	}
	map->flush = job;
	map->flush_page = 0;
}

int careful_memory_flush(struct careful_memory_remote *remote)
{
	int rc;

	do { /* -EAGAIN: another flush is under way */
		struct memory_job job = { .start = job_flush, .remote = remote };

		rc = memory_run(remote->memory, &job);
	} while (rc == -EAGAIN && !usleep(1000));
	return rc;
}

static void job_prefetch(struct careful_memory *memory, struct memory_job *job)
{
	struct careful_memory_map *map = job->remote->map;

	(void)memory;
	if (!map || job->offset > map->bytes || job->bytes > map->bytes - job->offset) {
		memory_end_job(job, map ? -ERANGE : -ENOENT);
		return;
	}
	map->ahead = job->offset / MAP_PAGE;
	map->ahead_end = (job->offset + job->bytes + MAP_PAGE - 1) / MAP_PAGE;
	memory_end_job(job, 0);
}

int careful_memory_prefetch(struct careful_memory_remote *remote, uint64_t offset, uint64_t bytes)
{
	struct memory_job job = {
		.start = job_prefetch, .remote = remote, .offset = offset, .bytes = bytes
	};

	return memory_run(remote->memory, &job);
}

static void job_unmap(struct careful_memory *memory, struct memory_job *job)
{
	struct careful_memory_map *map = job->remote->map;

	(void)memory;
	if (!map || map->closer) {
		memory_end_job(job, -ENOENT);
		return;
	}
	map->ahead = map->ahead_end = 0;
	map->local_most = 0;
	map->closer = job;
}

int careful_memory_unmap(struct careful_memory_remote *remote)
{
	struct memory_job job = { .start = job_unmap, .remote = remote };

	return memory_run(remote->memory, &job);
}
