/* SPDX-License-Identifier: BSD-2-Clause */
/* Limits carefuld, once its queue is open, to the capabilities that it still uses. */
#pragma once

#include <careful/careful.h>

#include "daemon/options.h"

/* Sets no_new_privs: a program that carefuld might be tricked into running gains no capability from
 * being root's. Call it before any thread starts. Returns 0 or -errno. */
int confine_programs(struct careful_error *error);
/* Drops all capabilities that the options do not need. Call it before any thread that opens files
 * starts: capabilities belong to threads. A kept capability may be missing. Returns 0 or -errno. */
int confine(const struct daemon_options *options, struct careful_error *error);
/* Returns 0 if the kept capabilities suffice for these exports, or -EPERM with *error. */
int confine_covers(const struct daemon_options *options, struct careful_error *error);
