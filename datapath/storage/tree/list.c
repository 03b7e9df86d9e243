/* SPDX-License-Identifier: BSD-2-Clause */
/* The tree below a directory as careful_block_entry records in memory, breadth first: the records
 * are the queue of directories to list. */
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "storage/tree/tree.h"

enum { ROOM_FIRST = 64 << 10 };

struct list {
	char *out;
	size_t used, room;
	struct entry_scan scan;
};

static int append(struct entry_scan *scan, size_t bytes, void *user)
{
	struct list *l = user;
	size_t room = l->room ? l->room : ROOM_FIRST;
	char *more;

	if (l->used + bytes > l->room) {
		while (room < l->used + bytes)
			room *= 2;
		more = realloc(l->out, room);
		if (!more)
			return -ENOMEM;
		l->out = more;
		l->room = room;
	}
	memcpy(l->out + l->used, &scan->record, bytes);
	l->used += bytes;
	return 0;
}

/* Appends the contents of the directory whose record is at `at`, or sets that record's error. */
static int list_directory(struct list *l, int base, size_t at)
{
	struct careful_block_entry *e = (void *)(l->out + at);
	char name[PATH_MAX];
	int fd, rc;

	memcpy(name, e + 1, be16toh(e->name_bytes));
	name[be16toh(e->name_bytes)] = 0;
	/* A symlink may have replaced the directory. */
	fd = beneath_open(base, name, O_RDONLY | O_DIRECTORY, RESOLVE_NO_SYMLINKS);
	rc = fd < 0 ? fd : entry_each(&l->scan, fd, name, append, l);
	if (rc == -ENOTDIR || rc == -ELOOP || rc == -EXDEV)
		return 0; /* replaced since it was listed */
	if (rc == -ENOENT &&
	    !entry_is_directory(beneath_open(base, name, O_PATH | O_NOFOLLOW, RESOLVE_NO_SYMLINKS)))
		return 0; /* gone */
	if (!rc || rc == -ENOMEM)
		return rc;
	e = (void *)(l->out + at); /* append() may have moved the record */
	e->error = htobe32((uint32_t)-rc);
	l->scan.unreadable++;
	return 0;
}

static int list_tree(struct list *l, int base)
{
	int fd = beneath_open(base, ".", O_RDONLY | O_DIRECTORY, 0);
	int rc = fd < 0 ? fd : entry_each(&l->scan, fd, "", append, l);
	size_t at = 0;

	while (!rc && at < l->used) {
		const struct careful_block_entry *e = (const void *)(l->out + at);
		size_t bytes = sizeof(*e) + be16toh(e->name_bytes) + be16toh(e->target_bytes);

		if (S_ISDIR(be32toh(e->attr.mode)) && !e->error)
			rc = list_directory(l, base, at);
		at += (bytes + 7) & ~(size_t)7;
	}
	return rc;
}

int careful_list(int base, struct careful_list *list)
{
	struct list *l = calloc(1, sizeof(*l));
	int rc;

	*list = (struct careful_list){ 0 };
	if (!l)
		return -ENOMEM;
	rc = list_tree(l, base);
	if (rc) {
		free(l->out);
	} else {
		list->entries = l->out;
		list->bytes = l->used;
		list->unreadable = l->scan.unreadable;
	}
	free(l);
	return rc;
}

void careful_list_release(struct careful_list *list)
{
	free(list->entries);
	list->entries = NULL;
}
