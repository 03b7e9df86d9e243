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
	END_MS = 2000, /* until another queue's process has released its queue */
	LINE_BYTES = CAREFUL_ERROR_BYTES + 16,
};

static const char go[] = "go", end[] = "end", ready[] = "ready", alive[] = "alive %u";

/* Returns NAME+k.log for NAME.log, allocated. */
static const char *log_path(const char *log, uint32_t index)
{
	size_t bytes = strlen(log) + 8, stem = strlen(log);
	char *path = malloc(bytes);

	if (stem > 4 && !strcmp(log + stem - 4, ".log"))
		stem -= 4;
	if (path)
		snprintf(path, bytes, "%.*s+%u%s", (int)stem, log, index, log + stem);
	return path;
}

static int adapt_options(struct daemon_options *options, uint32_t index)
{
	size_t used = strlen(options->run_dir);

	options->careful.queue = index;
	options->cpu += options->cpu >= 0 ? (int)index : 0;
	options->ready_fd = -1;
	if (snprintf(options->run_dir + used, sizeof(options->run_dir) - used, "+%u", index) >=
	    (int)(sizeof(options->run_dir) - used))
		return -ENAMETOOLONG;
	if (options->log)
		options->log = log_path(options->log, index);
	return 0;
}

static int enter_child(struct queues *queues, struct daemon_options *options, uint32_t index,
		       int fd)
{
	if (options->ready_fd >= 0)
		close(options->ready_fd);
	for (uint32_t i = 1; i < index; i++)
		close(queues->fds[i]);
	queues->index = index;
	queues->fds[0] = fd;
	return adapt_options(options, index);
}

int queues_fork(struct queues *queues, struct daemon_options *options, struct careful_error *error)
{
	uint32_t count = options->careful.queues;

	*queues = (struct queues){ .count = count > 1 ? count : 1 };
	for (uint32_t i = 1; i < queues->count; i++) {
		int fds[2];
		pid_t pid;

		if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds))
			return explain(error, -errno, "queue %u: %s", i, strerror(errno));
		pid = fork();
		if (pid < 0)
			return explain(error, -errno, "queue %u: %s", i, strerror(errno));
		close(pid ? fds[1] : fds[0]);
		if (!pid)
			return enter_child(queues, options, i, fds[1]);
		queues->fds[i] = fds[0];
	}
	return 0;
}

/* Receives a message; "" if the other end is gone. */
static void receive(int fd, char *line)
{
	ssize_t got;

	do
		got = recv(fd, line, LINE_BYTES - 1, 0);
	while (got < 0 && errno == EINTR);
	line[got < 0 ? 0 : got] = 0;
}

static void send_line(int fd, const char *line)
{
	send(fd, line, strlen(line), MSG_NOSIGNAL | MSG_DONTWAIT);
}

bool queues_wait(struct queues *queues)
{
	char line[LINE_BYTES];

	receive(queues->fds[0], line);
	return !strcmp(line, go);
}

void queues_report_start(struct queues *queues, const char *error)
{
	send_line(queues->fds[0], error ? error : ready);
}

int queues_open(struct queues *queues, struct careful_error *error)
{
	char line[LINE_BYTES];
	int rc = 0;

	for (uint32_t i = 1; i < queues->count; i++)
		send_line(queues->fds[i], go);
	for (uint32_t i = 1; i < queues->count; i++) {
		struct pollfd poller = { .fd = queues->fds[i], .events = POLLIN };

		line[0] = 0;
		if (poll(&poller, 1, START_MS) > 0)
			receive(queues->fds[i], line);
		if (!rc && strcmp(line, ready) != 0)
			rc = explain(error, -EIO, "queue %u: %s", i,
				     line[0] ? line : "it died while it started");
	}
	return rc;
}

int queues_receive(struct queues *queues, uint32_t index)
{
	char line[LINE_BYTES];

	receive(queues->fds[index], line);
	if (sscanf(line, alive, &queues->up[index]) == 1) {
		queues->alive[index] = true;
		return 1;
	}
	return !strcmp(line, end) ? 0 : -EPIPE;
}

bool queues_report_alive(struct queues *queues, uint32_t up)
{
	char line[LINE_BYTES];
	bool all = true;

	queues->up[0] = up;
	if (queues->index) {
		snprintf(line, sizeof(line), alive, up);
		send_line(queues->fds[0], line);
		return true;
	}
	for (uint32_t i = 1; i < queues->count; i++)
		all &= queues->alive[i];
	if (all)
		memset(queues->alive, 0, sizeof(queues->alive));
	return all;
}

void queues_end(struct queues *queues)
{
	char line[LINE_BYTES];

	if (queues->index)
		send_line(queues->fds[0], end);
	for (uint32_t i = 1; !queues->index && i < queues->count; i++)
		send_line(queues->fds[i], end);
	for (uint32_t i = 1; !queues->index && i < queues->count; i++) {
		struct pollfd poller = { .fd = queues->fds[i], .events = POLLIN };

		do
			line[0] = 0;
		while (poll(&poller, 1, END_MS) > 0 && (receive(poller.fd, line), line[0]));
	}
}
