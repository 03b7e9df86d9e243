/* SPDX-License-Identifier: BSD-2-Clause */
/* carefuld as a process: its limits, start in the background, and first line of output. */
#pragma once

/* Raises the limits of locked memory and open files. */
void process_raise_limits(void);
/* Continues in a child without a terminal, and returns the child's end of a pipe. The parent waits
 * until the child serves or fails, then prints the child's error and exits with its status. */
int process_detach(int ready_fd);
/* Sends a line to the program that started us: "ready", or "error: " and the reason. */
void process_report(int fd, const char *text, const char *error);
/* Leaves the terminal: later output goes to the log. */
void process_leave_terminal(void);
