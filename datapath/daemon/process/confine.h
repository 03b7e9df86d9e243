/* SPDX-License-Identifier: BSD-2-Clause */
/* Drops the capabilities that carefuld does not use after it has opened its queue. */
#pragma once

#include <careful/careful.h>

#include "daemon/options.h"

/* Sets no_new_privs, so that no program that an attacker runs from carefuld regains a capability.
 * Call it before any thread starts. Returns 0 or -errno. */
int confine_programs(struct careful_error *error);
/* Drops all capabilities that the options do not need. Threads that open files must start later,
 * because each thread has its own capabilities. A missing one is no error. Returns 0 or -errno. */
int confine(const struct daemon_options *options, struct careful_error *error);
/* Returns 0 if the remaining capabilities suffice for new options, or -EPERM with *error. */
int confine_covers(const struct daemon_options *options, struct careful_error *error);
