/* SPDX-License-Identifier: BSD-2-Clause */
/* See block_client.h. */
#include <endian.h>
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <string.h>
#include <sys/random.h>

#include <careful/wire.h>

#include "block_client.h"

enum {
	LOSSES_MAX = 64, /* lost epochs in one call */
	BUSY_MAX = 1000, /* EAGAIN in one call */
	PAUSE_MS = 10, /* before it asks again */
};

/* The errors of one call so far. */
struct tries {
	int losses, busy;
};

/* The result of an operation. */
struct outcome {
	bool done;
	int status;
	uint32_t args[CAREFUL_AM_ARGS];
	uint32_t bytes;
	struct careful_block_attr attr;
};

static void on_done(const struct careful_result *result, void *user)
{
	struct outcome *o = user;

	o->done = true;
	o->status = result->status;
	o->bytes = result->bytes;
	memcpy(o->args, result->args, sizeof(o->args));
	if (result->payload && result->bytes >= sizeof(o->attr))
		memcpy(&o->attr, result->payload, sizeof(o->attr));
}

/*
 * Waits for a try that began with rc. Returns true if its outcome is final. Needs no time limit,
 * since the engine ends every operation when it gives the peer up.
 */
static bool settled(struct careful *instance, int rc, struct outcome *o, struct tries *tries)
{
	while (!rc && !o->done)
		careful_wait(instance, -1, -1);
	if (rc)
		o->status = rc;
	if (o->status == -EAGAIN) /* too many operations here or at the server */
		tries->busy++;
	else if (o->status == -ECONNRESET)
		tries->losses++;
	else
		return true;
	if (tries->busy >= BUSY_MAX || tries->losses >= LOSSES_MAX)
		return true;
	careful_wait(instance, PAUSE_MS, -1);
	return false;
}

static int request(struct careful *instance, uint32_t peer, uint16_t handler, const uint32_t *args,
		   const void *payload, size_t bytes, struct outcome *o)
{
	struct tries tries = { 0 };
	int rc;

	do {
		*o = (struct outcome){ 0 };
		rc = careful_request(instance, peer, handler, args, payload, (uint32_t)bytes,
				     on_done, o);
	} while (!settled(instance, rc, o, &tries));
	return o->status;
}

/* Sets args[2] and [3] of OPEN and LIST, which mark a repeated request. */
static int name_attempt(uint32_t *args)
{
	return getrandom(&args[2], 2 * sizeof(args[2]), 0) == 2 * sizeof(args[2]) ? 0 : -EIO;
}

/* Sends a request whose payload is careful_block_open and a path. */
static int request_open(struct careful *instance, uint32_t peer, uint16_t handler,
			const uint32_t *args, struct careful_block_open *open, const char *path,
			struct outcome *o)
{
	char payload[sizeof(*open) + PATH_MAX];
	size_t n = strlen(path);

	if (n >= PATH_MAX)
		return -ENAMETOOLONG;
	open->path_bytes = htobe32((uint32_t)n);
	memcpy(payload, open, sizeof(*open));
	memcpy(payload + sizeof(*open), path, n); /* NOLINT(bugprone-not-null-terminated-result) */
	return request(instance, peer, handler, args, payload, sizeof(*open) + n, o);
}

static int open_file(struct careful *instance, uint32_t peer, const char *path,
		     struct careful_block_open *open, struct remote_file *file)
{
	uint32_t args[CAREFUL_AM_ARGS] = { 0 };
	struct outcome o;
	int rc = name_attempt(args);

	if (!rc)
		rc = request_open(instance, peer, CAREFUL_BLOCK_OPEN, args, open, path, &o);
	if (rc)
		return rc;
	*file = (struct remote_file){
		.peer = peer,
		.handle = o.args[0],
		.bytes = be64toh(o.attr.bytes),
		.attr = o.attr,
	};
	return 0;
}

int remote_file_open(struct careful *instance, uint32_t peer, const char *path,
		     struct remote_file *file)
{
	struct careful_block_open open = { 0 };

