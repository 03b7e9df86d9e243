/* SPDX-License-Identifier: BSD-2-Clause */
/* The socket that a service manager creates and keeps. The manager passes the socket as descriptor
 * 3, and sets $LISTEN_FDS and $LISTEN_PID (sd_listen_fds(3)). */
#pragma once

#include <careful/careful.h>

/* Sets *fd to the socket that was passed to this process, or to -1, and makes it non-blocking.
 * Returns -errno if clients cannot connect to this socket. rundir_open() checks its path. */
int activation_socket(int *fd, struct careful_error *error);
