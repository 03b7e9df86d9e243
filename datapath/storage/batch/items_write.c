/* SPDX-License-Identifier: BSD-2-Clause */
/* Items that make or change something, except files with contents (items_file.c). */
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "storage/tree/attr.h"
#include "storage/batch/items.h"
#include "storage/tree/partial.h"

static int set_attr(struct items *s, int dir, const char *name, bool is_new)
{
	struct attr_how how = {
		.flags = s->flags,
		.umask = s->umask,
		.squashed = s->squashed,
		.is_path = true,
		.is_new = is_new,
	};
	mode_t type = be32toh(s->item.attr.mode) & S_IFMT;
	int fd = openat(dir, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	struct stat st;
	int rc;

	if (fd < 0)
		return -errno;
	rc = fstat(fd, &st) ? -errno : (st.st_mode & S_IFMT) != type ? -ESTALE : 0;
	if (!rc)
		rc = attr_apply(fd, &s->item.attr, s->item.xattrs, s->item.xattrs_bytes, &how);
	close(fd);
	return rc;
}

static int make_symlink(struct items *s, int dir, const char *name)
{
	char temporary[ITEMS_TEMPORARY_BYTES];
	int rc;

	items_temporary(s, temporary);
	if (symlinkat(s->item.text, dir, temporary))
		return -errno;
	rc = set_attr(s, dir, temporary, true);
	if (!rc)
		rc = rename_temporary(dir, temporary, name, s->flags & CAREFUL_BATCH_REPLACE);
	if (rc)
		unlinkat(dir, temporary, 0);
	return rc;
}

/* Makes a directory; if it exists, the answer is META. */
static int make_directory(struct items *s, int dir, const char *name)
{
	struct stat st;

	if (!mkdirat(dir, name, (be32toh(s->item.attr.mode) & 0777 & ~s->umask) | 0700))
		return 0;
	if (errno != EEXIST)
		return -errno;
	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW))
		return -errno;
	s->item.op = CAREFUL_ITEM_META;
	return S_ISDIR(st.st_mode) ? 0 : -ENOTDIR;
}

/* Removes a temporary or partial file, unless a transfer uses it. A transfer locks its file, or the
 * directory of its many files; while we hold both locks, no transfer can begin to use the file. */
static int remove_partial(struct items *s, int dir, const char *name)
{
	int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	bool busy = fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK;
	int rc = 0;

	if (!busy) {
		busy = flock(dir, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK;
		s->parent_locked = false;
	}
	if (busy)
		rc = -EBUSY;
	else if (unlinkat(dir, name, 0) && errno != ENOENT)
		rc = -errno;
	flock(dir, LOCK_UN);
	if (fd >= 0)
		close(fd);
	return rc;
}

static int remove_item(struct items *s, int dir, const char *name)
{
	struct stat st;

	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW))
		return errno == ENOENT ? 0 : -errno;
	if (!S_ISDIR(st.st_mode) && partial_is_named(name, strlen(name)))
		return remove_partial(s, dir, name);
	if (unlinkat(dir, name, S_ISDIR(st.st_mode) ? AT_REMOVEDIR : 0) && errno != ENOENT)
		return -errno;
	return 0;
}

int items_write(struct items *s)
{
	const char *name;
	int dir;

	/* Later items may depend on pending files. */
	if (s->pending_count && s->item.op != CAREFUL_ITEM_FILE)
		items_flush(s);
	switch (s->item.op) {
	case CAREFUL_ITEM_LINK:
		return items_link(s);
	case CAREFUL_ITEM_RENAME:
		return items_rename(s);
	case CAREFUL_ITEM_APPEND:
		return items_append(s);
	default:
		break;
	}
	dir = items_parent(s, s->item.name, &name);
	if (dir < 0)
		return dir;
	switch (s->item.op) {
	case CAREFUL_ITEM_FILE:
		return items_make_file(s, dir, name);
	case CAREFUL_ITEM_DIRECTORY:
		return make_directory(s, dir, name);
	case CAREFUL_ITEM_SYMLINK:
		return make_symlink(s, dir, name);
	case CAREFUL_ITEM_META:
		return set_attr(s, dir, name, false);
	case CAREFUL_ITEM_REMOVE:
		return remove_item(s, dir, name);
	case CAREFUL_ITEM_SYNC:
		if (++s->syncs > ITEMS_SYNCS)
			return -EOVERFLOW;
		return syncfs(dir) ? -errno : 0;
	default:
		return -EINVAL;
	}
}
