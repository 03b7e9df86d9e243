/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * From a peer's path to a descriptor, beneath an export. The kernel decides what
 * is beneath (openat2, RESOLVE_BENEATH); nothing here compares path strings.
 */
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "service/block_private.h"

enum { RACES_MAX = 64 };

/* openat2() beneath dir_fd: a descriptor, or -errno; -EXDEV for what leaves it. */
int block_openat2(int dir_fd, const char *path, int flags, uint64_t resolve)
{
	struct open_how how = {
		.flags = (uint64_t)(unsigned int)(flags | O_CLOEXEC | O_NOCTTY),
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS | resolve,
	};
	long fd;

	if (flags & O_PATH) /* openat2 takes nothing beside O_PATH that means nothing */
		how.flags &= ~(uint64_t)O_NOCTTY;
	/* The kernel gives up with EAGAIN if a rename crosses the walk. */
	for (int i = 0; i < RACES_MAX; i++) {
		fd = syscall(SYS_openat2, dir_fd, path, &how, sizeof(how));
		if (fd >= 0)
			return (int)fd;
		if (errno != EAGAIN && errno != EINTR)
			return -errno;
	}
	return -EAGAIN;
}

/* Whether path is the directory above several exports, which exists nowhere. */
bool block_path_is_top(const struct careful_block_server *server, const char *path)
{
	return server->exports_count > 1 && (!*path || !strcmp(path, "."));
}

/* The export that path lies in; *rest is what remains, never empty. */
static const struct block_export *find_export(const struct careful_block_server *server,
					      const char *path, const char **rest)
{
	size_t n = strcspn(path, "/");

	if (server->exports_count == 1) {
		*rest = *path ? path : ".";
		return &server->exports[0];
	}
	for (uint32_t i = 0; i < server->exports_count; i++) {
		const struct block_export *e = &server->exports[i];

		if (strlen(e->name) != n || memcmp(e->name, path, n) != 0)
			continue;
		path += n;
		while (*path == '/')
			path++;
		*rest = *path ? path : ".";
		return e;
	}
	return NULL;
}

int block_path_open(const struct careful_block_server *server, const char *path, int flags,
		    uint64_t resolve, const struct block_export **from)
{
	const struct block_export *export;
	const char *rest;

	if (*path == '/')
		return -EXDEV;
	if (block_path_is_top(server, path))
		return -EISDIR;
	export = find_export(server, path, &rest);
	if (!export)
		return -ENOENT;
	if (from)
		*from = export;
	return block_openat2(export->fd, rest, flags, resolve);
}

/*
 * Opens the directory that path's last component stands in, or is to; *name is that
 * component. Cuts path in two.
 */
int block_path_parent(const struct careful_block_server *server, char *path, const char **name,
		      const struct block_export **from)
{
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
	if (!slash && server->exports_count > 1)
		return -EROFS; /* beside the exports nothing can be created */
	if (slash)
		*slash = 0;
	return block_path_open(server, slash ? path : ".", O_RDONLY | O_DIRECTORY, 0, from);
}

void block_attr_set(struct careful_block_attr *attr, const struct stat *st)
{
	const uint64_t second = 1000000000;

	attr->mode = htobe32(st->st_mode);
	attr->nlink = htobe32((uint32_t)st->st_nlink);
	attr->uid = htobe32(st->st_uid);
	attr->gid = htobe32(st->st_gid);
	attr->bytes = htobe64((uint64_t)st->st_size);
	attr->mtime_ns =
		htobe64((uint64_t)st->st_mtim.tv_sec * second + (uint64_t)st->st_mtim.tv_nsec);
	attr->ctime_ns =
		htobe64((uint64_t)st->st_ctim.tv_sec * second + (uint64_t)st->st_ctim.tv_nsec);
	attr->inode = htobe64(st->st_ino);
	attr->device = htobe64(st->st_dev);
	attr->allocated = htobe64((uint64_t)st->st_blocks * 512);
}

void block_attr_top(struct careful_block_attr *attr)
{
	*attr = (struct careful_block_attr){
		.mode = htobe32(S_IFDIR | 0555),
		.nlink = htobe32(1),
	};
}
