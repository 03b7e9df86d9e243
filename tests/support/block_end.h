/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A block server over an instance without a network, and its temporary directory. Include it in one
 * file.
 */
#ifndef BLOCK_END_H
#define BLOCK_END_H

#include <assert.h>
#include <dirent.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <careful/wire.h>

#include "fake_careful.c" /* NOLINT(bugprone-suspicious-include) */
#include "files/block.h"

static char base[] = "/tmp/test_block.XXXXXX";
static struct careful *c;
static struct block_server *server;

static inline void stop(void)
{
	assert(c->kept == 0);
	block_stop(server);
	fake_destroy(c);
}

/* Polls until the request of this token is answered. */
static inline struct fake_answer *answer(uint32_t token)
{
	for (int i = 0; i < 10000 && !c->answers[token]->given; i++) {
		struct pollfd pfd = { .fd = block_fd(server), .events = POLLIN };
		int timeout = block_timeout_ms(server);

		poll(&pfd, 1, timeout < 0 ? 10 : timeout);
		block_poll(server);
	}
	assert(c->answers[token]->given);
	return c->answers[token];
}

/* Returns the path below base. */
static inline const char *at(const char *path)
{
	static char buf[4][PATH_MAX + 64];
	static int i;

	i = (i + 1) % 4;
	snprintf(buf[i], sizeof(buf[i]), "%s/%s", base, path);
	return buf[i];
}

static inline bool exists(const char *path)
{
	struct stat st;

	return lstat(at(path), &st) == 0;
}

static inline int open_fds(void)
{
	int n = 0;

	for (int fd = 3; fd < 1024; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

static inline void remove_base(void)
{
	char command[64];

	snprintf(command, sizeof(command), "rm -rf %s", base);
	assert(system(command) == 0);
}

#endif /* BLOCK_END_H */
