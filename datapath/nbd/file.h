/* SPDX-License-Identifier: BSD-2-Clause */
/* A file or block device of a host, for any number of threads. Requests that a session's end
 * interrupts are repeated. Once another file has the name, every call fails with -ESTALE. */
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
 * @wanted: open for writing; a read-only export is opened for reading instead */
int file_open(const char *sock, const struct sockaddr_storage *address, const char *path,
	      bool wanted, struct file **file);

void file_close(struct file *file);

uint64_t file_bytes(const struct file *file);

bool file_is_writable(const struct file *file);

/* Reports whether no other client can have the file open for writing: a writable block device. */
bool file_is_exclusive(const struct file *file);

/* Read or write a range inside the file. 0, or -errno. */
int file_read(struct file *file, void *buffer, uint64_t nbytes, uint64_t offset);
int file_write(struct file *file, const void *buffer, uint64_t nbytes, uint64_t offset);

/* Zeroes a range without moving data. @give_back: the host makes a hole; else it keeps the space.
 * 0; -EOPNOTSUPP: the host cannot, and did nothing; or -errno. */
int file_zero(struct file *file, uint64_t nbytes, uint64_t offset, bool give_back);

/* Makes everything written so far durable, by whichever client. 0, or -errno. */
int file_sync(struct file *file);

/* Calls `found` for each piece of a range, data or hole, in order; an -errno from `found` ends the
 * walk. Bytes behind the last piece were not examined. 0, or -errno. */
int file_extents(struct file *file, uint64_t nbytes, uint64_t offset,
		 int (*found)(void *arg, uint64_t offset, uint64_t nbytes, bool is_data),
		 void *arg);

/* Returns the NBD errno for a failure. Unknown errors become EIO, because EINVAL would blame the
 * client's request. */
int file_nbd_error(int rc);
