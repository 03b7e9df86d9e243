/* SPDX-License-Identifier: BSD-2-Clause */
/* The directories that peers see. Each request opens its export by path. So a directory that was
 * removed and made again is served, an export's file system can be unmounted, and a missing export
 * gives -ENOLINK. path.c resolves paths below an export. */
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/error.h"
#include "files/private.h"

static int read_identity(int fd, struct statx *identity)
{
	return statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS | STATX_BTIME, identity) ? -errno : 0;
}

static bool is_same(const struct statx *a, const struct statx *b)
{
	return a->stx_ino == b->stx_ino && a->stx_dev_major == b->stx_dev_major &&
	       a->stx_dev_minor == b->stx_dev_minor && a->stx_btime.tv_sec == b->stx_btime.tv_sec &&
	       a->stx_btime.tv_nsec == b->stx_btime.tv_nsec;
}

/* Reports whether the directory that is now at the path counts as the export. A mount point does,
 * because mounting needs privilege. Any other directory must be on the original's file system,
 * because the empty mount point of an unmounted disk is not the export. It must also belong to the
 * original's owner or to root, because others may be able to make directories there. */
static bool is_export(const struct block_export *export, const struct statx *now)
{
	const struct statx *original = &export->original;

	if (is_same(original, now) || now->stx_attributes & STATX_ATTR_MOUNT_ROOT)
		return true;
	return original->stx_dev_major == now->stx_dev_major &&
	       original->stx_dev_minor == now->stx_dev_minor &&
	       (now->stx_uid == original->stx_uid || now->stx_uid == 0);
}

int block_export_open(const struct block_export *export)
{
	/* When the directory was exported, no component of its path was a symlink. */
	struct open_how how = {
		.flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
		.resolve = RESOLVE_NO_SYMLINKS,
	};
	int fd = (int)syscall(SYS_openat2, AT_FDCWD, export->path, &how, sizeof(how));
	struct statx now;
	int rc;

	if (fd < 0)
		return errno == ENOENT || errno == ENOTDIR || errno == ELOOP ? -ENOLINK : -errno;
	rc = read_identity(fd, &now);
	if (!rc && !is_export(export, &now))
		rc = -ENOLINK;
	if (!rc)
		return fd;
	close(fd);
	return rc;
}

/* Sets the export's path and identity. Follows symlinks as they are now. */
static int identify(struct block_export *export, const char *path)
{
	int fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC), rc;
	struct statx now;

	if (fd < 0)
		return -errno;
	rc = read_identity(fd, &export->original);
	close(fd);
	export->path = rc ? NULL : realpath(path, NULL);
	if (!export->path)
		return rc ? rc : -errno;
	/* Some canonical paths lead elsewhere: that of /proc/PID/root, for example. */
	fd = block_export_open(export);
	if (fd < 0)
		return fd;
	rc = read_identity(fd, &now);
	close(fd);
	return rc ? rc : is_same(&export->original, &now) ? 0 : -EXDEV;
}

/* Returns the address as IPv6; IPv4 addresses are mapped (RFC 4291, 2.5.5.2). */
static struct block_host host_of(const struct sockaddr_storage *address)
{
	struct block_host host = { .address = { [10] = 0xff, [11] = 0xff } };
	const struct sockaddr_in6 *in6 = (const void *)address;
	const struct sockaddr_in *in = (const void *)address;

	if (address->ss_family == AF_INET6)
		memcpy(host.address, &in6->sin6_addr, sizeof(in6->sin6_addr));
	else
		memcpy(host.address + 12, &in->sin_addr, sizeof(in->sin_addr));
	return host;
}

static bool is_seen_by(const struct block_export *export, const struct block_host *host)
{
	bool is_seen = !export->hosts_count;

	for (uint32_t i = 0; i < export->hosts_count && !is_seen; i++)
		is_seen = !memcmp(&export->hosts[i], host, sizeof(*host));
	return is_seen;
}

