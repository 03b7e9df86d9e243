/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A service manager that made our socket before us, and keeps it when we end, passes it as
 * descriptor 3: $LISTEN_FDS of process $LISTEN_PID (sd_listen_fds(3)).
 */
#ifndef DAEMON_PASSED_H
#define DAEMON_PASSED_H

#include <careful/careful.h>

/* The socket that was passed to this process, non-blocking; *fd is -1 where none was. -errno where
 * it is none that clients can connect to. Which path it is at is rundir_open()'s to see. */
int passed_socket(int *fd, struct careful_error *error);

#endif /* DAEMON_PASSED_H */
