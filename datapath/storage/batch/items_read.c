/* SPDX-License-Identifier: BSD-2-Clause */
/* READ answers with the item that makes the same file elsewhere. DIGEST answers with the digest of
 * what READ would return. */
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "storage/tree/attr.h"
#include "storage/batch/items.h"
#include "storage/tree/stable_read.h"
#include "storage/tree/tree.h"
#include "storage/tree/xattrs.h"
#include "base/io.h"
#include "base/xxh3.h"

enum {
	READS_MAX = 4, /* tries for a file that changes while it is read */
	REREADS_MAX = 50, /* of a batch, because each may wait */
};

/* Returns where the record ends so far. */
static char *record_end(struct items *s, const struct careful_block_item *record)
{
	return s->out + s->used + items_length(record);
}

static int read_target(struct items *s, struct careful_block_item *record, int dir,
		       const char *last)
{
	int rc = items_reserve(s, items_length(record) + PATH_MAX + 8);
	ssize_t n;

	if (rc)
		return rc;
	n = readlinkat(dir, last, record_end(s, record), PATH_MAX);
	if (n < 0)
		return -errno;
	record->text_bytes = htobe32((uint32_t)n);
	record->op = htobe16(CAREFUL_ITEM_SYMLINK);
	return 0;
}

static int read_xattrs(struct items *s, struct careful_block_item *record, int fd)
{
	int rc = items_reserve(s, items_length(record) + XATTRS_MAX + 8);
	ssize_t n;

	if (rc)
		return rc;
	n = xattrs_get(fd, record_end(s, record), XATTRS_MAX);
	if (n < 0)
		return (int)n;
	record->xattrs_bytes = htobe32((uint32_t)n);
	return 0;
}

static int read_contents(int fd, char *buf, size_t bytes)
{
	ssize_t n = io_read(fd, buf, bytes, 0);

	return n < 0 ? (int)n : n == (ssize_t)bytes ? 0 : -ESTALE;
}

/* Reports whether stat's size is real. /proc and sysfs fail; careful_prepare_read() handles them. */
static bool has_size(int fd, const struct stat *st)
{
	char byte;

	return st->st_size || pread(fd, &byte, 1, 0) == 0;
}

/* Reads a file's contents as of one moment. -ESTALE: the file kept changing, or became too large;
 * -EOVERFLOW: no room in the answer, or the batch has read its limit. */
static int read_stable(struct items *s, struct careful_block_item *record, int fd, struct stat *st)
{
	struct stat after;
	int rc;

	for (int i = 0; i < READS_MAX; i++) {
		if (i && ++s->rereads > REREADS_MAX)
			break;
		rc = i ? stable_read_wait(fd, st) : 0;
		if (!rc && (uint64_t)st->st_size > s->file_max)
			break;
		if (!rc && s->read_bytes > ITEMS_READ_BYTES)
			return -EOVERFLOW;
		if (!rc)
			rc = items_reserve(s, items_length(record) + (size_t)st->st_size + 8);
		if (!rc)
			s->read_bytes += (uint64_t)st->st_size;
		if (!rc)
			rc = read_contents(fd, record_end(s, record), (size_t)st->st_size);
		if (rc && rc != -ESTALE)
			return rc;
		if (fstat(fd, &after))
			return -errno;
		if (stable_read_between(st, &after))
			return !rc && has_size(fd, st) ? 0 : -ESTALE;
	}
	return -ESTALE;
}

static int read_data(struct items *s, struct careful_block_item *record, int fd, struct stat *st)
{
	int rc = read_stable(s, record, fd, st);
	size_t bytes = (size_t)st->st_size;

	if (rc)
		return rc;
	attr_set(&record->attr, st);
	if (s->item.op == CAREFUL_ITEM_DIGEST || !(s->flags & CAREFUL_BATCH_NODIGEST))
		record->digest = htobe64(xxh3_hash(record_end(s, record), bytes));
	record->op = htobe16(s->item.op == CAREFUL_ITEM_DIGEST ? CAREFUL_ITEM_DIGEST :
								 CAREFUL_ITEM_FILE);
	if (s->item.op != CAREFUL_ITEM_DIGEST)
		record->data_bytes = htobe64(bytes);
	return 0;
}

/* Reads a file or directory; opening any other type could have an effect. */
static int read_file(struct items *s, struct careful_block_item *record, int dir, const char *last,
		     struct stat *st)
{
	bool asked = s->item.attr.bytes || s->item.op == CAREFUL_ITEM_DIGEST; /* for contents */
	bool data = S_ISREG(st->st_mode) && asked && (uint64_t)st->st_size <= s->file_max;
	int flags = O_NOFOLLOW | O_CLOEXEC | (data ? O_RDONLY | O_NONBLOCK : O_PATH);
	mode_t type = st->st_mode & S_IFMT;
	int rc = 0, fd;

	record->op = htobe16(S_ISDIR(st->st_mode) ? CAREFUL_ITEM_DIRECTORY : CAREFUL_ITEM_META);
	if (!data && !(s->flags & CAREFUL_BATCH_XATTRS))
		return 0;
	fd = openat(dir, last, flags);
	if (fd < 0)
		return -errno;
	if (fstat(fd, st))
		rc = -errno;
	else if ((st->st_mode & S_IFMT) != type || (data && (uint64_t)st->st_size > s->file_max))
		rc = -ESTALE;
	attr_set(&record->attr, st);
	if (!rc && s->flags & CAREFUL_BATCH_XATTRS)
		rc = read_xattrs(s, record, fd);
	if (!rc && data)
		rc = read_data(s, record, fd, st);
	close(fd);
	return rc;
}

void items_read(struct items *s)
{
	struct careful_block_item record = { .op = htobe16(s->item.op) };
	size_t name_bytes = strlen(s->item.name);
	const char *last;
	struct stat st;
	int rc, dir;

	rc = items_reserve(s, sizeof(record) + name_bytes + 8);
	if (rc) {
		items_answer(s, &record, rc);
		return;
	}
	memcpy(s->out + s->used + sizeof(record), s->item.name, name_bytes);
	record.name_bytes = htobe32((uint32_t)name_bytes);
	dir = items_parent(s, s->item.name, &last);
	rc = dir < 0 ? dir : fstatat(dir, last, &st, AT_SYMLINK_NOFOLLOW) ? -errno : 0;
	if (!rc) {
		attr_set(&record.attr, &st);
		if (S_ISLNK(st.st_mode))
			rc = read_target(s, &record, dir, last);
		else if (S_ISREG(st.st_mode) || S_ISDIR(st.st_mode))
			rc = read_file(s, &record, dir, last, &st);
		else
			rc = -ENOTSUP;
	}
	if (!rc && s->item.op == CAREFUL_ITEM_DIGEST && record.op != htobe16(CAREFUL_ITEM_DIGEST))
		rc = S_ISREG(st.st_mode) ? -EOVERFLOW : -ENOTSUP;
	s->denied += beneath_denied(rc);
	if (rc) { /* omit what was read before the failure */
		record.op = htobe16(s->item.op);
		record.text_bytes = record.xattrs_bytes = 0;
		record.data_bytes = 0;
	}
	items_answer(s, &record, rc);
}