	return open_file(instance, peer, path, &open, file);
}

int remote_file_create(struct careful *instance, uint32_t peer, const char *path, uint32_t flags,
		       uint64_t bytes, struct remote_file *file)
{
	struct careful_block_open open = {
		.flags = htobe32(flags | CAREFUL_BLOCK_CREATE),
		.bytes = htobe64(bytes),
	};

	return open_file(instance, peer, path, &open, file);
}

int remote_file_get(struct careful *instance, const struct remote_file *file, uint64_t offset,
		    const struct careful_span *local, uint32_t bytes, uint32_t flags)
{
	struct outcome o;
	struct tries tries = { 0 };
	int rc;

	do {
		o = (struct outcome){ 0 };
		rc = careful_get(instance, file->peer, file->handle, offset, local, bytes, flags,
				 on_done, &o);
	} while (!settled(instance, rc, &o, &tries));
	return o.status || o.bytes == bytes ? o.status : -EIO;
}

int remote_file_put(struct careful *instance, const struct remote_file *file, uint64_t offset,
		    const struct careful_span *local, uint32_t bytes, uint32_t flags)
{
	struct outcome o;
	struct tries tries = { 0 };
	int rc;

	do {
		o = (struct outcome){ 0 };
		rc = careful_store(instance, file->peer, file->handle, offset, local, bytes,
				   CAREFUL_HANDLERS, NULL, flags, on_done, &o);
	} while (!settled(instance, rc, &o, &tries));
	return o.status;
}

int remote_file_commit(struct careful *instance, struct remote_file *file, uint32_t flags,
		       uint32_t mode, uint64_t mtime_ns, struct careful_block_attr *attr)
{
	struct careful_block_open open = {
		.mode = htobe32(mode),
		.mtime_ns = htobe64(mtime_ns),
	};
	uint32_t args[CAREFUL_AM_ARGS] = { file->handle, flags };
	struct outcome o;
	int rc = request(instance, file->peer, CAREFUL_BLOCK_COMMIT, args, &open, sizeof(open), &o);

	if (!rc && attr)
		*attr = o.attr;
	return rc;
}

int remote_file_close(struct careful *instance, struct remote_file *file,
		      struct careful_block_attr *attr)
{
	uint32_t args[CAREFUL_AM_ARGS] = { file->handle };
	struct outcome o;
	int rc = request(instance, file->peer, CAREFUL_BLOCK_CLOSE, args, NULL, 0, &o);

	if (!rc && attr)
		*attr = o.attr;
	return rc;
}

int remote_file_list(struct careful *instance, uint32_t peer, const char *path, uint32_t flags,
		     struct remote_file *listing)
{
	uint32_t args[CAREFUL_AM_ARGS] = { flags };
	struct outcome o;
	int rc = name_attempt(args);

	if (!rc)
		rc = request(instance, peer, CAREFUL_BLOCK_LIST, args, path, strlen(path), &o);
	if (rc)
		return rc;
	*listing = (struct remote_file){
		.peer = peer,
		.handle = o.args[0],
		.bytes = (uint64_t)o.args[1] << 32 | o.args[2],
		.unreadable = o.args[3],
	};
	return 0;
}

int remote_file_stat(struct careful *instance, uint32_t peer, const char *path,
		     struct careful_block_attr *attr)
{
	uint32_t args[CAREFUL_AM_ARGS] = { 0 };
	struct outcome o;
	int rc = request(instance, peer, CAREFUL_BLOCK_STAT, args, path, strlen(path), &o);

	if (!rc)
		*attr = o.attr;
	return rc;
}

int remote_file_mkdir(struct careful *instance, uint32_t peer, const char *path, uint32_t mode)
{
	struct careful_block_open open = { .mode = htobe32(mode) };
	uint32_t args[CAREFUL_AM_ARGS] = { 0 };
	struct outcome o;

	return request_open(instance, peer, CAREFUL_BLOCK_MKDIR, args, &open, path, &o);
}
