/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The XDP mode that was measured for a driver and a kernel: xdp.DRIVER.json in the state
 * directory. It is believed if it is byte for byte what is written here, and nobody but root
 * and us could have written it. Calls rundir.c to make the directory.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "daemon/rundir.h"
#include "daemon/xdp_choice.h"
#include "device/error.h"

enum { TEXT_BYTES = 256, NAME_BYTES = 64 };

/* "": no file can have such a name. */
static void file_name(const char *driver, char *name)
{
	snprintf(name, NAME_BYTES, "xdp.%s.json", driver);
	if (!driver[0] || strchr(driver, '/'))
		name[0] = 0;
}

static size_t file_text(uint32_t mode, char *text)
{
	struct utsname kernel;

	uname(&kernel);
	return (size_t)snprintf(text, TEXT_BYTES,
				"{\"schema\": 1, \"kernel\": \"%.128s\", \"mode\": \"%s\"}\n",
				kernel.release, mode == CAREFUL_XDP_GENERIC ? "generic" : "native");
}

/* -EPERM where somebody else could have written it. */
static int check(int fd, mode_t kind)
{
	struct stat st;

	if (fstat(fd, &st))
		return -errno;
	if ((st.st_mode & S_IFMT) != kind)
		return -EINVAL;
	if ((st.st_uid && st.st_uid != geteuid()) || (st.st_mode & (S_IWGRP | S_IWOTH)))
		return -EPERM;
	return 0;
}

static int open_directory(const char *path)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int rc = fd < 0 ? -errno : check(fd, S_IFDIR);

	if (rc && fd >= 0)
		close(fd);
	return rc ? rc : fd;
}

static int read_text(int dir, const char *name, char *text)
{
	int fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	int rc = fd < 0 ? -errno : check(fd, S_IFREG);
	ssize_t got;

	if (!rc) {
		got = read(fd, text, TEXT_BYTES);
		rc = got < 0 ? -errno : (int)got;
	}
	if (fd >= 0)
		close(fd);
	return rc;
}

/* Another kernel's answer is none, and will be written over. */
static int mode_in(const char *text, size_t bytes, uint32_t *mode)
{
	char expected[TEXT_BYTES];

	for (uint32_t i = CAREFUL_XDP_NATIVE; i <= CAREFUL_XDP_GENERIC; i++) {
		if (file_text(i, expected) != bytes || memcmp(expected, text, bytes) != 0)
			continue;
		*mode = i;
		return 0;
	}
	return -ENOENT;
}

int xdp_recall(const char *dir, const char *driver, uint32_t *mode, struct careful_error *error)
{
	char name[NAME_BYTES], text[TEXT_BYTES];
	int rc, fd = open_directory(dir);

	file_name(driver, name);
	rc = fd < 0 ? fd : name[0] ? read_text(fd, name, text) : -ENOENT;
	if (fd >= 0)
		close(fd);
	if (rc >= 0)
		return mode_in(text, (size_t)rc, mode);
	return rc == -ENOENT ? rc :
			       refuse(error, rc, "%s/%s: %s: not used", dir, name, strerror(-rc));
}

static int write_text(int dir, const char *name, const char *text, size_t bytes)
{
	char temporary[NAME_BYTES + 32];
	int fd, rc = 0;

	snprintf(temporary, sizeof(temporary), ".%s.%d.tmp", name, getpid());
	unlinkat(dir, temporary, 0); /* of a process that was killed and had our pid */
	fd = openat(dir, temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);
	if (fd < 0)
		return -errno;
	if (write(fd, text, bytes) != (ssize_t)bytes)
		rc = errno ? -errno : -EIO;
	close(fd);
	if (!rc && renameat(dir, temporary, dir, name))
		rc = -errno;
	if (rc)
		unlinkat(dir, temporary, 0);
	return rc;
}

int xdp_remember(const char *dir, const char *driver, uint32_t mode, struct careful_error *error)
{
	char name[NAME_BYTES], text[TEXT_BYTES];
	size_t made, bytes = file_text(mode, text);
	int fd, rc = rundir_make_path(dir, &made);

	file_name(driver, name);
	fd = rc ? rc : open_directory(dir);
	rc = fd < 0 ? fd : name[0] ? write_text(fd, name, text, bytes) : -EINVAL;
	if (fd >= 0)
		close(fd);
	return rc ? refuse(error, rc, "%s/%s: %s: not remembered", dir, name, strerror(-rc)) : 0;
}
