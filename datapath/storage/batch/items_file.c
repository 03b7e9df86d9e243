/* SPDX-License-Identifier: BSD-2-Clause */
/* FILE: writes a file that is never visible half-written. It is made without a name and linked when
 * complete, so a crash leaves nothing; file systems without O_TMPFILE get a temporary name first.
 * In a synced batch many files share one cheaper sync of their file system. */
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "storage/tree/attr.h"
#include "storage/batch/items.h"
#include "base/io.h"
#include "base/xxh3.h"

void items_temporary(struct items *s, char temporary[ITEMS_TEMPORARY_BYTES])
{
	/* If the lock fails, another process is clearing the directory; it cannot know the new
	 * name. */
	if (!s->parent_locked)
		flock(s->parent, LOCK_SH | LOCK_NB);
	s->parent_locked = true;
	snprintf(temporary, ITEMS_TEMPORARY_BYTES, ".careful-%016llx.part",
		 (unsigned long long)s->counter++);
}

int rename_temporary(int dir, const char *temporary, const char *name, bool replace)
{
	if (!renameat2(dir, temporary, dir, name, replace ? 0 : RENAME_NOREPLACE))
		return 0;
	if (replace || errno != EINVAL)
		return -errno;
	/* the file system has no RENAME_NOREPLACE */
	if (linkat(dir, temporary, dir, name, 0))
		return -errno;
	unlinkat(dir, temporary, 0);
	return 0;
}

/* Returns the index of a directory in `dirs`; adds a duplicate if it is not there. */
static int dir_index(struct items *s, int dir)
{
	struct stat st, other;
	int copy;

	if (fstat(dir, &st))
		return -errno;
	for (uint32_t i = s->dirs_count; i--;) {
		if (!fstat(s->dirs[i], &other) && other.st_ino == st.st_ino &&
		    other.st_dev == st.st_dev)
			return (int)i;
	}
	copy = fcntl(dir, F_DUPFD_CLOEXEC, 3);
	if (copy < 0)
		return -errno;
	s->dirs[s->dirs_count] = copy;
	return (int)s->dirs_count++;
}

static int add_pending(struct items *s, int dir, const char *temporary, const char *name)
{
	struct pending *p;
	int index;

	if (s->pending_count == ITEMS_PENDING || s->dirs_count == ITEMS_DIRS)
		items_flush(s);
	if (!s->pending)
		s->pending = calloc(ITEMS_PENDING, sizeof(*s->pending));
	if (!s->pending)
		return -ENOMEM;
	index = dir_index(s, dir);
	if (index < 0)
		return index;
	p = &s->pending[s->pending_count++];
	p->dir = (uint32_t)index;
	p->answer = s->used;
	memcpy(p->temporary, temporary, ITEMS_TEMPORARY_BYTES);
	snprintf(p->name, sizeof(p->name), "%s", name);
	return 1;
}

/* Reports whether a new file in this directory gets the wanted owner without chown. */
static bool has_owner(const struct items *s)
{
	const struct careful_block_attr *attr = &s->item.attr;

	if (!(s->flags & CAREFUL_BATCH_OWNER))
		return true;
	return s->fresh.owner_known && be32toh(attr->gid) == s->fresh.gid &&
	       (!s->is_root || be32toh(attr->uid) == s->fresh.uid);
}

/* Records the owner and mode of new files in this directory. Most files want just these, and so need
 * neither chown nor chmod. */
static int record_fresh(struct items_fresh *fresh, int fd, mode_t asked)
{
	struct stat st;

	if (fresh->mode_known && fresh->asked == asked)
		return 0;
	if (fstat(fd, &st))
		return -errno;
	*fresh = (struct items_fresh){
		.owner_known = true,
		.uid = st.st_uid,
		.gid = st.st_gid,
		.mode_known = true,
		.asked = asked,
		.mode = st.st_mode & 07777,
	};
	return 0;
}

static struct attr_how new_file_attr(const struct items *s)
{
	return (struct attr_how){
		.flags = s->flags,
		.umask = s->keeps_mode ? 0 : s->umask,
		.squashed = s->squashed,
		.is_new = true,
	};
}

/* A file that replaces another keeps the old mode, unless the batch sets modes. */
static void keep_mode(struct items *s, int dir, const char *name)
{
	const bool may = s->flags & CAREFUL_BATCH_REPLACE && !(s->flags & CAREFUL_BATCH_MODE);
	struct stat st;

	s->keeps_mode = may && !fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) && S_ISREG(st.st_mode);
	if (s->keeps_mode)
		s->item.attr.mode = htobe32(st.st_mode & (S_IFMT | 0777));
}

/* Writes a new file's contents and attributes. */
static int fill(struct items *s, int fd, mode_t asked)
{
	const struct item *item = &s->item;
	struct attr_how how = new_file_attr(s);
	int rc = io_write(fd, item->data, item->data_bytes);

	if (!rc)
		rc = record_fresh(&s->fresh, fd, asked);
	if (rc)
		return rc;
	if (has_owner(s)) {
		how.flags &= ~(uint32_t)CAREFUL_BATCH_OWNER;
		how.has_mode = s->fresh.mode == attr_mode(&item->attr, &how);
	}
	rc = attr_apply(fd, &item->attr, item->xattrs, item->xattrs_bytes, &how);
	s->unkept = rc == -ENOSYS || rc == -ERANGE ? rc : 0;
	return s->unkept ? 0 : rc;
}

