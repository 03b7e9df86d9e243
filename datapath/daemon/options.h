/* SPDX-License-Identifier: BSD-2-Clause */
/* carefuld's command line. */
#pragma once

#include <limits.h>
#include <stdint.h>

#include <careful/careful.h>

#include "files/block.h"
#include "lend/lend.h"

struct daemon_options {
	struct careful_options careful;
	/* allocated by export_option() */
	struct block_export_options exports[BLOCK_EXPORTS];
	uint32_t exports_count;
	struct lend_options lend;
	int64_t group; /* the group that may connect to the socket besides root, or -1 */
	char run_dir[PATH_MAX]; /* directory of pid, lock, socket and log */
	const char *state_dir; /* directory of files that outlive the daemon */
	const char *log;
	int cpu; /* CPU to run on, or -1 */
	int ready_fd; /* gets one line when the daemon serves or has failed; -1: none */
	uint32_t foreground;
	uint32_t insecure; /* exports may be writable without keys */
};

/* Returns 0, 1 after --help or --version, or -EINVAL with *error. Modifies argv. */
int options_parse(struct daemon_options *options, int argc, char **argv,
		  struct careful_error *error);
