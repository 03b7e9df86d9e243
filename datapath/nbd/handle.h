/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The handle of one file or block device at its host, and the session with that, for any number of
 * threads: opened again where either has ended, as long as it is the same file.
 */
#ifndef CAREFUL_NBD_HANDLE_H
#define CAREFUL_NBD_HANDLE_H

#include <careful/block.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "nbd/client.h"

/*
 * @lock:         held to write while `region` changes, to read while it is used
 * @region:       the handle's key; 0, which no handle has: there is none
 * @is_replaced:  another file has the path now: nothing is opened any more
 */
struct handle {
	struct client *client;
	struct sockaddr_storage address;
	char *path;
	bool is_writable, is_replaced;
	uint64_t inode, device;
	pthread_rwlock_t lock;
	uint32_t peer, region;
};

/* What one call has gone through so far. */
struct handle_tries {
	int failures, reopens;
};

/* A connection to carefuld, and no handle yet. 0, or -errno; handle_deinit() in either case. */
int handle_init(struct handle *handle, const char *sock, const struct sockaddr_storage *address,
		const char *path);
void handle_deinit(struct handle *handle);

/* Opens the file for the first time. @wanted: as file_open()'s. 0, or -errno. */
int handle_open(struct handle *handle, bool wanted, struct careful_block_attr *attr);

/* Reports whether frames were lost, or damaged. Where a host has gone, its sessions end like this, too. */
bool handle_is_damaged(int rc);

/* After a try with the handle `region` that failed with `rc`, opens the file again where that has
 * ended, or too much was lost. 0: the call may be tried again; -ESTALE: another file has the path;
 * or -errno. */
int handle_mend(struct handle *handle, struct handle_tries *tries, uint32_t region, int rc);

/* Syncs the file. 0, or -errno. */
int handle_commit(struct handle *handle);

/* What is asked of a range of the file, with such flags; again where it was lost.
 * args: the answer's words. 0, or -errno. */
int handle_ask_range(struct handle *handle, uint32_t handler, uint32_t flags, uint64_t nbytes,
		     uint64_t offset, uint32_t args[4], void *answer, size_t answer_size);

#endif /* CAREFUL_NBD_HANDLE_H */
