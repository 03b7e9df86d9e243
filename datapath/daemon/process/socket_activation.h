/* SPDX-License-Identifier: BSD-2-Clause */
/* The socket that a service manager creates and keeps. The manager passes it as descriptor 3, with
 * $LISTEN_FDS and $LISTEN_PID (sd_listen_fds(3)). */
#pragma once

#include <careful/careful.h>

/* Finds the socket that was passed to this process and makes it non-blocking; *fd is -1 without
 * one. Returns -errno if clients cannot connect to it. rundir_open() checks its path. */
int activation_socket(int *fd, struct careful_error *error);
