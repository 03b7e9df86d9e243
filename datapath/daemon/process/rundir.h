/* SPDX-License-Identifier: BSD-2-Clause */
/* The daemon's directory below /run: lock, pid and socket. The lock ends with the process, so the
 * next daemon replaces the files of a killed one. A passed socket (socket_activation.h) stays. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <careful/careful.h>

struct rundir {
	char path[4096];
	size_t made; /* bytes of path up to the end of the first component we made; 0: none */
	int dir_fd;
	int lock_fd; /* of the file `pid`, locked */
	int listen_fd;
	bool passed; /* the service manager owns and removes listen_fd */
	int64_t group; /* may connect, besides root; -1: none */
};

/* Makes the directory and takes the lock; -EBUSY if another daemon holds the lock.
 *
 * @group:     may connect to the socket besides root, or -1
 * @passed_fd: the passed socket, or -1; -EINVAL if it is not at DIR/sock */
int rundir_open(struct rundir *dir, const char *path, int64_t group, int passed_fd,
		struct careful_error *error);
/* Writes our pid and listens on the socket. */
int rundir_listen(struct rundir *dir, struct careful_error *error);
/* Removes the pid file, and the socket if it is ours; the log stays. */
void rundir_close(struct rundir *dir);
/* Does what rundir_close() does. If rundir_open() made the directory, removes it and its log. */
void rundir_remove(struct rundir *dir);
