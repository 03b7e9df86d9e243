/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon/process/rundir.h"
#include "base/error.h"
#include "base/lock.h"
#include "storage/path.h"

/* SIOCUNIXFILE: the ioctl that opens the file that a socket is bound to. <linux/un.h>, which has
 * it, cannot be included: it repeats struct sockaddr_un. */
enum { SOCKET_FILE = SIOCPROTOPRIVATE };

/* Removes the directories that path_make() made, if they are empty. */
static void unmake_path(const char *path, size_t made)
{
	char part[4096];
	size_t i = strlen(path);

	memcpy(part, path, i + 1);
	for (; made && i >= made; i--) {
		if (part[i] && part[i] != '/')
			continue;
		part[i] = 0;
		rmdir(part);
	}
}

static int take_lock(struct rundir *dir, struct careful_error *error)
{
	char holder[LOCK_HOLDER_BYTES];

	dir->lock_fd = openat(dir->dir_fd, "pid", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
	if (dir->lock_fd < 0)
		return explain(error, -errno, "%s/pid: %s", dir->path, strerror(errno));
	if (flock(dir->lock_fd, LOCK_EX | LOCK_NB) == 0)
		return 0;
	if (errno != EWOULDBLOCK)
		return explain(error, -errno, "%s/pid: %s", dir->path, strerror(errno));
	lock_holder_name(lock_holder(dir->lock_fd), holder);
	return explain(error, -EBUSY, "%s: a carefuld runs there already: %s", dir->path, holder);
}

/* Checks that a client of DIR/sock reaches the passed socket. */
static int check_passed(const struct rundir *dir, struct careful_error *error)
{
	int fd = ioctl(dir->listen_fd, SOCKET_FILE);
	struct stat its, ours;
	int rc = fd < 0 || fstat(fd, &its) ||
		 fstatat(dir->dir_fd, "sock", &ours, AT_SYMLINK_NOFOLLOW);

	close(fd);
	if (rc || its.st_dev != ours.st_dev || its.st_ino != ours.st_ino)
		return explain(error, -EINVAL,
			       "LISTEN_FDS: descriptor %d is not the socket %s/sock",
			       dir->listen_fd, dir->path);
	return 0;
}

/* Gives the directory to the group. Files that carefuld makes later inherit the group: by then it
 * can no longer change owners. Without a group, a passed socket and its directory get ours. */
static int give_to(const struct rundir *dir, struct careful_error *error)
{
	const bool has_group = dir->group >= 0;
	gid_t group = has_group ? (gid_t)dir->group : getegid();

	if (!has_group && !dir->passed)
		return 0;
	if (fchownat(dir->dir_fd, "", (uid_t)-1, group, AT_EMPTY_PATH) ||
	    chmod(dir->path, has_group ? 02755 : 0755))
		return explain(error, -errno, "%s: cannot set its group: %s", dir->path,
			       strerror(errno));
	if (dir->passed && (fchownat(dir->dir_fd, "sock", geteuid(), group, AT_SYMLINK_NOFOLLOW) ||
			    fchmodat(dir->dir_fd, "sock", has_group ? 0660 : 0600, 0)))
		return explain(error, -errno, "%s/sock: cannot set its group: %s", dir->path,
			       strerror(errno));
	return 0;
}

int rundir_open(struct rundir *dir, const char *path, int64_t group, int passed_fd,
		struct careful_error *error)
{
	int rc;

	memset(dir, 0, sizeof(*dir));
	rc = path_make(path, &dir->made);
	dir->dir_fd = dir->lock_fd = -1;
	dir->listen_fd = passed_fd;
	dir->passed = passed_fd >= 0;
	dir->group = group;
	snprintf(dir->path, sizeof(dir->path), "%s", path);
	if (rc)
		return explain(error, rc, "%s: %s", path, strerror(-rc));
	dir->dir_fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (dir->dir_fd < 0)
		rc = explain(error, -errno, "%s: %s", path, strerror(errno));
	else if (dir->passed)
		rc = check_passed(dir, error);
	if (!rc)
		rc = take_lock(dir, error);
	if (!rc)
		rc = give_to(dir, error);
	if (rc) {
		close(dir->lock_fd);
		close(dir->dir_fd);
		unmake_path(dir->path, dir->made);
	}
	return rc;
}

/* Binds through /proc/self/fd, because sun_path cannot hold long paths. */
static int bind_at(int fd, int dir_fd, bool for_group)
{
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	mode_t mask;
	int rc;

	snprintf(un.sun_path, sizeof(un.sun_path), "/proc/self/fd/%d/sock", dir_fd);
	mask = umask(for_group ? 0117 : 0177);
	rc = bind(fd, (struct sockaddr *)&un, sizeof(un)) ? -errno : 0;
	umask(mask);
	return rc;
}

int rundir_listen(struct rundir *dir, struct careful_error *error)
{
	char pid[32];
	int n = snprintf(pid, sizeof(pid), "%d\n", getpid());
	int rc, fd;

	if (ftruncate(dir->lock_fd, 0) || pwrite(dir->lock_fd, pid, (size_t)n, 0) != n)
		return explain(error, -errno, "%s/pid: %s", dir->path, strerror(errno));
	if (dir->passed)
		return 0;
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return explain(error, -errno, "cannot open the local socket: %s", strerror(errno));
	unlinkat(dir->dir_fd, "sock", 0);
	rc = bind_at(fd, dir->dir_fd, dir->group >= 0);
	if (!rc && listen(fd, 64))
		rc = -errno;
	if (rc) {
		close(fd);
		return explain(error, rc, "%s/sock: %s", dir->path, strerror(-rc));
	}
	dir->listen_fd = fd;
	return 0;
}

void rundir_close(struct rundir *dir)
{
	if (dir->listen_fd >= 0) {
		if (!dir->passed)
			unlinkat(dir->dir_fd, "sock", 0);
		close(dir->listen_fd);
	}
	unlinkat(dir->dir_fd, "pid", 0);
	close(dir->lock_fd);
	close(dir->dir_fd);
}

void rundir_remove(struct rundir *dir)
{
	if (dir->made)
		unlinkat(dir->dir_fd, "log", 0);
	rundir_close(dir);
	unmake_path(dir->path, dir->made);
}
