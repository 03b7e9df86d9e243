/* SPDX-License-Identifier: BSD-2-Clause */
/* Resolves a peer's path to a descriptor beneath an export, and reads the file's attributes. */
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "files/private.h"
#include "storage/tree/tree.h"

/* Reports whether path names the virtual directory above several exports. */
bool block_path_is_top(const struct block_job *job, const char *path)
{
	return job->exports->count > 1 && (!*path || !strcmp(path, "."));
}

/* Returns the export that contains path, or NULL. *rest: the path below the export, never empty. */
static const struct block_export *find_export(const struct block_job *job, const char *path,
					      const char **rest)
{
	const struct block_exports *exports = job->exports;
	size_t n = strcspn(path, "/");

	if (exports->count == 1) {
		*rest = *path ? path : ".";
		return &exports->all[0];
	}
	for (uint32_t i = 0; i < exports->count; i++) {
		const struct block_export *e = &exports->all[i];

		if (strlen(e->name) != n || memcmp(e->name, path, n) != 0 ||
		    !block_export_is_seen(job, e))
			continue;
		path += n;
		while (*path == '/')
			path++;
		*rest = *path ? path : ".";
		return e;
	}
	return NULL;
}

uint8_t block_path_place(const struct block_job *job)
{
	const struct block_export *export = NULL;
	const char *rest;

	if (job->exports->count && *job->path != '/')
		export = find_export(job, job->path, &rest);
	return export ? export->place : BLOCK_EXPORTS;
}

int block_path_open(const struct block_job *job, const char *path, int flags, uint64_t resolve,
		    const struct block_export **from)
{
	const struct block_export *export;
	const char *rest;
	int base, fd;

	if (*path == '/')
		return -EXDEV;
	if (block_path_is_top(job, path))
		return -EISDIR;
	export = find_export(job, path, &rest);
	if (!export)
		return -ENOENT;
	if (!block_export_is_seen(job, export))
		return -EACCES;
	if (from)
		*from = export;
	base = block_export_open(export);
	if (base < 0)
		return base;
	fd = beneath_open(base, rest, flags, resolve);
	close(base);
	return fd;
}

/* Opens the parent directory of the job's path, and cuts the path there; *name: the last part. */
int block_path_parent(const struct block_job *job, const char **name,
		      const struct block_export **from)
{
	char *path = job->path;
	size_t n = strlen(path);
	char *slash;

	if (*path == '/')
		return -EXDEV;
	while (n && path[n - 1] == '/')
		path[--n] = 0;
	slash = strrchr(path, '/');
	*name = slash ? slash + 1 : path;
	if (!**name || !strcmp(*name, ".") || !strcmp(*name, ".."))
		return -EINVAL;
	if (!slash && job->exports->count > 1)
		return -EROFS; /* nothing can be created next to the exports */
	if (slash)
		*slash = 0;
	return block_path_open(job, slash ? path : ".", O_RDONLY | O_DIRECTORY, 0, from);
}

/* Reads the file's attributes for the client. The size of an open block device is its capacity. */
int block_attr_of(int fd, struct block_job *job)
{
	struct stat st;

	if (fstat(fd, &st))
		return -errno;
	if (S_ISBLK(st.st_mode)) {
		st.st_size = lseek(fd, 0, SEEK_END);
		if (st.st_size < 0 && errno == EBADF) /* O_PATH */
			st.st_size = 0;
	}
	if (st.st_size < 0)
		return -errno;
	attr_set(&job->attr, &st);
	job->has_attr = true;
	return 0;
}

void block_attr_top(struct careful_block_attr *attr)
{
	*attr = (struct careful_block_attr){ .mode = htobe32(S_IFDIR | 0555), .nlink = htobe32(1) };
}
