/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/queues.h"
#include "base/error.h"

enum {
	START_MS = 30000, /* until another queue's process serves */
	END_MS = 2000, /* until it has released its queue */
	LINE_BYTES = CAREFUL_ERROR_BYTES + 16,
};

static const char go[] = "go", end[] = "end", ready[] = "ready", lives[] = "lives %u";

/* Returns NAME+k.log for NAME.log. */
static const char *log_of(const char *log, uint32_t index)
{
	size_t bytes = strlen(log) + 8, stem = strlen(log);
	char *path = malloc(bytes);

	if (stem > 4 && !strcmp(log + stem - 4, ".log"))
		stem -= 4;
	if (path)
		snprintf(path, bytes, "%.*s+%u%s", (int)stem, log, index, log + stem);
	return path;
}

/* Changes the first queue's options into those of queue `index`. */
static int take_options(struct daemon_options *options, uint32_t index)
{
	size_t used = strlen(options->run_dir);

	options->careful.queue = index;
	options->cpu += options->cpu >= 0 ? (int)index : 0;
	options->ready_fd = -1;
	if (snprintf(options->run_dir + used, sizeof(options->run_dir) - used, "+%u", index) >=
	    (int)(sizeof(options->run_dir) - used))
		return -ENAMETOOLONG;
	if (options->log)
		options->log = log_of(options->log, index);
	return 0;
}

static int become(struct queues *queues, struct daemon_options *options, uint32_t index, int fd)
{
	if (options->ready_fd >= 0)
		close(options->ready_fd);
	for (uint32_t i = 1; i < index; i++)
		close(queues->fds[i]);
	queues->index = index;
	queues->fds[0] = fd;
	return take_options(options, index);
}

int queues_fork(struct queues *queues, struct daemon_options *options, struct careful_error *error)
{
	uint32_t count = options->careful.queues;

	*queues = (struct queues){ .count = count > 1 ? count : 1 };
	for (uint32_t i = 1; i < queues->count; i++) {
		int fds[2];
		pid_t pid;

		if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds))
			return refuse(error, -errno, "queue %u: %s", i, strerror(errno));
		pid = fork();
		if (pid < 0)
			return refuse(error, -errno, "queue %u: %s", i, strerror(errno));
		close(fds[!!pid]);
		if (!pid)
			return become(queues, options, i, fds[1]);
		queues->fds[i] = fds[0];
	}
	return 0;
}

/* Receives a word or line; "" if the other end is gone. */
static void hear(int fd, char *line)
{
	ssize_t got;

	do
		got = recv(fd, line, LINE_BYTES - 1, 0);
	while (got < 0 && errno == EINTR);
	line[got < 0 ? 0 : got] = 0;
}

static void say(int fd, const char *line)
{
	send(fd, line, strlen(line), MSG_NOSIGNAL | MSG_DONTWAIT);
}

bool queues_wait(struct queues *queues)
{
	char line[LINE_BYTES];

	hear(queues->fds[0], line);
	return !strcmp(line, go);
}

void queues_say(struct queues *queues, const char *error)
{
	say(queues->fds[0], error ? error : ready);
}

int queues_open(struct queues *queues, struct careful_error *error)
{
	char line[LINE_BYTES];
	int rc = 0;

	for (uint32_t i = 1; i < queues->count; i++)
		say(queues->fds[i], go);
	for (uint32_t i = 1; i < queues->count; i++) {
		struct pollfd poller = { .fd = queues->fds[i], .events = POLLIN };

		line[0] = 0;
		if (poll(&poller, 1, START_MS) > 0)
			hear(queues->fds[i], line);
		if (!rc && strcmp(line, ready) != 0)
			rc = refuse(error, -EIO, "queue %u: %s", i,
				    line[0] ? line : "it died at the start");
	}
	return rc;
}

int queues_heard(struct queues *queues, uint32_t index)
{
	char line[LINE_BYTES];

	hear(queues->fds[index], line);
	if (sscanf(line, lives, &queues->up[index]) == 1) {
		queues->lives[index] = true;
		return 1;
	}
	return !strcmp(line, end) ? 0 : -EPIPE;
}

bool queues_live(struct queues *queues, uint32_t up)
{
	char line[LINE_BYTES];
	bool all = true;

	queues->up[0] = up;
	if (queues->index) {
		snprintf(line, sizeof(line), lives, up);
		say(queues->fds[0], line);
		return true;
	}
	for (uint32_t i = 1; i < queues->count; i++)
		all &= queues->lives[i];
	if (all)
		memset(queues->lives, 0, sizeof(queues->lives));
	return all;
}

void queues_end(struct queues *queues)
{
	char line[LINE_BYTES];

	if (queues->index)
		say(queues->fds[0], end);
	if (queues->count < 2 || queues->index)
		return;
	for (uint32_t i = 1; i < queues->count; i++)
		say(queues->fds[i], end);
	for (uint32_t i = 1; i < queues->count; i++) {
		struct pollfd poller = { .fd = queues->fds[i], .events = POLLIN };

		do
			line[0] = 0;
		while (poll(&poller, 1, END_MS) > 0 && (hear(poller.fd, line), line[0]));
	}
}
