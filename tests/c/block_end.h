/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A block server over an instance without a network, with one writable export in a
 * temporary directory, and what its only client does. Include in one file.
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
#include "service/block.h"

static char base[] = "/tmp/test_block.XXXXXX";
static struct careful *c;
static struct careful_block_server *server;

/* Begins to serve base. */
static inline void serve(bool writable)
{
	struct careful_block_export export = { base, "one", writable };
	struct careful_error error;

	c = fake_create();
	assert(careful_block_serve(c, &export, 1, &server, &error) == 0);
	careful_peer_watch(c, careful_block_watch, server);
}

static inline void stop(void)
{
	assert(c->kept == 0);
	careful_block_stop(server);
	fake_destroy(c);
}

/* Until the request of this token is answered. */
static inline struct fake_answer *answer(uint32_t token)
{
	for (int i = 0; i < 10000 && !c->answers[token]->given; i++) {
		struct pollfd pfd = { .fd = careful_block_fd(server), .events = POLLIN };
		int timeout = careful_block_timeout_ms(server);

		poll(&pfd, 1, timeout < 0 ? 10 : timeout);
		careful_block_poll(server);
	}
	assert(c->answers[token]->given);
	return c->answers[token];
}

static inline struct fake_answer *ask(uint16_t handler, uint32_t arg0, uint32_t arg1,
				      const void *payload, size_t bytes)
{
	uint32_t args[4] = { arg0, arg1 };

	return answer(fake_request(c, 0, handler, args, payload, (uint32_t)bytes));
}

/* OPEN; of *open all but path_bytes is the caller's. */
static inline struct fake_answer *open_as(const char *path, struct careful_block_open open)
{
	char buf[sizeof(open) + PATH_MAX + 1];
	size_t bytes = strlen(path);

	open.path_bytes = htobe32((uint32_t)bytes);
	memcpy(buf, &open, sizeof(open));
	memcpy(buf + sizeof(open), path, bytes + 1);
	return ask(CAREFUL_BLOCK_OPEN, 0, 0, buf, sizeof(open) + bytes);
}

static inline struct fake_answer *commit(uint32_t key, uint32_t flags, uint64_t bytes)
{
	struct careful_block_open open = { .mode = htobe32(0644), .bytes = htobe64(bytes) };

	return ask(CAREFUL_BLOCK_COMMIT, key, flags, &open, sizeof(open));
}

static inline struct fake_answer *close_key(uint32_t key, uint32_t flags)
{
	return ask(CAREFUL_BLOCK_CLOSE, key, flags, NULL, 0);
}

/* A path of this process, beneath base. */
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

static inline void write_file(const char *path, const void *data, size_t bytes)
{
	int fd = open(at(path), O_WRONLY | O_CREAT | O_TRUNC, 0644);

	assert(fd >= 0 && write(fd, data, bytes) == (ssize_t)bytes && close(fd) == 0);
}

static inline bool holds(const char *path, const void *data, size_t bytes)
{
	char *buf = malloc(bytes + 1);
	int fd = open(at(path), O_RDONLY);
	bool same = fd >= 0 && read(fd, buf, bytes + 1) == (ssize_t)bytes &&
		    !memcmp(buf, data, bytes);

	if (fd >= 0)
		close(fd);
	free(buf);
	return same;
}

static inline int entries(void)
{
	DIR *dir = opendir(base);
	int n = -2;

	assert(dir);
	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
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