/* Returns the mode for open(). A file that will get another owner stays private until then. */
static mode_t open_mode(const struct items *s)
{
	struct attr_how how = new_file_attr(s);

	return has_owner(s) ? attr_mode(&s->item.attr, &how) & 0777 : 0600;
}

static int link_file(struct items *s, int fd, int dir, const char *name)
{
	char temporary[ITEMS_TEMPORARY_BYTES];
	int rc;

	if (!linkat(fd, "", dir, name, AT_EMPTY_PATH))
		return 0;
	if (errno != EEXIST || !(s->flags & CAREFUL_BATCH_REPLACE))
		return -errno;
	items_temporary(s, temporary);
	if (linkat(fd, "", dir, temporary, AT_EMPTY_PATH))
		return -errno;
	rc = rename_temporary(dir, temporary, name, true);
	if (rc)
		unlinkat(dir, temporary, 0);
	return rc;
}

/* Returns 0 or -errno; -EOPNOTSUPP: the file system has no O_TMPFILE. */
static int make_nameless(struct items *s, int dir, const char *name)
{
	mode_t asked = open_mode(s);
	int rc, fd = openat(dir, ".", O_WRONLY | O_TMPFILE | O_CLOEXEC, asked);

	if (fd < 0)
		return errno == EISDIR || errno == EINVAL ? -EOPNOTSUPP : -errno;
	rc = fill(s, fd, asked);
	if (!rc) {
		rc = link_file(s, fd, dir, name);
		if (rc == -ENOENT) /* before 6.10 only root may link by descriptor */
			rc = -EOPNOTSUPP;
	}
	if (close(fd) && !rc)
		rc = -errno;
	return rc;
}

static int make_named(struct items *s, int dir, const char *name)
{
	char temporary[ITEMS_TEMPORARY_BYTES];
	mode_t asked = open_mode(s);
	int fd, rc;

	items_temporary(s, temporary);
	fd = openat(dir, temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, asked);
	if (fd < 0)
		return -errno;
	rc = fill(s, fd, asked);
	if (close(fd) && !rc)
		rc = -errno;
	if (!rc)
		rc = s->flags & CAREFUL_BATCH_SYNC ?
			     add_pending(s, dir, temporary, name) :
			     rename_temporary(dir, temporary, name,
					      s->flags & CAREFUL_BATCH_REPLACE);
	if (rc < 0)
		unlinkat(dir, temporary, 0);
	return rc;
}

int items_make_file(struct items *s, int dir, const char *name)
{
	const struct item *item = &s->item;
	int rc = -EOPNOTSUPP;

	if (strlen(name) > NAME_MAX)
		return -ENAMETOOLONG;
	if (!(s->flags & CAREFUL_BATCH_NODIGEST) &&
	    xxh3_hash(item->data, item->data_bytes) != item->digest)
		return -EBADMSG;
	keep_mode(s, dir, name);
	/* A pending nameless file would hold a descriptor until the sync. */
	if (!(s->flags & CAREFUL_BATCH_SYNC) && !s->no_nameless) {
		rc = make_nameless(s, dir, name);
		s->no_nameless = rc == -EOPNOTSUPP;
	}
	return rc == -EOPNOTSUPP ? make_named(s, dir, name) : rc;
}

static int sync_pending(struct items *s)
{
	dev_t synced[ITEMS_DIRS];
	uint32_t count = 0;

	if (s->is_unwanted)
		return -ECONNRESET;
	if (++s->syncs > ITEMS_SYNCS)
		return -EOVERFLOW;
	for (uint32_t i = 0; i < s->dirs_count; i++) {
		uint32_t at = 0;
		struct stat st;

		if (fstat(s->dirs[i], &st))
			continue;
		while (at < count && synced[at] != st.st_dev)
			at++;
		if (at < count)
			continue;
		if (syncfs(s->dirs[i]))
			return -errno;
		synced[count++] = st.st_dev;
	}
	return 0;
}

void items_flush(struct items *s)
{
	int rc = s->pending_count ? sync_pending(s) : 0;

	for (uint32_t i = 0; i < s->pending_count; i++) {
		const struct pending *p = &s->pending[i];
		int dir = s->dirs[p->dir];
		int status = rc ? rc :
				  rename_temporary(dir, p->temporary, p->name,
						   s->flags & CAREFUL_BATCH_REPLACE);
		struct careful_block_item *record = (void *)(s->out + p->answer);

		if (!status)
			continue;
		unlinkat(dir, p->temporary, 0);
		s->failed += !record->status;
		record->status = htobe32((uint32_t)-status);
	}
	for (uint32_t i = 0; i < s->dirs_count; i++)
		close(s->dirs[i]);
	s->dirs_count = 0;
	s->pending_count = 0;
}
