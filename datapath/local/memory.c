// SPDX-License-Identifier: BSD-2-Clause
/* Memory that an attached program shares with carefuld, and regions.
 *
 * carefuld sees other memory as a file, /proc/self/mem, which the program opens because carefuld
 * may not. An address is an offset in that file, and the kernel copies between the memory and
 * frames. The memory ends with the program, and carefuld reads nothing more from it. */
#include "local/attach.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Longest wait for carefuld's writes to end: on a disk that hangs, a write may never end. */
enum { QUIET_MS = 3000 };

/* Allocates pages of the shared memory. -EMSGSIZE: it has fewer; -EAGAIN: too few are free now. */
int attached_pages(struct attached *a, uint64_t bytes, uint64_t *memory_off)
{
	const uint64_t want = (bytes + ATTACH_PAGE_BYTES - 1) / ATTACH_PAGE_BYTES;
	uint32_t run = 0;

	if (bytes > a->memory_bytes)
		return -EMSGSIZE;
	for (uint32_t i = 0; i < a->pages_count; i++) {
		run = a->pages_used[i] ? 0 : run + 1;
		if (run < want)
			continue;
		i -= run - 1;
		memset(a->pages_used + i, 1, run);
		*memory_off = (uint64_t)i * ATTACH_PAGE_BYTES;
		return 0;
	}
	return -EAGAIN;
}

int attached_memory(struct careful *c, uint64_t bytes, void **base)
{
	uint64_t off;

	if (attached_pages(c->attached, bytes, &off))
		return -ENOMEM;
	c->attached->lent = true;
	*base = c->attached->memory + off;
	memset(*base, 0, bytes);
	return 0;
}

/* Passes a file to carefuld. -EAGAIN: carefuld holds as many of our files as it accepts. */
int attached_file_add(struct careful *c, int fd, uint32_t *file)
{
	struct careful_ipc head = { .op = CAREFUL_IPC_FILE_ADD };
	int rc = fd < 0 ? -EBADF : attached_pass(c, &head, NULL, fd, NULL, 0);

	*file = head.file;
	return rc == -EMFILE ? -EAGAIN : rc;
}

/* Removes the file of an operation, unless it is /proc/self/mem. */
void attached_file_remove(struct careful *c, uint32_t file)
{
	struct careful_ipc head = { .op = CAREFUL_IPC_FILE_REMOVE, .file = file - 1 };

	if (file && file != c->attached->own_file)
		attached_ask(c, &head, NULL, 0);
}

static int open_own_memory(void)
{
	int fd = open("/proc/self/mem", O_RDWR | O_CLOEXEC);

	return fd < 0 ? -EOPNOTSUPP : fd; /* no /proc, or no permission */
}

int attached_own_file(struct careful *c)
{
	struct attached *a = c->attached;
	uint32_t file;
	int fd, rc;

	if (!a->own_file) {
		fd = open_own_memory();
		if (fd < 0)
			return fd;
		rc = attached_file_add(c, fd, &file);
		close(fd);
		if (rc)
			return rc;
		a->own_file = file + 1;
	}
	return (int)a->own_file - 1;
}

/* Stops carefuld from writing into the application's memory, which may soon have another use. Does
 * nothing in a child of fork(), whose memory is a copy. */
void attached_quiet(struct careful *c)
{
	const struct timespec pause = { .tv_nsec = 1000000 };
	const struct attached *a = c->attached;
	bool may_write = a->own_file || a->lent;

	for (uint32_t i = 0; i < CAREFUL_AREA_REGIONS; i++)
		may_write |= a->regions[i].key;
	if (!may_write || c->owner != getpid())
		return;
	for (uint32_t i = 0; i < QUIET_MS; i++) {
		struct careful_ipc head = { .op = CAREFUL_IPC_QUIET };

		if (attached_ask(c, &head, NULL, 0) != -EBUSY)
			return;
		nanosleep(&pause, NULL);
	}
}

static struct attached_region *find_region(const struct attached *a, uint32_t key)
{
	for (uint32_t i = 0; i < CAREFUL_AREA_REGIONS; i++)
		if (a->regions[i].key == key)
			return (struct attached_region *)&a->regions[i];
	return NULL;
}

int attached_region_add(struct careful *c, const struct careful_region *region, uint32_t *key)
{
	struct attached *a = c->attached;
	const uint64_t off = (uint64_t)((uintptr_t)region->span.base - (uintptr_t)a->memory);
	struct attached_region *own = NULL;
	struct careful_ipc head = {
		.op = CAREFUL_IPC_REGION_ADD,
		.bytes = region->bytes,
		.flags = region->access,
		.peer = region->peer,
	};
	int rc, fd = -1;

	if (!region->span.base) {
		fd = region->span.fd;
		head.file_off = region->span.offset;
		if (fd < 0)
			return -EINVAL;
	} else if (off <= a->memory_bytes && region->bytes <= a->memory_bytes - off) {
		head.region_off = off;
	} else {
		own = find_region(a, 0); /* a free entry */
		if (!own)
			return -ENOSPC;
		fd = open_own_memory();
		if (fd < 0)
			return fd;
		head.file_off = (uintptr_t)region->span.base;
	}
	rc = attached_pass(c, &head, NULL, fd, NULL, 0);
	if (own)
		close(fd);
	if (rc)
		return rc;
	*key = head.region;
	if (own)
		*own = (struct attached_region){ .key = *key, .base = region->span.base };
	return 0;
}

int attached_region_remove(struct careful *c, uint32_t key)
{
	struct careful_ipc head = { .op = CAREFUL_IPC_REGION_REMOVE, .region = key };
	struct attached_region *own = key ? find_region(c->attached, key) : NULL;
	int rc = attached_ask(c, &head, NULL, 0);

	if (!rc && own)
		own->key = 0;
	return rc;
}

/* Returns the bytes of a store to a region outside the shared memory; NULL: a file's region. */
const uint8_t *attached_stored(const struct attached *a, uint32_t key, uint64_t off)
{
	const struct attached_region *region = key ? find_region(a, key) : NULL;

	return region ? region->base + off : NULL;
}
