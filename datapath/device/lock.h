/* SPDX-License-Identifier: BSD-2-Clause */
/* Names the process that holds flock() on a file. */
#ifndef DEVICE_LOCK_H
#define DEVICE_LOCK_H

enum { LOCK_HOLDER_BYTES = 48 };

/* Returns the pid of the holder as our PID namespace numbers it. 0: that namespace cannot see the
 * holder, or nobody holds the lock. */
int lock_holder(int fd);
/* Writes the holder for a reader: "process 17". */
void lock_holder_name(int fd, char name[LOCK_HOLDER_BYTES]);

#endif /* DEVICE_LOCK_H */
