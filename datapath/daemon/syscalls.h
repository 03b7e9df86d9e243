/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The system calls that carefuld makes once it serves. Any other is refused to it, in all of
 * its threads and whatever it is made to do: it runs no program, traces nobody, mounts nothing,
 * changes no namespace and no identity, and maps no memory that it could execute.
 */
#ifndef DAEMON_SYSCALLS_H
#define DAEMON_SYSCALLS_H

#include <careful/careful.h>

/* For good, in threads that run already, too. no_new_privs is set before. -errno. */
int syscalls_confine(struct careful_error *error);

#endif /* DAEMON_SYSCALLS_H */