uint64_t block_exports_of(const struct block_server *server, uint32_t peer)
{
	struct careful_peer_info info;
	struct block_host host;
	uint64_t visible = 0;

	if (!server->exports->is_for_some)
		return UINT64_MAX;
	if (careful_peer_info(server->instance, peer, &info))
		return 0;
	host = host_of(&info.address);
	for (uint32_t i = 0; i < server->exports->count; i++)
		visible |= (uint64_t)is_seen_by(&server->exports->all[i], &host) << i;
	return visible;
}

static int add(struct block_exports *exports, const struct block_export_options *options,
	       bool is_one_of_several, struct careful_error *error)
{
	struct block_export *e = &exports->all[exports->count];
	const char *path = options->path;
	int rc = identify(e, path);

	if (rc)
		return explain(error, rc, "export %s: %s", path,
			       rc == -EXDEV ? "its path leads through /proc" : strerror(-rc));
	e->writable = options->writable;
	e->owners = options->owners;
	e->devices = options->devices;
	e->hosts_count = options->hosts_count;
	if (e->hosts_count) {
		e->hosts = calloc(e->hosts_count, sizeof(*e->hosts));
		if (!e->hosts)
			return explain(error, -ENOMEM, "export %s: out of memory", path);
		memcpy(e->hosts, options->hosts, e->hosts_count * sizeof(*e->hosts));
		exports->is_for_some = true;
	}
	snprintf(e->name, sizeof(e->name), "%s", options->name ? options->name : "");
	exports->count++;
	if (!is_one_of_several)
		return 0;
	if (!*e->name || !strcmp(e->name, ".") || !strcmp(e->name, ".."))
		return explain(error, -EINVAL,
			       "export %s: has no last component that could be its name", path);
	for (const struct block_export *other = exports->all; other < e; other++)
		if (!strcmp(other->name, e->name))
			return explain(error, -EEXIST,
				       "export %s: another export is already called \"%s\"", path,
				       e->name);
	return 0;
}

static void destroy(struct block_exports *exports, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		free(exports->all[i].path);
		free(exports->all[i].hosts);
	}
	free(exports);
}

static const struct block_export *find_path(const struct block_exports *exports, const char *path)
{
	for (uint32_t i = 0; exports && i < exports->count; i++)
		if (!strcmp(exports->all[i].path, path))
			return &exports->all[i];
	return NULL;
}

/* Gives each export a place: the one that its directory had before, or else an unused one, or else
 * one that a former export had. */
static void assign_places(struct block_server *server, struct block_exports *exports)
{
	uint64_t taken = 0, had = 0;

	for (uint32_t i = 0; server->exports && i < server->exports->count; i++)
		had |= 1ull << server->exports->all[i].place;
	for (uint32_t i = 0; i < exports->count; i++) {
		const struct block_export *old = find_path(server->exports, exports->all[i].path);

		exports->all[i].place = old ? old->place : BLOCK_EXPORTS;
		taken |= old ? 1ull << old->place : 0;
	}
	for (uint32_t i = 0; i < exports->count; i++) {
		struct block_export *e = &exports->all[i];
		uint64_t avoided = (had | taken) == UINT64_MAX ? taken : had | taken;

		if (e->place == BLOCK_EXPORTS) {
			e->place = (uint8_t)__builtin_ctzll(~avoided);
			taken |= 1ull << e->place;
			memset(&server->use[e->place], 0, sizeof(server->use[e->place]));
		}
		if (e->place >= server->places)
			server->places = e->place + 1u;
	}
}

int block_exports_take(struct block_server *server, const struct block_export_options *exports,
		       uint32_t n, struct careful_error *error)
{
	struct block_exports *new = calloc(1, sizeof(*new) + n * sizeof(new->all[0]));
	int rc = 0;

	if (!new)
		return explain(error, -ENOMEM, "exports: out of memory");
	for (uint32_t i = 0; !rc && i < n; i++)
		rc = add(new, &exports[i], n > 1, error);
	if (rc) {
		destroy(new, n);
		return rc;
	}
	assign_places(server, new);
	new->older = server->exports;
	server->exports = new;
	return 0;
}

void block_exports_deinit(struct block_server *server)
{
	struct block_exports *older;

	for (; server->exports; server->exports = older) {
		older = server->exports->older;
		destroy(server->exports, server->exports->count);
	}
}
