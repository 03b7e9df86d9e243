/* SPDX-License-Identifier: BSD-2-Clause */
/* A file or block device of a host, for any number of threads. Requests are repeated when a session
 * ends. When another file gets the name, every call fails with -ESTALE. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

enum {
	FILE_PIECE_BYTES = 1 << 20, /* most bytes of one operation */
};

struct file;

/* Opens a file. 0, or -errno.
 *
 * @sock: path of carefuld's socket
 * @address: the host's address and port
 * @path: relative to what the host exports
 * @writable: open for writing; if the export is read-only, opens for reading instead */
int file_open(const char *sock, const struct sockaddr_storage *address, const char *path,
	      bool writable, struct file **file);

void file_close(struct file *file);

uint64_t file_bytes(const struct file *file);

bool file_is_writable(const struct file *file);

/* Reports whether only this client can have the file open: a writable block device. */
bool file_is_exclusive(const struct file *file);

/* Read or write a range inside the file. 0, or -errno. */
int file_read(struct file *file, void *buffer, uint64_t nbytes, uint64_t offset);
int file_write(struct file *file, const void *buffer, uint64_t nbytes, uint64_t offset);

/* Zeroes a range without moving data. @give_back: makes a hole; else keeps the space. 0;
 * -EOPNOTSUPP: the host cannot do it, and did nothing; or -errno. */
int file_zero(struct file *file, uint64_t nbytes, uint64_t offset, bool give_back);

/* Makes all earlier writes of all clients durable. 0, or -errno. */
int file_sync(struct file *file);

/* Calls on_extent for each extent of a range, data or hole, in order, until it returns -errno. May
 * end before the end of the range. 0, or -errno. */
int file_extents(struct file *file, uint64_t nbytes, uint64_t offset,
		 int (*on_extent)(void *arg, uint64_t offset, uint64_t nbytes, bool is_data),
		 void *arg);

/* Returns the NBD errno for a failure. Unknown errors become EIO: EINVAL would blame the
 * request. */
int file_nbd_error(int rc);
