/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The client side of the block service, for a program that owns its queue: calls that wait, on top
 * of careful.h. A request that is lost with its epoch is repeated.
 */
#ifndef SERVICE_BLOCK_CLIENT_H
#define SERVICE_BLOCK_CLIENT_H

#include <stdint.h>

#include <careful/careful.h>
#include <careful/block.h>

/*
 * A file, a new file, or a listing at a peer.
 *
 * @handle:     the region that careful_get() and careful_store() name
 * @bytes:      its size
 * @unreadable: entries of a listing that could not be read
 * @attr:       at the time of opening; not for a listing
 */
struct remote_file {
	uint32_t peer;
	uint32_t handle;
	uint32_t unreadable;
	uint64_t bytes;
	struct careful_block_attr attr;
};

/* All return 0 or -errno. They call careful_wait() until the answer comes, so not for callbacks. */
int remote_file_open(struct careful *instance, uint32_t peer, const char *path,
		     struct remote_file *file);
int remote_file_create(struct careful *instance, uint32_t peer, const char *path, uint32_t flags,
		       uint64_t bytes, struct remote_file *file);
/* Reads `bytes` from offset into local. -EIO if the file ends before. */
int remote_file_get(struct careful *instance, const struct remote_file *file, uint64_t offset,
		    const struct careful_span *local, uint32_t bytes, uint32_t flags);
int remote_file_put(struct careful *instance, const struct remote_file *file, uint64_t offset,
		    const struct careful_span *local, uint32_t bytes, uint32_t flags);
/* Gives a created file its name. The handle ends in any case. attr may be NULL. */
int remote_file_commit(struct careful *instance, struct remote_file *file, uint32_t flags,
		       uint32_t mode, uint64_t mtime_ns, struct careful_block_attr *attr);
/* Ends a handle. *attr (or NULL): the present attributes. */
int remote_file_close(struct careful *instance, struct remote_file *file,
		      struct careful_block_attr *attr);
int remote_file_list(struct careful *instance, uint32_t peer, const char *path, uint32_t flags,
		     struct remote_file *listing);
int remote_file_stat(struct careful *instance, uint32_t peer, const char *path,
		     struct careful_block_attr *attr);
int remote_file_mkdir(struct careful *instance, uint32_t peer, const char *path, uint32_t mode);

#endif /* SERVICE_BLOCK_CLIENT_H */
