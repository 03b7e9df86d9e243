/* SPDX-License-Identifier: BSD-2-Clause */
/* The directories that peers see. No descriptor stays open: each request opens its export by path.
 * So a directory that was removed and made again is served, a file system can be unmounted, and a
 * missing export gives -ENOLINK. path.c resolves paths below an export. */
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "files/private.h"

static int identify(int fd, struct statx *found)
{
	return statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS | STATX_BTIME, found) ? -errno : 0;
}

static bool is_same(const struct statx *a, const struct statx *b)
{
	return a->stx_ino == b->stx_ino && a->stx_dev_major == b->stx_dev_major &&
	       a->stx_dev_minor == b->stx_dev_minor && a->stx_btime.tv_sec == b->stx_btime.tv_sec &&
	       a->stx_btime.tv_nsec == b->stx_btime.tv_nsec;
}

/* Reports whether the directory at the path now counts as the export. A mount point does, since
 * mounting needs privilege. Any other directory must be on the first one's file system: the mount
 * point of an unmounted disk is not the disk. It must also belong to the first one's owner or to
 * root, since others may be able to make directories there. */
static bool is_export(const struct block_export *export, const struct statx *now)
{
	const struct statx *was = &export->was;

	if (is_same(was, now) || now->stx_attributes & STATX_ATTR_MOUNT_ROOT)
		return true;
	return was->stx_dev_major == now->stx_dev_major &&
	       was->stx_dev_minor == now->stx_dev_minor &&
	       (now->stx_uid == was->stx_uid || now->stx_uid == 0);
}

int block_export_open(const struct block_export *export)
{
	/* No component was a symlink when it was exported. */
	struct open_how how = {
		.flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
		.resolve = RESOLVE_NO_SYMLINKS,
	};
	int fd = (int)syscall(SYS_openat2, AT_FDCWD, export->path, &how, sizeof(how));
	struct statx now;
	int rc;

	if (fd < 0)
		return errno == ENOENT || errno == ENOTDIR || errno == ELOOP ? -ENOLINK : -errno;
	rc = identify(fd, &now);
	if (!rc && !is_export(export, &now))
		rc = -ENOLINK;
	if (!rc)
		return fd;
	close(fd);
	return rc;
}

/* Makes path an export. Follows symlinks as they are now. */
static int find(struct block_export *export, const char *path)
{
	int fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC), again, rc;
	struct statx now;

	if (fd < 0)
		return -errno;
	rc = identify(fd, &export->was);
	close(fd);
	export->path = rc ? NULL : realpath(path, NULL);
	if (!export->path)
		return rc ? rc : -errno;
	/* Some canonical paths lead elsewhere: that of /proc/PID/root, for example. */
	again = block_export_open(export);
	if (again < 0)
		return again;
	rc = identify(again, &now);
	close(again);
	return rc ? rc : is_same(&export->was, &now) ? 0 : -EXDEV;
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
	bool found = !export->hosts_count;

	for (uint32_t i = 0; i < export->hosts_count && !found; i++)
		found = !memcmp(&export->hosts[i], host, sizeof(*host));
	return found;
}

uint64_t block_exports_of(const struct block_server *server, uint32_t peer)
{
	struct careful_peer_info info;
	struct block_host host;
	uint64_t seen = 0;

	if (!server->exports->is_for_some)
		return UINT64_MAX;
	if (careful_peer_info(server->instance, peer, &info))
		return 0;
	host = host_of(&info.address);
	for (uint32_t i = 0; i < server->exports->count; i++)
		seen |= (uint64_t)is_seen_by(&server->exports->all[i], &host) << i;
	return seen;
}

static int refuse(struct careful_error *error, const char *path, int rc, const char *why)
{
	snprintf(error->text, sizeof(error->text), "export %s: %s", path, why);
	return rc;
}

static int add(struct block_exports *exports, const struct block_export_options *options,
	       bool is_one_of_several, struct careful_error *error)
{
	struct block_export *e = &exports->all[exports->count];
	int rc = find(e, options->path);

	if (rc == -EXDEV)
		return refuse(error, options->path, rc, "its path leads through /proc");
	if (rc)
		return refuse(error, options->path, rc, strerror(-rc));
	e->writable = options->writable;
	e->owners = options->owners;
	e->devices = options->devices;
	e->hosts_count = options->hosts_count;
	if (e->hosts_count) {
		e->hosts = calloc(e->hosts_count, sizeof(*e->hosts));
		if (!e->hosts)
			return refuse(error, options->path, -ENOMEM, strerror(ENOMEM));
		memcpy(e->hosts, options->hosts, e->hosts_count * sizeof(*e->hosts));
		exports->is_for_some = true;
	}
	snprintf(e->name, sizeof(e->name), "%s", options->name ? options->name : "");
	exports->count++;
	if (!is_one_of_several)
		return 0;
	if (!*e->name || !strcmp(e->name, ".") || !strcmp(e->name, ".."))
		return refuse(error, options->path, -EINVAL,
			      "has no name that differs from the others'");
	for (const struct block_export *other = exports->all; other < e; other++) {
		if (strcmp(other->name, e->name) != 0)
			continue;
		snprintf(error->text, sizeof(error->text),
			 "export %s: another export is already called \"%s\"", options->path,
			 e->name);
		return -EEXIST;
	}
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

static const struct block_export *same_in(const struct block_exports *exports, const char *path)
{
	for (uint32_t i = 0; exports && i < exports->count; i++)
		if (!strcmp(exports->all[i].path, path))
			return &exports->all[i];
	return NULL;
}

/* Gives each export a place: its directory's old one, else preferably one that is not in use. */
static void settle(struct block_server *server, struct block_exports *exports)
{
	uint64_t taken = 0, had = 0;

	for (uint32_t i = 0; server->exports && i < server->exports->count; i++)
		had |= 1ull << server->exports->all[i].place;
	for (uint32_t i = 0; i < exports->count; i++) {
		const struct block_export *same = same_in(server->exports, exports->all[i].path);

		exports->all[i].place = same ? same->place : BLOCK_EXPORTS;
		taken |= same ? 1ull << same->place : 0;
	}
	for (uint32_t i = 0; i < exports->count; i++) {
		struct block_export *e = &exports->all[i];
		uint64_t none = (had | taken) == UINT64_MAX ? taken : had | taken;

		if (e->place == BLOCK_EXPORTS) {
			e->place = (uint8_t)__builtin_ctzll(~none);
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
	struct block_exports *made = calloc(1, sizeof(*made) + n * sizeof(made->all[0]));
	int rc = made ? 0 : -ENOMEM;

	for (uint32_t i = 0; !rc && i < n; i++)
		rc = add(made, &exports[i], n > 1, error);
	if (rc) {
		if (made)
			destroy(made, n);
		return rc;
	}
	settle(server, made);
	made->older = server->exports;
	server->exports = made;
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
