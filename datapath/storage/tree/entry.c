/* SPDX-License-Identifier: BSD-2-Clause */
/* Directories as records (tree.h). */
#include <dirent.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "storage/tree/tree.h"

size_t entry_finish(struct entry_scan *scan, size_t name_bytes, size_t target_bytes)
{
	size_t bytes = sizeof(scan->record.entry) + name_bytes + target_bytes;
	size_t padded = (bytes + 7) & ~(size_t)7;

	scan->record.entry.name_bytes = htobe16((uint16_t)name_bytes);
	scan->record.entry.target_bytes = htobe16((uint16_t)target_bytes);
	memset((char *)&scan->record + bytes, 0, padded - bytes);
	return padded;
}

static void set_error(struct entry_scan *scan, int error)
{
	scan->record.entry.error = htobe32((uint32_t)error);
	scan->unreadable++;
}

/* Fills the record of an entry; returns its bytes. 0: no record, because the entry is gone or its
 * path is too long for a request. */
static size_t fill(struct entry_scan *scan, int dir_fd, const char *prefix, const char *name)
{
	struct careful_block_entry *e = &scan->record.entry;
	char *text = scan->record.text;
	size_t prefix_bytes = strlen(prefix), name_bytes = strlen(name);
	struct stat st;
	ssize_t n = 0;

	memset(e, 0, sizeof(*e));
	if (prefix_bytes + 1 + name_bytes >= PATH_MAX) {
		scan->unreadable++;
		return 0;
	}
	if (prefix_bytes) {
		memcpy(text, prefix, prefix_bytes); /* NOLINT: records count their bytes */
		text[prefix_bytes++] = '/';
	}
	memcpy(text + prefix_bytes, name, name_bytes); /* NOLINT */
	name_bytes += prefix_bytes;
	if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW)) {
		if (errno == ENOENT)
			return 0;
		set_error(scan, errno);
		return entry_finish(scan, name_bytes, 0);
	}
	attr_set(&e->attr, &st);
	if (S_ISLNK(st.st_mode))
		n = readlinkat(dir_fd, name, text + name_bytes, PATH_MAX);
	if (n < 0)
		set_error(scan, errno);
	return entry_finish(scan, name_bytes, n < 0 ? 0 : (size_t)n);
}

int entry_each(struct entry_scan *scan, int dir_fd, const char *prefix, entry_take *take,
	       void *user)
{
	ssize_t n;
	int rc = 0;

	while (!rc && (n = getdents64(dir_fd, scan->dents, sizeof(scan->dents))) != 0) {
		if (n < 0) {
			rc = -errno;
			break;
		}
		for (ssize_t at = 0; !rc && at < n;) {
			struct dirent64 *d = (struct dirent64 *)(scan->dents + at);
			size_t bytes;

			at += d->d_reclen;
			if (!strcmp(d->d_name, ".") || !strcmp(d->d_name, ".."))
				continue;
			bytes = fill(scan, dir_fd, prefix, d->d_name);
			if (bytes)
				rc = take(scan, bytes, user);
		}
	}
	close(dir_fd);
	return rc;
}

bool entry_is_directory(int fd)
{
	struct stat st;
	bool is_directory;

	if (fd < 0)
		return false;
	is_directory = !fstat(fd, &st) && S_ISDIR(st.st_mode);
	close(fd);
	return is_directory;
}
