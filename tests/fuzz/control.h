/* SPDX-License-Identifier: BSD-2-Clause */
/* The daemon's socket, for targets that act as clients. */
#ifndef FUZZ_CONTROL_H
#define FUZZ_CONTROL_H

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon/ipc/ipc.h"
#include "input.h"

/* @listen_fd, @epoll_fd: of the server */
struct control {
	struct sockaddr_un address;
	int listen_fd, epoll_fd;
};

static inline socklen_t control_length(const struct control *control)
{
	return sizeof(sa_family_t) + 1 + (socklen_t)strlen(control->address.sun_path + 1);
}

static inline void control_listen(struct control *control, const char *name)
{
	control->address.sun_family = AF_UNIX;
	snprintf(control->address.sun_path + 1, sizeof(control->address.sun_path) - 1, "%s.%d",
		 name, getpid());
	control->listen_fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	control->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	MUST(!bind(control->listen_fd, (struct sockaddr *)&control->address,
		   control_length(control)));
	MUST(!listen(control->listen_fd, 8));
}

/* Connects a client. Returns -1 if it was refused. */
static inline int control_connect(const struct control *control)
{
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (!connect(fd, (const struct sockaddr *)&control->address, control_length(control)))
		return fd;
	close(fd);
	return -1;
}

/* Runs a round of the server; waits: until threads have closed files. */
static inline void control_turn(const struct control *control, struct ipc *server, bool waits)
{
	struct epoll_event events[16];
	int n = epoll_wait(control->epoll_fd, events, 16, waits ? -1 : 0);

	for (int i = 0; i < n; i++) {
		struct ipc_event *event = events[i].data.ptr;

		event->handle(event, events[i].events);
	}
	ipc_poll(server);
}

static inline void control_close(const struct control *control)
{
	close(control->listen_fd);
	close(control->epoll_fd);
}

#endif /* FUZZ_CONTROL_H */
