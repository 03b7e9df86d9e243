// SPDX-License-Identifier: BSD-2-Clause
/* An instance's files: a lock (flock(), so that the kernel releases it when the owner dies), and a
 * directory on bpffs for the maps. Removes what a dead owner left. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "device/compat.h"
#include "base/lock.h"
#include "device/xsk/xsk.h"

#define PIN_DIR BPFFS_DIR "/careful"

static void lock_path(const struct xsk_port *port, char *path)
{
	snprintf(path, XSK_PATH_BYTES, RUN_DIR "/%s.lock", port->instance);
}

/* Reads the index of the interface from a lock file; 0: unknown. */
static uint32_t lock_ifindex(int fd)
{
	char text[32] = "", *end;

	if (pread(fd, text, sizeof(text) - 1, 0) <= 0)
		return 0;
	strtol(text, &end, 10); /* skips the pid, valid only in the owner's PID namespace */
	return (uint32_t)strtoul(end, NULL, 10);
}

/* Takes the lock. -EAGAIN: the file was removed between our open() and flock(). */
static int try_lock(struct xsk_port *port, const char *path, struct careful_error *error)
{
	struct stat locked, named;
	char holder[LOCK_HOLDER_BYTES];
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);

	if (fd < 0)
		return explain(error, -errno, "%s: %s", path, strerror(errno));
	if (flock(fd, LOCK_EX | LOCK_NB)) {
		lock_holder_name(lock_holder(fd), holder);
		close(fd);
		return refuse(error, -EBUSY, instance,
			      "%s is in use by %s; close it, or choose another name",
			      port->instance, holder);
	}
	if (fstat(fd, &locked) || stat(path, &named) || locked.st_ino != named.st_ino) {
		close(fd);
		return -EAGAIN;
	}
	if (ftruncate(fd, 0) || dprintf(fd, "%d %u\n", getpid(), port->netdev.ifindex) < 0) {
		int rc = -errno;

		close(fd);
		return explain(error, rc, "%s: %s", path, strerror(-rc));
	}
	port->lock = fd;
	return 0;
}

int xsk_lock(struct xsk_port *port, struct careful_error *error)
{
	char path[XSK_PATH_BYTES];
	int rc;

	if (mkdir(RUN_DIR, 0755) && errno != EEXIST)
		return explain(error, -errno, "%s: %s", RUN_DIR, strerror(errno));
	lock_path(port, path);
	do
		rc = try_lock(port, path, error);
	while (rc == -EAGAIN);
	return rc;
}

void xsk_unlock(struct xsk_port *port)
{
	char path[XSK_PATH_BYTES];

	if (port->lock < 0)
		return;
	lock_path(port, path);
	if (xsk_is_owner(port))
		unlink(path);
	close(port->lock);
	port->lock = -1;
}

/* Reports whether a process is in our network namespace, so that its interface indices are ours. */
static bool is_in_our_netns(int pid)
{
	struct stat ours, theirs;
	char path[32];

	snprintf(path, sizeof(path), "/proc/%d/ns/net", pid);
	return !stat("/proc/self/ns/net", &ours) && !stat(path, &theirs) &&
	       ours.st_ino == theirs.st_ino;
}

/* Returns the holder of a lock file if the lock is for this interface; else 0. */
static int find_owner(int dir, const char *file, uint32_t ifindex)
{
	int fd = openat(dir, file, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	int owner = 0;

	if (fd < 0)
		return 0;
	if (flock(fd, LOCK_SH | LOCK_NB) && lock_ifindex(fd) == ifindex)
		owner = lock_holder(fd);
	close(fd);
	return owner && is_in_our_netns(owner) ? owner : 0;
}

int xsk_lock_check(const struct xsk_port *port, struct careful_error *error)
{
	DIR *dir = opendir(RUN_DIR);
	char instance[XSK_INSTANCE_BYTES], holder[LOCK_HOLDER_BYTES];
	struct dirent *entry;
	int owner = 0;

	while (dir && !owner && (entry = readdir(dir))) {
		size_t bytes = strlen(entry->d_name);

		if (bytes < 6 || bytes - 5 >= sizeof(instance) ||
		    strcmp(entry->d_name + bytes - 5, ".lock") != 0)
			continue;
		snprintf(instance, sizeof(instance), "%.*s", (int)bytes - 5, entry->d_name);
		if (strcmp(instance, port->instance) != 0)
			owner = find_owner(dirfd(dir), entry->d_name, port->netdev.ifindex);
	}
	if (dir)
		closedir(dir);
	if (!owner)
		return 0;
	lock_holder_name(owner, holder);
	return explain(error, -EBUSY, "%s is in use by instance %s, %s; close it",
		       port->netdev.name, instance, holder);
}

bool xsk_pins_mounted(void)
{
	struct statfs fs;

	return !statfs(BPFFS_DIR, &fs) && (uint64_t)fs.f_type == BPF_FS_MAGIC;
}

/* bpffs allows no dot in a name (bpf_lookup(), kernel/bpf/inode.c), but VLANs have names like
 * eth1.100: so "%2e" replaces a dot, and "%25" a percent sign. */
void xsk_pin_path(const char *instance, const char *map, char *path, size_t bytes)
{
	size_t n = (size_t)snprintf(path, bytes, PIN_DIR "/");

	for (; *instance; instance++) {
		bool plain = *instance != '.' && *instance != '%';

		n += (size_t)snprintf(path + n, bytes - n, plain ? "%c" : "%%%02x", *instance);
	}
	snprintf(path + n, bytes - n, "%s%s", map[0] ? "/" : "", map);
}

/* Mounts bpffs if needed, under a lock: a second mount would hide the pins of the first. */
static int mount_bpffs(struct careful_error *error)
{
	int lock = open(RUN_DIR, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int rc = 0;

	if (lock < 0 || flock(lock, LOCK_EX))
		rc = -errno;
	else if (!xsk_pins_mounted() &&
		 mount("bpf", BPFFS_DIR, "bpf", MS_NOSUID | MS_NODEV | MS_NOEXEC, "mode=0700"))
		rc = -errno;
	if (lock >= 0)
		close(lock);
	if (rc)
		return explain(error, rc, "no bpffs on %s, and none can be mounted: %s", BPFFS_DIR,
			       strerror(-rc));
	return 0;
}

int xsk_pins_prepare(struct xsk_port *port, struct careful_error *error)
{
	char path[XSK_PATH_BYTES];
	int rc = mount_bpffs(error);

	if (rc)
		return rc;
	xsk_pins_remove(port);
	xsk_pin_path(port->instance, "", path, sizeof(path));
	/* Twice, because another instance may remove the parent in between. */
	for (int i = 0; i < 2; i++) {
		if (mkdir(PIN_DIR, 0700) && errno != EEXIST)
			break;
		if (!mkdir(path, 0700) || errno == EEXIST)
			return 0;
	}
	return explain(error, -errno, "%s: %s", path, strerror(errno));
}

void xsk_pins_remove(struct xsk_port *port)
{
	char path[XSK_PATH_BYTES];
	struct dirent *entry;
	DIR *dir;

	xsk_pin_path(port->instance, "", path, sizeof(path));
	dir = opendir(path);
	if (!dir)
		return;
	while ((entry = readdir(dir)))
		if (entry->d_name[0] != '.')
			unlinkat(dirfd(dir), entry->d_name, 0);
	closedir(dir);
	rmdir(path);
	rmdir(PIN_DIR);
}
