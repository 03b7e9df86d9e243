/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * carefuld as a process: its limits, how it leaves the terminal, and the line that those who
 * started it wait for.
 */
#ifndef DAEMON_PROCESS_H
#define DAEMON_PROCESS_H

/* Memory that may be locked, and open files: as many as may be. */
void process_raise_limits(void);
/* Goes on in a child without a terminal; the parent ends when the child serves or has
 * failed, with its line and exit status. Returns the child's end of the pipe. */
int process_detach(int ready_fd);
/* One line for who started us: "ready", or "error: " and why. */
void process_tell(int fd, const char *text, const char *error);
/* No terminal any more: what is said goes to the log. */
void process_silence(void);

#endif /* DAEMON_PROCESS_H */
