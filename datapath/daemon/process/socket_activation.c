/* SPDX-License-Identifier: BSD-2-Clause */
/* The protocol of sd_listen_fds(3) is two variables, so this uses no library. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/process/socket_activation.h"
#include "base/error.h"

enum { FIRST = 3 };

static long number_of(const char *name)
{
	const char *text = getenv(name);
	char *end;
	long value;

	if (!text || *text < '0' || *text > '9')
		return -1;
	errno = 0;
	value = strtol(text, &end, 10);
	return errno || *end ? -1 : value;
}

static int check_option(int option, int wanted, const char *what, struct careful_error *error)
{
	socklen_t bytes = sizeof(int);
	int value = 0;

	if (getsockopt(FIRST, SOL_SOCKET, option, &value, &bytes))
		return explain(error, -errno, "LISTEN_FDS: descriptor %d: %s", FIRST,
			       strerror(errno));
	if (value != wanted)
		return explain(error, -EINVAL, "LISTEN_FDS: descriptor %d is not a %s", FIRST,
			       what);
	return 0;
}

int activation_socket(int *fd, struct careful_error *error)
{
	const char *count = getenv("LISTEN_FDS");
	int flags, rc;

	*fd = -1;
	if (!count || number_of("LISTEN_PID") != getpid()) /* none, or meant for another process */
		return 0;
	if (number_of("LISTEN_FDS") != 1)
		return explain(error, -EINVAL, "LISTEN_FDS=%s: carefuld accepts only one socket",
			       count);
	rc = check_option(SO_DOMAIN, AF_UNIX, "Unix socket", error);
	if (!rc)
		rc = check_option(SO_TYPE, SOCK_SEQPACKET, "socket of type SOCK_SEQPACKET", error);
	if (!rc)
		rc = check_option(SO_ACCEPTCONN, 1, "listening socket", error);
	if (rc)
		return rc;
	flags = fcntl(FIRST, F_GETFL);
	if (flags < 0 || fcntl(FIRST, F_SETFL, flags | O_NONBLOCK) ||
	    fcntl(FIRST, F_SETFD, FD_CLOEXEC))
		return explain(error, -errno, "LISTEN_FDS: descriptor %d: %s", FIRST,
			       strerror(errno));
	*fd = FIRST;
	return 0;
}
