/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Items that make or change something. A file or link is made under a temporary name
 * and renamed; where a batch is synced, many files wait for one sync of their file
 * system, which is a fraction of what a sync of each would take.
 */
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "storage/attr.h"
#include "storage/items.h"

static void name_temporary(struct items *s, char temporary[ITEMS_TEMPORARY_BYTES])
{
	snprintf(temporary, ITEMS_TEMPORARY_BYTES, ".careful-%016llx.part",
		 (unsigned long long)s->counter++);
}

/* Where a file system has no flags for renames, a link does the same. */
static int give_name(int dir, const char *temporary, const char *name, bool replace)
{
	if (!renameat2(dir, temporary, dir, name, replace ? 0 : RENAME_NOREPLACE))
		return 0;
	if (replace || errno != EINVAL)
		return -errno;
	if (linkat(dir, temporary, dir, name, 0))
		return -errno;
	unlinkat(dir, temporary, 0);
	return 0;
}

static int write_all(int fd, const char *data, size_t bytes)
{
	while (bytes) {
		ssize_t n = write(fd, data, bytes);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		data += n;
		bytes -= (size_t)n;
	}
	return 0;
}

static struct attr_how how_of(const struct items *s, bool is_path, bool is_new)
{
	return (struct attr_how){
		.flags = s->flags,
		.umask = s->umask,
		.is_path = is_path,
		.is_new = is_new,
	};
}

/* Attributes of what is there, by name. */
static int apply(struct items *s, int dir, const char *name, bool is_new)
{
	struct attr_how how = how_of(s, true, is_new);
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

/* The number of the parent among the directories of pending files, or -errno. */
static int note_dir(struct items *s, int dir)
{
	struct stat mine, other;
	int copy;

	if (fstat(dir, &mine))
		return -errno;
	for (uint32_t i = s->dirs_count; i--;) {
		if (!fstat(s->dirs[i], &other) && other.st_ino == mine.st_ino &&
		    other.st_dev == mine.st_dev)
			return (int)i;
	}
	copy = fcntl(dir, F_DUPFD_CLOEXEC, 3);
	if (copy < 0)
		return -errno;
	s->dirs[s->dirs_count] = copy;
	return (int)s->dirs_count++;
}

static int wait_for_sync(struct items *s, int dir, const char *temporary, const char *name)
{
	struct pending *p;
	int number;

	if (s->pending_count == ITEMS_PENDING || s->dirs_count == ITEMS_DIRS)
		items_flush(s);
	if (!s->pending)
		s->pending = calloc(ITEMS_PENDING, sizeof(*s->pending));
	if (!s->pending)
		return -ENOMEM;
	number = note_dir(s, dir);
	if (number < 0)
		return number;
	p = &s->pending[s->pending_count++];
	p->dir = (uint32_t)number;
	p->answer = s->used;
	memcpy(p->temporary, temporary, ITEMS_TEMPORARY_BYTES);
	snprintf(p->name, sizeof(p->name), "%s", name);
	return 1;
}

static int make_file(struct items *s, int dir, const char *name)
{
	char temporary[ITEMS_TEMPORARY_BYTES];
	struct attr_how how = how_of(s, false, true);
	const struct item *item = &s->item;
	int fd, rc;

	if (strlen(name) > NAME_MAX)
		return -ENAMETOOLONG;
	if (!(s->flags & CAREFUL_BATCH_NODIGEST) &&
	    XXH3_64bits(item->data, item->data_bytes) != item->digest)
		return -EBADMSG;
	name_temporary(s, temporary);
	fd = openat(dir, temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	rc = write_all(fd, item->data, item->data_bytes);
	if (!rc)
		rc = attr_apply(fd, &item->attr, item->xattrs, item->xattrs_bytes, &how);
	if (close(fd) && !rc)
		rc = -errno;
	if (!rc)
		rc = s->flags & CAREFUL_BATCH_SYNC ?
			     wait_for_sync(s, dir, temporary, name) :
			     give_name(dir, temporary, name, s->flags & CAREFUL_BATCH_REPLACE);
	if (rc < 0)
		unlinkat(dir, temporary, 0);
	return rc;
}

static int make_symlink(struct items *s, int dir, const char *name)
{
	char temporary[ITEMS_TEMPORARY_BYTES];
	int rc;

	name_temporary(s, temporary);
	if (symlinkat(s->item.text, dir, temporary))
		return -errno;
	rc = apply(s, dir, temporary, true);
	if (!rc)
		rc = give_name(dir, temporary, name, s->flags & CAREFUL_BATCH_REPLACE);
	if (rc)
		unlinkat(dir, temporary, 0);
	return rc;
}

/* A second name for a file; item->text is the first. */
static int make_link(struct items *s)
{
	bool replace = s->flags & CAREFUL_BATCH_REPLACE;
	char temporary[ITEMS_TEMPORARY_BYTES];
	const char *first, *name;
	int dir, from = items_parent(s, s->item.text, &first);
	int rc = 0;

	if (from < 0)
		return from;
	from = fcntl(from, F_DUPFD_CLOEXEC, 3); /* the next parent takes its place */
	if (from < 0)
		return -errno;
	dir = items_parent(s, s->item.name, &name);
	name_temporary(s, temporary);
	if (dir < 0)
		rc = dir;
	else if (linkat(from, first, dir, replace ? temporary : name, 0))
		rc = -errno;
	if (!rc && replace) {
		rc = give_name(dir, temporary, name, true);
		/* A rename onto another name of the same file does nothing. */
		unlinkat(dir, temporary, 0);
	}
	close(from);
	return rc;
}

/* Of one that was there already the answer says META. */
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

/* Whether a temporary or partial file belongs to a transfer under way: that locks it. */
static bool is_in_use(int dir, const char *name)
{
	static const char mark[] = "careful-", end[] = ".part";
	size_t n = strlen(name);
	int fd, rc;

	if (*name != '.' || n < sizeof(end) || strcmp(name + n - sizeof(end) + 1, end) != 0 ||
	    !strstr(name, mark))
		return false;
	fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		return false;
	rc = flock(fd, LOCK_EX | LOCK_NB);
	close(fd);
	return rc && errno == EWOULDBLOCK;
}

/* A file or a link; of directories empty ones alone. */
static int remove_one(int dir, const char *name)
{
	struct stat st;

	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW))
		return errno == ENOENT ? 0 : -errno;
	if (S_ISREG(st.st_mode) && is_in_use(dir, name))
		return -EBUSY;
	if (unlinkat(dir, name, S_ISDIR(st.st_mode) ? AT_REMOVEDIR : 0) && errno != ENOENT)
		return -errno;
	return 0;
}

