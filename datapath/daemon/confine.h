/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What carefuld may do once its queue is open: the capabilities that it still uses, and no
 * others, whatever it runs.
 */
#ifndef DAEMON_CONFINE_H
#define DAEMON_CONFINE_H

#include <careful/careful.h>

#include "daemon/options.h"

/* Called before any thread starts: a program that carefuld would run, were it made to, gets no
 * capability back by being root's. -errno. */
int confine_programs(struct careful_error *error);
/* Called before any thread starts that opens files: each thread has capabilities of its own.
 * Of those named, what the process does not have it does without. -errno. */
int confine(const struct daemon_options *options, struct careful_error *error);
/* Reports whether what it kept is enough for other exports. -EPERM with *error. */
int confine_covers(const struct daemon_options *options, struct careful_error *error);

#endif /* DAEMON_CONFINE_H */
