/* SPDX-License-Identifier: BSD-2-Clause */
/* Listings of a directory, or of the tree below it: careful_block_entry records in a file that the
 * peer gets like any other. A tree is listed breadth first: directories are read back from the
 * records, so memory does not grow with the tree. */
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "files/private.h"
#include "storage/tree/tree.h"

enum { BUFFER_BYTES = 64 << 10 };

static const char spool_dir[] = "/var/tmp";

struct listing {
	struct block_server *server;
	const struct block_job *job;
	int root; /* the listed directory, or -1 for the top of several exports */
	int fd; /* file of the records: a memfd, or a file on disk */
	bool on_disk;
	uint64_t bytes; /* written to fd so far */
	uint64_t memory; /* bytes that count towards BLOCK_LISTINGS_MEMORY */
	uint64_t disk; /* bytes that count towards BLOCK_LISTING_DISK */
	uint32_t used; /* bytes in `out`, not written yet */
	uint64_t in_at; /* offset in fd of the in_bytes bytes in `in` */
	uint32_t in_bytes;
	int write_error; /* -errno of writing records, which ends the listing */
	struct entry_scan scan;
	char out[BUFFER_BYTES];
	char in[BUFFER_BYTES];
};

static int write_all(int fd, const char *buf, size_t bytes, off_t offset)
{
	while (bytes) {
		ssize_t n = pwrite(fd, buf, bytes, offset);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n ? -errno : -EIO;
		buf += n;
		offset += n;
		bytes -= (size_t)n;
	}
	return 0;
}

static int charge_disk(struct listing *l, uint64_t bytes)
{
	uint64_t before = atomic_fetch_add(&l->job->handle->account->disk, bytes);

	l->disk += bytes;
	return before + bytes > l->server->listing_disk ? -EDQUOT : 0;
}

/* Moves the records from memory to an unlinked file on disk. */
static int spill(struct listing *l)
{
	int fd = open(spool_dir, O_TMPFILE | O_RDWR | O_CLOEXEC | O_EXCL, 0600);
	int rc = fd < 0 ? -errno : charge_disk(l, l->bytes);

	for (uint64_t at = 0; !rc && at < l->bytes;) {
		ssize_t n = pread(l->fd, l->in, sizeof(l->in), (off_t)at);

		rc = n <= 0 ? -EIO : write_all(fd, l->in, (size_t)n, (off_t)at);
		at += n > 0 ? (uint64_t)n : 0;
	}
	l->in_bytes = 0;
	if (rc) {
		if (fd >= 0)
			close(fd);
		return rc;
	}
	close(l->fd);
	l->fd = fd;
	l->on_disk = true;
	atomic_fetch_sub(&l->job->handle->account->memory, l->memory);
	l->memory = 0;
	return 0;
}

static int flush(struct listing *l)
{
	uint64_t before;
	int rc;

	if (!l->used)
		return 0;
	if (!l->on_disk) {
		before = atomic_fetch_add(&l->job->handle->account->memory, l->used);
		l->memory += l->used;
		if (l->bytes + l->used > BLOCK_LISTING_MEMORY ||
		    before + l->used > BLOCK_LISTINGS_MEMORY) {
			rc = spill(l);
			if (rc)
				return rc;
		}
	}
	if (l->bytes + l->used > l->server->listing_disk)
		return -EFBIG;
	if (l->on_disk) {
		rc = charge_disk(l, l->used);
		if (rc)
			return rc;
	}
	rc = write_all(l->fd, l->out, l->used, (off_t)l->bytes);
	l->bytes += l->used;
	l->used = 0;
	return rc;
}

static int append(struct entry_scan *scan, size_t bytes, void *user)
{
	struct listing *l = user;

	if (l->used + bytes > sizeof(l->out)) {
		l->write_error = flush(l);
		if (l->write_error)
			return l->write_error;
	}
	memcpy(l->out + l->used, &scan->record, bytes);
	l->used += (uint32_t)bytes;
	return 0;
}

static int list_dir(struct listing *l, int dir_fd, const char *prefix)
{
	return entry_each(&l->scan, dir_fd, prefix, append, l);
}

static int list_top(struct listing *l)
{
	int rc = 0;

	for (uint32_t i = 0; !rc && i < l->job->exports->count; i++) {
		const struct block_export *export = &l->job->exports->all[i];
		size_t n = strlen(export->name);
		int fd, code;
		struct stat st;

		if (!block_export_is_seen(l->job, export))
			continue;
		fd = block_export_open(export);
		code = fd < 0 ? -fd : 0;
		memset(&l->scan.record.entry, 0, sizeof(l->scan.record.entry));
		memcpy(l->scan.record.text, export->name, n);
		if (!code && fstat(fd, &st))
			code = errno;
		if (fd >= 0)
			close(fd);
		if (!code)
			attr_set(&l->scan.record.entry.attr, &st);
		l->scan.record.entry.error = htobe32((uint32_t)code);
		l->scan.unreadable += code != 0;
		rc = append(&l->scan, entry_finish(&l->scan, n, 0), l);
	}
	return rc;
}

