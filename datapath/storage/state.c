/* SPDX-License-Identifier: BSD-2-Clause */
/* Small files of state (careful/state.h). */
#include <careful/state.h>

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/io.h"
#include "storage/path.h"

enum { WHY_BYTES = 64, NAME_BYTES = 256, TEMPORARY_BYTES = NAME_BYTES + 32 };

int path_make(const char *path, size_t *made)
{
	char parent[4096];
	size_t n = strlen(path);

	*made = 0;
	if (n >= sizeof(parent))
		return -ENAMETOOLONG;
	for (size_t i = 1; i <= n; i++) {
		if (path[i] != '/' && path[i])
			continue;
		memcpy(parent, path, i);
		parent[i] = 0;
		if (mkdir(parent, 0755)) {
			if (errno != EEXIST)
				return -errno;
		} else if (!*made) {
			*made = i;
		}
	}
	return 0;
}

/* Checks type, owner and mode. -EPERM: another user could have written the file. *why: the reason,
 * unless the errno says enough. */
static int check(int fd, mode_t kind, char *why)
{
	struct stat st;

	if (fstat(fd, &st))
		return -errno;
	if ((st.st_mode & S_IFMT) != kind) {
		snprintf(why, WHY_BYTES, "it is not a regular file");
		return -EINVAL;
	}
	if (st.st_uid && st.st_uid != geteuid()) {
		snprintf(why, WHY_BYTES, "it belongs to user %u", st.st_uid);
		return -EPERM;
	}
	if (st.st_mode & (S_IWGRP | S_IWOTH)) {
		snprintf(why, WHY_BYTES, "others may write it");
		return -EPERM;
	}
	return 0;
}

static int open_directory(const char *path, char *why)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int rc = fd < 0 ? -errno : check(fd, S_IFDIR, why);

	if (rc && fd >= 0)
		close(fd);
	return rc ? rc : fd;
}

static int read_file(int dir, const char *name, void *data, uint32_t bytes, char *why)
{
	int fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	int rc = fd < 0 ? -errno : check(fd, S_IFREG, why);
	uint8_t more;

	if (!rc)
		rc = (int)io_read(fd, data, bytes, 0);
	if (rc == (int)bytes && pread(fd, &more, 1, bytes) == 1) {
		snprintf(why, WHY_BYTES, "it has more than %u bytes", bytes);
		rc = -EFBIG;
	}
	if (fd >= 0)
		close(fd);
	return rc;
}

static bool is_name(const char *name)
{
	return name[0] && !strchr(name, '/') && strlen(name) < NAME_BYTES;
}

/* name NULL: the directory itself. */
static int refuse_file(struct careful_error *error, int rc, const char *directory, const char *name,
		       const char *why, const char *effect)
{
	return explain(error, rc, "%s%s%s: %s: %s", directory, name ? "/" : "", name ? name : "",
		       why[0] ? why : strerror(-rc), effect);
}

int careful_state_read(const char *directory, const char *name, void *data, uint32_t bytes,
		       struct careful_error *error)
{
	char why[WHY_BYTES] = "";
	int dir = open_directory(directory, why), rc;

	if (dir == -ENOENT)
		return dir;
	if (dir < 0)
		return refuse_file(error, dir, directory, NULL, why, "it is not used");
	rc = is_name(name) ? read_file(dir, name, data, bytes, why) : -EINVAL;
	close(dir);
	if (rc >= 0 || rc == -ENOENT)
		return rc;
	return refuse_file(error, rc, directory, name, why, "it is not used");
}

static int write_file(int dir, const char *name, const void *data, uint32_t bytes)
{
	char temporary[TEMPORARY_BYTES];
	int fd, rc;

	snprintf(temporary, sizeof(temporary), ".%s.%d.tmp", name, getpid());
	unlinkat(dir, temporary, 0); /* left by a killed process with our pid */
	fd = openat(dir, temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);
	if (fd < 0)
		return -errno;
	rc = io_write(fd, data, bytes);
	if (close(fd) && !rc)
		rc = -errno;
	if (!rc && renameat(dir, temporary, dir, name))
		rc = -errno;
	if (rc)
		unlinkat(dir, temporary, 0);
	return rc;
}

int careful_state_write(const char *directory, const char *name, const void *data, uint32_t bytes,
			struct careful_error *error)
{
	char why[WHY_BYTES] = "";
	size_t made;
	int dir, rc = path_make(directory, &made);

	dir = rc ? rc : open_directory(directory, why);
	if (dir < 0)
		return refuse_file(error, dir, directory, NULL, why, "nothing is saved");
	rc = is_name(name) ? write_file(dir, name, data, bytes) : -EINVAL;
	close(dir);
	return rc ? refuse_file(error, rc, directory, name, why, "it is not saved") : 0;
}
