/* SPDX-License-Identifier: BSD-2-Clause */
/* The daemon's log: one line for each event, with the time. A full file becomes FILE.old. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* The rate limit of events that the network can cause: LOG_BURST events, then one every
 * LOG_INTERVAL_S. Fields burst and interval_s, if not 0, replace these. Other fields start as 0. */
struct log_limit {
	uint32_t burst, interval_s;
	uint64_t second; /* when @used was last reduced, or began, in s */
	uint32_t used; /* events that count against the burst */
	uint32_t suppressed;
};

enum { LOG_BURST = 20, LOG_INTERVAL_S = 60, LOG_FILE_BYTES = 4 << 20 };

/* Sends lines to the file instead of stderr from now on. Returns 0 or -errno. */
int log_open(const char *path);
/* Sends stderr to the log, too: the message of a failed assertion must not be lost. */
void log_take_stderr(void);
void log_line(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* A field of a line, for programs that read the journal. */
struct log_field {
	const char *name;
	const char *value;
};

/* Sends lines to journald's socket from now on if stderr is the journal's. */
void log_journal(const char *path);
/* Logs a line. The journal also gets the fields, which end with a NULL name. */
void log_event(const struct log_field *fields, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
/* Reports whether an event of this kind may be logged now. */
bool log_allowed(struct log_limit *limit);
