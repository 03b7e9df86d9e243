/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The daemon's log: one line an event, with the time. Bounded: a full file becomes
 * FILE.old, and what the network can cause is limited in rate.
 */
#ifndef DAEMON_LOG_H
#define DAEMON_LOG_H

#include <stdbool.h>
#include <stdint.h>

/* Lets LOG_BURST events through, then one each LOG_INTERVAL_S, or as many as `burst` and
 * `interval_s` say where they are not 0. The rest is zero to begin with. */
struct log_limit {
	uint32_t burst, interval_s;
	uint64_t second; /* of the latest event let through */
	uint32_t used;
	uint32_t suppressed;
};

enum { LOG_BURST = 20, LOG_INTERVAL_S = 60, LOG_FILE_BYTES = 4 << 20 };

/* Lines go to path from now on, not to stderr. 0 or -errno. */
int log_open(const char *path);
/* stderr goes to the log as well, so that an assertion's last words are kept. */
void log_take_stderr(void);
void log_line(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* What a line says, for programs that read the journal. */
struct log_field {
	const char *name;
	const char *value;
};

/* Lines go to journald's socket from now on if that is where stderr goes, else as before. */
void log_journal(const char *path);
/* A line; in the journal it has the fields, which end with a name of NULL. */
void log_event(const struct log_field *fields, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
/* Reports whether an event of this kind may be logged now. */
bool log_allowed(struct log_limit *limit);

#endif /* DAEMON_LOG_H */