/* Reads the record at offset `at` of the listing; *e is NULL at its present end. */
static int read_back(struct listing *l, uint64_t at, const struct careful_block_entry **e,
		     uint32_t *bytes)
{
	uint64_t need = sizeof(**e);

	for (;;) {
		uint64_t have = at < l->in_at ? 0 : l->in_at + l->in_bytes - at;
		ssize_t n;

		if (at >= l->in_at && at < l->in_at + l->in_bytes && have >= need) {
			*e = (const void *)(l->in + (at - l->in_at));
			*bytes = (uint32_t)((sizeof(**e) + be16toh((*e)->name_bytes) +
					     be16toh((*e)->target_bytes) + 7) &
					    ~7UL);
			if (have >= *bytes)
				return 0;
			need = *bytes;
		}
		if (at == l->bytes) {
			int rc = flush(l);

			if (rc)
				return rc;
		}
		if (at == l->bytes) {
			*e = NULL;
			return 0;
		}
		n = pread(l->fd, l->in, sizeof(l->in), (off_t)at);
		if (n <= 0)
			return n ? -errno : -EIO;
		l->in_at = at;
		l->in_bytes = (uint32_t)n;
	}
}

/* Opens a listed name. Follows no symlink, because one may have replaced the directory. */
static int open_listed(struct listing *l, const char *name, int flags)
{
	if (l->root >= 0)
		return beneath_open(l->root, name, flags, RESOLVE_NO_SYMLINKS);
	return block_path_open(l->job, name, flags, RESOLVE_NO_SYMLINKS, NULL);
}

/* Lists every directory in the records, including those whose records it appends meanwhile. */
static int list_tree(struct listing *l)
{
	const struct careful_block_entry *e = NULL;
	char name[PATH_MAX];
	uint32_t bytes = 0;
	uint64_t at;
	int fd, rc;

	for (at = 0;; at += bytes) {
		rc = block_work_is_unwanted(l->server, l->job) ? -ECANCELED :
								 read_back(l, at, &e, &bytes);
		if (rc || !e)
			return rc;
		if (!S_ISDIR(be32toh(e->attr.mode)) || e->error)
			continue;
		memcpy(name, e + 1, be16toh(e->name_bytes));
		name[be16toh(e->name_bytes)] = 0;
		fd = open_listed(l, name, O_RDONLY | O_DIRECTORY);
		rc = fd < 0 ? fd : list_dir(l, fd, name);
		if (rc == -ENOTDIR || rc == -ELOOP || rc == -EXDEV)
			continue; /* moved, or no longer a directory */
		if (rc == -ENOENT && !entry_is_directory(open_listed(l, name, O_PATH | O_NOFOLLOW)))
			continue; /* gone */
		if (rc && rc != -ENOMEM && !l->write_error) {
			__be32 error = htobe32((uint32_t)-rc);

			l->scan.unreadable++;
			rc = write_all(l->fd, (const char *)&error, sizeof(error),
				       (off_t)(at + offsetof(struct careful_block_entry, error)));
		}
		if (rc)
			return rc;
	}
}

static int list_all(struct listing *l, const struct block_job *job)
{
	int rc, fd;

	if (l->root < 0) {
		rc = list_top(l);
	} else {
		fd = beneath_open(l->root, ".", O_RDONLY | O_DIRECTORY, 0);
		rc = fd < 0 ? fd : list_dir(l, fd, "");
	}
	if (!rc && (job->flags & CAREFUL_BLOCK_RECURSIVE))
		rc = list_tree(l);
	return rc ? rc : flush(l);
}

int block_list(struct block_server *server, struct block_job *job)
{
	struct listing *l;
	int rc, root = -1;

	if (!block_path_is_top(job, job->path)) {
		root = block_path_open(job, job->path, O_RDONLY | O_DIRECTORY, 0, NULL);
		if (root < 0)
			return root;
	}
	l = malloc(sizeof(*l));
	if (!l) {
		if (root >= 0)
			close(root);
		return -ENOMEM;
	}
	memset(l, 0, offsetof(struct listing, scan));
	l->scan.unreadable = 0;
	l->server = server;
	l->job = job;
	l->root = root;
	l->fd = memfd_create("careful-listing", MFD_CLOEXEC);
	rc = l->fd < 0 ? -errno : list_all(l, job);
	job->handle->fd = l->fd;
	job->handle->memory = l->memory;
	job->handle->disk = l->disk;
	job->handle->bytes = l->bytes;
	job->args[1] = (uint32_t)(l->bytes >> 32);
	job->args[2] = (uint32_t)l->bytes;
	job->args[3] = l->scan.unreadable;
	if (root >= 0)
		close(root);
	free(l);
	return rc;
}
