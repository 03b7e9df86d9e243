/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <careful/careful.h>

#include "daemon/log.h"
#include "daemon/process/process.h"

enum { FILES_MAX = 65536 };

void process_raise_limits(void)
{
	struct rlimit limit = { RLIM_INFINITY, RLIM_INFINITY };

	/* Counted by this limit: BPF maps before Linux 5.11, and UMEM without CAP_IPC_LOCK. */
	setrlimit(RLIMIT_MEMLOCK, &limit);
	if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
		limit.rlim_max = limit.rlim_max < FILES_MAX ? FILES_MAX : limit.rlim_max;
		limit.rlim_cur = FILES_MAX;
		if (setrlimit(RLIMIT_NOFILE, &limit)) {
			getrlimit(RLIMIT_NOFILE, &limit);
			limit.rlim_cur = limit.rlim_max;
			setrlimit(RLIMIT_NOFILE, &limit);
		}
	}
	/* Workers allocate rarely, so they need no arenas of their own. */
	mallopt(M_ARENA_MAX, 1);
}

void process_report(int fd, const char *text, const char *error)
{
	if (fd >= 0 && dprintf(fd, "%s%s\n", text, error) < 0)
		log_line("cannot report to the program that started carefuld: %s", text);
}

int process_detach(int ready_fd)
{
	char line[CAREFUL_ERROR_BYTES + 16] = "";
	size_t n = 0;
	ssize_t got;
	int fds[2];
	pid_t pid;

	/* A reader of an inherited pipe must not wait for this process to end. */
	if (ready_fd > 3)
		close_range(3, (unsigned int)ready_fd - 1, 0);
	close_range(ready_fd < 3 ? 3 : (unsigned int)ready_fd + 1, ~0U, 0);
	if (pipe2(fds, O_CLOEXEC) || (pid = fork()) < 0) {
		fprintf(stderr, "carefuld: %s\n", strerror(errno));
		exit(EXIT_FAILURE);
	}
	if (pid == 0) {
		close(fds[0]);
		setsid();
		return fds[1];
	}
	close(fds[1]);
	while (n < sizeof(line) - 1 && (got = read(fds[0], line + n, sizeof(line) - 1 - n)) > 0)
		n += (size_t)got;
	if (!strcmp(line, "ready\n"))
		_exit(EXIT_SUCCESS);
	/* The prefix "error: " is for programs. Without a line, the child died. */
	fprintf(stderr, "carefuld: %s",
		*line ? strchr(line, ' ') + 1 : "it died while it started\n");
	_exit(EXIT_FAILURE);
}

void process_leave_terminal(void)
{
	int fd = open("/dev/null", O_RDWR | O_CLOEXEC);

	if (fd < 0)
		return;
	dup2(fd, STDIN_FILENO);
	dup2(fd, STDOUT_FILENO);
	if (fd > STDERR_FILENO)
		close(fd);
	log_take_stderr();
}
