/* SPDX-License-Identifier: BSD-2-Clause */
/* Items that act on a file by its existing name: RENAME, LINK and APPEND. */
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "storage/batch/items.h"
#include "storage/tree/tree.h"
#include "base/io.h"
#include "base/xxh3.h"

enum { APPEND_TRIES = 16 }; /* while another process creates and removes the file */

/* An item's two names: `text` is the old name, `name` the new one. */
struct names {
	int old_dir, new_dir; /* the caller closes old_dir */
	const char *old, *new;
};

static int find_names(struct items *s, struct names *names)
{
	names->old_dir = items_parent(s, s->item.text, &names->old);
	if (names->old_dir < 0)
		return names->old_dir;
	/* The next items_parent() closes the batch's descriptor. */
	names->old_dir = fcntl(names->old_dir, F_DUPFD_CLOEXEC, 3);
	if (names->old_dir < 0)
		return -errno;
	names->new_dir = items_parent(s, s->item.name, &names->new);
	if (names->new_dir < 0)
		close(names->old_dir);
	return names->new_dir < 0 ? names->new_dir : 0;
}

int items_link(struct items *s)
{
	bool replace = s->flags & CAREFUL_BATCH_REPLACE;
	char temporary[ITEMS_TEMPORARY_BYTES];
	struct names names;
	int rc = find_names(s, &names);

	if (rc)
		return rc;
	items_temporary(s, temporary);
	if (linkat(names.old_dir, names.old, names.new_dir, replace ? temporary : names.new, 0))
		rc = -errno;
	if (!rc && replace) {
		rc = rename_temporary(names.new_dir, temporary, names.new, true);
		/* A rename between two links of the same file does nothing. */
		unlinkat(names.new_dir, temporary, 0);
	}
	close(names.old_dir);
	return rc;
}

/* Syncs a directory. EINVAL: the file system needs no sync of directories. */
static int sync_dir(int dir)
{
	return fsync(dir) && errno != EINVAL ? -errno : 0;
}

int items_rename(struct items *s)
{
	unsigned int flags = s->flags & CAREFUL_BATCH_REPLACE ? 0 : RENAME_NOREPLACE;
	struct names names;
	int rc = find_names(s, &names);

	if (rc)
		return rc;
	if (renameat2(names.old_dir, names.old, names.new_dir, names.new, flags))
		rc = -errno;
	/* The file system has no RENAME_NOREPLACE: files can be linked, directories cannot. */
	if (rc == -EINVAL && flags) {
		if (!linkat(names.old_dir, names.old, names.new_dir, names.new, 0))
			rc = unlinkat(names.old_dir, names.old, 0) ? -errno : 0;
		else if (errno == EEXIST)
			rc = -EEXIST;
	}
	if (!rc && s->flags & CAREFUL_BATCH_SYNC)
		rc = sync_dir(names.new_dir);
	if (!rc && s->flags & CAREFUL_BATCH_SYNC)
		rc = sync_dir(names.old_dir);
	close(names.old_dir);
	return rc;
}

static int check_appendable(const struct items *s, int fd)
{
	struct stat st;

	if (fstat(fd, &st))
		return -errno;
	if (!S_ISREG(st.st_mode))
		return S_ISDIR(st.st_mode) ? -EISDIR : -ENOTSUP;
	/* The kernel does not clear set-ID bits when root writes. */
	return s->squashed && st.st_mode & (S_ISUID | S_ISGID) ? -EPERM : 0;
}

/* Opens an existing file. Checks the type through O_PATH first, because opening a FIFO or device
 * may block or act. */
static int open_existing(const struct items *s)
{
	const uint64_t resolve = s->no_symlinks ? RESOLVE_NO_SYMLINKS : 0;
	int rc, fd = beneath_open(s->base, s->item.name, O_PATH, resolve);

	if (fd < 0)
		return fd;
	rc = check_appendable(s, fd);
	close(fd);
	if (rc)
		return rc;
	fd = beneath_open(s->base, s->item.name, O_WRONLY | O_APPEND | O_NONBLOCK, resolve);
	rc = fd < 0 ? fd : check_appendable(s, fd);
	if (rc && fd >= 0)
		close(fd);
	return rc ? rc : fd;
}

/* Opens the file, or creates it if the name is free. *is_new: it was created. */
static int open_to_append(struct items *s, bool *is_new)
{
	const mode_t mode = be32toh(s->item.attr.mode) & 0777 & ~s->umask;
	const int flags = O_WRONLY | O_APPEND | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
	const char *last;
	int dir, fd = -EEXIST;

	for (int i = 0; i < APPEND_TRIES; i++) {
		fd = open_existing(s);
		if (fd != -ENOENT)
			return fd;
		dir = items_parent(s, s->item.name, &last);
		if (dir < 0)
			return dir;
		fd = openat(dir, last, flags, mode);
		*is_new = fd >= 0;
		if (fd >= 0 || errno != EEXIST)
			return fd >= 0 ? fd : -errno;
		if (last != s->item.name) /* undo items_parent()'s cut */
			s->item.name[last - s->item.name - 1] = '/';
	}
	return -ENOENT; /* a dangling symlink */
}

int items_append(struct items *s)
{
	const struct item *item = &s->item;
	bool is_new = false;
	int rc, fd;

	if (!(s->flags & CAREFUL_BATCH_NODIGEST) &&
	    xxh3_hash(item->data, item->data_bytes) != item->digest)
		return -EBADMSG;
	fd = open_to_append(s, &is_new);
	if (fd < 0)
		return fd;
	rc = io_write(fd, item->data, item->data_bytes);
	if (!rc && s->flags & CAREFUL_BATCH_SYNC && fsync(fd))
		rc = -errno;
	if (!rc && is_new && s->flags & CAREFUL_BATCH_SYNC)
		rc = sync_dir(s->parent);
	close(fd);
	return rc;
}