void items_flush(struct items *s)
{
	struct stat st;
	dev_t synced = 0;
	int rc = 0;

	for (uint32_t i = 0; i < s->dirs_count && !rc; i++) {
		if (fstat(s->dirs[i], &st) || (i && st.st_dev == synced))
			continue;
		rc = syncfs(s->dirs[i]) ? -errno : 0;
		synced = st.st_dev;
	}
	for (uint32_t i = 0; i < s->pending_count; i++) {
		const struct pending *p = &s->pending[i];
		int dir = s->dirs[p->dir];
		int status = rc ? rc :
				  give_name(dir, p->temporary, p->name,
					    s->flags & CAREFUL_BATCH_REPLACE);
		struct careful_block_item *record = (void *)(s->out + p->answer);

		if (!status)
			continue;
		unlinkat(dir, p->temporary, 0);
		record->status = htobe32((uint32_t)-status);
		s->failed++;
	}
	for (uint32_t i = 0; i < s->dirs_count; i++)
		close(s->dirs[i]);
	s->dirs_count = 0;
	s->pending_count = 0;
}

int items_write(struct items *s)
{
	const char *name;
	int dir;

	/* What follows may stand on what is pending. */
	if (s->pending_count && s->item.op != CAREFUL_ITEM_FILE)
		items_flush(s);
	if (s->item.op == CAREFUL_ITEM_LINK)
		return make_link(s);
	dir = items_parent(s, s->item.name, &name);
	if (dir < 0)
		return dir;
	switch (s->item.op) {
	case CAREFUL_ITEM_FILE:
		return make_file(s, dir, name);
	case CAREFUL_ITEM_DIRECTORY:
		return make_directory(s, dir, name);
	case CAREFUL_ITEM_SYMLINK:
		return make_symlink(s, dir, name);
	case CAREFUL_ITEM_META:
		return apply(s, dir, name, false);
	case CAREFUL_ITEM_REMOVE:
		return remove_one(dir, name);
	case CAREFUL_ITEM_SYNC:
		return syncfs(dir) ? -errno : 0;
	default:
		return -EINVAL;
	}
}
