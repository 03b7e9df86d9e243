/* SPDX-License-Identifier: BSD-2-Clause */
/* A host's handle of one file or block device, and the session with the host. Both are opened again
 * after a loss, if the path still names the same file. For any number of threads. */
#pragma once

#include <careful/block.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "local/connection.h"

struct handle {
	struct connection *connection;
	struct sockaddr_storage address;
	char *path;
	bool is_writable;
	bool is_replaced; /* another file has the path; the file is not opened again */
	uint64_t inode, device;
	pthread_rwlock_t lock; /* write-held while `region` changes, read-held while it is used */
	uint32_t peer;
	uint32_t region; /* the host's key for the handle; 0: none */
};

/* Recoveries that one call has used so far. */
struct handle_tries {
	int failures, reopens;
};

/* Connects to carefuld; opens no handle. 0, or -errno; call handle_deinit() in either case. */
int handle_init(struct handle *handle, const char *sock, const struct sockaddr_storage *address,
		const char *path);
void handle_deinit(struct handle *handle);

/* Opens the file for the first time. @writable: see file_open(). 0, or -errno. */
int handle_open(struct handle *handle, bool writable, struct careful_block_attr *attr);

/* Reports whether an error means that frames were lost or damaged, or that the session ended. */
bool handle_lost_data(int rc);

/* Prepares another try after `rc` from the handle `region`: reopens the file if the handle has
 * ended or losses repeat. 0: try again; -ESTALE: another file has the path; or -errno. */
int handle_recover(struct handle *handle, struct handle_tries *tries, uint32_t region, int rc);

/* Syncs the file. 0, or -errno. */
int handle_commit(struct handle *handle);

/* Sends a request for a range of the file; repeats a lost request. args: the answer's words. */
int handle_ask_range(struct handle *handle, uint32_t handler, uint32_t flags, uint64_t nbytes,
		     uint64_t offset, uint32_t args[4], void *answer, size_t answer_size);
