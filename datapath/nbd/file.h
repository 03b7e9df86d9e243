/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A file or block device of a host, for any number of threads: ranges of it are read and written in
 * their place. What a session's end takes is asked for again; where the file was found to have been
 * replaced by another, every call ends with -ESTALE from then on.
 */
#ifndef CAREFUL_NBD_FILE_H
#define CAREFUL_NBD_FILE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

enum {
	FILE_PIECE_BYTES = 1 << 20, /* of one operation */
};

struct file;

/*
 * Opens one.
 *
 * @sock:     carefuld's socket
 * @address:  of the host, with the port
 * @path:     below what the host exports
 * @wanted:   whether it is to be written; where the export is read-only it is opened to be read
 *
 * 0, or -errno.
 */
int file_open(const char *sock, const struct sockaddr_storage *address, const char *path,
	      bool wanted, struct file **file);

void file_close(struct file *file);

uint64_t file_bytes(const struct file *file);

bool file_is_writable(const struct file *file);

/* Reports whether nobody else can have it open to be written: a block device. */
bool file_is_exclusive(const struct file *file);

/* 0, or -errno. The range lies in the file. */
int file_read(struct file *file, void *buffer, uint64_t nbytes, uint64_t offset);
int file_write(struct file *file, const void *buffer, uint64_t nbytes, uint64_t offset);

/* Makes it read as zeros, without moving any; @give_back: the host's file becomes a hole there,
 * else it keeps its space. 0; -EOPNOTSUPP: the host cannot, and has done nothing; or -errno. */
int file_zero(struct file *file, uint64_t nbytes, uint64_t offset, bool give_back);

/* What was written by anybody until now is durable. 0, or -errno. */
int file_sync(struct file *file);

/*
 * Where a range holds data.
 *
 * @found:  told of each piece in order, from the range's begin on; -errno ends it
 *
 * 0, or -errno. What lies behind the last piece was not looked at.
 */
int file_extents(struct file *file, uint64_t nbytes, uint64_t offset,
		 int (*found)(void *arg, uint64_t offset, uint64_t nbytes, bool is_data),
		 void *arg);

/* Returns the errno, of the few that the NBD protocol has, that tells a client of a failure: to a
 * client EINVAL says that its request was wrong, so what NBD has no word for is EIO. */
int file_nbd_error(int rc);

#endif /* CAREFUL_NBD_FILE_H */
