/* SPDX-License-Identifier: BSD-2-Clause */
/* Names the process that holds flock() on a file. */
#pragma once

enum { LOCK_HOLDER_BYTES = 48 };

/* Returns the holder's pid in our PID namespace; 0: not visible there, or nobody holds the lock. */
int lock_holder(int fd);
/* Writes lock_holder()'s result as text: "process 17". */
void lock_holder_name(int pid, char name[LOCK_HOLDER_BYTES]);
