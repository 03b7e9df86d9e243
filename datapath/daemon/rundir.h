/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The daemon's place under /run: lock and pid, the local socket. The lock goes with
 * the process, so what a killed daemon left is recognised and replaced. A socket that was passed
 * to us (passed.h) is used as it is, and left where it is.
 */
#ifndef DAEMON_RUNDIR_H
#define DAEMON_RUNDIR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <careful/careful.h>

struct rundir {
	char path[4096];
	size_t made; /* bytes of path up to the first component that we made; 0: all was there */
	int dir_fd;
	int lock_fd; /* of the file `pid`, locked */
	int listen_fd;
	bool passed; /* listen_fd is another's, who removes it */
	int64_t group; /* that may connect, besides root; -1: none */
};

/* Makes the directory and takes the lock; -EBUSY where another daemon holds it. @group: who may
 * connect to the socket besides root, or -1. @passed_fd: the socket, if it was passed to us, or -1;
 * -EINVAL where it is not this directory's. */
int rundir_open(struct rundir *dir, const char *path, int64_t group, int passed_fd,
		struct careful_error *error);
/* Writes our pid and listens on the socket. */
int rundir_listen(struct rundir *dir, struct careful_error *error);
/* Removes the pid, and the socket if it is ours; the log stays. */
void rundir_close(struct rundir *dir);
/* The same, and what rundir_open() made: of a daemon that did not start. */
void rundir_remove(struct rundir *dir);

#endif /* DAEMON_RUNDIR_H */
